"""`Deadlines`: until when the reward of each pending decision is accepted.

`reward_wait` is a duration. A wall clock measures durations badly: it can be set, and it can be
wrong when a machine starts. A steady (monotonic) clock cannot be set, but its values mean nothing
to the next process. So both are used:

- While the service runs, only the steady clock is used. Every decision has its full `reward_wait`,
  even if the wall clock is set.
- At a start, the wall clock says how much of a decision's time is left, since nothing else knows
  how long the service was down; that time counts. It is never more than the decision had at first:
  if the clock was ahead when the decision was made, or was set back since, its full time starts
  again.

So no decision is pending for longer than its full time after the latest start, and none ends early
while the service runs. One case remains: if the wall clock is ahead *at a start*, compared with the
clock when the decisions were made, this looks like a long time down, and decisions end early.

Times of lines in the journal are the wall clock's, but never decrease. They are shown, counted and
exported; deadlines do not depend on them while the service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from dyclu.service.engine.lines import MICRO
from dyclu.service.engine.state import Pending

STALE_KEPT = 1000
"""Deadlines of ended decisions that may be kept, in addition to one per pending decision."""


class Deadlines:
    """The deadline of each pending decision, in whole microseconds of a steady clock.

    Examples
    --------
    >>> seconds = iter([100.0, 159.0, 160.0])
    >>> deadlines = Deadlines(lambda: next(seconds))
    >>> deadlines.grant(7, 60 * MICRO)
    >>> deadlines.passed(7), deadlines.passed(7)
    (False, True)
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._until: dict[int, int] = {}
        self._order: list[tuple[int, int]] = []

    def resume(self, pending: Mapping[int, Pending], *, wall: int, longest: int) -> None:
        """Add decisions that an earlier process made; `wall` is the wall clock's time now.

        A decision gets at most its own full time, or `longest` if that is more: its own time is too
        short if the journal's times were ahead of the wall clock when it was made.
        """
        for seq, one in pending.items():
            self.grant(seq, min(one.until - wall, max(one.wait, longest)))

    def grant(self, seq: int, wait: int) -> None:
        """Set the deadline of a decision to `wait` from now."""
        self._until[seq] = self._now() + wait
        heappush(self._order, (self._until[seq], seq))

    def passed(self, seq: int) -> bool:
        """Return whether a decision's time is over."""
        return self._until[seq] <= self._now()

    def overdue(self, pending: Mapping[int, Pending], *, most: int) -> list[int]:
        """Return the pending decisions whose time is over, at most `most`, the earliest first."""
        self._drop_stale(pending)
        now, found = self._now(), list[tuple[int, int]]()
        while self._order and self._order[0][0] <= now and len(found) < most:
            until, seq = heappop(self._order)
            if seq not in pending:
                self._until.pop(seq, None)
            elif self._until[seq] == until:
                found.append((until, seq))
        for one in found:
            # They stay overdue until a line that ends them is on disk.
            heappush(self._order, one)
        return [seq for _, seq in found]

    def _drop_stale(self, pending: Mapping[int, Pending]) -> None:
        if len(self._order) > 2 * len(pending) + STALE_KEPT:
            self._until = {seq: self._until[seq] for seq in pending}
            self._order = [(until, seq) for seq, until in self._until.items()]
            heapify(self._order)

    def _now(self) -> int:
        return round(self._steady() * MICRO)
