"""`Segments`: the book of all segments, stacked in arrays; the only mutable state of DyClu.

A *segment* is the `Stats` of one user between two change points. It is opened empty, grows by one
observation at a time, and is closed when its user changes; closed ones stay, because somebody may
come to resemble them. Ids count up from 0 and are never reused. A segment lies in the row of its
id, unless closed ones are folded into each other (`restart`): then rows are.

Beside the sums, the book keeps what the tests would otherwise compute again and again: a
generalised inverse of the gram, the least-squares estimate and the rank. An observation changes
them by a rank-one update; they are computed afresh when the segment comes to span the space, while
the gram is nearly singular, and every `REFRESH` observations: rounding cannot pile up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyclu import columns
from dyclu.columns import Columns
from dyclu.compute import kernels
from dyclu.noise import Residuals
from dyclu.policy import Ids, no_ids
from dyclu.stats import ROUNDING, Stats, least_squares, overlap, rank
from dyclu.validation import FloatArray, User

REFRESH = 512
"""Rank-one updates in a row before the inverse is computed afresh."""

CONDITION = 1e7
"""Largest trace(A)·trace(A⁻¹) at which a rank-one update is trusted; it loses that many digits."""

GLIMPSE = 8
"""Features of an estimate that are looked at first."""

OPEN = -1
"""Closing time of a segment that is still open."""

NEVER = -1
"""A time by which nothing was closed."""

NOBODY = -1
"""Row of a user who has no open segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One user's observations between two change points.

    Attributes
    ----------
    id : int
        Counted from 0, in the order they were opened.
    user : str or int
        Whose observations they are.
    opened, closed : int and (int or None)
        How many rewards the policy had learnt, of all users, when it was opened and closed.
    stats : Stats
        The observations' sums.
    """

    id: int
    user: User
    opened: int
    closed: int | None
    stats: Stats


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was noticed: `before` was closed and `after` opened, at reward number `at`."""

    user: User
    at: int
    before: int
    after: int


class Kept(NamedTuple):
    """Of a neighbourhood: those who were closed when it was found, and their sums."""

    rows: Ids
    gram: FloatArray
    moment: FloatArray
    energy: float
    held: int


class Segments:
    """The book of segments, one per row of every array.

    Arrays have room to grow: only the first ``len(book)`` rows are in use.

    Attributes
    ----------
    gram, moment, energy, count : arrays of shape (room, d, d), (room, d), (room,), (room,)
        The sums of every segment.
    inverse, theta, spread, rank : arrays of shape (room, d, d), (room, d), (room,), (room,)
        What follows from them: ``A⁻``, an estimate ``ϑ``, a bound on its eigenvalues, the rank.
    glimpse : array of shape (at most `GLIMPSE`, room)
        The first features of all estimates, one after the other: whoever is far, is so in these.
    space : arrays of shape (room,), (room, 2) and (room,)
        Room to work in for whoever compares segments.
    strain : array of shape (room, 2)
        By how much more than before a segment may differ from others: see `neighbours`.
    opened, closed : arrays of shape (room,)
        When each was opened and closed; `OPEN` if it was not.
    id : array of shape (room,)
        Which segment lies in each row.
    owner : list of user
        Whose the segment in each row is.
    open : dict of user to row
        Everybody's open segment.
    surprises, neighbours : dicts of row to tuple of bool, and to array of row
        The alarm's window and the neighbourhood of open segments.
    bounds, kept : dicts of row to array of shape (n, 2), and to Kept
        How far neighbours were when they were looked at, and their sums as far as these stay;
        nothing of it in a book that folds segments.
    met, used : arrays of shape (room,)
        When the neighbourhood of an open segment was found, and since when a row holds its data.
    changes : list of Change
        All changes noticed so far, in their order.
    residuals : Residuals
        The running estimate of the noise.
    clock : int
        Rewards learnt so far, of all users.
    """

    gram: FloatArray
    moment: FloatArray
    energy: FloatArray
    count: NDArray[np.int64]
    inverse: FloatArray
    theta: FloatArray
    spread: FloatArray
    glimpse: FloatArray
    strain: FloatArray
    rank: NDArray[np.int64]
    id: NDArray[np.int64]
    met: NDArray[np.int64]
    used: NDArray[np.int64]
    opened: NDArray[np.int64]
    closed: NDArray[np.int64]

    def __init__(self, dim: int, *, folding: bool = False) -> None:
        self.dim, self.folding = dim, folding
        self.clock = 0
        self.residuals = Residuals()
        self.owner: list[User] = []
        self.open: dict[User, int] = {}
        self.surprises: dict[int, tuple[bool, ...]] = {}
        self.neighbours: dict[int, Ids] = {}
        self.bounds: dict[int, FloatArray] = {}
        self.kept: dict[int, Kept] = {}
        self.changes: list[Change] = []
        self.given = 0
        self._columns: Columns = {
            "gram": ((dim, dim), np.float64),
            "moment": ((dim,), np.float64),
            "energy": ((), np.float64),
            "count": ((), np.int64),
            "inverse": ((dim, dim), np.float64),
            "theta": ((dim,), np.float64),
            "spread": ((), np.float64),
            "rank": ((), np.int64),
            "id": ((), np.int64),
            "met": ((), np.int64),
            "used": ((), np.int64),
            "opened": ((), np.int64),
            "closed": ((), np.int64),
        }
        self._passing: Columns = {"strain": ((2,), np.float64)}
        columns.lay(self, self._columns)
        columns.lay(self, self._passing)
        self._lay_beside()
        self._nothing = Kept(no_ids(), np.zeros((dim, dim)), np.zeros(dim), 0.0, 0)

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

    def stats(self, row: int) -> Stats:
        """Return a copy of one segment's sums."""
        return Stats(
            self.gram[row].copy(),
            self.moment[row].copy(),
            float(self.energy[row]),
            int(self.count[row]),
        )

    def total(self, rows: Ids) -> Stats:
        """Return the sum of several segments' `Stats`."""
        return Stats(*self._sums(rows, NEVER, self._nothing))

    def pooled(self, user: User) -> tuple[FloatArray, FloatArray, float, int]:
        """Return gram, moment, energy and count of the sum of a user's neighbours."""
        row = self.open.get(user, NOBODY)
        kept = self.kept.get(row)
        if kept is None:
            return self._sums(self.around(user), NEVER, self._nothing)
        return self._sums(self.neighbours[row], int(self.met[row]), kept)

    def around(self, user: User) -> Ids:
        """Return the rows of a user's neighbours, of everybody for a stranger.

        Rows whose data were folded away since the neighbours were found are left out.
        """
        row = self.open.get(user)
        if row is None:
            return np.arange(len(self))
        found = self.neighbours[row]
        return found if self.given == len(self) else found[self.used[found] <= self.met[row]]

    def known(self, row: int) -> tuple[Ids, FloatArray]:
        """Return the neighbours that bounds are known of, and these."""
        bounds = self.bounds.get(row)
        return (no_ids(), np.empty((0, 2))) if bounds is None else (self.neighbours[row], bounds)

    def meet(self, row: int, found: Ids, bounds: FloatArray) -> None:
        """Let an open segment have these neighbours from now on."""
        self.neighbours[row], self.met[row] = found, self.clock
        if not self.folding:
            self.bounds[row] = bounds
            self._keep(row)

    def _keep(self, row: int) -> None:
        """Sum up the neighbours that were closed when they were found, unless they are the same."""
        found, time, before = self.neighbours[row], int(self.met[row]), self.kept.get(row)
        if before is not None and kernels().same_closed(self.closed, found, time, before.rows):
            return
        closed = self.closed[found]
        rows = found[(closed != OPEN) & (closed <= time)]
        sums = self._sums(rows, NEVER, self._nothing) if len(rows) else self._nothing[1:]
        self.kept[row] = Kept(rows, *sums)

    def _sums(self, rows: Ids, time: int, kept: Kept) -> tuple[FloatArray, FloatArray, float, int]:
        """Return what is kept, and the sums of the rows that were not closed by a time."""
        gram, moment = kept.gram.copy(), kept.moment.copy()
        energy, count = kernels().gather(
            self.gram, self.moment, self.energy, self.count, self.closed, rows, time, gram, moment
        )
        return gram, moment, kept.energy + float(energy), kept.held + int(count)

    def ids(self, rows: Ids) -> Ids:
        """Return which segments lie in these rows, in order."""
        return rows.copy() if self.given == len(self) else np.sort(self.id[rows])

    def by_id(self) -> Ids:
        """Return all rows, in the order of the ids of what lies in them."""
        return np.argsort(self.id[: len(self)])

    def comparable(self, a: int, b: int) -> bool:
        """Tell whether one of two segments has seen nothing but what the other has seen too."""
        least = int(min(self.rank[a], self.rank[b]))
        return least > 0 and overlap(self.stats(a), self.stats(b))[0] == least

    def archived(self) -> Ids:
        """Return the rows of all closed segments."""
        return np.flatnonzero(self.closed[: len(self)] != OPEN)

    def surprise(self, row: int, context: FloatArray, reward: float) -> tuple[float, int]:
        """Return ``σ² s`` and df of the test of a segment against one observation.

        Eq. (1) with one observation on one side is the squared error of its prediction, in units
        of that error's own variance, ``σ² s = (y − xᵀϑ)² / (1 + xᵀA⁻x)``, if the context lies in
        the span of the segment's contexts; otherwise there is no prediction to compare it with.
        """
        expected, leverage = kernels().predict(self.inverse, self.theta, row, context)
        if leverage <= 0 or not self.spans(row, context):
            return 0.0, 0
        error = reward - expected
        return error * error / (1 + leverage), 1

    def start(self, user: User) -> int:
        """Open an empty segment for a user, closing the present one; return its row."""
        if user in self.open:
            self._close(self.open[user])
        self.owner.append(user)
        columns.make_room(self, self._columns, len(self))
        columns.make_room(self, self._passing, len(self))
        if self.glimpse.shape[1] < len(self.theta):
            self._lay_beside()
        return self._open(user, len(self) - 1)

    def restart(self, user: User, *, into: int, alike: bool) -> int:
        """Do the same in the row of the present segment, whose data go to another closed one.

        Those that are alike add up. Otherwise whichever has more observations stays.
        """
        row = self.open[user]
        self._close(row)
        if alike:
            self._fold(row, into)
        elif self.count[row] > self.count[into]:
            columns.copy(self, self._columns, row, into)
            self.owner[into], self.used[into] = user, self.clock
        columns.clear(self, self._columns, row)
        self._glimpse(row)
        self._glimpse(into)
        return self._open(user, row)

    def _open(self, user: User, row: int) -> int:
        self.open[user], self.id[row] = row, self.given
        self.given += 1
        self.opened[row], self.used[row], self.closed[row] = self.clock, self.clock, OPEN
        self.surprises[row], self.neighbours[row] = (), no_ids()
        return row

    def _close(self, row: int) -> None:
        self.closed[row] = self.clock
        self.changes.append(Change(self.owner[row], self.clock, int(self.id[row]), self.given))
        del self.surprises[row], self.neighbours[row]
        self.bounds.pop(row, None)
        self.kept.pop(row, None)

    def _fold(self, row: int, into: int) -> None:
        for column in (self.gram, self.moment, self.energy, self.count):
            column[into] += column[row]
        self._refresh(into)

    def spans(self, row: int, context: FloatArray) -> bool:
        """Tell whether a context lies in the span of those a segment has seen."""
        if self.rank[row] == self.dim:
            return True
        count, known = int(self.count[row]) + 1, int(self.rank[row])
        tolerance = ROUNDING * (self.dim + count)
        wider = kernels().widened_rank(self.gram[row], context, known, tolerance)
        if wider < 0:  # rounding denies a certificate
            wider = int(rank(self.gram[row] + np.outer(context, context), count))
        return bool(wider <= known)

    def add(self, row: int, context: FloatArray, reward: float, *, spanned: bool) -> None:
        """Add one observation to a segment, given what `spans` says of its context."""
        if not kernels().extend(
            self.gram, self.moment, self.energy, self.count, self.inverse, self.theta, self.glimpse,
            self.spread, self.strain, self.rank, row, context, reward, spanned,
            CONDITION, REFRESH, ROUNDING,
        ):  # fmt: skip
            self._refresh(row)

    def _refresh(self, row: int) -> None:
        """Compute afresh all that follows from the sums."""
        self.rank[row], self.inverse[row], self.theta[row] = least_squares(
            self.gram[row], self.moment[row], int(self.count[row])
        )
        self.spread[row] = kernels().largest(self.inverse[row])
        self._glimpse(row)

    def _glimpse(self, row: int) -> None:
        self.glimpse[:, row] = self.theta[row, :GLIMPSE]

    def _lay_beside(self) -> None:
        """Lay what has as much room as the columns, but is none."""
        room = len(self.theta)
        self.glimpse = self.theta[:, :GLIMPSE].T.copy()
        self.space = np.empty(room, np.intp), np.empty((room, 2)), np.empty(room, np.intp)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        arrays = columns.dump(self, self._columns, len(self))
        rows = sorted(self.open.values())
        arrays["surprises"], arrays["surprises_held"] = _pack([self.surprises[i] for i in rows])
        arrays["neighbours"], arrays["neighbours_held"] = _pack([self.neighbours[i] for i in rows])
        state = {
            "clock": self.clock,
            "given": self.given,
            "owner": self.owner,
            "residuals": asdict(self.residuals),
            "changes": [astuple(change) for change in self.changes],
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
    ) -> Segments:
        """Return the book that `dump` described."""
        book = cls(dim, folding=folding)
        book.clock, book.given, book.owner = state["clock"], state["given"], list(state["owner"])
        book.residuals = Residuals(**state["residuals"])
        book.changes = [Change(*change) for change in state["changes"]]
        columns.make_room(book, book._passing, len(book))
        columns.fill(book, book._columns, len(book), arrays)
        book._lay_beside()
        rows = np.flatnonzero(book.closed[: len(book)] == OPEN).tolist()
        book.open = {book.owner[row]: row for row in rows}
        surprises = _unpack(arrays["surprises"], arrays["surprises_held"])
        neighbours = _unpack(arrays["neighbours"], arrays["neighbours_held"])
        book.surprises = {i: tuple(map(bool, s)) for i, s in zip(rows, surprises, strict=True)}
        book.neighbours = {i: v.astype(np.intp) for i, v in zip(rows, neighbours, strict=True)}
        for row in () if folding else rows:
            book._keep(row)
        return book


def _pack(rows: Sequence[Sequence[int] | Ids]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    held = np.array([len(row) for row in rows], dtype=np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows] or [held])
    return flat, held


def _unpack(flat: NDArray[Any], held: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(flat, np.cumsum(held)[:-1]) if len(held) else []
