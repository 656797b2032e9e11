"""Uniform: any arm, at random; what every other policy must beat."""

from __future__ import annotations

from collections.abc import Hashable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.core.randomness import Chance, Seed
from dyclu.policies.common.batches import OneByOne
from dyclu.policy import Decision, Outcome, described
from dyclu.storage import Saved, write
from dyclu.validation import as_arms, as_context, as_dim, as_reward, as_user


class Uniform(OneByOne):
    """Chooses uniformly at random and learns nothing.

    Arms with the same features are one arm offered several times; its first place is named.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    seed : int, SeedSequence or Generator
        What the choices are drawn from.

    Examples
    --------
    >>> Uniform(2, seed=1).decide("ana", [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    Decision(user='ana', arm=1, mean=0.0, width=0.0)
    """

    def __init__(self, dim: int, *, seed: Seed = 0) -> None:
        self.dim = as_dim(dim)
        self._chance = Chance.of(seed)
        self._clock = 0

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose any arm; changes nothing: the same question at the same time has one answer."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        drawn = self._chance.generator(self._clock, arms).integers(len(arms))
        first = int(np.argmax((arms == arms[drawn]).all(axis=1)))
        return Decision(user, first, 0.0, 0.0)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Count the reward, nothing else."""
        user = as_user(user)
        as_context(context, self.dim)
        as_reward(reward)
        self._clock += 1
        return Outcome(user)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        state = {"key": self._chance.key, "clock": self._clock}
        write(path, Saved("Uniform", {"dim": self.dim}, state, {}))

    @classmethod
    def restore(cls, saved: Saved) -> Uniform:
        """Return the policy that was saved."""
        policy = cls(**saved.options)
        policy._chance = Chance(saved.state["key"])
        policy._clock = saved.state["clock"]
        return policy

    def __repr__(self) -> str:
        return described("Uniform", {"dim": self.dim})
