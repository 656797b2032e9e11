"""Shares by largest likelihood: new tastes, pairs with one taste, noise that differs between users.

All three are derived in docs/theory.md §10.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dyclu.validation import FloatArray

FIRST_NEWNESS_WEIGHT = 10.0
"""Segments that count as evenly spread over the known tastes and one never met. The first users who
are located, perhaps alone, are no fair sample where rewards tell little."""

COINCIDENCES = 2.0
"""Pairs of segments that count as known to have one taste before any data."""

HALVINGS = 30
"""Steps of the searches for the share of new tastes, and for that of pairs with one taste."""

LARGEST_ODDS = 50.0
"""Log odds beyond which evidence is certain."""

RATIO_USERS, RATIO_REWARDS, RATIO_KURTOSIS = 8, 5.0, 3.0
"""Users, and rewards of each, from which on noise is compared between users; and the variance of a
squared error by its squared mean, of a distribution with slightly heavy tails."""

LEAST_PRIOR, SHRINKAGE = 4.0, 20.0
"""Least rewards that the prior of a user's noise counts as, and rewards of a user that weigh half
of what arbitrarily many do."""


def newness(
    odds: Sequence[float], known: int, joined: float, alone: float, tastes: float = 1.0
) -> float:
    """Return the weight of a taste never met, relative to that of one of `known` tastes.

    `odds` has the log evidence of segments in doubt for a known taste rather than a new one,
    `joined` segments have been located, and `alone` of them on a model that nobody shares. The
    share of new tastes has the largest likelihood; no less than if all were equally likely, nor
    than what is missing to the number `tastes` of all that pairs of segments show.
    """
    even = FIRST_NEWNESS_WEIGHT / (known + 1.0)
    new, old = alone + even, joined - alone + FIRST_NEWNESS_WEIGHT - even
    ratios = _excess(odds)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = 0.5 * (low + high)
        slope = new / share - old / (1.0 - share)
        slope -= float((ratios / (1.0 + (1.0 - share) * ratios)).sum())
        low, high = (share, high) if slope > 0.0 else (low, share)
    return max(known * low / (1.0 - low), tastes - known, 1.0)


def share_of_pairs(factors: FloatArray) -> float:
    """Return the share of pairs that have one taste, by the log evidence of each for it; cautious.

    >>> round(share_of_pairs(np.full(100, -50.0)), 2), round(share_of_pairs(np.full(100, 50.0)), 2)
    (0.02, 1.0)
    """
    excess = _excess(factors)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = 0.5 * (low + high)
        slope = COINCIDENCES / share + float((excess / (1.0 + share * excess)).sum())
        low, high = (share, high) if slope > 0.0 else (low, share)
    return high


def noise_ratios(sums: FloatArray, weights: FloatArray) -> tuple[float, float] | None:
    """Return the prior of users' ratios of noise: the rewards it counts as, and its mean.

    The variance of the ratios beyond chance gives the first. None if they do not differ, or too few
    users say so: `sums` and `weights` are those of their squared errors.
    """
    enough = weights >= RATIO_REWARDS
    if enough.sum() < RATIO_USERS:
        return None
    ratios, weights = sums[enough] / weights[enough], weights[enough]
    share = weights / (weights + SHRINKAGE)
    mean = float((share * ratios).sum() / share.sum())
    if mean <= 0.0:
        return None
    beyond = (ratios / mean - 1.0) ** 2 - RATIO_KURTOSIS / weights
    spread = float((share * beyond).sum() / share.sum())
    return (max(2.0 / spread, LEAST_PRIOR), mean) if spread > 0.0 else None


def _excess(odds: FloatArray | Sequence[float]) -> FloatArray:
    """Return odds less 1, given their logs."""
    return np.asarray(np.exp(np.clip(odds, -LARGEST_ODDS, LARGEST_ODDS)) - 1.0)
