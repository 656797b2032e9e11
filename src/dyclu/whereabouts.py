"""`Whereabouts`: what is kept of each user who is to be found on the atlas.

A located user is a handful of numbers: the model, the last few observations, which are not yet
credited to it, and the sum of what its estimate left unexplained. Whoever is on probation has a
*seat*: the sums of a segment; whoever is in doubt has a *belief*: a weight for every model. Seats
and beliefs are few, and used again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import columns
from dyclu.columns import Columns
from dyclu.validation import FloatArray, User

NONE = -1
"""No model, no seat, no belief."""


class Pool:
    """Rows that are lent and given back."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self._columns: Columns = {name: (shape, np.float64) for name, shape in shapes.items()}
        columns.lay(self, self._columns)
        self.rows = 0
        self.free: list[int] = []

    def lend(self) -> int:
        """Return a row of zeros."""
        if self.free:
            return self.free.pop()
        self.rows += 1
        columns.make_room(self, self._columns, self.rows)
        return self.rows - 1

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


class Seats(Pool):
    """The segments of users on probation.

    Attributes
    ----------
    gram, moment, count : arrays of shape (room, d, d), (room, d) and (room,)
        The segment's sums.
    placed : array of shape (room,)
        1 where the sums are part of the user's model, 0 where they are only a guest's.
    """

    gram: FloatArray
    moment: FloatArray
    count: FloatArray
    placed: FloatArray

    def __init__(self, dim: int) -> None:
        super().__init__(gram=(dim, dim), moment=(dim,), count=(), placed=())


class Beliefs(Pool):
    """Weights of models, one row per user in doubt, one column per row of `SharedModels`."""

    weight: FloatArray

    def __init__(self, models: int) -> None:
        super().__init__(weight=(models,))

    def widen(self, models: int) -> None:
        """Make columns for more models."""
        have = self.weight.shape[1]
        if models > have:
            self._columns = {"weight": ((models,), np.float64)}
            self.weight = np.pad(self.weight, ((0, 0), (0, models - have)))


class Whereabouts:
    """Users by row; row `i` of every array belongs to user `i`.

    Attributes
    ----------
    row : dict of user to int
        Where each user is.
    model, home : int arrays of shape (room,)
        Row of the model a user is on; and, on probation, of the one they were located on before.
    since : int array of shape (room,)
        How many rewards of all users had been learnt when they came to be so.
    seat, doubt : int arrays of shape (room,)
        Rows of their segment and of their belief, or `NONE`.
    waiting : int array of shape (room,)
        How many of their observations are not yet credited.
    contexts, rewards : arrays of shape (room, lag, d) and (room, lag)
        These observations, oldest first.
    credited, due : float arrays of shape (room,)
        How many observations of theirs the model holds, and at how many it is asked again whether
        they belong there.
    score : array of shape (room, d)
        ``Σ x (y − xᵀθ̂)`` over these: what the model's estimate left unexplained.
    """

    model: NDArray[np.int32]
    home: NDArray[np.int32]
    since: NDArray[np.int64]
    seat: NDArray[np.int32]
    doubt: NDArray[np.int32]
    waiting: NDArray[np.int32]
    contexts: FloatArray
    rewards: FloatArray
    credited: FloatArray
    due: FloatArray
    score: FloatArray

    def __init__(self, dim: int, *, lag: int, models: int) -> None:
        self.row: dict[User, int] = {}
        self.free: list[int] = []
        self.seats, self.beliefs = Seats(dim), Beliefs(models)
        self._columns: Columns = {
            "model": ((), np.int32),
            "home": ((), np.int32),
            "since": ((), np.int64),
            "seat": ((), np.int32),
            "doubt": ((), np.int32),
            "waiting": ((), np.int32),
            "contexts": ((lag, dim), np.float64),
            "rewards": ((lag,), np.float64),
            "credited": ((), np.float64),
            "due": ((), np.float64),
            "score": ((dim,), np.float64),
        }
        columns.lay(self, self._columns)

    def __len__(self) -> int:
        return len(self.row) + len(self.free)

    def welcome(self, user: User, clock: int) -> int:
        """Return the row of a user never seen, on probation with an empty segment."""
        row = self.free.pop() if self.free else len(self)
        self.row[user] = row
        columns.make_room(self, self._columns, len(self))
        columns.clear(self, self._columns, row)
        self.model[row] = self.home[row] = self.doubt[row] = NONE
        self.seat[row], self.since[row] = self.seats.lend(), clock
        return row

    def dismiss(self, user: User) -> None:
        """Let go of a user and of all that is kept of them here."""
        row = self.row.pop(user)
        self.stand(row)
        self.be_sure(row)
        columns.clear(self, self._columns, row)
        self.model[row] = NONE
        self.free.append(row)

    def sit(self, row: int) -> int:
        """Give a user a seat."""
        self.seat[row] = self.seats.lend()
        return int(self.seat[row])

    def stand(self, row: int) -> None:
        """Take a user's seat back."""
        if self.seat[row] != NONE:
            self.seats.take_back(int(self.seat[row]))
            self.seat[row] = NONE

    def doubt_with(self, row: int, weight: FloatArray) -> None:
        """Let a user's belief be these weights, of the models' rows."""
        if self.doubt[row] == NONE:
            self.doubt[row] = self.beliefs.lend()
        self.beliefs.weight[self.doubt[row], : len(weight)] = weight

    def be_sure(self, row: int) -> None:
        """Let a user's belief be their model alone."""
        if self.doubt[row] != NONE:
            self.beliefs.take_back(int(self.doubt[row]))
            self.doubt[row] = NONE

    def belief(self, row: int, models: int) -> FloatArray:
        """Return a copy of a user's weights of the first so many rows of models."""
        if self.doubt[row] != NONE:
            return self.beliefs.weight[self.doubt[row], :models].copy()
        certain = np.zeros(models)
        certain[self.model[row]] = 1.0
        return certain

    def remember(self, row: int, context: FloatArray, reward: float) -> None:
        """Keep an observation, in the place after the last."""
        place = self.waiting[row]
        self.contexts[row, place], self.rewards[row, place] = context, reward
        self.waiting[row] += 1

    def forget_oldest(self, row: int) -> None:
        """Move up by one place."""
        self.contexts[row, :-1] = self.contexts[row, 1:]
        self.rewards[row, :-1] = self.rewards[row, 1:]
        self.waiting[row] -= 1

    def rename(self, model: int, into: int) -> None:
        """Let whoever is on a model be on another one."""
        n = len(self)
        for column in (self.model, self.home):
            column[:n][column[:n] == model] = into
        self.beliefs.weight[:, into] += self.beliefs.weight[:, model]
        self.beliefs.weight[:, model] = 0.0

    def leave(self, model: int) -> None:
        """Let nobody be on a model that is gone, nor believe in it."""
        n = len(self)
        for column in (self.model, self.home):
            column[:n][column[:n] == model] = NONE
        self.disbelieve(model)

    def disbelieve(self, model: int) -> None:
        """Let nobody believe in a model."""
        self.beliefs.weight[:, model] = 0.0

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        seats, seat_arrays = self.seats.dump()
        beliefs, belief_arrays = self.beliefs.dump()
        state = {
            "users": list(self.row.items()),
            "free": self.free,
            "seats": seats,
            "beliefs": beliefs,
            "models": self.beliefs.weight.shape[1],
        }
        arrays = columns.dump(self, self._columns, len(self))
        arrays |= {f"seat_{name}": array for name, array in seat_arrays.items()}
        return state, arrays | {f"belief_{name}": array for name, array in belief_arrays.items()}

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `dump` returned."""
        self.row, self.free = dict(state["users"]), list(state["free"])
        columns.fill(self, self._columns, len(self), arrays)
        self.seats.fill(state["seats"], _part(arrays, "seat_"))
        self.beliefs.widen(state["models"])
        self.beliefs.fill(state["beliefs"], _part(arrays, "belief_"))


def _part(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
