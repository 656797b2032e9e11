"""`Ring`: sums of what happened in each of the latest seconds, or minutes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dyclu.service.engine.lines import MICRO
from dyclu.service.schema import Bucket

DECISIONS, REWARDS, REWARD_SUM, CHANGES = range(4)
"""Columns of a ring."""


class Ring:
    """Sums over periods of equal length; a new period overwrites the oldest.

    Examples
    --------
    >>> ring = Ring(span=1_000_000, length=60)
    >>> ring.add(7_200_000, DECISIONS, 1)
    >>> ring.add(7_900_000, DECISIONS, 1)
    >>> ring.buckets(now=9_000_000)
    [Bucket(at=7.0, decisions=2, rewards=0, reward_sum=0.0, changes=0)]
    """

    def __init__(self, *, span: int, length: int) -> None:
        self.span, self.length = span, length
        self.period: NDArray[np.int64] = np.full(length, -1, dtype=np.int64)
        self.sums: NDArray[np.float64] = np.zeros((length, 4))

    def add(self, at: int, column: int, amount: float) -> None:
        """Add an amount to the period of time `at`; a period that was overwritten is skipped."""
        period = at // self.span
        slot = period % self.length
        if self.period[slot] < period:
            self.period[slot] = period
            self.sums[slot] = 0.0
        if self.period[slot] == period:
            self.sums[slot, column] += amount

    @classmethod
    def joined(cls, rings: Sequence[Ring]) -> Ring:
        """Return the sums of several rings of the same periods."""
        self = cls(span=rings[0].span, length=rings[0].length)
        periods = np.stack([one.period for one in rings])
        self.period = periods.max(axis=0)
        latest = (periods == self.period)[..., np.newaxis]
        self.sums = np.where(latest, np.stack([one.sums for one in rings]), 0.0).sum(axis=0)
        return self

    def buckets(self, now: int) -> list[Bucket]:
        """Return the periods in which anything happened, the oldest first."""
        first = max(now // self.span - self.length, -1)
        slots = np.flatnonzero(self.period > first)
        slots = slots[np.argsort(self.period[slots])]
        starts = (self.period[slots] * self.span / MICRO).tolist()
        return [
            Bucket(at, int(decisions), int(rewards), total, int(changes))
            for at, (decisions, rewards, total, changes) in zip(
                starts, self.sums[slots].tolist(), strict=True
            )
        ]
