"""One side of a decision, the arms or the context: from its columns to a block of features.

A block has the numbers first, then the marks of missing numbers, then categories, then tags, each
in the order of their declaration. It is filled in two ways that give the same: from rows as dicts,
for one decision, and from columns, for a log.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dyclu.data.tables.cells import Cells, Columns, pick
from dyclu.data.tables.suggestions import nearest
from dyclu.data.vectors.columns import Category, Column, Number, Text
from dyclu.data.vectors.marking import Marking
from dyclu.data.vectors.scaling import Scaling
from dyclu.errors import KindError, OptionError
from dyclu.validation import FloatArray


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
        numbers, categories, tags = (_only(columns, kind) for kind in (Number, Category, Text))
        self._numbers, self._marks = Scaling(numbers), Marking(categories, tags)
        start = len(self._numbers.names)
        self.names = [*self._numbers.names, *self._marks.names]
        self.spans = self._numbers.spans | {
            name: [start + place for place in places] for name, places in self._marks.spans.items()
        }
        self.width = len(self.names)
        self.columns = (*numbers, *categories, *tags)
        self._count = len(numbers)

    def of_rows(self, rows: Sequence[Mapping[str, Any]], *, constant: int = 0) -> FloatArray:
        """Return the features of rows given as dicts, of shape (rows, constant + width).

        With ``constant=1`` the first feature is 1 in all rows.
        """
        if not self.columns:
            return np.ones((len(rows), constant))
        try:
            numbers, marks = self._numbers.of_rows(rows), self._marks.of_rows(rows)
            return self._numbers.block(numbers, marks, constant=constant)
        except (LookupError, TypeError, ValueError, OverflowError, struct.error):
            # A value that is not plain: checked one by one, it is read, or named in a message.
            return self._of_cells(self._cells(rows), len(rows), constant)

    def of_columns(self, columns: Columns, rows: int) -> FloatArray:
        """Return the features of rows given as columns, of shape (rows, width)."""
        return self._of_cells(pick(columns, self.columns, f"the table of {self.what}s"), rows, 0)

    def _of_cells(self, cells: list[Cells], rows: int, constant: int) -> FloatArray:
        numbers = self._numbers.of_cells(cells[: self._count], rows)
        marks = self._marks.of_cells(cells[self._count :], rows)
        return self._numbers.block(numbers, marks, constant=constant)

    def _cells(self, rows: Sequence[Mapping[str, Any]]) -> list[Cells]:
        for place, row in enumerate(rows):
            _check_keys(row, self.columns, f"{self.what} {place}")
        return [Cells(name, [row[name] for row in rows], what=self.what) for name in self.columns]


def _only(columns: Mapping[str, Column], kind: type[Column]) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if isinstance(column, kind)}


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
