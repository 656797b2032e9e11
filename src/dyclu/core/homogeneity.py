"""The only test of the library: do two sets of observations share one parameter?

It is asked in two places. Is a new reward still what the user's segment predicts (change)? Is
another segment like mine (neighbourhood)? This module is the readable definition; `segments` and
`neighbours` answer the same question faster, and agree with it to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, chdtri, fdtrc, fdtri

from dyclu.core.noise import Noise
from dyclu.core.stats import Stats, overlap, pseudo_inverse

CANNOT_TELL = 1.0
"""The p-value of two sets that have nothing in common to compare: no evidence against sharing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What two sets of observations say against having the same parameter.

    Attributes
    ----------
    statistic : float
        ``s`` of Eq. (1), χ² distributed, if the noise was given; Chow's ``F`` if estimated.
    df : int
        Directions in which both were observed; 0 means that nothing can be compared.
    df_residual : float
        Residual degrees of freedom of the noise: infinite if it was given.
    p_value : float
        Probability of at least this `statistic` if the parameters are the same.
    """

    statistic: float
    df: int
    df_residual: float
    p_value: float

    @property
    def cannot_tell(self) -> bool:
        """Whether the two sets, or the noise, leave the question open."""
        return self.df == 0 or self.df_residual == 0


def homogeneity(a: Stats, b: Stats, *, noise: float | Noise | None = None) -> Evidence:
    """Test whether `a` and `b` are observations of the same parameter.

    Eq. (1) is the squared distance of the two estimates, each direction counted as far as *both*
    have seen it. In sums alone, and without anything large that must cancel,

    ``s = (ϑ₁ − ϑ₂)ᵀ A₁ (A₁ + A₂)⁻ A₂ (ϑ₁ − ϑ₂) / σ²``

    (derived in ``docs/theory.md``). Under the hypothesis it is χ² with
    ``df = rank(A₁) + rank(A₂) − rank(A₁ + A₂)`` degrees of freedom. With unknown noise it is
    ``F = s/df``, with the pooled residual variance for ``σ²`` (Chow).

    Parameters
    ----------
    a, b : Stats
        The two sets of observations.
    noise : float, Noise or None
        Standard deviation of the noise; None estimates it from the two sets alone.

    Examples
    --------
    Rewards 0 and 2 for one context, noise 1: the estimates lie √2 standard errors apart.

    >>> homogeneity(Stats.of([1.0], 0.0), Stats.of([1.0], 2.0), noise=1.0)
    Evidence(statistic=2.0, df=1, df_residual=inf, p_value=0.157299...)

    Different contexts have no direction in common:

    >>> homogeneity(Stats.of([1.0, 0.0], 0.0), Stats.of([0.0, 1.0], 2.0), noise=1.0).cannot_tell
    True
    """
    df, _ = overlap(a, b)
    gap, both = a.theta - b.theta, a + b
    inverse = pseudo_inverse(both.gram, both.count)
    deviation = float(gap @ a.seen @ inverse @ b.seen @ gap)
    return weigh(max(0.0, deviation), df, _noise(noise, a, b))


def weigh(deviation: float, df: int, noise: Noise) -> Evidence:
    """Return the evidence in a deviation ``σ² s`` of `df` degrees of freedom."""
    p = float(p_value(deviation, df, noise))
    if df == 0 or noise.df == 0:
        return Evidence(0.0, df, noise.df, p)
    statistic = deviation / noise.variance
    return Evidence(statistic if math.isinf(noise.df) else statistic / df, df, noise.df, p)


def p_value(deviation: ArrayLike, df: ArrayLike, noise: Noise) -> NDArray[np.float64]:
    """Return ``P(s ≥ observed)`` under homogeneity, for one deviation ``σ² s`` or an array of them.

    >>> p_value([3.84, 6.63], [1, 0], Noise.known(1.0)).round(3)
    array([0.05, 1.  ])
    """
    df = np.asarray(df)
    if noise.df == 0:
        return np.full(df.shape, CANNOT_TELL)
    directions = np.maximum(df, 1)
    with np.errstate(over="ignore"):  # beyond all numbers is as improbable as can be
        statistic = np.asarray(deviation) / noise.variance
    if math.isinf(noise.df):
        tail = chdtrc(directions, statistic)
    else:
        tail = fdtrc(directions, noise.df, statistic / directions)
    return np.where(df > 0, tail, CANNOT_TELL)


def critical(df: ArrayLike, noise: Noise, level: float) -> NDArray[np.float64]:
    """Return the deviation ``σ² s`` whose p-value is `level`; infinite where nothing can be told.

    >>> critical([1, 0], Noise.known(1.0), 0.05).round(2)
    array([3.84,  inf])
    """
    df = np.asarray(df)
    if noise.df == 0:
        return np.full(df.shape, math.inf)
    directions = np.maximum(df, 1)
    if math.isinf(noise.df):
        cut = chdtri(directions, level)
    else:
        # By the symmetry of F, as 1 − level would swallow a small level.
        cut = directions / fdtri(noise.df, directions, level)
    return np.where(df > 0, noise.variance * cut, math.inf)


@lru_cache(maxsize=64)
def critical_units(dim: int, noise_df: float, level: float) -> NDArray[np.float64]:
    """Return `critical` for 0 to `dim` degrees of freedom, in units of the noise's variance; kept.

    >>> critical_units(2, math.inf, 0.05).round(2)
    array([ inf, 3.84, 5.99])
    """
    return critical(np.arange(dim + 1), Noise(1.0, noise_df), level)


def _noise(noise: float | Noise | None, a: Stats, b: Stats) -> Noise:
    if noise is None:
        return Noise.within(a, b)
    return noise if isinstance(noise, Noise) else Noise.known(noise)
