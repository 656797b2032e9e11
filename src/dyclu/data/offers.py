"""Which arms a row of a log offered, and which of them it showed.

There are three cases: a column lists the ids of what was offered; all items that were valid at the
row's time were offered; or only the shown arm is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from dyclu.data.chunk import Whole
from dyclu.data.tables.cells import Cells, Columns, as_id
from dyclu.data.tables.table import Table
from dyclu.data.vectors.lookups import tags
from dyclu.errors import OptionError
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class Valid:
    """All items are offered from the time in one column of the items to before that in another.

    Parameters
    ----------
    since, until : str or None
        Names of the columns; None, or a missing time, stands for always.
    """

    since: str | None = None
    until: str | None = None


ALWAYS = Valid()


@dataclass(frozen=True, slots=True)
class Offer:
    """What the rows of one batch offered.

    Attributes
    ----------
    which : int array of shape (rows, K)
        Places of the offered items in the table of items; 0 beyond a row's number of them.
    counts, chosen : int arrays of shape (rows,)
        Number of offered items, and which of them was shown.
    """

    which: Whole
    counts: Whole
    chosen: Whole


class Items:
    """The table of items: their columns, their places by id, and when they are valid."""

    def __init__(
        self, table: Table, id_column: str, columns: tuple[str, ...], valid: Valid = ALWAYS
    ) -> None:
        times = [name for name in (valid.since, valid.until) if name]
        self.columns = _whole(table, (id_column, *columns, *times))
        ids = self.columns[id_column]
        self.labels = labels = ids.labels()
        self.count = len(labels)
        self.places: dict[Any, int] = {}
        for row, label in enumerate(labels):
            if label in self.places:
                raise ids.wrong(OptionError, row, f"{label!r} once more", "every item once")
            self.places[label] = row
        # Ids that are not text are found without making a label first.
        plain = ids.listed()
        self.places.update({one: row for row, one in enumerate(plain) if isinstance(one, int)})
        self.since = self._times(valid.since, -np.inf)
        self.until = self._times(valid.until, np.inf)

    def _times(self, column: str | None, always: float) -> FloatArray:
        if column is None:
            return np.full(self.count, always)
        times = self.columns[column].seconds(missing=True)
        return np.where(np.isnan(times), always, times)

    def of(self, cells: Cells) -> Whole:
        """Return the places of the ids in a column."""
        values = cells.listed()
        try:
            return np.fromiter(map(self.places.__getitem__, values), np.int64, len(values))
        except (KeyError, TypeError):
            labels = cells.labels()
        for row, label in enumerate(labels):
            if label not in self.places:
                raise cells.wrong(
                    OptionError, row, repr(label), "the id of an item", "add it to the items"
                )
        return np.array([self.places[label] for label in labels], dtype=np.int64)


Find = Callable[[Cells, Cells | None, FloatArray | None], Offer]
"""Takes the columns of shown and of offered ids, and the times; returns what was offered."""


def offers_of(items: Items, offered: str | Valid | None, separator: str) -> Find:
    """Return what finds the offers of rows, in one of the three cases."""
    if isinstance(offered, Valid):
        return _valid(items)
    return _only_shown(items) if offered is None else _listed(items, separator)


def _listed(items: Items, separator: str) -> Find:
    """Return what reads offers from a column that lists the ids of offered items."""

    def read(shown: Cells, offered: Cells | None, time: FloatArray | None) -> Offer:
        assert offered is not None
        lists = offered.listed()
        if not {list, tuple}.issuperset(map(type, lists)):
            lists = offered.each(lambda value: list(tags(value, separator)))
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        for row in np.flatnonzero(counts == 0)[:1]:
            todo = "list what could have been shown, or leave the row out"
            raise offered.wrong(OptionError, int(row), "no items", "ids of offered items", todo)
        owners = np.repeat(np.arange(len(lists)), counts)
        places = _places(items, offered, lists)
        _refuse_repeated(items, offered, places, owners)
        return _offer(items, shown, places, owners, counts)

    return read


def _refuse_repeated(items: Items, offered: Cells, places: Whole, owners: Whole) -> None:
    """Refuse a row that offers an item twice: a choice among arms would count it twice."""
    pairs = np.sort(owners * items.count + places)
    for pair in pairs[1:][pairs[1:] == pairs[:-1]][:1]:
        row, place = divmod(int(pair), items.count)
        got = f"{items.labels[place]!r} twice"
        raise offered.wrong(
            OptionError, row, got, "every offered item once", "remove the repeated id"
        )


def _places(items: Items, offered: Cells, lists: list[list[Any]]) -> Whole:
    """Return the places of all offered items, one row after the other."""
    flat = list(chain.from_iterable(lists))
    try:
        return np.fromiter(map(items.places.__getitem__, flat), np.int64, len(flat))
    except (KeyError, TypeError):
        cells = Cells(offered.column, lists, offered.first)
        labels = cells.each(lambda ids: [as_id(id) for id in ids])
    for row, ids in enumerate(labels):
        for id in ids:
            if id not in items.places:
                raise offered.wrong(
                    OptionError, row, repr(id), "ids of items", "add it to the items"
                )
    return np.array([items.places[id] for ids in labels for id in ids], dtype=np.int64)


def _valid(items: Items) -> Find:
    """Return what offers, in each row, all items that are valid at its time."""
    moments = np.unique(np.concatenate([items.since, items.until]))

    def read(shown: Cells, offered: Cells | None, time: FloatArray | None) -> Offer:
        when = np.zeros(len(shown)) if time is None else time
        periods, of_row = np.unique(np.searchsorted(moments, when, "right"), return_inverse=True)
        lists = []
        for period in periods:
            start = moments[period - 1] if period else -np.inf
            lists.append(np.flatnonzero((items.since <= start) & (start < items.until)))
        sizes = np.array([len(one) for one in lists], dtype=np.int64)
        places = np.concatenate([lists[period] for period in of_row] or [np.empty(0, np.int64)])
        counts = sizes[of_row]
        return _offer(items, shown, places, np.repeat(np.arange(len(shown)), counts), counts)

    return read


def _only_shown(items: Items) -> Find:
    """Return what offers, in each row, only the item that was shown."""

    def read(shown: Cells, offered: Cells | None, time: FloatArray | None) -> Offer:
        return alone(items.of(shown))

    return read


def alone(places: Whole) -> Offer:
    """Return the offer of one arm per row."""
    rows = len(places)
    return Offer(places[:, None], np.ones(rows, np.int64), np.zeros(rows, np.int64))


def _offer(items: Items, shown: Cells, places: Whole, owners: Whole, counts: Whole) -> Offer:
    """Return offers of places in one list, each with the row that owns it."""
    rows, most = len(counts), int(counts.max(initial=1))
    starts = np.cumsum(counts) - counts
    which = np.zeros((rows, most), dtype=np.int64)
    which[owners, np.arange(len(places)) - starts[owners]] = places
    offered = np.arange(most) < counts[:, None]
    found = offered & (which == items.of(shown)[:, None])
    if not found.any(axis=1).all():
        row = int(found.any(axis=1).argmin())
        raise shown.wrong(
            OptionError, row, repr(shown.listed()[row]), "one of the arms that the row offered"
        )
    return Offer(which, counts, found.argmax(axis=1))


def _whole(table: Table, names: tuple[str, ...]) -> Columns:
    """Return all rows of some columns."""
    parts = [batch for _, batch in table.batches(names)]
    if not parts:
        raise OptionError(f"{table.what} is empty, expected one row per item")
    return {
        name: Cells(
            name, list(chain.from_iterable(part[name].listed() for part in parts)), 0, table.row
        )
        for name in names
    }
