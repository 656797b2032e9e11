"""`Users`: what is kept of each user, as rows of arrays (docs/theory.md §10.3).

A user is *in doubt* (`IN_DOUBT`) or *located* (`LOCATED`); of somebody never seen nothing is kept.
Both have a belief over the models and a memory of their last rewards. A user in doubt has also a
segment: the sums of all rewards since the last change, part of the models by the belief. As long as
the memory holds the whole segment, it is not stored twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.kernels import memory
from dyclu.policies.common import columns
from dyclu.policies.common.population import converted
from dyclu.validation import FloatArray, Ids, User

NONE = -1
"""No model, no stored segment."""

IN_DOUBT, LOCATED = 0, 1
"""Values of `Users.status`."""

COUNTED = 4096
"""Users in doubt whose beliefs are counted where about so many are enough."""

CAPACITIES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""How many rewards the blocks of memory hold."""


class Segments:
    """Sums of segments, in rows that are lent and given back.

    Attributes
    ----------
    gram, moment, sums : arrays of shape (room, p, p), (room, p) and (room, 4)
        ``Σ w zzᵀ``, ``Σ w zy``, and the columns named in `kernels.ledger`.
    """

    def __init__(self, dim: int) -> None:
        p = dim + 1
        self.gram = columns.new(np.float64, p, p)
        self.moment = columns.new(np.float64, p)
        self.sums = columns.new(np.float64, 4)
        self._columns = columns.names(self)
        self.rows = 0
        self.free: list[int] = []

    def lend(self) -> int:
        """Return a row with empty sums."""
        if self.free:
            row = self.free.pop()
        else:
            row = self.rows
            columns.make_room(self, self._columns, row + 1)
            self.rows += 1
        columns.clear(self, self._columns, row)
        self.sums[row, kernels.ledger.RATIO] = 1.0
        return row

    def give_back(self, row: int) -> None:
        """Return a row."""
        columns.clear(self, self._columns, row)
        self.free.append(row)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        state = {"rows": self.rows, "free": self.free}
        return state, columns.dump(self, self._columns, self.rows)

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        self.rows, self.free = state["rows"], list(state["free"])
        columns.fill(self, self._columns, self.rows, arrays)


class Pool:
    """Blocks of memory of one capacity; `block` has the shape (room, capacity, numbers)."""

    def __init__(self, capacity: int, width: int) -> None:
        self.block = columns.new(np.float64, capacity, width)
        self._columns = columns.names(self)
        self.rows = 0
        self.free: list[int] = []

    def lend(self) -> int:
        """Return the row of a free block."""
        if self.free:
            return self.free.pop()
        row = self.rows
        columns.make_room(self, self._columns, row + 1)
        self.rows += 1
        return row


class Users:
    """Users by row; row `i` of every array belongs to user `i`.

    Attributes
    ----------
    row : dict of user to int
        Where each user is.
    ledger : array of shape (room, columns)
        The columns that follow, side by side.
    status : array of shape (room,)
        `IN_DOUBT` or `LOCATED`.
    home, before : arrays of shape (room,)
        Row of the model a user is located on, and of the last one they were located on; or `NONE`.
    unit : array of shape (room,)
        Row of the stored sums of their segment, or `NONE`.
    seat : array of shape (room,)
        Row of their segment on the panel, or `NONE`.
    pool, slot, length : arrays of shape (room,)
        Where their memory is, and how many rewards it holds.
    since, rewards : arrays of shape (room,)
        When their status was set, in rewards of all users; how many rewards of theirs were learnt.
    holding : array of shape (room,)
        Inverse noise variance with which models hold their segment.
    noise_sum, noise_weight : arrays of shape (room,)
        Squared errors of predictions, and their weights.
    suspect, suspicion : arrays of shape (room,)
        Row of the model that they have most likely changed to, and the probability that they have.
    likely, chance : arrays of shape (room, places)
        Rows of models and their probabilities: the belief.
    doubtful : dict of int to None
        Rows of the users in doubt, in the order in which they came to be so.
    """

    status: FloatArray
    home: FloatArray
    before: FloatArray
    unit: FloatArray
    seat: FloatArray
    pool: FloatArray
    slot: FloatArray
    length: FloatArray
    since: FloatArray
    rewards: FloatArray
    holding: FloatArray
    noise_sum: FloatArray
    noise_weight: FloatArray
    suspect: FloatArray
    suspicion: FloatArray
    likely: FloatArray
    chance: FloatArray

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.ledger = columns.new(np.float64, kernels.ledger.WIDTH)
        self._columns = columns.names(self)
        self._expose()
        self.row: dict[User, int] = {}
        self.free: list[int] = []
        self.rows = 0
        self.doubtful: dict[int, None] = {}
        self.segments = Segments(dim)
        self.pools = [Pool(capacity, dim + memory.REMEMBERED) for capacity in CAPACITIES]

    def welcome(self, user: User) -> int:
        """Return the row of a new user, in doubt about everything."""
        if self.free:
            row = self.free.pop()
        else:
            row = self.rows
            if row == len(self.ledger):
                self._make_room(row + 1)
            self.rows += 1
        columns.clear(self, self._columns, row)
        self.row[user] = row
        self.before[row] = self.home[row] = self.unit[row] = self.seat[row] = NONE
        self.slot[row] = self.pools[0].lend()
        return row

    def dismiss(self, user: User) -> None:
        """Remove a user, who is part of no model any more."""
        row = self.row.pop(user)
        self.doubtful.pop(row, None)
        if self.unit[row] != NONE:
            self.segments.give_back(int(self.unit[row]))
        pool = self.pools[int(self.pool[row])]
        pool.block[int(self.slot[row])] = 0.0
        pool.free.append(int(self.slot[row]))
        columns.clear(self, self._columns, row)
        self.free.append(row)

    def memory(self, row: int) -> FloatArray:
        """Return a user's block of memory."""
        block: FloatArray = self.pools[int(self.pool[row])].block[int(self.slot[row])]
        return block

    def roomy_memory(self, row: int, span: int) -> FloatArray:
        """Return a user's block of memory, larger or smaller than before if `span` asks for it."""
        pool, length = int(self.pool[row]), int(self.length[row])
        wanted = pool
        if length == CAPACITIES[pool] and length < span:
            wanted += 1
        elif pool and CAPACITIES[pool - 1] >= 2 * span:
            wanted -= 1
        if wanted != pool:
            self._move(row, wanted)
        return self.memory(row)

    def _move(self, row: int, wanted: int) -> None:
        old, length = self.memory(row), int(self.length[row])
        keep = min(length, CAPACITIES[wanted])
        slot = self.pools[wanted].lend()
        self.pools[wanted].block[slot, :keep] = old[length - keep : length]
        old[:] = 0.0
        self.pools[int(self.pool[row])].free.append(int(self.slot[row]))
        self.pool[row], self.slot[row], self.length[row] = wanted, slot, keep

    def forget_before(self, row: int, cut: int) -> None:
        """Drop the oldest `cut` rewards from a user's memory."""
        block, length = self.memory(row), int(self.length[row])
        block[: length - cut] = block[cut:length].copy()
        self.length[row] = length - cut

    def segment(self, row: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the sums of a user's segment: stored ones to be changed, or new ones."""
        unit, segments = int(self.unit[row]), self.segments
        if unit != NONE:
            return segments.gram[unit], segments.moment[unit], segments.sums[unit]
        p, length = self.dim + 1, int(self.length[row])
        gram, moment = np.zeros((p, p)), np.zeros(p)
        energy = kernels.atlas.sum_memory(
            self.memory(row), 0, length, memory.RESPONSE, memory.WEIGHT, gram, moment
        )
        return gram, moment, np.array([length, energy, self.holding[row], 1.0])

    def store_segment(self, row: int) -> None:
        """Store the sums of a user's segment, so that the memory may lose rewards of it."""
        sums = self.segment(row)
        unit = self.segments.lend()
        self.segments.gram[unit], self.segments.moment[unit], self.segments.sums[unit] = sums
        self.unit[row] = unit

    def convert(self, factor: float, constant: float, noise: float) -> None:
        """Turn levels ``m`` into ``factor · m + constant``; `noise` is the variance from now on."""
        column, segments, d = kernels.ledger, self.segments, self.dim
        scale = segments.sums[:, column.SCALE].copy()
        precision, shift = converted(
            scale[:, None, None] * segments.gram, scale[:, None] * segments.moment, factor, constant
        )
        segments.gram, segments.moment = noise * precision, noise * shift
        segments.sums[:, column.SCALE], segments.sums[:, column.RATIO] = 1.0 / noise, 1.0
        for row in self.row.values():
            block = self.memory(row)[: int(self.length[row]), d:]
            block[:, memory.RESPONSE] = factor * block[:, memory.RESPONSE] + constant
            block[:, memory.WEIGHT] *= self.holding[row] * noise / factor**2
            block[:, memory.CREDIT] /= factor**2
        self.holding[:], self.noise_sum[:], self.noise_weight[:] = 1.0 / noise, 0.0, 0.0

    def believe(self, row: int, model: int) -> None:
        """Set a user's belief to one model."""
        self.likely[row], self.chance[row] = 0.0, 0.0
        self.likely[row, 0], self.chance[row, 0] = model, 1.0

    def in_doubt(self) -> Ids:
        """Return the rows of all users in doubt, in the order in which they came to be so."""
        return np.fromiter(self.doubtful, np.intp, len(self.doubtful))

    def some_in_doubt(self, turn: int) -> tuple[Ids, float]:
        """Return rows of users in doubt, and for how many such users each of them stands.

        If there are many, about `COUNTED` are drawn: one row of every few that follow each other,
        by a hash of `turn`, if the user there is in doubt.
        """
        if len(self.doubtful) <= COUNTED:
            return self.in_doubt(), 1.0
        step = math.ceil(len(self.doubtful) / COUNTED)
        blocks = math.ceil(self.rows / step)
        rows = np.arange(blocks) * step + _hashed(turn, blocks) % step
        rows = rows[rows < self.rows]
        rows = rows[(self.status[rows] == IN_DOUBT) & (self.rewards[rows] > 0.0)]
        return rows, len(self.doubtful) / max(len(rows), 1)

    def members(self, rows: Ids, room: int) -> FloatArray:
        """Return, by row of the models, the sum of these users' probabilities."""
        likely = self.likely[rows].astype(np.intp).ravel()
        chance = self.chance[rows].ravel()
        return np.asarray(np.bincount(likely, chance, minlength=room), np.float64)

    def rename(self, model: int, into: int) -> None:
        """Replace a model by another one, or by none, in all rows."""
        n = self.rows
        for column in (self.home, self.before):
            column[:n][column[:n] == model] = into if into else NONE
        for table in (self.likely, self.suspect):
            table[:n][table[:n] == model] = into

    def believers(self, rows: Ids, model: int, least: float) -> Ids:
        """Return those of these users who believe in a model with more than this probability."""
        return np.asarray(rows[self.chance_of(model, rows) > least], np.intp)

    def chance_of(self, model: int, rows: Ids) -> FloatArray:
        """Return the probabilities with which these users believe in a model."""
        chance = np.where(self.likely[rows] == model, self.chance[rows], 0.0)
        return np.asarray(chance.sum(axis=1))

    def divide(self, row: int, model: int, new: int, part: float, room: int) -> None:
        """Move the rest of a user's belief in a model, but for `part` of it, to a new model."""
        belief = np.empty(room)
        kernels.ledger.load_belief(self.ledger[row], belief)
        belief[new] = (1.0 - part) * belief[model]
        belief[model] *= part
        kernels.ledger.store_belief(self.ledger[row], np.arange(room), belief)

    def divisions(self, rows: Ids, model: int) -> FloatArray:
        """Return, by row of the models, how much these users are divided between it and `model`.

        A user who believes in the two with `a` and `b` adds ``(a + b) h(a/(a + b))``, where `h` is
        the entropy of a division.
        """
        rows = self.believers(rows, model, 0.0)
        mine = self.chance_of(model, rows)[:, None]
        other, row = self.chance[rows], self.likely[rows].astype(np.intp)
        both = _xlogx(mine + other) - _xlogx(mine) - _xlogx(other)
        both[row == model] = 0.0
        total = np.bincount(row.ravel(), both.ravel(), minlength=model + 1)
        return np.asarray(total, np.float64)

    def held(self, rows: Ids | int) -> FloatArray:
        """Return the numbers of rewards in these users' segments."""
        unit = self.unit[rows].astype(np.intp)
        stored = self.segments.sums[np.maximum(unit, 0), kernels.ledger.HELD]
        return np.where(unit == NONE, self.length[rows], stored)

    def _make_room(self, rows: int) -> None:
        try:
            columns.make_room(self, self._columns, rows)
        finally:
            self._expose()

    def _expose(self) -> None:
        columns.expose_parts(self, "ledger", kernels.ledger.ledger_parts())

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        segments, segment_arrays = self.segments.dump()
        state = {
            "users": list(self.row),
            "free": self.free,
            "rows": self.rows,
            "segments": segments,
            "pools": [{"rows": pool.rows, "free": pool.free} for pool in self.pools],
        }
        arrays = columns.dump(self, self._columns, self.rows)
        arrays["row"] = np.fromiter(self.row.values(), np.int64, len(self.row))
        arrays["doubtful"] = np.fromiter(self.doubtful, np.int64, len(self.doubtful))
        for number, pool in enumerate(self.pools):
            arrays[f"pool{number}"] = pool.block[: pool.rows]
        return state, arrays | columns.prefixed(segment_arrays, "segment_")

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        self.row = dict(zip(state["users"], arrays["row"].tolist(), strict=True))
        self.free, self.rows = list(state["free"]), state["rows"]
        self._make_room(self.rows)
        columns.fill(self, self._columns, self.rows, arrays)
        self.doubtful = dict.fromkeys(arrays["doubtful"].tolist())
        self.segments.fill(state["segments"], columns.part(arrays, "segment_"))
        for number, (pool, held) in enumerate(zip(self.pools, state["pools"], strict=True)):
            pool.rows, pool.free = held["rows"], list(held["free"])
            columns.make_room(pool, pool._columns, pool.rows)
            pool.block[: pool.rows] = arrays[f"pool{number}"]


def _hashed(seed: int, count: int) -> Ids:
    """Return `count` numbers below 2³² that look random: SplitMix64, the same on every machine."""
    z = np.arange(count, dtype=np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(32)).astype(np.intp)


def _xlogx(x: FloatArray) -> FloatArray:
    """Return ``x log x``, which is 0 at 0, for every entry."""
    return np.asarray(x * np.log(np.where(x > 0.0, x, 1.0)))
