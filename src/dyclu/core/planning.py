"""`plan`: what to expect before anything is run, from `theory` and four facts about a product.

Lemma 12's eigenvalue bound says nothing at realistic sizes (docs/decisions/003), so contexts are
taken to be normal with mean square length `r²`, favouring no direction. Grams are then Wishart,
the expected rewards of two parameters γ apart differ by a normal amount of variance ``γ² r²/d``,
and the distribution of the statistic's non-centrality is known (`Plan.noncentralities`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.special import bdtrc, betaincinv, chdtrc, gammaincinv

from dyclu.core.theory import (
    alarm_threshold,
    threshold,
    type_two_error,
    window_size,
)
from dyclu.validation import (
    FloatArray,
    as_dim,
    as_positive,
    as_probability,
    as_whole,
)

POWERS = (0.5, 0.9, 0.99)
"""The chances of telling two users apart for which the observations needed are given."""

MANY = 10**9
"""Observations beyond which nobody waits."""

DRAWS = 266
"""Points at which the distribution of the non-centrality is taken: power is right to 0.01."""

# A lattice of good points for integrals over the cube (Hua and Wang), the same every time.
_CUBE = (np.outer((1, 27, 69), np.arange(DRAWS) + 0.5) / DRAWS) % 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A population and a policy's options; every property is what follows from them.

    Attributes
    ----------
    dim : int
        Number of features ``d``.
    noise : float
        Standard deviation ``σ`` of the rewards.
    separation : float
        Distance ``γ`` of two different parameters.
    norm : float
        Length ``r`` of a context.
    change_level, neighbour_level, window, window_delta
        The options of `DyClu`.

    Examples
    --------
    Row 1 of the paper's Table 1, whose random parameters are some √2 apart:

    >>> plan = Plan(dim=25, noise=0.09, separation=2**0.5)
    >>> plan.surprises_needed, round(plan.surprise, 2), round(plan.delay, 1)
    (5, 0.43, 11.5)
    """

    dim: int
    noise: float
    separation: float
    norm: float = 1.0
    change_level: float = 0.01
    neighbour_level: float = 0.01
    window: int = 20
    window_delta: float = 0.1

    def __post_init__(self) -> None:
        as_dim(self.dim)
        for name in ("noise", "separation", "norm"):
            as_positive(getattr(self, name), name)
        for name in ("change_level", "neighbour_level", "window_delta"):
            as_probability(getattr(self, name), name)
        as_whole(self.window, "window", least=1)

    @property
    def signal(self) -> float:
        """Variance of the difference two parameters make to a reward, in units of the noise's."""
        return (self.separation * self.norm / self.noise) ** 2 / self.dim

    @property
    def surprise(self) -> float:
        """Chance that a reward surprises once the user, well known before, has changed.

        The error of its prediction is normal with variance ``σ² (1 + signal)``, so the chance is
        that of χ²₁ exceeding ``υᵉ / (1 + signal)``: the average of Lemma 6 over contexts.
        """
        return float(chdtrc(1, threshold(self.change_level, 1) / (1 + self.signal)))

    @property
    def surprises_needed(self) -> int | None:
        """How many surprises in a full window ring the alarm; None if not even all of them do."""
        limit = alarm_threshold(self.change_level, delta=self.window_delta, entries=self.window)
        needed = math.floor(limit * self.window) + 1
        return needed if needed <= self.window else None

    @property
    def delay(self) -> float:
        """Rounds from a change to its alarm, on average; right to a factor of two.

        With `k` surprises needed in a window of `w`: the time for the first ``k − 1``, and then the
        wait for one that finds ``k − 1`` others in the ``w − 1`` rounds before it.
        """
        if self.surprises_needed is None:
            return math.inf
        others = self.surprises_needed - 1
        met = float(bdtrc(others - 1, self.window - 1, self.surprise)) if others else 1.0
        return (others + 1 / met) / self.surprise if met else math.inf

    @property
    def window_wanted(self) -> float:
        """The least window with which a change is noticed with probability ``1 − δₑ``: Lemma 7."""
        return window_size(self.change_level, self.surprise, delta=self.window_delta)

    @property
    def false_alarm(self) -> float:
        """Chance that a full window of a user who has not changed rings."""
        return self.alarm_within(self.window, surprise=self.change_level)

    @property
    def comparable_after(self) -> int:
        """Observations of each of two users after which they have a direction in common."""
        return self.dim // 2 + 1

    def noncentrality(self, mine: float, theirs: float) -> float:
        """Return ψ of Theorem 1 for two users γ apart, on average over their contexts.

        For independent Wishart matrices of `n₁` and `n₂` degrees of freedom, ``n = n₁ + n₂``,
        ``E[A₁ (A₁+A₂)⁻¹ A₂] = n₁ n₂ (n − d) / ((n − 1)(n + 2)) · (r²/d) I`` where ``n ≥ d``; with
        fewer contexts they have no direction in common.
        """
        both = mine + theirs
        if both <= self.dim:
            return 0.0
        # Shares of the whole, so that a well-known group may have infinitely many.
        less, more = sorted((mine, theirs))
        share = 1.0 if math.isinf(more) else more / (both + 2) * (both - self.dim) / (both - 1)
        return self.signal * less * share

    def noncentralities(self, mine: float, theirs: float) -> FloatArray:
        """Return ψ for contexts that are drawn again and again: `DRAWS` equally likely values.

        Of two such Wishart matrices, ``A₁ (A₁+A₂)⁻¹ A₂`` in any direction is distributed as
        ``c · g₁ g₂ / (g₁ + g₂)``, in units of ``r²/d``: ``gᵢ ~ χ²`` with `nᵢ` degrees of freedom,
        ``c ~ Beta((n − d)/2, (d − 1)/2)``, all independent.

        (With ``A₁ + A₂ = TᵀT`` and ``B = T⁻ᵀA₁T⁻¹`` it is ``(Te)ᵀ B(I − B) (Te)``, where ``‖Te‖²``
        is χ² with `n` degrees of freedom, independent of `B`. ``B = QᵀQ`` for the first `n₁` rows
        of a random orthonormal frame of `d` vectors in `n` dimensions: in any direction `u`,
        ``b = uᵀBu ~ Beta(n₁/2, n₂/2)``, and ``uᵀB(I − B)u = b(1 − b) c``, as the other ``d − 1``
        vectors of the frame take the share ``1 − c`` of what lies across `u`.)
        """
        both, dim = mine + theirs, self.dim
        if both <= dim:
            return np.zeros(DRAWS)
        less, more = sorted((mine, theirs))
        parallel: FloatArray = 2 * gammaincinv(less / 2, _CUBE[0])
        if math.isfinite(more):
            other = 2 * gammaincinv(more / 2, _CUBE[1])
            parallel *= other / (parallel + other)
            if dim > 1:
                parallel *= betaincinv((both - dim) / 2, (dim - 1) / 2, _CUBE[2])
        return self.signal * parallel

    def alarm_within(self, rounds: int, *, surprise: float | None = None) -> float:
        """Return the chance that the alarm rings within so many rounds, at most a window."""
        chance, needed = self.surprise if surprise is None else surprise, self.surprises_needed
        if needed is None or rounds < needed:
            return 0.0
        return float(bdtrc(needed - 1, min(rounds, self.window), chance))

    def power(self, observations: int, *, partner: float = 0.0) -> float:
        """Return the chance that two users γ apart are told apart, each with so many observations.

        Parameters
        ----------
        observations : int
            Of each of them.
        partner : float
            Observations of the second user instead; infinite for a well-known group.
        """
        theirs = partner or observations
        df = int(min(observations, self.dim, theirs, max(0, observations + theirs - self.dim)))
        if df == 0:
            return 0.0
        cut = threshold(self.neighbour_level, df)
        drawn = self.noncentralities(observations, theirs).tolist()
        return 1 - fmean(type_two_error(cut, df, noncentrality) for noncentrality in drawn)

    def observations_for(self, power: float, *, partner: float = 0.0) -> int | None:
        """Return the least observations of each user that give this power; None: nobody waits."""
        as_probability(power, "power")
        low, high = 0, 1
        while self.power(high, partner=partner) < power:
            if high > MANY:
                return None
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.power(middle, partner=partner) < power:
                low = middle
            else:
                high = middle
        return high

    def power_curve(self, observations: FloatArray, *, partner: float = 0.0) -> FloatArray:
        """Return `power` for an array of observations."""
        return np.array([self.power(int(n), partner=partner) for n in observations])
