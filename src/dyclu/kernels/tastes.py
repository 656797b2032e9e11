"""Evidence of tastes: sums of observations under a normal prior (docs/theory.md §10.2).

A taste is stored in *natural form*: its precision ``Λ = Σ zzᵀ/σ²`` and its shift ``η = Σ zy/σ²``
over all observations that it holds, without the prior. The prior has the precision ``P`` and the
shift ``Pμ``. Rows of the arrays are models; row 0 is always empty, which is a taste never met.
"""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import misfit
from dyclu.kernels.linalg import factorise, invert, times
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
