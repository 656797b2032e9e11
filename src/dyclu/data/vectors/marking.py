"""The categories and tags of one side: features that are 1 where a value occurs, else 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.data.tables.cells import Cells
from dyclu.data.vectors.columns import Category, Text
from dyclu.data.vectors.lookups import HashLookup, Lookup, TagLookup
from dyclu.data.vectors.memo import Memo, values_of
from dyclu.validation import FloatArray


class Marking:
    """The categories and tags of one side.

    Attributes
    ----------
    names : list of str
        Names of their features: categories first, then tags.
    spans : dict of str to range
        The features of each column.
    """

    def __init__(self, categories: Mapping[str, Category], tags: Mapping[str, Text]) -> None:
        self.names: list[str] = []
        self.spans: dict[str, range] = {}
        self._categories = [self._lookup(name, one) for name, one in categories.items()]
        self._tags = [TagLookup(one, self._start(name, one)) for name, one in tags.items()]
        columns = (*categories, *tags)
        self._get = values_of(columns)
        self._find = [lookup.__getitem__ for lookup in self._categories]
        # Distances and prices are new in every decision, combinations of categories are not.
        self._memo = Memo(columns, self._of_rows)

    def _start(self, name: str, column: Category | Text) -> int:
        """Add the names of a column; return the place of its first feature."""
        start = len(self.names)
        self.names += column.names(name)
        self.spans[name] = range(start, len(self.names))
        return start

    def _lookup(self, name: str, column: Category) -> Lookup | HashLookup:
        start = self._start(name, column)
        return Lookup(column, start) if column.hashed is None else HashLookup(column.hashed, start)

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """Return the marks of rows given as dicts; raise what Python raises if a value is odd."""
        return self._memo.of(rows) if self._find or self._tags else np.empty((len(rows), 0))

    def _of_rows(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        columns, count = list(zip(*map(self._get, rows), strict=True)), len(self._find)
        marks = np.zeros((len(rows), len(self.names)))
        if count:
            found = chain.from_iterable(map(map, self._find, columns))
            places = np.fromiter(found, np.int64, count * len(rows))
            kernels.features.mark(places.reshape(count, -1), marks)
        for tagged, column in zip(self._tags, columns[count:], strict=True):
            _mark_tags(marks, [tagged.codes(value) for value in column])
        return marks

    def of_cells(self, cells: list[Cells], rows: int) -> FloatArray:
        """Return the marks of columns, each value of them checked."""
        marks, count = np.zeros((rows, len(self.names))), len(self._categories)
        for lookup, one in zip(self._categories, cells, strict=False):
            kernels.features.mark(np.array([lookup.coded(one)], dtype=np.int64), marks)
        for tagged, one in zip(self._tags, cells[count:], strict=True):
            _mark_tags(marks, one.each(tagged.codes))
        return marks


def _mark_tags(marks: FloatArray, codes: list[list[int]]) -> None:
    rows = np.repeat(np.arange(len(codes)), list(map(len, codes)))
    places = np.array(list(chain.from_iterable(codes)), dtype=np.int64)
    marks[rows[places >= 0], places[places >= 0]] = 1.0
