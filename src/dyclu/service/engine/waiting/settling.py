"""What has arrived for a decision that settles: how it is named, and what is learnt of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dyclu.service.engine.lines import ArrivalBody, Line
from dyclu.service.schema import Combination


def name_of(seq: int, slot: int, reward_id: str | None) -> str:
    """Return the id of an arrival's line; the journal holds each id once.

    Without a `reward_id` a slot has only one arrival. No id of a caller contains a slash.

    >>> name_of(7, 2, None), name_of(7, 2, "order-9")
    ('/7/2', 'order-9/2')
    """
    return f"{'/' + str(seq) if reward_id is None else reward_id}/{slot}"


def first_by_slot(arrived: Iterable[Line]) -> dict[int, Line]:
    """Return the first arrival of each slot."""
    found: dict[int, Line] = {}
    for line in arrived:
        assert isinstance(line.body, ArrivalBody)
        found.setdefault(line.body.slot, line)
    return found


def settled(arrived: Iterable[Line], how: Combination) -> dict[int, float]:
    """Return the reward of each slot for which anything has arrived.

    >>> lines = [
    ...     Line(8, 0, "arrival", "a/1", None, 7, ArrivalBody(1.0)),
    ...     Line(9, 0, "arrival", "b/1", None, 7, ArrivalBody(2.5)),
    ... ]
    >>> settled(lines, "first"), settled(lines, "sum"), settled(lines, "last")
    ({1: 1.0}, {1: 3.5}, {1: 2.5})
    """
    by_slot: dict[int, list[float]] = {}
    for line in arrived:
        assert isinstance(line.body, ArrivalBody)
        by_slot.setdefault(line.body.slot, []).append(line.body.value)
    return {slot: _combined(values, how) for slot, values in by_slot.items()}


def _combined(values: list[float], how: Combination) -> float:
    match how:
        case "first":
            return values[0]
        case "sum":
            return math.fsum(values)
        case "last":
            return values[-1]
