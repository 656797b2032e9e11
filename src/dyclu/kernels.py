"""The inner loops, compiled: what a round costs is decided here.

Every function is plain Python over arrays and means exactly what it says; numba compiles it at its
first call and keeps the machine code on disk, so that the next process only loads it. Without numba
the same functions run uncompiled: the same numbers, some hundred times slower.

Inner loops run along rows and add vectors, which a processor may do several lanes at a time without
changing the order of any addition: results depend neither on its width, nor on a BLAS library and
its threads. Matrices are symmetric throughout, so a row is a column.

Load it with `compute.kernels()`: importing numba takes longer than importing numpy, and only those
who compute should wait for it. All compiled functions live in this one file, because their machine
code is kept for as long as the file does not change.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dyclu.validation import FloatArray

_Function = TypeVar("_Function", bound=Callable[..., object])
_Ids = NDArray[np.int64]

SLACK = 1e-6
"""Relative distance a bound must keep from the critical value: more than its rounding."""

BLUR = 1e-9
"""Share of trace(A)·‖δ‖² from which on ``δᵀAδ`` is known to more than `SLACK` despite rounding."""

UNLIKE, ALIKE, UNDECIDED = 0, 1, 2
"""What is known of a pair; the undecided are those that rounding leaves without a certificate."""


SURPRISE, SUSPECT, DOUBT, REFRESH, COMPARE, RECONSIDER = 1, 2, 4, 8, 16, 32
"""What a located user's reward tells, to be added up: a stray; the user is probably on another
model, or maybe; their model's inverse is to be computed afresh; it is to be compared with the other
models; it is to be asked whether the user belongs there."""


TALLY = ("count", "evidence", "checked", "updates", "visited", "entry")
COUNT, EVIDENCE, CHECKED, UPDATES, VISITED, ENTERING = range(6)
"""What `attend` is told of a model, in the order of a row of numbers."""

NOISE, SPREAD, HAZARD, FLOOR, CLOCK = range(5)
"""What it is told of the surroundings, in the order of an array."""

WAITING, CREDITED, DUE, SCORE = range(4)
"""Where in a row of `ledger` numbers begin."""

STALE = 1024
"""Rank-one updates in a row before an inverse is computed afresh: rounding cannot pile up."""


def ledger(dim: int, lag: int) -> dict[str, tuple[int, ...]]:
    """Return what `attend` is told of a user, and in what shapes, in the order of a row."""
    parts = {"waiting": (), "credited": (), "due": (), "score": (dim,)}
    return parts | {"rewards": (lag,), "contexts": (lag, dim)}


def _imported() -> Any:
    try:
        return importlib.import_module("numba")
    except (ImportError, SystemError):  # missing, or built for another numpy
        return None


_numba = _imported()
COMPILED = _numba is not None


def compiled(function: _Function) -> _Function:
    """Return the function compiled, its machine code kept on disk where a folder allows it."""
    if not COMPILED:
        return function
    try:
        made = _numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        made = _numba.njit(error_model="numpy")(function)
    return cast(_Function, made)


@compiled
def dot(a: FloatArray, b: FloatArray) -> float:
    """Return ``aᵀb``."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled
def two_dots(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> tuple[float, float]:
    """Return ``aᵀb`` and ``cᵀd``, neither negative by rounding, in the time of one of them."""
    first, second = 0.0, 0.0
    for i in range(len(a)):
        first += a[i] * b[i]
        second += c[i] * d[i]
    return max(first, 0.0), max(second, 0.0)


@compiled
def times(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """Set `out` to ``A v``, four rows at a time."""
    d = len(vector)
    out[:] = 0.0
    for i in range(0, d - 3, 4):
        a, b, c, e = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        p, q, r, s = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(d):
            out[j] += (a * p[j] + b * q[j]) + (c * r[j] + e * s[j])
    for i in range(d - d % 4, d):
        weight, row = vector[i], matrix[i]
        for j in range(d):
            out[j] += weight * row[j]


@compiled
def add_outer(matrix: FloatArray, vector: FloatArray, weight: float) -> None:
    """Add ``w v vᵀ`` to a matrix, the same number on both sides of the diagonal.

    Were they rounded differently, what is not symmetric would stay while the rest of an inverse
    shrinks, and in the end be most of it.
    """
    for i in range(len(vector)):
        part, row = vector[i], matrix[i]
        for j in range(len(vector)):
            row[j] += weight * (part * vector[j])


@compiled
def trace(matrix: FloatArray) -> float:
    """Return the sum of the diagonal."""
    total = 0.0
    for i in range(len(matrix)):
        total += matrix[i, i]
    return total


@compiled
def norm(matrix: FloatArray) -> float:
    """Return the Frobenius norm, which no eigenvalue of a symmetric matrix exceeds."""
    squares, total = np.zeros(len(matrix)), 0.0
    for i in range(len(matrix)):
        row = matrix[i]
        for j in range(len(matrix)):
            squares[j] += row[j] * row[j]
    for j in range(len(matrix)):
        total += squares[j]
    return math.sqrt(total)


@compiled
def largest(matrix: FloatArray) -> float:
    """Return a bound on a symmetric matrix's largest eigenvalue, at most ``d^⅛`` times it.

    The norm of a power is that of the eigenvalues' powers: ``‖A⁴‖^¼ = (Σ λ⁸)^⅛``.
    """
    d, scale = len(matrix), norm(matrix)
    if not (scale > 0.0 and math.isfinite(scale)):
        return scale
    power, product = matrix / scale, np.empty((d, d))
    for _ in range(2):
        for i in range(d):
            times(power, power[i], product[i])
        power, product = product, power
    return scale * math.sqrt(math.sqrt(norm(power)))


@compiled
def factorise(table: FloatArray) -> bool:
    """Overwrite ``(A | R)`` by ``(U | U⁻ᵀR)``, ``A = UᵀU``; tell whether that was possible.

    `A` is as many columns as there are rows; what is left of the diagonal is not touched.
    """
    width = table.shape[1]
    for k in range(len(table)):
        row = table[k]
        for i in range(0, k - 3, 4):
            p, q, r, s = table[i], table[i + 1], table[i + 2], table[i + 3]
            a, b, c, e = p[k], q[k], r[k], s[k]
            for j in range(k, width):
                row[j] -= (a * p[j] + b * q[j]) + (c * r[j] + e * s[j])
        for i in range(k - k % 4, k):
            part, other = table[i, k], table[i]
            for j in range(k, width):
                row[j] -= part * other[j]
        if not row[k] > 0.0:
            return False
        pivot = 1.0 / math.sqrt(row[k])
        for j in range(k, width):
            row[j] *= pivot
    return True


@compiled
def first_best(scores: FloatArray, tie: float) -> int:
    """Return the first index within `tie` of the best score."""
    best = scores[0]
    for score in scores:
        best = max(best, score)
    for i in range(len(scores)):
        if scores[i] >= best - tie:
            return i
    return 0


@compiled
def most_hopeful(mean: FloatArray, width: FloatArray, tie: float) -> tuple[int, float, float]:
    """Return the first arm within `tie` of the best ``mean + width``, its mean and its width."""
    best = first_best(mean + width, tie)
    return best, mean[best], width[best]


@compiled
def ucb(
    theta: FloatArray,
    inverse: FloatArray,
    arms: FloatArray,
    alpha: float,
    mean: FloatArray,
    width: FloatArray,
    beyond: float,
    bold: float,
) -> None:
    """Set the means ``xᵀθ̂`` and widths ``α √v`` of arms (K, dim), with ``v = xᵀ A_λ⁻¹ x``.

    Where ``v`` is `beyond` so many ``xᵀx``, the width is `bold` times as large.
    """
    column = np.empty(len(theta))
    for k in range(len(arms)):
        times(inverse, arms[k], column)
        mean[k] = dot(arms[k], theta)
        variance = max(dot(arms[k], column), 0.0)
        width[k] = alpha * math.sqrt(variance)
        if variance > beyond * dot(arms[k], arms[k]):
            width[k] *= bold


@compiled
def ucb_best(
    theta: FloatArray,
    inverse: FloatArray,
    arms: FloatArray,
    alpha: float,
    tie: float,
    beyond: float,
    bold: float,
) -> tuple[int, float, float]:
    """Return the first arm within `tie` of the best mean + width, its mean and its width."""
    means, widths = np.empty(len(arms)), np.empty(len(arms))
    ucb(theta, inverse, arms, alpha, means, widths, beyond, bold)
    return most_hopeful(means, widths, tie)


@compiled
def ucb_many(
    theta: FloatArray,
    inverse: FloatArray,
    rows: _Ids,
    arms: FloatArray,
    alpha: FloatArray,
    tie: float,
    arm: _Ids,
    mean: FloatArray,
    width: FloatArray,
    beyond: float,
    bold: float,
) -> None:
    """Set arm, mean and width of the best of each table of arms (n, K, dim), by model `rows`."""
    for i in range(len(rows)):
        arm[i], mean[i], width[i] = ucb_best(
            theta[rows[i]], inverse[rows[i]], arms[i], alpha[i], tie, beyond, bold
        )


@compiled
def ridge_scores(
    gram: FloatArray,
    moment: FloatArray,
    arms: FloatArray,
    ridge: float,
    alpha: float,
    theta: FloatArray,
    mean: FloatArray,
    width: FloatArray,
) -> bool:
    """Set θ̂ and the same for it, with ``A_λ`` factorised here; tell whether that was possible.

    With ``A_λ = UᵀU``: ``xᵀA_λ⁻¹x = ‖U⁻ᵀx‖²`` for all arms at once, and ``θ̂ = U⁻¹ U⁻ᵀ b``.
    """
    d, n = len(moment), len(arms)
    table = np.empty((d, d + 1 + n))
    for i in range(d):
        row = table[i]
        for j in range(d):
            row[j] = gram[i, j]
        row[i] += ridge
        row[d] = moment[i]
        for a in range(n):
            row[d + 1 + a] = arms[a, i]
    if not factorise(table):
        return False
    width[:] = 0.0
    for k in range(d):
        row = table[k]
        theta[k] = row[d]
        for a in range(n):
            width[a] += row[d + 1 + a] * row[d + 1 + a]
    for k in range(d - 1, -1, -1):
        theta[k] /= table[k, k]
        for i in range(k):
            theta[i] -= table[i, k] * theta[k]
    for a in range(n):
        mean[a] = dot(arms[a], theta)
        width[a] = alpha * math.sqrt(width[a])
    return True


@compiled
def observe(
    gram: FloatArray,
    moment: FloatArray,
    inverse: FloatArray,
    theta: FloatArray,
    context: FloatArray,
    reward: float,
    most_leverage: float,
    most_condition: float,
) -> bool:
    """Add an observation to a model's sums, and follow it by rank one if that can be trusted.

    ``A⁻¹`` becomes ``A⁻¹ − c cᵀ / (1 + xᵀc)`` with ``c = A⁻¹x``. That loses as many digits as
    ``xᵀc`` has, and where the matrix is badly conditioned errors grow. From `most_leverage` on, and
    from `most_condition` on, of trace(A)·trace(A⁻¹), nothing is followed and the answer is no.
    """
    add_outer(gram, context, 1.0)
    for i in range(len(context)):
        moment[i] += reward * context[i]
    column = np.empty(len(context))
    times(inverse, context, column)
    leverage = dot(context, column)
    if not 0.0 <= leverage < most_leverage:
        return False
    if not trace(gram) * trace(inverse) < most_condition:
        return False
    add_outer(inverse, column, -1.0 / (1.0 + leverage))
    times(inverse, moment, theta)
    return True


@compiled
def exchange(matrix: FloatArray, a: FloatArray, b: FloatArray, i: int, j: int) -> None:
    """Let two features change places."""
    if i == j:
        return
    a[i], a[j] = a[j], a[i]
    b[i], b[j] = b[j], b[i]
    for k in range(len(a)):
        matrix[i, k], matrix[j, k] = matrix[j, k], matrix[i, k]
    for k in range(len(a)):
        matrix[k, i], matrix[k, j] = matrix[k, j], matrix[k, i]


@compiled
def inverse_trace(eliminated: FloatArray, rank: int) -> float:
    """Return trace(B⁻¹) of the leading block of `rank` rows, from its eliminated upper triangle.

    ``B = M D Mᵀ``, so the trace is the sum of the squares of ``M⁻¹``, each row over its pivot.
    """
    total, column = 0.0, np.empty(rank)
    for first in range(rank):
        column[first:] = 0.0
        column[first] = 1.0
        for i in range(first, rank):
            row = eliminated[i]
            share = column[i] / row[i]
            total += share * column[i]
            for j in range(i + 1, rank):
                column[j] -= share * row[j]
    return total


@compiled
def narrow_deviation(
    mine: FloatArray,
    other: FloatArray,
    ours: FloatArray,
    theirs: FloatArray,
    least: int,
    most: int,
    tolerance: float,
) -> tuple[int, float]:
    """Return the rank of ``A₁ + A₂`` and ``σ² s``, where neither segment spans the space.

    The sum is scaled to a unit diagonal and eliminated, the largest pivot first. With `B` the block
    of the `r` pivots and `t` the trace of what is left, the eigenvalues of the scaled sum satisfy

    - ``λ_r ≥ λ_min(B) ≥ 1 / trace(B⁻¹)``, as eigenvalues of a block interlace;
    - ``λ_{r+1} ≤ t``, as what is left is the sum's difference from a matrix of rank `r`.

    These certify the rank as `stats.rank` defines it, by eigenvalues above `tolerance` times the
    largest, which lies between 1 and `d`. A rank of -1 means that they do not, and nothing is said.
    `least` and `most` bound the rank from what is known of the segments. Any generalised inverse
    gives the same deviation; this one is that of the block.
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
    """Return the rank of ``A + x xᵀ``, of `A` known to be `rank`; -1 where nothing certifies it."""
    d = len(context)
    outer, none = np.zeros((d, d)), np.zeros(d)
    add_outer(outer, context, 1.0)
    return narrow_deviation(gram, outer, none, none, rank, min(rank + 1, d), tolerance)[0]


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
    """Add an observation in a direction never observed, and follow it if that can be trusted.

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
    """Return a model's prediction ``xᵀϑ`` and its leverage ``xᵀA⁻x``."""
    column = np.empty(len(context))
    times(inverse[row], context, column)
    return dot(context, theta[row]), max(dot(context, column), 0.0)


@compiled
def snap(strain: FloatArray) -> None:
    """Let no bound on a pair with this segment outlast what has happened to it."""
    strain[0], strain[1] = 0.0, 0.0
    strain[2] += 1.0


@compiled
def extend(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    count: _Ids,
    inverse: FloatArray,
    theta: FloatArray,
    glimpse: FloatArray,
    spread: FloatArray,
    strain: FloatArray,
    rank: _Ids,
    row: int,
    context: FloatArray,
    reward: float,
    spanned: bool,
    most_condition: float,
    refresh: int,
    rounding: float,
) -> bool:
    """Add an observation to a segment, and follow it if that can be trusted, as `observe` says.

    One in a new direction is followed by `widen`, until the segment spans the space.

    An observation never makes an eigenvalue of ``A⁻`` larger, where it adds no direction. So a
    bound on them stays one; it is renewed when a sixteenth to an eighth of the data is new.
    """
    energy[row] += reward * reward
    count[row] += 1
    if not spanned:
        snap(strain[row])
        tolerance = rounding * (len(context) + count[row])
        certain = widened_rank(gram[row], context, rank[row], tolerance) == rank[row] + 1
        rank[row] += 1
        followed = widen(
            gram[row], moment[row], inverse[row], theta[row], context, reward, most_condition
        )
        return certain and followed and rank[row] < len(context)
    expected, leverage = predict(inverse, theta, row, context)
    trusted = most_condition if count[row] % refresh else 0.0
    if not observe(
        gram[row], moment[row], inverse[row], theta[row], context, reward, math.inf, trusted
    ):
        snap(strain[row])
        return False
    strain[row, 0] += 0.5 * math.log1p(leverage)
    strain[row, 1] += abs(reward - expected) * math.sqrt(leverage / (1.0 + leverage))
    step = 1
    while 16 * step <= count[row]:
        step *= 2
    if count[row] % step == 0:
        spread[row] = largest(inverse[row])
    for j in range(len(glimpse)):
        glimpse[j, row] = theta[row, j]
    return True


@compiled
def observe_many(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    count: _Ids,
    inverse: FloatArray,
    theta: FloatArray,
    rows: _Ids,
    contexts: FloatArray,
    rewards: FloatArray,
    start: int,
    most_leverage: float,
    most_condition: float,
    refresh: int,
) -> int:
    """Add observations to the models `rows`, from number `start` until one cannot be followed.

    Return the number of that one, already part of the sums, or how many there are. Every `refresh`
    observations of a model one is not followed, whatever its leverage.
    """
    for i in range(start, len(rows)):
        row = rows[i]
        energy[row] += rewards[i] * rewards[i]
        count[row] += 1
        most = most_leverage if count[row] % refresh else 0.0
        if not observe(
            gram[row], moment[row], inverse[row], theta[row],
            contexts[i], rewards[i], most, most_condition,
        ):  # fmt: skip
            return i
    return len(rows)


@compiled
def gather(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    count: _Ids,
    closed: _Ids,
    rows: _Ids,
    time: int,
    grams: FloatArray,
    moments: FloatArray,
) -> tuple[float, int]:
    """Add the sums of segments that were not closed by a time; return those that are numbers."""
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
def same_closed(closed: _Ids, rows: _Ids, time: int, before: _Ids) -> bool:
    """Tell whether the rows that were closed by a time are the same as before."""
    met = 0
    for row in rows:
        if 0 <= closed[row] <= time:
            if met == len(before) or before[met] != row:
                return False
            met += 1
    return met == len(before)


@compiled
def seen(
    gram: FloatArray, inverse: FloatArray, narrow: bool, gap: FloatArray, out: FloatArray
) -> None:
    """Set `out` to ``A δ``, with ``A A⁻ A`` for `A` where a segment does not span the space.

    This is the gram without what rounding left in directions never observed, which must not count
    as an observation of them.
    """
    times(gram, gap, out)
    if narrow:
        back = np.empty(len(gap))
        times(inverse, out, back)
        times(gram, back, out)


@compiled
def deviation(mine: FloatArray, other: FloatArray, ours: FloatArray, theirs: FloatArray) -> float:
    """Return ``σ² s = (A₁δ)ᵀ (A₁ + A₂)⁻¹ A₂δ``, negative where the sum cannot be factorised."""
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
def glance(
    gap: FloatArray, image: FloatArray, spread: float, cut: float, least: float
) -> tuple[int, float]:
    """Tell whether two segments are alike by the matrices of one of them, if that will do.

    `image` is ``A δ`` of that one, and `spread` of the other, which spans the space. It will not do
    where ``δᵀAδ`` is below `least`, and may be rounding. Return too what ``σ² s`` is at most.
    """
    q, square = two_dots(gap, image, image, image)
    if q < least:
        return UNDECIDED, q
    if q * (1 + SLACK) <= cut:
        return ALIKE, q
    if q * q * (1 - SLACK) > cut * (q + spread * square):
        return UNLIKE, q
    return UNDECIDED, q


@compiled
def settle(
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
    """Tell whether two segments are alike, by bounds where they decide, by solving where not.

    Of those that are alike and span the space, return too what ``σ² s`` is at most.
    """
    d = len(gap)
    q1, q2 = two_dots(gap, ours, gap, theirs)
    highest = q1 * q2 / (q1 + q2) if q1 + q2 > 0.0 else 0.0
    least, most = max(my_rank, other_rank), min(my_rank + other_rank, d)
    df = my_rank + other_rank - most if least == d else 1
    if df == 0 or highest * (1 + SLACK) <= cuts[df]:
        return ALIKE, highest
    if least < d:
        rank, value = narrow_deviation(mine, other, ours, theirs, least, most, tolerance)
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
    value = deviation(mine, other, ours, theirs)
    if value < 0.0:
        return UNDECIDED, 0.0
    return ALIKE if value <= cuts[df] else UNLIKE, value


@compiled
def distances(glimpse: FloatArray, vector: FloatArray, size: int) -> FloatArray:
    """Return the squared distances of `size` vectors from one, in their first features."""
    squares = np.zeros(size)
    for j in range(len(glimpse)):
        value, row = vector[j], glimpse[j]
        for i in range(size):
            squares[i] += (value - row[i]) * (value - row[i])
    return squares


@compiled
def lasts(bound: FloatArray, grown: float, shifted: float, snapped: float, cut: float) -> bool:
    """Tell whether a pair is alike by a bound from when it was looked at last."""
    if bound[2] != snapped:
        return False
    root: float = math.exp(grown - bound[0]) * (bound[1] + shifted)
    return root * root <= cut


@compiled
def compare(
    gram: FloatArray,
    inverse: FloatArray,
    theta: FloatArray,
    glimpse: FloatArray,
    spread: FloatArray,
    strain: FloatArray,
    rank: _Ids,
    count: _Ids,
    size: int,
    mine: int,
    units: FloatArray,
    variance: float,
    rounding: float,
    known: _Ids,
    bounds: FloatArray,
    alike: _Ids,
    fresh: FloatArray,
    undecided: _Ids,
) -> tuple[int, int]:
    """Set the rows of the segments like mine and of those left undecided, and return how many.

    `known` are rows that were like mine before, with the `bounds` of each pair at that time; the
    bounds of those that are like mine now are set in `fresh`.
    """
    d = theta.shape[1]
    found, left, next = 0, 0, 0
    gap, ours, theirs = np.empty(d), np.empty(d), np.empty(d)
    my_rank, cuts, far, blur = rank[mine], units * variance, np.empty(0), 0.0
    cut = cuts[my_rank] / (1 + SLACK)
    if my_rank == d:
        far = distances(glimpse, theta[mine], size)
    else:
        blur = BLUR * trace(gram[mine])
    for i in range(size):
        grown, shifted = strain[mine, 0] + strain[i, 0], strain[mine, 1] + strain[i, 1]
        snapped = strain[mine, 2] + strain[i, 2]
        if next < len(known) and known[next] == i:
            bound = bounds[next]
            next += 1
            if lasts(bound, grown, shifted, snapped, cut):
                alike[found], fresh[found] = i, bound
                found += 1
                continue
        full, apart = my_rank == d and rank[i] == d, math.inf
        if full:
            apart = cuts[d] * (1 + SLACK) * (spread[mine] + spread[i])
            if far[i] > apart:
                continue
        for j in range(d):
            gap[j] = theta[mine, j] - theta[i, j]
        length = dot(gap, gap)
        if length > apart:
            continue
        verdict, most = UNDECIDED, 0.0
        # Whoever has seen less decides, nearly: the other's estimate is exact beside theirs.
        theirs_first = my_rank == d and count[i] < count[mine]
        if i == mine:
            verdict = ALIKE
        elif theirs_first:
            seen(gram[i], inverse[i], rank[i] < d, gap, theirs)
            verdict, most = glance(gap, theirs, spread[mine], cuts[rank[i]], 0.0)
        elif rank[i] == d:
            times(gram[mine], gap, ours)
            verdict, most = glance(gap, ours, spread[i], cuts[my_rank], blur * length)
        if verdict == UNDECIDED:
            seen(gram[mine], inverse[mine], my_rank < d, gap, ours)
            if not theirs_first:
                seen(gram[i], inverse[i], rank[i] < d, gap, theirs)
            tolerance = rounding * (d + count[mine] + count[i])
            verdict, most = settle(
                gram[mine], inverse[mine], gram[i], inverse[i], gap, ours, theirs,
                my_rank, rank[i], cuts, tolerance,
            )  # fmt: skip
        if verdict == ALIKE:
            alike[found] = i
            fresh[found, 0], fresh[found, 1] = grown, math.sqrt(most) - shifted
            fresh[found, 2] = snapped if full else -1.0
            found += 1
        elif verdict == UNDECIDED:
            undecided[left] = i
            left += 1
    return found, left


@compiled
def invert(gram: FloatArray, ridge: float, out: FloatArray) -> bool:
    """Set `out` to ``(A + λI)⁻¹``; tell whether that was possible.

    With ``A + λI = UᵀU``: first ``U⁻ᵀ``, which is lower triangular, then ``U⁻¹U⁻ᵀ``.
    """
    d = len(gram)
    factor = gram.copy()
    for i in range(d):
        factor[i, i] += ridge
    if not factorise(factor):
        return False
    out[:] = 0.0
    for k in range(d):
        row, pivot = out[k], 1.0 / factor[k, k]
        row[k] = 1.0
        for j in range(k + 1):
            row[j] *= pivot
        for i in range(k + 1, d):
            part, other = factor[k, i], out[i]
            for j in range(k + 1):
                other[j] -= part * row[j]
    for k in range(d - 1, -1, -1):
        row, pivot = out[k], 1.0 / factor[k, k]
        for i in range(k + 1, d):
            part, other = factor[k, i], out[i]
            for j in range(d):
                row[j] -= part * other[j]
        for j in range(d):
            row[j] *= pivot
    return True


@compiled
def posterior(
    gram: FloatArray,
    moment: FloatArray,
    mean: FloatArray,
    ridge: float,
    theta: FloatArray,
    inverse: FloatArray,
) -> bool:
    """Set ``A_λ⁻¹`` and ``θ̂ = μ + A_λ⁻¹(b − Aμ)``; tell whether that was possible."""
    if not invert(gram, ridge, inverse):
        return False
    rest = np.empty(len(moment))
    times(gram, mean, rest)
    for i in range(len(moment)):
        rest[i] = moment[i] - rest[i]
    times(inverse, rest, theta)
    for i in range(len(moment)):
        theta[i] += mean[i]
    return True


@compiled
def log_evidence(
    gram: FloatArray, moment: FloatArray, mean: FloatArray, ridge: float, noise: float
) -> float:
    """Return ``b̃ᵀA_λ⁻¹b̃ / 2σ² − ½ log det(A_λ/λ)`` with ``b̃ = b − Aμ``; 0 where rounding ate λ."""
    d = len(moment)
    factor = gram.copy()
    for i in range(d):
        factor[i, i] += ridge
    if not factorise(factor):
        return 0.0
    rest = np.empty(d)
    times(gram, mean, rest)
    for i in range(d):
        rest[i] = moment[i] - rest[i]
    fit, size = 0.0, 0.0
    for k in range(d):
        row = factor[k]
        part = rest[k] / row[k]
        for j in range(k + 1, d):
            rest[j] -= row[j] * part
        fit += part * part
        size += math.log(row[k])
    return fit / (2.0 * noise) - size + 0.5 * d * math.log(ridge)


@compiled
def log_evidences(
    gram: FloatArray,
    moment: FloatArray,
    rows: _Ids,
    more_gram: FloatArray,
    more_moment: FloatArray,
    mean: FloatArray,
    ridge: float,
    noise: float,
    out: FloatArray,
) -> None:
    """Set the log evidence of each of the models `rows` with more observations added to it."""
    for i in range(len(rows)):
        row = rows[i]
        together, moments = gram[row] + more_gram, moment[row] + more_moment
        out[i] = log_evidence(together, moments, mean, ridge, noise)


@compiled
def flush(vector: FloatArray, smallest: float) -> float:
    """Set numbers below `smallest` to 0, and return the vector's squared length."""
    for i in range(len(vector)):
        if abs(vector[i]) < smallest:
            vector[i] = 0.0
    return dot(vector, vector)


@compiled
def density(error: float, variance: float) -> float:
    """Return the Gaussian density up to 1/√2π."""
    return math.exp(-0.5 * error * error / variance) / math.sqrt(variance)


@compiled
def tamed(error: float, variance: float, floor: float) -> float:
    """Return an error, or the largest of its sign that is as likely as a stray.

    What is rare must not decide, but it must count: of rewards that are mostly 0 and seldom 1, the
    ones are all there is to learn from.
    """
    if density(error, variance) >= floor:
        return error
    most = max(-2.0 * variance * math.log(floor * math.sqrt(variance)), 0.0)
    return math.copysign(math.sqrt(most), error)


@compiled
def add_up(contexts: FloatArray, rewards: FloatArray, gram: FloatArray, moment: FloatArray) -> None:
    """Add observations to sums, one after the other."""
    for k in range(len(rewards)):
        add_outer(gram, contexts[k], 1.0)
        for i in range(len(moment)):
            moment[i] += rewards[k] * contexts[k, i]


@compiled
def follow(
    theta: FloatArray,
    inverse: FloatArray,
    count: FloatArray,
    entering: FloatArray,
    belief: FloatArray,
    home: int,
    context: FloatArray,
    reward: float,
    noise: float,
    spread: float,
    hazard: float,
    floor: float,
) -> tuple[float, float]:
    """Set a belief over models to what it is after a reward; return home's error and leverage.

    Another model's leverage is taken to be that of `home` in proportion to their counts, as if both
    had seen contexts of one kind; the first model, which is empty, has the prior's.
    """
    column = np.empty(len(context))
    times(inverse, context, column)
    leverage = max(dot(context, column), 0.0)
    length, held, total, mine = dot(context, context), max(count[home], 1.0), 0.0, 0.0
    for k in range(len(belief)):
        weight = (1.0 - hazard) * belief[k] + hazard * entering[k]
        if weight == 0.0:
            belief[k] = 0.0
            continue
        error = reward - dot(theta[k], context)
        if k == 0:
            variance = noise + spread * length
        else:
            variance = noise * (1.0 + leverage * held / max(count[k], 1.0))
        belief[k] = weight * (density(error, variance) + floor)
        total += belief[k]
        if k == home:
            mine = error
    for k in range(len(belief)):
        belief[k] /= total
    return mine, leverage


@compiled
def credit(
    gram: FloatArray,
    moment: FloatArray,
    inverse: FloatArray,
    theta: FloatArray,
    score: FloatArray,
    context: FloatArray,
    reward: float,
    noise: float,
    floor: float,
) -> None:
    """Add an observation to a model by rank one, and its error to a score, a stray's `tamed`."""
    column = np.empty(len(context))
    times(inverse, context, column)
    grown = 1.0 + max(dot(context, column), 0.0)
    expected = dot(theta, context)
    error = tamed(reward - expected, noise * grown, floor)
    add_outer(gram, context, 1.0)
    add_outer(inverse, column, -1.0 / grown)
    for i in range(len(context)):
        moment[i] += (expected + error) * context[i]
        score[i] += error * context[i]
        theta[i] += error / grown * column[i]


@compiled
def attend(
    gram: FloatArray,
    moment: FloatArray,
    inverse: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    ledger: FloatArray,
    surroundings: FloatArray,
    belief: FloatArray,
    context: FloatArray,
    reward: float,
    row: int,
    home: int,
    sure: bool,
) -> tuple[float, float, int]:
    """Take in a reward of a located user: `follow` it, keep it, `credit` the one that waited most.

    The first arrays are of models, `ledger` of users; `row` is of the user and `home` of their
    model. A belief that is `sure` is of home alone, whatever it holds. If home is no longer the
    likeliest, nothing is credited. Return home's error and leverage, and what is to be done now, as
    a sum of the constants above.
    """
    d = len(context)
    noise, spread, hazard = surroundings[NOISE], surroundings[SPREAD], surroundings[HAZARD]
    floor, model, user = surroundings[FLOOR], tally[home], ledger[row]
    lag = (len(user) - SCORE - d) // (d + 1)
    score, rewards = user[SCORE : SCORE + d], user[SCORE + d : SCORE + d + lag]
    contexts = user[SCORE + d + lag :].reshape(lag, d)
    if sure:
        belief[:] = 0.0
        belief[home] = 1.0
    error, leverage = follow(
        theta, inverse[home], tally[:, COUNT], tally[:, ENTERING], belief,
        home, context, reward, noise, spread, hazard, floor,
    )  # fmt: skip
    last = int(user[WAITING])
    contexts[last] = context
    rewards[last] = reward
    user[WAITING] = last + 1
    calls = SURPRISE if density(error, noise * (1.0 + leverage)) < floor else 0
    if belief[home] < 0.5:
        return error, leverage, calls + SUSPECT
    if 1.0 - belief[home] > 2.0 * hazard:
        calls += DOUBT
    if last + 1 < lag:
        return error, leverage, calls
    credit(
        gram[home], moment[home], inverse[home], theta[home], score,
        contexts[0], rewards[0], noise, floor,
    )  # fmt: skip
    user[CREDITED] += 1.0
    model[COUNT] += 1.0
    model[EVIDENCE] = np.nan
    model[UPDATES] += 1.0
    model[VISITED] = surroundings[CLOCK]
    if model[UPDATES] >= STALE:
        calls += REFRESH
    if model[COUNT] >= 2.0 * model[CHECKED]:
        calls += COMPARE
    for place in range(last):
        contexts[place] = contexts[place + 1]
        rewards[place] = rewards[place + 1]
    user[WAITING] = last
    if user[CREDITED] >= user[DUE]:
        calls += RECONSIDER
    return error, leverage, calls
