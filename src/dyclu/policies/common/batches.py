"""Batches: many users in one call, with the same answers as one call after the other.

``decide_many`` answers every question as `decide` would. ``learn_many`` learns the rewards in their
order, as single calls of `learn` would, but validates the whole batch first: if one number is bad,
it raises and learns nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.policy import Decision, Outcome, Policy
from dyclu.validation import FloatArray, Ids, User

NO_SEGMENT = -1
"""Value of `Outcomes.segment` where a policy keeps no segments."""


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What `decide_many` answers: row `i` is the `Decision` for the i-th user.

    Attributes
    ----------
    users : tuple of str or int
        The users.
    arm : int array of shape (n,)
        Index of the chosen arm of each user.
    mean, width : arrays of shape (n,)
        As in `Decision`.
    """

    users: tuple[User, ...]
    arm: Ids
    mean: FloatArray
    width: FloatArray

    @classmethod
    def blank(cls, users: Sequence[User]) -> Decisions:
        """Return uninitialised decisions, one per user."""
        n = len(users)
        return cls(tuple(users), np.empty(n, np.intp), np.empty(n), np.empty(n))

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Decisions:
        """Return single decisions as one batch."""
        single = tuple(decisions)
        return cls(
            tuple(decision.user for decision in single),
            np.array([decision.arm for decision in single], dtype=np.intp),
            np.array([decision.mean for decision in single], dtype=np.float64),
            np.array([decision.width for decision in single], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What `learn_many` answers: row `i` is the `Outcome` of the i-th reward.

    Attributes
    ----------
    users : tuple of str or int
        The users who gave the rewards.
    surprised, changed : bool arrays of shape (n,)
        As in `Outcome`.
    segment : int array of shape (n,)
        As in `Outcome`; `NO_SEGMENT` where a policy keeps none.
    """

    users: tuple[User, ...]
    surprised: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    segment: Ids

    @classmethod
    def uneventful(cls, users: Sequence[User]) -> Outcomes:
        """Return the outcomes of a policy that is never surprised and keeps no segments."""
        n = len(users)
        return cls(tuple(users), np.zeros(n, bool), np.zeros(n, bool), np.full(n, NO_SEGMENT))

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Outcomes:
        """Return single outcomes as one batch."""
        single = tuple(outcomes)
        segments = (outcome.segment for outcome in single)
        return cls(
            tuple(outcome.user for outcome in single),
            np.array([outcome.surprised for outcome in single], dtype=np.bool_),
            np.array([outcome.changed for outcome in single], dtype=np.bool_),
            np.array([NO_SEGMENT if id is None else id for id in segments], dtype=np.intp),
        )

    def __len__(self) -> int:
        return len(self.users)


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy that also takes batches."""

    def decide_many(self, users: Iterable[Hashable], arms: ArrayLike) -> Decisions:
        """Choose one row of each table of `arms` (n, K, dim), for n users; changes nothing."""
        ...

    def learn_many(
        self, users: Iterable[Hashable], contexts: ArrayLike, rewards: ArrayLike
    ) -> Outcomes:
        """Learn from the rewards (n,) of the chosen contexts (n, dim), in their order."""
        ...
