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

Times of lines in the journal are the wall clock's, but never decrease, and a jump of the clock is
believed only after a while (`clock`). They are shown, counted and
exported; deadlines do not depend on them while the service runs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dyclu.service.engine.lines import MICRO
from dyclu.service.engine.waiting.table import WaitingTable


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
        self._table = WaitingTable("due", due=np.int64)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all deadlines take."""
        return self._table.nbytes

    def resume(self, pending: WaitingTable, *, wall: int, longest: int) -> None:
        """Add decisions that an earlier process made; `wall` is the wall clock's time now.

        A decision gets at most its own full time, or `longest` if that is more: its own time is too
        short if the journal's times were ahead of the wall clock when it was made.
        """
        full = np.maximum(pending.column("wait"), longest)
        left = np.minimum(pending.column("until") - wall, full)
        self._table.fill(seq=pending.column("seq"), due=self._now() + left)

    def grant(self, seq: int, wait: int) -> None:
        """Set the deadline of a decision to `wait` from now."""
        due = self._now() + wait
        if seq in self._table:
            self._table.put(seq, due=due)
        else:
            self._table.add(seq, due=due)

    def drop(self, seq: int) -> None:
        """Remove a decision that has ended."""
        self._table.remove(seq)

    def passed(self, seq: int) -> bool:
        """Return whether a decision's time is over."""
        return self._table.get(seq, "due") <= self._now()

    def overdue(self, *, most: int) -> list[int]:
        """Return the decisions whose time is over, at most `most`, the earliest first.

        They stay overdue until they are dropped, when a line that ends them is on disk.
        """
        return self._table.upto(self._now(), most=most)

    def _now(self) -> int:
        return round(self._steady() * MICRO)
