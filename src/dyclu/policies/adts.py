"""adTS: Thompson sampling that drops the observations before a change.

Negar Hariri, Bamshad Mobasher, Robin Burke (2015): *Adapting to User Preference Changes in
Interactive Recommendation*, IJCAI. At regular intervals the user's latest observations are compared
with the ones just before them, by the distance of the two posteriors of the parameter. A change of
level in the series of these distances is a change of taste. How we read the paper:
``docs/decisions/010-adts-test.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dyclu.core.cusum import change_point, p_value
from dyclu.core.noise import Noise
from dyclu.core.randomness import RandomSource, Seed
from dyclu.core.ridge import root, solve
from dyclu.core.stats import Stats
from dyclu.errors import OptionError
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policy import Decision, Outcome, first_best
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability, as_whole

NO_ARMS = np.empty(0)
"""Input of the generator for shuffles: no decision has it, so both draw different numbers."""


class AdTS(WithoutGroups, OneByOne):
    """Thompson sampling with a linear model per user, from the observations since a change.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise, the scale of the samples; None estimates it from
        prediction errors. The test for changes does not depend on it.
    ridge : float
        Regularisation λ.
    window : int
        Number of observations on either side of a distance; a multiple of `interval`.
    interval : int
        Number of a user's rewards from one distance, and test, to the next.
    level : float
        Probability of finding a change in a series of distances in random order.
    shuffles : int
        Number of shuffled copies that the series is compared with.
    series : int
        Number of a user's latest distances that are kept and tested.
    seed : int, SeedSequence or Generator
        Source of the samples and shuffles.

    Examples
    --------
    >>> policy = AdTS(1, noise=0.1, window=20, interval=5)
    >>> rewards = [0.9 + 0.1 * (-1) ** t for t in range(100)] + [-0.9] * 15
    >>> [t for t, reward in enumerate(rewards, 1) if policy.learn("ana", [1.0], reward).changed]
    [115]
    >>> policy.decide("ana", [[1.0]]).mean  # -0.9 · 15 / (15 + 0.1)
    -0.894...
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
        shuffles: int = 999,
        series: int = 64,
        seed: Seed = 0,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.interval = as_whole(interval, "interval", least=1)
        self.window = _as_intervals(as_whole(window, "window", least=1), self.interval)
        self.level = as_probability(level, "level")
        self.shuffles = as_whole(shuffles, "shuffles", least=1)
        self.series = as_whole(series, "series", least=1)
        self._known = None if noise is None else Noise.known(noise)
        self._random, self._clock = RandomSource.of(seed), 0
        self._models = RidgeModels(self.dim, ridge=self.ridge)
        self._recent = _Recent(self.dim, 2 * self.window // self.interval, self.series)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the best arm for a parameter sampled from ``N(θ̂, σ² A_λ⁻¹)``; changes nothing.

        `mean` and `width` are mean and standard deviation of the chosen arm's sampled score. The
        probability of an arm has no closed form, so `propensity` is None.
        """
        noise = (self._known or self._models.noise()).deviation
        scores = self._models.scores(user, arms, alpha=noise)
        drawn = self._random.generator(self._clock, arms).standard_normal(self.dim)
        sampled = scores.theta + noise * (self._root(user) @ drawn)
        best = first_best(arms @ sampled)
        mean, width = float(scores.mean[best]), float(scores.width[best])
        return Decision(user, best, mean, width, theta=scores.theta, propensity=None)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user's model; at the end of an interval test for a change."""
        self._clock += 1
        row = self._models.of(user)
        columns.make_room(self._recent, self._recent.columns, len(self._models))
        if not x.any():
            # No taste explains the reward of a context of zeros, and no change of taste either.
            return Outcome(user)
        in_block = int(self._models.count[row]) % self.interval
        self._models.add(row, x, y)
        self._recent.add(row, x, y, new_block=in_block == 0)
        return Outcome(user, changed=in_block + 1 == self.interval and self._changed(row))

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._models.row

    def _forget(self, user: User) -> None:
        row, last = self._models.row[user], len(self._models) - 1
        columns.remove(self._recent, self._recent.columns, row, last)
        self._models.remove(user)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._models.dump()
        state |= {"key": self._random.key, "clock": self._clock}
        recent = columns.dump(self._recent, self._recent.columns, len(self._models))
        return state, arrays | recent

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._random, self._clock = RandomSource(state["key"]), state["clock"]
        self._models.fill(state, arrays)
        columns.fill(self._recent, self._recent.columns, len(self._models), arrays)

    def _root(self, user: User) -> FloatArray:
        row = self._models.row.get(user)
        if row is None:
            return np.eye(self.dim) / math.sqrt(self.ridge)
        return root(self._models.inverse[row])

    def _changed(self, row: int) -> bool:
        """Test for a change; if there is one, drop the observations before it."""
        if self._models.count[row] < 2 * self.window:
            return False
        blocks = self.window // self.interval
        older = self._recent.stats(row, slice(-2 * blocks, -blocks), self.interval)
        newer = self._recent.stats(row, slice(-blocks, None), self.interval)
        distances = self._recent.append(row, distance(older, newer, ridge=self.ridge))
        rng = self._random.generator(self._clock, NO_ARMS)
        if p_value(distances, shuffles=self.shuffles, rng=rng) > self.level:
            return False
        self._keep_latest(row, blocks=len(distances) - change_point(distances))
        return True

    def _keep_latest(self, row: int, *, blocks: int) -> None:
        """Fit a user's model to the latest blocks only, and start a new series of distances."""
        kept = self._recent.stats(row, slice(-blocks, None), self.interval)
        self._recent.measured[row] = 0
        self._models.put(row, kept)


def distance(older: Stats, newer: Stats, *, ridge: float) -> float:
    """Return the Mahalanobis distance of the posteriors of two sets of observations, times σ.

    With ``N(θ̂ᵢ, σ² Aᵢ⁻¹)``, ``Aᵢ`` regularised and ``δ = θ̂₁ − θ̂₂``, and the covariances averaged,

    ``√(δᵀ ((A₁⁻¹ + A₂⁻¹) / 2)⁻¹ δ) = √(2 δᵀ A₁ (A₁ + A₂)⁻¹ A₂ δ)``:

    without the ridge, it is the square root of twice the statistic of `homogeneity`, Eq. (1).

    >>> distance(Stats.of([1.0], 0.0), Stats.of([1.0], 2.0), ridge=1.0)  # 1 / √(1/2)
    1.414...
    """
    prior = ridge * np.eye(older.dim)
    gap = _estimate(older, ridge) - _estimate(newer, ridge)
    ahead, back = (older.gram + prior) @ gap, (newer.gram + prior) @ gap
    both = solve(older.gram + newer.gram, back[:, None], ridge=2 * ridge)[:, 0]
    return math.sqrt(max(0.0, 2 * float(ahead @ both)))


def _estimate(stats: Stats, ridge: float) -> FloatArray:
    return solve(stats.gram, stats.moment[:, None], ridge=ridge)[:, 0]


def _as_intervals(window: int, interval: int) -> int:
    if window % interval:
        fitting = interval * math.ceil(window / interval)
        raise OptionError(
            f"window is {window} and interval is {interval}, expected a window of whole "
            f"intervals; pass window={fitting}"
        )
    return window


class _Recent:
    """The latest observations of every user, as sums of blocks, and the latest distances.

    A block holds the observations of one interval. Windows consist of whole blocks, and so do the
    observations that stay after a change; no single observation is stored. In every row the newest
    block or distance comes last.

    Attributes
    ----------
    block_gram, block_moment, block_energy : arrays of shape (room, blocks, ...)
        The sums of every block's observations.
    distances : array of shape (room, series)
        Distances between the windows that ended with each of the latest blocks.
    measured : int array of shape (room,)
        Number of distances since the last change; the latest `series` of them are kept.
    """

    def __init__(self, dim: int, blocks: int, series: int) -> None:
        self.block_gram = columns.new(np.float64, blocks, dim, dim)
        self.block_moment = columns.new(np.float64, blocks, dim)
        self.block_energy = columns.new(np.float64, blocks)
        self.distances = columns.new(np.float64, series)
        self.measured = columns.new(np.int64)
        self.columns = columns.names(self)

    def add(self, row: int, context: FloatArray, reward: float, *, new_block: bool) -> None:
        """Add an observation to the newest block, or to a new one that replaces the oldest."""
        if new_block:
            for blocks in (self.block_gram, self.block_moment, self.block_energy):
                _shift(blocks[row], 0.0)
        self.block_gram[row, -1] += context[:, None] * context
        self.block_moment[row, -1] += reward * context
        self.block_energy[row, -1] += reward * reward

    def stats(self, row: int, blocks: slice, interval: int) -> Stats:
        """Return the statistics of some full blocks."""
        energy = self.block_energy[row, blocks]
        return Stats(
            self.block_gram[row, blocks].sum(axis=0),
            self.block_moment[row, blocks].sum(axis=0),
            float(energy.sum()),
            interval * len(energy),
        )

    def append(self, row: int, distance: float) -> FloatArray:
        """Append a distance; return the stored distances since the last change."""
        _shift(self.distances[row], distance)
        self.measured[row] += 1
        return self.distances[row, -self.measured[row] :]


def _shift(entries: FloatArray, newest: float) -> None:
    """Drop the first entry, move all others one place to the front, and set the last one."""
    entries[:-1] = entries[1:]
    entries[-1] = newest
