"""`SegmentTable`: all segments, stacked in arrays. It is the only mutable state of DyClu.

A *segment* is the `Stats` of one user between two changes. It is opened empty, grows by one
observation at a time, and is closed when its user changes. Closed segments stay, because users may
resemble them later. Ids count up from 0 and are never reused. A segment lies in the row of its id,
unless the table folds closed segments (`restart`): then rows are reused.

The table also keeps what the tests need at every reward: a generalised inverse of the gram, the
least-squares estimate and the rank. An observation changes them by a rank-one update. They are
computed afresh when the segment comes to span the space, while the gram is nearly singular, and
every `REFRESH` observations, so that rounding errors stay small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.core.noise import Residuals
from dyclu.core.stats import ROUNDING, Stats, least_squares, overlap, rank
from dyclu.kernels.arrays import Found, SegmentArrays
from dyclu.policies.common import columns
from dyclu.policy import Change, no_ids
from dyclu.validation import FloatArray, Ids, User

REFRESH = 512
"""Rank-one updates in a row before the inverse is computed afresh."""

CONDITION = 1e7
"""Largest trace(A)·trace(A⁻¹) at which a rank-one update is accurate enough."""

HEAD = 8
"""Number of leading features of an estimate that are compared first."""

OPEN = -1
"""Value of `closed` for a segment that is still open."""

NEVER = -1
"""A time before all others: no segment was closed by then."""

NOBODY = -1
"""Row of a user who has no open segment."""

STORED_AS = {"inverse_bound": "spread", "compared": "met", "reused": "used"}
"""Names in saved files of the columns that are named differently there."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The observations of one user between two changes.

    Attributes
    ----------
    id : int
        Number of the segment, in the order in which they were opened, from 0.
    user : str or int
        Whose observations they are.
    opened, closed : int and (int or None)
        Number of rewards, of all users, learnt before it was opened and closed; None if open.
    stats : Stats
        The sums of the observations.
    """

    id: int
    user: User
    opened: int
    closed: int | None
    stats: Stats


class Sums(NamedTuple):
    """Sums of several segments: the fields of `Stats`, not yet wrapped."""

    gram: FloatArray
    moment: FloatArray
    energy: float
    observations: int


class ClosedPart(NamedTuple):
    """The neighbours that were already closed when a neighbourhood was found, and their sums."""

    rows: Ids
    sums: Sums


class SegmentTable:
    """All segments, one per row of every array.

    The arrays have spare rows: only the first ``len(table)`` rows are in use.

    Attributes
    ----------
    gram, moment, energy, count : arrays of shape (rows, d, d), (rows, d), (rows,), (rows,)
        The sums of every segment.
    inverse, theta, rank : arrays of shape (rows, d, d), (rows, d), (rows,)
        Computed from the sums: ``A⁻``, an estimate ``ϑ``, and the rank of the gram.
    inverse_bound : array of shape (rows,)
        Upper bound on the eigenvalues of ``A⁻``.
    theta_head : array of shape (at most `HEAD`, rows)
        The first features of all estimates, feature by feature, for a quick first comparison.
    growth : array of shape (rows, 3)
        How much a segment may have moved away from others since a comparison: see `neighbours`.
    opened, closed : arrays of shape (rows,)
        When each segment was opened and closed; `OPEN` if it was not closed.
    id : array of shape (rows,)
        Which segment lies in each row.
    compared : array of shape (rows,)
        When the neighbourhood of an open segment was found.
    reused : array of shape (rows,)
        Since when the row holds its present segment.
    owner : list of user
        The user of the segment in each row.
    open : dict of user to row
        The open segment of every user.
    surprises, neighbours : dicts of row to tuple of bool, and of row to array of rows
        The alarm's window and the neighbourhood of every open segment.
    bounds, closed_parts : dicts of row to array of shape (n, 3), and of row to ClosedPart
        Bounds found with the neighbourhood, and the sums that no longer change. Both are empty in
        a table that folds segments.
    changes : list of Change
        All changes noticed so far, in order.
    residuals : Residuals
        The running estimate of the noise.
    clock : int
        Number of rewards learnt so far, of all users.
    next_id : int
        Id of the next segment.
    arrays, work : SegmentArrays and Found
        The arrays above, and space for results, as the kernels take them.
    """

    theta_head: FloatArray
    arrays: SegmentArrays
    work: Found

    def __init__(self, dim: int, *, folding: bool = False, certainty: float | None = None) -> None:
        self.dim, self.folding, self.certainty = dim, folding, certainty
        self.clock = 0
        self.residuals = Residuals()
        self.owner: list[User] = []
        self.open: dict[User, int] = {}
        self.surprises: dict[int, tuple[bool, ...]] = {}
        self.neighbours: dict[int, Ids] = {}
        self.bounds: dict[int, FloatArray] = {}
        self.closed_parts: dict[int, ClosedPart] = {}
        self.changes: list[Change] = []
        self.next_id = 0
        self.gram = columns.new(np.float64, dim, dim)
        self.moment = columns.new(np.float64, dim)
        self.energy = columns.new(np.float64)
        self.count = columns.new(np.int64)
        self.inverse = columns.new(np.float64, dim, dim)
        self.theta = columns.new(np.float64, dim)
        self.inverse_bound = columns.new(np.float64)
        self.rank = columns.new(np.int64)
        self.id = columns.new(np.int64)
        self.compared = columns.new(np.int64)
        self.reused = columns.new(np.int64)
        self.opened = columns.new(np.int64)
        self.closed = columns.new(np.int64)
        self._columns = columns.names(self)
        self.growth = columns.new(np.float64, 3)
        self._unsaved = ("growth",)
        self._renew_arrays()
        self._nothing = ClosedPart(no_ids(), Sums(np.zeros((dim, dim)), np.zeros(dim), 0.0, 0))

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, row: int) -> Segment:
        closed = int(self.closed[row])
        return Segment(
            int(self.id[row]),
            self.owner[row],
            int(self.opened[row]),
            None if closed == OPEN else closed,
            self.stats(row),
        )

    # Questions

    def stats(self, row: int) -> Stats:
        """Return a copy of the sums of one segment."""
        return Stats(
            self.gram[row].copy(),
            self.moment[row].copy(),
            float(self.energy[row]),
            int(self.count[row]),
        )

    def total(self, rows: Ids) -> Stats:
        """Return the sum of several segments' `Stats`."""
        return Stats(*self._sums(rows, NEVER, self._nothing.sums))

    def pooled(self, user: User) -> Sums:
        """Return the sums over the neighbours of a user."""
        row = self.open.get(user, NOBODY)
        if row == NOBODY or self.folding:
            return self._sums(self.around(user), NEVER, self._nothing.sums)
        part = self.closed_parts.get(row) or self._closed_part(row)
        return self._sums(self.neighbours[row], int(self.compared[row]), part.sums)

    def around(self, user: User) -> Ids:
        """Return the rows of a user's neighbours; for an unknown user, the rows of all segments.

        Rows that were reused since the neighbours were found are left out.
        """
        row = self.open.get(user)
        return np.arange(len(self)) if row is None else self._present_neighbours(row)

    def _present_neighbours(self, row: int) -> Ids:
        found = self.neighbours[row]
        reused = self.next_id != len(self)
        return found[self.reused[found] <= self.compared[row]] if reused else found

    def known(self, row: int) -> tuple[Ids, FloatArray]:
        """Return the neighbours of a segment for which bounds are stored, and the bounds."""
        bounds = self.bounds.get(row)
        if bounds is None:
            return no_ids(), np.empty((0, 3))
        return self.neighbours[row], bounds

    def ids(self, rows: Ids) -> Ids:
        """Return the ids of the segments in these rows, in ascending order."""
        return rows.copy() if self.next_id == len(self) else np.sort(self.id[rows])

    def by_id(self) -> Ids:
        """Return all rows, ordered by the ids of their segments."""
        return np.argsort(self.id[: len(self)])

    def groups(self) -> Iterator[Ids]:
        """Yield the rows of the open segments in groups: one segment first, then its neighbours.

        The segment with most observations takes all its neighbours, then the next that is left.
        """
        rows = np.fromiter(self.open.values(), dtype=np.intp, count=len(self.open))
        free = np.zeros(len(self), dtype=np.bool_)
        free[rows] = True
        for row in rows[np.lexsort((self.id[rows], -self.count[rows]))].tolist():
            if free[row]:
                found = self._present_neighbours(row)
                found = found[free[found] & (found != row)]
                free[row] = free[found] = False
                yield np.append(row, found)

    def shares(self, rows: Ids, *, least: int) -> bool:
        """Return whether one of these open segments has a neighbour of another user.

        Neighbours with fewer than `least` observations do not count: almost nothing contradicts
        them.
        """
        return any(
            self.owner[near] != self.owner[row] and self.count[near] >= least
            for row in rows.tolist()
            for near in self._present_neighbours(row).tolist()
        )

    def archived(self) -> Ids:
        """Return the rows of all closed segments."""
        return np.flatnonzero(self.closed[: len(self)] != OPEN)

    def comparable(self, a: int, b: int) -> bool:
        """Return whether the span of one of two segments contains the span of the other."""
        least = int(min(self.rank[a], self.rank[b]))
        return least > 0 and overlap(self.stats(a), self.stats(b))[0] == least

    def surprise(self, row: int, context: FloatArray, reward: float) -> tuple[float, int]:
        """Return ``σ² s`` and df of the test of a segment against one observation.

        Eq. (1) with a single observation on one side is the squared prediction error in units of
        its own variance, ``σ² s = (y − xᵀϑ)² / (1 + xᵀA⁻x)``, if the context lies in the span of
        the segment's contexts. Otherwise nothing can be compared, and df is 0.
        """
        expected, leverage = kernels.segments.predict(self.inverse, self.theta, row, context)
        if leverage <= 0 or not self.spans(row, context):
            return 0.0, 0
        error = reward - expected
        return error * error / (1 + leverage), 1

    def spans(self, row: int, context: FloatArray) -> bool:
        """Return whether a context lies in the span of a segment's contexts."""
        if self.rank[row] == self.dim:
            return True
        count, known = int(self.count[row]) + 1, int(self.rank[row])
        tolerance = ROUNDING * (self.dim + count)
        wider = kernels.segments.widened_rank(self.gram[row], context, known, tolerance)
        if wider < 0:  # rounding leaves it open
            wider = int(rank(self.gram[row] + np.outer(context, context), count))
        return bool(wider <= known)

    # Changes

    def start(self, user: User) -> int:
        """Open an empty segment for a user and close their present one; return the new row."""
        if user in self.open:
            self._close(self.open[user])
        if len(self) == len(self.theta):
            self._make_room(len(self) + 1)
        self.owner.append(user)
        return self._open(user, len(self) - 1)

    def restart(self, user: User, *, into: int, alike: bool) -> int:
        """Like `start`, but reuse the row: the present segment is folded into a closed one.

        If the two are alike they are added. Otherwise the one with more observations stays, in row
        `into`, and the other is dropped.
        """
        row = self.open[user]
        self._close(row)
        if alike:
            self._fold(row, into)
        elif self.count[row] > self.count[into]:
            columns.copy(self, self._columns, row, into)
            self.owner[into], self.reused[into] = user, self.clock
        columns.clear(self, self._columns, row)
        self._copy_head(row)
        self._copy_head(into)
        return self._open(user, row)

    def add(self, row: int, context: FloatArray, reward: float, *, spanned: bool) -> None:
        """Add one observation to a segment; `spanned` is the answer of `spans` for its context."""
        if not kernels.segments.extend(
            *self.arrays, row, context, reward, spanned, CONDITION, REFRESH, ROUNDING
        ):
            self._compute_afresh(row)

    def set_neighbours(self, row: int, found: Ids, bounds: FloatArray) -> None:
        """Store the neighbourhood of an open segment."""
        self.neighbours[row], self.compared[row] = found, self.clock
        if not self.folding:
            self.bounds[row] = bounds
            self._store_closed_part(row)

    def without(self, user: User) -> SegmentTable:
        """Return a table without the segments and changes of a user; all other ids stay."""
        kept = np.array([owner != user for owner in self.owner], dtype=np.bool_)
        moved = np.cumsum(kept) - 1
        table = SegmentTable(self.dim, folding=self.folding, certainty=self.certainty)
        table.clock, table.next_id, table.residuals = self.clock, self.next_id, self.residuals
        table.owner = [owner for owner in self.owner if owner != user]
        table.changes = [change for change in self.changes if change.user != user]
        table._make_room(len(table))
        rows = columns.dump(self, self._columns, len(self))
        columns.fill(table, table._columns, len(table), {name: rows[name][kept] for name in rows})
        table._renew_arrays()
        table.open = {who: int(moved[row]) for who, row in self.open.items() if kept[row]}
        for row in np.flatnonzero(kept & (self.closed[: len(self)] == OPEN)).tolist():
            found = self.neighbours[row]
            table.surprises[int(moved[row])] = self.surprises[row]
            table.neighbours[int(moved[row])] = moved[found[kept[found]]]
        return table

    def _open(self, user: User, row: int) -> int:
        self.open[user], self.id[row] = row, self.next_id
        self.next_id += 1
        self.opened[row], self.reused[row], self.closed[row] = self.clock, self.clock, OPEN
        self.surprises[row], self.neighbours[row] = (), no_ids()
        return row

    def _close(self, row: int) -> None:
        self.closed[row] = self.clock
        user, before, after = self.owner[row], int(self.id[row]), self.next_id
        self.changes.append(Change(user, self.clock, before, after, self.certainty))
        del self.surprises[row], self.neighbours[row]
        self.bounds.pop(row, None)
        self.closed_parts.pop(row, None)

    def _fold(self, row: int, into: int) -> None:
        for column in (self.gram, self.moment, self.energy, self.count):
            column[into] += column[row]
        self._compute_afresh(into)

    # Sums over a neighbourhood

    def _store_closed_part(self, row: int) -> None:
        found, time, before = (
            self.neighbours[row],
            int(self.compared[row]),
            self.closed_parts.get(row),
        )
        if before is None or not kernels.segments.same_closed(
            self.closed, found, time, before.rows
        ):
            self.closed_parts[row] = self._closed_part(row)

    def _closed_part(self, row: int) -> ClosedPart:
        """Return the neighbours that were closed when they were found, and their sums."""
        found = self.neighbours[row]
        closed = self.closed[found]
        rows = found[(closed != OPEN) & (closed <= self.compared[row])]
        nothing = self._nothing.sums
        return ClosedPart(rows, self._sums(rows, NEVER, nothing) if len(rows) else nothing)

    def _sums(self, rows: Ids, time: int, before: Sums) -> Sums:
        """Return `before` plus the sums of those rows that were not closed by `time`."""
        gram, moment = before.gram.copy(), before.moment.copy()
        energy, count = kernels.segments.add_sums(
            self.gram, self.moment, self.energy, self.count, self.closed, rows, time, gram, moment
        )
        return Sums(gram, moment, before.energy + float(energy), before.observations + int(count))

    # Quantities computed from the sums

    def _compute_afresh(self, row: int) -> None:
        """Compute rank, inverse and estimate of a segment from its sums."""
        self.rank[row], inverse, self.theta[row] = least_squares(
            self.gram[row], self.moment[row], int(self.count[row])
        )
        self.inverse[row] = (inverse + inverse.T) / 2  # exactly symmetric: see `add_outer`
        self.inverse_bound[row] = kernels.linalg.eigenvalue_bound(self.inverse[row])
        self._copy_head(row)

    def _copy_head(self, row: int) -> None:
        self.theta_head[:, row] = self.theta[row, :HEAD]

    def _make_room(self, rows: int) -> None:
        """Grow all columns, and renew what refers to them."""
        del self.arrays  # columns that it refers to could not grow where they are
        try:
            columns.make_room(self, (*self._columns, *self._unsaved), rows)
        finally:
            self._renew_arrays()

    def _renew_arrays(self) -> None:
        """Allocate the arrays that must be as long as the columns; call it when they grow."""
        rows = len(self.theta)
        self.theta_head = self.theta[:, :HEAD].T.copy()
        self.work = Found(np.empty(rows, np.intp), np.empty((rows, 3)), np.empty(rows, np.intp))
        self.arrays = SegmentArrays(
            self.gram, self.moment, self.energy, self.count, self.inverse, self.theta,
            self.theta_head, self.inverse_bound, self.growth, self.rank,
        )  # fmt: skip

    # Saving

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        stored = columns.dump(self, self._columns, len(self)).items()
        arrays = {STORED_AS.get(name, name): array for name, array in stored}
        rows = sorted(self.open.values())
        arrays["surprises"], arrays["surprises_held"] = _pack([self.surprises[i] for i in rows])
        arrays["neighbours"], arrays["neighbours_held"] = _pack([self.neighbours[i] for i in rows])
        state = {
            "clock": self.clock,
            "given": self.next_id,
            "owner": self.owner,
            "residuals": asdict(self.residuals),
            "changes": [(one.user, one.at, one.before, one.after) for one in self.changes],
        }
        return state, arrays

    @classmethod
    def restored(
        cls,
        dim: int,
        state: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        *,
        folding: bool = False,
        certainty: float | None = None,
    ) -> SegmentTable:
        """Return the table that `dump` described."""
        table = cls(dim, folding=folding, certainty=certainty)
        table.clock, table.next_id = state["clock"], state["given"]
        table.owner = list(state["owner"])
        table.residuals = Residuals(**state["residuals"])
        table.changes = [
            Change(user, at, before, after, certainty)
            for user, at, before, after in state["changes"]
        ]
        table._make_room(len(table))
        stored = {name: arrays[STORED_AS.get(name, name)] for name in table._columns}
        columns.fill(table, table._columns, len(table), stored)
        table._renew_arrays()
        rows = np.flatnonzero(table.closed[: len(table)] == OPEN).tolist()
        table.open = {table.owner[row]: row for row in rows}
        surprises = _unpack(arrays["surprises"], arrays["surprises_held"])
        neighbours = _unpack(arrays["neighbours"], arrays["neighbours_held"])
        table.surprises = {i: tuple(map(bool, s)) for i, s in zip(rows, surprises, strict=True)}
        table.neighbours = {i: v.astype(np.intp) for i, v in zip(rows, neighbours, strict=True)}
        return table


def _pack(rows: Sequence[Sequence[int] | Ids]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    held = np.array([len(row) for row in rows], dtype=np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows] or [held])
    return flat, held


def _unpack(flat: NDArray[Any], held: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(flat, np.cumsum(held)[:-1]) if len(held) else []
