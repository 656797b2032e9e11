"""D-LinUCB (Russac, Vernade, Cappé 2019: Weighted Linear Bandits for Non-Stationary Environments).

NeurIPS. It detects no changes; the weight of an observation falls by a constant factor per round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu.core.noise import Noise
from dyclu.core.ridge import solve
from dyclu.errors import OptionError
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policy import Decision, Outcome, optimistic
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability


class DiscountedLinUCB(WithoutGroups, OneByOne):
    """One linear model per user, with weights that fall exponentially with age.

    After t rounds of a user, with the weights ``w_s = γ^(t−s)``,

    ``V = Σ w xxᵀ + λI``, ``Ṽ = Σ w² xxᵀ + λI``, ``θ̂ = V⁻¹ Σ w xy``,

    and the upper confidence bound of an arm is ``xᵀθ̂ + β √(xᵀ V⁻¹ Ṽ V⁻¹ x)``. The regulariser is
    not discounted. Age counts the user's own rounds: observations of absent users do not age.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    discount : float
        γ, above 0 and up to 1: the factor of all weights per round. The estimate is as good as one
        from ``(1 + γ) / (1 − γ)`` rounds of equal weight; 1 is LinUCB.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from the weighted residuals.
    ridge : float
        Regularisation λ.
    delta : float
        Probability δ that a confidence interval misses.
    alpha : float or None
        A constant β; None takes the one of the paper,
        ``σ √(d log(1 + Σw²/(dλ)) + 2 log(1/δ)) + √λ``, for contexts and parameters up to norm 1.

    Examples
    --------
    >>> policy = DiscountedLinUCB(1, discount=0.5, ridge=1.0, alpha=1.0)
    >>> for reward in (9.0, 1.0):
    ...     outcome = policy.learn("ana", [1.0], reward)
    >>> policy.decide("ana", [[1.0]])  # (9/2 + 1) / (1/2 + 1 + 1), √(1/4 + 1 + 1) / 2.5
    Decision(user='ana', arm=0, mean=2.2, width=0.6...)
    """

    def __init__(
        self,
        dim: int,
        *,
        discount: float = 0.99,
        noise: float | None = None,
        ridge: float = 0.1,
        delta: float = 0.1,
        alpha: float | None = None,
    ) -> None:
        self.dim = as_dim(dim)
        self.discount = _as_discount(discount)
        self.ridge = as_positive(ridge, "ridge")
        self.delta = as_probability(delta, "delta")
        self.alpha = None if alpha is None else as_positive(alpha, "alpha")
        self._known = None if noise is None else Noise.known(noise)
        self._row: dict[User, int] = {}
        self._gram = columns.new(np.float64, self.dim, self.dim)
        self._squared_gram = columns.new(np.float64, self.dim, self.dim)
        self._moment = columns.new(np.float64, self.dim)
        self._energy = columns.new(np.float64)
        self._weight = columns.new(np.float64)
        self._squared_weight = columns.new(np.float64)
        self._theta = columns.new(np.float64, self.dim)
        self._spread = columns.new(np.float64, self.dim, self.dim)
        self._residual = columns.new(np.float64)
        self._df = columns.new(np.float64)
        self._columns = columns.names(self)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        row = self._row.get(user)
        if row is None:
            blank = np.eye(self.dim) / self.ridge
            return optimistic(user, np.zeros(self.dim), blank, arms, alpha=self._beta(0.0))
        beta = self._beta(float(self._squared_weight[row]))
        return optimistic(user, self._theta[row].copy(), self._spread[row], arms, alpha=beta)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Discount the user's observations, and add the new one."""
        row = self._row[user] if user in self._row else self._enter(user)
        # A context of zeros carries no information; it must not discount the others.
        if x.any():
            self._discount(row)
            self._add(row, x, y)
            self._fit(row)
        return Outcome(user)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated so far."""
        if self._known is not None:
            return self._known.deviation
        n = len(self._row)
        residual, df = float(self._residual[:n].sum()), float(self._df[:n].sum())
        return math.sqrt(max(residual, 0.0) / df) if df else 0.0

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._row

    def _forget(self, user: User) -> None:
        columns.remove(self, self._columns, self._row[user], len(self._row) - 1)
        self._row = columns.without(self._row, user)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        return {"users": list(self._row)}, columns.dump(self, self._columns, len(self._row))

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._row = {user: row for row, user in enumerate(state["users"])}
        columns.fill(self, self._columns, len(self._row), arrays)

    def _beta(self, squared_weight: float) -> float:
        if self.alpha is not None:
            return self.alpha
        spread = self.dim * math.log1p(squared_weight / (self.dim * self.ridge))
        return self.noise * math.sqrt(spread + 2 * math.log(1 / self.delta)) + math.sqrt(self.ridge)

    def _enter(self, user: User) -> int:
        row = self._row[user] = len(self._row)
        columns.make_room(self, self._columns, row + 1)
        self._fit(row)
        return row

    def _discount(self, row: int) -> None:
        for sums in (self._gram, self._moment, self._energy, self._weight):
            sums[row] *= self.discount
        for sums in (self._squared_gram, self._squared_weight):
            sums[row] *= self.discount**2

    def _add(self, row: int, x: FloatArray, y: float) -> None:
        square = x[:, None] * x
        self._gram[row] += square
        self._squared_gram[row] += square
        self._moment[row] += y * x
        self._energy[row] += y * y
        self._weight[row] += 1.0
        self._squared_weight[row] += 1.0

    def _fit(self, row: int) -> None:
        # λ is not discounted but the data are, so V does not change by rank one: solve every time.
        inverse = solve(self._gram[row], np.eye(self.dim), ridge=self.ridge)
        self._theta[row] = inverse @ self._moment[row]
        self._spread[row] = inverse @ self._squared_gram[row] @ inverse
        self._spread[row] += self.ridge * (inverse @ inverse)
        # If θ ~ N(0, σ²/λ), the expectation of the weighted residual is σ² times this.
        discounted = np.einsum("ij,ij->", inverse, self._gram[row] - self._squared_gram[row])
        self._df[row] = self._weight[row] + discounted
        self._residual[row] = self._energy[row] - self._moment[row] @ self._theta[row]


def _as_discount(value: Any) -> float:
    discount = as_positive(value, "discount")
    if discount > 1:
        raise OptionError(f"discount is {value}, expected a number above 0 and up to 1")
    return discount
