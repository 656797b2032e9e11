"""The numbers of one side: read from rows, scaled, and written into a block with all its marks."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.data.tables.cells import Cells
from dyclu.data.vectors.columns import Number
from dyclu.data.vectors.memo import values_of
from dyclu.errors import NumberError
from dyclu.validation import LARGEST, FloatArray


class Scaling:
    """The numbers of one side, as arrays over columns.

    Attributes
    ----------
    names : list of str
        Names of their features: one per number, then the marks of missing numbers.
    spans : dict of str to list of int
        The features of each column.
    """

    def __init__(self, numbers: Mapping[str, Number]) -> None:
        listed = list(numbers.values())
        self._mean = np.array([one.mean for one in listed], dtype=np.float64)
        self._scale = np.array([one.scale for one in listed], dtype=np.float64)
        self._clip = np.array([one.clip for one in listed], dtype=np.float64)
        self._log = np.flatnonzero([one.log for one in listed])
        self._flags = np.full(len(listed), -1, dtype=np.int64)
        self._get = values_of(tuple(numbers))
        self.spans = {name: [place] for place, name in enumerate(numbers)}
        self.names = [one.names(name)[0] for name, one in numbers.items()]
        for place, (name, one) in enumerate(numbers.items()):
            if one.missing:
                self._flags[place] = len(self.names)
                self.spans[name] = [place, len(self.names)]
                self.names.append(one.names(name)[1])

    def of_rows(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """Return the numbers of rows given as dicts; raise `struct.error` if one is no number."""
        numbers = np.empty((len(rows), len(self._mean)))
        form = f"{numbers.size}d"
        try:
            struct.pack_into(form, numbers.data, 0, *chain.from_iterable(map(self._get, rows)))
        except struct.error:
            values = chain.from_iterable(map(self._get, rows))
            struct.pack_into(form, numbers.data, 0, *[math.nan if x is None else x for x in values])
        return numbers

    def of_cells(self, cells: list[Cells], rows: int) -> FloatArray:
        """Return the numbers of columns, each of them checked."""
        numbers = np.empty((rows, len(cells)))
        for place, one in enumerate(cells):
            numbers[:, place] = one.floats()
        for column in self._log:
            for row in np.flatnonzero(numbers[:, column] <= 0)[:1]:
                got, todo = f"{numbers[row, column]:g}", "its logarithm is taken; mark it missing"
                raise cells[column].wrong(NumberError, int(row), got, "a number above 0", todo)
        return numbers

    def block(self, numbers: FloatArray, marks: FloatArray, *, constant: int) -> FloatArray:
        """Return a constant or none, the scaled numbers, marks of missing ones, and the marks.

        Changes `numbers`.

        Raises a `ValueError` if a number is too large, or has no logarithm where one is taken.
        """
        if len(self._log):
            logged = numbers[:, self._log]
            if (logged <= 0).any():
                raise ValueError
            numbers[:, self._log] = np.log(logged)
        block = np.empty((len(numbers), constant + len(self.names) + marks.shape[1]))
        arrays = self._mean, self._scale, self._clip, self._flags
        if not kernels.features.fill(numbers, *arrays, marks, LARGEST, constant, block):
            raise ValueError
        return block
