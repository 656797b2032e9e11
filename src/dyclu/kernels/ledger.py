"""Columns of a user's row, a segment's sums and the stream; belief, noise and memory of a user."""

from __future__ import annotations

from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import OUTLYING
from dyclu.kernels.memory import CREDIT, DENSITY, RESPONSE, REWARD, WEIGHT
from dyclu.validation import FloatArray, Ids

IN_DOUBT, LOCATED = 0, 1
"""Values of a user's status."""

PLACES = 8
"""Most models that a belief can name; the others count as impossible."""

(
    STATUS, HOME, BEFORE, UNIT, SEAT, POOL, SLOT, LENGTH, SINCE, REWARDS, HOLDING, NOISE_SUM,
    NOISE_WEIGHT, SUSPECT, SUSPICION, LIKELY,
) = range(16)  # fmt: skip
"""Columns of `ledger` where the parts of a user's row begin."""

CHANCE = LIKELY + PLACES

WIDTH = CHANCE + PLACES
"""Where the probabilities of the belief begin, and how many columns there are."""

HELD, ENERGY, SCALE, RATIO = range(4)
"""Columns of a segment's `sums`: number of rewards; Σ w y²; the inverse noise variance that models
hold it with; its noise variance in units of the population's."""

NOISE, HAZARD, STRAY, BINARY, CLOCK, RATIO_PRIOR, RATIO_MEAN, FOLLOWED, NEWNESS = range(9)
"""Entries of `stream`: noise variance, 1 where rewards are 0 or 1; chance of a change per reward;
log density of a stray; 1 where rewards are 0 or 1; time; the prior of the users' noise ratios: how
many rewards it counts as, 0 if all users have the same noise, and its mean; rewards of located
users; and the log of how likely a taste never met is, by one that is known."""

TINY_SHARE = 1e-3
"""Probability below which a model is dropped from a belief."""


def ledger_parts() -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the columns of `ledger`, one row per user, in their order."""
    single = (
        "status", "home", "before", "unit", "seat", "pool", "slot", "length", "since", "rewards",
        "holding", "noise_sum", "noise_weight", "suspect", "suspicion",
    )  # fmt: skip
    return dict.fromkeys(single, ()) | {"likely": (PLACES,), "chance": (PLACES,)}


@compiled
def user_variance(user: FloatArray, stream: FloatArray) -> float:
    """Return the noise variance of a user's rewards (docs/theory.md §10.4)."""
    prior, noise = stream[RATIO_PRIOR], float(stream[NOISE])
    if prior == 0.0:
        return noise
    ratio = (prior + user[NOISE_SUM] / stream[RATIO_MEAN]) / (prior + user[NOISE_WEIGHT])
    return noise * float(ratio)


@compiled
def note_noise(
    user: FloatArray, error: float, spread: float, variance: float, noise: float
) -> None:
    """Count a prediction's error for the user's own noise.

    The error has the variance ``σ_u² + q``, where ``q = spread`` is the variance of the prediction;
    it tells of the noise as far as the noise dominates.
    """
    total = variance + spread
    weight = variance / total
    square = min(error * error / total, OUTLYING * OUTLYING)
    user[NOISE_SUM] += weight * square * variance / noise
    user[NOISE_WEIGHT] += weight


@compiled
def load_belief(user: FloatArray, out: FloatArray) -> None:
    """Set `out` to the user's belief, one probability per row of the models."""
    out[:] = 0.0
    for i in range(PLACES):
        if user[CHANCE + i] > 0.0:
            out[int(user[LIKELY + i])] += user[CHANCE + i]


@compiled
def store_belief(user: FloatArray, rows: Ids, chance: FloatArray) -> None:
    """Store the largest probabilities, rescaled to sum 1; ``chance[q]`` is that of ``rows[q]``."""
    left, total = chance.copy(), 0.0
    for i in range(PLACES):
        q = left.argmax()
        kept = left[q] if left[q] >= TINY_SHARE else 0.0
        user[LIKELY + i], user[CHANCE + i] = rows[q], kept
        left[q] = 0.0
        total += kept
    for i in range(PLACES):
        user[CHANCE + i] /= total


@compiled
def remember(
    user: FloatArray,
    block: FloatArray,
    x: FloatArray,
    y: float,
    response: float,
    w: float,
    log: float,
    credit: float,
) -> None:
    """Append a reward to the user's memory; a full memory loses its oldest one."""
    d, last = len(x), int(user[LENGTH])
    if last == len(block):
        last -= 1
        for t in range(last):
            block[t] = block[t + 1]
    block[last, :d] = x
    block[last, d + REWARD], block[last, d + RESPONSE], block[last, d + WEIGHT] = y, response, w
    block[last, d + DENSITY], block[last, d + CREDIT] = log, credit
    user[LENGTH] = last + 1


@compiled
def remembered_clicks(user: FloatArray, block: FloatArray, stream: FloatArray) -> FloatArray:
    """Return the clicks in a user's memory; none where rewards are real."""
    return block[: int(user[LENGTH]) if stream[BINARY] == 1.0 else 0]
