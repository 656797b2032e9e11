"""`Segments`: the book of all segments, stacked in arrays; the only mutable state of DyClu.

A *segment* is the `Stats` of one user between two change points. It is opened empty, grows by one
observation at a time, and is closed when its user changes; closed ones stay, because somebody may
come to resemble them. Ids count up from 0 and are never reused.

Beside the sums, the book keeps what the tests would otherwise compute again and again: a
generalised inverse of the gram, the least-squares estimate and the rank. An observation changes
them by a rank-one update; they are computed afresh where it adds a direction, while the gram is
nearly singular, and every `REFRESH` observations: rounding cannot pile up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import columns
from dyclu.columns import Columns
from dyclu.compute import kernels
from dyclu.noise import Residuals
from dyclu.policy import Ids, no_ids
from dyclu.stats import Stats, pseudo_inverse, rank
from dyclu.validation import FloatArray, User

REFRESH = 512
"""Rank-one updates in a row before the inverse is computed afresh."""

CONDITION = 1e8
"""Largest trace(A)·trace(A⁻¹) at which a rank-one update is trusted; it loses that many digits."""

OPEN = -1
"""Closing time of a segment that is still open."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One user's observations between two change points.

    Attributes
    ----------
    id : int
        Its place in the book.
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


class Segments:
    """The book of segments; row `i` of every array belongs to segment `i`.

    Arrays have room to grow: only the first ``len(book)`` rows are in use.

    Attributes
    ----------
    gram, moment, energy, count : arrays of shape (room, d, d), (room, d), (room,), (room,)
        The sums of every segment.
    inverse, theta, spread, rank : arrays of shape (room, d, d), (room, d), (room,), (room,)
        What follows from them: ``A⁻``, an estimate ``ϑ``, the norm of ``A⁻`` and the rank.
    opened, closed : arrays of shape (room,)
        When each was opened and closed; `OPEN` if it was not.
    owner : list of user
        Whose each segment is.
    open : dict of user to id
        Everybody's open segment.
    surprises, neighbours : dicts of id to tuple of bool, and to array of id
        The alarm's window and the neighbourhood of open segments.
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
    rank: NDArray[np.int64]
    opened: NDArray[np.int64]
    closed: NDArray[np.int64]

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.clock = 0
        self.residuals = Residuals()
        self.owner: list[User] = []
        self.open: dict[User, int] = {}
        self.surprises: dict[int, tuple[bool, ...]] = {}
        self.neighbours: dict[int, Ids] = {}
        self._columns: Columns = {
            "gram": ((dim, dim), np.float64),
            "moment": ((dim,), np.float64),
            "energy": ((), np.float64),
            "count": ((), np.int64),
            "inverse": ((dim, dim), np.float64),
            "theta": ((dim,), np.float64),
            "spread": ((), np.float64),
            "rank": ((), np.int64),
            "opened": ((), np.int64),
            "closed": ((), np.int64),
        }
        columns.lay(self, self._columns)

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, id: int) -> Segment:
        closed = int(self.closed[id])
        return Segment(
            id,
            self.owner[id],
            int(self.opened[id]),
            None if closed == OPEN else closed,
            self.stats(id),
        )

    def stats(self, id: int) -> Stats:
        """Return a copy of one segment's sums."""
        return Stats(
            self.gram[id].copy(),
            self.moment[id].copy(),
            float(self.energy[id]),
            int(self.count[id]),
        )

    def total(self, ids: Ids) -> Stats:
        """Return the sum of several segments' `Stats`."""
        return Stats(*self.sums(ids))

    def sums(self, ids: Ids) -> tuple[FloatArray, FloatArray, float, int]:
        """Return what `total` is made of: gram, moment, energy and count."""
        gram, moment = np.empty((self.dim, self.dim)), np.empty(self.dim)
        energy, count = kernels().total(
            self.gram, self.moment, self.energy, self.count, ids, gram, moment
        )
        return gram, moment, float(energy), int(count)

    def everyone(self) -> Ids:
        """Return the ids of all segments, open and closed."""
        return np.arange(len(self))

    def changes(self) -> tuple[Change, ...]:
        """Return all changes noticed so far, in their order."""
        found = []
        latest: dict[User, int] = {}
        for after, user in enumerate(self.owner):
            before = latest.get(user)
            if before is not None:
                found.append(Change(user, int(self.closed[before]), before, after))
            latest[user] = after
        return tuple(found)

    def surprise(self, id: int, context: FloatArray, reward: float) -> tuple[float, int]:
        """Return ``σ² s`` and df of the test of a segment against one observation.

        Eq. (1) with one observation on one side is the squared error of its prediction, in units
        of that error's own variance, ``σ² s = (y − xᵀϑ)² / (1 + xᵀA⁻x)``, if the context lies in
        the span of the segment's contexts; otherwise there is no prediction to compare it with.
        """
        expected, leverage = kernels().predict(self.inverse[id], self.theta[id], context)
        if leverage <= 0 or not self.spans(id, context):
            return 0.0, 0
        error = reward - expected
        return error * error / (1 + leverage), 1

    def start(self, user: User) -> int:
        """Open an empty segment for a user, closing the present one if there is one."""
        if user in self.open:
            self._close(self.open[user])
        id = len(self)
        self.owner.append(user)
        columns.make_room(self, self._columns, len(self))
        self.open[user] = id
        self.opened[id], self.closed[id] = self.clock, OPEN
        self.surprises[id], self.neighbours[id] = (), no_ids()
        return id

    def spans(self, id: int, context: FloatArray) -> bool:
        """Tell whether a context lies in the span of those a segment has seen."""
        if self.rank[id] == self.dim:
            return True
        more = self.gram[id] + np.outer(context, context)
        return bool(rank(more, self.count[id] + 1) <= self.rank[id])

    def add(self, id: int, context: FloatArray, reward: float, *, spanned: bool) -> None:
        """Add one observation to a segment, given what `spans` says of its context."""
        self.energy[id] += reward * reward
        count = self.count[id] = self.count[id] + 1
        gram, moment = self.gram[id], self.moment[id]
        inverse, theta = self.inverse[id], self.theta[id]
        trusted = CONDITION if spanned and count % REFRESH else 0.0
        observe = kernels().observe
        if not observe(gram, moment, inverse, theta, context, reward, math.inf, trusted):
            self.rank[id] = rank(gram, count)
            inverse[:] = pseudo_inverse(gram, count)
            theta[:] = inverse @ moment
        self.spread[id] = kernels().norm(inverse)

    def _close(self, id: int) -> None:
        self.closed[id] = self.clock
        del self.surprises[id], self.neighbours[id]

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        arrays = columns.dump(self, self._columns, len(self))
        ids = sorted(self.open.values())
        arrays["surprises"], arrays["surprises_held"] = _pack([self.surprises[i] for i in ids])
        arrays["neighbours"], arrays["neighbours_held"] = _pack([self.neighbours[i] for i in ids])
        state = {"clock": self.clock, "owner": self.owner, "residuals": asdict(self.residuals)}
        return state, arrays

    @classmethod
    def restored(cls, dim: int, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Segments:
        """Return the book that `dump` described."""
        book = cls(dim)
        book.clock, book.owner = state["clock"], list(state["owner"])
        book.residuals = Residuals(**state["residuals"])
        columns.fill(book, book._columns, len(book), arrays)
        ids = np.flatnonzero(book.closed[: len(book)] == OPEN).tolist()
        book.open = {book.owner[id]: id for id in ids}
        surprises = _unpack(arrays["surprises"], arrays["surprises_held"])
        neighbours = _unpack(arrays["neighbours"], arrays["neighbours_held"])
        book.surprises = {i: tuple(map(bool, s)) for i, s in zip(ids, surprises, strict=True)}
        book.neighbours = {i: v.astype(np.intp) for i, v in zip(ids, neighbours, strict=True)}
        return book


def _pack(rows: Sequence[Sequence[int] | Ids]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    held = np.array([len(row) for row in rows], dtype=np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows] or [held])
    return flat, held


def _unpack(flat: NDArray[Any], held: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(flat, np.cumsum(held)[:-1]) if len(held) else []
