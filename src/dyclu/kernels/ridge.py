"""Ridge regression: scores of arms (Eq. 2), and models updated by one observation at a time."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import add_outer, dot, factorise, times, trace
from dyclu.validation import FloatArray, Ids


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
def best_arm(mean: FloatArray, width: FloatArray, tie: float) -> tuple[int, float, float]:
    """Return the index, mean and width of the first arm within `tie` of the best mean + width."""
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

    The width of an arm with ``v > beyond · xᵀx`` is multiplied by `bold`.
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
    """Return index, mean and width of the best arm of one model; arguments as in `ucb`."""
    means, widths = np.empty(len(arms)), np.empty(len(arms))
    ucb(theta, inverse, arms, alpha, means, widths, beyond, bold)
    return best_arm(means, widths, tie)


@compiled
def ucb_many(
    theta: FloatArray,
    inverse: FloatArray,
    rows: Ids,
    arms: FloatArray,
    alpha: FloatArray,
    tie: float,
    arm: Ids,
    mean: FloatArray,
    width: FloatArray,
    beyond: float,
    bold: float,
) -> None:
    """Set index, mean and width of the best arm of each table of arms (n, K, dim).

    Table `i` is scored by the model in row ``rows[i]`` with the width factor ``alpha[i]``.
    """
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
    """Set θ̂, means and widths of arms from sums (A, b); return False if ``A_λ`` is not positive.

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
    """Add an observation to a model's sums, and update inverse and estimate by rank one.

    ``A⁻¹`` becomes ``A⁻¹ − c cᵀ / (1 + xᵀc)`` with ``c = A⁻¹x``. This loses as many digits as
    ``xᵀc`` has, and errors grow where the matrix is badly conditioned. So the rank-one update is
    skipped where ``xᵀc ≥ most_leverage`` or ``trace(A)·trace(A⁻¹) ≥ most_condition``. Returns
    whether it was done; if not, the caller must compute inverse and estimate from the sums.
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
def observe_many(
    gram: FloatArray,
    moment: FloatArray,
    energy: FloatArray,
    counts: Ids,
    inverse: FloatArray,
    theta: FloatArray,
    rows: Ids,
    contexts: FloatArray,
    rewards: FloatArray,
    start: int,
    most_leverage: float,
    most_condition: float,
    refresh: int,
) -> int:
    """Add observations to the models `rows`, from number `start` on, by rank-one updates.

    The first six arguments are those of `ModelArrays`. Stops at the first observation that
    `observe` cannot follow, and at every `refresh`-th observation of a model. Returns the number of
    that observation, which is already part of the sums, or ``len(rows)`` if all were added.
    """
    for i in range(start, len(rows)):
        row = rows[i]
        energy[row] += rewards[i] * rewards[i]
        counts[row] += 1
        most = most_leverage if counts[row] % refresh else 0.0
        if not observe(
            gram[row], moment[row], inverse[row], theta[row],
            contexts[i], rewards[i], most, most_condition,
        ):  # fmt: skip
            return i
    return len(rows)
