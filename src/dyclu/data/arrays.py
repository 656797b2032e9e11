"""A log of arrays: checks that they fit together, and that every row is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.data.chunk import Chunk, Judge, Whole
from dyclu.data.tables.cells import Cells
from dyclu.errors import KindError, OptionError, ShapeError
from dyclu.validation import LARGEST_FEATURE, FloatArray, as_floats


def chunk_of(
    *, arms: ArrayLike, chosen: ArrayLike, counts: ArrayLike | None, **given: Any
) -> Chunk:
    """Return all rows as one chunk; `given` are its other columns, or None."""
    tables = _arms(arms)
    rows, most, _ = tables.shape
    judged = Judge().rows(
        {name: _cells(value, rows, name) for name, value in given.items() if value is not None}
    )
    offered = _whole(np.full(rows, most) if counts is None else counts, rows, "counts")
    _each_within(offered, 1, np.full(rows, most), "counts")
    shown = _whole(chosen, rows, "chosen")
    _each_within(shown, 0, offered - 1, "chosen")
    return judged.with_arms(tables, offered, shown)


def _arms(arms: ArrayLike) -> FloatArray:
    tables = as_floats(arms, "arms", largest=LARGEST_FEATURE)
    if tables.ndim != 3 or 0 in tables.shape:
        raise ShapeError(
            f"arms have shape {tables.shape}, expected (rows, arms, features), none of them 0; "
            "pass one table of offered arms per row, padded with zeros to equal length"
        )
    return tables


def _cells(values: Any, rows: int, column: str) -> Cells:
    array = values if isinstance(values, np.ndarray) else list(values)
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise ShapeError(f"{column} has shape {array.shape}, expected ({rows},)")
    _check_length(len(array), rows, column)
    return Cells(column, array)


def _whole(values: ArrayLike, rows: int, column: str) -> Whole:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        raise KindError(f"{column} is an array of {numbers.dtype}, expected whole numbers")
    if numbers.ndim != 1:
        raise ShapeError(f"{column} has shape {numbers.shape}, expected ({rows},)")
    _check_length(len(numbers), rows, column)
    return numbers.astype(np.int64)


def _check_length(length: int, rows: int, column: str) -> None:
    if length != rows:
        raise ShapeError(f"{column} has {length} rows, arms have {rows}; pass one entry per row")


def _each_within(values: Whole, low: int, high: Whole, column: str) -> None:
    for row in np.flatnonzero((values < low) | (values > high))[:1]:
        raise OptionError(
            f"row {row}, column {column!r}: got {values[row]}, expected {low} to {high[row]}"
        )
