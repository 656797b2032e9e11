"""Groups of arrays that travel together. Callers spread them: ``compare(*table.arrays, ...)``.

A compiled function takes a dozen arrays faster than a tuple of them, whose type numba looks up at
every call. This file does not need numba.
"""

from __future__ import annotations

from typing import NamedTuple

from dyclu.validation import FloatArray, Ids


class ModelArrays(NamedTuple):
    """Ridge models, one per row: sums, ``A_λ⁻¹`` and ``θ̂``."""

    gram: FloatArray
    moment: FloatArray
    energy: FloatArray
    counts: Ids
    inverse: FloatArray
    theta: FloatArray


class SegmentArrays(NamedTuple):
    """DyClu's segments, one per row; `policies.dyclu.segments` describes the columns."""

    gram: FloatArray
    moment: FloatArray
    energy: FloatArray
    counts: Ids
    inverse: FloatArray
    theta: FloatArray
    theta_head: FloatArray
    inverse_bound: FloatArray
    growth: FloatArray
    rank: Ids


class Found(NamedTuple):
    """Arrays that `compare` writes to: rows that are alike, their bounds, rows left undecided."""

    alike: Ids
    bounds: FloatArray
    undecided: Ids
