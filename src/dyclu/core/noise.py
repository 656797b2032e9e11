"""`Noise`: how loud the rewards' noise is, and how well that is known.

The test of homogeneity weighs a deviation against the noise. Told (`Noise.known`), the answer is a
χ² probability; estimated from residuals, an F probability with as many residual degrees of freedom
as the estimate rests on. F with infinitely many *is* χ²: one formula, `homogeneity.p_value`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import chdtr, chdtri

from dyclu.core.stats import Stats
from dyclu.validation import as_positive

RESOLUTION = 1e-12
"""Share of Σy² below which a residual is rounding: noiseless rewards count as this noisy."""

LOUDEST = 9.0
"""A squared residual counts as at most this many times the variance estimated so far: 3 σ."""

QUIETEST = 1e-4
"""Share of the rewards' mean square below which a running estimate of the variance never falls.

Noise of less than a hundredth of the rewards' size is taken for that; in return an estimate that
rewards without any noise have misled comes right again within some tens of rewards.
"""


@dataclass(frozen=True, slots=True)
class Noise:
    """Variance of the noise.

    Attributes
    ----------
    variance : float
        ``σ²``, or its estimate.
    df : float
        Residual degrees of freedom of the estimate: infinite if told, 0 if there is no residual
        yet; then `variance` is an upper bound and no test can be decided with it.
    """

    variance: float
    df: float

    @classmethod
    def known(cls, deviation: float) -> Noise:
        """Return the noise of standard deviation σ, told by the user.

        >>> Noise.known(3.0)
        Noise(variance=9.0, df=inf)
        """
        return cls(as_positive(deviation, "noise") ** 2, math.inf)

    @classmethod
    def within(cls, *groups: Stats) -> Noise:
        """Return the pooled residual variance of groups that need not share a parameter.

        ``σ̂² = Σ residual / Σ (count − rank)``, as in Chow's test. Least-squares estimates and
        residuals are independent, so a deviation computed from the estimates may be weighed
        against it exactly.

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
        """Return ``residual / df``, corrected for residuals that were sorted out (`kept_variance`).

        Never less than the share `floor` of the rewards' mean square, which stands in where there
        is no residual yet. If that is 0 too, nothing is known: no reward differed from 0.
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
    """A running estimate of the noise from rewards that were predicted before they were learnt.

    The error of a least-squares prediction, squared and in its own units, is the statistic of the
    one-sample test: ``σ² s = (y − xᵀϑ)² / (1 + xᵀA⁻x)``, of mean ``σ²`` while nothing changes. All
    of them count, also of rewards that surprise; were surprises left out, an estimate once too
    small would turn every honest reward into a surprise and stay too small for ever. But each
    counts as `LOUDEST` times the estimate at most, so that changes and outliers raise it little.

    Attributes
    ----------
    squares, tested : float and int
        Sum and number of the squared errors.
    energy, count : float and int
        Sum of squares and number of all rewards.

    Examples
    --------
    >>> heard = Residuals().after(1.0, None).after(2.0, 4.0).after(2.0, 2.0)
    >>> heard.noise()
    Noise(variance=3.0, df=2)
    """

    squares: float = 0.0
    tested: int = 0
    energy: float = 0.0
    count: int = 0

    def after(self, reward: float, square: float | None) -> Residuals:
        """Return the tally after one more reward; `square` is None where it was not predicted."""
        heard = Residuals(self.squares, self.tested, self.energy + reward * reward, self.count + 1)
        if square is None:
            return heard
        most = LOUDEST * heard.noise().variance if self.tested else math.inf
        return Residuals(
            self.squares + min(square, most), self.tested + 1, heard.energy, heard.count
        )

    def noise(self) -> Noise:
        """Return the estimate so far, its degrees of freedom in `coarse` steps."""
        noise = Noise.estimated(self.squares, self.energy, self.count, self.tested, floor=QUIETEST)
        return Noise(noise.variance, coarse(int(noise.df)))


def coarse(df: int) -> int:
    """Return a number of degrees of freedom, rounded down to ten binary digits.

    Critical values of F hardly depend on degrees of freedom as many as that, and a table of them
    then lasts for many rewards. Rounding down errs on the side of no evidence.

    >>> coarse(1023), coarse(1025), coarse(100_000)
    (1023, 1024, 99968)
    """
    digits = max(0, df.bit_length() - 10)
    return df >> digits << digits


def kept_variance(level: float) -> float:
    """Return the variance of standard normal noise without its loudest share, `level`.

    A policy that learns only what does not surprise it keeps squared residuals ``σ² z²`` given
    ``z² ≤ υ``, with ``P(z² > υ) = level``. Since ``z² φ(z)`` is the density of χ²₃ up to its scale,
    ``E[z² | z² ≤ υ] = F(υ; 3, 0) / F(υ; 1, 0)``. Dividing by it undoes the selection.

    >>> round(kept_variance(0.01), 4)
    0.9248
    """
    threshold = chdtri(1, level)
    return float(chdtr(3, threshold) / (1 - level))
