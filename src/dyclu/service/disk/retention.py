"""Retention: up to which line a base may stand now, and which lines it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.service.disk import bases
from dyclu.service.disk.journal import Journal
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import MICRO
from dyclu.service.settings import Keep
from dyclu.storage import read

STEPS = 20
"""A base moves on by a twentieth of what is kept: so much more than that is on the disk at most."""

DROPPED_AT_ONCE = 500
"""Lines that are deleted in one commit; requests wait for some milliseconds."""


def due(reader: JournalReader, keep: Keep, *, now: int) -> int | None:
    """Return the line that the next base should stand for, None if the present one will do."""
    if keep.lines is not None:
        upto = reader.last() - keep.lines
        return upto if upto - reader.facts().base >= max(1, keep.lines // STEPS) else None
    if keep.seconds is None:
        return None
    base, kept = reader.facts().base, round(keep.seconds * MICRO)
    oldest = reader.chunk(base, most=1)
    if not oldest or now - oldest[0].at < kept + kept // STEPS:
        return None
    upto = reader.last_before(now - kept)
    return upto if upto > base else None


def pending_at(folder: Path) -> NDArray[Any]:
    """Return the numbers of the decisions that are pending in a base whose files are there."""
    return read(folder / bases.STATE).arrays["pending_seq"]


def drop(journal: Journal, reader: JournalReader, pending: NDArray[Any]) -> Iterator[bases.Write]:
    """Yield the writes that delete lines that the base stands for.

    `pending` decisions stay, with what has arrived for them.
    """
    upto, after = reader.facts().base, 0
    while lines := reader.owners(after, upto, most=DROPPED_AT_ONCE):
        numbers, owners = np.array(lines).T
        yield partial(journal.drop_lines, numbers[~_among(pending, owners)].tolist())
        after = lines[-1][0]
    yield partial(journal.note_dropped, upto)


def _among(pending: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which numbers are among `pending`, which increase."""
    if not len(pending):
        return np.zeros(len(numbers), np.bool_)
    places = np.searchsorted(pending, numbers).clip(max=len(pending) - 1)
    found: NDArray[np.bool_] = pending[places] == numbers
    return found
