"""Atlas: which arm a user gets (docs/theory.md §10.7)."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import logistic, raised_chance
from dyclu.kernels.ledger import BINARY, CHANCE, HAZARD, HOME, LIKELY, NOISE, PLACES
from dyclu.kernels.linalg import factorise, times
from dyclu.kernels.ridge import best_arm
from dyclu.kernels.tastes import COUNT, SLACK, UNLIKELY, back_substitute
from dyclu.validation import FloatArray, Ids

FAMILIAR = 8.0
"""Variance of an arm, by the mean over the contexts seen, up to which it will be learnt anyway."""


@compiled
def decide_located(
    theta: FloatArray,
    covariance: FloatArray,
    tally: FloatArray,
    user: FloatArray,
    arms: FloatArray,
    stream: FloatArray,
    alpha: float,
    tie: float,
    estimate: FloatArray,
) -> tuple[int, float, float]:
    """Return index, mean and width of the arm for a located user, as `choose`.

    `estimate` is set to the mean parameter by the user's belief; deviations are those of the home
    model.
    """
    home = int(user[HOME])
    estimate[:] = 0.0
    for i in range(PLACES):
        if user[CHANCE + i] > 0.0:
            row = theta[int(user[LIKELY + i])]
            for j in range(len(estimate)):
                estimate[j] += user[CHANCE + i] * row[j]
    mean, width, binary = np.empty(len(arms)), np.empty(len(arms)), stream[BINARY] == 1.0
    score_located(
        estimate, covariance[home], arms, tally[home, SLACK],
        tally[home, COUNT] + 1.0 / stream[HAZARD], stream[NOISE], binary, alpha, mean, width,
    )  # fmt: skip
    return choose(mean, width, binary, tie)


@compiled
def choose(
    mean: FloatArray, width: FloatArray, binary: bool, tie: float
) -> tuple[int, float, float]:
    """Return index, mean and width of the arm with the largest ``mean + width``.

    `mean` is the expected reward of an arm, and `width` a distance of levels, which is overwritten
    by one of rewards. Of arms within `tie` of the best, the first is chosen.
    """
    if binary:
        for a in range(len(mean)):
            width[a] = raised_chance(mean[a], width[a]) - mean[a]
    return best_arm(mean, width, tie)


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
