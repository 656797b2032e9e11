"""The scales of Σ and of the noise, chosen by the evidence of the panel (docs/theory.md §10.4).

EM alone needs hundreds of steps towards tastes that are all alike, or rewards almost without noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dyclu import kernels
from dyclu.validation import FloatArray

RESOLUTION = 1e-12
"""Share of the rewards' mean square below which a variance is rounding."""

TIGHT, LOOSE = 2.0, 3.0
"""Standard deviations of the logs of noise and of signal, by the variance of all rewards, before
any data."""

STEP = 0.05
"""Gain in log evidence that a change of scale must bring."""

STRIDES = (1.1, 4.0)
"""Least and largest factor by which Σ and the noise are changed at a time."""

DIRECTIONS = (
    (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, -0.3),
    (-1.0, 0.3),
)  # fmt: skip
"""Powers of this factor for Σ and for the noise that are tried."""

LONGER, SHORTER = 1.5, 0.6
"""Powers of this factor after one of them was taken, and after none was."""

UNCHANGED = (1.0, 1.0)


class Sums(NamedTuple):
    """The panel, a row per segment: grams, moments, ratios of noise, energies, rewards held."""

    grams: FloatArray
    moments: FloatArray
    ratios: FloatArray
    energies: FloatArray
    held: FloatArray


class Prior(NamedTuple):
    """Mean and covariance of tastes, and the noise, of the rewards themselves."""

    mean: FloatArray
    tastes: FloatArray
    noise: float


def better_scales(
    sums: Sums,
    prior: Prior,
    contexts: FloatArray,
    *,
    variance: float,
    stride: float,
    told: bool,
) -> tuple[float, float]:
    """Return the factors of Σ and of the noise that raise the panel's evidence most.

    They are powers of `stride`, and 1 if none raises it clearly. `contexts` is the mean of ``zzᵀ``,
    `variance` that of all rewards, and noise that was `told` stays.
    """
    energy, count = (sums.energies / sums.ratios).sum(), sums.held.sum()
    precision = inverse(prior.tastes)
    _, logdet = np.linalg.slogdet(precision)
    signal = float((prior.tastes[:-1, :-1] * contexts[:-1, :-1]).sum())
    inside = float(prior.mean @ precision @ prior.mean)

    def evidence(tastes: float, noise: float) -> float:
        each = 0.5 * (logdet - len(precision) * math.log(tastes) - inside / tastes)
        level, scaled = noise * prior.noise, precision / tastes
        total = len(sums.held) * each - 0.5 * (energy / level + count * math.log(level))
        total += kernels.population.panel_evidence(
            sums.grams, sums.moments, sums.ratios, scaled, scaled @ prior.mean, level
        )
        total -= 0.5 * (math.log(level / variance) / TIGHT) ** 2
        ratio = max(tastes * signal / variance, RESOLUTION)
        return float(total) - 0.5 * (math.log(ratio) / LOOSE) ** 2

    best, factors = evidence(*UNCHANGED) + STEP, UNCHANGED
    for towards in DIRECTIONS:
        tried = (stride ** towards[0], stride ** towards[1])
        if told and tried[1] != 1.0:
            continue
        gained = evidence(*tried)
        if gained > best:
            best, factors = gained, tried
    return factors


def next_stride(stride: float, *, found: bool) -> float:
    """Return the factor to try next: a larger one if the last one was found to be better.

    >>> next_stride(2.0, found=False) < 2.0 < next_stride(2.0, found=True)
    True
    """
    power = LONGER if found else SHORTER
    return min(max(math.pow(stride, power), STRIDES[0]), STRIDES[1])


def inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a covariance matrix."""
    out = np.empty_like(matrix)
    if not kernels.linalg.invert(matrix, 0.0, out):
        pseudo = np.linalg.pinv(matrix, hermitian=True)
        out[:] = 0.5 * (pseudo + pseudo.T)
    return out
