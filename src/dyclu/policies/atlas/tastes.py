"""`Tastes`: the atlas itself, the distinct tastes met so far, stacked in arrays.

Row 0 is nobody's: an empty model, which is the prior. To be *there* means to be somebody new, and
every formula that weighs a model weighs this one too. A model is *young* while it is but a guess
that a few segments on probation belong together; from ``2d`` observations on, or while somebody is
located there, it is *established*, and its inverse and estimate are kept at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.core.evidence import Prior
from dyclu.policies.atlas.stream import StreamStatistics
from dyclu.policies.common import columns
from dyclu.policy import TIE
from dyclu.validation import FloatArray, Ids

NEW, NOBODY = 0, -1
"""The row of somebody new, and its id."""

GONE = -1
"""The row of a model that is no more."""

UNKNOWN = np.nan
"""A log evidence that has to be computed."""


class Tastes:
    """Models by row; rows of models that are gone are used again, ids are not.

    Attributes
    ----------
    gram, moment, count : arrays of shape (room, d, d), (room, d) and (room,)
        The sums of every model's observations.
    inverse, theta : arrays of shape (room, d, d) and (room, d)
        ``A_λ⁻¹`` and the posterior mean, of models in use.
    users : int array of shape (room,)
        How many users are located on it.
    guests : int array of shape (room,)
        How many segments on probation are part of it.
    id, founded : int arrays of shape (room,)
        A name for people, and when it was founded, in rewards of all users.
    visited : array of shape (room,)
        When it was last credited.
    checked : array of shape (room,)
        Its count when it was last compared with the others; 0 while nobody can be on it but guests.
    tally : array of shape (room, 6)
        Count, visited, checked and what else a kernel must know, side by side.
    """

    count: FloatArray
    visited: FloatArray
    checked: FloatArray
    evidence: FloatArray
    updates: FloatArray
    entry: FloatArray

    def __init__(self, dim: int, prior: Prior) -> None:
        self.dim, self.prior = dim, prior
        self.established_at = 2.0 * dim
        self.gram = columns.new(np.float64, dim, dim)
        self.moment = columns.new(np.float64, dim)
        self.inverse = columns.new(np.float64, dim, dim)
        self.theta = columns.new(np.float64, dim)
        self.users = columns.new(np.int64)
        self.guests = columns.new(np.int64)
        self.id = columns.new(np.int64)
        self.founded = columns.new(np.int64)
        self.alive = columns.new(np.bool_)
        self.tally = columns.new(np.float64, len(kernels.atlas.TALLY))
        self._columns = columns.names(self)
        self._surroundings = np.zeros(5)
        self._part()
        self.rows, self.next_id = 1, 0
        self._row_of, self.merged = {NOBODY: NEW}, dict[int, int]()
        self._entering_known = False
        self.alive[NEW], self.id[NEW] = True, NOBODY
        self._look()
        self.retune(prior)

    @property
    def room(self) -> int:
        """How many rows the arrays have."""
        return len(self.alive)

    @property
    def live(self) -> Ids:
        """Rows of all models, somebody new among them."""
        return self._live

    @property
    def established(self) -> Ids:
        """Rows of the established models."""
        return self._established

    def is_established(self, row: int) -> bool:
        """Tell whether a model is more than a guess."""
        return bool(self.users[row] or self.count[row] >= self.established_at)

    def found(self, clock: int) -> int:
        """Return the row of a new, empty model."""
        gone = np.flatnonzero(~self.alive[: self.rows])
        row = int(gone[0]) if len(gone) else self.rows
        self.rows = max(self.rows, row + 1)
        columns.make_room(self, self._columns, self.rows)
        self._part()
        columns.clear(self, self._columns, row)
        self.alive[row], self.id[row] = True, self.next_id
        self.founded[row] = self.visited[row] = clock
        self._row_of[self.next_id] = row
        self.next_id += 1
        self._look()
        return row

    def lodge(self, row: int, users: int) -> None:
        """Let so many more users be located on a model."""
        self.users[row] += users
        self._look()

    def add(self, row: int, gram: FloatArray, moment: FloatArray, count: float) -> None:
        """Add the sums of observations to a model, or take them out if `count` is negative."""
        sign = 1.0 if count >= 0 else -1.0
        self.gram[row] += sign * gram
        self.moment[row] += sign * moment
        self.count[row] = max(0.0, self.count[row] + count)
        self.refresh(row)
        self._look()

    def credit(
        self, row: int, context: FloatArray, reward: float, *, score: FloatArray, floor: float
    ) -> None:
        """Add one observation of a located user to a model, and its error to the user's score.

        One less likely than `floor` counts as one that is just as likely.
        """
        kernels.atlas.credit(
            self.gram[row], self.moment[row], self.inverse[row], self.theta[row], score,
            context, reward, self.prior.noise_variance, floor,
        )  # fmt: skip
        self.count[row] += 1
        self.evidence[row] = UNKNOWN
        self.updates[row] += 1
        if self.updates[row] >= kernels.atlas.STALE:
            self.refresh(row)

    def choose_many(
        self, rows: Ids, arms: FloatArray, *, alpha: float, beyond: float, bold: float
    ) -> tuple[Ids, FloatArray, FloatArray]:
        """Return the best of each table of arms (n, K, dim) by a model each, its mean and width."""
        n = len(rows)
        arm, mean, width = np.empty(n, np.intp), np.empty(n), np.empty(n)
        kernels.ridge.ucb_many(
            self.theta, self.inverse, rows.astype(np.intp), arms, np.full(n, alpha), TIE,
            arm, mean, width, beyond, bold,
        )  # fmt: skip
        return arm, mean, width

    def surroundings(self, stream: StreamStatistics, clock: int) -> FloatArray:
        """Return what a kernel must know besides the models: noise, spread and the rest."""
        if not self._entering_known:
            self.entering(stream)
        told = self._surroundings
        # One by one, because that is quicker than all at once.
        told[2], told[3], told[4] = stream.hazard, stream.floor, clock
        return told

    def entering(self, stream: StreamStatistics) -> FloatArray:
        """Return how likely a newcomer is to be on each model; young ones do not count.

        That is computed when a model has changed, or the prior, and kept until the next one does.
        """
        entering = self.entry[: self.rows]
        if not self._entering_known:
            novelty = stream.novelty(len(self._established))
            entering[:] = 0.0
            entering[self._established] = 1.0
            entering[NEW] = novelty
            entering /= novelty + len(self._established)
            self._entering_known = True
        return entering

    def refresh(self, row: int) -> None:
        """Compute afresh what follows from a model's sums."""
        self.evidence[row], self.updates[row] = UNKNOWN, 0
        if row == NEW or self.is_established(row):
            self.theta[row], self.inverse[row] = self.prior.posterior(
                self.gram[row], self.moment[row]
            )

    def retune(self, prior: Prior) -> None:
        """Let another prior hold."""
        self._expect(prior)
        self._entering_known = False
        for row in self.live:
            self.refresh(row)

    def _expect(self, prior: Prior) -> None:
        self.prior = prior
        self._surroundings[:2] = prior.noise_variance, prior.variance

    def close(self, row: int, *, into: int | None = None) -> None:
        """Remove a model; where it was merged `into` another one, it goes by that from now on."""
        id = int(self.id[row])
        del self._row_of[id]
        if into is not None:
            self.merged[id] = int(self.id[into])
        columns.clear(self, self._columns, row)
        while not self.alive[self.rows - 1]:
            self.rows -= 1
        self._look()

    def rows_of(self, ids: Iterable[int]) -> list[int]:
        """Return the rows of models, or of those they were merged into; `GONE` where none is."""
        return [self._row_of.get(id, GONE) for id in (map(self._now, ids) if self.merged else ids)]

    def _now(self, id: int) -> int:
        while id in self.merged:
            id = self.merged[id]
        return id

    def evidences(self, rows: Ids) -> FloatArray:
        """Return the models' log evidence."""
        evidence = self.evidence[rows]
        unknown = np.isnan(evidence)
        if unknown.any():
            nothing = np.zeros((self.dim, self.dim)), np.zeros(self.dim)
            evidence[unknown] = self.prior.log_evidences(
                self.gram, self.moment, rows[unknown], *nothing
            )
        return evidence

    def know(self, rows: Ids) -> None:
        """Keep the models' log evidence at hand."""
        self.evidence[rows] = self.evidences(rows)

    def gains(self, rows: Ids, gram: FloatArray, moment: FloatArray) -> FloatArray:
        """Return the log evidence of some observations, given those of each model."""
        together = self.prior.log_evidences(self.gram, self.moment, rows, gram, moment)
        return together - self.evidences(rows)

    def _look(self) -> None:
        self._live = np.flatnonzero(self.alive[: self.rows])
        rows = self._live
        self._established = rows[(self.count[rows] >= self.established_at) | (self.users[rows] > 0)]
        self._entering_known = False

    def _part(self) -> None:
        columns.expose_parts(self, "tally", dict.fromkeys(kernels.atlas.TALLY, ()))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        merged = list(self.merged.items())
        state = {"rows": self.rows, "next_id": self.next_id, "merged": merged}
        arrays = columns.dump(self, self._columns, self.rows)
        arrays["tally"] = arrays["tally"].copy()
        arrays["tally"][:, kernels.atlas.ENTERING] = (
            0.0  # computed when needed, also by who only asks
        )
        return state, arrays

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]], prior: Prior) -> None:
        """Put back what `dump` returned."""
        self.rows, self.next_id = state["rows"], state["next_id"]
        self._expect(prior)
        self.merged = dict(state["merged"])
        columns.fill(self, self._columns, self.rows, arrays)
        self._part()
        self._look()
        self._row_of = dict(zip(self.id[self._live].tolist(), self._live.tolist(), strict=True))
