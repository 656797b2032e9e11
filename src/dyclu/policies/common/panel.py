"""`Panel`: a bounded sample of segments, each by itself (docs/theory.md §10.4).

The prior of tastes and the noise are learnt from it. Its sums are those of least squares, of clicks
as of real rewards: they do not depend on what was believed when a reward came.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.policies.common import columns
from dyclu.validation import FloatArray

PANEL = 128
"""Most segments of the panel."""

NONE = -1
"""No seat, no user."""

_ENDED = -2
"""A segment of user `u` that has ended has the owner ``_ENDED - u``."""

_HASH, _RANGE = 2654435761, 2**32


class Panel:
    """Sums of at most `PANEL` segments, a uniform sample of all segments ever begun.

    Attributes
    ----------
    gram, moment, sums : arrays of shape (room, p, p), (room, p) and (room, 4)
        ``Σ w zzᵀ``, ``Σ w zy``, and the columns named in `kernels.ledger`.
    owner : int array of shape (room,)
        Row of the user; below `NONE` if the segment has ended.
    rows : int
        Seats taken so far.
    """

    def __init__(self, dim: int) -> None:
        p = dim + 1
        self.gram = columns.new(np.float64, p, p)
        self.moment = columns.new(np.float64, p)
        self.sums = columns.new(np.float64, 4)
        self.owner = columns.new(np.int64)
        self._columns = columns.names(self)
        self.rows = 0

    def admit(self, user: int, number: int) -> tuple[int, int]:
        """Give segment `number` a seat with the probability ``PANEL / number``.

        Returns the seat, or `NONE`, and the user who has lost it, or `NONE`. Chance comes from a
        hash of the number.
        """
        seat = self.rows
        if seat == PANEL:
            seat = number * _HASH % _RANGE * number // _RANGE
            if seat >= PANEL:
                return NONE, NONE
        self.rows = max(self.rows, seat + 1)
        columns.make_room(self, self._columns, self.rows)
        left = int(self.owner[seat]) if self.sums[seat, kernels.ledger.RATIO] > 0.0 else NONE
        columns.clear(self, self._columns, seat)
        self.owner[seat], self.sums[seat, kernels.ledger.RATIO] = user, 1.0
        return seat, max(left, NONE)

    def empty(self, seat: int) -> None:
        """Remove the rewards of a segment; it keeps its seat, if it has one."""
        if seat != NONE:
            self.gram[seat], self.moment[seat] = 0.0, 0.0
            self.sums[seat] = 0.0
            self.sums[seat, kernels.ledger.RATIO] = 1.0

    def end(self, seat: int) -> None:
        """Note that a segment has ended; it keeps its seat."""
        self.owner[seat] = _ENDED - self.owner[seat]

    def forget(self, user: int) -> None:
        """Remove all segments of a user."""
        for seat in np.flatnonzero(np.isin(self.owner[: self.rows], (user, _ENDED - user))):
            columns.clear(self, self._columns, int(seat))
            self.owner[seat] = NONE

    def rename(self, user: int, into: int) -> None:
        """Note that a user has moved to another row."""
        for owner, other in ((user, into), (_ENDED - user, _ENDED - into)):
            self.owner[: self.rows][self.owner[: self.rows] == owner] = other

    def held(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the sums of all segments that have rewards."""
        rows = np.flatnonzero(self.sums[: self.rows, kernels.ledger.HELD] > 0.0)
        return self.gram[rows], self.moment[rows], self.sums[rows]

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        return {"rows": self.rows}, columns.dump(self, self._columns, self.rows)

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        self.rows = state["rows"]
        columns.fill(self, self._columns, self.rows, arrays)
