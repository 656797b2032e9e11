"""adTS: Thompson sampling that forgets what came before a change.

Negar Hariri, Bamshad Mobasher, Robin Burke (2015): *Adapting to User Preference Changes in
Interactive Recommendation*, IJCAI. Every user has a linear model to sample from, and a window of
recent observations in which a change is looked for by the range of cumulative sums, judged against
reshuffled copies of the window. What is summed: ``docs/decisions/006-dlinucb-and-adts.md``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpotrf

from dyclu import columns
from dyclu.batches import OneByOne
from dyclu.chance import Chance, Seed
from dyclu.columns import Columns
from dyclu.models import Models
from dyclu.noise import Noise
from dyclu.policy import Decision, Ids, Outcome, described, first_best
from dyclu.storage import Saved, write
from dyclu.validation import (
    FloatArray,
    User,
    as_arms,
    as_context,
    as_dim,
    as_positive,
    as_probability,
    as_reward,
    as_user,
    as_whole,
)


class AdTS(OneByOne):
    """Thompson sampling with a linear model per user, from the observations since a change.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise, the scale that is sampled with; None estimates
        it from prediction errors.
    ridge : float
        Regularisation λ.
    window : int
        How many of a user's latest observations are kept and tested.
    interval : int
        Rewards of a user from one test to the next.
    level : float
        Chance of finding a change where there is none, at every test.
    shuffles : int
        Reshuffled copies of the window it is compared with.
    seed : int, SeedSequence or Generator
        What samples and shuffles are drawn from.

    Examples
    --------
    >>> policy = AdTS(1, noise=0.1)
    >>> rewards = [0.9 + 0.1 * (-1) ** t for t in range(75)] + [-0.9] * 25
    >>> [t for t, reward in enumerate(rewards, 1) if policy.learn("ana", [1.0], reward).changed]
    [100]
    >>> policy.decide("ana", [[1.0]]).mean
    -0.896...
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        ridge: float = 0.1,
        window: int = 200,
        interval: int = 50,
        level: float = 0.05,
        shuffles: int = 199,
        seed: Seed = 0,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.window = as_whole(window, "window", least=2)
        self.interval = as_whole(interval, "interval", least=1)
        self.level = as_probability(level, "level")
        self.shuffles = as_whole(shuffles, "shuffles", least=1)
        self._known = None if noise is None else Noise.known(noise)
        self._chance, self._clock = Chance.of(seed), 0
        self._models = Models(self.dim, ridge=self.ridge)
        self._windows = _Windows(self.dim, self.window)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose the best arm for a parameter sampled from ``N(θ̂, σ² A_λ⁻¹)``; changes nothing.

        The decision's mean and width are the mean and the deviation of the chosen arm's score.
        """
        user, arms = as_user(user), as_arms(arms, self.dim)
        noise = (self._known or self._models.noise()).deviation
        scores = self._models.scores(user, arms, alpha=noise)
        drawn = self._chance.generator(self._clock, arms).standard_normal(self.dim)
        sampled = scores.theta + noise * (self._root(user) @ drawn)
        best = first_best(arms @ sampled)
        mean, width = float(scores.mean[best]), float(scores.width[best])
        return Decision(user, best, mean, width, theta=scores.theta)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Add the observation to the user's model and window; now and then look for a change."""
        user, x, y = as_user(user), as_context(context, self.dim), as_reward(reward)
        self._clock += 1
        row = self._models.of(user)
        self._windows.make_room(len(self._models))
        if not x.any():
            # No taste explains the reward of a context of zeros, so no change of taste does.
            return Outcome(user)
        self._add(row, x, y)
        self._windows.seen[row] += 1
        due = bool(self._windows.seen[row] % self.interval == 0)
        return Outcome(user, changed=due and self._changed(row))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        state, arrays = self._models.dump()
        state |= {"key": self._chance.key, "clock": self._clock}
        arrays |= self._windows.dump(len(self._models))
        write(path, Saved("AdTS", self._options(), state, arrays))

    @classmethod
    def restore(cls, saved: Saved) -> AdTS:
        """Return the policy that was saved."""
        policy = cls(**saved.options)
        policy._chance, policy._clock = Chance(saved.state["key"]), saved.state["clock"]
        policy._models.fill(saved.state, saved.arrays)
        policy._windows.fill(len(policy._models), saved.arrays)
        return policy

    def __repr__(self) -> str:
        return described("AdTS", self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "noise": None if self._known is None else self._known.deviation,
            "ridge": self.ridge,
            "window": self.window,
            "interval": self.interval,
            "level": self.level,
            "shuffles": self.shuffles,
        }

    def _root(self, user: User) -> FloatArray:
        row = self._models.row.get(user)
        if row is None:
            return np.eye(self.dim) / math.sqrt(self.ridge)
        return _root(self._models.inverse[row])

    def _add(self, row: int, context: FloatArray, reward: float) -> None:
        models, windows = self._models, self._windows
        leverage = max(float(context @ models.inverse[row] @ context), 0.0)
        error = abs(reward - float(context @ models.theta[row])) / math.sqrt(1 + leverage)
        windows.add(row, int(models.count[row]), context, reward, error)
        models.add(row, context, reward)

    def _changed(self, row: int) -> bool:
        """Look for a change; if there is one, forget what came before it."""
        count = int(self._models.count[row])
        places = self._windows.places(count)
        # The errors of a model of fewer observations than features are mostly its prior's.
        young = max(0, self.dim - (count - len(places)))
        errors = self._windows.errors[row, places[young:]]
        if len(errors) < 2:
            return False
        rng = self._chance.generator(self._clock, errors)
        if p_value(errors, shuffles=self.shuffles, rng=rng) > self.level:
            return False
        self._relearn(row, places[young + change_point(errors) :])
        return True

    def _relearn(self, row: int, places: Ids) -> None:
        """Rebuild a user's model and window from the observations at these places alone."""
        contexts = self._windows.contexts[row, places]
        rewards = self._windows.rewards[row, places].tolist()
        models = self._models
        for column in (models.gram, models.moment, models.energy, models.count, models.theta):
            column[row] = 0
        models.inverse[row] = np.eye(self.dim) / self.ridge
        for context, reward in zip(contexts, rewards, strict=True):
            self._add(row, context, reward)


def p_value(series: FloatArray, *, shuffles: int, rng: np.random.Generator) -> float:
    """Return how likely cumulative sums range this widely if the order of a series means nothing.

    Of all `shuffles` + 1 orders, the given one included, the share whose sums range at least as
    widely. With ``level · (shuffles + 1)`` a whole number it is at most `level` with just that
    chance, whatever the distribution of the (exchangeable) entries.

    >>> p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0))
    0.01
    """
    shuffled = rng.permuted(np.tile(series, (shuffles, 1)), axis=1)
    wider = np.ptp(_sums(shuffled), axis=1) >= np.ptp(_sums(series))
    return (1 + int(wider.sum())) / (1 + shuffles)


def change_point(series: FloatArray) -> int:
    """Return how many entries came before the likeliest change: where ``|S|`` is largest.

    >>> change_point(np.array([1.0, 2.0, 1.0, 7.0, 8.0]))
    3
    """
    return int(np.argmax(np.abs(_sums(series)))) + 1


def _sums(series: FloatArray) -> FloatArray:
    """Return ``S_i = Σ_{j ≤ i} (e_j − ē)`` along the last axis; the last is 0, as S₀ is."""
    return np.cumsum(series - series.mean(axis=-1, keepdims=True), axis=-1)


def _root(matrix: FloatArray) -> FloatArray:
    """Return R with ``R Rᵀ`` a positive matrix."""
    root, failed = dpotrf(matrix, lower=1, clean=1)
    if not failed:
        return np.asarray(root)
    # Scales so far apart that rounding made an eigenvalue negative: truly it is next to 0.
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class _Windows:
    """The latest observations of every user, one row each, in a ring.

    Attributes
    ----------
    contexts, rewards : arrays of shape (room, window, d) and (room, window)
        The observations; the k-th since a change is at place ``k % window``.
    errors : array of shape (room, window)
        ``|y − xᵀθ̂| / √(1 + xᵀA_λ⁻¹x)``, of the model before it learnt the observation.
    seen : int array of shape (room,)
        Number of a user's rewards ever.
    """

    contexts: FloatArray
    rewards: FloatArray
    errors: FloatArray
    seen: NDArray[np.int64]

    def __init__(self, dim: int, window: int) -> None:
        self._window = window
        self._columns: Columns = {
            "contexts": ((window, dim), np.float64),
            "rewards": ((window,), np.float64),
            "errors": ((window,), np.float64),
            "seen": ((), np.int64),
        }
        columns.lay(self, self._columns)

    def make_room(self, rows: int) -> None:
        """Have at least this many rows."""
        columns.make_room(self, self._columns, rows)

    def add(self, row: int, count: int, context: FloatArray, reward: float, error: float) -> None:
        """Keep the observation that follows `count` others, instead of the oldest if need be."""
        place = count % self._window
        self.contexts[row, place] = context
        self.rewards[row, place] = reward
        self.errors[row, place] = error

    def places(self, count: int) -> Ids:
        """Return where the latest of `count` observations are, oldest first."""
        return np.arange(max(0, count - self._window), count) % self._window

    def dump(self, rows: int) -> dict[str, NDArray[Any]]:
        """Return the rows in use."""
        return columns.dump(self, self._columns, rows)

    def fill(self, rows: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Put back what `dump` returned."""
        columns.fill(self, self._columns, rows, arrays)
