"""Columns of a user's memory of rewards, after the features (docs/theory.md §10.3)."""

from __future__ import annotations

REWARD, RESPONSE, WEIGHT, DENSITY, CREDIT = range(5)
"""The reward; the level that it suggests and the weight of this observation in a segment's sums
(`kernels.laws`); log density as predicted; and the weight with which the home model holds it."""

REMEMBERED = 5
"""Number of these columns."""
