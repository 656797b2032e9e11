"""Columns: arrays whose rows belong together and grow together.

A book of many small models is a handful of arrays, one row per model: compact, quick to sum over,
and saved as they are. An owner declares its columns as attributes; these functions look after them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, tuple[tuple[int, ...], type[Any]]]
"""Name of each column -> shape and type of one row."""

Parts = Mapping[str, tuple[int, ...]]
"""Name of each part of a column -> shape of it in one row."""

FIRST_ROOM = 16
"""Rows of new columns."""

GROWTH = 1.25
"""By how much columns grow when they are full: little of the room is ever unused."""


def create(owner: object, columns: Columns) -> None:
    """Give the owner its columns, all zeros."""
    for name, (shape, dtype) in columns.items():
        setattr(owner, name, np.zeros((FIRST_ROOM, *shape), dtype))


def make_room(owner: object, columns: Columns, rows: int) -> None:
    """Let the columns have at least this many rows; what they hold stays.

    However many rows come at a time, the room is the same in the end: what was saved and read back
    is in no way different from what was never interrupted.
    """
    for name in columns:
        column = getattr(owner, name)
        room = len(column)
        while room < rows:
            room = int(GROWTH * room)
        if room > len(column):
            # Zeros that nobody touches take no memory.
            wider = np.zeros((room, *column.shape[1:]), column.dtype)
            wider[: len(column)] = column
            setattr(owner, name, wider)


def expose_parts(owner: object, packed: str, parts: Parts) -> None:
    """Let what lies side by side in the rows of one column be columns too: views of it.

    To be done whenever the column was made anew. A kernel that needs many of the parts is called
    with one array, and a row of them is in one place.
    """
    column, start = getattr(owner, packed), 0
    for name, shape in parts.items():
        end = start + math.prod(shape)
        setattr(owner, name, column[:, start:end].reshape(len(column), *shape))
        start = end


def copy(owner: object, columns: Columns, row: int, onto: int) -> None:
    """Let a row hold what another one holds."""
    for name in columns:
        column = getattr(owner, name)
        column[onto] = column[row]


def clear(owner: object, columns: Columns, row: int) -> None:
    """Let a row be all zeros, as before it was used."""
    for name in columns:
        getattr(owner, name)[row] = 0


def dump(owner: object, columns: Columns, rows: int) -> dict[str, NDArray[Any]]:
    """Return the rows in use."""
    return {name: getattr(owner, name)[:rows] for name in columns}


def fill(owner: object, columns: Columns, rows: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put back what `dump` returned."""
    make_room(owner, columns, rows)
    for name in columns:
        getattr(owner, name)[:rows] = arrays[name]
