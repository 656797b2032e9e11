"""Cut the lines of a journal into partitions; numbers, times and texts of lines stay as they are.

A line belongs to the partition of its user, or of the user of its decision. Decisions that expired
together are told in one line per partition. Each partition is told what is compared with which
baseline. That somebody was erased needs no line: theirs are gone.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from dyclu.errors import FileError
from dyclu.service.cluster.places import partition_of, told_by
from dyclu.service.disk.journal import Row
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import ExpiryBody

NOWHERE = 0xFFFF
"""Stands for the partition of what is no decision."""

_expiry = msgspec.json.Decoder(ExpiryBody).decode


class _Slot(msgspec.Struct):
    slot: int = 1


_slot = msgspec.json.Decoder(_Slot).decode


def cut(reader: JournalReader, partitions: int) -> Iterator[tuple[int, Row]]:
    """Yield all lines as they are stored, each with its partition."""
    places = array("H", [NOWHERE]) * (reader.last() + 1)
    for row in reader.rows(0, upto=reader.last()):
        seq, _, kind, ref, user, of, body = row
        if kind == "erasure":
            continue
        if kind == "comparison":
            yield from ((partition, row) for partition in range(partitions))
        elif kind == "expiry":
            yield from _expired(row, _expiry(body).decisions, places)
        elif user is None:
            place = NOWHERE if of is None else places[of]
            if place == NOWHERE:
                raise FileError(f"line {seq} of {reader.path} is about no decision that is there")
            yield place, row
        else:
            place = partition_of(user, partitions)
            if kind == "decision":
                places[seq] = place
                _check_id(ref or "", place)
            yield place, row


def _expired(row: Row, decisions: list[int], places: array[int]) -> Iterator[tuple[int, Row]]:
    together: dict[int, list[int]] = defaultdict(list)
    for seq in decisions:
        together[places[seq]].append(seq)
    for place, some in sorted(together.items()):
        if place != NOWHERE:
            yield place, (*row[:6], msgspec.json.encode(ExpiryBody(some)).decode())


def _check_id(ref: str, place: int) -> None:
    if told_by(ref) not in (None, place):
        raise FileError(
            f"the decision {ref} has an id that tells another partition than that of its user, so "
            "its reward could not find it; erase its user, or choose another number of partitions"
        )


def slot_of(kind: str, body: str) -> int:
    """Return the slot of a reward's line, 1 for others: a column of its own in PostgreSQL."""
    return _slot(body).slot if kind == "reward" else 1
