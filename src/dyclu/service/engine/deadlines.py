"""`Deadlines`: for how long the reward of each decision is still waited for.

`reward_wait` is a length of time, and a wall clock is a poor measure of one: it is set, it may be
wrong when a machine starts, and it must not decide over what is learnt. A steady clock cannot be
set, but starts at any number and means nothing to the next process. So each is asked for what it is
good for:

- While the service runs, only the steady clock counts. Whatever the wall clock does, forward or
  back, every decision has its full `reward_wait`, and ends then.
- At a start, what is left of a decision's time is what the wall clock says, as nothing else knows
  how long the service was down; time down counts. It is never more than the decision had at first:
  if the clock was ahead when it was made, or has been set back since, its time begins anew.

So nothing waits longer than its full time after the latest start, and nothing that is waited for
while the service runs ends early. What remains: a clock that is ahead *at a start*, of the one that
decisions were made by, looks like a long time down, and ends what would have ended by then.

Times of lines in the journal are the wall clock's, held where they are while it runs behind; they
are shown, counted and exported, but nothing waits by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from dyclu.service.engine.records import MICRO
from dyclu.service.engine.state import Pending

STALE_KEPT = 1000
"""Deadlines of decisions that have ended which are kept beside as many as there are pending."""


class Deadlines:
    """Until when decisions are waited for, in whole microseconds of a steady clock.

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
        """Take up decisions that an earlier process made, at this time of the wall clock.

        None is given more than its own wait; where that is not known, as the journal's times were
        ahead of the clock when it was made, more than `longest`.
        """
        for seq, one in pending.items():
            self.grant(seq, min(one.until - wall, max(one.wait, longest)))

    def grant(self, seq: int, wait: int) -> None:
        """Wait for a decision so long from now on."""
        self._until[seq] = self._now() + wait
        heappush(self._order, (self._until[seq], seq))

    def passed(self, seq: int) -> bool:
        """Tell whether a decision's time is over."""
        return self._until[seq] <= self._now()

    def overdue(self, pending: Mapping[int, Pending], *, most: int) -> list[int]:
        """Return those of the pending whose time is over, the one that was due first in front."""
        self._drop_stale(pending)
        now, found = self._now(), list[tuple[int, int]]()
        while self._order and self._order[0][0] <= now and len(found) < most:
            until, seq = heappop(self._order)
            if seq not in pending:
                self._until.pop(seq, None)
            elif self._until[seq] == until:
                found.append((until, seq))
        for one in found:
            # They are due until a line that ends them is safe.
            heappush(self._order, one)
        return [seq for _, seq in found]

    def _drop_stale(self, pending: Mapping[int, Pending]) -> None:
        if len(self._order) > 2 * len(pending) + STALE_KEPT:
            self._until = {seq: self._until[seq] for seq in pending}
            self._order = [(until, seq) for seq, until in self._until.items()]
            heapify(self._order)

    def _now(self) -> int:
        return round(self._steady() * MICRO)
