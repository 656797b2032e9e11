"""The law of a reward, given what its context is expected to be worth (docs/theory.md §10.3).

A taste gives every context a *level* ``m = zᵀθ``. A real reward is the level plus normal noise. A
reward of 0 or 1 is a click with the chance ``1/(1 + exp(−m))``. Either way a reward acts on a taste
as an observation of its level, with a *weight* (an inverse variance) and a *response* (the level
that it suggests): a click's are those of its log likelihood, expanded to second order.
"""

from __future__ import annotations

import math

from dyclu.kernels.compiling import compiled
from dyclu.kernels.memory import RESPONSE, REWARD, WEIGHT
from dyclu.validation import FloatArray

LOG_TAU = math.log(2.0 * math.pi)

BLUR = math.pi / 8.0
"""How much the variance of a level flattens the chance of a click (MacKay 1992)."""

LEAST_CURVATURE = 1e-3
"""Least weight of a click, where it is almost certain to come, or not to come."""

OUTLYING = 3.0
"""Deviations from which on a reward that is not 0 or 1 counts with less weight."""


@compiled
def log_normal(error: float, variance: float) -> float:
    """Return the log density of a normal error."""
    return -0.5 * (error * error / variance + math.log(variance) + LOG_TAU)


@compiled
def log_add(a: float, b: float) -> float:
    """Return ``log(exp(a) + exp(b))``."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a))


@compiled
def logistic(level: float) -> float:
    """Return ``1/(1 + exp(−m))``."""
    if level >= 0.0:
        return 1.0 / (1.0 + math.exp(-level))
    part = math.exp(level)
    return part / (1.0 + part)


@compiled
def click_chance(level: float, variance: float) -> float:
    """Return the chance of a click whose level is normal: its mean over the level, approximately.

    >>> round(click_chance(1.0, 0.0), 3), round(click_chance(1.0, 4.0), 3)
    (0.731, 0.651)
    """
    return logistic(level / math.sqrt(1.0 + BLUR * variance))


@compiled
def log_density(
    y: float, level: float, variance: float, noise: float, stray: float, binary: bool
) -> float:
    """Return the log density of a reward whose level has this mean and variance.

    `noise` is the variance of the noise of a real reward, `stray` the log density of a stray.
    """
    if not binary:
        return log_add(log_normal(y - level, variance + noise), stray)
    m = level / math.sqrt(1.0 + BLUR * variance)
    return min(max(y, 0.0), 1.0) * m - log_add(0.0, m)


@compiled
def linearise(y: float, level: float, variance: float) -> tuple[float, float]:
    """Return weight and response of a click, expanded around an expected level.

    The log likelihood ``ym − log(1 + exp m)`` has the slope ``y − p`` and the curvature
    ``p(1 − p)``; both are averaged over the level.
    """
    flat = 1.0 / math.sqrt(1.0 + BLUR * variance)
    chance = logistic(level * flat)
    weight = max(flat * chance * (1.0 - chance), LEAST_CURVATURE)
    return weight, level + (min(max(y, 0.0), 1.0) - chance) / weight


@compiled
def raised_chance(chance: float, raise_by: float) -> float:
    """Return a chance whose level is raised: its odds are multiplied by ``exp(raise_by)``.

    >>> round(raised_chance(0.5, math.log(3.0)), 9)
    0.75
    """
    odds = chance * math.exp(min(raise_by, 60.0))
    return odds / (1.0 - chance + odds)


@compiled
def misfit(clicks: FloatArray, theta: FloatArray) -> float:
    """Return by how much the log likelihood of clicks at a taste exceeds that of their expansions.

    `clicks` are rows of a memory. With it, an evidence that was computed from the expansions has
    the right height at `theta`, which should be its mode; the curvature stays that of the
    expansions.
    """
    d, total = len(theta) - 1, 0.0
    for t in range(len(clicks)):
        level = theta[d]
        for i in range(d):
            level += theta[i] * clicks[t, i]
        error = level - clicks[t, d + RESPONSE]
        y = min(max(clicks[t, d + REWARD], 0.0), 1.0)
        total += y * level - log_add(0.0, level) + 0.5 * clicks[t, d + WEIGHT] * error * error
    return total


@compiled
def normalise(logs: FloatArray) -> float:
    """Overwrite log weights by probabilities; return the log of the sum of the weights."""
    most: float = logs.max()
    total = 0.0
    for i in range(len(logs)):
        logs[i] = math.exp(logs[i] - most)
        total += logs[i]
    for i in range(len(logs)):
        logs[i] /= total
    return most + math.log(total)


@compiled
def observe(
    y: float, level: float, spread: float, noise: float, binary: bool
) -> tuple[float, float]:
    """Return weight and response of a reward whose level has this mean and this variance.

    A real reward that is more than 3 deviations from the level is an outlier: its weight falls with
    the square of the error, so that the weighted square of any error is bounded.
    """
    if binary:
        return linearise(y, level, spread)
    square, most = (y - level) ** 2, OUTLYING * OUTLYING * (noise + spread)
    return (1.0 if square <= most else most / square), y
