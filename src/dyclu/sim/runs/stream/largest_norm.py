"""A baseline that learns nothing: it shows how much the length of the features reveals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policy import Decision, Outcome, first_best
from dyclu.validation import FloatArray, User, as_dim


class LargestNorm(WithoutGroups, OneByOne):
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

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the longest arm; changes nothing."""
        return Decision(user, first_best(np.linalg.norm(arms, axis=1)), 0.0, 0.0)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Ignore the reward."""
        return Outcome(user)

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return {}

    def _forget(self, user: User) -> None:
        """Do nothing: nothing is kept of any user."""

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Do nothing: there is no state but the dimension."""
