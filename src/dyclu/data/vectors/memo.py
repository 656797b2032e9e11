"""Vectors of arms that were seen lately: products offer the same items again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from dyclu.validation import FloatArray

LARGEST_MEMO = 20_000
"""Arms that are remembered; then all are dropped. At 60 features they take 15 MB."""

MISSES, REST = 500, 5000
"""After so many calls in a row with an arm that is not remembered, so many calls do not ask."""

Rows = Sequence[Mapping[str, Any]]
Values = Callable[[Mapping[str, Any]], tuple[Any, ...]]
"""Takes a row; returns its values in a fixed order."""


class Memo:
    """Remembers what `compute` returned for a row, by the values of its columns.

    Values that are equal, such as 1 and 1.0, must give the same. A row is kept as bytes: they never
    change, and joining them is the quickest way to an array.

    >>> memo = Memo(("a", "b"), lambda rows: np.array([[row["a"] * 1.0] for row in rows]))
    >>> memo.of([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    array([[1.],
           [3.]])
    """

    def __init__(self, names: tuple[str, ...], compute: Callable[[Rows], FloatArray]) -> None:
        self._get = values_of(names)
        self._compute = compute
        self._known: dict[tuple[Any, ...], bytes] = {}
        self._misses = 0
        self._rest = 0

    def of(self, rows: Rows) -> FloatArray:
        """Return what `compute` returns for these rows; a new array."""
        if self._rest:
            self._rest -= 1
            return self._compute(rows)
        try:
            flat = bytearray().join(map(self._known.__getitem__, map(self._get, rows)))
            vectors = np.frombuffer(flat).reshape(len(rows), -1)
        except (LookupError, TypeError, ValueError):
            return self._computed(rows)
        self._misses = 0
        return vectors

    def _computed(self, rows: Rows) -> FloatArray:
        vectors = self._compute(rows)
        self._misses += 1
        if self._misses == MISSES:
            # Arms do not come back, so remembering them costs more than it saves.
            self._misses, self._rest = 0, REST
            self._known.clear()
            return vectors
        if len(self._known) + len(rows) > LARGEST_MEMO:
            self._known.clear()
        try:
            self._known.update(
                zip(map(self._get, rows), map(np.ndarray.tobytes, vectors), strict=True)
            )
        except TypeError:
            # A list of tags cannot be a key; rows with one are computed every time.
            return vectors
        return vectors


def values_of(names: tuple[str, ...]) -> Values:
    """Return what takes a row and returns the values of these columns.

    >>> values_of(("a", "b"))({"b": 2, "a": 1}), values_of(("a",))({"a": 1}), values_of(())({})
    ((1, 2), (1,), ())
    """
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple(row[name] for name in names)
