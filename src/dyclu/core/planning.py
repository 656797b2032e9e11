"""`Plan`: predicts delays and error rates of DyClu from `theory`, before any data are collected.

The eigenvalue bound of Lemma 12 is too weak at realistic sizes (docs/decisions/003). Instead,
contexts are assumed to be normal, with mean square length `r²` and without a preferred direction.
Grams are then Wishart distributed. The expected rewards of two parameters at distance γ differ by
a normal amount with variance ``γ² r²/d``, and the distribution of the statistic's non-centrality is
known (`Plan.noncentralities`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.special import bdtrc, betaincinv, chdtrc, gammaincinv

from dyclu.core.theory import alarm_threshold, threshold, type_two_error, window_size
from dyclu.validation import FloatArray, as_dim, as_positive, as_probability, as_whole

POWERS = (0.5, 0.9, 0.99)
"""The powers of the test for which a plan reports the number of observations needed."""

MOST_OBSERVATIONS = 10**9
"""Above about this number, `Plan.observations_for` gives up."""

DRAWS = 266
"""Number of points that represent the distribution of ψ; the error of the power is below 0.01."""

# A fixed lattice of points for integrals over the cube (Hua and Wang).
_CUBE = (np.outer((1, 27, 69), np.arange(DRAWS) + 0.5) / DRAWS) % 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A population and the options of a policy; the properties are computed from these.

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
    Row 1 of the paper's Table 1, where the distance of two parameters is about √2:

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
        """Variance of the difference between the rewards of two parameters, divided by ``σ²``."""
        return (self.separation * self.norm / self.noise) ** 2 / self.dim

    @property
    def surprise(self) -> float:
        """Probability of a surprise after a change of a user with many observations.

        The error of the prediction is normal with variance ``σ² (1 + signal)``, so this is the
        probability that χ²₁ exceeds ``υᵉ / (1 + signal)``: Lemma 6, averaged over contexts.
        """
        return float(chdtrc(1, threshold(self.change_level, 1) / (1 + self.signal)))

    @property
    def surprises_needed(self) -> int | None:
        """Number of surprises in a full window that cause an alarm; None if no number does."""
        limit = alarm_threshold(self.change_level, delta=self.window_delta, entries=self.window)
        needed = math.floor(limit * self.window) + 1
        return needed if needed <= self.window else None

    @property
    def delay(self) -> float:
        """Mean number of rounds from a change to its alarm, correct to a factor of two.

        If `k` surprises are needed in a window of `w`: the time of the first ``k − 1`` surprises,
        plus the time until a surprise has ``k − 1`` others in the ``w − 1`` rounds before it.
        """
        if self.surprises_needed is None:
            return math.inf
        others = self.surprises_needed - 1
        enough = float(bdtrc(others - 1, self.window - 1, self.surprise)) if others else 1.0
        return (others + 1 / enough) / self.surprise if enough else math.inf

    @property
    def window_wanted(self) -> float:
        """Smallest window that detects a change with probability ``1 − δₑ``: Lemma 7."""
        return window_size(self.change_level, self.surprise, delta=self.window_delta)

    @property
    def false_alarm(self) -> float:
        """Probability that a full window of a user who has not changed causes an alarm."""
        return self.alarm_within(self.window, surprise=self.change_level)

    @property
    def comparable_after(self) -> int:
        """Number of observations of each of two users from which on they can be compared."""
        return self.dim // 2 + 1

    def noncentrality(self, mine: float, theirs: float) -> float:
        """Return the mean over contexts of ψ, Theorem 1, for two parameters at distance γ.

        For independent Wishart matrices of `n₁` and `n₂` degrees of freedom, ``n = n₁ + n₂``,
        ``E[A₁ (A₁+A₂)⁻¹ A₂] = n₁ n₂ (n − d) / ((n − 1)(n + 2)) · (r²/d) I`` if ``n ≥ d``. With
        fewer contexts there is no direction in common, and ψ is 0.
        """
        both = mine + theirs
        if both <= self.dim:
            return 0.0
        # Computed as shares of `both`, because a large group has infinitely many observations.
        less, more = sorted((mine, theirs))
        share = 1.0 if math.isinf(more) else more / (both + 2) * (both - self.dim) / (both - 1)
        return self.signal * less * share

    def noncentralities(self, mine: float, theirs: float) -> FloatArray:
        """Return the distribution of ψ over random contexts, as `DRAWS` equally likely values.

        In any direction, ``A₁ (A₁+A₂)⁻¹ A₂`` is distributed as ``c · g₁ g₂ / (g₁ + g₂)``, in units
        of ``r²/d``: ``gᵢ ~ χ²`` with `nᵢ` degrees of freedom, ``c ~ Beta((n − d)/2, (d − 1)/2)``,
        all independent.

        (With ``A₁ + A₂ = TᵀT`` and ``B = T⁻ᵀA₁T⁻¹`` it is ``(Te)ᵀ B(I − B) (Te)``, where ``‖Te‖²``
        is χ² with `n` degrees of freedom, independent of `B`. ``B = QᵀQ`` for the first `n₁` rows
        of a random orthonormal frame of `d` vectors in `n` dimensions: in any direction `u`,
        ``b = uᵀBu ~ Beta(n₁/2, n₂/2)``, and ``uᵀB(I − B)u = b(1 − b) c``, where ``1 − c`` is the
        part of the component orthogonal to `u` that the other ``d − 1`` vectors span.)
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
        """Return the probability of an alarm within so many rounds, at most a window."""
        chance, needed = self.surprise if surprise is None else surprise, self.surprises_needed
        if needed is None or rounds < needed:
            return 0.0
        return float(bdtrc(needed - 1, min(rounds, self.window), chance))

    def power(self, observations: int, *, partner: float = 0.0) -> float:
        """Return the probability that the test distinguishes two users at distance γ.

        Parameters
        ----------
        observations : int
            Number of observations of each user.
        partner : float
            If not 0, observations of the second user; infinite for a large group.
        """
        theirs = partner or observations
        df = int(min(observations, self.dim, theirs, max(0, observations + theirs - self.dim)))
        if df == 0:
            return 0.0
        cut = threshold(self.neighbour_level, df)
        drawn = self.noncentralities(observations, theirs).tolist()
        return 1 - fmean(type_two_error(cut, df, noncentrality) for noncentrality in drawn)

    def observations_for(self, power: float, *, partner: float = 0.0) -> int | None:
        """Return the smallest number of observations of each user that gives this power.

        None if that is above about `MOST_OBSERVATIONS`.
        """
        as_probability(power, "power")
        low, high = 0, 1
        while self.power(high, partner=partner) < power:
            if high > MOST_OBSERVATIONS:
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
        """Return `power` for an array of numbers of observations."""
        return np.array([self.power(int(n), partner=partner) for n in observations])
