"""What a policy is: two verbs, and what they answer.

``decide`` is a question: it reads and changes nothing, not even for a user never seen, and not even
a random number generator. ``learn`` is the only verb that writes. A `Decision` and an `Outcome` are
for people and reports; no policy ever reads one back.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from dyclu import kernels
from dyclu.core.ridge import Scores
from dyclu.validation import FloatArray, Ids, User

TIE = 1e-9
"""Scores closer than this are equal; the first such arm is taken."""

_NO_IDS: Ids = np.empty(0, dtype=np.intp)


def no_ids() -> Ids:
    """Return the empty list of segment ids."""
    return _NO_IDS


@dataclass(frozen=True, slots=True)
class Decision:
    """The arm to offer, and what the policy expected of it.

    Attributes
    ----------
    user : str or int
        Who is served.
    arm : int
        Index of the chosen row of `arms`.
    mean : float
        Estimated reward of that arm.
    width : float
        Half-width of its confidence interval; the arm was chosen for ``mean + width``.
    theta : array of shape (dim,) or None
        The estimate the mean was computed with; None where a policy has none.
    """

    user: User
    arm: int
    mean: float
    width: float
    theta: FloatArray | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reward did to the policy.

    Attributes
    ----------
    user : str or int
        Whose reward it was.
    surprised : bool
        The reward contradicted what was known of the user, and was set aside.
    changed : bool
        The policy concluded that the user has changed, and started anew.
    segment : int or None
        Id of the data the user's own rewards now go to; None where a policy keeps no such ids.
    neighbours : array of int
        Ids of the segments whose data the user's next decision will be made with.
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


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a user that a policy noticed.

    Attributes
    ----------
    user : str or int
        Who changed.
    at : int
        Number of rewards, of all users, that the policy had learnt by then.
    before, after : int
        Ids of the user's data, or model, before and after the change.
    certainty : float or None
        Probability that the change is real; None where the policy does not say.
    """

    user: User
    at: int
    before: int
    after: int
    certainty: float | None = None


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
        """Take in the reward of the chosen context (dim,)."""
        ...

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        ...


def described(kind: str, options: Mapping[str, Any]) -> str:
    """Return how a policy is shown: the call that makes it.

    >>> described("LinUCB", {"dim": 3, "alpha": 0.3})
    'LinUCB(dim=3, alpha=0.3)'
    """
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in options.items())})"


def first_best(scores: FloatArray) -> int:
    """Return the first index within `TIE` of the best score.

    >>> first_best(np.array([0.2, 0.5, 0.5 + 1e-12]))
    1
    """
    return int(kernels.ridge.first_best(scores, TIE))


def choose(user: User, scores: Scores) -> Decision:
    """Return the decision for the arm of the highest mean + width, the first of equals."""
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
    """Return what `choose` makes of `ucb`, without the other arms' scores.

    An arm of a variance `beyond` so many times its squared length has a `bold` times larger width.

    >>> optimistic("ana", np.array([1.0, 0.0]), np.eye(2), np.eye(2), alpha=0.5)
    Decision(user='ana', arm=0, mean=1.0, width=0.5)
    """
    arm, mean, width = kernels.ridge.ucb_best(theta, inverse, arms, alpha, TIE, beyond, bold)
    return Decision(user, arm, mean, width, theta=theta)
