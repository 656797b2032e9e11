"""`Population`: what the whole stream says of tastes, noise and changes (docs/theory.md §10.4).

The prior N(μ, Σ) of tastes and the noise come from a *panel*: a bounded sample of segments, each
taken by itself. They never come from the models, whose errors would confirm themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from dyclu import kernels
from dyclu.errors import OptionError
from dyclu.validation import SMALLEST, FloatArray

Rewards = Literal["binary", "real"]
"""What rewards are: 0 or 1, or any numbers."""

PANEL = 128
"""Most segments of the panel."""

GROWTH = 1.05
"""Factor by which the stream grows between two estimates of the prior."""

FADING = 0.9
"""Weight of older counts after each of these, so that rates follow the stream."""

FIRST_HAZARD_WEIGHT = 250.0
"""Rewards that one change is taken to have needed before the first one is seen."""

LEAST_HAZARD = 1e-3
"""Least chance of a change per reward: a population that has never changed may begin to."""

FIRST_NOISE_WEIGHT = 5.0
"""Rewards that the present estimate of the noise counts as in the next one."""

SIGNAL = 0.25
"""Share of the rewards' variance that tastes are taken to explain before any data."""

STRAY_RATE, STRAY_SPREAD = 1e-3, 9.0
"""Chance of a reward that belongs to nobody's taste, and its variance in units of all rewards'."""

NO_STRAYS = -60.0
"""Log density of a stray where rewards are 0 or 1: there are none."""

QUIETEST = 1e-6
"""Share of the rewards' variance below which the noise's is never taken to fall."""

MOST_CLICKS, CLICK_SPREAD = 0.5, 2.0
"""Largest share of the variance p(1 − p) of 0/1 rewards that tastes are taken to explain, and their
largest squared coefficient of variation. A chance of mean p with the variance 2p² explains the
share ``2p/(1 − p)``. Without a bound, noise that is too small would confirm itself."""

RESOLUTION = 1e-12
"""Share of the rewards' mean square below which a variance is rounding."""

LARGEST = 25.0
"""A squared reward, or a context's squared length, counts as at most this many times the mean; of
the first ones, this many times the median of those that are not 0."""

SETTLED = 20
"""Rewards after which their mean is trusted to tell one that is too large."""

OTHERS = 0.05
"""Share of rewards other than 0 and 1 above which rewards are not 0/1."""

LEAST_SPAN, MOST_SPAN, MOST_BYTES = 4, 128, 16_000
"""Least and most rewards that are remembered of a user, and most bytes."""

SPAN_NATS = 2.0
"""How often a memory holds the evidence that a change needs (docs/theory.md §10.5)."""

TIGHT, LOOSE = 2.0, 3.0
"""Standard deviations of the logs of noise and of signal, by the variance of all rewards, before
any data."""

WIDEST = 1e6
"""Largest variance of a taste's entry, by its guess before any data."""

STEP = 0.3
"""Gain in log evidence that a change of scale must bring."""

SCALES = (
    (0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0), (2.0, 0.5), (0.5, 2.0), (1.0, 0.8), (1.0, 1.25),
)  # fmt: skip
"""Factors of Σ and of the noise that are tried."""

RATIO_USERS, RATIO_REWARDS, RATIO_KURTOSIS = 8, 5.0, 3.0
"""Users, and rewards of each, from which on noise is compared between users; and the variance of a
squared error by its squared mean, of a distribution with slightly heavy tails."""


class Population:
    """Prior, noise and rates, with the sums that they come from.

    Attributes
    ----------
    mean, covariance : arrays of shape (p,) and (p, p)
        Mean and covariance of a taste never met: ``N(μ̂, Σ + Cov μ̂)``.
    precision, shift : arrays of shape (p, p) and (p,)
        Its natural form, ``P`` and ``Pμ̂``.
    tastes : array of shape (p, p)
        ``Σ``, the covariance of tastes around their mean.
    stream : array
        What kernels must know (`kernels.atlas`): noise, hazard, strays and the rest.
    totals, contexts : arrays
        Sums over the stream, and the mean of ``zzᵀ``: see `kernels.atlas.record`.
    span : int
        How many rewards are remembered of a user.
    changes : float
        Changes found, the older ones faded.
    segments : int
        Segments begun so far.
    """

    def __init__(self, dim: int, *, noise: float | None, rewards: str | None) -> None:
        p = dim + 1
        self.dim, self._told, self._rewards = dim, noise, rewards
        self.mean, self.covariance, self.tastes = np.zeros(p), np.eye(p), np.eye(p)
        self.precision, self.shift = np.eye(p), np.zeros(p)
        self.totals, self.contexts = np.zeros(5), np.zeros((p, p))
        self.first: list[tuple[float, float]] = []
        self.stream = np.zeros(9)
        self.changes = 0.0
        self.segments, self.span, self.clock, self.due = 0, LEAST_SPAN, 0, 1.0

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return float(self.stream[kernels.atlas.NOISE])

    @property
    def binary(self) -> bool:
        """Whether rewards are 0 or 1, but for a few."""
        if self._rewards is not None:
            return self._rewards == "binary"
        return bool(self.totals[4] <= OTHERS * self.totals[0])

    def record(self, x: FloatArray, y: float) -> None:
        """Count a reward and its context; tiny features are set to 0 in place."""
        self.clock += 1
        self.stream[kernels.atlas.CLOCK] = self.clock
        most_reward = most = 0.0
        early = self.totals[0] < SETTLED
        if early:
            self.first.append((y, float(x @ x)))
            squares = [reward * reward for reward, _ in self.first]
            most_reward = math.sqrt(LARGEST * _median(squares))
            most = LARGEST * _median([length for _, length in self.first])
        kernels.atlas.record(
            self.totals, self.contexts, x, y, SMALLEST, LARGEST, SETTLED, most_reward, most
        )
        if early:
            self._moderate(most_reward or math.inf, most or math.inf)
            if self.totals[0] == SETTLED:
                self.first.clear()

    def _moderate(self, most_reward: float, most: float) -> None:
        """Count the first rewards and lengths again, none with more than a given size.

        Rewards that were forgotten cannot be counted again.
        """
        if len(self.first) < self.totals[0]:
            return
        rewards = [min(max(y, -most_reward), most_reward) for y, _ in self.first]
        self.totals[1], self.totals[2] = sum(rewards), sum(y * y for y in rewards)
        self.totals[3] = sum(min(length, most) for _, length in self.first)

    @property
    def variance(self) -> float:
        """Variance of all rewards; 1 as long as none differed from 0."""
        n, total, squares = self.totals[0], self.totals[1], self.totals[2]
        if n == 0.0:
            return 1.0
        if self.binary:
            rate = (total + 0.5) / (n + 1.0)
            return float(rate * (1.0 - rate))
        variance = squares / n - (total / n) ** 2
        if variance <= RESOLUTION * squares / n:
            variance = squares / n
        return float(variance) or 1.0

    @property
    def size(self) -> float:
        """Mean squared length of the contexts."""
        return float(self.totals[3] / self.totals[0]) if self.totals[3] > 0.0 else 1.0

    def _guess(self) -> FloatArray:
        """Return the variances of a taste's entries before any data, the intercept's last."""
        guess = np.full(self.dim + 1, SIGNAL * self.variance / self.size)
        guess[-1] = SIGNAL * self.variance
        return guess

    def forget(self) -> None:
        """Forget single rewards; the first ones of all users are kept for a while."""
        self.first.clear()

    def begin(self) -> None:
        """Set the prior before the first reward is learnt; the reward is already recorded."""
        guess = self._guess()
        self.tastes = np.diag(guess)
        self._set_noise(self.variance)
        self._set_prior(np.zeros(self.dim + 1), np.diag(guess / SIGNAL))

    def learn(self, grams: FloatArray, moments: FloatArray, sums: FloatArray) -> None:
        """Estimate prior and noise anew from the panel, one row per segment."""
        kernel = kernels.atlas
        columns = (sums[:, column] for column in (kernel.ENERGY, kernel.RATIO, kernel.HELD))
        energies, ratios, held = (np.ascontiguousarray(column) for column in columns)
        self._rescale(grams, moments, energies, ratios, held)
        guess, p, n = self._guess(), self.dim + 1, len(sums)
        known_mean = guess / SIGNAL
        known_mean[-1] = max(self.totals[2] / self.totals[0], self.variance)
        mean, mean_covariance, scatter = np.empty(p), np.empty((p, p)), np.empty((p, p))
        residual, told = kernels.population.expect(
            grams, moments, ratios, energies, _inverse(self.tastes), self.noise,
            np.diag(1.0 / known_mean), mean, mean_covariance, scatter,
        )  # fmt: skip
        full = (scatter + np.diag(guess)) / (n + 1.0)
        even = np.full(p, full[:-1, :-1].trace() / self.dim)
        even[-1] = full[-1, -1]
        self.tastes = (told * full + p * np.diag(even)) / (told + p)
        # Directions that are hardly seen must not explain noise by enormous tastes.
        self.tastes /= max(1.0, float((np.diag(self.tastes) / guess).max()) / WIDEST)
        self._set_noise(
            (FIRST_NOISE_WEIGHT * self.noise + residual) / (FIRST_NOISE_WEIGHT + held.sum())
        )
        self.changes *= FADING
        self.stream[kernel.FOLLOWED] *= FADING
        self._set_prior(mean, mean_covariance)

    def _rescale(
        self,
        grams: FloatArray,
        moments: FloatArray,
        energies: FloatArray,
        ratios: FloatArray,
        held: FloatArray,
    ) -> None:
        """Change the scales of Σ and of the noise where that raises the panel's evidence.

        EM alone needs hundreds of steps towards tastes that are all alike, or rewards almost
        without noise.
        """
        energy, count, variance = (energies / ratios).sum(), held.sum(), self.variance
        precision = _inverse(self.tastes)
        _, logdet = np.linalg.slogdet(precision)
        signal = float((self.tastes[:-1, :-1] * self.contexts[:-1, :-1]).sum())
        inside = float(self.mean @ precision @ self.mean)

        def evidence(tastes: float, noise: float) -> float:
            each = 0.5 * (logdet - len(precision) * math.log(tastes) - inside / tastes)
            level = noise * self.noise
            scaled = precision / tastes
            total = len(held) * each - 0.5 * (energy / level + count * math.log(level))
            total += kernels.population.panel_evidence(
                grams, moments, ratios, scaled, scaled @ self.mean, level
            )
            total -= 0.5 * (math.log(level / variance) / TIGHT) ** 2
            ratio = max(tastes * signal / variance, RESOLUTION)
            return float(total) - 0.5 * (math.log(ratio) / LOOSE) ** 2

        best, factors = evidence(1.0, 1.0) + STEP, (1.0, 1.0)
        for tried in SCALES:
            if self._told is not None and tried[1] != 1.0:
                continue
            gained = evidence(*tried)
            if gained > best:
                best, factors = gained, tried
        self.tastes = self.tastes * factors[0]
        self._set_noise(self.noise * factors[1])

    def compare_users(self, sums: FloatArray, weights: FloatArray) -> None:
        """Learn how much noise differs between users, from their sums of squared errors.

        The ratios' variance beyond chance gives the number of rewards that the prior of a user's
        ratio counts as.
        """
        kernel = kernels.atlas
        self.stream[kernel.RATIO_PRIOR] = 0.0
        enough = weights >= RATIO_REWARDS
        if self._told is not None or self.binary or enough.sum() < RATIO_USERS:
            return
        ratios, weights = sums[enough] / weights[enough], weights[enough]
        share = weights / (weights + 20.0)
        mean = float((share * ratios).sum() / share.sum())
        if mean <= 0.0:
            return
        beyond = (ratios / mean - 1.0) ** 2 - RATIO_KURTOSIS / weights
        spread = float((share * beyond).sum() / share.sum())
        if spread > 0.0:
            self.stream[kernel.RATIO_PRIOR] = max(2.0 / spread, 4.0)
            self.stream[kernel.RATIO_MEAN] = mean

    def _set_noise(self, variance: float) -> None:
        kernel, all_rewards = kernels.atlas, self.variance
        if self._told is not None:
            square = self.totals[2] / max(self.totals[0], 1.0) or 1.0
            variance = min(max(self._told, RESOLUTION * square), square / RESOLUTION)
        else:
            variance = max(variance, self._least_noise * all_rewards)
        self.stream[kernel.NOISE] = variance
        self.stream[kernel.BINARY] = float(self.binary)
        self.stream[kernel.RATE] = (self.totals[1] + 0.5) / (self.totals[0] + 1.0)
        spread = STRAY_SPREAD * max(all_rewards, variance)
        self.stream[kernel.STRAY] = (
            NO_STRAYS
            if self.binary
            else math.log(STRAY_RATE) - 0.5 * math.log(2.0 * math.pi * spread)
        )

    @property
    def _least_noise(self) -> float:
        """Least noise variance, by the variance of all rewards."""
        if not self.binary:
            return QUIETEST
        rate = (self.totals[1] + 0.5) / (self.totals[0] + 1.0)
        rare = min(rate, 1.0 - rate)
        return 1.0 - min(MOST_CLICKS, float(CLICK_SPREAD * rare / (1.0 - rare)))

    def _set_prior(self, mean: FloatArray, mean_covariance: FloatArray) -> None:
        self.tastes = 0.5 * (self.tastes + self.tastes.T)
        self.mean, self.covariance = mean, self.tastes + mean_covariance
        self.precision = _inverse(self.covariance)
        self.shift = self.precision @ mean
        self._set_hazard()

    def note_change(self) -> None:
        """Count a change."""
        self.changes += 1.0
        self._set_hazard()

    def _set_hazard(self) -> None:
        kernel = kernels.atlas
        rewards = FIRST_HAZARD_WEIGHT + self.stream[kernel.FOLLOWED]
        self.stream[kernel.HAZARD] = max((1.0 + self.changes) / rewards, LEAST_HAZARD)

    def set_span(self) -> None:
        """Set how many rewards are remembered: what a change needs by the information per reward.

        A change is believed when the evidence for it exceeds ``log(1/hazard)``; a reward gives
        ``log(1 + ρ)`` nats, where ρ is the variance of expected rewards by that of the noise.
        """
        signal = kernels.population.mean_variance(self.tastes, self.contexts)
        nats = math.log1p(signal / self.noise)
        most = min(MOST_SPAN, MOST_BYTES // (8 * (self.dim + 4)))
        needed = SPAN_NATS * math.log(1.0 / self.stream[kernels.atlas.HAZARD])
        self.span = max(LEAST_SPAN, min(most, math.ceil(needed / max(nats, 1e-3))))

    def dump(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the complete state: what JSON can hold, and arrays."""
        state = {name: getattr(self, name) for name in _NUMBERS}
        return state, {name: getattr(self, name) for name in _ARRAYS}

    def fill(self, state: dict[str, Any], arrays: dict[str, FloatArray]) -> None:
        """Restore what `dump` returned."""
        for name in _NUMBERS:
            setattr(self, name, state[name])
        self.first = [tuple(pair) for pair in state["first"]]
        for name in _ARRAYS:
            setattr(self, name, arrays[name].copy())


_NUMBERS = ("first", "changes", "segments", "span", "clock", "due")
_ARRAYS = (
    "mean", "covariance", "tastes", "precision", "shift", "totals", "contexts", "stream",
)  # fmt: skip


def as_kind(rewards: Any) -> Rewards | None:
    """Check what rewards are said to be; None leaves it to the rewards seen.

    >>> as_kind("binary")
    'binary'
    """
    if rewards not in (None, *get_args(Rewards)):
        raise OptionError(
            f"rewards is {rewards!r}, expected 'binary', 'real' or None; "
            "pass 'binary' if every reward is 0 or 1"
        )
    kind: Rewards | None = rewards
    return kind


def _inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a covariance matrix."""
    out = np.empty_like(matrix)
    if not kernels.linalg.invert(matrix, 0.0, out):
        inverse = np.linalg.pinv(matrix, hermitian=True)
        out[:] = 0.5 * (inverse + inverse.T)
    return out


def _median(squares: Sequence[float]) -> float:
    """Return the median of the squares that are not 0; 0 if there are none.

    >>> _median([1.0, 0.0, 1e6])
    1.0
    """
    some = sorted(square for square in squares if square > 0.0)
    return some[(len(some) - 1) // 2] if some else 0.0
