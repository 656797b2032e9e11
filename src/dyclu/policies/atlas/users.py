"""`Users`: what is kept of each user who is to be found on the atlas.

A located user is a handful of numbers: the model, the last few observations, which are not yet
credited to it, and the sum of what its estimate left unexplained. Whoever is on probation has the
observations of a segment in the same place, and a *seat*, for their sums, once they no longer fit:
a stranger who came once or twice costs no more than a located user. Whoever is in doubt has a
*belief*: weights of the models they may be on.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.policies.atlas.tastes import GONE, NEW, Tastes
from dyclu.policies.common import columns
from dyclu.policies.common.columns import Parts
from dyclu.validation import FloatArray, User

NONE = -1
"""No model; no segment, as of somebody located."""

STANDING = -2
"""A segment without a seat."""

UNLIKELY = 0.02
"""Weight up to which a model is not remembered as a place where somebody on probation may be: what
a stranger costs must not grow with the models."""


class Segment(NamedTuple):
    """Sums of a user's observations on probation."""

    gram: FloatArray
    moment: FloatArray
    size: float


class Seats:
    """Sums of segments, in rows that are lent and given back.

    Attributes
    ----------
    gram, moment, count : arrays of shape (room, d, d), (room, d) and (room,)
        The sums.
    """

    def __init__(self, dim: int) -> None:
        self.gram = columns.new(np.float64, dim, dim)
        self.moment = columns.new(np.float64, dim)
        self.count = columns.new(np.float64)
        self._columns = columns.names(self)
        self.rows = 0
        self.free: list[int] = []

    def lend(self, segment: Segment) -> int:
        """Return a row that holds these sums."""
        if self.free:
            row = self.free.pop()
        else:
            row, self.rows = self.rows, self.rows + 1
            columns.make_room(self, self._columns, self.rows)
        self.gram[row], self.moment[row], self.count[row] = segment
        return row

    def take_back(self, row: int) -> None:
        """Clear a row for the next one."""
        columns.clear(self, self._columns, row)
        self.free.append(row)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        return {"rows": self.rows, "free": self.free}, columns.dump(self, self._columns, self.rows)

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `dump` returned."""
        self.rows, self.free = state["rows"], list(state["free"])
        columns.fill(self, self._columns, self.rows, arrays)


class Users:
    """Users by row; row `i` of every array belongs to user `i`.

    Attributes
    ----------
    row : dict of user to int
        Where each user is.
    model, home : int arrays of shape (room,)
        Row of the model a user is on; and, on probation, of the one they were located on before.
    since : int array of shape (room,)
        How many rewards of all users had been learnt when they came to be so.
    seat : int array of shape (room,)
        Row of their segment's sums; `STANDING` while it has none, `NONE` for somebody located.
    placed : bool array of shape (room,)
        Whether their segment is part of their model, rather than only thought to belong there.
    ledger : array of shape (room, numbers of a user)
        What follows, side by side.
    waiting : array of shape (room,)
        How many observations are kept: of a located user those not yet credited, of somebody
        `STANDING` the segment.
    contexts, rewards : arrays of shape (room, lag, d) and (room, lag)
        These observations, oldest first.
    credited, due : float arrays of shape (room,)
        How many observations of theirs the model holds, and at how many it is asked again whether
        they belong there.
    score : array of shape (room, d)
        ``Σ x (y − xᵀθ̂)`` over these: what the model's estimate left unexplained.
    doubts : dict of int to arrays
        By row of a user in doubt, ids of the models they may be on, and their weights.
    """

    waiting: FloatArray
    contexts: FloatArray
    rewards: FloatArray
    credited: FloatArray
    due: FloatArray
    score: FloatArray

    def __init__(self, dim: int, *, lag: int, models: Tastes) -> None:
        self.row: dict[User, int] = {}
        self.free: list[int] = []
        self.seats, self.models = Seats(dim), models
        self.doubts: dict[int, tuple[NDArray[np.int64], FloatArray]] = {}
        self._parts: Parts = kernels.atlas.ledger(dim, lag)
        self.model = columns.new(np.int32)
        self.home = columns.new(np.int32)
        self.since = columns.new(np.int64)
        self.seat = columns.new(np.int32)
        self.placed = columns.new(np.bool_)
        self.ledger = columns.new(np.float64, sum(map(math.prod, self._parts.values())))
        self._columns = columns.names(self)
        columns.expose_parts(self, "ledger", self._parts)

    def __len__(self) -> int:
        return len(self.row) + len(self.free)

    def welcome(self, user: User, clock: int) -> int:
        """Return the row of a user never seen, on probation with an empty segment."""
        row = self.free.pop() if self.free else len(self)
        self.row[user] = row
        if len(self) > len(self.model):
            columns.make_room(self, self._columns, len(self))
            columns.expose_parts(self, "ledger", self._parts)
        self.model[row] = self.home[row] = NONE
        self.seat[row], self.since[row] = STANDING, clock
        return row

    def dismiss(self, user: User) -> None:
        """Let go of a user and of all that is kept of them here."""
        row = self.row.pop(user)
        self.stand(row)
        self.be_sure(row)
        columns.clear(self, self._columns, row)
        self.model[row] = self.home[row] = NONE
        self.free.append(row)

    # The segment of somebody on probation

    def segment(self, row: int) -> Segment:
        """Return the sums of a user's segment."""
        seats, seat = self.seats, self.seat[row]
        if seat != STANDING:
            return Segment(seats.gram[seat], seats.moment[seat], float(seats.count[seat]))
        waiting, (_, dim) = int(self.waiting[row]), self.score.shape
        gram, moment = np.zeros((dim, dim)), np.zeros(dim)
        kernels.atlas.add_observations(
            self.contexts[row, :waiting], self.rewards[row, :waiting], gram, moment
        )
        return Segment(gram, moment, float(waiting))

    def extend(self, row: int, context: FloatArray, reward: float) -> None:
        """Add an observation to a user's segment."""
        if self.seat[row] == STANDING:
            place = int(self.waiting[row])
            if place < self.rewards.shape[1]:
                self.contexts[row, place], self.rewards[row, place] = context, reward
                self.waiting[row] += 1
                return
            self.sit(row, self.segment(row))
        seats, seat = self.seats, self.seat[row]
        seats.gram[seat] += context[:, None] * context
        seats.moment[seat] += reward * context
        seats.count[seat] += 1

    def sit(self, row: int, segment: Segment) -> None:
        """Let these sums be a user's segment, and nothing else."""
        self.seat[row], self.waiting[row] = self.seats.lend(segment), 0

    def stand(self, row: int) -> None:
        """Take back a user's seat, if they have one."""
        if self.seat[row] >= 0:
            self.seats.take_back(int(self.seat[row]))
        self.seat[row] = NONE

    def suspect(self, row: int, cut: int) -> None:
        """Let what a located user's waiting observations hold from `cut` on be a segment."""
        left = int(self.waiting[row]) - cut
        self.contexts[row, :left] = self.contexts[row, cut : cut + left].copy()
        self.rewards[row, :left] = self.rewards[row, cut : cut + left].copy()
        self.seat[row], self.waiting[row] = STANDING, left

    # The belief of somebody in doubt

    def doubt_with(self, row: int, weight: FloatArray, *, unlikely: float = UNLIKELY) -> None:
        """Let a user's belief be these weights of the models' rows, the unlikely ones left out."""
        kept = weight > unlikely
        kept[NEW] = True
        rows = np.flatnonzero(kept)
        self.doubts[row] = self.models.id[rows], weight[rows]

    def be_sure(self, row: int) -> None:
        """Let a user's belief be their model alone."""
        self.doubts.pop(row, None)

    def belief(self, row: int) -> FloatArray:
        """Return a user's weights of the models' rows."""
        models = self.models
        if row not in self.doubts:
            certain = np.zeros(models.rows)
            certain[self.model[row]] = 1.0
            return certain
        ids, weights = self.doubts[row]
        # The first place is for models that are gone: what was believed of them, the others share.
        places = np.array(models.rows_of(ids.tolist())) - GONE
        left = np.asarray(np.bincount(places, weights, minlength=models.rows + 1)[1:], np.float64)
        held = left.sum()
        return left / held if held > 0.0 and places.min() == 0 else left

    # Models that come and go

    def rename(self, model: int, into: int) -> None:
        """Let whoever is on a model be on another one."""
        n = len(self)
        for column in (self.model, self.home):
            column[:n][column[:n] == model] = into

    def leave(self, model: int) -> None:
        """Let nobody be on a model that is gone."""
        self.rename(model, NONE)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        seats, seat_arrays = self.seats.dump()
        state = {"users": list(self.row), "free": self.free, "seats": seats}
        arrays = columns.dump(self, self._columns, len(self))
        arrays["row"] = np.fromiter(self.row.values(), np.int64, len(self.row))
        return state, arrays | columns.prefixed(seat_arrays, "seat_") | self._dump_doubts()

    def _dump_doubts(self) -> dict[str, NDArray[Any]]:
        held = list(self.doubts.values())
        return {
            "doubt_row": np.fromiter(self.doubts, np.int64, len(held)),
            "doubt_size": np.array([len(ids) for ids, _ in held], np.int64),
            "doubt_id": np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in held)]),
            "doubt_weight": np.concatenate([np.empty(0), *(weight for _, weight in held)]),
        }

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `dump` returned."""
        self.row = dict(zip(state["users"], arrays["row"].tolist(), strict=True))
        self.free = list(state["free"])
        columns.fill(self, self._columns, len(self), arrays)
        columns.expose_parts(self, "ledger", self._parts)
        self.seats.fill(state["seats"], columns.part(arrays, "seat_"))
        ends = np.cumsum(arrays["doubt_size"])[:-1]
        ids, weights = (np.split(arrays[name], ends) for name in ("doubt_id", "doubt_weight"))
        for row, *belief in zip(arrays["doubt_row"].tolist(), ids, weights, strict=False):
            self.doubts[row] = belief[0].copy(), belief[1].copy()
