"""Columns: arrays whose rows belong together and grow together.

Many small models are stored as a few arrays with one row per model: compact, quick to sum over, and
easy to save. Columns are attributes of their owner; these functions create and change them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import OlderFile

_Key = TypeVar("_Key")

_Scalar = TypeVar("_Scalar", bound=np.generic)

Columns = tuple[str, ...]
"""Names of the attributes of the owner that are columns."""

Parts = Mapping[str, tuple[int, ...]]
"""Name of each part of a column -> shape of it in one row."""

FIRST_ROOM = 16
"""Number of rows of new columns."""

GROWTH, MOST_GROWTH = 1.25, 2**22
"""Full columns grow by this factor, and the widest by at most so many bytes: where columns grow in
place, no call takes long for it, and little room is unused."""


def new(dtype: type[_Scalar], *shape: int) -> NDArray[_Scalar]:
    """Return a column of zeros, given type and shape of one row."""
    return np.zeros((FIRST_ROOM, *shape), dtype)


def names(owner: object) -> Columns:
    """Return the names of all attributes that are arrays so far, in the order of their creation."""
    return tuple(name for name, value in vars(owner).items() if isinstance(value, np.ndarray))


def make_room(owner: object, columns: Columns, rows: int) -> None:
    """Grow the columns to at least this many rows; their contents stay.

    All columns of one call have the same number of rows. It does not depend on the number of steps,
    so that columns read back from a file have the size of columns that grew one row at a time.
    Views of a column are parts of another array afterwards, those that are attributes of the owner
    are None: expose them again, also if there was no memory for more rows.
    """
    held = [getattr(owner, name) for name in columns]
    widest = max(column[0].nbytes for column in held)
    room = min(len(column) for column in held)
    del held
    while room < rows:
        room += max(min(int((GROWTH - 1) * room), MOST_GROWTH // max(widest, 1)), 1)
    for name in columns:
        if len(getattr(owner, name)) < room:
            _lengthen(owner, name, room)


def _lengthen(owner: object, name: str, room: int) -> None:
    """Lengthen a column: where it is, if nothing else refers to it, otherwise as a copy.

    On Linux, the pages of a large array that is lengthened where it is are moved, not copied.
    """
    column = getattr(owner, name)
    for other, value in vars(owner).items():
        if value is column or (isinstance(value, np.ndarray) and value.base is column):
            setattr(owner, other, None)
    value = None
    try:
        column.resize((room, *column.shape[1:]))
    except ValueError:  # a view or a tuple of arrays still refers to it
        wider = np.zeros((room, *column.shape[1:]), column.dtype)
        wider[: len(column)] = column
        column = wider
    finally:
        setattr(owner, name, column)


def expose_parts(owner: object, packed: str, parts: Parts) -> None:
    """Expose slices of a packed column as named views, the attributes of the owner.

    Must be called whenever the column was replaced. Packing lets a kernel take one array instead of
    many, and keeps the parts of one row together in memory.
    """
    column, start = getattr(owner, packed), 0
    for name, shape in parts.items():
        end = start + math.prod(shape)
        setattr(owner, name, column[:, start:end].reshape(len(column), *shape))
        start = end


def copy(owner: object, columns: Columns, row: int, onto: int) -> None:
    """Copy a row onto another one."""
    for name in columns:
        column = getattr(owner, name)
        column[onto] = column[row]


def clear(owner: object, columns: Columns, row: int) -> None:
    """Set a row to zeros, as before it was used."""
    for name in columns:
        getattr(owner, name)[row] = 0


def remove(owner: object, columns: Columns, row: int, last: int) -> None:
    """Move the last row in use to the place of a removed row, and clear the last one."""
    copy(owner, columns, last, row)
    clear(owner, columns, last)


def without(rows: Mapping[_Key, int], key: _Key) -> dict[_Key, int]:
    """Return the rows by key after `remove`: the last key has the row of the removed one.

    >>> without({"ana": 0, "ben": 1, "cem": 2}, "ana")
    {'cem': 0, 'ben': 1}
    """
    keys = list(rows)
    keys[rows[key]] = keys[-1]
    return {kept: row for row, kept in enumerate(keys[:-1])}


def prefixed(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return arrays under names with a prefix; `part` returns them under their own names again."""
    return {prefix + name: array for name, array in arrays.items()}


def part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays that `prefixed` has named, out of all arrays of a file."""
    ours = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in ours.items()}


def dump(owner: object, columns: Columns, rows: int) -> dict[str, NDArray[Any]]:
    """Return the rows in use."""
    return {name: getattr(owner, name)[:rows] for name in columns}


def fill(owner: object, columns: Columns, rows: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore the rows that `dump` returned."""
    make_room(owner, columns, rows)
    for name in columns:
        column = getattr(owner, name)
        shape = (len(arrays[name]), *column.shape[1:])
        column[:rows] = of_shape(name, arrays[name], shape)


def of_shape(name: str, array: NDArray[_Scalar], shape: tuple[int, ...]) -> NDArray[_Scalar]:
    """Return an array of a file, if it has the shape that it is saved with today."""
    if array.shape != shape:
        raise OlderFile(
            f"the file's {name} has the shape {array.shape}, this dyclu saves it with {shape}; "
            "load it with the version that saved it, or learn anew"
        )
    return array
