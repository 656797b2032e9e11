"""How much runs of a learning policy differ: replays with halves of the users.

Resamples of users cannot show it, because all users of a replay are served by one policy, which had
one kind of luck while it learnt. Two halves of the users are two independent runs of the policy.
Derivation: docs/evaluation.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.special import stdtrit

from dyclu.data import Chunk
from dyclu.evaluate.groups import MOST_GROUPS, UserGroups
from dyclu.evaluate.intervals import UNBOUNDED, Interval, Ratios
from dyclu.validation import FloatArray

SPLITS = 8
"""Splits of the users, by default."""

LEAST_SPLITS = 2
"""With one split the quantile of Student's t is 12.7, and the interval says nothing."""


class Run(Protocol):
    """A replay on its way."""

    def add(self, chunk: Chunk, propensity: FloatArray) -> None:
        """Play the rows of a chunk."""

    def ratio(self, num: str, den: str) -> Ratios:
        """Return the ratio of two columns of sums per user."""


class Halves:
    """Pairs of replays, each pair with the two halves of a random split of the users.

    Parameters
    ----------
    start : callable
        Takes a generator of random numbers; returns a replay that has not begun.
    splits : int
        Number of pairs.
    seed : int
        Seed of splits and replays.
    """

    def __init__(
        self, start: Callable[[np.random.Generator], Run], *, splits: int, seed: int
    ) -> None:
        self.splits = splits
        sides, *coins = np.random.default_rng([seed, splits]).spawn(1 + 2 * splits)
        self._pairs = [(start(coins[2 * i]), start(coins[2 * i + 1])) for i in range(splits)]
        self._sides = sides.integers(2, size=(splits, MOST_GROUPS if splits else 0))
        self._groups = UserGroups()

    def add(self, chunk: Chunk, propensity: FloatArray) -> None:
        """Play the rows of a chunk in all replays, each with its half of the users."""
        if not self.splits:
            return
        groups = self._groups.of(chunk.user)
        for sides, pair in zip(self._sides, self._pairs, strict=True):
            for side, run in enumerate(pair):
                rows = np.flatnonzero(sides[groups] == side)
                run.add(chunk.rows(rows), propensity[rows])

    def widened(
        self, interval: Interval, value: float, ratio: tuple[str, str], level: float
    ) -> Interval:
        """Return an interval, from resamples of users, that holds for other runs too, (E15)."""
        if not self.splits:
            return interval
        halves = [[run.ratio(*ratio) for run in pair] for pair in self._pairs]
        if not all(one.den.sum() for pair in halves for one in pair):
            return UNBOUNDED
        gaps = np.array([first.value - second.value for first, second in halves])
        error = math.sqrt(float(np.mean(gaps**2)) / 4)
        far = float(stdtrit(self.splits, (1 + level) / 2)) * error
        return Interval(min(interval.low, value - far), max(interval.high, value + far))
