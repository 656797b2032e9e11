"""Uniform: a random arm. Every other policy must do better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu.core.randomness import RandomSource, Seed
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policy import Decision, Outcome
from dyclu.validation import FloatArray, User, as_dim


class Uniform(WithoutGroups, OneByOne):
    """Chooses uniformly at random and learns nothing.

    Of arms with the same features it names the first; the propensity is 1/K also then, although
    that arm is named more often.

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

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose a random arm; changes nothing, so that a repeated question has the same answer."""
        drawn = self._random.generator(self._clock, arms).integers(len(arms))
        first = int(np.argmax((arms == arms[drawn]).all(axis=1)))
        return Decision(user, first, 0.0, 0.0, propensity=1.0 / len(arms))

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Count the reward; nothing is learnt from it."""
        self._clock += 1
        return Outcome(user)

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return {}

    def _forget(self, user: User) -> None:
        """Do nothing: nothing is kept of any user."""

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        return {"key": self._random.key, "clock": self._clock}, {}

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._random = RandomSource(state["key"])
        self._clock = state["clock"]
