"""Atlas: one reward of a located user, from belief to the model's sums.

These kernels are replaced when Atlas's inference is redesigned; see docs/theory.md §10.
"""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.linalg import add_outer, dot, times
from dyclu.validation import FloatArray

SURPRISE, SUSPECT, DOUBT, REFRESH, COMPARE, RECONSIDER = 1, 2, 4, 8, 16, 32
"""Actions that a reward of a located user asks for, as a bit mask: the reward is a stray; the user
is probably, or maybe, on another model; the model's inverse must be computed afresh; the model must
be compared with the others; the caller must check whether the user belongs to the model."""

TALLY = ("count", "evidence", "checked", "updates", "visited", "entry")
COUNT, EVIDENCE, CHECKED, UPDATES, VISITED, ENTERING = range(6)
"""Columns of `tally`, one row per model."""

NOISE, SPREAD, HAZARD, FLOOR, CLOCK = range(5)
"""Entries of `surroundings`: variance of the noise, prior variance of a parameter's entries, chance
of a change per reward, density of a stray, and time."""

WAITING, CREDITED, DUE, SCORE = range(4)
"""Columns of `ledger` where the numbers of one user begin."""

STALE = 1024
"""Rank-one updates in a row before an inverse is computed afresh, so that rounding stays small."""


def ledger(dim: int, lag: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the columns of `ledger`, one row per user, in their order."""
    parts = {"waiting": (), "credited": (), "due": (), "score": (dim,)}
    return parts | {"rewards": (lag,), "contexts": (lag, dim)}


@compiled
def zero_tiny(vector: FloatArray, smallest: float) -> float:
    """Set entries below `smallest` to 0, in place; return the squared length of the vector."""
    for i in range(len(vector)):
        if abs(vector[i]) < smallest:
            vector[i] = 0.0
    return dot(vector, vector)


@compiled
def density(error: float, variance: float) -> float:
    """Return the Gaussian density up to 1/√2π."""
    return math.exp(-0.5 * error * error / variance) / math.sqrt(variance)


@compiled
def clipped_error(error: float, variance: float, floor: float) -> float:
    """Return the error, clipped to the size at which its density equals that of a stray.

    A rare reward must not decide alone, but it must count: where rewards are mostly 0 and seldom 1,
    the ones carry all the information.
    """
    if density(error, variance) >= floor:
        return error
    most = max(-2.0 * variance * math.log(floor * math.sqrt(variance)), 0.0)
    return math.copysign(math.sqrt(most), error)


@compiled
def add_observations(
    contexts: FloatArray, rewards: FloatArray, gram: FloatArray, moment: FloatArray
) -> None:
    """Add observations to the sums `gram` and `moment`, in their order."""
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
    noise_variance: float,
    prior_variance: float,
    hazard: float,
    floor: float,
) -> tuple[float, float]:
    """Update a belief over models by one reward; return error and leverage under model `home`.

    The leverage under another model is approximated by that of `home`, scaled by the ratio of their
    counts. Model 0 is empty and has the variance of the prior.
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
            variance = noise_variance + prior_variance * length
        else:
            variance = noise_variance * (1.0 + leverage * held / max(count[k], 1.0))
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
    noise_variance: float,
    floor: float,
) -> None:
    """Add an observation to a model by rank one, and its clipped error times `x` to `score`."""
    column = np.empty(len(context))
    times(inverse, context, column)
    grown = 1.0 + max(dot(context, column), 0.0)
    expected = dot(theta, context)
    error = clipped_error(reward - expected, noise_variance * grown, floor)
    add_outer(gram, context, 1.0)
    add_outer(inverse, column, -1.0 / grown)
    for i in range(len(context)):
        moment[i] += (expected + error) * context[i]
        score[i] += error * context[i]
        theta[i] += error / grown * column[i]


@compiled
def update_located(
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
    """Learn from a reward of a located user.

    Updates the belief (`follow`), stores the observation, and credits the oldest stored one to the
    user's model (`credit`) unless that model is no longer the most likely one. The first five
    arrays hold one row per model, `ledger` one per user; `row` is the user's and `home` their
    model's. With `sure`, the belief is reset to `home` first.

    Returns error and leverage under `home`, and the actions to take now as a bit mask.
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
    actions = SURPRISE if density(error, noise * (1.0 + leverage)) < floor else 0
    if belief[home] < 0.5:
        return error, leverage, actions + SUSPECT
    if 1.0 - belief[home] > 2.0 * hazard:
        actions += DOUBT
    if last + 1 < lag:
        return error, leverage, actions
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
        actions += REFRESH
    if model[COUNT] >= 2.0 * model[CHECKED]:
        actions += COMPARE
    for place in range(last):
        contexts[place] = contexts[place + 1]
        rewards[place] = rewards[place + 1]
    user[WAITING] = last
    if user[CREDITED] >= user[DUE]:
        actions += RECONSIDER
    return error, leverage, actions
