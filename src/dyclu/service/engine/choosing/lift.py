"""`LiftSums`: rewards of the users whom the policy serves, and of the control group, per day.

The interval of `dyclu.evaluate.lift` needs the number of decisions and the sum of rewards of each
independent unit. Units are users. To bound the memory, users are spread over `BUCKETS` buckets by a
digest of their name. A bucket is a set of whole users, so buckets are independent too, and leaving
out one bucket at a time estimates the same variance as leaving out one user at a time. No name is
kept.

Sums are about one comparison: one baseline, and one share of the users. Another one begins with a
line (`ComparisonBody`), and only decisions after it are counted.

All this is part of the state: it follows from the lines. The interval that could be seen at the end
of a day is computed when the first line of a later day is applied, and kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np
from msgspec import Struct, convert
from msgspec.structs import astuple
from numpy.typing import NDArray

from dyclu.evaluate.sequences import Lift, lift
from dyclu.service.engine.lines import MICRO, ComparisonBody, Group

BUCKETS = 4096
"""Sets of users; the relative error of a variance from so many is about 2 %."""

DAY = 86_400 * MICRO
"""Microseconds of a day (UTC)."""

DAYS_KEPT = 400
"""Number of the latest days that are kept."""

GROUPS: tuple[Group, Group] = ("treated", "control")
NO_GROUP = len(GROUPS)
"""Number of the group of a decision that is compared with nothing."""

DECISIONS, REWARD = range(2)


class LiftDay(Struct, frozen=True, gc=False):
    """Sums of one day, and what was known at its end about all days until then.

    `day` is the number of days since 1970. `low` and `high` are infinite while too few users were
    there.
    """

    day: int
    treated_decisions: float
    treated_reward: float
    control_decisions: float
    control_reward: float
    value: float
    low: float
    high: float


def group_number(group: Group | None) -> int:
    """Return the number of a group, as pending decisions store it.

    >>> group_number("control"), group_number(None)
    (1, 2)
    """
    return NO_GROUP if group is None else GROUPS.index(group)


def bucket_of(user: str) -> int:
    """Return the bucket of a user; the same in every process.

    >>> bucket_of("ana") == bucket_of("ana"), 0 <= bucket_of("ana") < BUCKETS
    (True, True)
    """
    # Not `hash`, which differs from process to process for text.
    return crc32(user.encode()) % BUCKETS


class LiftSums:
    """Decisions and rewards of both groups; times must not decrease.

    Attributes
    ----------
    terms : ComparisonBody or None
        What is compared; None if no line said it, as in journals before format 4.
    since : int or None
        When the comparison began; None if no line said it.

    Examples
    --------
    >>> sums = LiftSums()
    >>> sums.add(0, 0, bucket_of("ana"), decisions=1)
    >>> sums.add(5, 0, bucket_of("ana"), reward=1.0)
    >>> sums.add(DAY, 1, bucket_of("ben"), decisions=1)
    >>> sums.result().treated, sums.result().control
    (1.0, 0.0)
    >>> [(one.day, one.treated_decisions, one.high) for one in sums.days()]
    [(0, 1.0, inf), (1, 0.0, inf)]
    """

    def __init__(self) -> None:
        self.terms: ComparisonBody | None = None
        self.since: int | None = None
        self._sums: NDArray[np.float64] | None = None
        self._today = np.zeros((len(GROUPS), 2))
        self._day = -1
        self._past: deque[LiftDay] = deque(maxlen=DAYS_KEPT)

    @property
    def empty(self) -> bool:
        """Whether nothing has been compared."""
        return self._sums is None

    @classmethod
    def begun(cls, at: int, terms: ComparisonBody) -> LiftSums:
        """Return a comparison that begins at time `at`."""
        self = cls()
        self.terms, self.since = terms, at
        return self

    @classmethod
    def joined(cls, parts: Iterable[LiftSums]) -> LiftSums:
        """Return the sums of all users of several parts that have no user in common.

        All parts are about one comparison. Of former days the interval is unknown: it needs the
        buckets as they were then.

        >>> ana, ben = LiftSums(), LiftSums()
        >>> ana.add(0, 0, bucket_of("ana"), decisions=2, reward=1.0)
        >>> ben.add(0, 1, bucket_of("ben"), decisions=4, reward=1.0)
        >>> LiftSums.joined([ana, ben]).result().value
        0.25
        """
        self = cls()
        told = [one for one in parts if one.terms is not None or not one.empty]
        self.terms = next((one.terms for one in told if one.terms is not None), None)
        known = [one.since for one in told if one.since is not None]
        self.since = min(known) if known and len(known) == len(told) else None
        sums = [one._sums for one in told if one._sums is not None]
        if sums:
            self._sums = np.sum(sums, axis=0)
            self._fill_days(np.array([row for one in told for row in one._day_rows()]))
        return self

    def _day_rows(self) -> list[tuple[float, ...]]:
        """Return number and sums of each day."""
        rows: list[tuple[float, ...]] = [astuple(one)[:5] for one in self._past]
        return [*rows, (self._day, *self._today.ravel().tolist())] if self._day >= 0 else rows

    def _fill_days(self, rows: NDArray[np.float64]) -> None:
        """Add up rows of the same day; differences follow from what came later."""
        numbers, of = np.unique(rows[:, 0], return_inverse=True)
        sums = np.zeros((len(numbers), len(GROUPS) * 2))
        np.add.at(sums, of, rows[:, 1:])
        later = sums[::-1].cumsum(axis=0)[::-1] - sums
        until = self.totals().ravel() - later
        *former, self._day = numbers.astype(int).tolist()
        self._today = sums[-1].reshape(len(GROUPS), 2)
        for day, amounts, known in zip(former, sums.tolist(), until.tolist(), strict=False):
            values = (day, *amounts, _difference(*known), -math.inf, math.inf)
            self._past.append(LiftDay(*values))

    def add(
        self, at: int, group: int, bucket: int, *, decisions: int = 0, reward: float = 0.0
    ) -> None:
        """Add decisions, or a reward, of a user in this bucket, at time `at`."""
        if group == NO_GROUP:
            return
        if self._sums is None:
            # Most tenants compare nothing, and need none of this.
            self._sums = np.zeros((len(GROUPS), 2, BUCKETS))
        if at // DAY != self._day:
            self._end_day()
            self._day = at // DAY
        for column, amount in ((DECISIONS, decisions), (REWARD, reward)):
            self._sums[group, column, bucket] += amount
            self._today[group, column] += amount

    def result(self) -> Lift:
        """Return the rewards per decision of both groups and their difference, of all days."""
        sums = np.zeros((len(GROUPS), 2, 0)) if self._sums is None else self._sums
        treated, control = (_with_decisions(group) for group in sums)
        return lift(treated, control)

    def totals(self) -> NDArray[np.float64]:
        """Return decisions and reward (columns) of both groups (rows), of all days."""
        found = np.zeros((len(GROUPS), 2)) if self._sums is None else self._sums.sum(axis=2)
        return np.asarray(found)

    def days(self) -> list[LiftDay]:
        """Return all days that are kept, oldest first; the last one may not be over yet."""
        return [*self._past, *([self._latest()] if self._day >= 0 else [])]

    def _end_day(self) -> None:
        if self._day >= 0:
            self._past.append(self._latest())
        self._today = np.zeros((len(GROUPS), 2))

    def _latest(self) -> LiftDay:
        found = self.result()
        (treated, control) = self._today.tolist()
        return LiftDay(
            day=self._day,
            treated_decisions=treated[DECISIONS],
            treated_reward=treated[REWARD],
            control_decisions=control[DECISIONS],
            control_reward=control[REWARD],
            value=found.value,
            low=found.interval.low,
            high=found.interval.high,
        )

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return values for JSON, and arrays; buckets that are empty are left out."""
        sums = np.zeros((len(GROUPS), 2, 0)) if self._sums is None else self._sums
        used = np.flatnonzero(sums.any(axis=(0, 1)))
        past = [[_finite(value) for value in astuple(one)] for one in self._past]
        state = {
            "used": self._sums is not None,
            "day": self._day,
            "past": past,
            "terms": None if self.terms is None else astuple(self.terms),
            "since": self.since,
        }
        return {"lift": state}, {
            "lift_buckets": used,
            "lift_sums": sums[:, :, used],
            "lift_today": self._today,
        }

    @classmethod
    def restored(cls, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> LiftSums:
        """Return what `dump` was called on; nothing, if the state was written before there was."""
        self = cls()
        if (told := state.get("lift")) is None:
            return self
        if told.get("terms") is not None:
            self.terms, self.since = ComparisonBody(*told["terms"]), told["since"]
        if not told["used"]:
            return self
        self._sums = np.zeros((len(GROUPS), 2, BUCKETS))
        self._sums[:, :, arrays["lift_buckets"]] = arrays["lift_sums"]
        self._today, self._day = arrays["lift_today"], told["day"]
        for *known, low, high in told["past"]:
            ends = [-math.inf if low is None else low, math.inf if high is None else high]
            values = dict(zip(LiftDay.__struct_fields__, [*known, *ends], strict=True))
            self._past.append(convert(values, LiftDay))
        return self


def _with_decisions(group: NDArray[np.float64]) -> tuple[Any, Any]:
    """Return decisions and rewards of the buckets of a group in which somebody was served."""
    there = group[DECISIONS] > 0
    return group[DECISIONS][there], group[REWARD][there]


def _difference(
    treated_decisions: float, treated_reward: float, control_decisions: float, control_reward: float
) -> float:
    """Return the difference of the rewards per decision; those of nobody are 0."""
    treated = treated_reward / treated_decisions if treated_decisions else 0.0
    control = control_reward / control_decisions if control_decisions else 0.0
    return treated - control


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
