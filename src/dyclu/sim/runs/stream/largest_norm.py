"""A baseline that learns nothing: it shows how much the length of the features reveals."""

from __future__ import annotations

from collections.abc import Hashable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.policies.common.plain import WithoutUsers
from dyclu.policy import Decision, Outcome, described, first_best
from dyclu.storage import Saved, write
from dyclu.validation import as_arms, as_context, as_dim, as_reward, as_user


class LargestNorm(WithoutUsers):
    """Always chooses the arm with the longest vector of features.

    On Last.fm, artists with more tags have longer feature vectors, and they are more often the
    positive artist. A reward up to that of this baseline is therefore no sign of learning.

    Examples
    --------
    >>> LargestNorm(2).decide("ana", [[1.0, 0.0], [3.0, 4.0]])
    Decision(user='ana', arm=1, mean=0.0, width=0.0)
    """

    def __init__(self, dim: int) -> None:
        self.dim = as_dim(dim)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose the longest arm; changes nothing."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        return Decision(user, first_best(np.linalg.norm(arms, axis=1)), 0.0, 0.0)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Check the reward and ignore it."""
        user = as_user(user)
        as_context(context, self.dim)
        as_reward(reward)
        return Outcome(user)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the dimension; there is no other state."""
        write(path, Saved("LargestNorm", {"dim": self.dim}, {}, {}))

    @classmethod
    def restore(cls, saved: Saved) -> LargestNorm:
        """Return the policy that was saved."""
        return cls(**saved.options)

    def __repr__(self) -> str:
        return described("LargestNorm", {"dim": self.dim})
