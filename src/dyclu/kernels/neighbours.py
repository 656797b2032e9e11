"""DyClu's neighbourhood: one segment against all others, by bounds where they decide."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import dot, factorise, times, trace, two_dots
from dyclu.kernels.segments import narrow_squared_gap
from dyclu.validation import FloatArray, Ids

SLACK = 1e-6
"""Relative distance that a bound must keep from the critical value, for its rounding error."""

BLUR = 1e-9
"""If ``δᵀAδ`` exceeds this share of trace(A)·‖δ‖², its relative rounding error is below `SLACK`."""

UNLIKE, ALIKE, UNDECIDED = 0, 1, 2
"""Verdict on a pair of segments; undecided where rounding denies a certificate."""


@compiled
def observed_image(
    gram: FloatArray, inverse: FloatArray, narrow: bool, gap: FloatArray, out: FloatArray
) -> None:
    """Set `out` to ``A δ``, or to ``A A⁻ A δ`` if the segment is `narrow` (rank below d).

    ``A A⁻ A`` is the gram without rounding errors in directions that were never observed; those
    errors must not count as observations.
    """
    times(gram, gap, out)
    if narrow:
        back = np.empty(len(gap))
        times(inverse, out, back)
        times(gram, back, out)


@compiled
def squared_gap(mine: FloatArray, other: FloatArray, ours: FloatArray, theirs: FloatArray) -> float:
    """Return ``σ² s = (A₁δ)ᵀ (A₁ + A₂)⁻¹ A₂δ``; -1 where the sum cannot be factorised."""
    d = len(ours)
    table = np.empty((d, d + 2))
    for i in range(d):
        row = table[i]
        for j in range(d):
            row[j] = mine[i, j] + other[i, j]
        row[d], row[d + 1] = ours[i], theirs[i]
    if not factorise(table):
        return -1.0
    total = 0.0
    for k in range(d):
        total += table[k, d] * table[k, d + 1]
    return max(total, 0.0)


@compiled
def verdict_of_one(
    gap: FloatArray, image: FloatArray, other_bound: float, cut: float, least: float
) -> tuple[int, float]:
    """Return a verdict from the matrix of one segment only, and an upper bound on ``σ² s``.

    `image` is ``A δ`` of that segment, `other_bound` the eigenvalue bound on the inverse of the
    other, which spans the space. Undecided where ``δᵀAδ`` is below `least`, as it may be rounding.
    """
    q, square = two_dots(gap, image, image, image)
    if q < least:
        return UNDECIDED, q
    if q * (1 + SLACK) <= cut:
        return ALIKE, q
    if q * q * (1 - SLACK) > cut * (q + other_bound * square):
        return UNLIKE, q
    return UNDECIDED, q


@compiled
def verdict_of_both(
    mine: FloatArray,
    my_inverse: FloatArray,
    other: FloatArray,
    other_inverse: FloatArray,
    gap: FloatArray,
    ours: FloatArray,
    theirs: FloatArray,
    my_rank: int,
    other_rank: int,
    cuts: FloatArray,
    tolerance: float,
) -> tuple[int, float]:
    """Return a verdict from the matrices of both, by bounds if they decide, else by solving.

    Also returns an upper bound on ``σ² s``, meaningful where both are alike and span the space.
    """
    d = len(gap)
    q1, q2 = two_dots(gap, ours, gap, theirs)
    highest = q1 * q2 / (q1 + q2) if q1 + q2 > 0.0 else 0.0
    least, most = max(my_rank, other_rank), min(my_rank + other_rank, d)
    df = my_rank + other_rank - most if least == d else 1
    if df == 0 or highest * (1 + SLACK) <= cuts[df]:
        return ALIKE, highest
    if least < d:
        rank, value = narrow_squared_gap(mine, other, ours, theirs, least, most, tolerance)
        if rank < 0:
            return UNDECIDED, 0.0
        df = my_rank + other_rank - rank
        return ALIKE if df <= 0 or value <= cuts[df] else UNLIKE, value
    column = np.empty(d)
    if other_rank == d:
        times(other_inverse, ours, column)
        if q1 * q1 * (1 - SLACK) > cuts[df] * (q1 + dot(ours, column)):
            return UNLIKE, 0.0
    if my_rank == d:
        times(my_inverse, theirs, column)
        if q2 * q2 * (1 - SLACK) > cuts[df] * (q2 + dot(theirs, column)):
            return UNLIKE, 0.0
    value = squared_gap(mine, other, ours, theirs)
    if value < 0.0:
        return UNDECIDED, 0.0
    return ALIKE if value <= cuts[df] else UNLIKE, value


@compiled
def head_distances(head: FloatArray, vector: FloatArray, size: int) -> FloatArray:
    """Return the squared distances of `size` estimates from one, over their first features."""
    squares = np.zeros(size)
    for j in range(len(head)):
        value, row = vector[j], head[j]
        for i in range(size):
            squares[i] += (value - row[i]) * (value - row[i])
    return squares


@compiled
def bound_holds(
    bound: FloatArray, grown: float, shifted: float, invalidated: float, cut: float
) -> bool:
    """Return whether the bound stored at the last comparison still shows that a pair is alike."""
    if bound[2] != invalidated:
        return False
    root: float = math.exp(grown - bound[0]) * (bound[1] + shifted)
    return root * root <= cut


@compiled
def compare(
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
    size: int,
    mine: int,
    units: FloatArray,
    variance: float,
    rounding: float,
    known_rows: Ids,
    known_bounds: FloatArray,
    alike: Ids,
    bounds: FloatArray,
    undecided: Ids,
) -> tuple[int, int]:
    """Write the rows of segments like mine, and of undecided ones; return their numbers.

    The first ten arguments are those of `SegmentArrays`; only the first `size` rows are compared.
    `units` are critical values by degrees of freedom, in units of the noise's `variance`.
    `known_rows` and their bounds are the result of the previous comparison. The last three
    arguments are those of `Found` and are written to.
    """
    d = theta.shape[1]
    found, left, next = 0, 0, 0
    gap, ours, theirs = np.empty(d), np.empty(d), np.empty(d)
    my_rank, cuts, far, blur = rank[mine], units * variance, np.empty(0), 0.0
    cut = cuts[my_rank] / (1 + SLACK)
    if my_rank == d:
        far = head_distances(theta_head, theta[mine], size)
    else:
        blur = BLUR * trace(gram[mine])
    for i in range(size):
        grown, shifted = growth[mine, 0] + growth[i, 0], growth[mine, 1] + growth[i, 1]
        invalidated = growth[mine, 2] + growth[i, 2]
        if next < len(known_rows) and known_rows[next] == i:
            bound = known_bounds[next]
            next += 1
            if bound_holds(bound, grown, shifted, invalidated, cut):
                alike[found], bounds[found] = i, bound
                found += 1
                continue
        full, apart = my_rank == d and rank[i] == d, math.inf
        if full:
            apart = cuts[d] * (1 + SLACK) * (inverse_bound[mine] + inverse_bound[i])
            if far[i] > apart:
                continue
        for j in range(d):
            gap[j] = theta[mine, j] - theta[i, j]
        length = dot(gap, gap)
        if length > apart:
            continue
        verdict, most = UNDECIDED, 0.0
        # The segment with fewer observations nearly decides: the other estimate is exact beside it.
        theirs_first = my_rank == d and counts[i] < counts[mine]
        if i == mine:
            verdict = ALIKE
        elif theirs_first:
            observed_image(gram[i], inverse[i], rank[i] < d, gap, theirs)
            verdict, most = verdict_of_one(gap, theirs, inverse_bound[mine], cuts[rank[i]], 0.0)
        elif rank[i] == d:
            times(gram[mine], gap, ours)
            verdict, most = verdict_of_one(
                gap, ours, inverse_bound[i], cuts[my_rank], blur * length
            )
        if verdict == UNDECIDED:
            observed_image(gram[mine], inverse[mine], my_rank < d, gap, ours)
            if not theirs_first:
                observed_image(gram[i], inverse[i], rank[i] < d, gap, theirs)
            tolerance = rounding * (d + counts[mine] + counts[i])
            verdict, most = verdict_of_both(
                gram[mine], inverse[mine], gram[i], inverse[i], gap, ours, theirs,
                my_rank, rank[i], cuts, tolerance,
            )  # fmt: skip
        if verdict == ALIKE:
            alike[found] = i
            bounds[found, 0], bounds[found, 1] = grown, math.sqrt(most) - shifted
            bounds[found, 2] = invalidated if full else -1.0
            found += 1
        elif verdict == UNDECIDED:
            undecided[left] = i
            left += 1
    return found, left
