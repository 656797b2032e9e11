"""Turns (user, arms, rewards), and functions that let a policy serve them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.timing import Step
from dyclu.policies.common.batches import BatchPolicy
from dyclu.policy import Policy
from dyclu.sim.worlds.rounds import Round
from dyclu.validation import FloatArray, Ids

SLICES = 6
"""Number of slices; contestants serve a slice in turn before the next slice begins."""


class Turn(NamedTuple):
    """One round: the user, the arms (K, d) and the reward of each (K,)."""

    user: int
    arms: FloatArray
    rewards: FloatArray


class Block(NamedTuple):
    """Many rounds at once: users (n,), arms (n, K, d), rewards (n, K)."""

    users: list[int]
    arms: FloatArray
    rewards: FloatArray


def turn(visit: Round) -> Turn:
    """Return a simulated round with the rewards of all arms."""
    return Turn(visit.user, visit.arms, visit.means + visit.noise)


def block(turns: Sequence[Turn]) -> Block:
    """Return turns as stacked arrays.

    >>> block([Turn(3, np.eye(2), np.ones(2)), Turn(4, np.eye(2), np.ones(2))]).arms.shape
    (2, 2, 2)
    """
    users, arms, rewards = zip(*turns, strict=True)
    return Block(list(users), np.array(arms), np.array(rewards))


def slices(turns: Sequence[Turn]) -> list[Sequence[Turn]]:
    """Return the turns in `SLICES` slices of equal length; a remainder is left out."""
    size = len(turns) // SLICES
    return [turns[i * size : (i + 1) * size] for i in range(SLICES)]


def steps(policy: Policy, turns: Sequence[Turn]) -> list[Step]:
    """Return the steps that let a policy serve the turns, one per slice."""
    return [partial(serve, policy, part) for part in slices(turns)]


def block_steps(policy: BatchPolicy, turns: Sequence[Turn], size: int) -> list[Step]:
    """Return the same steps, with `decide_many` and `learn_many` on blocks of turns."""
    return [partial(serve_blocks, policy, _blocks(part, size)) for part in slices(turns)]


def serve(policy: Policy, turns: Sequence[Turn]) -> list[int]:
    """Let a policy choose and learn, turn by turn; return the chosen arms."""
    chosen = []
    for user, arms, rewards in turns:
        arm = policy.decide(user, arms).arm
        policy.learn(user, arms[arm], rewards[arm])
        chosen.append(arm)
    return chosen


def serve_blocks(policy: BatchPolicy, blocks: Sequence[Block]) -> list[Ids]:
    """Let a policy choose and learn, block by block; return the chosen arms."""
    chosen = []
    for users, arms, rewards in blocks:
        arm, each = policy.decide_many(users, arms).arm, np.arange(len(users))
        policy.learn_many(users, arms[each, arm], rewards[each, arm])
        chosen.append(arm)
    return chosen


def _blocks(turns: Sequence[Turn], size: int) -> list[Block]:
    return [block(turns[i : i + size]) for i in range(0, len(turns), size)]
