"""`Noise`: the variance of the rewards' noise, and how precisely it is known.

The test of homogeneity divides by the noise's variance. If the variance is known (`Noise.known`),
the statistic is χ² distributed. If it is estimated, the statistic is F distributed, with the
residual degrees of freedom of the estimate; infinitely many of them give χ² again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy

from dyclu.core.stats import Stats
from dyclu.validation import as_positive

RESOLUTION = 1e-12
"""Least estimate of the variance, as a share of mean y²: a smaller residual is rounding."""

LARGEST_SQUARE = 9.0
"""A squared error counts as at most this many times the variance estimated so far (3 σ)."""

VARIANCE_FLOOR = 1e-4
"""Least running estimate of the variance, as a share of mean y².

Smaller noise is overestimated. In return, an estimate that became too small, because the first
rewards had no noise, recovers within some tens of rewards.
"""


@dataclass(frozen=True, slots=True)
class Noise:
    """Variance of the noise.

    Attributes
    ----------
    variance : float
        ``σ²``, or its estimate.
    df : float
        Residual degrees of freedom of the estimate. Infinite if the variance is known; 0 if there
        is no residual yet: then `variance` is only an upper bound, and tests have no answer.
    """

    variance: float
    df: float

    @classmethod
    def known(cls, deviation: float) -> Noise:
        """Return the noise with a known standard deviation σ.

        >>> Noise.known(3.0)
        Noise(variance=9.0, df=inf)
        """
        return cls(as_positive(deviation, "noise") ** 2, math.inf)

    @classmethod
    def within(cls, *groups: Stats) -> Noise:
        """Return the pooled residual variance of groups, each with a parameter of its own.

        ``σ̂² = Σ residual / Σ (count − rank)``, as in Chow's test. Least-squares estimates and
        residuals are independent, so the F distribution of the test is exact.

        >>> noise = Noise.within(Stats.of([[1], [1]], [0, 2]), Stats.of([[1], [1]], [5, 9]))
        >>> round(noise.variance, 9), noise.df
        (5.0, 2)
        """
        residual = sum(group.residual for group in groups)
        energy = sum(group.energy for group in groups)
        count = sum(group.count for group in groups)
        return cls.estimated(residual, energy, count, count - sum(group.rank for group in groups))

    @classmethod
    def estimated(
        cls,
        residual: float,
        energy: float,
        count: int,
        df: int,
        *,
        kept: float = 1.0,
        floor: float = RESOLUTION,
    ) -> Noise:
        """Return the estimate ``residual / kept / df``, at least ``floor · energy / count``.

        `kept` corrects for large residuals that were left out, see `kept_variance`. Without any
        residual (`df` is 0), or if all rewards are 0, the answer is ``energy / count`` with df 0.
        """
        bound = energy / max(count, 1)
        if df == 0 or bound == 0:
            return cls(bound, 0)
        return cls(max(residual / kept / df, floor * bound), df)

    @property
    def deviation(self) -> float:
        """Standard deviation σ."""
        return math.sqrt(self.variance)


@dataclass(frozen=True, slots=True)
class Residuals:
    """A running estimate of the noise, from the errors of predictions made before each reward.

    A squared error of a least-squares prediction is scaled to ``(y − xᵀϑ)² / (1 + xᵀA⁻x)``, which
    has mean ``σ²`` while the user does not change. Errors of surprising rewards count too:
    without them, an estimate that is too small would make every reward surprising and never grow.
    But each counts as at most `LARGEST_SQUARE` times the estimate, so that changes and outliers
    increase it only a little.

    Attributes
    ----------
    squares, tested : float and int
        Sum and number of the squared errors.
    energy, count : float and int
        Sum of squares and number of all rewards.

    Examples
    --------
    >>> residuals = Residuals().after(1.0, None).after(2.0, 4.0).after(2.0, 2.0)
    >>> residuals.noise()
    Noise(variance=3.0, df=2)
    """

    squares: float = 0.0
    tested: int = 0
    energy: float = 0.0
    count: int = 0

    def after(self, reward: float, square: float | None) -> Residuals:
        """Return the sums after one more reward; `square` is None if it was not predicted."""
        added = Residuals(self.squares, self.tested, self.energy + reward * reward, self.count + 1)
        if square is None:
            return added
        most = LARGEST_SQUARE * added.noise().variance if self.tested else math.inf
        return Residuals(
            self.squares + min(square, most), self.tested + 1, added.energy, added.count
        )

    def noise(self) -> Noise:
        """Return the estimate so far, with degrees of freedom rounded by `rounded_df`."""
        noise = Noise.estimated(
            self.squares, self.energy, self.count, self.tested, floor=VARIANCE_FLOOR
        )
        return Noise(noise.variance, rounded_df(int(noise.df)))

    @property
    def at_floor(self) -> bool:
        """Whether the estimate is `VARIANCE_FLOOR`, although errors are larger than rounding.

        >>> Residuals(squares=0.001, tested=10, energy=40.0, count=10).at_floor
        True
        """
        mean, bound = self.squares / max(self.tested, 1), self.energy / max(self.count, 1)
        return RESOLUTION * bound < mean <= VARIANCE_FLOOR * bound


def rounded_df(df: int) -> int:
    """Return a number of degrees of freedom, rounded down to ten binary digits.

    Critical values of F are nearly constant for so many degrees of freedom, and the cached table
    of them is then valid for many rewards. Rounding down makes tests slightly conservative.

    >>> rounded_df(1023), rounded_df(1025), rounded_df(100_000)
    (1023, 1024, 99968)
    """
    digits = max(0, df.bit_length() - 10)
    return df >> digits << digits


def kept_variance(level: float) -> float:
    """Return the variance of standard normal noise after its largest values are left out.

    `level` is the share of values that are left out. A policy that does not learn from surprising
    rewards keeps squared residuals ``σ² z²`` with ``z² ≤ υ``, where ``P(z² > υ) = level``. As
    ``z² φ(z)`` is proportional to the density of χ²₃,
    ``E[z² | z² ≤ υ] = F(υ; 3, 0) / F(υ; 1, 0)``. Dividing by it makes the estimate unbiased.

    >>> round(kept_variance(0.01), 4)
    0.9248
    """
    threshold = scipy.special.chdtri(1, level)
    return float(scipy.special.chdtr(3, threshold) / (1 - level))
