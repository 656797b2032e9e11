"""Self-checks: do the rewards fit the assumptions of a policy? The answers are `policy.warnings`.

Each check returns sentences: what was seen, what was expected, and what to do. A check reads
numbers that the policy keeps; none of them has an influence on a decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dyclu.core.noise import VARIANCE_FLOOR, Residuals

LEAST_REWARDS = 100
"""Number of rewards from which on shares are judged."""

ODDS = 5.0
"""A share is too large only if its odds are this many times the expected odds.

Odds, and not shares, so that the rule has a meaning at every level: 5 times a share of 0.3 would be
more than all. Users change, and until the alarm rings their rewards surprise: in simulated worlds
in which everybody changes every 100 to 250 rewards, 3 % of the rewards surprise DyClu at the level
of 1 %. That is below the 4.8 % that this factor allows.
"""

CHANCE = 1e-6
"""A number of surprises is too large only if it has at most this probability by chance.

Given the level, the number has a binomial distribution. A policy may be asked after every reward;
the probability must be small enough for many questions.
"""

ERRORS = 5.0
"""The energy of surprises is too large only if it is this many standard errors too large."""

PERIOD = 100
"""Least number of rewards between two changes of a user that are believed.

The surprises of an alarm are no misfit if there was a change. But if the assumed noise is too
small, alarms ring all the time: after 20 rewards, in simulations. So one alarm per user is
believed, which may come at any time, and one more per 100 rewards.
"""

MEMORY = 20_000
"""Number of rewards at which all sums are halved, so that a warning follows the recent rewards."""

LEAST_USERS = 10
"""Number of users from which on it is remarkable that no two of them share a group."""

CLICKS = "use Atlas or pass noise=0.5 if rewards are 0 or 1"
"""What to do about clicks: at σ = 0.5 and a level of 1 %, an error of 1 is no surprise."""


@dataclass(slots=True)
class SetAside:
    """Sums over the rewards that were tested, and over those that were set aside as surprises.

    Attributes
    ----------
    tested, surprises : int
        Number of rewards that were tested, and of those that were set aside.
    energy, energy_aside : float
        Their sums of y². For rewards of 0 and 1 these are numbers of ones.
    alarms, alarming : int
        Number of alarms, and of the surprises for which they rang.

    Examples
    --------
    >>> aside = SetAside()
    >>> for t in range(1000):
    ...     aside.add(float(t % 20 == 0), surprised=t % 20 == 0)
    >>> print(*aside.warnings(level=0.01, noise=0.1, users=1))
    The surprises hold 100 % of the sum of squared rewards (of 0/1 rewards: of the ones), where...
    """

    tested: int = 0
    surprises: int = 0
    energy: float = 0.0
    energy_aside: float = 0.0
    alarms: int = 0
    alarming: int = 0

    def add(self, reward: float, *, surprised: bool) -> None:
        """Count one more reward that was tested."""
        square = reward * reward
        self.tested += 1
        self.energy += square
        if surprised:
            self.surprises += 1
            self.energy_aside += square
        if self.tested == MEMORY:
            self._halve()

    def ring(self, surprises: int) -> None:
        """Count an alarm that rang for so many surprises."""
        self.alarms += 1
        self.alarming += surprises

    def warnings(self, *, level: float, noise: float, users: int) -> tuple[str, ...]:
        """Return a sentence if too much was set aside.

        Parameters
        ----------
        level : float
            Largest share of surprises that is expected.
        noise : float
            Standard deviation that the test assumes.
        users : int
            Number of users.
        """
        if self.tested < LEAST_REWARDS:
            return ()
        aside = self.energy_aside / self.energy if self.energy else 0.0
        expected, variance = energy_beyond(level)
        error = math.sqrt(variance / self.tested)
        if aside > expected + ERRORS * error and _odds(aside) > ODDS * _odds(expected):
            return (_energy_sentence(aside, expected, noise),)
        unexplained = self._unexplained(users)
        chance = scipy.special.bdtrc(unexplained - 1, self.tested, level)
        if chance < CHANCE and _odds(unexplained / self.tested) > ODDS * _odds(level):
            return (_count_sentence(self.surprises, self.tested, level, noise),)
        return ()

    def _unexplained(self, users: int) -> int:
        """Return the number of surprises that believable changes do not explain."""
        believed = users + self.tested / PERIOD
        explained = self.alarming * min(1.0, believed / self.alarms) if self.alarms else 0.0
        return max(0, math.floor(self.surprises - explained))

    def _halve(self) -> None:
        self.tested //= 2
        self.surprises //= 2
        self.energy /= 2
        self.energy_aside /= 2
        self.alarms //= 2
        self.alarming //= 2


def energy_beyond(level: float) -> tuple[float, float]:
    """Return mean and variance of ``z² 1{z² > υ}`` for standard normal z, ``P(z² > υ) = level``.

    Rewards that are noise alone have this share of their energy in surprises; rewards that can be
    predicted have less. As ``z² φ(z)`` is proportional to the density of χ²₃, and ``z⁴ φ(z)`` to
    that of χ²₅, the moments are ``P(χ²₃ > υ)`` and ``3 P(χ²₅ > υ)``.

    >>> mean, variance = energy_beyond(0.01)
    >>> round(mean, 4), round(variance, 4)
    (0.0845, 0.7406)
    """
    threshold = scipy.special.chdtri(1, level)
    mean, fourth = scipy.special.chdtrc(3, threshold), 3 * scipy.special.chdtrc(5, threshold)
    return float(mean), float(fourth - mean * mean)


def floor_warnings(residuals: Residuals) -> tuple[str, ...]:
    """Return a sentence if the noise is estimated at its floor, although predictions have errors.

    Rewards without any noise are also estimated at the floor; nothing is wrong then.
    """
    if residuals.tested < LEAST_REWARDS or not residuals.at_floor:
        return ()
    return (
        f"The noise is estimated as {residuals.noise().deviation:.2g}, the least possible estimate "
        f"({_percent(math.sqrt(VARIANCE_FLOOR))} of the root mean square of the rewards), where a "
        "larger one is expected: most rewards are equal, or all are far from 0. Pass the noise, or "
        f"subtract a constant from all rewards; {CLICKS}.",
    )


def comparable(dim: int) -> int:
    """Return the number of rewards from which on users are judged by `sharing_warnings`.

    An estimate needs `dim` rewards. With so few it may be far from the truth, and to find no
    similar user is then no misfit; with twice as many, errors of the estimate are like the noise.

    >>> comparable(25)
    50
    """
    return 2 * dim


def sharing_warnings(counts: NDArray[np.int64], *, shared: bool, remedy: str) -> tuple[str, ...]:
    """Return a sentence if none of many users is in one group with another.

    Parameters
    ----------
    counts : array of int
        Numbers of rewards of the users who have at least `comparable` of them.
    shared : bool
        Whether two of these users are in one group.
    remedy : str
        What to change if users are alike.
    """
    if len(counts) < LEAST_USERS or shared:
        return ()
    return (
        f"No two of {len(counts):,} users are in one group, although half of them have at least "
        f"{np.median(counts):,.0f} rewards, where groups of similar users are expected: nobody "
        f"learns from the rewards of others. If users are alike, {remedy}; if all are different, a "
        "policy without groups does the same in less time (LinUCB, or DLinUCB if users change).",
    )


def _energy_sentence(aside: float, expected: float, noise: float) -> str:
    return (
        f"The surprises hold {_percent(aside)} of the sum of squared rewards (of 0/1 rewards: of "
        f"the ones), where at most {_percent(expected)} is expected: these rewards are not learnt. "
        f"The noise is not normal, or larger than {noise:.2g}; {CLICKS}, otherwise pass a larger "
        "noise."
    )


def _count_sentence(surprises: int, tested: int, level: float, noise: float) -> str:
    return (
        f"{_percent(surprises / tested)} of the latest {tested:,} rewards were set aside as "
        f"surprises, where {_percent(level)} is expected: the noise is larger than {noise:.2g}, or "
        f"users change all the time. Pass a larger noise; {CLICKS}."
    )


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else math.inf


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
