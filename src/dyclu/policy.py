"""The interface of policies: `decide`, `learn`, and the values that they return.

``decide`` changes nothing: no user is created, and no random generator is advanced. ``learn`` and
``forget`` are the only methods that change a policy. A `Decision` and an `Outcome` are for callers
and reports; no policy reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dyclu import kernels
from dyclu.contributions import Contribution, Registry
from dyclu.core.ridge import Scores
from dyclu.display import html_table
from dyclu.storage import Saved
from dyclu.validation import FloatArray, Ids, User

TIE = 1e-9
"""Scores whose difference is at most this count as equal; the first of equal arms is chosen."""

THRESHOLD = 20.0
"""How much the determinant of a model's information grows before a shard publishes it again, by
default: ``α``, where it grows by the factor ``1 + α`` (docs/theory.md §11)."""

_NO_IDS: Ids = np.empty(0, dtype=np.intp)


def no_ids() -> Ids:
    """Return the empty list of segment ids."""
    return _NO_IDS


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen arm and its expected reward.

    Attributes
    ----------
    user : str or int
        The user for whom the arm was chosen.
    arm : int
        Index of the chosen row of `arms`.
    mean : float
        Estimated reward of that arm.
    width : float
        Half-width of its confidence interval; the arm was chosen for ``mean + width``.
    theta : array of shape (dim,) or None
        The estimate from which the mean was computed; None if the policy has none.
    propensity : float or None
        Probability that `decide` names this arm for this question; None if it is not known.
    """

    user: User
    arm: int
    mean: float
    width: float
    theta: FloatArray | None = field(default=None, repr=False, compare=False)
    propensity: float | None = field(default=1.0, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """Return the decision as notebooks show it."""
        values = ("user", "arm", "mean", "width", "propensity")
        return html_table("Decision", [(name, getattr(self, name)) for name in values])


@dataclass(frozen=True, slots=True)
class Slate:
    """The arms for the slots of one page, the first slot first.

    Attributes
    ----------
    user : str or int
        The user for whom the arms were chosen.
    decisions : tuple of Decision
        One per slot. `arm` is a row of all offered arms; no arm is chosen twice. `propensity` is
        the probability of this arm in this slot, given the arms of the slots before.
    contexts : array of shape (slots, dim)
        What to learn from the reward of each slot, with the position in its column.
    """

    user: User
    decisions: tuple[Decision, ...]
    contexts: FloatArray = field(repr=False, compare=False)

    @property
    def arms(self) -> tuple[int, ...]:
        """Indices of the chosen rows of `arms`, one per slot."""
        return tuple(one.arm for one in self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def _repr_html_(self) -> str:
        """Return the arms as notebooks show them, one row per slot."""
        head = ("slot", "arm", "mean", "width", "propensity")
        rows = [(slot, one.arm, one.mean, one.width, one.propensity)
                for slot, one in enumerate(self.decisions, start=1)]  # fmt: skip
        return html_table(f"Slate of {self.user}", [head, *rows])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of `learn`.

    Attributes
    ----------
    user : str or int
        The user who gave the reward.
    surprised : bool
        Whether the reward contradicted the user's segment, and was not added to it.
    changed : bool
        Whether the policy concluded that the user has changed; it then starts a new segment.
    segment : int or None
        Id of the user's open segment; None if the policy has no segments.
    neighbours : array of int
        Ids of the segments that the user's next decision will use.
    """

    user: User
    surprised: bool = False
    changed: bool = False
    segment: int | None = None
    neighbours: Ids = field(default_factory=no_ids, repr=False, compare=False)

    @property
    def kept(self) -> bool:
        """Whether the observation was added to the user's segment."""
        return not (self.surprised or self.changed)

    def _repr_html_(self) -> str:
        """Return the outcome as notebooks show it."""
        values = ("user", "surprised", "changed", "segment")
        return html_table("Outcome", [(name, getattr(self, name)) for name in values])


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a user that a policy detected.

    Attributes
    ----------
    user : str or int
        The user who changed.
    at : int
        Number of rewards, of all users, that the policy had learnt by then.
    before, after : int
        Ids of the user's segment, or model, before and after the change.
    certainty : float or None
        Probability that the change is real; None if the policy does not compute it.
    """

    user: User
    at: int
    before: int
    after: int
    certainty: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A taste that users share.

    Attributes
    ----------
    id : int
        Name of the model; it is never given to another one.
    size : int
        Number of observations that it holds.
    estimate : array of shape (dim,)
        The estimated parameter.
    users : int
        Number of users who follow it.
    founded, visited : int
        Number of rewards, of all users, learnt when it was founded, and when it was last used.
    covariance : array of shape (dim, dim), or None
        Posterior covariance of the estimate; None where a policy does not tell.
    """

    id: int
    size: int
    estimate: FloatArray = field(repr=False, compare=False)
    users: int
    founded: int
    visited: int
    covariance: FloatArray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A user's observations between two changes.

    Attributes
    ----------
    id : int
        Id of the segment.
    opened, closed : int and (int or None)
        Number of rewards, of all users, learnt before it was opened and closed; None if open.
    observations : int
        Number of observations that it holds.
    """

    id: int
    opened: int
    closed: int | None
    observations: int


@dataclass(frozen=True, slots=True)
class Location:
    """What a policy knows about one user's taste.

    Attributes
    ----------
    user : str or int
        The user.
    model : int or None
        Id of the model that the user follows, or most likely follows; None if there is none yet.
    located : bool
        Whether that is certain enough.
    since : int
        Number of rewards, of all users, learnt when it became so; 0 if the policy does not say.
    belief : dict of int to float
        Probabilities of models, by id; small ones may be left out.
    new : float or None
        Probability that the user follows none of the models; None where a policy has no belief.
    segments : tuple of SegmentSummary, or None
        The user's segments; None where a policy keeps none.
    neighbours : tuple of int
        Ids of the segments whose data the user's next decision will be made with.
    """

    user: User
    model: int | None = None
    located: bool = False
    since: int = 0
    belief: Mapping[int, float] = field(default_factory=dict)
    new: float | None = None
    segments: tuple[SegmentSummary, ...] | None = None
    neighbours: tuple[int, ...] = ()


@runtime_checkable
class Policy(Protocol):
    """Chooses arms for users and learns from their rewards; `dyclu.conformance` is its contract."""

    @property
    def dim(self) -> int:
        """Number of features of a context."""
        ...

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose one row of `arms` (K, dim) for this user; changes nothing."""
        ...

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Learn from the reward of the chosen context (dim,)."""
        ...

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        ...

    @property
    def users(self) -> tuple[User, ...]:
        """The users of whom the policy keeps something, in no particular order."""
        ...

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first; empty where a policy keeps no record."""
        ...

    @property
    def models(self) -> tuple[Model, ...]:
        """The tastes that users share; empty where a policy forms no groups of users."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What seems wrong, in sentences; empty if nothing is, or if the policy has no checks.

        A sentence says what was seen, what was expected and what to do.
        """
        ...

    def locate(self, user: Hashable) -> Location:
        """Return what is known about a user's taste; changes nothing."""
        ...

    def forget(self, user: Hashable) -> None:
        """Remove what is kept of this user alone; unknown users are ignored."""
        ...

    @property
    def shares(self) -> bool:
        """Whether the policy can share what it learns; if not, the next two raise `CannotShare`."""
        ...

    def contributions(
        self,
        shard: str,
        *,
        since: Registry | Iterable[Contribution] = (),
        threshold: float = THRESHOLD,
    ) -> tuple[Contribution, ...]:
        """Return what this shard has learnt, as far as it is news; changes nothing.

        `since` is what the shard has published so far, and `threshold` the growth of a model that
        is news.
        """
        ...

    def absorb(self, contributions: Iterable[Contribution], *, shard: str) -> int:
        """Learn from contributions of other shards; return how many were news.

        `shard` is this shard: its own contributions are ignored.
        """
        ...

    def withdraw(self) -> None:
        """Remove all that was absorbed, at once; it may be absorbed again.

        What was concluded from it in the meantime may stay.
        """
        ...


@runtime_checkable
class History(Protocol):
    """Observations in order of time, to start from; `dyclu.Log` is one."""

    @property
    def dim(self) -> int:
        """Number of features of a context."""
        ...

    def observations(self) -> Iterator[tuple[Sequence[Hashable], FloatArray, FloatArray]]:
        """Yield users, contexts (n, dim) and rewards (n,), some rows at a time."""
        ...


class Named(Protocol):
    """Names of features that can be saved with a policy; `dyclu.Features` is one."""

    @property
    def dim(self) -> int:
        """Number of features of a vector."""
        ...

    def dump(self) -> Saved:
        """Return what is written."""
        ...


class HasArm(Protocol):
    """An answer that names one of the rows it was asked about."""

    @property
    def arm(self) -> int:
        """Index of the row."""
        ...


A = TypeVar("A", bound=HasArm)


def fill_slots(
    decide: Callable[[FloatArray], A], arms: FloatArray, slots: int, position: int | None = None
) -> Iterator[tuple[int, FloatArray, A]]:
    """Yield, for one slot after the other, the arm's row, its context, and the answer of `decide`.

    Each slot is decided among the arms that are left. A score does not depend on the other arms, so
    an optimistic policy gets its best scores in order; a policy that draws draws again, and its
    propensity is that of the slot, given the slots before. With `position`, that column of all arms
    is `position_of(slot)`.

    >>> best = lambda rows: choose("ana", (None, rows[:, 0], np.zeros(len(rows))))
    >>> [row for row, _, _ in fill_slots(best, np.array([[0.1], [0.3], [0.2]]), 2)]
    [1, 2]
    """
    left = list(range(len(arms)))
    for slot in range(1, slots + 1):
        offered = arms[left]
        if position is not None:
            offered[:, position] = position_of(slot)
        made = decide(offered)
        row = left.pop(made.arm)
        # Not from `offered`, which `decide` may change.
        context = arms[row].copy()
        if position is not None:
            context[position] = position_of(slot)
        yield row, context, made


def position_of(slot: int) -> float:
    """Return the feature of a slot (from 1): 0 for the first, and below 1 for all others.

    Attention falls quickly at first and slowly later, and so does this number rise.

    >>> [position_of(slot) for slot in (1, 2, 4)]
    [0.0, 0.5, 0.75]
    """
    return 1 - 1 / slot


def first_best(scores: FloatArray) -> int:
    """Return the first index whose score is at most `TIE` below the best one.

    >>> first_best(np.array([0.2, 0.5, 0.5 + 1e-12]))
    1
    """
    return int(kernels.ridge.first_best(scores, TIE))


def choose(user: User, scores: Scores) -> Decision:
    """Return the decision for the arm with the highest mean + width; the first of equal arms."""
    theta, means, widths = scores
    arm, mean, width = kernels.ridge.best_arm(means, widths, TIE)
    return Decision(user, arm, float(mean), float(width), theta)


def optimistic(
    user: User,
    theta: FloatArray,
    inverse: FloatArray,
    arms: FloatArray,
    *,
    alpha: float,
    beyond: float = math.inf,
    bold: float = 1.0,
) -> Decision:
    """Return the same as `choose` with the scores of `ucb`, without storing all scores.

    If the leverage of an arm exceeds `beyond` times its squared length, its width is multiplied by
    `bold`.

    >>> optimistic("ana", np.array([1.0, 0.0]), np.eye(2), np.eye(2), alpha=0.5)
    Decision(user='ana', arm=0, mean=1.0, width=0.5)
    """
    arm, mean, width = kernels.ridge.ucb_best(theta, inverse, arms, alpha, TIE, beyond, bold)
    return Decision(user, arm, mean, width, theta=theta)
