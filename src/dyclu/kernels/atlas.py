"""Atlas: what one reward does to a user and to the models (docs/theory.md §10.3 and §10.5)."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import linearise, log_add, log_density, normalise, observe
from dyclu.kernels.ledger import (
    BINARY,
    CHANCE,
    CLOCK,
    ENERGY,
    FOLLOWED,
    HAZARD,
    HELD,
    HOME,
    LENGTH,
    LIKELY,
    LOCATED,
    NEWNESS,
    NOISE,
    PLACES,
    RATIO,
    SCALE,
    SEAT,
    STATUS,
    STRAY,
    SUSPECT,
    SUSPICION,
    load_belief,
    note_noise,
    remember,
    remembered_clicks,
    store_belief,
    user_variance,
)
from dyclu.kernels.linalg import add_outer, dot, extended, times
from dyclu.kernels.memory import DENSITY, REMEMBERED, REWARD, WEIGHT
from dyclu.kernels.tastes import (
    COUNT,
    EVIDENCE,
    SLACK,
    VISITED,
    contribute,
    estimate_without,
    refresh_stale,
    weigh,
)
from dyclu.validation import FloatArray, Ids

SURPRISING = 4.0
"""Squared deviations of a reward after which a located user is reviewed at once."""

OLDEST = 1e-4
"""Least weight of a context in the mean over contexts."""

DOUBT = 0.5
"""Belief in the home model below which a located user is reviewed."""


@compiled
def share_out(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    user: FloatArray,
    sign: float,
    sums: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
) -> None:
    """Add a segment to the models by its user's belief, or take it out with ``sign = -1``."""
    for i in range(PLACES):
        contribute(
            precision, shift, tally, int(user[LIKELY + i]), sign * user[CHANCE + i], sums[SCALE],
            gram, moment, sums[HELD],
        )  # fmt: skip


@compiled
def record(
    totals: FloatArray,
    contexts: FloatArray,
    x: FloatArray,
    y: float,
    smallest: float,
    largest: float,
    settled: float,
    most_reward: float,
    most: float,
) -> None:
    """Add a reward and its context to the stream's statistics, none with more than a given size.

    `contexts` is the mean of ``zzᵀ``, in the long run over the last ``1/OLDEST`` contexts.
    `totals` are the number of rewards, Σ y, Σ y², Σ ‖x‖², how many were neither 0 nor 1, and Σ y
    with every reward moved into [0, 1]. A reward and a length count as at most `most_reward` and
    `most`; after `settled` rewards, squares count as at most `largest` times their mean. Features
    below `smallest` are set to 0 in `x`.
    """
    for i in range(len(x)):
        if abs(x[i]) < smallest:
            x[i] = 0.0
    z = extended(x)
    length = dot(x, x)
    if totals[0] >= settled:
        most_reward = math.sqrt(largest * totals[2] / totals[0])
        most = largest * totals[3] / totals[0]
    if most_reward == 0.0:
        most_reward = math.inf
    if length > most > 0.0:
        factor = math.sqrt(most / length)
        for i in range(len(x)):
            z[i] *= factor
        length = most
    small = y
    if y not in (0.0, 1.0):
        totals[4] += 1.0
        small = min(max(y, -most_reward), most_reward)
    totals[0] += 1.0
    part = max(1.0 / totals[0], OLDEST)
    for i in range(len(z)):
        for j in range(len(z)):
            contexts[i, j] += part * (z[i] * z[j] - contexts[i, j])
    totals[1] += small
    totals[5] += min(max(y, 0.0), 1.0)
    totals[2] += small * small
    totals[3] += length


@compiled
def add_to_segment(
    gram: FloatArray, moment: FloatArray, sums: FloatArray, x: FloatArray, response: float, w: float
) -> None:
    """Add one observation of weight `w` to a segment's sums."""
    z = extended(x)
    add_outer(gram, z, w)
    for i in range(len(z)):
        moment[i] += w * response * z[i]
    sums[HELD] += 1.0
    sums[ENERGY] += w * response * response


@compiled
def seat_reward(
    gram: FloatArray,
    moment: FloatArray,
    sums: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
) -> None:
    """Add the last reward of a user's memory to their segment on the panel.

    The panel's sums are those of least squares: a click counts as it is, with the weight 1.
    """
    seat, d, last = int(user[SEAT]), block.shape[1] - REMEMBERED, block[int(user[LENGTH]) - 1]
    w = 1.0 if stream[BINARY] == 1.0 else last[d + WEIGHT]
    add_to_segment(gram[seat], moment[seat], sums[seat], last[:d], last[d + REWARD], w)
    sums[seat, RATIO] = user_variance(user, stream) / stream[NOISE]


@compiled
def sum_memory(
    block: FloatArray,
    first: int,
    length: int,
    value: int,
    weight: int,
    gram: FloatArray,
    moment: FloatArray,
) -> float:
    """Add the memory's rewards from `first` on to sums ``Σ w zzᵀ`` and ``Σ w zy``; return Σ w y².

    `value` and `weight` are the columns of the memory with `y` and `w`; -1 gives all the weight 1.
    """
    d, energy = len(moment) - 1, 0.0
    for t in range(first, length):
        z, y = extended(block[t, :d]), block[t, d + value]
        w = 1.0 if weight < 0 else block[t, d + weight]
        add_outer(gram, z, w)
        for i in range(d + 1):
            moment[i] += w * y * z[i]
        energy += w * y * y
    return energy


@compiled
def learn_in_doubt(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    sums: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
    x: FloatArray,
    y: float,
) -> bool:
    """Learn from a reward of a user in doubt; return whether no model had expected it.

    The segment leaves the models, its belief is computed from the evidence of all its rewards, and
    it joins them again with the new reward and the new belief.
    """
    z, n = extended(x), len(rows)
    own = np.empty(rows[-1] + 1)
    load_belief(user, own)
    own[0] = 0.0
    evidence, mean, variance = np.empty(n), np.empty(n), np.empty(n)
    weigh(
        precision, shift, tally, rows, prior_precision, prior_shift, gram, moment, sums[SCALE], own,
        z, remembered_clicks(user, block, stream), stream[NEWNESS], evidence, np.empty(n), mean,
        variance,
    )  # fmt: skip
    noise, binary = user_variance(user, stream), stream[BINARY] == 1.0
    before, after = evidence.copy(), evidence
    normalise(before)
    expected, spread = 0.0, 0.0
    for q in range(n):
        expected += before[q] * mean[q]
        spread += before[q] * (variance[q] + mean[q] * mean[q])
    spread = max(spread - expected * expected, 0.0)
    density = -math.inf
    for q in range(n):
        log = log_density(y, mean[q], variance[q], noise, stream[STRAY], binary)
        after[q] += log
        if before[q] > 0.0:
            density = log_add(math.log(before[q]) + log, density)
    w, response = observe(y, expected, spread, noise, binary)
    if not binary:
        note_noise(user, y - expected, spread, noise, stream[NOISE])
    share_out(precision, shift, tally, user, -1.0, sums, gram, moment)
    add_to_segment(gram, moment, sums, x, response, w)
    sums[RATIO] = user_variance(user, stream) / stream[NOISE]
    sums[SCALE] = 1.0 / (sums[RATIO] * stream[NOISE])
    normalise(after)
    store_belief(user, rows, after)
    share_out(precision, shift, tally, user, 1.0, sums, gram, moment)
    remember(user, block, x, y, response, w, density, 0.0)
    return not binary and w < 1.0


@compiled
def place(
    precision: FloatArray,
    shift: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    sums: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
    banned: int,
    evidence: FloatArray,
    misfits: FloatArray,
) -> None:
    """Compute a segment's belief anew, by the models as they are now; no reward is learnt.

    A model `banned` is left out; -1 bans none. `evidence` is set to the log evidence by `rows`, and
    `misfits` to the part of it that corrects the expansion of clicks.
    """
    n = len(rows)
    own, mean, variance = np.empty(rows[-1] + 1), np.empty(n), np.empty(n)
    load_belief(user, own)
    own[0] = 0.0
    weigh(
        precision, shift, tally, rows, prior_precision, prior_shift, gram, moment, sums[SCALE], own,
        np.zeros(len(moment)), remembered_clicks(user, block, stream), stream[NEWNESS], evidence,
        misfits, mean, variance,
    )  # fmt: skip
    chance = evidence.copy()
    for q in range(n):
        if rows[q] == banned:
            chance[q] = -1e300
    normalise(chance)
    share_out(precision, shift, tally, user, -1.0, sums, gram, moment)
    store_belief(user, rows, chance)
    share_out(precision, shift, tally, user, 1.0, sums, gram, moment)


@compiled
def learn_located(
    precision: FloatArray,
    shift: FloatArray,
    covariance: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    contexts: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
    x: FloatArray,
    y: float,
) -> tuple[bool, bool]:
    """Learn from a reward of a located user: one step of a filter, and a rank-one update.

    Returns whether the reward was far from expected, and whether the user must be reviewed.
    """
    z, home, n = extended(x), int(user[HOME]), len(rows)
    refresh_stale(
        precision, shift, covariance, theta, tally, rows, prior_precision, prior_shift, contexts,
        home,
    )  # fmt: skip
    noise, hazard, binary = user_variance(user, stream), stream[HAZARD], stream[BINARY] == 1.0
    belief, chance = np.empty(rows[-1] + 1), np.zeros(n)
    load_belief(user, belief)
    column = np.empty(len(z))
    times(covariance[home], z, column)
    leverage = max(dot(z, column), 0.0)
    expected, spread, level, density, place = 0.0, 0.0, 0.0, 0.0, 0
    for q in range(1, n):
        k = rows[q]
        prior = (1.0 - hazard) * belief[k] + hazard / (n - 1)
        mean = dot(theta[k], z)
        variance = leverage if k == home else tally[k, SLACK]
        expected += prior * mean
        spread += prior * (variance + mean * mean)
        log = log_density(y, mean, variance, noise, stream[STRAY], binary)
        chance[q] = math.log(prior) + log
        if k == home:
            level, density, place = mean, log, q
    chance[0] = -1e300
    normalise(chance)
    if not binary:
        spread = max(spread - expected * expected, 0.0)
        note_noise(user, y - expected, spread, noise, stream[NOISE])
    w, response = observe(y, level, leverage, noise, binary)
    sure = chance[place]
    credit = w * sure / noise
    add_outer(precision[home], z, credit)
    grown = 1.0 + credit * leverage
    add_outer(covariance[home], column, -credit / grown)
    for i in range(len(z)):
        shift[home, i] += credit * response * z[i]
        theta[home, i] += credit * (response - level) / grown * column[i]
    tally[home, COUNT] += sure
    tally[home, EVIDENCE] = np.nan
    tally[home, VISITED] = stream[CLOCK]
    stream[FOLLOWED] += 1.0
    if sure > 1.0 - 2.0 * hazard:
        chance[:] = 0.0
        chance[place] = 1.0
    store_belief(user, rows, chance)
    remember(user, block, x, y, response, w, density, credit)
    surprising = not binary and (y - level) ** 2 > SURPRISING * (noise + leverage)
    return not binary and w < 1.0, surprising or sure < DOUBT


@compiled
def rest_as_new(
    block: FloatArray,
    length: int,
    prior_covariance: FloatArray,
    prior_mean: FloatArray,
    noise: float,
    stray: float,
    binary: bool,
    out: FloatArray,
) -> None:
    """Set ``out[i]`` to the log evidence of the rewards from `i` on under a taste never met.

    Evidence does not depend on the order of rewards, so one backward pass gives all of them.
    """
    p = len(prior_mean)
    d = p - 1
    covariance, mean, column = prior_covariance.copy(), prior_mean.copy(), np.empty(p)
    out[length] = 0.0
    for t in range(length - 1, -1, -1):
        z = extended(block[t, :d])
        times(covariance, z, column)
        variance = max(dot(z, column), 0.0)
        y, level, w = block[t, d + REWARD], dot(z, mean), block[t, d + WEIGHT]
        out[t] = out[t + 1] + log_density(y, level, variance, noise, stray, binary)
        if binary:
            w, y = linearise(y, level, variance)
        total = noise / w + variance
        for i in range(p):
            mean[i] += column[i] * (y - level) / total
        add_outer(covariance, column, -1.0 / total)


@compiled
def rest_as_known(
    block: FloatArray,
    length: int,
    theta: FloatArray,
    tally: FloatArray,
    row: int,
    noise: float,
    stray: float,
    binary: bool,
    out: FloatArray,
) -> None:
    """Set ``out[i]`` to the log density of the rewards from `i` on under the model `row`."""
    d = theta.shape[1] - 1
    out[length] = 0.0
    for t in range(length - 1, -1, -1):
        mean = theta[row, d]
        for i in range(d):
            mean += theta[row, i] * block[t, i]
        log = log_density(block[t, d + REWARD], mean, tally[row, SLACK], noise, stray, binary)
        out[t] = out[t + 1] + log


@compiled
def review(
    theta: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_covariance: FloatArray,
    prior_mean: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
    first: int,
) -> tuple[float, int]:
    """Return the probability that the user has not changed, and the likeliest point of a change.

    Stores the likeliest model after a change, and its probability, in the user's row. `theta` are
    the models' estimates, without a share of the user's own segment.

    A change at `i` means that the memory's rewards from `i` on, ``i ≥ first``, follow another model
    or a taste never met; otherwise they are as likely as was predicted.
    """
    d, length = theta.shape[1] - 1, int(user[LENGTH])
    noise, stray = user_variance(user, stream), stream[STRAY]
    binary = stream[BINARY] == 1.0
    home = int(user[HOME]) if user[STATUS] == LOCATED else -1
    newness = stream[NEWNESS]
    change = math.log(stream[HAZARD] / (len(rows) - 1.0 + math.exp(newness)))
    same, rest, odds = np.empty(length), np.empty(length + 1), np.zeros(length)
    total = 0.0
    for t in range(length - 1, first - 1, -1):
        total += block[t, d + DENSITY]
        same[t] = total
    most, suspect, changed = 0.0, 0, 0.0
    for k in rows:
        if k == home:
            continue
        if k == 0:
            rest_as_new(block, length, prior_covariance, prior_mean, noise, stray, binary, rest)
        else:
            rest_as_known(block, length, theta, tally, k, noise, stray, binary, rest)
        mass, prior = 0.0, change + newness if k == 0 else change
        for t in range(first, length):
            part = math.exp(min(prior + rest[t] - same[t], 600.0))
            odds[t] += part
            mass += part
        changed += mass
        if mass > most:
            most, suspect = mass, k
    user[SUSPECT], user[SUSPICION] = suspect, most / (1.0 + changed)
    return 1.0 / (1.0 + changed), int(odds.argmax())


@compiled
def review_in_doubt(
    precision: FloatArray,
    shift: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_precision: FloatArray,
    prior_shift: FloatArray,
    prior_covariance: FloatArray,
    prior_mean: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    sums: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
    first: int,
) -> tuple[float, int]:
    """Review a user in doubt, by the models without the share that the user has in them."""
    own, others = np.empty(rows[-1] + 1), theta.copy()
    load_belief(user, own)
    estimate_without(
        precision, shift, rows, prior_precision, prior_shift, gram, moment, sums[SCALE], own, others
    )
    return review(others, tally, rows, prior_covariance, prior_mean, user, block, stream, first)
