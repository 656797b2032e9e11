"""CUSUM with a bootstrap: did the level of a series change, how surely, and where?

Wayne A. Taylor (2000): *Change-Point Analysis*. With deviations from the mean added up,
``S_i = Σ_{j ≤ i} (s_j − s̄)``, a change of level shows as a slope: the sums range widely. How widely
they range by chance is seen from the same entries in random orders.
"""

from __future__ import annotations

import numpy as np

from dyclu.validation import FloatArray

TIE = 1e-9
"""Relative difference up to which two ranges are the same but for rounding."""


def p_value(series: FloatArray, *, shuffles: int, rng: np.random.Generator) -> float:
    """Return how likely cumulative sums range this widely if the order of a series means nothing.

    Of `shuffles` random orders and the given one, the share whose sums range at least as widely:
    one minus it is the confidence that something changed. It is `level` or less with a chance of
    at most `level`, whatever the distribution of the entries, as long as they are exchangeable.

    No range is wider than the sum of the positive deviations, and that is reached wherever the k
    entries above the mean come in one run, be it around the end: in ``n / C(n, k)`` of all orders.
    Hence short series cannot tell: nine entries never reach 5 %, ten do if k = 5 (4 %).

    >>> p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0))
    0.01
    """
    orders = rng.permuted(np.tile(series, (shuffles, 1)), axis=1)
    wider = np.ptp(sums(orders), axis=1) >= (1 - TIE) * np.ptp(sums(series))
    return (1 + int(wider.sum())) / (1 + shuffles)


def change_point(series: FloatArray) -> int:
    """Return how many of two or more entries came before the likeliest change: ``max |S|``.

    >>> change_point(np.array([1.0, 2.0, 1.0, 7.0, 8.0]))
    3
    """
    return int(np.argmax(np.abs(sums(series)[:-1]))) + 1


def sums(series: FloatArray) -> FloatArray:
    """Return ``S_i = Σ_{j ≤ i} (s_j − s̄)`` along the last axis; the last is 0, as S₀ is."""
    return np.cumsum(series - series.mean(axis=-1, keepdims=True), axis=-1)
