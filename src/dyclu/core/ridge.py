"""Ridge regression and upper confidence bounds: Eq. (2), the only copy of the arm-choice formula.

For the sums ``(A, b)`` of any set of observations, with ``A_λ = A + λI``, the estimate is
``θ̂ = A_λ⁻¹ b``, and the upper bound of the reward of an arm `x` is ``xᵀθ̂ + α √(xᵀ A_λ⁻¹ x)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from dyclu import kernels
from dyclu.core.stats import Stats
from dyclu.validation import FloatArray


class Scores(NamedTuple):
    """Estimates for K arms.

    Attributes
    ----------
    theta : array of shape (dim,)
        The ridge estimate ``θ̂``.
    mean, width : arrays of shape (K,)
        ``xᵀθ̂`` and ``α √(xᵀ A_λ⁻¹ x)`` of every arm.
    """

    theta: FloatArray
    mean: FloatArray
    width: FloatArray


def scores(stats: Stats, arms: FloatArray, *, ridge: float, alpha: float) -> Scores:
    """Return estimate, means and widths for all arms ``(K, dim)``.

    >>> answer = scores(Stats.of([1.0, 0.0], 2.0), np.eye(2), ridge=1.0, alpha=1.0)
    >>> answer.mean, (answer.width ** 2).round(9)
    (array([1., 0.]), array([0.5, 1. ]))
    """
    # The arrays of `Stats` are read-only, for which numba would compile the kernel a second time.
    gram, moment = stats.gram.copy(), stats.moment.copy()
    return pooled_scores(gram, moment, arms, ridge=ridge, alpha=alpha)


def pooled_scores(
    gram: FloatArray, moment: FloatArray, arms: FloatArray, *, ridge: float, alpha: float
) -> Scores:
    """Return the same as `scores`, from the sums ``(A, b)``."""
    answer = Scores(np.empty(len(moment)), np.empty(len(arms)), np.empty(len(arms)))
    if kernels.ridge.ridge_scores(
        gram, moment, arms, ridge, alpha, answer.theta, answer.mean, answer.width
    ):
        return answer
    inverse = solve(gram, np.eye(len(gram)), ridge=ridge)
    return ucb(inverse @ moment, inverse, arms, alpha=alpha)


def ucb(theta: FloatArray, inverse: FloatArray, arms: FloatArray, *, alpha: float) -> Scores:
    """Return the scores for an estimate and ``A_λ⁻¹``."""
    answer = Scores(theta, np.empty(len(arms)), np.empty(len(arms)))
    kernels.ridge.ucb(theta, inverse, arms, alpha, answer.mean, answer.width, math.inf, 1.0)
    return answer


def solve(gram: FloatArray, right: FloatArray, *, ridge: float) -> FloatArray:
    """Return ``(A + λI)⁻¹ R`` for right-hand sides `R` of shape (dim, n)."""
    matrix = gram.copy()
    matrix.flat[:: len(gram) + 1] += ridge
    _, solution, failed = scipy.linalg.lapack.dposv(matrix, right)
    if not failed:
        return np.asarray(solution)
    # The features have such different scales that λ was lost in rounding. The eigenvalues of A_λ
    # are at least λ, so smaller computed ones are replaced by λ.
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ ((vectors.T @ right) / np.maximum(values, ridge)[:, None]))


def root(matrix: FloatArray) -> FloatArray:
    """Return R with ``R Rᵀ`` a positive matrix; ``R z`` of standard normal z has this covariance.

    >>> root(np.array([[4.0, 2.0], [2.0, 2.0]]))
    array([[2., 0.],
           [1., 1.]])
    """
    factor, failed = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    if not failed:
        return np.asarray(factor)
    # If scales are far apart, rounding makes an eigenvalue negative; its true value is almost 0.
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
