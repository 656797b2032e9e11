"""Evidence of tastes: sums of observations under a normal prior (docs/theory.md §10.2).

A taste is stored in *natural form*: its precision ``Λ = Σ zzᵀ/σ²`` and its shift ``η = Σ zy/σ²``
over all observations that it holds, without the prior. The prior has the precision ``P`` and the
shift ``Pμ``. Rows of the arrays are models; row 0 is always empty, which is a taste never met.
"""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import logistic, misfit
from dyclu.kernels.linalg import dot, factorise, invert, times
from dyclu.validation import FloatArray, Ids

TALLY = ("count", "evidence", "stale", "slack", "users", "joined", "visited", "checked")
COUNT, EVIDENCE, STALE, SLACK, USERS, JOINED, VISITED, CHECKED = range(8)
"""Columns of `tally`, one row per model: number of observations; ``log Z`` of its sums, NaN if it
must be computed; observations that estimate and covariance do not contain yet; mean variance of its
predictions; located users; how often a user was located there; when it was last used; its count
when it was last compared."""

IMPOSSIBLE = -1e300
"""Log evidence where rounding has made a precision matrix indefinite."""

NEGLIGIBLE = 1e-6
"""Share of a segment in a model up to which the model counts as one without the segment."""

UNLIKELY = 0.02
"""Probability of a model, by that of the likeliest, up to which it is left out of the scores of
arms; and largest share of a segment in a model that does not matter in a review."""

FAMILIAR = 8.0
"""Variance of an arm, by the mean over the contexts seen, up to which it will be learnt anyway."""

TURNS = 20
"""Steps of the power iteration for a principal axis."""

TOLERATED = 0.02
"""Share of its count by which a model may grow before its estimate is computed afresh."""


@compiled
def log_evidence(
    precision: FloatArray,
    shift: FloatArray,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    weight: float,
    gram: FloatArray,
    moment: FloatArray,
) -> float:
    """Return ``½ηᵀΛ⁻¹η − ½ log det Λ`` of a model, the prior and ``weight`` times a segment.

    The difference of two such values is the log evidence of what the one holds more than the other.
    """
    p = len(moment)
    table = np.empty((p, p + 1))
    for i in range(p):
        row = table[i]
        for j in range(p):
            row[j] = precision[i, j] + prior_precision[i, j] + weight * gram[i, j]
        row[p] = shift[i] + prior_shift[i] + weight * moment[i]
    if not factorise(table):
        return IMPOSSIBLE
    total = 0.0
    for i in range(p):
        total += 0.5 * table[i, p] * table[i, p] - math.log(table[i, i])
    return total


@compiled
def log_growth(precision: FloatArray, prior_precision: FloatArray, part: FloatArray) -> float:
    """Return ``log det(P + Λ) − log det(P + Λ − U)``: by how much a part makes a model surer.

    NaN if rounding has made one of the matrices indefinite.
    """
    growth = 0.0
    for side in range(2):
        table = precision + prior_precision
        if side == 1:
            table -= part
        if not factorise(table):
            return math.nan
        for i in range(len(table)):
            log = 2.0 * math.log(table[i, i])
            growth += log if side == 0 else -log
    return growth


@compiled
def weigh(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    scale: float,
    own: FloatArray,
    context: FloatArray,
    clicks: FloatArray,
    newness: float,
    evidence: FloatArray,
    misfits: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
) -> None:
    """Set log evidence of a segment under each model, and the prediction for one context.

    The segment has the sums ``scale · (gram, moment)``, and its share ``own[k]`` is part of model
    `k`: the evidence is that of the segment given the model *without* this share. Mean and variance
    are those of the expected reward of `context`, given the model and the whole segment. `clicks`
    are remembered clicks of the segment: they count with their own likelihood, and not with its
    expansion, at each model's estimate. `newness` is the log weight of a taste never met; it is
    part of its evidence.
    """
    p = len(moment)
    table, theta = np.empty((p, p + 2)), np.empty(p)
    for q in range(len(rows)):
        k = rows[q]
        rest = (1.0 - own[k]) * scale
        for i in range(p):
            row = table[i]
            for j in range(p):
                row[j] = precision[k, i, j] + prior_precision[i, j] + rest * gram[i, j]
            row[p] = shift[k, i] + prior_shift[i] + rest * moment[i]
            row[p + 1] = context[i]
        misfits[q] = 0.0
        if not factorise(table):
            evidence[q], mean[q], variance[q] = IMPOSSIBLE, 0.0, 0.0
            continue
        both, expected, spread = 0.0, 0.0, 0.0
        for i in range(p):
            row = table[i]
            both += 0.5 * row[p] * row[p] - math.log(row[i])
            expected += row[p] * row[p + 1]
            spread += row[p + 1] * row[p + 1]
        if own[k] > NEGLIGIBLE:
            without = log_evidence(
                precision[k], shift[k], prior_precision, prior_shift, -own[k] * scale, gram, moment
            )
        else:
            if np.isnan(tally[k, EVIDENCE]):
                tally[k, EVIDENCE] = log_evidence(
                    precision[k], shift[k], prior_precision, prior_shift, 0.0, gram, moment
                )
            without = tally[k, EVIDENCE]
        if len(clicks):
            back_substitute(table, theta)
            misfits[q] = misfit(clicks, theta)
        evidence[q], mean[q], variance[q] = both - without + misfits[q], expected, spread
        if k == 0:
            evidence[q] += newness


@compiled
def contribute(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    row: int,
    share: float,
    scale: float,
    gram: FloatArray,
    moment: FloatArray,
    count: float,
) -> None:
    """Add ``share · scale · (gram, moment)`` to a model; row 0 stays empty."""
    if row == 0 or share == 0.0:
        return
    weight = share * scale
    for i in range(len(moment)):
        line, other = precision[row, i], gram[i]
        for j in range(len(moment)):
            line[j] += weight * other[j]
        shift[row, i] += weight * moment[i]
    tally[row, COUNT] = max(tally[row, COUNT] + share * count, 0.0)
    tally[row, EVIDENCE] = np.nan
    tally[row, STALE] += abs(share) * max(count, 1.0)


@compiled
def refresh(
    precision: FloatArray,
    shift: FloatArray,
    covariance: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    row: int,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    contexts: FloatArray,
) -> None:
    """Compute covariance and estimate of a model from its sums.

    `contexts` is the mean of ``zzᵀ`` over the stream; the slack is the mean of ``zᵀVz``.
    """
    total, right = precision[row] + prior_precision, shift[row] + prior_shift
    if invert(total, 0.0, covariance[row]):
        times(covariance[row], right, theta[row])
    tally[row, STALE] = 0.0
    slack = 0.0
    for i in range(len(right)):
        for j in range(len(right)):
            slack += covariance[row, i, j] * contexts[i, j]
    tally[row, SLACK] = max(slack, 0.0)


@compiled
def refresh_stale(
    precision: FloatArray,
    shift: FloatArray,
    covariance: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    contexts: FloatArray,
    home: int,
) -> None:
    """Compute afresh the models whose sums have grown noticeably, and `home` if it has at all."""
    for k in rows:
        stale = tally[k, STALE]
        if stale > TOLERATED * tally[k, COUNT] or (k == home and stale > 0.0):
            refresh(
                precision, shift, covariance, theta, tally, k, prior_precision, prior_shift,
                contexts,
            )  # fmt: skip


@compiled
def estimate_without(
    precision: FloatArray,
    shift: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    scale: float,
    own: FloatArray,
    theta: FloatArray,
) -> None:
    """Set the estimates of models that hold a noticeable share of a segment to those without it."""
    p = len(moment)
    table = np.empty((p, p + 1))
    for k in rows:
        if k == 0 or own[k] <= UNLIKELY:
            continue
        weight = own[k] * scale
        for i in range(p):
            for j in range(p):
                table[i, j] = precision[k, i, j] + prior_precision[i, j] - weight * gram[i, j]
            table[i, p] = shift[k, i] + prior_shift[i] - weight * moment[i]
        if factorise(table):
            back_substitute(table, theta[k])


@compiled
def back_substitute(table: FloatArray, out: FloatArray) -> None:
    """Set `out` to ``U⁻¹r`` of a factorised table ``(U | r …)``."""
    p = len(table)
    for i in range(p - 1, -1, -1):
        out[i] = table[i, p]
        for j in range(i + 1, p):
            out[i] -= table[i, j] * out[j]
        out[i] /= table[i, i]


@compiled
def score_in_doubt(
    precision: FloatArray,
    shift: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    scale: float,
    belief: FloatArray,
    suspect: int,
    suspicion: float,
    arms: FloatArray,
    tally: FloatArray,
    period: float,
    noise: float,
    binary: bool,
    alpha: float,
    theta: FloatArray,
    mean: FloatArray,
    width: FloatArray,
) -> None:
    """Set the arms' expected rewards, and widths of their levels, for a user in doubt.

    These are means over a mixture: every model with the user's segment, weighted by the belief, and
    the model `suspect` without it, with the weight `suspicion`: the user may have changed. Which
    model is right, any reward tells; so widths are those of the models, and not of the mixture.
    The belief is also the share of the segment that a model holds already; the arms have no column
    for the intercept. `theta` is set to the mixture's mean parameter.
    """
    p, n, total = len(moment), len(arms), 0.0
    table = np.empty((p, p + 1 + n))
    back = np.empty(p)
    mean[:] = 0.0
    width[:] = 0.0
    theta[:] = 0.0
    most = suspicion
    for k in rows:
        most = max(most, (1.0 - suspicion) * belief[k])
    for q in range(len(rows) + 1):
        k, weight, rest = suspect, suspicion, -belief[suspect] * scale
        if q < len(rows):
            k = rows[q]
            weight, rest = (1.0 - suspicion) * belief[k], (1.0 - belief[k]) * scale
        if weight <= UNLIKELY * most:
            continue
        if k == 0:
            rest = scale if q < len(rows) else 0.0
        for i in range(p):
            row = table[i]
            for j in range(p):
                row[j] = precision[k, i, j] + prior_precision[i, j] + rest * gram[i, j]
            row[p] = shift[k, i] + prior_shift[i] + rest * moment[i]
            for a in range(n):
                row[p + 1 + a] = arms[a, i] if i < p - 1 else 1.0
        if not factorise(table):
            continue
        total += weight
        for a in range(n):
            expected, spread = 0.0, 0.0
            for i in range(p):
                row = table[i]
                expected += row[p] * row[p + 1 + a]
                spread += row[p + 1 + a] * row[p + 1 + a]
            value = logistic(expected) if binary else expected
            mean[a] += weight * value
            information = value * (1.0 - value) if binary else 1.0 / noise
            width[a] += weight * exploration(
                spread, tally[k, SLACK], (tally[k, COUNT] + period) * information, alpha
            )
        back_substitute(table, back)
        for i in range(p):
            theta[i] += weight * back[i]
    if total == 0.0:
        return
    for i in range(p):
        theta[i] /= total
    for a in range(n):
        mean[a] /= total
        width[a] /= total


@compiled
def score_located(
    theta: FloatArray,
    covariance: FloatArray,
    arms: FloatArray,
    slack: float,
    horizon: float,
    noise: float,
    binary: bool,
    alpha: float,
    mean: FloatArray,
    width: FloatArray,
) -> None:
    """Set the arms' expected rewards, and widths of their levels, by one model.

    The chance of a click is that at its expected level. Its mean over an uncertain level would be
    larger where chances are small, and favour arms that are hardly known.
    """
    p = len(theta)
    context, column = np.empty(p), np.empty(p)
    context[p - 1] = 1.0
    for a in range(len(arms)):
        context[: p - 1] = arms[a]
        times(covariance, context, column)
        expected, spread = 0.0, 0.0
        for i in range(p):
            expected += theta[i] * context[i]
            spread += column[i] * context[i]
        spread = max(spread, 0.0)
        mean[a] = logistic(expected) if binary else expected
        information = mean[a] * (1.0 - mean[a]) if binary else 1.0 / noise
        width[a] = exploration(spread, slack, horizon * information, alpha)


@compiled
def exploration(variance: float, slack: float, worth: float, alpha: float) -> float:
    """Return the width of an arm's level: what it is given credit for, as it is uncertain.

    It is `alpha` deviations for most arms. An arm whose variance is much above the `slack`, the
    mean over the contexts seen, would never be learnt by choosing what is best now: it gets a
    Gittins index. `worth` is the number of rewards to come times the information in each.
    """
    novelty = 1.0 - FAMILIAR * slack / max(variance, 1e-300)
    factor = max(alpha, novelty * gittins(worth * variance)) if novelty > 0.0 else alpha
    return factor * math.sqrt(variance)


@compiled
def gittins(ratio: float) -> float:
    """Return how many deviations of a normal arm its Gittins index lies above its mean.

    `ratio` is the variance of the mean by that of a reward, times the number of rewards to come
    (the approximation of Brezzi and Lai 2002).
    """
    if ratio <= 0.2:
        return math.sqrt(0.5 * ratio)
    if ratio <= 1.0:
        return 0.49 - 0.11 / math.sqrt(ratio)
    if ratio <= 5.0:
        return 0.63 - 0.26 / math.sqrt(ratio)
    if ratio <= 15.0:
        return 0.77 - 0.58 / math.sqrt(ratio)
    log = math.log(ratio)
    return math.sqrt(2.0 * log - math.log(log) - math.log(16.0 * math.pi))


@compiled
def best_partner(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    row: int,
    members: FloatArray,
    divisions: FloatArray,
    prudence: float,
) -> tuple[int, float]:
    """Return the model that a model should be merged with, and the gain in log evidence.

    The gain counts `prudence` times what the members' places cost: with ``a`` and ``b`` segments in
    two models, ``(a+b) log(a+b) − a log a − b log b`` (docs/theory.md §10.6).
    """
    zero = 0.0
    empty, nothing = np.zeros_like(prior_precision), np.zeros_like(prior_shift)
    best, partner = 0.0, -1
    for k in rows:
        if np.isnan(tally[k, EVIDENCE]):
            tally[k, EVIDENCE] = log_evidence(
                precision[k], shift[k], prior_precision, prior_shift, zero, empty, nothing
            )
    for k in rows:
        if k in (0, row):
            continue
        gain = log_evidence(
            precision[row], shift[row], prior_precision, prior_shift, 1.0, precision[k], shift[k]
        )
        gain += tally[0, EVIDENCE] - tally[row, EVIDENCE] - tally[k, EVIDENCE]
        a, b = members[row], members[k]
        divided = divisions[k] if k < len(divisions) else 0.0
        gain += prudence * (xlogx(a + b) - xlogx(a) - xlogx(b) - divided)
        if gain > best:
            best, partner = gain, k
    return partner, best


@compiled
def xlogx(x: float) -> float:
    """Return ``x log x``, which is 0 at 0."""
    return x * math.log(x) if x > 0.0 else 0.0


@compiled
def group(
    precision: FloatArray,
    shift: FloatArray,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    empty: float,
    label: Ids,
    gained: FloatArray,
) -> float:
    """Merge segments, best pair first, while that raises the evidence; return the log evidence.

    Overwrites the sums of segments by those of groups. ``label[i]`` becomes the number of the
    segment that stands for the group of segment `i`, and ``gained[i]`` what the group that segment
    `i` stands for has gained over its segments alone, 0 if it stands for none. `empty` is
    `log_evidence` of the prior alone.
    """
    n = len(label)
    gained[:] = 0.0
    known, gain = np.empty(n), np.full((n, n), IMPOSSIBLE)
    alive = np.ones(n, np.bool_)
    for i in range(n):
        label[i] = i
        known[i] = (
            log_evidence(
                precision[i], shift[i], prior_precision, prior_shift, 0.0, precision[i], shift[i]
            )
            - empty
        )
        for j in range(i):
            both = log_evidence(
                precision[i], shift[i], prior_precision, prior_shift, 1.0, precision[j], shift[j]
            )
            gain[i, j] = both - empty - known[i] - known[j]
    while True:
        best, first, second = 0.0, -1, -1
        for i in range(n):
            if alive[i]:
                for j in range(i):
                    if alive[j] and gain[i, j] > best:
                        best, first, second = gain[i, j], i, j
        if first < 0:
            break
        known[second] += known[first] + best
        gained[second] += gained[first] + best
        gained[first] = 0.0
        precision[second] += precision[first]
        shift[second] += shift[first]
        alive[first] = False
        for i in range(n):
            if label[i] == first:
                label[i] = second
        for j in range(n):
            if alive[j] and j != second:
                both = log_evidence(
                    precision[second], shift[second], prior_precision, prior_shift, 1.0,
                    precision[j], shift[j],
                )  # fmt: skip
                gain[max(j, second), min(j, second)] = both - empty - known[second] - known[j]
    total = 0.0
    for i in range(n):
        if alive[i]:
            total += known[i]
    return total


@compiled
def split(
    precision: FloatArray,
    shift: FloatArray,
    shares: FloatArray,
    rest_precision: FloatArray,
    rest_shift: FloatArray,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    empty: float,
    sweeps: int,
    stays: FloatArray,
) -> float:
    """Split a model in two by EM, and return what that gains in log evidence (a lower bound).

    The model holds the share ``shares[s]`` of segment `s`, and a rest that stays together.
    ``stays[s]`` is set to the part of the segment's share that stays with the rest; `empty` is
    `log_evidence` of the prior alone. The start is the direction in which the segments differ most
    from the model: the first principal axis of what is left over (docs/theory.md §10.6).
    """
    n, p = len(shares), len(prior_shift)
    halves, pulls = np.empty((2, p, p)), np.empty((2, p))
    fits, nothing, zero = np.empty((2, n)), np.zeros((p, p)), np.zeros(p)
    stays[:] = 1.0
    assemble(precision, shift, shares, rest_precision, rest_shift, stays, halves, pulls)
    whole = empty + log_evidence(
        halves[0], pulls[0], prior_precision, prior_shift, 0.0, nothing, zero
    )
    if not first_division(
        precision, shift, shares, halves[0] + prior_precision, pulls[0] + prior_shift, stays
    ):
        return IMPOSSIBLE
    gain = IMPOSSIBLE
    for _ in range(sweeps):
        assemble(precision, shift, shares, rest_precision, rest_shift, stays, halves, pulls)
        gain = -whole
        for s in range(n):
            gain -= shares[s] * (math.log(2.0) - divided(stays[s]))
        for side in range(2):
            gain += log_evidence(
                halves[side], pulls[side], prior_precision, prior_shift, 0.0, nothing, zero
            )
            total, pull = halves[side] + prior_precision, pulls[side] + prior_shift
            if not expected_fits(precision, shift, total, pull, fits[side]):
                return IMPOSSIBLE
        for s in range(n):
            stays[s] = logistic(fits[0, s] - fits[1, s])
    return gain


@compiled
def assemble(
    precision: FloatArray,
    shift: FloatArray,
    shares: FloatArray,
    rest_precision: FloatArray,
    rest_shift: FloatArray,
    stays: FloatArray,
    halves: FloatArray,
    pulls: FloatArray,
) -> None:
    """Set the natural forms of the two halves of a model; the rest belongs to the first one."""
    halves[0], pulls[0] = rest_precision, rest_shift
    halves[1], pulls[1] = 0.0, 0.0
    for s in range(len(shares)):
        for side in range(2):
            part = shares[s] * (stays[s] if side == 0 else 1.0 - stays[s])
            halves[side] += part * precision[s]
            pulls[side] += part * shift[s]


@compiled
def expected_fits(
    precision: FloatArray, shift: FloatArray, total: FloatArray, pull: FloatArray, out: FloatArray
) -> bool:
    """Set the expected log likelihood of each segment, for a taste with this posterior.

    ``E[ηᵀθ − ½θᵀΛθ] = ηᵀm − ½(mᵀΛm + tr ΛV)`` for ``θ ~ N(m, V)``. Returns whether V exists.
    """
    p = len(pull)
    covariance, mean = np.empty((p, p)), np.empty(p)
    if not invert(total, 0.0, covariance):
        return False
    times(covariance, pull, mean)
    for s in range(len(out)):
        out[s] = dot(mean, shift[s])
        for i in range(p):
            for j in range(p):
                out[s] -= 0.5 * precision[s, i, j] * (covariance[i, j] + mean[i] * mean[j])
    return True


@compiled
def first_division(
    precision: FloatArray,
    shift: FloatArray,
    shares: FloatArray,
    total: FloatArray,
    pull: FloatArray,
    stays: FloatArray,
) -> bool:
    """Divide segments by the side of a model on which they lie, along the principal axis.

    Half a displacement `a` to either side gives a segment the log odds ``2aᵀ(η − Λθ̂)``. Returns
    whether the model has an estimate.
    """
    n, p = len(shares), len(pull)
    covariance, theta, axis = np.empty((p, p)), np.empty(p), np.empty(p)
    if not invert(total, 0.0, covariance):
        return False
    times(covariance, pull, theta)
    left = np.empty((n, p))
    for s in range(n):
        times(precision[s], theta, axis)
        for i in range(p):
            left[s, i] = shift[s, i] - axis[i]
    principal_axis(left, shares, covariance, axis)
    side = 0.0
    for s in range(n):
        side += shares[s] * dot(left[s], axis)
    # The segments together lie on the far side of the rest, which stays.
    sign = -2.0 if side > 0.0 else 2.0
    for s in range(n):
        stays[s] = logistic(sign * dot(left[s], axis))
    return True


@compiled
def principal_axis(
    left: FloatArray, shares: FloatArray, covariance: FloatArray, axis: FloatArray
) -> None:
    """Set `axis` to the displacement of a taste that explains most of what is left over.

    Power iteration from the segment that differs most; the length is that of the best displacement.
    """
    n, p = left.shape
    total, most, start = np.empty(p), -1.0, 0
    for s in range(n):
        times(covariance, left[s], axis)
        size = shares[s] * dot(left[s], axis)
        if size > most:
            most, start = size, s
    times(covariance, left[start], axis)
    for _ in range(TURNS):
        total[:] = 0.0
        for s in range(n):
            total += shares[s] * dot(left[s], axis) * left[s]
        times(covariance, total, axis)
        size = math.sqrt(dot(axis, axis))
        if size == 0.0:
            return
        axis /= size
    total[:] = 0.0
    for s in range(n):
        total += shares[s] * (1.0 if dot(left[s], axis) > 0.0 else -1.0) * left[s]
    times(covariance, total, axis)


@compiled
def divided(part: float) -> float:
    """Return the entropy of a division into two parts: ``log 2`` if they are equal."""
    return -xlogx(part) - xlogx(1.0 - part)
