"""From a value of a category, or a list of tags, to the places of its features in a block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np

from dyclu.data.cells import Cells
from dyclu.data.columns import Category, Label, Text, as_label, is_missing
from dyclu.errors import DycluError, KindError

NOWHERE = -1
"""The place of a missing value: the last column of a block, which is thrown away."""


LARGEST_LOOKUP = 10_000
"""Values of a category, also unknown ones, that are remembered."""


class Lookup(dict[Any, int]):
    """Places of a category's values; unknown ones are *other*, missing ones nowhere.

    It is a dict so that known values, which are nearly all, are found by compiled code.

    >>> Lookup(Category(values=("jazz", "7")), 10)["jazz"]
    10
    >>> places = Lookup(Category(values=("jazz", "7")), 10)
    >>> places[7.0], places["rock"], places[None]
    (11, 12, -1)
    """

    def __init__(self, column: Category | Text, start: int) -> None:
        values = column.values or ()
        super().__init__({value: start + place for place, value in enumerate(values)})
        self._other = start + len(values) if column.other else NOWHERE

    def __missing__(self, value: Any) -> int:
        if is_missing(value):
            return NOWHERE
        place = self.get(as_label(value), self._other)
        if len(self) < LARGEST_LOOKUP:
            # Remembered under its own type, so that the next one is found at once.
            self[value] = place
        return place

    def coded(self, cells: Cells) -> list[int]:
        """Return the places of a column."""
        try:
            return list(map(self.__getitem__, cells.listed()))
        except (TypeError, DycluError):
            return cells.each(self._checked)

    def _checked(self, value: Any) -> int:
        return NOWHERE if is_missing(value) else self[as_label(value)]


class HashLookup:
    """Places of hashed values: by CRC-32 of the label, the same on every machine.

    >>> HashLookup(1000, 0)["jazz"], HashLookup(1000, 5)["jazz"], HashLookup(1000, 0)[None]
    (122, 127, -1)
    """

    def __init__(self, buckets: int, start: int) -> None:
        self._buckets, self._start = buckets, start

    def __getitem__(self, value: Any) -> int:
        if is_missing(value):
            return NOWHERE
        return self._start + crc32(as_label(value).encode(errors="surrogatepass")) % self._buckets

    def coded(self, cells: Cells) -> list[int]:
        """Return the places of a column; every distinct value is hashed once."""
        try:
            known = {value: self[value] for value in set(cells.listed())}
            return list(map(known.__getitem__, cells.listed()))
        except (TypeError, DycluError, KeyError):
            return cells.each(self.__getitem__)


class TagLookup:
    """Places of tags."""

    def __init__(self, column: Text, start: int) -> None:
        self._places = Lookup(column, start)
        self._separator = column.separator

    def codes(self, value: Any) -> list[int]:
        """Return the places of all tags of one value; a tag may occur twice."""
        return list(map(self._places.__getitem__, tags(value, self._separator)))


def tags(value: Any, separator: str) -> Iterable[Label]:
    """Return the tags of one value: a list of texts, or one text with separators.

    >>> tags("live| loud", "|"), tags(["live", "loud"], "|"), tags(None, "|")
    (['live', 'loud'], ['live', 'loud'], [])
    """
    if isinstance(value, str):
        return [tag for part in value.split(separator) if (tag := part.strip())]
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return [as_label(tag) for tag in value if not is_missing(tag)]
    if is_missing(value):
        return []
    raise KindError(
        f"got {value!r} ({type(value).__name__}), expected a list of tags, or one text with "
        f"{separator!r} between them"
    )
