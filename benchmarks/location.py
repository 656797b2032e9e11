"""How many rewards it takes Atlas to find out where somebody is, in a large population."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.results import Effort, Results, Row, Target
from dyclu import Atlas
from dyclu.policy import Ids
from dyclu.sim import paper
from dyclu.sim.population import Population, Round, World
from dyclu.sim.terminal import bar, progress_bars
from dyclu.validation import FloatArray

USERS, ROUNDS, WAVE = 10_000, 60, 1_000
QUICK_USERS, QUICK_ROUNDS, QUICK_WAVE = 60, 30, 20
REPORT_EVERY = 1_000
MOST = 5.0
"""Rewards until the median user is located on the right model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the users of a world came to be.

    Attributes
    ----------
    rewards : array of shape (users,)
        How many rewards of theirs it took to locate them on the right model; infinite if never.
    right, located : bool arrays of shape (users,)
        Whether they are on the right model at the end, and whether on any.
    """

    rewards: FloatArray
    right: Ids
    located: Ids


def run(effort: Effort) -> Results:
    """Let a large population arrive all at once, and in waves."""
    users, rounds = (QUICK_USERS, QUICK_ROUNDS) if effort.quick else (USERS, ROUNDS)
    wave = QUICK_WAVE if effort.quick else WAVE
    world = population(users, rounds).world(seed=0)
    ways = {f"in waves of {wave:,}": wave, "all at once": users}
    found = {name: locate(world, size) for name, size in ways.items()}
    rows = tuple(row for name, each in found.items() for row in _rows(name, each, wave, rounds))
    return Results(
        title=f"Rewards until located, {users:,} users of 10 tastes, {rounds} rounds each",
        rows=rows,
        targets=(
            Target(name=rows[0].name, value=rows[0].median, sense="at most", limit=MOST, unit=""),
        ),
        notes=(
            f"Atlas, noise told. Users but the first {wave:,}; who never gets there counts as "
            f"{rounds + 1}. The right model is that whose estimate is closest to the user's taste.",
        ),
    )


def population(users: int, rounds: int) -> Population:
    """Return a population in which nobody changes."""
    return Population(users=users, rounds=rounds, shortest=paper.NEVER, longest=paper.NEVER)


def waves(world: World, size: int) -> Iterator[Round]:
    """Yield the rounds of so many users at a time, each wave with all of its rounds."""
    starts = range(0, world.setting.users, size)
    for start, pools, noises in zip(
        starts, world.pools.spawn(len(starts)), world.noises.spawn(len(starts)), strict=True
    ):
        truth = world.truth[start : start + size]
        setting = replace(world.setting, users=len(truth))
        for turn in replace(world, setting=setting, truth=truth, pools=pools, noises=noises):
            yield replace(turn, user=turn.user + start)


def locate(world: World, size: int) -> Found:
    """Play a world in waves, and note when each user is located."""
    policy = Atlas(world.setting.dim, noise=world.setting.noise)
    rewards = np.full(world.setting.users, np.inf)
    with progress_bars() as progress:
        tell = bar(progress, f"waves of {size:,}", len(world))
        for count, turn in enumerate(waves(world, size)):
            arm = policy.decide(turn.user, turn.arms).arm
            policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
            if np.isinf(rewards[turn.user]) and is_right(policy, world, turn.user):
                rewards[turn.user] = turn.time + 1
            if count % REPORT_EVERY == 0:
                tell(count)
    everybody = range(world.setting.users)
    return Found(
        rewards=rewards,
        right=np.array([is_right(policy, world, user) for user in everybody]),
        located=np.array([policy.locate(user).located for user in everybody]),
    )


def is_right(policy: Atlas, world: World, user: int) -> bool:
    """Tell whether a user is located on the model closest to their taste."""
    where = policy.locate(user)
    if not where.located:
        return False
    estimate = next(model.estimate for model in policy.models if model.id == where.model)
    distances = np.linalg.norm(world.parameters - estimate, axis=1)
    return bool(distances.argmin() == world.truth[user, 0])


def _rows(name: str, found: Found, first: int, rounds: int) -> Iterator[Row]:
    later = slice(first, None)
    rewards = np.minimum(found.rewards[later], rounds + 1)
    for label, share in (("median", 0.5), ("nine in ten", 0.9)):
        quantile = float(np.quantile(rewards, share))
        yield Row(name=f"{name}: {label}", unit="rewards", values=(quantile,))
    for label, chosen in (("on the right model", found.right), ("located", found.located)):
        percent = 100.0 * float(np.mean(chosen[later]))
        yield Row(name=f"{name}: {label} at the end", unit="%", values=(percent,))
