"""Batches of decisions and of rewards: each goes to the process that owns what it is about.

Items get their ids before anything is sent, so that a batch can be sent again: what was done before
is answered as then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyclu.client.logs import BATCH, BATCH_NUMBERS
from dyclu.client.owners import Owners
from dyclu.client.requests import Request, ServiceError, decision_body, reward_body
from dyclu.errors import OptionError


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a batch, and the user or the decision it is about; `numbers` tells its size."""

    body: dict[str, Any]
    user: str | None = None
    decision: str | None = None
    numbers: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """A request, and the places of its items among all items."""

    field: str
    places: Sequence[int]
    request: Request

    def renumbered(self, error: ServiceError) -> ServiceError:
        """Return a refusal of this request with the place among all items."""
        found = re.match(rf"{self.field}\[(\d+)\]", error.field or "")
        if found is None:
            return error
        place = self.places[int(found[1])]
        return ServiceError(
            f"row {place}: {error}",
            status=error.status,
            code=error.code,
            field=f"{self.field}[{place}]{(error.field or '')[found.end() :]}",
        )


def decision_items(rows: Iterable[Mapping[str, Any]], owners: Owners) -> list[Item]:
    """Return decisions that are asked for, each with an id."""
    return [_decision(_with(row, place, "user", "arms"), owners) for place, row in enumerate(rows)]


def _decision(row: Mapping[str, Any], owners: Owners) -> Item:
    options = {name: value for name, value in row.items() if name not in _TOLD_APART}
    user, id = row["user"], row.get("decision_id") or owners.new_id(row["user"])
    body = decision_body(user, row["arms"], row.get("context"), id, options)
    return Item(body, user=user, numbers=sum(len(arm) for arm in row["arms"].values()))


_TOLD_APART = frozenset({"user", "arms", "context", "decision_id"})


def reward_items(rows: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Return rewards, each with an id."""
    return [_reward(_with(row, place, "decision_id")) for place, row in enumerate(rows)]


def _reward(row: Mapping[str, Any]) -> Item:
    body = reward_body(*(row.get(name) for name in ("value", "slot", "values", "reward_id")))
    given = {name: value for name, value in row.items() if value is not None}
    return Item(given | body, decision=row["decision_id"])


def _with(row: Mapping[str, Any], place: int, *names: str) -> Mapping[str, Any]:
    """Return a row that has these names, or say which one is missing."""
    if missing := [name for name in names if name not in row]:
        raise OptionError(
            f"row {place} has {', '.join(row) or 'nothing'}, expected {' and '.join(names)}; "
            f"add {missing[0]}"
        )
    return row


def batches(path: str, field: str, items: Sequence[Item], owners: Owners) -> Iterator[Batch]:
    """Yield requests for all items; what is learnt of owners from one serves the next.

    Items of a user stay in their order.

    >>> items = [Item({"user": "ana"}, user="ana"), Item({"user": "bea"}, user="bea")]
    >>> [batch.places for batch in batches("/v1/decisions:batch", "x", items, Owners("http://a"))]
    [[0, 1]]
    """
    for part in _parts(items):
        groups: dict[str, list[int]] = {}
        for place in part:
            item = items[place]
            about = Request("POST", path, user=item.user, decision=item.decision)
            groups.setdefault(owners.url(about), []).append(place)
        for places in groups.values():
            # All of them are asked of the same process, which the first one names.
            first = items[places[0]]
            body = {field: [items[place].body for place in places]}
            request = Request(
                "POST", path, body, batch=True, user=first.user, decision=first.decision
            )
            yield Batch(field, places, request)


def _parts(items: Sequence[Item]) -> Iterator[list[int]]:
    """Yield places of items, as many as one request may hold."""
    part: list[int] = []
    numbers = 0
    for place, item in enumerate(items):
        if part and (len(part) == BATCH or numbers + item.numbers > BATCH_NUMBERS):
            yield part
            part, numbers = [], 0
        part.append(place)
        numbers += item.numbers
    if part:
        yield part
