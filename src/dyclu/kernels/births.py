"""Births and mergers of models, by evidence (docs/theory.md §10.6)."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import logistic
from dyclu.kernels.linalg import dot, invert, times
from dyclu.kernels.tastes import EVIDENCE, IMPOSSIBLE, log_evidence
from dyclu.validation import FloatArray, Ids

SLIGHT = 0.01
"""Share of a segment up to which it does not count as part of a model."""

TURNS = 20
"""Steps of the power iteration for a principal axis."""


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
def known_rather_than_new(evidence: FloatArray, newness: float) -> float:
    """Return the log evidence of a segment for a known taste rather than a new one.

    `evidence` has that of a taste never met first, which contains the log weight `newness`.
    """
    most, total, known = float(evidence[1:].max()), 0.0, len(evidence) - 1
    for k in range(1, known + 1):
        total += math.exp(evidence[k] - most)
    return most + math.log(total / known) - (float(evidence[0]) - newness)


@compiled
def note_worth(
    evidence: FloatArray,
    misfits: FloatArray,
    rows: Ids,
    likely: FloatArray,
    chance: FloatArray,
    held: float,
    worth: FloatArray,
) -> None:
    """Add what a segment would be worth if each model that it belongs to did not exist.

    Row `k` of `worth` gets, for model `k`, that log evidence and how many of the `held` rewards are
    on the model. The model's own log Z is that of expanded clicks; `misfits` says what they are
    worth there.
    """
    for place in range(len(likely)):
        model, share = int(likely[place]), chance[place]
        if model == 0 or share <= SLIGHT:
            continue
        most, misfit = -np.inf, 0.0
        for q in range(len(rows)):
            if rows[q] == model:
                misfit = misfits[q]
            else:
                most = max(most, evidence[q])
        total = 0.0
        for q in range(len(rows)):
            if rows[q] != model:
                total += math.exp(evidence[q] - most)
        worth[model, 0] += share * (most + math.log(total) - misfit) - divided(share)
        worth[model, 1] += share * held


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
    for i in range(p):
        for j in range(p):
            covariance[i, j] += mean[i] * mean[j]
    for s in range(len(out)):
        out[s] = dot(mean, shift[s])
        for i in range(p):
            out[s] -= 0.5 * dot(precision[s, i], covariance[i])
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
