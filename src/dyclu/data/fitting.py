"""Fit what a declaration leaves open: means, scales, vocabularies, and directions.

Tables are read in chunks; what is kept meanwhile are sums, and counts of distinct values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dyclu.data.tables import table
from dyclu.data.tables.cells import Cells, Columns
from dyclu.data.tables.labels import as_label, is_missing
from dyclu.data.vectors.columns import Category, Column, Number, Text
from dyclu.data.vectors.kinds import kinds_in_files
from dyclu.data.vectors.lookups import tags
from dyclu.errors import NumberError, OptionError
from dyclu.validation import FloatArray

if TYPE_CHECKING:
    from dyclu.data.features import Features

WIDEST = 4000
"""Raw features that `reduce` takes at most; their moments take 128 MB."""

Batches = Callable[[], Iterator[tuple[int, Columns]]]
"""Reads a table from its beginning: numbers of rows, and columns."""

Vectors = Callable[["Features"], Iterator[FloatArray]]
"""Yields raw vectors, of shape (n, raw width), of features without `reduce`."""


def fitted_on(features: Features, rows: Any, items: Any) -> Features:
    """Return the features, fitted on a table; see `Features.fit`."""
    names = (*(features.arm if items is None else ()), *features.context)
    kinds = kinds_in_files(features.arm, features.context)

    def read() -> Iterator[tuple[int, Columns]]:
        return table.batches(rows, names, kinds)

    def read_items() -> Iterator[tuple[int, Columns]]:
        return table.as_items(items, kinds).batches(tuple(features.arm))

    def vectors(raw: Features) -> Iterator[FloatArray]:
        if items is not None:
            raise OptionError(
                "reduce needs to know which items were offered, and a table of rows does not say; "
                "pass the features to Log.read(..., items=...), which fits them"
            )
        for count, batch in read():
            where = np.arange(count)[:, None]
            yield raw.offered(raw.encode(batch, count), where, batch)[:, 0]

    return fit_all(features, read, read if items is None else read_items, vectors)


def fit_all(features: Features, context: Batches, arm: Batches, vectors: Vectors) -> Features:
    """Return the features with columns and directions fitted."""
    made = features.replaced(
        arm=fit_columns(features.arm, arm), context=fit_columns(features.context, context)
    )
    if made.fitted or made.reduce is None:
        return made
    raw = made.replaced(intercept=False, reduce=None, loadings=None)
    return made.replaced(loadings=directions(vectors(raw), raw.dim, made.reduce))


def fit_columns(columns: Mapping[str, Column], read: Batches) -> dict[str, Column]:
    """Return the columns, complete; only open ones are read."""
    open_ = {name: _tally(one) for name, one in columns.items() if not one.complete}
    if not open_:
        return dict(columns)
    for _, batch in read():
        for name, tally in open_.items():
            tally.add(batch[name])
    return {
        name: open_[name].column(name) if name in open_ else one for name, one in columns.items()
    }


def directions(vectors: Iterator[FloatArray], width: int, reduce: int) -> FloatArray:
    """Return the `reduce` leading directions of vectors z: eigenvectors of ``Σ zzᵀ``.

    They are the right singular vectors of the matrix whose rows are the vectors. The largest entry
    of each is positive, so that the same log gives the same directions on every machine.

    >>> directions(iter([np.array([[3.0, 0.0], [0.0, 1.0]])]), 2, 1)
    array([[1.],
           [0.]])
    """
    if not reduce <= width <= WIDEST:
        raise OptionError(
            f"reduce is {reduce}, and the columns make {width} features, expected {reduce} to "
            f"{WIDEST}; choose a smaller reduce, or fewer values per category (most=...)"
        )
    moments = np.zeros((width, width))
    for batch in vectors:
        moments += batch.T @ batch
    _, vectors_ = np.linalg.eigh(moments)
    leading: FloatArray = vectors_[:, ::-1][:, :reduce]
    largest = leading[np.abs(leading).argmax(axis=0), np.arange(reduce)]
    return np.ascontiguousarray(leading * np.where(largest < 0, -1.0, 1.0))


class _NumberTally:
    """Count, mean and sum of squared deviations, merged chunk by chunk (Chan et al. 1983)."""

    def __init__(self, declared: Number) -> None:
        self._declared = declared
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, cells: Cells) -> None:
        numbers = cells.floats()
        if self._declared.log:
            for row in np.flatnonzero(numbers <= 0)[:1]:
                got, todo = f"{numbers[row]:g}", "its logarithm is taken"
                raise cells.wrong(NumberError, int(row), got, "a number above 0", todo)
            numbers = np.log(numbers)
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        mean, count = float(numbers.mean()), self._count + len(numbers)
        gap = mean - self._mean
        self._squares += float(np.square(numbers - mean).sum())
        self._squares += gap**2 * self._count * len(numbers) / count
        self._mean += gap * len(numbers) / count
        self._count = count

    def column(self, name: str) -> Column:
        if not self._count:
            raise _empty(name, "mean and scale")
        deviation = float(np.sqrt(self._squares / self._count))
        # A constant column has a deviation of rounding errors only; any scale makes it 0.
        flat = deviation <= 1e-9 * abs(self._mean) or deviation < 1e-100
        declared = self._declared
        return replace(
            declared,
            mean=self._mean if declared.mean is None else declared.mean,
            scale=(1.0 if flat else deviation) if declared.scale is None else declared.scale,
        )


class _ValueTally:
    """Counts of distinct values of a category, or of tags."""

    def __init__(self, declared: Category | Text) -> None:
        self._declared = declared
        self._counts: Counter[str] = Counter()

    def add(self, cells: Cells) -> None:
        if isinstance(self._declared, Text):
            separator = self._declared.separator
            found = cells.each(lambda value: tags(value, separator))
            self._counts.update(chain.from_iterable(found))
        else:
            found = cells.each(lambda value: None if is_missing(value) else as_label(value))
            self._counts.update(label for label in found if label is not None)

    def column(self, name: str) -> Column:
        if not self._counts:
            raise _empty(name, "values")
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        values = tuple(label for label, _ in ranked[: self._declared.most])
        return replace(self._declared, values=values)


def _tally(column: Column) -> _NumberTally | _ValueTally:
    return _NumberTally(column) if isinstance(column, Number) else _ValueTally(column)


def _empty(name: str, what: str) -> OptionError:
    return OptionError(
        f"column {name!r} has no values, so {what} cannot be fitted; "
        f"declare {what} by hand, or leave the column out"
    )
