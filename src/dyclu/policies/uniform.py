"""Uniform: a random arm. Every other policy must do better."""

from __future__ import annotations

from collections.abc import Hashable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.core.randomness import RandomSource, Seed
from dyclu.policies.common.batches import OneByOne
from dyclu.policies.common.plain import WithoutUsers
from dyclu.policy import Decision, Outcome, described
from dyclu.storage import Saved, write
from dyclu.validation import as_arms, as_context, as_dim, as_reward, as_user


class Uniform(OneByOne, WithoutUsers):
    """Chooses uniformly at random and learns nothing.

    Of arms with the same features it names the first.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    seed : int, SeedSequence or Generator
        Source of the random choices.

    Examples
    --------
    >>> Uniform(2, seed=1).decide("ana", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Decision(user='ana', arm=1, mean=0.0, width=0.0)
    """

    def __init__(self, dim: int, *, seed: Seed = 0) -> None:
        self.dim = as_dim(dim)
        self._random = RandomSource.of(seed)
        self._clock = 0

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose a random arm; changes nothing, so that a repeated question has the same answer."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        drawn = self._random.generator(self._clock, arms).integers(len(arms))
        first = int(np.argmax((arms == arms[drawn]).all(axis=1)))
        return Decision(user, first, 0.0, 0.0, propensity=1.0 / len(arms))

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Count the reward; nothing is learnt from it."""
        user = as_user(user)
        as_context(context, self.dim)
        as_reward(reward)
        self._clock += 1
        return Outcome(user)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        state = {"key": self._random.key, "clock": self._clock}
        write(path, Saved("Uniform", {"dim": self.dim}, state, {}))

    @classmethod
    def restore(cls, saved: Saved) -> Uniform:
        """Return the policy that was saved."""
        policy = cls(**saved.options)
        policy._random = RandomSource(saved.state["key"])
        policy._clock = saved.state["clock"]
        return policy

    def __repr__(self) -> str:
        return described("Uniform", {"dim": self.dim})
