"""The test of homogeneity: do two sets of observations share one parameter?

DyClu uses it twice: to test whether a new reward fits the user's segment (change), and whether
another segment fits the user's segment (neighbours). This module is the readable definition.
`policies.dyclu.segments` and `neighbours` compute the same faster, with equal results up to
rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dyclu.core.noise import Noise
from dyclu.core.stats import Stats, overlap, pseudo_inverse

CANNOT_TELL = 1.0
"""The p-value if the two sets cannot be compared: no evidence against one shared parameter."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence against the hypothesis that two sets of observations share one parameter.

    Attributes
    ----------
    statistic : float
        ``s`` of Eq. (1), χ² distributed, if the noise is known; Chow's ``F`` if it is estimated.
    df : int
        Number of directions that both sets have observed; 0: the sets cannot be compared.
    df_residual : float
        Residual degrees of freedom of the noise; infinite if the noise is known.
    p_value : float
        Probability of at least this `statistic` if the parameters are the same.
    """

    statistic: float
    df: int
    df_residual: float
    p_value: float

    @property
    def cannot_tell(self) -> bool:
        """Whether the test has no answer: no direction in common, or no estimate of the noise."""
        return self.df == 0 or self.df_residual == 0


def homogeneity(a: Stats, b: Stats, *, noise: float | Noise | None = None) -> Evidence:
    """Test whether `a` and `b` are observations of the same parameter.

    Eq. (1) is the squared distance of the two estimates, in which a direction counts as far as
    *both* sets have observed it. Computed from sums, without differences of large numbers:

    ``s = (ϑ₁ − ϑ₂)ᵀ A₁ (A₁ + A₂)⁻ A₂ (ϑ₁ − ϑ₂) / σ²``

    (derived in ``docs/theory.md``). If the parameters are the same, ``s`` is χ² distributed with
    ``df = rank(A₁) + rank(A₂) − rank(A₁ + A₂)`` degrees of freedom. If the noise is estimated, the
    statistic is ``F = s/df``, with the pooled residual variance as ``σ²`` (Chow).

    Parameters
    ----------
    a, b : Stats
        The two sets of observations.
    noise : float, Noise or None
        Standard deviation of the noise; None estimates it from the two sets.

    Examples
    --------
    Rewards 0 and 2 for one context, noise 1: the estimates differ by √2 standard errors.

    >>> homogeneity(Stats.of([1.0], 0.0), Stats.of([1.0], 2.0), noise=1.0)
    Evidence(statistic=2.0, df=1, df_residual=inf, p_value=0.157299...)

    Orthogonal contexts have no direction in common:

    >>> homogeneity(Stats.of([1.0, 0.0], 0.0), Stats.of([0.0, 1.0], 2.0), noise=1.0).cannot_tell
    True
    """
    df, _ = overlap(a, b)
    gap, both = a.theta - b.theta, a + b
    inverse = pseudo_inverse(both.gram, both.count)
    squared_gap = max(0.0, float(gap @ a.seen @ inverse @ b.seen @ gap))
    noise = _noise(noise, a, b)
    p = float(p_value(squared_gap, df, noise))
    if df == 0 or noise.df == 0:
        return Evidence(0.0, df, noise.df, p)
    statistic = squared_gap / noise.variance
    return Evidence(statistic if math.isinf(noise.df) else statistic / df, df, noise.df, p)


def p_value(squared_gap: ArrayLike, df: ArrayLike, noise: Noise) -> NDArray[np.float64]:
    """Return the p-value of a squared gap ``σ² s`` between estimates, or of an array of them.

    >>> p_value([3.84, 6.63], [1, 0], Noise.known(1.0)).round(3)
    array([0.05, 1.  ])
    """
    df = np.asarray(df)
    if noise.df == 0:
        return np.full(df.shape, CANNOT_TELL)
    directions = np.maximum(df, 1)
    with np.errstate(over="ignore"):  # an infinite statistic has the p-value 0
        statistic = np.asarray(squared_gap) / noise.variance
    if math.isinf(noise.df):
        tail = scipy.special.chdtrc(directions, statistic)
    else:
        tail = scipy.special.fdtrc(directions, noise.df, statistic / directions)
    return np.where(df > 0, tail, CANNOT_TELL)


def critical(df: ArrayLike, noise: Noise, level: float) -> NDArray[np.float64]:
    """Return the squared gap ``σ² s`` whose p-value is `level`; infinite if there is no answer.

    >>> critical([1, 0], Noise.known(1.0), 0.05).round(2)
    array([3.84,  inf])
    """
    df = np.asarray(df)
    if noise.df == 0:
        return np.full(df.shape, math.inf)
    directions = np.maximum(df, 1)
    if math.isinf(noise.df):
        cut = scipy.special.chdtri(directions, level)
    else:
        # Uses the symmetry of F, because 1 − level would round a small level away.
        cut = directions / scipy.special.fdtri(noise.df, directions, level)
    return np.where(df > 0, noise.variance * cut, math.inf)


@lru_cache(maxsize=64)
def critical_units(dim: int, noise_df: float, level: float) -> NDArray[np.float64]:
    """Return `critical` for 0 to `dim` degrees of freedom, in units of the noise's variance.

    >>> critical_units(2, math.inf, 0.05).round(2)
    array([ inf, 3.84, 5.99])
    """
    return critical(np.arange(dim + 1), Noise(1.0, noise_df), level)


def _noise(noise: float | Noise | None, a: Stats, b: Stats) -> Noise:
    if noise is None:
        return Noise.within(a, b)
    return noise if isinstance(noise, Noise) else Noise.known(noise)
