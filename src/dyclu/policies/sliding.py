"""SW-LinUCB (Cheung, Simchi-Levi, Zhu 2019: Learning to Optimize under Non-Stationarity, AISTATS).

It detects no changes; only the last observations of each user count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu.core.noise import Noise
from dyclu.core.ridge import solve
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import REFRESH
from dyclu.policy import Decision, Outcome, optimistic
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability, as_whole

MAX_LEVERAGE = 1e3
"""Largest xᵀA_λ⁻¹x at which a rank-one update is accurate enough: it loses that many digits."""


class SlidingLinUCB(WithoutGroups, OneByOne):
    """One linear model per user, from the user's last observations only.

    Ridge regression on the last `window` observations of each user. It stores these observations in
    ``8 (dim + 1) window`` bytes per user, allocated at the user's first reward.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    window : int
        w: number of a user's latest observations that count.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors.
    ridge : float
        Regularisation λ.
    delta : float
        Probability δ that a confidence interval misses.
    alpha : float or None
        A constant width factor; None takes the paper's ``σ √(d log((1 + w/λ)/δ)) + √λ``, for
        contexts and parameters up to norm 1.

    Examples
    --------
    >>> policy = SlidingLinUCB(1, window=2, ridge=1.0, alpha=3.0)
    >>> for reward in (100.0, 1.0, 2.0):
    ...     outcome = policy.learn("ana", [2.0], reward)
    >>> policy.decide("ana", [[1.0]])  # (2·1 + 2·2) / (4 + 4 + 1), 3 / √(4 + 4 + 1)
    Decision(user='ana', arm=0, mean=0.66..., width=1.0)
    """

    def __init__(
        self,
        dim: int,
        *,
        window: int = 200,
        noise: float | None = None,
        ridge: float = 0.1,
        delta: float = 0.1,
        alpha: float | None = None,
    ) -> None:
        self.dim = as_dim(dim)
        self.window = as_whole(window, "window", least=1)
        self.ridge = as_positive(ridge, "ridge")
        self.delta = as_probability(delta, "delta")
        self.alpha = None if alpha is None else as_positive(alpha, "alpha")
        self._known = None if noise is None else Noise.known(noise)
        self._row: dict[User, int] = {}
        self._rings: list[FloatArray] = []
        self._seen = columns.new(np.int64)
        self._moment = columns.new(np.float64, self.dim)
        self._energy = columns.new(np.float64)
        self._inverse = columns.new(np.float64, self.dim, self.dim)
        self._theta = columns.new(np.float64, self.dim)
        self._columns = columns.names(self)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        row = self._row.get(user)
        if row is None:
            theta, inverse = np.zeros(self.dim), np.eye(self.dim) / self.ridge
        else:
            theta, inverse = self._theta[row].copy(), self._inverse[row]
        return optimistic(user, theta, inverse, arms, alpha=self._alpha())

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation; if the window is full, it replaces the oldest one."""
        row = self._row[user] if user in self._row else self._enter(user)
        # A context of zeros carries no information; it must not replace one that does.
        if x.any():
            self._fit(row, x, self._replace_oldest(row, x, y))
        return Outcome(user)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated from all windows."""
        if self._known is not None:
            return self._known.deviation
        n = len(self._row)
        energy = float(self._energy[:n].sum())
        explained = float((self._moment[:n] * self._theta[:n]).sum())
        count = int(np.minimum(self._seen[:n], self.window).sum())
        return Noise.estimated(max(0.0, energy - explained), energy, count, count).deviation

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._row

    def _forget(self, user: User) -> None:
        row = self._row[user]
        columns.remove(self, self._columns, row, len(self._row) - 1)
        self._rings[row] = self._rings[-1]
        self._rings.pop()
        self._row = columns.without(self._row, user)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        arrays = columns.dump(self, self._columns, len(self._row))
        held = [self._held(row) for row in self._row.values()]
        arrays["held"] = np.concatenate([np.empty((0, self.dim + 1)), *held])
        return {"users": list(self._row)}, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        for user in state["users"]:
            self._enter(user)
        columns.fill(self, self._columns, len(self._row), arrays)
        start = 0
        for row in self._row.values():
            held = self._held(row)
            held[:] = arrays["held"][start : start + len(held)]
            start += len(held)

    def _alpha(self) -> float:
        if self.alpha is not None:
            return self.alpha
        spread = self.dim * math.log((1 + self.window / self.ridge) / self.delta)
        return self.noise * math.sqrt(spread) + math.sqrt(self.ridge)

    def _enter(self, user: User) -> int:
        row = self._row[user] = len(self._row)
        columns.make_room(self, self._columns, row + 1)
        self._inverse[row] = np.eye(self.dim) / self.ridge
        self._rings.append(np.zeros((self.window, self.dim + 1)))
        return row

    def _held(self, row: int) -> FloatArray:
        """Return the user's window, one context and its reward per row, in any order."""
        return self._rings[row][: self._seen[row]]

    def _replace_oldest(self, row: int, x: FloatArray, y: float) -> FloatArray:
        """Store an observation; return the context it replaces, zeros while the window grows."""
        place: FloatArray = self._rings[row][self._seen[row] % self.window]
        old = place[:-1].copy()
        place[:-1], place[-1] = x, y
        self._seen[row] += 1
        return old

    def _fit(self, row: int, new: FloatArray, old: FloatArray) -> None:
        """Update the model after the context `new` has replaced `old` in the window."""
        held = self._held(row)
        X, y = held[:, :-1], held[:, -1]
        inverse = self._inverse[row]
        due = self._seen[row] % min(self.window, REFRESH) == 0
        if due or not (_add(inverse, new) and _subtract(inverse, old)):
            inverse[:] = solve(X.T @ X, np.eye(self.dim), ridge=self.ridge)
        # Not a running sum: a large reward that is subtracted again would leave its rounding error.
        self._moment[row] = y @ X
        self._energy[row] = y @ y
        self._theta[row] = inverse @ self._moment[row]


def _add(inverse: FloatArray, x: FloatArray) -> bool:
    """Turn ``A⁻¹`` into ``(A + xxᵀ)⁻¹``; return False if rounding would spoil it."""
    column = inverse @ x
    leverage = x @ column
    if not 0 <= leverage <= MAX_LEVERAGE:
        return False
    inverse -= column[:, None] * (column / (1 + leverage))
    return True


def _subtract(inverse: FloatArray, x: FloatArray) -> bool:
    """Turn ``A⁻¹`` into ``(A − xxᵀ)⁻¹``; return False if rounding would spoil it."""
    column = inverse @ x
    rest = 1 - x @ column
    if not 1 / MAX_LEVERAGE <= rest <= 1:
        return False
    inverse += column[:, None] * (column / rest)
    return True
