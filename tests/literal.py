"""Algorithm 1 as printed in the paper: raw histories, pseudo-inverses, one pair at a time.

It is slow on purpose and shares no code with the library, only scipy's functions for p-values.
docs/decisions/001 records how ambiguous places of the paper are understood.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc

Array = NDArray[np.float64]


@dataclass(eq=False)
class Model:
    """M = (A, b, H); only the history H is stored, A and b are computed from it."""

    X: list[Array] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)

    def design(self, dim: int) -> tuple[Array, Array]:
        return np.array(self.X).reshape(-1, dim), np.array(self.y)


@dataclass(frozen=True)
class Step:
    """The decision and the outcome of one round."""

    arm: int
    surprised: bool
    changed: bool
    neighbours: tuple[int, ...]


class LiteralDyClu:
    """Algorithm 1 for users 0, 1, …; models are numbered in the order of their creation."""

    def __init__(
        self,
        dim: int,
        noise: float | None,
        *,
        ridge: float = 0.1,
        delta: float = 0.1,
        window: int = 20,
        window_delta: float = 0.1,
        level: float = 0.01,
    ) -> None:
        self.dim, self.noise, self.ridge, self.delta = dim, noise, ridge, delta
        self.window, self.window_delta, self.level = window, window_delta, level
        self.models: list[Model] = []
        self.current: dict[int, int] = {}
        self.V: dict[int, list[int]] = {}
        self.squares: list[float] = []
        self.rewards: list[float] = []

    def decide(self, user: int, arms: Array) -> int:
        V = self.V.get(user, list(range(len(self.models))))
        A, b, count = self.ridge * np.eye(self.dim), np.zeros(self.dim), 0
        for j in V:
            X, y = self.models[j].design(self.dim)
            A, b, count = A + X.T @ X, b + X.T @ y, count + len(y)
        sigma = math.sqrt(self.sigma2()[0])
        alpha = sigma * math.sqrt(
            self.dim * math.log(1 + count / (self.dim * self.ridge)) + 2 * math.log(1 / self.delta)
        ) + math.sqrt(self.ridge)
        inverse = np.linalg.inv(A)
        score = [x @ inverse @ b + alpha * math.sqrt(x @ inverse @ x) for x in arms]
        return next(k for k, s in enumerate(score) if s >= max(score) - 1e-9)

    def learn(self, user: int, x: Array, y: float) -> tuple[bool, bool, tuple[int, ...]]:
        if user not in self.current:
            self.models.append(Model())
            self.current[user] = len(self.models) - 1
        mine = self.models[self.current[user]]
        s, df = self.s(mine, Model([x], [y]))
        e = self.p(s, df, self.sigma2()) < self.level
        self.rewards.append(y)
        if df:
            most = 9 * self.sigma2()[0] if self.squares else math.inf
            self.squares.append(min(s, most))
        size = min(len(mine.y), self.window)
        mine.errors.append(int(e))
        changed = False
        if size:
            mean = sum(mine.errors[-size:]) / size
            changed = mean > self.level + math.sqrt(math.log(1 / self.window_delta) / (2 * size))
        if changed:
            self.models.append(Model())
            self.current[user] = len(self.models) - 1
        elif not e:
            mine.X.append(x)
            mine.y.append(y)
        mine = self.models[self.current[user]]
        noise = self.sigma2()
        self.V[user] = [
            j for j, M in enumerate(self.models) if self.p(*self.s(mine, M), noise) >= self.level
        ]
        return e, changed, tuple(self.V[user])

    def s(self, one: Model, two: Model) -> tuple[float, int]:
        """Return σ² s of Eq. (1) and its degrees of freedom."""
        (X1, y1), (X2, y2) = one.design(self.dim), two.design(self.dim)
        X12, y12 = np.vstack((X1, X2)), np.concatenate((y1, y2))
        t1, t2, t12 = (np.linalg.pinv(X) @ y for X, y in ((X1, y1), (X2, y2), (X12, y12)))
        s = np.sum((X1 @ (t1 - t12)) ** 2) + np.sum((X2 @ (t2 - t12)) ** 2)
        return float(s), _rank(X1) + _rank(X2) - _rank(X12)

    def p(self, s: float, df: int, noise: tuple[float, float]) -> float:
        sigma2, df_residual = noise
        if df == 0 or df_residual == 0:
            return 1.0
        if math.isinf(df_residual):
            return float(chdtrc(df, s / sigma2))
        return float(fdtrc(df, df_residual, s / sigma2 / df))

    def sigma2(self) -> tuple[float, float]:
        """Return σ² and its degrees of freedom; estimated as in docs/decisions/002."""
        if self.noise is not None:
            return self.noise**2, math.inf
        energy = sum(y * y for y in self.rewards) / max(len(self.rewards), 1)
        if not self.squares or energy == 0:
            return energy, 0
        return max(sum(self.squares) / len(self.squares), 1e-4 * energy), len(self.squares)


def _rank(X: Array) -> int:
    return int(np.linalg.matrix_rank(X)) if X.size else 0
