"""A log of decisions: who was offered what, what was shown, and what it earned.

A `Log` is read in chunks, in order of time, as often as wanted. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.data.cells import Cells
from dyclu.data.chunk import Chunk, Judge, Whole
from dyclu.data.offers import Valid
from dyclu.data.reading import Reader, Vectoriser
from dyclu.errors import KindError, OptionError, ShapeError
from dyclu.validation import LARGEST_FEATURE, FloatArray, as_floats

__all__ = ["Chunk", "Log"]

CHUNK_NUMBERS = 1 << 21
"""Features in one chunk: 2 million numbers take 16 MB."""


class Log:
    """Logged decisions in order of time; made by `read` or `of_arrays`.

    Attributes
    ----------
    dim : int
        Number of features of an arm.
    rows : int or None
        Number of decisions; None where it is known only after reading.
    features : Features, or what stands in their place, or None
        What made the vectors, fitted; None for a log of arrays.

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

    def __init__(
        self,
        chunks: Callable[[], Iterator[Chunk]],
        *,
        dim: int,
        rows: int | None,
        features: Any = None,
    ) -> None:
        self.dim = dim
        self.rows = rows
        self.features = features
        self._chunks = chunks

    @classmethod
    def read(
        cls,
        table: Any,
        *,
        features: Vectoriser,
        user: str,
        reward: str,
        arm: str | None = None,
        time: str | None = None,
        propensity: str | None = None,
        decision: str | None = None,
        items: Any = None,
        offered: str | Valid | None = None,
        separator: str = "|",
    ) -> Log:
        """Return a log of a table with one row per decision.

        Nothing is read before it is needed, except what features are fitted on.

        Parameters
        ----------
        table : data frame, DuckDB relation, list of dicts, or path of a CSV or Parquet file
            The rows, in order of time.
        features : Features
            How vectors are made. If they are not fitted, they are fitted on this log: columns of
            the context on its rows, columns of arms on `items`, or on the rows without it.
        user, reward, arm, time, propensity, decision : str
            Names of columns: the user; the reward of what was shown; the id of what was shown, if
            there are `items`; the time, in seconds or as a date; the probability with which it was
            shown; the id of the decision.
        items : as `table`, or None
            One row per item, with its id in a column named as `arm`. Without it, columns of arms
            are those of the rows, and only the shown arm is known.
        offered : str, Valid or None
            A column that lists the ids of the offered items; or `Valid`, for all items that were
            valid at the row's time. None: only the shown arm is known, which is enough to learn
            from, and not enough to evaluate another policy.
        separator : str
            What stands between ids that are written as one text.

        Examples
        --------
        >>> from dyclu import Features
        >>> log = Log.read(
        ...     [{"who": "ana", "clicked": 1, "shown": "b", "candidates": ["a", "b"]}],
        ...     user="who", reward="clicked", arm="shown", offered="candidates",
        ...     items=[{"shown": "a", "price": 2.0}, {"shown": "b", "price": 4.0}],
        ...     features=Features(arm={"price": "number"}),
        ... )
        >>> [chunk.arms.tolist() for chunk in log.chunks()]
        [[[[1.0, -1.0], [1.0, 1.0]]]]
        """
        roles = {
            "user": user,
            "reward": reward,
            "arm": arm,
            "time": time,
            "propensity": propensity,
            "decision": decision,
        }
        named = {role: column for role, column in roles.items() if column is not None}
        reader = Reader(table, named, items, offered, separator).fitted(features)
        return cls(
            reader.chunks, dim=reader.features.dim, rows=reader.table.rows, features=reader.features
        )

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
        given = {
            "user": user,
            "reward": reward,
            "propensity": propensity,
            "time": time,
            "decision": decision,
        }
        judged = Judge().rows(
            {name: _cells(value, rows, name) for name, value in given.items() if value is not None}
        )
        offered = _whole(np.full(rows, most) if counts is None else counts, rows, "counts")
        _each_within(offered, 1, np.full(rows, most), "counts")
        shown = _whole(chosen, rows, "chosen")
        _each_within(shown, 0, offered - 1, "chosen")
        whole = Chunk(
            user=judged.user,
            time=judged.time,
            chosen=shown,
            reward=judged.reward,
            propensity=judged.propensity,
            arms=tables,
            counts=offered,
            decision=judged.decision,
        )
        size = max(1, CHUNK_NUMBERS // (most * dim))

        def chunks() -> Iterator[Chunk]:
            for start in range(0, rows, size):
                yield whole.part(start, start + size)

        return cls(chunks, dim=dim, rows=rows)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows in order of time, some thousands at a time."""
        return self._chunks()

    def observations(self) -> Iterator[tuple[list[Any], FloatArray, FloatArray]]:
        """Yield users, contexts (n, dim) and rewards (n,) of what was shown, for `policy.fit`."""
        for chunk in self.chunks():
            yield chunk.user.tolist(), chunk.contexts, chunk.reward


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
