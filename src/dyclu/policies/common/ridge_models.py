"""`RidgeModels`: many ridge regressions, stacked in arrays and updated by rank one.

LinUCB and similar policies use it. For every key it keeps ``A_λ = λI + Σxxᵀ`` and ``b = Σxy`` with
the inverse and the estimate: a decision costs two small products, a reward one outer product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.core.noise import Noise
from dyclu.core.ridge import Scores, solve, ucb
from dyclu.core.stats import Stats
from dyclu.kernels.arrays import ModelArrays
from dyclu.policies.common import columns
from dyclu.policies.common.batches import Decisions
from dyclu.policy import TIE, Decision, optimistic
from dyclu.validation import FloatArray, Ids, User

REFRESH = 1024
"""Rank-one updates in a row before an inverse is computed afresh, to limit rounding errors."""

CONDITION = 1e7
"""Largest trace(A)·trace(A_λ⁻¹) at which a rank-one update is accurate enough."""

MAX_LEVERAGE = 1e6
"""Largest xᵀA_λ⁻¹x at which a rank-one update is accurate enough: it loses that many digits."""


class RidgeModels:
    """Ridge models by key; row `i` of every array belongs to model `i`.

    Attributes
    ----------
    gram, moment, energy, count : arrays of shape (room, d, d), (room, d), (room,), (room,)
        The sums of every model's observations.
    inverse, theta : arrays of shape (room, d, d) and (room, d)
        ``A_λ⁻¹`` and ``θ̂ = A_λ⁻¹ b``.
    row : dict of key to int
        The row of each key's model, in the order of the rows.

    Examples
    --------
    >>> models = RidgeModels(2, ridge=1.0)
    >>> models.add(models.of("ana"), np.array([1.0, 0.0]), 2.0)
    >>> models.theta[models.row["ana"]]
    array([1., 0.])
    """

    def __init__(self, dim: int, *, ridge: float) -> None:
        self.dim, self.ridge = dim, ridge
        self.row: dict[User, int] = {}
        self.gram = columns.new(np.float64, dim, dim)
        self.moment = columns.new(np.float64, dim)
        self.energy = columns.new(np.float64)
        self.count = columns.new(np.int64)
        self.inverse = columns.new(np.float64, dim, dim)
        self.theta = columns.new(np.float64, dim)
        self._columns = columns.names(self)
        self._blank = np.eye(dim) / ridge
        self._keep_one_spare()

    def __len__(self) -> int:
        return len(self.row)

    def of(self, key: User) -> int:
        """Return the row of the key's model; add an empty model if there is none yet."""
        row = self.row.get(key)
        if row is None:
            row = self.row[key] = len(self)
            self._keep_one_spare()
        return row

    def remove(self, key: User) -> None:
        """Remove a key's model; the model in the last row moves to its row."""
        columns.remove(self, self._columns, self.row[key], len(self) - 1)
        self.row = columns.without(self.row, key)
        self._keep_one_spare()

    def _keep_one_spare(self) -> None:
        """Keep an empty model in the row after the last; it answers for unknown keys."""
        columns.make_room(self, self._columns, len(self) + 1)
        self.inverse[len(self)] = self._blank

    def add(self, row: int, context: FloatArray, reward: float) -> None:
        """Add one observation to a model."""
        self.energy[row] += reward * reward
        count = self.count[row] = self.count[row] + 1
        limit = MAX_LEVERAGE if count % REFRESH else 0.0
        if not kernels.ridge.observe(
            self.gram[row], self.moment[row], self.inverse[row], self.theta[row],
            context, reward, limit, CONDITION,
        ):  # fmt: skip
            self._refresh(row)

    def add_many(self, rows: Ids, contexts: FloatArray, rewards: FloatArray) -> None:
        """Add observations to models, one after the other."""
        start = 0
        arrays = ModelArrays(
            self.gram, self.moment, self.energy, self.count, self.inverse, self.theta
        )
        while start < len(rows):
            stopped = kernels.ridge.observe_many(
                *arrays, rows, contexts, rewards, start, MAX_LEVERAGE, CONDITION, REFRESH
            )
            if stopped < len(rows):
                self._refresh(rows[stopped])
            start = stopped + 1

    def _refresh(self, row: int) -> None:
        right = np.column_stack((np.eye(self.dim), self.moment[row]))
        solved = solve(self.gram[row], right, ridge=self.ridge)
        inverse, self.theta[row] = solved[:, :-1], solved[:, -1]
        self.inverse[row] = (inverse + inverse.T) / 2  # exactly: see `kernels.add_outer`

    def total(self, rows: Ids) -> Stats:
        """Return the sum of several models' observations."""
        return Stats(
            self.gram[rows].sum(axis=0),
            self.moment[rows].sum(axis=0),
            float(self.energy[rows].sum()),
            int(self.count[rows].sum()),
        )

    def put(self, row: int, stats: Stats) -> None:
        """Replace the observations of a model by these."""
        self.gram[row], self.moment[row] = stats.gram, stats.moment
        self.energy[row], self.count[row] = stats.energy, stats.count
        self._refresh(row)

    def clear(self, row: int) -> None:
        """Remove all observations from a model."""
        columns.clear(self, self._columns, row)
        self.inverse[row] = self._blank

    def held(self, key: User) -> int:
        """Return the number of observations of a key's model."""
        return int(self.count[self.row.get(key, len(self))])

    def decide(self, user: User, key: User, arms: FloatArray, *, alpha: float) -> Decision:
        """Return the decision for a user by the model of `key`."""
        row = self.row.get(key, len(self))
        return optimistic(user, self.theta[row].copy(), self.inverse[row], arms, alpha=alpha)

    def scores(self, key: User, arms: FloatArray, *, alpha: float) -> Scores:
        """Return estimate, means and widths for all arms; an unknown key has an empty model."""
        row = self.row.get(key, len(self))
        return ucb(self.theta[row].copy(), self.inverse[row], arms, alpha=alpha)

    def choose_many(
        self, keys: Sequence[User], arms: FloatArray, *, alpha: FloatArray
    ) -> Decisions:
        """Return the best arm of each table (n, K, dim), given a key and a width factor each."""
        answer = Decisions.blank(keys)
        rows = np.array([self.row.get(key, len(self)) for key in keys], dtype=np.intp)
        kernels.ridge.ucb_many(
            self.theta, self.inverse, rows, arms, alpha, TIE,
            answer.arm, answer.mean, answer.width, math.inf, 1.0,
        )  # fmt: skip
        return answer

    def noise(self) -> Noise:
        """Return the noise estimated from prediction errors.

        Under the prior that λ stands for, ``θ ~ N(0, σ²/λ)``, the error of a prediction made before
        its reward was learnt has variance ``σ² (1 + xᵀA_λ⁻¹x)``. The squared errors in units of
        ``1 + xᵀA_λ⁻¹x`` add up to ``Σy² − bᵀθ̂``.
        """
        n = len(self)
        energy = float(self.energy[:n].sum())
        explained = float((self.moment[:n] * self.theta[:n]).sum())
        count = int(self.count[:n].sum())
        return Noise.estimated(max(0.0, energy - explained), energy, count, count)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        return {"keys": list(self.row)}, columns.dump(self, self._columns, len(self))

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the state that `dump` returned."""
        self.row = {key: row for row, key in enumerate(state["keys"])}
        columns.fill(self, self._columns, len(self), arrays)
        self._keep_one_spare()
