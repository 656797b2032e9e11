"""SCLUB (Li, Chen, Li, Leung 2019: Improved Algorithm on Online Clustering of Bandits, IJCAI).

Clusters are sets of users. A user who differs from their cluster leaves it at once, and similar
clusters merge. Both are judged by the estimates and by how frequently users come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policies.common.self_checks import comparable, sharing_warnings
from dyclu.policy import Decision, Outcome, no_ids
from dyclu.validation import FloatArray, Ids, User, as_dim, as_positive

FIRST = 0
"""Id of the cluster in which users start. It is never empty if there are users."""

SUMS = "cluster's "
"""Prefix of the names of the clusters' arrays in a saved file."""


class Sclub(WithoutGroups, OneByOne):
    """Similar users share their data, in clusters that split and merge. It assumes no changes.

    Rounds are grouped into phases of 2, 4, 8, … rounds. At the start of a phase every cluster's
    estimate is noted. After each reward the user is compared with the noted estimate of their
    cluster, and leaves the cluster if they differ. A cluster is *checked* when all its users have
    come in this phase; checked clusters with similar estimates and frequencies merge.

    Memory is O(d²) per user. A reward costs O(d² + n d), and more only when users move.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    ridge : float
        Regularisation λ of each user's model and of each cluster's model.
    alpha : float
        Exploration β: an arm's width is ``β √(xᵀ M⁻¹ x)``.
    tolerance : float
        α_θ: a user leaves if ``‖θ̂_i − θ̃_j‖ > α_θ (F(T_i) + F(T̃_j))``, with θ̃ and T̃ as noted and
        ``F(T) = √((1 + log(1 + T)) / (1 + T))``; two clusters merge below half of it.
    frequency_tolerance : float
        α_p: a user leaves if ``|T_i − T_l| / t > 2 α_p F(t)`` for any user l of their cluster; two
        clusters merge if their users' mean frequencies differ by less than half of it.

    Examples
    --------
    >>> policy = Sclub(1, ridge=1.0)
    >>> for _ in range(50):
    ...     for user, reward in (("ana", 1.0), ("ben", -1.0), ("cem", 1.0)):
    ...         outcome = policy.learn(user, [1.0], reward)
    >>> policy.clusters
    (('ana', 'cem'), ('ben',))
    """

    def __init__(
        self,
        dim: int,
        *,
        ridge: float = 0.1,
        alpha: float = 0.3,
        tolerance: float = 2.0,
        frequency_tolerance: float = math.sqrt(2),
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.alpha = as_positive(alpha, "alpha")
        self.tolerance = as_positive(tolerance, "tolerance")
        self.frequency_tolerance = as_positive(frequency_tolerance, "frequency_tolerance")
        self._clock = 0
        self._users = RidgeModels(self.dim, ridge=self.ridge)
        # By id. There are at most as many clusters as users: ids are reused, and below that number.
        self._sums = RidgeModels(self.dim, ridge=self.ridge)
        self._cluster = columns.new(np.intp)
        self._checked = columns.new(np.bool_)
        self._noted_theta = columns.new(np.float64, self.dim)
        self._noted_count = columns.new(np.int64)
        self._columns = columns.names(self)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        row = self._users.row.get(user)
        id = FIRST if row is None else int(self._cluster[row])
        return self._sums.decide(user, id, arms, alpha=self.alpha)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user and their cluster, then split and merge."""
        row = self._users.row[user] if user in self._users.row else self._enter(user)
        if (self._clock + 2).bit_count() == 1:
            self._begin_phase()
        self._clock += 1
        self._users.add(row, x, y)
        self._sums.add(int(self._cluster[row]), x, y)
        self._checked[row] = True
        if not self._fits(row):
            self._merge(self._leave(row))
        self._merge(int(self._cluster[row]))
        return Outcome(user, segment=row, neighbours=self._members(int(self._cluster[row])))

    @property
    def clusters(self) -> tuple[tuple[User, ...], ...]:
        """The users of every cluster, in the order of their rows."""
        names = list(self._users.row)
        ids = np.unique(self._cluster[: len(names)])
        return tuple(tuple(names[row] for row in self._members(id)) for id in ids)

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
        """Remove the user's model and their share of their cluster; the count of rounds stays.

        The last user takes the row of the removed one, which is the `segment` of their outcomes.
        """
        row, last = self._users.row[user], len(self._users) - 1
        left = int(self._cluster[row])
        self._users.remove(user)
        self._sums.remove(last)
        self._cluster[row], self._checked[row] = self._cluster[last], self._checked[last]
        self._checked[last] = False
        # Number the clusters from 0 again: their ids must be below the number of users.
        ids, self._cluster[:last] = np.unique(self._cluster[:last], return_inverse=True)
        self._cluster[last] = FIRST
        for noted in (self._noted_theta, self._noted_count):
            noted[: len(ids)] = noted[ids]
            noted[len(ids) : last + 1] = 0
        for id in range(last):
            self._pool(id)
        for id in np.flatnonzero(ids == left).tolist():
            self._note(id)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, users = self._users.dump()
        _, sums = self._sums.dump()
        arrays = {**users, **columns.dump(self, self._columns, len(self._users))}
        return {**state, "clock": self._clock}, arrays | columns.prefixed(sums, SUMS)

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._clock = state["clock"]
        self._users.fill(state, arrays)
        columns.fill(self, self._columns, len(self._users), arrays)
        self._sums.fill({"keys": list(range(len(self._users)))}, columns.part(arrays, SUMS))

    def _enter(self, user: User) -> int:
        """Add a new user to the first cluster."""
        row = self._users.of(user)
        self._sums.of(row)
        columns.make_room(self, self._columns, row + 1)
        return row

    def _begin_phase(self) -> None:
        n = len(self._users)
        self._checked[:n] = False
        self._noted_theta[:n] = self._sums.theta[:n]
        self._noted_count[:n] = self._sums.count[:n]

    def _fits(self, row: int) -> bool:
        """Return whether a user's estimate and frequency agree with those of their cluster."""
        id = int(self._cluster[row])
        mine, counts = int(self._users.count[row]), self._users.count[self._members(id)]
        if len(counts) == 1:
            return True
        gap = self._users.theta[row] - self._noted_theta[id]
        limit = self.tolerance * (_radius(mine) + _radius(self._noted_count[id]))
        rate_gap = max(counts.max() - mine, mine - counts.min()) / self._clock
        rate_limit = 2 * self.frequency_tolerance * _radius(self._clock)
        return bool(math.sqrt(gap @ gap) <= limit and rate_gap <= rate_limit)

    def _leave(self, row: int) -> int:
        """Move a user to a new cluster of their own; return the id of the one they left."""
        before, new = int(self._cluster[row]), int(np.argmin(self._sizes()))
        self._cluster[row] = new
        self._pool(before)
        self._pool(new)
        return before

    def _merge(self, id: int) -> None:
        """Merge a checked cluster with similar checked clusters, one after the other."""
        while len(others := self._alike(id)):
            id, gone = sorted((id, int(others[0])))
            self._cluster[self._members(gone)] = id
            self._pool(id)
            self._note(id)

    def _note(self, id: int) -> None:
        """Note the present estimate of a cluster, with which its users are compared."""
        self._noted_theta[id] = self._sums.theta[id]
        self._noted_count[id] = self._sums.count[id]

    def _alike(self, id: int) -> Ids:
        """Return the checked clusters with which a cluster may merge; none if it is not checked."""
        sizes = self._sizes()
        n, counts, thetas = len(sizes), self._sums.count, self._sums.theta
        checked = sizes > 0
        checked[self._cluster[:n][~self._checked[:n]]] = False
        if not checked[id]:
            return no_ids()
        checked[id] = False
        others = np.flatnonzero(checked)
        gaps = thetas[others] - thetas[id]
        limits = self.tolerance / 2 * (_radius(counts[others]) + _radius(counts[id]))
        near = others[np.sqrt(np.einsum("nd,nd->n", gaps, gaps)) < limits]
        rate_gaps = np.abs(counts[near] / sizes[near] - counts[id] / sizes[id]) / self._clock
        as_often = rate_gaps < self.frequency_tolerance * _radius(self._clock)
        return np.asarray(near[as_often])

    def _pool(self, id: int) -> None:
        """Compute the sums of a cluster from those of its users."""
        self._sums.put(id, self._users.total(self._members(id)))

    def _sizes(self) -> Ids:
        n = len(self._users)
        return np.bincount(self._cluster[:n], minlength=n)

    def _members(self, id: int) -> Ids:
        return np.flatnonzero(self._cluster[: len(self._users)] == id)


def _radius(count: int | NDArray[np.int64]) -> FloatArray:
    """Return ``F(T)``, the uncertainty of an estimate from T observations."""
    return np.asarray(np.sqrt((1 + np.log1p(count)) / (1 + count)))
