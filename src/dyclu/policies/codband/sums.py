"""`Sums`: the `Stats` of many sets of observations by key, stacked in arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.core.stats import Stats
from dyclu.policies.common import columns
from dyclu.validation import FloatArray, Ids, User


class Sums:
    """Sums of observations by key; row `i` of every array belongs to the set in row `i`.

    Attributes
    ----------
    row : dict of key to int
        The row of each key, in the order of the rows.
    gram, moment, energy, count : arrays of shape (room, d, d), (room, d), (room,), (room,)
        The sums of every set.

    Examples
    --------
    >>> sums = Sums(1)
    >>> sums.add(sums.of("ana"), np.array([2.0]), 3.0)
    >>> sums.moment[sums.row["ana"]]
    array([6.])
    """

    def __init__(self, dim: int) -> None:
        self.row: dict[User, int] = {}
        self.gram = columns.new(np.float64, dim, dim)
        self.moment = columns.new(np.float64, dim)
        self.energy = columns.new(np.float64)
        self.count = columns.new(np.int64)
        self._columns = columns.names(self)

    def __len__(self) -> int:
        return len(self.row)

    def of(self, key: User) -> int:
        """Return the row of a key; add an empty set if there is none yet."""
        row = self.row.setdefault(key, len(self))
        columns.make_room(self, self._columns, len(self))
        return row

    def remove(self, key: User) -> None:
        """Remove a key; the set in the last row moves to its row."""
        columns.remove(self, self._columns, self.row[key], len(self) - 1)
        self.row = columns.without(self.row, key)

    def add(self, row: int, x: FloatArray, y: float) -> None:
        """Add one observation to a set."""
        self.gram[row] += x[:, None] * x
        self.moment[row] += y * x
        self.energy[row] += y * y
        self.count[row] += 1

    def put(self, row: int, stats: Stats) -> None:
        """Replace a set."""
        self.gram[row], self.moment[row] = stats.gram, stats.moment
        self.energy[row], self.count[row] = stats.energy, stats.count

    def stats(self, row: int) -> Stats:
        """Return the sums of one set."""
        energy, count = float(self.energy[row]), int(self.count[row])
        return Stats(self.gram[row], self.moment[row], energy, count)

    def total(self, rows: Ids) -> Stats:
        """Return the sums of several sets together."""
        return Stats(
            self.gram[rows].sum(axis=0),
            self.moment[rows].sum(axis=0),
            float(self.energy[rows].sum()),
            int(self.count[rows].sum()),
        )

    def clear(self, row: int) -> None:
        """Remove all observations from a set."""
        columns.clear(self, self._columns, row)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        return {"keys": list(self.row)}, columns.dump(self, self._columns, len(self))

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the state that `dump` returned."""
        self.row = {key: row for row, key in enumerate(state["keys"])}
        columns.fill(self, self._columns, len(self), arrays)
