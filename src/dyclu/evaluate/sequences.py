"""Lift: the difference of the rewards of two groups of users, with an interval for every day.

The interval is an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
2024): with probability `level` it holds the truth at *all* looks at once, so that one may look
every day and stop at any time. Users are the independent units. Derivation and assumptions:
docs/evaluation.md, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dyclu.display import html_table
from dyclu.errors import ShapeError
from dyclu.evaluate.intervals import UNBOUNDED, Interval, interval_text
from dyclu.validation import FloatArray, User, as_floats, as_probability, as_user, as_whole

LEAST_USERS = 30
"""Users that each group must have: the interval is asymptotic."""

TIGHTEST = 10_000
"""Effective number of rewards at which the interval is tightest, compared with a single look."""


class UserTotals:
    """Number of decisions and sum of rewards of every user of a group.

    Examples
    --------
    >>> group = UserTotals()
    >>> group.add(["ana", "ben", "ana"], [1.0, 0.0, 0.0])
    >>> group.counts, group.totals
    (array([2., 1.]), array([1., 0.]))
    """

    def __init__(self) -> None:
        self._row: dict[User, int] = {}
        self._counts: list[float] = []
        self._totals: list[float] = []

    def add(self, users: Iterable[Hashable], rewards: Iterable[float]) -> None:
        """Count decisions and their rewards."""
        for user, reward in zip(users, rewards, strict=True):
            row = self._row.setdefault(as_user(user), len(self._row))
            if row == len(self._counts):
                self._counts.append(0.0)
                self._totals.append(0.0)
            self._counts[row] += 1.0
            self._totals[row] += float(reward)

    @property
    def counts(self) -> FloatArray:
        """Number of decisions of each user."""
        return np.array(self._counts)

    @property
    def totals(self) -> FloatArray:
        """Sum of the rewards of each user."""
        return np.array(self._totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """The rewards per decision of two groups, and their difference.

    Attributes
    ----------
    treated, control : float
        Reward per decision of each group.
    value : float
        Their difference.
    interval : Interval
        Holds the true difference at all looks at once; unbounded with too few users.
    """

    treated: float
    control: float
    value: float
    interval: Interval

    @property
    def decided(self) -> bool:
        """Whether the groups differ."""
        return 0.0 not in self.interval

    def _repr_html_(self) -> str:
        """Return the lift as notebooks show it."""
        rows: list[tuple[str, object]] = [("treated", self.treated), ("control", self.control)]
        rows += [("difference", self.value), ("its interval", interval_text(self.interval))]
        note = "The groups differ." if self.decided else "The groups cannot be told apart yet."
        return html_table("Reward per decision", rows, note=note)


def lift(
    treated: tuple[ArrayLike, ArrayLike],
    control: tuple[ArrayLike, ArrayLike],
    *,
    level: float = 0.95,
    tightest: int = TIGHTEST,
) -> Lift:
    """Return the difference of the mean rewards of two groups of users, at any look.

    Parameters
    ----------
    treated, control : (counts, totals)
        Number of decisions and sum of rewards of every user of the group, until now.
    level : float
        Probability that the intervals of all looks hold the truth.
    tightest : int
        Effective number of rewards, ``n₁ n₀ / (n₁ + n₀)``, at which the interval is tightest. Fix
        it before the first look.

    Examples
    --------
    >>> counts = np.full(2000, 10.0)
    >>> more, less = np.tile([2.0, 0.0], 1000), np.tile([1.0, 0.0], 1000)
    >>> found = lift((counts, more), (counts, less))
    >>> found.treated, found.control, found.decided
    (0.1, 0.05, True)
    """
    alpha = 1 - as_probability(level, "level")
    groups = [_Group.of(*one) for one in (treated, control)]
    planned = as_whole(tightest, "tightest", least=1)
    (first, second) = (one.mean for one in groups)
    if min(one.users for one in groups) < LEAST_USERS:
        return Lift(treated=first, control=second, value=first - second, interval=UNBOUNDED)
    error = math.sqrt(sum(one.variance for one in groups))
    size = 1 / sum(1 / one.decisions for one in groups)
    half = error * _boundary(size * _rate(planned, alpha), alpha) if error > 0 else math.inf
    value = first - second
    return Lift(
        treated=first, control=second, value=value, interval=Interval(value - half, value + half)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    counts: FloatArray
    totals: FloatArray

    @classmethod
    def of(cls, counts: ArrayLike, totals: ArrayLike) -> _Group:
        numbers, sums = as_floats(counts, "counts"), as_floats(totals, "totals")
        if numbers.ndim != 1 or numbers.shape != sums.shape or not (numbers >= 0).all():
            raise ShapeError(
                f"counts have shape {numbers.shape} and totals {sums.shape}, expected (users,) "
                "twice, with counts ≥ 0; pass one entry per user"
            )
        return cls(numbers, sums)

    @property
    def users(self) -> int:
        return int(np.count_nonzero(self.counts))

    @property
    def decisions(self) -> float:
        return float(self.counts.sum())

    @property
    def mean(self) -> float:
        return float(self.totals.sum() / self.decisions) if self.users else 0.0

    @property
    def variance(self) -> float:
        """Variance of the mean by leaving out one user at a time (jackknife), Eq. (E14)."""
        rest = self.decisions - self.counts
        if not (rest > 0).all():
            return math.inf
        moved = (self.totals - self.mean * self.counts) / rest
        return float(moved @ moved)


def _rate(planned: int, alpha: float) -> float:
    """Return ρ² for which the interval is tightest at the planned size, Eq. (E13)."""
    twice = -2 * math.log(alpha)
    return (twice + math.log(twice + 1)) / planned


def _boundary(clock: float, alpha: float) -> float:
    """Return how many standard errors the interval has to either side, Eq. (E12)."""
    return math.sqrt((1 + 1 / clock) * math.log((1 + clock) / alpha**2))
