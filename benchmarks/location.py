"""``python -m benchmarks.location``: how many rewards Atlas needs to locate a user.

The users have ten tastes and do not change. They arrive in waves of a thousand, or of another size;
with ``--wave 10000`` all arrive at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dyclu import Atlas
from dyclu.sim.reports.document import Table
from dyclu.sim.reports.terminal import bar, print_table, progress_bars
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population, World
from dyclu.sim.worlds.rounds import Round
from dyclu.validation import FloatArray, Ids

USERS, ROUNDS, WAVE = 10_000, 60, 1_000
REPORT_EVERY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How the users of a world were located.

    Attributes
    ----------
    rewards : array of shape (users,)
        Number of rewards until the user was located on the right model; infinite if never.
    right, located : bool arrays of shape (users,)
        Whether the user is on the right model at the end, and whether on any model.
    """

    rewards: FloatArray
    right: Ids
    located: Ids


def main(arguments: Sequence[str]) -> None:
    """Print the results of the users after the first wave."""
    asked = _parser().parse_args(arguments)
    world = population(asked.users, ROUNDS).world(seed=0)
    found = locate(world, asked.wave)
    first = min(WAVE, asked.users // 2)
    print_table(table(found, first, f"{asked.users:,} users in waves of {asked.wave:,}"))


def table(found: Found, first: int, title: str) -> Table:
    """Return the results of all but the first users as a table."""
    rewards = np.minimum(found.rewards[first:], ROUNDS + 1)
    tenth, median, nine = (f"{value:.0f}" for value in np.quantile(rewards, (0.1, 0.5, 0.9)))
    shares = {"right": found.right[first:], "located": found.located[first:]}
    right, located = (f"{100 * np.mean(share):.1f} %" for share in shares.values())
    return Table(
        header=(title, ""),
        rows=(
            ("rewards until located on the right model, median", median),
            ("one in ten, nine in ten", f"{tenth}, {nine}"),
            ("on the right model at the end", right),
            ("located at the end", located),
        ),
        note=f"{ROUNDS} rounds each, noise told. Without the first {first:,} users; never "
        f"counts as {ROUNDS + 1}. The right model is the one with the closest estimate.",
    )


def population(users: int, rounds: int) -> Population:
    """Return a population in which no user changes."""
    return Population(users=users, rounds=rounds, shortest=paper.NEVER, longest=paper.NEVER)


def waves(world: World, size: int) -> Iterator[Round]:
    """Yield the rounds wave by wave: all rounds of the first `size` users, then of the next."""
    starts = range(0, world.setting.users, size)
    for start, pools, noises in zip(
        starts, world.pools.spawn(len(starts)), world.noises.spawn(len(starts)), strict=True
    ):
        truth = world.truth[start : start + size]
        setting = replace(world.setting, users=len(truth))
        for turn in replace(world, setting=setting, truth=truth, pools=pools, noises=noises):
            yield replace(turn, user=turn.user + start)


def locate(world: World, size: int) -> Found:
    """Play a world in waves, and record when each user is located."""
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
    all_users = range(world.setting.users)
    return Found(
        rewards=rewards,
        right=np.array([is_right(policy, world, user) for user in all_users]),
        located=np.array([policy.locate(user).located for user in all_users]),
    )


def is_right(policy: Atlas, world: World, user: int) -> bool:
    """Return whether a user is located on the model closest to their taste."""
    where = policy.locate(user)
    if not where.located:
        return False
    estimate = next(model.estimate for model in policy.models if model.id == where.model)
    distances = np.linalg.norm(world.parameters - estimate, axis=1)
    return bool(distances.argmin() == world.truth[user, 0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.location", description=__doc__)
    parser.add_argument("--users", type=int, default=USERS, help="how many there are")
    parser.add_argument("--wave", type=int, default=WAVE, help="how many arrive at a time")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
