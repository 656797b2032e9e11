"""`Noise`: how loud the rewards' noise is, and how well that is known.

The test of homogeneity weighs a deviation against the noise. Told (`Noise.known`), the answer is a
χ² probability; estimated from residuals, an F probability with as many residual degrees of freedom
as the estimate rests on. F with infinitely many *is* χ²: one formula, `homogeneity.p_value`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from scipy.special import chdtr, chdtri

from dyclu.stats import Stats
from dyclu.validation import as_positive

RESOLUTION = 1e-12
"""Share of Σy² below which a residual is rounding: noiseless rewards count as this noisy."""


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

        >>> Noise.within(Stats.of([[1], [1]], [0, 2]), Stats.of([[1], [1]], [5, 9]))
        Noise(variance=5.0, df=2)
        """
        residual = sum(group.residual for group in groups)
        energy = sum(group.energy for group in groups)
        count = sum(group.count for group in groups)
        return cls.estimated(residual, energy, count, count - sum(group.rank for group in groups))

    @classmethod
    def estimated(
        cls, residual: float, energy: float, count: int, df: int, *, kept: float = 1.0
    ) -> Noise:
        """Return ``residual / df``, corrected for residuals that were sorted out (`kept_variance`).

        Without a residual the rewards' mean square stands in: the noise is no louder than that.
        """
        if df == 0:
            return cls(energy / max(count, 1), 0)
        return cls(max(residual / kept, RESOLUTION * energy, sys.float_info.min) / df, df)

    @property
    def deviation(self) -> float:
        """Standard deviation σ."""
        return math.sqrt(self.variance)


def kept_variance(level: float) -> float:
    """Return the variance of standard normal noise without its loudest share, `level`.

    DyClu learns only what does not surprise it. The squared residuals it keeps are
    ``σ² z²`` given ``z² ≤ υ``, with ``P(z² > υ) = level``, and since ``z² φ(z)`` is the density of
    χ²₃ up to its scale, ``E[z² | z² ≤ υ] = F(υ; 3, 0) / F(υ; 1, 0)``. Dividing by it undoes the
    selection.

    >>> round(kept_variance(0.01), 4)
    0.9248
    """
    threshold = chdtri(1, level)
    return float(chdtr(3, threshold) / (1 - level))
