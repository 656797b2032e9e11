"""`Tastes`: the models, one per taste met so far, as rows of arrays (docs/theory.md §10.2).

Row 0 holds nothing and stands for a taste never met. Sums of models do not contain the prior.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.policies.common import columns
from dyclu.policies.common.population import Population, converted
from dyclu.validation import FloatArray, Ids

NEW = 0
"""The row of a taste never met."""

EVERYTHING = 1e300
"""Value of `stale` of a model whose estimate must be computed afresh."""


class Tastes:
    """Models by row; rows of models that are gone are used again, ids are not.

    Attributes
    ----------
    precision, shift : arrays of shape (room, p, p) and (room, p)
        Sums of the observations, ``Σ zzᵀ/σ²`` and ``Σ zy/σ²``.
    covariance, theta : arrays of shape (room, p, p) and (room, p)
        Posterior covariance and mean; the intercept is the last entry.
    id, founded : int arrays of shape (room,)
        A name for people, and when it was founded, in rewards of all users.
    tally : array of shape (room, columns)
        The columns `kernels.tastes.TALLY`, side by side.
    rows : int array
        The rows in use, in ascending order, with `NEW`.
    """

    count: FloatArray
    evidence: FloatArray
    stale: FloatArray
    slack: FloatArray
    users: FloatArray
    joined: FloatArray
    visited: FloatArray
    checked: FloatArray

    def __init__(self, dim: int) -> None:
        p = dim + 1
        self.precision = columns.new(np.float64, p, p)
        self.shift = columns.new(np.float64, p)
        self.covariance = columns.new(np.float64, p, p)
        self.theta = columns.new(np.float64, p)
        self.id = columns.new(np.int64)
        self.founded = columns.new(np.int64)
        self.tally = columns.new(np.float64, len(kernels.tastes.TALLY))
        self._columns = columns.names(self)
        self.rows: Ids = np.array([NEW], np.intp)
        self.next_id = 0
        self._expose()
        self.evidence[NEW] = np.nan

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.rows) - 1

    def found(self, clock: int) -> int:
        """Return the row of a new, empty model."""
        free = np.setdiff1d(np.arange(1, len(self.rows) + 1), self.rows)
        row = int(free[0])
        if row == len(self.tally):
            self._make_room(row + 1)
        columns.clear(self, self._columns, row)
        self.id[row], self.founded[row], self.visited[row] = self.next_id, clock, clock
        self.evidence[row], self.stale[row] = np.nan, EVERYTHING
        self.next_id += 1
        self.rows = np.sort(np.append(self.rows, row))
        return row

    def close(self, row: int) -> None:
        """Remove a model and its sums."""
        columns.clear(self, self._columns, row)
        self.rows = self.rows[self.rows != row]

    def add(self, row: int, precision: FloatArray, shift: FloatArray, count: float) -> None:
        """Add sums to a model; a negative count takes them out."""
        sign = 1.0 if count >= 0.0 else -1.0
        kernels.tastes.contribute(
            self.precision, self.shift, self.tally, row, sign, 1.0, precision, shift, abs(count)
        )

    def convert(self, factor: float, constant: float) -> None:
        """Turn levels ``m`` into ``factor · m + constant``, for another law of rewards."""
        self.precision, self.shift = converted(self.precision, self.shift, factor, constant)
        self.invalidate()

    def invalidate(self) -> None:
        """Note that the prior has changed: everything computed with it must be computed afresh."""
        self.evidence[self.rows] = np.nan
        self.stale[self.rows] = EVERYTHING

    def refresh(self, population: Population, row: int = NEW) -> None:
        """Compute estimates of models whose sums have changed noticeably, and of model `row`."""
        kernels.tastes.refresh_stale(
            self.precision, self.shift, self.covariance, self.theta, self.tally, self.rows,
            population.precision, population.shift, population.contexts, row,
        )  # fmt: skip

    def _make_room(self, rows: int) -> None:
        try:
            columns.make_room(self, self._columns, rows)
        finally:
            self._expose()

    def _expose(self) -> None:
        columns.expose_parts(self, "tally", dict.fromkeys(kernels.tastes.TALLY, ()))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        room = int(self.rows[-1]) + 1
        arrays = columns.dump(self, self._columns, room)
        return {"room": room, "next_id": self.next_id}, arrays | {"rows": self.rows}

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        self.next_id, self.rows = state["next_id"], arrays["rows"].astype(np.intp)
        self._make_room(state["room"])
        columns.fill(self, self._columns, state["room"], arrays)
