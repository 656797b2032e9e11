"""One side of a decision, the arms or the context: from its columns to a block of features.

A block has the numbers first, then the marks of missing numbers, then categories, then tags, each
in the order of their declaration. It is filled in two ways that give the same: from rows as dicts,
for one decision, and from columns, for a log.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.data.tables.cells import Cells, Columns, pick
from dyclu.data.tables.suggestions import nearest
from dyclu.data.vectors.columns import Category, Column, Number, Text
from dyclu.data.vectors.lookups import HashLookup, Lookup, TagLookup
from dyclu.data.vectors.memo import values_of
from dyclu.errors import KindError, NumberError, OptionError
from dyclu.validation import LARGEST, FloatArray

Codes = NDArray[np.intp]


class Side:
    """The columns of one side, all complete, and the block of features that they make.

    Attributes
    ----------
    width : int
        Number of features.
    names : list of str
        Their names.
    spans : dict of str to list of int
        The features of each column.
    """

    def __init__(self, columns: Mapping[str, Column], *, what: str) -> None:
        self.what = what
        of_kind = {kind: _only(columns, kind) for kind in (Number, Category, Text)}
        self._numbers = _Scaling(of_kind[Number])
        self.spans: dict[str, list[int]] = dict(self._numbers.spans)
        self.names = self._numbers.names
        self._categories: list[Lookup | HashLookup] = []
        self._tags: list[TagLookup] = []
        for name, column in {**of_kind[Category], **of_kind[Text]}.items():
            self._add(name, column)
        self.width = len(self.names)
        self.columns = (*of_kind[Number], *of_kind[Category], *of_kind[Text])
        self._count = tuple(map(len, of_kind.values()))
        self._get = values_of(self.columns)
        self._find = [lookup.__getitem__ for lookup in self._categories]

    def _add(self, name: str, column: Category | Text) -> None:
        start = len(self.names)
        self.names += column.names(name)
        self.spans[name] = list(range(start, len(self.names)))
        if isinstance(column, Text):
            self._tags.append(TagLookup(column, start))
        elif column.hashed is not None:
            self._categories.append(HashLookup(column.hashed, start))
        else:
            self._categories.append(Lookup(column, start))

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """Return the features of rows given as dicts, of shape (rows, width)."""
        if not self.columns:
            return np.zeros((len(rows), 0))
        try:
            columns = list(zip(*map(self._get, rows), strict=True))
            return self._of_values(columns, len(rows))
        except (LookupError, TypeError, ValueError, OverflowError):
            return self._of_cells(self._cells(rows), len(rows))

    def of_columns(self, columns: Columns, rows: int) -> FloatArray:
        """Return the features of rows given as columns, of shape (rows, width)."""
        return self._of_cells(pick(columns, self.columns, f"the table of {self.what}s"), rows)

    def _of_values(self, columns: list[tuple[Any, ...]], rows: int) -> FloatArray:
        """Return the features; raise what Python raises if a value is not plain."""
        numbers, categories, _ = self._count
        block = np.zeros((rows, self.width + 1))
        if numbers:
            flat = np.frombuffer(array("d", list(chain.from_iterable(columns[:numbers]))))
            # Unlike `dot`, this does not warn where a square is infinite.
            if not np.vdot(flat, flat) <= LARGEST**2:
                raise ValueError
            self._numbers.fill(block, flat.reshape(numbers, rows))
        if categories:
            places = chain.from_iterable(map(map, self._find, columns[numbers:]))
            codes = np.fromiter(places, np.intp, categories * rows)
            _mark(block, codes.reshape(categories, rows))
        for tagged, column in zip(self._tags, columns[numbers + categories :], strict=True):
            _mark_tags(block, [tagged.codes(value) for value in column])
        return block[:, : self.width]

    def _of_cells(self, cells: list[Cells], rows: int) -> FloatArray:
        """Return the same with every value checked."""
        numbers, categories, _ = self._count
        block = np.zeros((rows, self.width + 1))
        if numbers:
            floats = np.stack([one.floats() for one in cells[:numbers]])
            self._numbers.check(floats, cells)
            self._numbers.fill(block, floats)
        for lookup, one in zip(self._categories, cells[numbers:], strict=False):
            _mark(block, np.array([lookup.coded(one)], dtype=np.intp))
        for tagged, one in zip(self._tags, cells[numbers + categories :], strict=True):
            _mark_tags(block, one.each(tagged.codes))
        return block[:, : self.width]

    def _cells(self, rows: Sequence[Mapping[str, Any]]) -> list[Cells]:
        for place, row in enumerate(rows):
            _check_keys(row, self.columns, f"{self.what} {place}")
        return [Cells(name, [row[name] for row in rows], what=self.what) for name in self.columns]


class _Scaling:
    """The numbers of one side, as arrays over columns."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        numbers = {name: one for name, one in columns.items() if isinstance(one, Number)}
        listed = list(numbers.values())
        self._mean = np.array([[one.mean] for one in listed], dtype=np.float64)
        self._scale = np.array([[one.scale] for one in listed], dtype=np.float64)
        self._clip = np.array([[one.clip] for one in listed])
        self._log = np.flatnonzero([one.log for one in listed])
        self._flagged = np.flatnonzero([one.missing for one in listed])
        self.spans = {name: [place] for place, name in enumerate(numbers)}
        self.names = [one.names(name)[0] for name, one in numbers.items()]
        for place, (name, one) in enumerate(numbers.items()):
            if one.missing:
                self.spans[name] = [place, len(self.names)]
                self.names.append(one.names(name)[1])

    def check(self, numbers: FloatArray, cells: list[Cells]) -> None:
        """Refuse numbers that have no logarithm, where one is taken."""
        for column in self._log:
            for row in np.flatnonzero(numbers[column] <= 0)[:1]:
                got, todo = f"{numbers[column][row]:g}", "its logarithm is taken; mark it missing"
                raise cells[column].wrong(NumberError, int(row), got, "a number above 0", todo)

    def fill(self, block: FloatArray, numbers: FloatArray) -> None:
        """Write the scaled numbers, of shape (columns, rows), into the block."""
        count = len(numbers)
        if len(self._log):
            if numbers[self._log].min(initial=np.inf) <= 0:
                raise ValueError
            numbers = numbers.copy()
            numbers[self._log] = np.log(numbers[self._log])
        scaled = numbers - self._mean
        scaled /= self._scale
        np.minimum(scaled, self._clip, out=scaled)
        np.maximum(scaled, -self._clip, out=scaled)
        if np.isnan(scaled.sum()):
            missing = np.isnan(scaled)
            scaled[missing] = 0.0
            block[:, count : count + len(self._flagged)] = missing[self._flagged].T
        block[:, :count] = scaled.T


def _only(columns: Mapping[str, Column], kind: type[Column]) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if isinstance(column, kind)}


def _mark(block: FloatArray, codes: Codes) -> None:
    """Set one feature per row and column to 1; `codes` has shape (columns, rows)."""
    # The block's last column is thrown away: it takes what has no feature.
    starts = np.arange(0, block.size, block.shape[1])
    block.reshape(-1)[codes + starts] = 1.0


def _mark_tags(block: FloatArray, codes: list[list[int]]) -> None:
    rows = np.repeat(np.arange(len(codes)), list(map(len, codes)))
    block[rows, list(chain.from_iterable(codes))] = 1.0


def _check_keys(row: Any, names: tuple[str, ...], where: str) -> None:
    if not isinstance(row, Mapping):
        raise KindError(f"{where} is {row!r} ({type(row).__name__}), expected a dict of columns")
    for name in names:
        if name not in row:
            others = [str(key) for key in row if key not in names]
            raise OptionError(
                f"{where} has no column {name!r}; "
                f"pass None if its value is missing, or rename {nearest(name, others)}"
                if others
                else f"{where} has no column {name!r}; pass None if its value is missing"
            )
