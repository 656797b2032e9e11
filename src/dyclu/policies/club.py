"""CLUB (Gentile, Li, Zappella 2014: Online Clustering of Bandits, ICML): a graph that loses edges.

At first all users are connected. An edge is removed for good when the two estimates differ by more
than the numbers of observations explain. Connected users share one model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.core.ridge import Scores, pooled_scores
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policies.common.self_checks import comparable, sharing_warnings
from dyclu.policy import Decision, Outcome, choose
from dyclu.validation import FloatArray, Ids, User, as_dim, as_positive

SUMS = "cluster's "
"""Prefix of the names of the clusters' arrays in a saved file."""


class Club(WithoutGroups, OneByOne):
    """Users with similar estimates share their data. It assumes that users do not change.

    Memory is O(d²) per user and one byte per pair of users. A reward costs O(d² + n d), and O(n²)
    more when an edge is removed, which happens at most once per edge.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    ridge : float
        Regularisation λ of each user's model and of each cluster's model.
    alpha : float
        Exploration α: an arm's width is ``α √(xᵀ M̄⁻¹ x log(1 + t))`` in the t-th round of all.
    tolerance : float
        α₂: two users stay connected while ``‖θ̂_i − θ̂_l‖ ≤ α₂ (CB(T_i) + CB(T_l))``, with
        ``CB(T) = √((1 + log(1 + T)) / (1 + T))``.

    Examples
    --------
    >>> policy = Club(1, ridge=1.0)
    >>> for _ in range(200):
    ...     outcomes = [policy.learn("ana", [1.0], 1.0), policy.learn("ben", [1.0], -1.0)]
    >>> policy.clusters
    (('ana',), ('ben',))
    """

    def __init__(
        self, dim: int, *, ridge: float = 0.1, alpha: float = 0.1, tolerance: float = 2.0
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.alpha = as_positive(alpha, "alpha")
        self.tolerance = as_positive(tolerance, "tolerance")
        self._clock = 0
        self._users = RidgeModels(self.dim, ridge=self.ridge)
        # The id of a cluster is the row of its first user.
        self._clusters = RidgeModels(self.dim, ridge=self.ridge)
        self._cluster: Ids = np.zeros(0, dtype=np.intp)
        self._edges: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        alpha = self.alpha * math.sqrt(math.log(2 + self._clock))
        return choose(user, self._scores(user, arms, alpha))

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user and their cluster, and remove contradicted edges."""
        self._clock += 1
        row = self._users.row[user] if user in self._users.row else self._enter(user)
        self._users.add(row, x, y)
        self._clusters.add(int(self._cluster[row]), x, y)
        contradicted = np.flatnonzero(self._contradicted(row))
        if len(contradicted):
            self._edges[row, contradicted] = self._edges[contradicted, row] = False
            self._separate(row)
        return Outcome(user, segment=row, neighbours=self._members(row))

    @property
    def clusters(self) -> tuple[tuple[User, ...], ...]:
        """The users of every cluster, in the order of their rows."""
        names = list(self._users.row)
        return tuple(
            tuple(names[row] for row in np.flatnonzero(self._cluster == first))
            for first in np.unique(self._cluster)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What seems wrong: no two users are in one cluster."""
        rows = np.flatnonzero(self._users.count[: len(self._users)] >= comparable(self.dim))
        shared = len(np.unique(self._cluster[rows])) < len(rows)
        remedy = "pass a larger tolerance"
        return sharing_warnings(self._users.count[rows], shared=shared, remedy=remedy)

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._users.row

    def _forget(self, user: User) -> None:
        """Remove the user's model, edges and share of their cluster; the count of rounds stays.

        Users who were connected only through this one are separated. The last user takes the row of
        the removed one, which is the `segment` of their outcomes.
        """
        row, last = self._users.row[user], len(self._users) - 1
        self._users.remove(user)
        self._clusters.remove(last)
        for edges in (self._edges, self._edges.T):
            edges[row], edges[last] = edges[last], False
        self._cluster = np.zeros(last, dtype=np.intp)
        for id in range(last):  # rows of clusters that are no more still hold their sums
            self._clusters.clear(id)
        if last:
            self._pool(np.arange(last))
            self._separate(0)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, users = self._users.dump()
        _, clusters = self._clusters.dump()
        n = len(self._users)
        arrays = {**users, "cluster": self._cluster, "edges": self._edges[:n, :n]}
        return {**state, "clock": self._clock}, arrays | columns.prefixed(clusters, SUMS)

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._clock = state["clock"]
        self._cluster, self._edges = arrays["cluster"], arrays["edges"]
        self._users.fill(state, arrays)
        self._clusters.fill({"keys": list(range(len(self._users)))}, columns.part(arrays, SUMS))

    def _scores(self, user: User, arms: FloatArray, alpha: float) -> Scores:
        row = self._users.row.get(user)
        if row is not None:
            return self._clusters.scores(int(self._cluster[row]), arms, alpha=alpha)
        # An unknown user is connected to all users.
        n = len(self._users)
        gram, moment = self._users.gram[:n].sum(axis=0), self._users.moment[:n].sum(axis=0)
        return pooled_scores(gram, moment, arms, ridge=self.ridge, alpha=alpha)

    def _enter(self, user: User) -> int:
        """Connect a new user to all users, which makes one cluster of all."""
        row = self._users.of(user)
        self._clusters.of(row)
        if row >= len(self._edges):
            more = max(1, row)
            self._edges = np.pad(self._edges, ((0, more), (0, more)))
        self._edges[row, :row] = self._edges[:row, row] = True
        several = bool(self._cluster.any())
        self._cluster = np.zeros(row + 1, dtype=np.intp)
        if several:
            self._pool(np.arange(row + 1))
        return row

    def _contradicted(self, row: int) -> NDArray[np.bool_]:
        """Return which edges of a user are contradicted by the estimates."""
        n = len(self._users)
        gaps = self._users.theta[:n] - self._users.theta[row]
        counts = self._users.count[:n]
        radius = np.sqrt((1 + np.log1p(counts)) / (1 + counts))
        far = np.sqrt(np.einsum("nd,nd->n", gaps, gaps)) > self.tolerance * (radius + radius[row])
        return np.asarray(self._edges[row, :n] & far)

    def _separate(self, row: int) -> None:
        """Split a user's cluster into the components that are left after edges were removed."""
        left = self._members(row)
        parts = []
        while len(left):
            part = self._component(int(left[0]))
            parts.append(part)
            left = np.setdiff1d(left, part, assume_unique=True)
        if len(parts) > 1:
            for part in parts:
                self._pool(part)

    def _component(self, row: int) -> Ids:
        """Return the rows of all users connected to a user, directly or not."""
        reached = np.zeros(len(self._edges), dtype=np.bool_)
        reached[row] = True
        front = reached
        while front.any():
            front = self._edges[front].any(axis=0) & ~reached
            reached |= front
        return np.flatnonzero(reached)

    def _pool(self, members: Ids) -> None:
        """Make one cluster of these users, from the sum of their observations."""
        first = int(members[0])
        self._cluster[members] = first
        self._clusters.put(first, self._users.total(members))

    def _members(self, row: int) -> Ids:
        return np.flatnonzero(self._cluster == self._cluster[row])
