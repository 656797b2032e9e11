"""A log of decisions: who was offered what, what was shown, and what it earned.

A `Log` is read in chunks, in order of time, as often as wanted. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.errors import KindError, NumberError, OptionError, ShapeError
from dyclu.validation import LARGEST_FEATURE, FloatArray, as_floats, as_users

Objects = NDArray[np.object_]
Whole = NDArray[np.int64]

CHUNK_NUMBERS = 1 << 21
"""Features in one chunk: 2 million numbers take 16 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some rows of a log, as arrays. K is the largest number of arms offered in a row.

    Attributes
    ----------
    user : object array of shape (rows,)
        The users, `str` or `int`.
    time : array of shape (rows,), or None
        Seconds; never falls from one row to the next.
    chosen : int array of shape (rows,)
        Index of the arm that was shown, among those offered.
    reward : array of shape (rows,)
        Its reward.
    propensity : array of shape (rows,), or None
        Probability, above 0 and at most 1, with which it was shown.
    arms : array of shape (rows, K, dim)
        Features of all arms that were offered; zeros where a row has fewer than K of them.
    counts : int array of shape (rows,)
        Number of arms that were offered, 1 to K.
    decision : object array of shape (rows,), or None
        Ids of the decisions; no id occurs twice in a log.
    """

    user: Objects
    time: FloatArray | None
    chosen: Whole
    reward: FloatArray
    propensity: FloatArray | None
    arms: FloatArray
    counts: Whole
    decision: Objects | None

    def __len__(self) -> int:
        return len(self.user)

    @property
    def contexts(self) -> FloatArray:
        """Features of the shown arms, of shape (rows, dim)."""
        return self.arms[np.arange(len(self)), self.chosen]

    def part(self, start: int, stop: int) -> Chunk:
        """Return the rows from `start` to before `stop`, as views."""
        columns: list[Any] = [getattr(self, field.name) for field in fields(self)]
        parts: list[Any] = [None if one is None else one[start:stop] for one in columns]
        return Chunk(*parts)


class Log:
    """Logged decisions in order of time.

    Attributes
    ----------
    dim : int
        Number of features of an arm.
    rows : int or None
        Number of decisions; None as long as it is not known.

    Examples
    --------
    >>> arms = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]
    >>> log = Log.of_arrays(user=["ana", "ben"], arms=arms, chosen=[0, 1], reward=[1.0, 0.0])
    >>> log.rows, log.dim
    (2, 2)
    >>> for chunk in log.chunks():
    ...     print(chunk.user, chunk.contexts)
    ['ana' 'ben'] [[1. 0.]
     [1. 1.]]
    """

    def __init__(self, read: Callable[[], Iterator[Chunk]], *, dim: int, rows: int | None) -> None:
        self.dim = dim
        self.rows = rows
        self._read = read

    @classmethod
    def of_arrays(
        cls,
        *,
        user: Iterable[Hashable],
        arms: ArrayLike,
        chosen: ArrayLike,
        reward: ArrayLike,
        propensity: ArrayLike | None = None,
        time: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        decision: Iterable[Hashable] | None = None,
    ) -> Log:
        """Return a log of arrays with one entry per row; see `Chunk` for their meaning."""
        tables = _arms(arms)
        rows, most, dim = tables.shape
        users = _objects(as_users(user), rows, "user")
        offered = _whole(np.full(rows, most) if counts is None else counts, rows, "counts")
        _each_within(offered, 1, np.full(rows, most), "counts")
        shown = _whole(chosen, rows, "chosen")
        _each_within(shown, 0, offered - 1, "chosen")
        whole = Chunk(
            user=users,
            time=None if time is None else _times(_floats(time, rows, "time")),
            chosen=shown,
            reward=_floats(reward, rows, "reward"),
            propensity=None if propensity is None else _chances(propensity, rows),
            arms=tables,
            counts=offered,
            decision=None if decision is None else _unique(_objects(decision, rows, "decision")),
        )
        size = max(1, CHUNK_NUMBERS // (most * dim))

        def read() -> Iterator[Chunk]:
            for start in range(0, rows, size):
                yield whole.part(start, start + size)

        return cls(read, dim=dim, rows=rows)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order of time, some thousands at a time."""
        return self._read()


def _arms(arms: ArrayLike) -> FloatArray:
    tables = as_floats(arms, "arms", largest=LARGEST_FEATURE)
    if tables.ndim != 3 or 0 in tables.shape:
        raise ShapeError(
            f"arms have shape {tables.shape}, expected (rows, arms, features), none of them 0; "
            "pass one table of offered arms per row, padded with zeros to equal length"
        )
    return tables


def _objects(values: Iterable[Hashable], rows: int, column: str) -> Objects:
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    _check_length(len(array), rows, column)
    return array


def _floats(values: ArrayLike, rows: int, column: str) -> FloatArray:
    floats = as_floats(values, column)
    if floats.ndim != 1:
        raise ShapeError(f"{column} has shape {floats.shape}, expected ({rows},)")
    _check_length(len(floats), rows, column)
    return floats


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


def _times(time: FloatArray) -> FloatArray:
    for row in np.flatnonzero(np.diff(time) < 0)[:1] + 1:
        raise OptionError(
            f"row {row}, column 'time': {time[row]:g} comes after {time[row - 1]:g}, expected rows "
            "in order of time; sort the log by time"
        )
    return time


def _chances(values: ArrayLike, rows: int) -> FloatArray:
    chances = _floats(values, rows, "propensity")
    for row in np.flatnonzero(~((chances > 0) & (chances <= 1)))[:1]:
        raise NumberError(
            f"row {row}, column 'propensity': got {chances[row]:g}, expected a probability above 0 "
            "and at most 1; what was shown had some chance to be shown"
        )
    return chances


def _unique(ids: Objects) -> Objects:
    seen: set[Hashable] = set()
    for row, id in enumerate(ids):
        if id in seen:
            raise OptionError(
                f"row {row}, column 'decision': {id!r} has come before, expected every id once; "
                "remove the repeated rows"
            )
        seen.add(id)
    return ids
