"""DyClu's segments: their rank, and updates by one observation at a time."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import (
    add_outer,
    dot,
    eigenvalue_bound,
    exchange,
    inverse_trace,
    times,
    trace,
)
from dyclu.kernels.ridge import observe
from dyclu.validation import FloatArray, Ids


@compiled
def narrow_squared_gap(
    mine: FloatArray,
    other: FloatArray,
    ours: FloatArray,
    theirs: FloatArray,
    least: int,
    most: int,
    tolerance: float,
) -> tuple[int, float]:
    """Return the rank of ``A₁ + A₂`` and ``σ² s``, where neither segment spans the space.

    The sum is scaled to a unit diagonal and eliminated, largest pivot first. With `B` the block of
    the `r` pivots and `t` the trace of the remainder, the eigenvalues of the scaled sum satisfy

    - ``λ_r ≥ λ_min(B) ≥ 1 / trace(B⁻¹)``, as eigenvalues of a block interlace;
    - ``λ_{r+1} ≤ t``, as the remainder is the difference of the sum and a matrix of rank `r`.

    These bounds certify the rank as `core.stats.rank` defines it: the number of eigenvalues above
    `tolerance` times the largest, which lies between 1 and `d`. A returned rank of -1 means that
    they do not decide. `least` and `most` are bounds on the rank that the caller knows. Any
    generalised inverse gives the same squared gap; the inverse of the block is used.
    """
    d = len(ours)
    scaled, scale = mine + other, np.ones(d)
    for i in range(d):
        if scaled[i, i] > 0.0:
            scale[i] = 1.0 / math.sqrt(scaled[i, i])
    for i in range(d):
        for j in range(d):
            scaled[i, j] *= scale[i] * scale[j]
    # Not the literal 0, which numba takes for a type of its own.
    a, b, value, rank = ours * scale, theirs * scale, 0.0, min(least, 0)
    while rank < most:
        best, remainder = rank, 0.0
        for i in range(rank, d):
            remainder += max(scaled[i, i], 0.0)
            if scaled[i, i] > scaled[best, best]:
                best = i
        if rank >= least and remainder <= tolerance / 2:
            break
        exchange(scaled, a, b, rank, best)
        row, pivot = scaled[rank], scaled[rank, rank]
        if pivot <= tolerance:
            return -1, 0.0
        part_a, part_b = a[rank] / pivot, b[rank] / pivot
        value += part_a * b[rank]
        rank += 1
        for i in range(rank, d):
            part, line = row[i] / pivot, scaled[i]
            a[i] -= part_a * row[i]
            b[i] -= part_b * row[i]
            for j in range(rank, d):
                line[j] -= part * row[j]
    if inverse_trace(scaled, rank) * 2 * d * tolerance >= 1.0:
        return -1, 0.0
    return rank, max(value, 0.0)


@compiled
def widened_rank(gram: FloatArray, context: FloatArray, rank: int, tolerance: float) -> int:
    """Return the rank of ``A + x xᵀ``, given that of `A`; -1 where rounding leaves it open."""
    d = len(context)
    outer, none = np.zeros((d, d)), np.zeros(d)
    add_outer(outer, context, 1.0)
    return narrow_squared_gap(gram, outer, none, none, rank, min(rank + 1, d), tolerance)[0]


@compiled
def widen(
    gram: FloatArray,
    moment: FloatArray,
    inverse: FloatArray,
    theta: FloatArray,
    context: FloatArray,
    reward: float,
    most_condition: float,
) -> bool:
    """Add an observation in a new direction; return whether the update is accurate.

    With ``A w = 0`` and ``xᵀw = 1``, and ``c = A⁻x``, a generalised inverse of ``A + x xᵀ`` is
    ``A⁻ − c wᵀ − w cᵀ + (1 + xᵀc) w wᵀ``, and ``ϑ + (y − xᵀϑ) w`` explains what ϑ did and the new
    reward. With ``u = x − A c``, what is new in `x`, and `D` the inverse of the sum's diagonal,
    ``(I − A⁻A) D u`` is such a `w` but for its length, as ``xᵀw = uᵀD u``.
    """
    d = len(context)
    column, part, back, again = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    times(inverse, context, column)
    times(gram, column, part)
    for i in range(d):
        size = gram[i, i] + context[i] * context[i]
        part[i] = (context[i] - part[i]) / size if size > 0.0 else 0.0
    times(gram, part, back)
    times(inverse, back, again)
    for i in range(d):
        part[i] -= again[i]
    error = reward - dot(context, theta)
    add_outer(gram, context, 1.0)
    for i in range(d):
        moment[i] += reward * context[i]
    along = dot(context, part)
    if not along > 0.0:
        return False
    grown = 1.0 + max(dot(context, column), 0.0)
    for i in range(d):
        part[i] /= along
    for i in range(d):
        row, new, old = inverse[i], part[i], column[i]
        for j in range(d):
            row[j] += grown * (new * part[j]) - (new * column[j] + old * part[j])
        theta[i] += error * part[i]
    return trace(gram) * trace(inverse) < most_condition


@compiled
def predict(
    inverse: FloatArray, theta: FloatArray, row: int, context: FloatArray
) -> tuple[float, float]:
    """Return the prediction ``xᵀϑ`` and the leverage ``xᵀA⁻x`` of the segment in `row`."""
    column = np.empty(len(context))
    times(inverse[row], context, column)
    return dot(context, theta[row]), max(dot(context, column), 0.0)


@compiled
def invalidate_bounds(growth: FloatArray) -> None:
    """Invalidate all stored bounds on pairs that involve this segment."""
    growth[0], growth[1] = 0.0, 0.0
    growth[2] += 1.0


@compiled
def extend(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    counts: Ids,
    inverse: FloatArray,
    theta: FloatArray,
    theta_head: FloatArray,
    inverse_bound: FloatArray,
    growth: FloatArray,
    rank: Ids,
    row: int,
    context: FloatArray,
    reward: float,
    spanned: bool,
    most_condition: float,
    refresh: int,
    rounding: float,
) -> bool:
    """Add an observation to the segment in `row`; return False if it must be computed afresh.

    The first ten arguments are those of `SegmentArrays`.

    `spanned` says whether the context lies in the span of the segment's earlier contexts. If so,
    inverse and estimate change by rank one (`ridge.observe`), otherwise by `widen`.

    An observation in the span never increases an eigenvalue of ``A⁻``. So `inverse_bound` stays
    valid; it is computed again when a sixteenth to an eighth of the data is new.
    """
    energy[row] += reward * reward
    counts[row] += 1
    count = counts[row]
    if not spanned:
        invalidate_bounds(growth[row])
        tolerance = rounding * (len(context) + count)
        certain = widened_rank(gram[row], context, rank[row], tolerance) == rank[row] + 1
        rank[row] += 1
        accurate = widen(
            gram[row], moment[row], inverse[row], theta[row], context, reward, most_condition
        )
        return certain and accurate and rank[row] < len(context)
    expected, leverage = predict(inverse, theta, row, context)
    trusted = most_condition if count % refresh else 0.0
    if not observe(
        gram[row], moment[row], inverse[row], theta[row], context, reward, math.inf, trusted
    ):
        invalidate_bounds(growth[row])
        return False
    growth[row, 0] += 0.5 * math.log1p(leverage)
    growth[row, 1] += abs(reward - expected) * math.sqrt(leverage / (1.0 + leverage))
    step = 1
    while 16 * step <= count:
        step *= 2
    if count % step == 0:
        inverse_bound[row] = eigenvalue_bound(inverse[row])
    for j in range(len(theta_head)):
        theta_head[j, row] = theta[row, j]
    return True


@compiled
def add_sums(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    count: Ids,
    closed: Ids,
    rows: Ids,
    time: int,
    grams: FloatArray,
    moments: FloatArray,
) -> tuple[float, int]:
    """Add gram and moment of the segments `rows` to `grams` and `moments`; return energy and count.

    Segments that were closed at or before `time` are left out.
    """
    d = moment.shape[1]
    energies, counts = 0.0, 0
    for id in rows:
        if 0 <= closed[id] <= time:
            continue
        energies += energy[id]
        counts += count[id]
        for i in range(d):
            moments[i] += moment[id, i]
            row, part = grams[i], gram[id, i]
            for j in range(d):
                row[j] += part[j]
    return energies, counts


@compiled
def same_closed(closed: Ids, rows: Ids, time: int, before: Ids) -> bool:
    """Return whether the segments in `rows` closed at or before `time` are exactly `before`."""
    met = 0
    for row in rows:
        if 0 <= closed[row] <= time:
            if met == len(before) or before[met] != row:
                return False
            met += 1
    return met == len(before)
