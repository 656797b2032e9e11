"""dLinUCB: several linear models per user, each with the rate of its recent errors.

Qingyun Wu, Naveen Iyer, Hongning Wang (2018): *Learning Contextual Bandits in a Non-stationary
Environment*, SIGIR. Every user has a pool of LinUCB models, the slaves. Each slave predicts each
reward of the user and learns the ones that it predicted well enough. If all slaves err too often, a
new one is added; a slave that errs even more often is discarded. How we read the paper:
``docs/decisions/006-dlinucb-and-adts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dyclu.core.noise import Noise, kept_variance
from dyclu.core.theory import exploration
from dyclu.errors import OptionError
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policies.common.self_checks import SetAside
from dyclu.policy import Decision, Outcome, no_ids
from dyclu.validation import (
    FloatArray,
    Ids,
    User,
    as_dim,
    as_positive,
    as_probability,
    as_user,
    as_whole,
)

MOST_SLAVES = 8
"""Size of a full pool: a new slave replaces the worst one. The paper sets no bound."""

NOBODY = -1
"""Key for users without a slave: no model has it, so that an empty model answers."""


class DLinUCB(WithoutGroups, OneByOne):
    """A pool of linear models per user; the one that errs least chooses the arm.

    As in the paper, rewards are ``xᵀθ`` plus noise with ‖θ‖ ≤ 1; scale them if necessary.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors.
    width_noise : float or None
        Value used for σ in the confidence width; None takes `noise`, as in the theory. ``σ²`` comes
        much closer to the results published for this policy.
    ridge : float
        Regularisation λ.
    error_level : float
        δ₁: probability that a reward is outside the bounds of a slave with the right parameter.
    creation_level : float
        δ̃₁ ≤ δ₁: if all slaves have a higher rate of errors, a new one is added.
    window : int
        τ: number of a slave's latest predictions that count.
    window_delta : float
        δ₂: probability that the mean of a window exceeds the rate of errors by more than its
        margin.

    Examples
    --------
    >>> policy = DLinUCB(1, noise=0.01)
    >>> outcomes = [policy.learn("ana", [1.0], 0.9) for _ in range(50)]
    >>> outcomes = [policy.learn("ana", [1.0], -0.9) for _ in range(6)]
    >>> [outcome.changed for outcome in outcomes]  # 5/20 < 0.02 + √(log 10 / 40) = 0.26 < 6/20
    [False, False, False, False, False, True]
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        width_noise: float | None = None,
        ridge: float = 0.1,
        error_level: float = 0.1,
        creation_level: float = 0.02,
        window: int = 20,
        window_delta: float = 0.1,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.error_level = as_probability(error_level, "error_level")
        self.creation_level = as_probability(creation_level, "creation_level")
        if self.creation_level > self.error_level:
            raise OptionError(
                f"creation_level is {creation_level} and error_level {error_level}, expected "
                "creation_level <= error_level; a new slave is added before an old one is discarded"
            )
        self.window = as_whole(window, "window", least=1)
        self.window_delta = as_probability(window_delta, "window_delta")
        self.width_noise = None if width_noise is None else as_positive(width_noise, "width_noise")
        self._known = None if noise is None else Noise.known(noise)
        # The paper's ε in units of σ: √2 erf⁻¹(1 − δ₁); the noise exceeds it with probability δ₁.
        self._quantile = float(scipy.special.ndtri(1 - self.error_level / 2))
        self._slaves = _Slaves(self.dim, self.ridge, self.window, self.window_delta)
        self._errors = _AcceptedErrors()
        self._set_aside = SetAside()

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound of one slave; changes nothing."""
        slaves = self._slaves
        row = slaves.serving(user) if user in slaves.pool else NOBODY
        count = 0 if row == NOBODY else int(slaves.models.count[row])
        alpha = self._alpha(count, self._noise())
        return slaves.models.decide(user, row, arms, alpha=alpha)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Update all slaves of the user with the reward; add and discard slaves."""
        slaves, noise = self._slaves, self._noise()
        if user not in slaves.pool:
            slaves.create(user)
        rows, serving = slaves.pool[user], slaves.serving(user)
        segment, at = int(slaves.id[serving]), int(np.argmax(rows == serving))

        error, leverage = slaves.errors(rows, x, y)
        bound = self._bounds(rows, leverage, noise)
        failed = error > bound
        surprised = bool(failed[at])
        self._set_aside.add(y, surprised=surprised)
        if self._known is None and not surprised:
            self._errors.add(y, *map(float, (error[at], leverage[at], bound[at])), noise=noise)
        slaves.learn(rows, failed, x, y)

        badness, margin = slaves.badness(rows)
        changed = not (badness < self.creation_level + margin).any()
        slaves.discard(user, badness >= self.error_level + margin)
        if changed:
            segment = slaves.create(user)
        return Outcome(user, surprised, changed, segment, slaves.id[[slaves.serving(user)]])

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated so far."""
        return self._noise().deviation

    @property
    def warnings(self) -> tuple[str, ...]:
        """What seems wrong: rewards that the serving slaves did not learn are too many."""
        return self._set_aside.warnings(
            level=self.error_level, noise=self.noise, users=len(self._slaves.pool)
        )

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._slaves.pool

    def _forget(self, user: User) -> None:
        """Remove the user's slaves; their errors stay in the estimate of the noise."""
        self._slaves.remove(user)

    def slaves(self, user: Hashable) -> tuple[int, ...]:
        """Return the ids of the user's slaves, oldest first."""
        rows = self._slaves.pool.get(as_user(user), no_ids())
        return tuple(self._slaves.id[rows].tolist())

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._slaves.dump()
        state |= {"foreseen": asdict(self._errors), "set_aside": asdict(self._set_aside)}
        return state, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._slaves.fill(state, arrays)
        self._errors = _AcceptedErrors(**state["foreseen"])
        # Files of earlier versions do not have it; counting then begins anew.
        self._set_aside = SetAside(**state.get("set_aside", {}))

    def _noise(self) -> Noise:
        return self._known or self._errors.noise()

    def _alpha(self, count: int, noise: Noise) -> float:
        deviation = noise.deviation if self.width_noise is None else self.width_noise
        return exploration(
            count, self.dim, noise=deviation, ridge=self.ridge, delta=self.error_level
        )

    def _bounds(self, rows: Ids, leverage: FloatArray, noise: Noise) -> FloatArray:
        """Return ``B_m(x) + ε`` of every slave; a larger error is a failure."""
        if noise.df == 0:
            return np.full(len(rows), math.inf)
        counts = self._slaves.models.count[rows].tolist()
        alpha = np.array([self._alpha(count, noise) for count in counts])
        bounds = alpha * np.sqrt(leverage) + self._quantile * noise.deviation
        # No slave can predict the reward of a context of zeros, so it counts as no failure.
        return np.where(leverage > 0, bounds, math.inf)


class _Slaves:
    """All slaves of all users, one per row; rows of discarded slaves are reused, ids are not.

    Attributes
    ----------
    pool : dict of user to int array
        The rows of each user's slaves, oldest first.
    id, judged : int arrays of shape (room,)
        Id of each slave, and number of rewards that it predicted.
    failures : bool array of shape (room, window)
        Which of its latest predictions failed, in a ring.
    """

    def __init__(self, dim: int, ridge: float, window: int, delta: float) -> None:
        self.models = RidgeModels(dim, ridge=ridge)
        self.pool: dict[User, Ids] = {}
        self._free: list[int] = []
        self._created = 0
        self.id = columns.new(np.int64)
        self.judged = columns.new(np.int64)
        self.failures = columns.new(np.bool_, window)
        self._columns = columns.names(self)
        # d(m) of the paper by the number of entries in the window. It is infinite for a slave that
        # has predicted nothing yet, so that a new slave is tried at once.
        entries = np.arange(1, window + 1)
        self._margin = np.append(math.inf, np.sqrt(-math.log(delta) / (2 * entries)))
        self._serving_margin = np.append(math.inf, math.sqrt(math.log(window)) * self._margin[1:])

    def serving(self, user: User) -> int:
        """Return the row of the slave with the smallest lower confidence bound of badness."""
        rows = self.pool[user]
        if len(rows) == 1:
            return int(rows[0])
        return int(rows[np.argmin(self._mean(rows) - self._serving_margin[self._entries(rows)])])

    def errors(
        self, rows: Ids, context: FloatArray, reward: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return ``|xᵀθ̂ − y|`` and ``xᵀA_λ⁻¹x`` of every slave."""
        error = np.abs(self.models.theta[rows] @ context - reward)
        leverage = self.models.inverse[rows] @ context @ context
        return error, np.maximum(leverage, 0.0)

    def learn(
        self, rows: Ids, failed: NDArray[np.bool_], context: FloatArray, reward: float
    ) -> None:
        """Record which slaves failed, and add the observation to the others."""
        self.failures[rows, self.judged[rows] % self.failures.shape[1]] = failed
        self.judged[rows] += 1
        for row in rows[~failed].tolist():
            self.models.add(row, context, reward)

    def badness(self, rows: Ids) -> tuple[FloatArray, FloatArray]:
        """Return ``ê(m)`` and its margin ``d(m)``."""
        return self._mean(rows), self._margin[self._entries(rows)]

    def create(self, user: User) -> int:
        """Add a slave to the user's pool, replacing the worst if it is full; return its id."""
        rows = self.pool.get(user, no_ids())
        if len(rows) == MOST_SLAVES:
            self.discard(user, rows == rows[np.argmax(self._mean(rows))])
        row = self._free.pop() if self._free else self._extended()
        self.id[row] = self._created
        self._created += 1
        self.pool[user] = np.append(self.pool.get(user, no_ids()), row)
        return int(self.id[row])

    def discard(self, user: User, bad: NDArray[np.bool_]) -> None:
        """Remove the marked slaves from the user's pool."""
        if not bad.any():
            return
        rows = self.pool[user]
        for row in rows[bad].tolist():
            self._clear(row)
            self._free.append(row)
        self.pool[user] = rows[~bad]

    def remove(self, user: User) -> None:
        """Remove a user and all their slaves."""
        self.discard(user, np.ones(len(self.pool[user]), dtype=np.bool_))
        del self.pool[user]

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: a dict for JSON, and arrays."""
        state, arrays = self.models.dump()
        state["pool"] = [[user, rows.tolist()] for user, rows in self.pool.items()]
        state["free"], state["created"] = self._free, self._created
        return state, arrays | columns.dump(self, self._columns, len(self.models))

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore the state that `dump` returned."""
        self.models.fill(state, arrays)
        self.pool = {user: np.array(rows, dtype=np.intp) for user, rows in state["pool"]}
        self._free, self._created = state["free"], state["created"]
        columns.fill(self, self._columns, len(self.models), arrays)

    def _entries(self, rows: Ids) -> NDArray[np.int64]:
        return np.minimum(self.judged[rows], self.failures.shape[1])

    def _mean(self, rows: Ids) -> FloatArray:
        mean: FloatArray = self.failures[rows].sum(axis=1) / np.maximum(self._entries(rows), 1)
        return mean

    def _extended(self) -> int:
        row = self.models.of(len(self.models))
        columns.make_room(self, self._columns, len(self.models))
        return row

    def _clear(self, row: int) -> None:
        self.models.clear(row)
        self.judged[row] = 0
        self.failures[row] = False


@dataclass(slots=True)
class _AcceptedErrors:
    """Sums of the serving slaves' errors that were within their bounds; they estimate σ.

    Attributes
    ----------
    residual : float
        ``Σ (xᵀθ̂ − y)² / (1 + xᵀA_λ⁻¹x)``, the squared errors in units of their variance over σ².
    weight : float
        Expectation of that sum in units of σ²: each error was bounded by ``B_m(x) + ε``.
    energy : float
        ``Σ y²``.
    count : int
        Number of errors.
    """

    residual: float = 0.0
    weight: float = 0.0
    energy: float = 0.0
    count: int = 0

    def add(
        self, reward: float, error: float, leverage: float, bound: float, *, noise: Noise
    ) -> None:
        """Add an error that was within its bound."""
        deviation = noise.deviation * math.sqrt(1 + leverage)
        beyond = math.erfc(bound / deviation / math.sqrt(2)) if deviation else 0.0
        self.residual += error * error / (1 + leverage)
        self.weight += kept_variance(beyond)
        self.energy += reward * reward
        self.count += 1

    def noise(self) -> Noise:
        """Return the estimate of the noise; without errors, `Noise.estimated` of no residual."""
        kept = self.weight / self.count if self.count else 1.0
        return Noise.estimated(self.residual, self.energy, self.count, self.count, kept=kept)
