"""Bayesian evidence of sums under a Gaussian prior on the parameter: see `core.evidence`."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import factorise, invert, times
from dyclu.validation import FloatArray, Ids


@compiled
def posterior(
    gram: FloatArray,
    moment: FloatArray,
    mean: FloatArray,
    ridge: float,
    theta: FloatArray,
    inverse: FloatArray,
) -> bool:
    """Set ``A_λ⁻¹`` and ``θ̂ = μ + A_λ⁻¹(b − Aμ)``; return False if ``A_λ`` is not positive."""
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
    gram: FloatArray, moment: FloatArray, mean: FloatArray, ridge: float, noise_variance: float
) -> float:
    """Return ``b̃ᵀA_λ⁻¹b̃ / 2σ² − ½ log det(A_λ/λ)`` with ``b̃ = b − Aμ``.

    Returns 0 where ``A_λ`` is not positive because λ was lost in rounding.
    """
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
    return fit / (2.0 * noise_variance) - size + 0.5 * d * math.log(ridge)


@compiled
def log_evidences(
    gram: FloatArray,
    moment: FloatArray,
    rows: Ids,
    more_gram: FloatArray,
    more_moment: FloatArray,
    mean: FloatArray,
    ridge: float,
    noise_variance: float,
    out: FloatArray,
) -> None:
    """Set `out` to the log evidence of each of the models `rows` plus the given sums."""
    for i in range(len(rows)):
        row = rows[i]
        together, moments = gram[row] + more_gram, moment[row] + more_moment
        out[i] = log_evidence(together, moments, mean, ridge, noise_variance)
