"""Turns: who comes by, what may be chosen and what it would bring; and who serves them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.timing import Step
from dyclu.policies.common.batches import BatchPolicy
from dyclu.policy import Policy
from dyclu.sim.worlds.population import Round
from dyclu.validation import FloatArray, Ids

SLICES = 6
"""Parts in which contestants serve the turns, one contestant after the other."""


class Turn(NamedTuple):
    """One visit: the user, the arms (K, d) and the reward of each (K,)."""

    user: int
    arms: FloatArray
    rewards: FloatArray


class Block(NamedTuple):
    """Many visits at once: users (n,), arms (n, K, d), rewards (n, K)."""

    users: list[int]
    arms: FloatArray
    rewards: FloatArray


def turn(visit: Round) -> Turn:
    """Return a simulated visit with all its rewards drawn."""
    return Turn(visit.user, visit.arms, visit.means + visit.noise)


def block(turns: Sequence[Turn]) -> Block:
    """Return turns stacked.

    >>> block([Turn(3, np.eye(2), np.ones(2)), Turn(4, np.eye(2), np.ones(2))]).arms.shape
    (2, 2, 2)
    """
    users, arms, rewards = zip(*turns, strict=True)
    return Block(list(users), np.array(arms), np.array(rewards))


def slices(turns: Sequence[Turn]) -> list[Sequence[Turn]]:
    """Return the turns in `SLICES` parts of equal length, a remainder left out."""
    size = len(turns) // SLICES
    return [turns[i * size : (i + 1) * size] for i in range(SLICES)]


def steps(policy: Policy, turns: Sequence[Turn]) -> list[Step]:
    """Return what it takes to let a policy serve the turns, in slices."""
    return [partial(serve, policy, part) for part in slices(turns)]


def block_steps(policy: BatchPolicy, turns: Sequence[Turn], size: int) -> list[Step]:
    """Return the same with the turns in blocks."""
    return [partial(serve_blocks, policy, _blocks(part, size)) for part in slices(turns)]


def serve(policy: Policy, turns: Sequence[Turn]) -> list[int]:
    """Let a policy choose and learn, turn by turn, and return what it chose."""
    chosen = []
    for user, arms, rewards in turns:
        arm = policy.decide(user, arms).arm
        policy.learn(user, arms[arm], rewards[arm])
        chosen.append(arm)
    return chosen


def serve_blocks(policy: BatchPolicy, blocks: Sequence[Block]) -> list[Ids]:
    """Let a policy choose for a block and learn from it, block by block."""
    chosen = []
    for users, arms, rewards in blocks:
        arm, each = policy.decide_many(users, arms).arm, np.arange(len(users))
        policy.learn_many(users, arms[each, arm], rewards[each, arm])
        chosen.append(arm)
    return chosen


def _blocks(turns: Sequence[Turn], size: int) -> list[Block]:
    return [block(turns[i : i + size]) for i in range(0, len(turns), size)]
