"""`Mixture`: the models that users share, and how probable each of them is for a segment.

The sums of a model are those of its segments together. Given all other segments, a segment belongs
to a model with a probability proportional to ::

    n_k · Z(S_k + S) / Z(S_k)    for a model with n_k other segments and their sums S_k,
    α₀ · Z(S)                    for a new model,

where ``S`` are the sums of the segment and ``Z`` is the evidence of `core.evidence`. The ratio is
the probability of the segment's rewards given those of the model, averaged over the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dyclu.core.dirichlet import memberships
from dyclu.core.evidence import Prior
from dyclu.core.stats import Stats
from dyclu.policies.codband.sums import Sums
from dyclu.policies.common import columns
from dyclu.validation import FloatArray

NO_MODEL = -1
"""In place of a model's id: a segment has none yet, or a new model is to be founded."""

CLOSED, ALL = "closed ", "all "
"""Prefixes of the names of the sums' arrays in a saved file."""


class Belief(NamedTuple):
    """Probabilities of the models for one segment.

    Attributes
    ----------
    ids : tuple of int
        The models that have other segments, and last `NO_MODEL` for a new model.
    probabilities : array of shape (len(ids),)
        Their probabilities.
    """

    ids: tuple[int, ...]
    probabilities: FloatArray


class Mixture:
    """The shared models; row `i` of every array belongs to model `i`.

    Attributes
    ----------
    all, closed : Sums
        By id of a model: the sums of all its segments, and of the closed ones. A closed segment
        never moves to another model.
    segments : int array of shape (room,)
        Number of its segments.
    founded, visited : int arrays of shape (room,)
        Number of rewards learnt when it was founded, and when it last got one.
    """

    def __init__(self, dim: int) -> None:
        self.segments = columns.new(np.int64)
        self.founded = columns.new(np.int64)
        self.visited = columns.new(np.int64)
        self._columns = columns.names(self)
        self.all, self.closed = Sums(dim), Sums(dim)
        self._founded = 0

    def __len__(self) -> int:
        return len(self.row)

    @property
    def row(self) -> Mapping[Any, int]:
        """The row of each model by its id, in the order of the rows; ids are never used again."""
        return self.all.row

    @property
    def size(self) -> int:
        """Number of segments that belong to a model."""
        return int(self.segments[: len(self)].sum())

    def popularity(self, concentration: float) -> Belief:
        """Return the probabilities of the models for a segment without data."""
        n = len(self)
        no_data = np.zeros(n + 1)
        return self._belief(range(n), memberships(self.segments[:n], concentration, no_data))

    def belief(
        self, mine: Stats, prior: Prior, concentration: float, *, own: int, others: Stats
    ) -> Belief:
        """Return the probabilities of the models for a segment, given all other segments.

        Parameters
        ----------
        mine : Stats
            The sums of the segment.
        prior : Prior
            The base distribution of the parameters, and the noise.
        concentration : float
            ``α₀``, the weight of a new model.
        own : int
            Id of the model that the segment belongs to so far, or `NO_MODEL`.
        others : Stats
            The sums of all other segments of that model.
        """
        n, at = len(self), self.row.get(own)
        sizes = self.segments[:n].copy()
        grams, moments = self.all.gram[:n].copy(), self.all.moment[:n].copy()
        if at is not None:
            sizes[at] -= 1
            grams[at], moments[at] = others.gram, others.moment
        rows = np.flatnonzero(sizes)
        # The arrays of `Stats` are read-only, for which numba would compile kernels a second time.
        gram, moment = mine.gram.copy(), mine.moment.copy()
        nothing = np.zeros_like(gram), np.zeros_like(moment)
        likelihoods = np.empty(len(rows) + 1)
        likelihoods[:-1] = prior.log_evidences(grams, moments, rows, gram, moment)
        likelihoods[:-1] -= prior.log_evidences(grams, moments, rows, *nothing)
        likelihoods[-1] = prior.log_evidence(gram, moment)
        return self._belief(rows.tolist(), memberships(sizes[rows], concentration, likelihoods))

    def found(self, clock: int) -> int:
        """Add a model without segments; return its id."""
        id, self._founded = self._founded, self._founded + 1
        row = self.all.of(id)
        self.closed.of(id)
        columns.make_room(self, self._columns, row + 1)
        self.founded[row] = clock
        return id

    def join(self, id: int, mine: Stats, clock: int) -> None:
        """Add a segment to a model."""
        row = self.row[id]
        self.all.put(row, self.all.stats(row) + mine)
        self.segments[row] += 1
        self.visited[row] = clock

    def leave(self, id: int, others: Stats) -> None:
        """Remove a segment from a model, given the sums of the other ones; drop an empty model.

        Nothing is subtracted, so that rounding errors do not accumulate.
        """
        row = self.row[id]
        self.all.put(row, others)
        self.segments[row] -= 1
        if not self.segments[row]:
            columns.remove(self, self._columns, row, len(self) - 1)
            self.all.remove(id)
            self.closed.remove(id)

    def add(self, id: int, x: FloatArray, y: float, clock: int) -> None:
        """Add an observation to a model, as part of one of its segments."""
        self.all.add(self.row[id], x, y)
        self.visited[self.row[id]] = clock

    def close(self, id: int, mine: Stats) -> None:
        """Close a segment of a model; its data stay."""
        row = self.row[id]
        self.closed.put(row, self.closed.stats(row) + mine)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        state, sums = self.all.dump()
        _, closed = self.closed.dump()
        arrays = columns.dump(self, self._columns, len(self))
        arrays |= columns.prefixed(sums, ALL) | columns.prefixed(closed, CLOSED)
        return state | {"founded": self._founded}, arrays

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the state that `dump` returned."""
        self._founded = state["founded"]
        self.all.fill(state, columns.part(arrays, ALL))
        self.closed.fill(state, columns.part(arrays, CLOSED))
        columns.fill(self, self._columns, len(self), arrays)

    def _belief(self, rows: Iterable[int], probabilities: FloatArray) -> Belief:
        ids = list(self.row)
        return Belief((*(ids[row] for row in rows), NO_MODEL), probabilities)
