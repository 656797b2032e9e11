"""The prior of tastes from a panel of segments (docs/theory.md §10.4)."""

from __future__ import annotations

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import add_outer, dot, invert, times, trace
from dyclu.kernels.tastes import log_evidence
from dyclu.validation import FloatArray


@compiled
def panel_evidence(
    grams: FloatArray,
    moments: FloatArray,
    ratios: FloatArray,
    precision: FloatArray,
    shift: FloatArray,
    noise: float,
) -> float:
    """Return the sum over segments of ``½ηᵀΛ⁻¹η − ½ log det Λ``, each with a prior of its own.

    Segment `s` has the noise variance ``noise · ratios[s]``.
    """
    total = 0.0
    zero, nothing = np.zeros_like(precision), np.zeros_like(shift)
    for s in range(len(ratios)):
        weight = 1.0 / (noise * ratios[s])
        total += log_evidence(zero, nothing, precision, shift, weight, grams[s], moments[s])
    return total


@compiled
def pair_evidence(
    grams: FloatArray,
    moments: FloatArray,
    ratios: FloatArray,
    precision: FloatArray,
    shift: FloatArray,
    noise: float,
    out: FloatArray,
) -> None:
    """Set `out` to the log Bayes factors of a common taste, one for every two of the segments."""
    n, zero, nothing = len(ratios), np.zeros_like(precision), np.zeros_like(shift)
    gram, moment, alone = np.empty_like(precision), np.empty_like(shift), np.empty(n)
    empty = log_evidence(zero, nothing, precision, shift, 0.0, zero, nothing)
    for s in range(n):
        weight = 1.0 / (noise * ratios[s])
        alone[s] = log_evidence(zero, nothing, precision, shift, weight, grams[s], moments[s])
    pair = 0
    for s in range(n):
        for i in range(len(shift)):
            for j in range(len(shift)):
                gram[i, j] = grams[s, i, j] / (noise * ratios[s])
            moment[i] = moments[s, i] / (noise * ratios[s])
        for t in range(s):
            weight = 1.0 / (noise * ratios[t])
            both = log_evidence(gram, moment, precision, shift, weight, grams[t], moments[t])
            out[pair] = both - alone[s] - alone[t] + empty
            pair += 1


@compiled
def expect(
    grams: FloatArray,
    moments: FloatArray,
    ratios: FloatArray,
    energies: FloatArray,
    precision: FloatArray,
    noise: float,
    mean_precision: FloatArray,
    mean: FloatArray,
    mean_covariance: FloatArray,
    scatter: FloatArray,
) -> tuple[float, float]:
    """Do the E-step: set mean, its covariance and the scatter of tastes around it.

    `mean` is the generalised least-squares estimate of the prior mean under the prior precision
    `precision`; `mean_precision` is the precision of what was known of it before. Returns the
    expected sum of squared residuals in units of the segments' ratios, and the number of segments
    that the data amount to: the sum over segments of the share of their prior variance that their
    data have removed.
    """
    p, n = len(mean), len(ratios)
    covariances, sums = np.empty((n, p, p)), np.empty((n, p))
    total, right = mean_precision.copy(), np.zeros(p)
    work, column, product = np.empty((p, p)), np.empty(p), np.empty((p, p))
    known = 0.0
    for s in range(n):
        weight = 1.0 / (noise * ratios[s])
        for i in range(p):
            for j in range(p):
                work[i, j] = weight * grams[s, i, j] + precision[i, j]
            sums[s, i] = weight * moments[s, i]
        invert(work, 0.0, covariances[s])
        # Σ⁻¹ − Σ⁻¹VΣ⁻¹ is the precision with which the segment tells of the mean.
        for i in range(p):
            times(covariances[s], precision[i], product[i])
        share = 0.0
        for i in range(p):
            share += product[i, i]
            times(precision, product[i], column)
            for j in range(p):
                total[i, j] += precision[i, j] - column[j]
            right[i] += dot(product[i], sums[s])
        known += 1.0 - share / p
    for i in range(p):
        for j in range(i):
            total[i, j] = total[j, i] = 0.5 * (total[i, j] + total[j, i])
    invert(total, 0.0, mean_covariance)
    times(mean_covariance, right, mean)
    times(precision, mean, right)
    scatter[:] = 0.0
    residual = 0.0
    for s in range(n):
        for i in range(p):
            sums[s, i] += right[i]
        times(covariances[s], sums[s], column)
        scatter += covariances[s]
        error = energies[s] - 2.0 * dot(column, moments[s])
        for i in range(p):
            error += column[i] * dot(grams[s, i], column) + dot(grams[s, i], covariances[s, i])
        residual += max(error, 0.0) / ratios[s]
        for i in range(p):
            column[i] -= mean[i]
        add_outer(scatter, column, 1.0)
    return residual, known


@compiled
def mean_variance(covariance: FloatArray, contexts: FloatArray) -> float:
    """Return ``tr(C V)``: the mean of ``zᵀVz`` over contexts with the mean ``C`` of ``zzᵀ``."""
    total = 0.0
    for i in range(len(covariance)):
        total += dot(covariance[i], contexts[i])
    return max(total, 0.0) if trace(contexts) > 0.0 else 0.0
