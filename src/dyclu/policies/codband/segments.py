"""`Segments`: the data of each user since their last change, and the detector of the next one.

The detector is that of DyClu: a reward *surprises* if the test of homogeneity rejects that it has
the parameter of the user's own data, and many surprises in a short time are a change.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.core.stats import Stats, least_squares, rank
from dyclu.core.theory import alarm_threshold
from dyclu.policies.codband.mixture import NO_MODEL
from dyclu.policies.codband.sums import Sums
from dyclu.policies.common import columns
from dyclu.policy import SegmentSummary
from dyclu.validation import FloatArray, Ids, User


class Segments:
    """The open segment of every user, one per row, and the model of every segment, by its id.

    Attributes
    ----------
    sums : Sums
        By user: the sums of the open segment.
    id, opened, joined : int arrays of shape (room,)
        Id of the segment; number of rewards learnt when it began, and when it joined its model.
    judged, surprises : int and bool arrays of shapes (room,) and (room, window)
        Number of the segment's rewards so far; which of the latest were surprises, in a ring.
    spans : bool array of shape (room,)
        Whether the segment's contexts span all directions; then no decomposition is necessary.
    model : int array of shape (room,)
        By id of a segment, also of closed ones: the id of its model, or `NO_MODEL`.
    """

    def __init__(self, dim: int, *, window: int, level: float, delta: float) -> None:
        self._level, self._delta = level, delta
        self.id = columns.new(np.int64)
        self.opened = columns.new(np.int64)
        self.joined = columns.new(np.int64)
        self.judged = columns.new(np.int64)
        self.surprises = columns.new(np.bool_, window)
        self.spans = columns.new(np.bool_)
        self._columns = columns.names(self)
        self._zeros = np.zeros(dim)
        self.sums = Sums(dim)
        self.model = columns.new(np.int64)
        self._begun = 0

    def enter(self, user: User, clock: int) -> int:
        """Add a new user, whose first segment begins; return their row."""
        row = self.sums.of(user)
        columns.make_room(self, self._columns, row + 1)
        self._begin(row, clock)
        return row

    def restart(self, row: int, clock: int) -> None:
        """Begin a user's next segment, without data."""
        self.sums.clear(row)
        columns.clear(self, self._columns, row)
        self._begin(row, clock)

    def remove(self, user: User) -> None:
        """Remove a user; their open segment has no model from now on."""
        row = self.sums.row[user]
        self.model[self.id[row]] = NO_MODEL
        columns.remove(self, self._columns, row, len(self.sums) - 1)
        self.sums.remove(user)

    def model_of(self, row: int) -> int:
        """Return the id of the model of a user's open segment, or `NO_MODEL`."""
        return int(self.model[self.id[row]])

    def assign(self, row: int, model: int, clock: int) -> None:
        """Assign a user's open segment to a model."""
        self.model[self.id[row]], self.joined[row] = model, clock

    def followers(self, model: int) -> Ids:
        """Return the rows of the users whose open segment belongs to a model."""
        return np.flatnonzero(self.model[self.id[: len(self.sums)]] == model)

    def alike(self, model: int) -> Ids:
        """Return the ids of all segments of a model, also of closed ones."""
        return np.flatnonzero(self.model[: self._begun] == model)

    def others(self, row: int) -> Stats:
        """Return the sums of all other users' open segments of the same model."""
        rows = self.followers(self.model_of(row))
        return self.sums.total(rows[rows != row])

    def surprise(self, row: int, x: FloatArray, y: float) -> float | None:
        """Return ``σ² s`` of the test of a user's open segment against one observation, Eq. (1).

        It is ``(y − xᵀϑ)² / (1 + xᵀA⁻x)``, as in DyClu. None if the context does not lie in the
        span of the segment's contexts: then nothing can be compared.
        """
        gram, count = self.sums.gram[row], int(self.sums.count[row])
        known, inverse, theta = self._estimate(row)
        if known < len(x) and int(rank(gram + x[:, None] * x, count + 1)) > known:
            return None
        error = y - float(x @ theta)
        return error * error / (1 + max(0.0, float(x @ inverse @ x)))

    def rings(self, row: int, surprised: bool) -> bool:
        """Note whether a reward surprised; return whether the latest surprises mean a change."""
        window = self.surprises.shape[1]
        self.surprises[row, self.judged[row] % window] = surprised
        self.judged[row] += 1
        entries = min(int(self.judged[row]), window)
        frequency = int(self.surprises[row].sum()) / entries
        return bool(frequency > _threshold(self._level, self._delta, entries))

    def summary(self, row: int) -> SegmentSummary:
        """Return the user's open segment."""
        id, opened, count = self.id[row], self.opened[row], self.sums.count[row]
        return SegmentSummary(int(id), int(opened), None, int(count))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        state, arrays = self.sums.dump()
        arrays |= columns.dump(self, self._columns, len(self.sums))
        return state, arrays | {"model": self.model[: self._begun]}

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the state that `dump` returned."""
        self.sums.fill(state, arrays)
        columns.fill(self, self._columns, len(self.sums), arrays)
        self._begun = len(arrays["model"])
        columns.fill(self, ("model",), self._begun, arrays)

    def _estimate(self, row: int) -> tuple[int, FloatArray, FloatArray]:
        """Return rank, generalised inverse and least-squares estimate of an open segment."""
        gram, moment = self.sums.gram[row], self.sums.moment[row]
        if self.spans[row]:
            inverse, theta = np.empty_like(gram), np.empty_like(moment)
            if kernels.evidence.posterior(gram, moment, self._zeros, 0.0, theta, inverse):
                return len(moment), inverse, theta
        found = least_squares(gram, moment, int(self.sums.count[row]))
        self.spans[row] = found[0] == len(moment)
        return found

    def _begin(self, row: int, clock: int) -> None:
        self.id[row], self.opened[row], self.joined[row] = self._begun, clock, clock
        columns.make_room(self, ("model",), self._begun + 1)
        self.model[self._begun] = NO_MODEL
        self._begun += 1


@lru_cache(maxsize=1024)
def _threshold(level: float, delta: float, entries: int) -> float:
    return alarm_threshold(level, delta=delta, entries=entries)
