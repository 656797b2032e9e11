"""Batches: those of decisions and of rewards go to the process that owns what they are about.

Items get their ids before anything is sent, so that a batch can be sent again: what was done before
is answered as then. If a batch fails, the caller gets the ids and the results there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from dyclu.client.logs import BATCH, BATCH_NUMBERS, parts
from dyclu.client.owners import Owners
from dyclu.client.requests import (
    BatchError,
    Request,
    ServiceError,
    decision_body,
    observations_request,
    reward_body,
)
from dyclu.errors import OptionError


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a batch: what is sent, and the row that asks for it, with its id.

    It is about a user or a decision; `numbers` tells its size.
    """

    body: dict[str, Any]
    row: dict[str, Any]
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


class Answers:
    """The results of all rows of a call, which come batch by batch."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self._results: list[dict[str, Any] | None] = [None] * len(rows)

    def take(self, batch: Batch, answer: Mapping[str, Any]) -> None:
        """Put the results of a batch into the places of its items."""
        for place, result in zip(batch.places, answer["results"], strict=True):
            self._results[place] = result

    def without(self, batch: Batch, error: ServiceError) -> BatchError:
        """Return the error of a call of which this batch failed."""
        return BatchError(batch.renumbered(error), results=self._results, rows=self._rows)

    def all(self) -> list[dict[str, Any]]:
        """Return the results, in the order of the rows."""
        return [one for one in self._results if one is not None]


def check_json(rows: Iterable[Any]) -> None:
    """Refuse rows that cannot be sent, before any of them is."""
    for place, row in enumerate(rows):
        try:
            json.dumps(row, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"row {place} cannot be sent ({error}); give plain numbers and text, and leave out "
                "what is missing; nothing was sent"
            ) from None


def rows_of(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return what the caller asked for, with ids."""
    return [item.row for item in items]


def decision_items(rows: Iterable[Mapping[str, Any]], owners: Owners) -> list[Item]:
    """Return decisions that are asked for, each with an id."""
    return [_decision(_with(row, place, "user", "arms"), owners) for place, row in enumerate(rows)]


def _decision(row: Mapping[str, Any], owners: Owners) -> Item:
    options = {name: value for name, value in row.items() if name not in _TOLD_APART}
    user, id = row["user"], row.get("decision_id") or owners.new_id(row["user"])
    body = decision_body(user, row["arms"], row.get("context"), id, options)
    named = {**row, "decision_id": id}
    return Item(body, named, user=user, numbers=sum(len(arm) for arm in row["arms"].values()))


_TOLD_APART = frozenset({"user", "arms", "context", "decision_id"})


def reward_items(rows: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Return rewards, each with an id."""
    return [_reward(_with(row, place, "decision_id")) for place, row in enumerate(rows)]


def _reward(row: Mapping[str, Any]) -> Item:
    body = reward_body(*(row.get(name) for name in ("value", "slot", "values", "reward_id")))
    given = {name: value for name, value in row.items() if value is not None}
    named = {**row, "reward_id": body["reward_id"]}
    return Item(given | body, named, decision=row["decision_id"])


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

    >>> items = [Item({}, {}, user="ana"), Item({}, {}, user="bea")]
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


def observation_batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[Batch]:
    """Yield requests for observations, in their order."""
    places = count()
    for part in parts(rows, BATCH):
        yield Batch("observations", [next(places) for _ in part], observations_request(part))


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
