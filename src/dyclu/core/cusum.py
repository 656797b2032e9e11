"""CUSUM with a bootstrap: did the mean of a series change, how certain is that, and where?

Wayne A. Taylor (2000): *Change-Point Analysis*. If the mean changes, the cumulative sums
``S_i = Σ_{j ≤ i} (s_j − s̄)`` have a wide range. The same entries in random orders show how wide
the range is by chance.
"""

from __future__ import annotations

import numpy as np

from dyclu.validation import FloatArray

TIE = 1e-9
"""Two ranges with a smaller relative difference count as equal; it may be rounding."""


def p_value(series: FloatArray, *, shuffles: int, rng: np.random.Generator) -> float:
    """Return the p-value of "the mean of the series does not change".

    It is the share of orders, out of `shuffles` random orders and the given one, whose cumulative
    sums have at least the range of the given series. If the entries are exchangeable, it is
    `level` or less with probability at most `level`, for any distribution of the entries.

    Short series cannot have a small p-value. The range is largest if the k entries above the mean
    are next to each other (the last entry counts as next to the first), which holds for
    ``n / C(n, k)`` of all orders. So nine entries never reach 5 %; ten reach 4 % if k = 5.

    >>> p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0))
    0.01
    """
    orders = rng.permuted(np.tile(series, (shuffles, 1)), axis=1)
    limit = (1 - TIE) * np.ptp(cumulative_sums(series))
    wider = np.ptp(cumulative_sums(orders), axis=1) >= limit
    return (1 + int(wider.sum())) / (1 + shuffles)


def change_point(series: FloatArray) -> int:
    """Return the number of entries before the most likely change, which is at ``max |S|``.

    The series must have two entries or more.

    >>> change_point(np.array([1.0, 2.0, 1.0, 7.0, 8.0]))
    3
    """
    return int(np.argmax(np.abs(cumulative_sums(series)[:-1]))) + 1


def cumulative_sums(series: FloatArray) -> FloatArray:
    """Return ``S_i = Σ_{j ≤ i} (s_j − s̄)`` along the last axis; the last sum is 0."""
    return np.cumsum(series - series.mean(axis=-1, keepdims=True), axis=-1)
