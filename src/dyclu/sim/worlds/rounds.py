"""`Round`: one visit of one user, with the truth about it; `Simulated`: what a world must have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dyclu.core.rewards import Law
from dyclu.validation import FloatArray, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One visit of one user.

    Attributes
    ----------
    index : int
        Number of the round among those of all users.
    user : int
        The user.
    time : int
        Number of the round among those of this user.
    arms : array of shape (offered, dim)
        The arms that are offered, read-only.
    means : array of shape (offered,)
        Expected reward of every arm, read-only.
    noise : float
        Random part of the reward, the same for every arm: the error that is added to the mean; for
        rewards of 0 and 1 a uniform number, and the reward is 1 if it is below the mean.
    parameter : int
        Number of the user's taste in this round, a row of `Simulated.tastes`.
    taste : array of shape (dim,)
        The user's own θ in this round, read-only; users of one taste may differ a little.
    changed : bool
        Whether the user had another taste in the round before.
    binary : bool
        Whether rewards are 0 or 1.
    """

    index: int
    user: int
    time: int
    arms: FloatArray = field(repr=False)
    means: FloatArray = field(repr=False)
    noise: float
    parameter: int
    taste: FloatArray = field(repr=False)
    changed: bool
    binary: bool = False

    def reward(self, arm: int) -> float:
        """Return the reward of an arm."""
        mean = float(self.means[arm])
        return float(self.noise < mean) if self.binary else mean + self.noise

    def regret(self, arm: int) -> float:
        """Return the expected regret of an arm: the largest mean minus the mean of this arm."""
        return float(self.means.max() - self.means[arm])


class Size(Protocol):
    """The size of a world, part of the options from which it was drawn."""

    @property
    def users(self) -> int:
        """Number of users."""

    @property
    def rounds(self) -> int:
        """Rounds per user, on average."""

    @property
    def dim(self) -> int:
        """Number of features."""


class Simulated(Protocol):
    """A world whose truth is known: what `play` and the measures need.

    Iterating yields the same rounds every time, whatever a policy does.
    """

    @property
    def setting(self) -> Size:
        """The options from which the world was drawn."""

    @property
    def served(self) -> Ids:
        """The user of every round."""

    @property
    def truth(self) -> Ids:
        """The number of each user's taste at each of their rounds, shape (users, most rounds)."""

    @property
    def count(self) -> int:
        """Number of tastes."""

    @property
    def delay(self) -> int:
        """Rounds of all users between a decision and its reward; 0 gives the reward at once."""

    @property
    def hazard(self) -> float:
        """Share of a user's rounds at which they change."""

    @property
    def linear(self) -> bool:
        """Whether an arm's expected reward is xᵀθ, or that plus a constant."""

    def __len__(self) -> int:
        """Return the number of rounds of all users."""

    def __iter__(self) -> Iterator[Round]:
        """Return the rounds in order."""

    def changes(self, user: int) -> Ids:
        """Return the rounds of a user at which their taste changes."""

    def tastes(self, index: int) -> FloatArray:
        """Return the tastes, shape (count, dim), at a round of all users."""

    def law(self, user: int) -> Law:
        """Return the law of a user's rewards."""
