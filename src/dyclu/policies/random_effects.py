"""LinUCB per user with a prior that is learnt from all users: a linear mixed model.

Users are the random effects of the mixed model (Laird and Ware 1982). The prior is estimated by
empirical Bayes (docs/theory.md §10.4; docs/decisions/019-random-effects.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.core.noise import Noise
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.panel import NONE, Panel
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.population import (
    COMPARED_USERS,
    GROWTH,
    Population,
    Rewards,
    as_kind,
    converted,
)
from dyclu.policy import TIE, Decision, Outcome
from dyclu.validation import FloatArray, Ids, User, as_dim, as_positive


class RandomEffects(WithoutGroups, OneByOne):
    """One linear model per user, with a prior that is learnt from all users.

    The parameter of a user is drawn from N(μ, Σ); it has an intercept and never changes. A reward
    is ``zᵀθ`` plus noise, where ``z = (x, 1)``. The prior and the noise are learnt from the sums of
    at most 128 users, and learnt again whenever the stream has grown by 5 %. The score of an arm is
    the posterior mean of its expected reward plus `alpha` posterior standard deviations. A user
    without rewards has the prior ``N(μ̂, Σ + Cov μ̂)``.

    A user is an Atlas user for whom no shared models exist: the weights of observations, and noise
    that differs between users, are the same as there. Users share nothing but prior and noise.
    Memory per user is ``(dim + 1)²`` numbers and a few more: 6 KB at 25 features.

    Parameters
    ----------
    dim : int
        Number of features of a context. A constant feature is not needed.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it, for each user if they differ.
    alpha : float
        How many standard deviations of its expected reward are added to the score of an arm.
    rewards : "binary", "real" or None
        Whether rewards are 0 or 1, or any numbers; None decides by the rewards seen.

    Examples
    --------
    The users like the first arm, so it is offered to a new one:

    >>> policy, arms = RandomEffects(2, noise=0.1), [[1.0, 0.0], [0.0, 1.0]]
    >>> for user in ("ana", "ben", "cem"):
    ...     outcome = policy.learn(user, arms[0], 0.9)
    ...     outcome = policy.learn(user, arms[1], 0.1)
    >>> policy.decide("dua", arms).arm
    0
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        alpha: float = 0.25,
        rewards: Rewards | None = None,
    ) -> None:
        self.dim = as_dim(dim)
        self.alpha = as_positive(alpha, "alpha")
        self.rewards = as_kind(rewards)
        self._known = None if noise is None else Noise.known(noise)
        told = None if self._known is None else self._known.variance
        self._population = Population(self.dim, noise=told, rewards=self.rewards)
        self._users, self._panel = _Users(self.dim), Panel(self.dim)
        self._shared = _NoModels(self.dim)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        users, population, shared = self._users, self._population, self._shared
        row = users.row.get(user)
        gram, moment, scale = shared.precision[0], shared.shift[0], 0.0
        if row is not None:
            gram, moment, scale = users.gram[row], users.moment[row], self._scale(row)
        theta, mean, width = np.empty(self.dim + 1), np.empty(len(arms)), np.empty(len(arms))
        kernels.choosing.score_in_doubt(
            shared.precision, shared.shift, shared.rows, population.precision, population.shift,
            gram, moment, scale, shared.belief, 0, 0.0, arms, shared.tally, 0.0, 1.0,
            population.binary, self.alpha, theta, mean, width,
        )  # fmt: skip
        arm, value, reach = kernels.choosing.choose(mean, width, population.binary, TIE)
        return Decision(user, arm, value, reach, theta=theta[:-1])

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user's sums; learn prior and noise again if it is due."""
        users, population, shared = self._users, self._population, self._shared
        population.record(x, y)
        if population.clock == 1:
            population.begin()
        elif (line := population.change_law()) is not None:
            users.convert(*line, float(population.stream[kernels.ledger.NOISE]))
        if population.binary:
            y = min(max(y, 0.0), 1.0)
        row = self._row_of(user)
        users.sums[row, kernels.ledger.SCALE] = self._scale(row)
        kernels.atlas.learn_in_doubt(
            shared.precision, shared.shift, shared.tally, shared.rows, population.precision,
            population.shift, users.gram[row], users.moment[row], users.sums[row],
            users.ledger[row], shared.memory, population.stream, x, y,
        )  # fmt: skip
        if users.ledger[row, kernels.ledger.SEAT] != NONE:
            panel = self._panel
            kernels.atlas.seat_reward(
                panel.gram, panel.moment, panel.sums, users.ledger[row], shared.memory,
                population.stream,
            )  # fmt: skip
        if population.clock >= population.due:
            self._learn_prior()
        return Outcome(user)

    def _row_of(self, user: User) -> int:
        """Return the row of a user; a new one may get a seat on the panel."""
        users, known = self._users, user in self._users.row
        row = users.of(user)
        if not known:
            self._population.segments += 1
            seat, left = self._panel.admit(row, self._population.segments)
            users.ledger[row, kernels.ledger.SEAT] = seat
            if left != NONE:
                users.ledger[left, kernels.ledger.SEAT] = NONE
        return row

    def _learn_prior(self) -> None:
        users, population, column = self._users, self._population, kernels.ledger
        population.due = max(population.clock + 1.0, GROWTH * population.clock)
        population.learn(*self._panel.held())
        ledger = users.ledger[: min(len(users.row), COMPARED_USERS)]
        population.compare_users(ledger[:, column.NOISE_SUM], ledger[:, column.NOISE_WEIGHT])

    def _scale(self, row: int) -> float:
        """Return the inverse of the variance of a user's noise, as it is estimated now."""
        variance = kernels.ledger.user_variance(self._users.ledger[row], self._population.stream)
        return 1.0 / float(variance)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated so far."""
        return math.sqrt(self._population.line_noise)

    @property
    def _by_user(self) -> Mapping[User, int]:
        return self._users.row

    def _forget(self, user: User) -> None:
        """Remove the user's sums; what prior and noise have learnt from them stays."""
        row, last = self._users.row[user], len(self._users.row) - 1
        self._panel.forget(row)
        self._panel.rename(last, row)
        self._users.remove(user)
        self._population.forget()

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = dict[str, Any](), Arrays()
        for part, owner in self._parts():
            state[part], held = owner.dump()
            arrays |= columns.prefixed(held, f"{part}_")
        return state, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        for part, owner in self._parts():
            owner.fill(state[part], columns.part(arrays, f"{part}_"))

    def _parts(self) -> tuple[tuple[str, _Users | Population | Panel], ...]:
        return ("users", self._users), ("population", self._population), ("panel", self._panel)


class _Users:
    """The sums of each user; row `i` of every array belongs to user `i`.

    Attributes
    ----------
    gram, moment : arrays of shape (room, p, p) and (room, p)
        ``Σ w zzᵀ`` and ``Σ w zy``.
    sums, ledger : arrays of shape (room, 4) and (room, kernels.ledger.WIDTH)
        Number of rewards, energy and noise of a user, in the columns named in `kernels.ledger`.
    row : dict of user to int
        The row of each user, in the order of the rows.
    """

    def __init__(self, dim: int) -> None:
        p = dim + 1
        self.row: dict[User, int] = {}
        self.gram = columns.new(np.float64, p, p)
        self.moment = columns.new(np.float64, p)
        self.sums = columns.new(np.float64, 4)
        self.ledger = columns.new(np.float64, kernels.ledger.WIDTH)
        self._columns = columns.names(self)

    def of(self, user: User) -> int:
        """Return the row of a user; a new user gets an empty one."""
        row = self.row.get(user)
        if row is None:
            row = self.row[user] = len(self.row)
            columns.make_room(self, self._columns, row + 1)
        return row

    def convert(self, factor: float, constant: float, noise: float) -> None:
        """Turn levels ``m`` into ``factor · m + constant``; `noise` is the variance from now on."""
        column = kernels.ledger
        scale = self.sums[:, column.SCALE]
        self.gram, self.moment = converted(
            noise * scale[:, None, None] * self.gram, noise * scale[:, None] * self.moment, factor,
            constant,
        )  # fmt: skip
        self.sums[:, column.SCALE], self.sums[:, column.RATIO] = 1.0 / noise, 1.0
        self.ledger[:, [column.NOISE_SUM, column.NOISE_WEIGHT]] = 0.0

    def remove(self, user: User) -> None:
        """Remove a user; the user in the last row moves to this row."""
        columns.remove(self, self._columns, self.row[user], len(self.row) - 1)
        self.row = columns.without(self.row, user)

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """Return the complete state: what JSON can hold, and arrays."""
        return {"names": list(self.row)}, columns.dump(self, self._columns, len(self.row))

    def fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore what `dump` returned."""
        self.row = {user: row for row, user in enumerate(state["names"])}
        columns.fill(self, self._columns, len(self.row), arrays)


class _NoModels:
    """The arguments of Atlas's kernels where there are no shared models: only the empty row 0.

    Kernels never write to row 0, so the arrays stay zero; `memory` holds the last reward.
    """

    def __init__(self, dim: int) -> None:
        p = dim + 1
        self.rows: Ids = np.zeros(1, np.intp)
        self.precision, self.shift = np.zeros((1, p, p)), np.zeros((1, p))
        self.tally = np.zeros((1, len(kernels.tastes.TALLY)))
        self.belief = np.ones(1)
        self.memory = np.zeros((1, dim + kernels.memory.REMEMBERED))
