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
from dyclu.policies.common import columns, rates
from dyclu.policies.common.scales import (
    RESOLUTION,
    Prior,
    Sums,
    better_scales,
    inverse,
    next_stride,
)
from dyclu.validation import SMALLEST, FloatArray

Rewards = Literal["binary", "real"]
"""What rewards are: 0 or 1, or any numbers."""

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

QUIETEST = 1e-6
"""Share of the rewards' variance below which the noise's is never taken to fall."""

MOST_CLICKS, CLICK_SPREAD = 0.5, 2.0
"""Largest share of the variance p(1 − p) of 0/1 rewards that tastes are taken to explain, and their
largest squared coefficient of variation. A chance of mean p with the variance 2p² explains the
share ``2p/(1 − p)``. Without a bound, noise that is too small would confirm itself."""

ROUNDING = 1e-9
"""Share of a feature's mean square below which its variance is rounding."""

LARGEST = 25.0
"""A squared reward, or a context's squared length, counts as at most this many times the mean; of
the first ones, this many times the median of those that are not 0."""

SETTLED = 20
"""Rewards after which their mean is trusted to tell one that is too large."""

OTHERS, FEWER_OTHERS = 0.05, 0.025
"""Share of rewards other than 0 and 1 above which rewards are real, and below which they are clicks
again."""

WIDEST_ODDS = 4.0
"""Largest variance of the log odds of clicks before any data, over the contexts seen so far."""

LEAST_RATE = 0.005
"""Least share of clicks, and of rewards without one, at which chances are turned into odds."""

LEAST_SPAN, MOST_SPAN, MOST_BYTES = 4, 128, 16_000
"""Least and most rewards that are remembered of a user, and most bytes."""

SPAN_NATS = 2.0
"""How often a memory holds the evidence that a change needs (docs/theory.md §10.5)."""

WIDEST = 1e6
"""Largest variance of a taste's entry, by its guess before any data."""

UNEVEN, UNITS_NATS = 4.0, 3.0
"""Ratio of the features' variances from which on their units are compared; and the gain in log
evidence that a change of units must bring."""

PAIRED = 48
"""Segments every two of which are compared, to count the tastes."""

TELLING = 1.0
"""Least information of a reward, in nats, at which pairs of segments are compared."""

COMPARED_USERS = 400
"""Most users whose noise is compared."""


class Population:
    """Prior, noise and rates, with the sums that they come from.

    Attributes
    ----------
    line, line_tastes, line_noise : arrays of shape (p,) and (p, p), and float
        ``μ̂``, ``Σ`` and ``σ²`` of the rewards themselves, clicks too: their mean is taken to be
        linear in the features.
    mean, covariance : arrays of shape (p,) and (p, p)
        Mean and covariance of a taste never met: ``N(μ̂, Σ + Cov μ̂)``, of levels. The level of a
        real reward is its mean; that of a click is the log odds.
    precision, shift : arrays of shape (p, p) and (p,)
        Its natural form, ``P`` and ``Pμ̂``.
    line_doubt : array of shape (p, p)
        ``Cov μ̂`` of the rewards themselves.
    odds : (float, float)
        Factor and constant of the line that turned chances into log odds last.
    stream : array
        What kernels must know (`kernels.ledger`): noise, hazard, strays and the rest.
    totals, contexts : arrays
        Sums over the stream, and the mean of ``zzᵀ``: see `kernels.atlas.record`.
    span : int
        How many rewards are remembered of a user.
    changes : float
        Changes of located users found, the older ones faded.
    stride : float
        Factor by which the scales of Σ and of the noise are changed next.
    segments : int
        Segments begun so far.
    """

    def __init__(self, dim: int, *, noise: float | None, rewards: str | None) -> None:
        p = dim + 1
        self.dim, self._told, self._rewards = dim, noise, rewards
        self.line, self.line_tastes, self.line_noise = np.zeros(p), np.eye(p), 1.0
        self.line_doubt, self.odds = np.eye(p), (4.0, -2.0)
        self.mean, self.covariance = np.zeros(p), np.eye(p)
        self.precision, self.shift = np.eye(p), np.zeros(p)
        self.totals, self.contexts = np.zeros(6), np.zeros((p, p))
        self.first: list[tuple[float, float]] = []
        self.stream = np.zeros(9)
        self.stream[kernels.ledger.NOISE] = 1.0
        self.changes, self.stride, self.own_units = 0.0, 2.0, False
        self.segments, self.span, self.clock, self.due = 0, LEAST_SPAN, 0, 1.0
        self._set_hazard()

    @property
    def binary(self) -> bool:
        """Whether rewards follow the law of clicks."""
        return bool(self.stream[kernels.ledger.BINARY] == 1.0)

    def _looks_binary(self) -> bool:
        """Return whether rewards are told to be 0 or 1, or all have been, but for a few.

        Noise is told of real rewards only. Between the two thresholds the law stays as it is.
        """
        if self._rewards is not None or self._told is not None:
            return self._rewards == "binary"
        share = OTHERS if self.binary else FEWER_OTHERS
        return bool(self.totals[4] <= share * self.totals[0])

    def record(self, x: FloatArray, y: float) -> None:
        """Count a reward and its context; tiny features are set to 0 in place."""
        self.clock += 1
        self.stream[kernels.ledger.CLOCK] = self.clock
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
            return self.rate * (1.0 - self.rate)
        variance = squares / n - (total / n) ** 2
        if variance <= RESOLUTION * squares / n:
            variance = squares / n
        return float(variance) or 1.0

    @property
    def rate(self) -> float:
        """Share of clicks, where half a click counts before any data."""
        return float((self.totals[5] + 0.5) / (self.totals[0] + 1.0))

    @property
    def size(self) -> float:
        """Mean squared length of the contexts."""
        return float(self.totals[3] / self.totals[0]) if self.totals[3] > 0.0 else 1.0

    @property
    def _centre(self) -> FloatArray:
        """Mean context, where one context of zeros counts before any data."""
        n = self.totals[0]
        centre: FloatArray = self.contexts[-1, :-1] * (n / (n + 1.0))
        return centre

    def _guess(self, *, own: bool | None = None) -> FloatArray:
        """Return the variances of a taste's entries before any data, the intercept's last.

        Here the intercept is that at the mean context: features may be shifted by any constant.
        Slopes are even in the units in use, or in those that `own` says.
        """
        n, centre = self.totals[0], self._centre
        spread = self.size * n / (n + 1.0) - float(centre @ centre)
        least = self.size / (n + 1.0) + RESOLUTION * self.size
        guess = np.full(self.dim + 1, SIGNAL * self.variance / max(spread, least))
        guess[:-1] *= self._weights(own=self.own_units if own is None else own)
        guess[-1] = SIGNAL * self.variance
        return guess

    def _mean_precision(self, *, own: bool) -> FloatArray:
        """Return the precision of the mean taste before any data: it may explain all rewards."""
        variances = self._guess(own=own) / SIGNAL
        variances[-1] = max(self.totals[2] / self.totals[0], self.variance)
        return inverse(self._shifted(variances))

    def _spreads(self) -> FloatArray:
        """Return the variance of each feature over the contexts; 0 if it is only rounding."""
        squares, centre = self.contexts.diagonal()[:-1], self.contexts[-1, :-1]
        spreads = squares - centre**2
        return np.where(spreads > ROUNDING * squares, spreads, 0.0)

    def _weights(self, *, own: bool) -> FloatArray:
        """Return the variances of even slopes, by those of slopes even in the caller's units.

        In units of their `own`, all features have the same variance: then that of a slope is the
        smaller the larger its feature is. The variance of levels is the same in both units.
        """
        spreads, weights = self._spreads(), np.ones(self.dim)
        varies = spreads > 0.0
        if own and varies.any():
            weights[varies] = spreads[varies].mean() / spreads[varies]
        return weights

    def _shifted(self, variances: FloatArray) -> FloatArray:
        """Return the covariance of a taste from variances of its slopes and of its mean reward.

        Slopes, and the intercept at the mean context, are independent. That intercept is
        ``c + x̄ᵀθ``, so that ``c`` is it minus ``x̄ᵀθ``.
        """
        back = np.eye(self.dim + 1)
        back[-1, :-1] = -self._centre
        return np.asarray((back * variances) @ back.T)

    def forget(self) -> None:
        """Forget single rewards; the first ones of all users are kept for a while."""
        self.first.clear()

    def begin(self) -> None:
        """Set the prior before the first reward is learnt; the reward is already recorded."""
        self.stream[kernels.ledger.BINARY] = 1.0
        self.stream[kernels.ledger.BINARY] = float(self._looks_binary())
        guess = self._guess()
        self.line_tastes, self.line_doubt = self._shifted(guess), self._shifted(guess / SIGNAL)
        self._set_noise(self.variance)
        self._set_prior()

    def change_law(self) -> tuple[float, float] | None:
        """Change between clicks and real rewards if the stream says so.

        Returns factor and constant of the line that turns levels of the old law into those of the
        new one, or None if the law stays.
        """
        if self._looks_binary() == self.binary:
            return None
        factor, constant = self.odds if self.binary else self._odds_line()
        if self.binary:
            factor, constant = 1.0 / factor, -constant / factor
        self.stream[kernels.ledger.BINARY] = float(not self.binary)
        self.stream[kernels.ledger.RATIO_PRIOR] = 0.0
        if not self.binary and self.totals[0] <= SETTLED:
            # A first reward of 0 or 1 says nothing of the scale of real ones.
            guess = self._guess()
            self.line_tastes, self.line_doubt = self._shifted(guess), self._shifted(guess / SIGNAL)
            self.line_noise = self.variance
        self._set_noise(self.line_noise)
        self._set_prior()
        return factor, constant

    def _odds_line(self) -> tuple[float, float]:
        """Return factor and constant of the line that turns chances into log odds.

        Where levels vary as a normal law, a line through chances has ``E p(1 − p)`` times their
        slopes, and the mean chance is that of a level nearer to 0 (docs/theory.md §10.4).
        """
        rate = min(max(self.rate, LEAST_RATE), 1.0 - LEAST_RATE)
        all_clicks, centre = rate * (1.0 - rate), self.contexts[-1]
        explained = kernels.population.mean_variance(self.line_tastes, self.contexts)
        explained += float(self.line @ self.contexts @ self.line - (centre @ self.line) ** 2)
        factor = 1.0 / max(all_clicks - explained, (1.0 - MOST_CLICKS) * all_clicks)
        spread = min(factor**2 * explained, WIDEST_ODDS)
        level = math.log(rate / (1.0 - rate)) * math.sqrt(1.0 + kernels.laws.BLUR * spread)
        return factor, level - factor * rate

    def learn(self, grams: FloatArray, moments: FloatArray, sums: FloatArray) -> None:
        """Estimate prior and noise anew from the panel, one row per segment."""
        column = kernels.ledger
        columns = (sums[:, at] for at in (column.ENERGY, column.RATIO, column.HELD))
        energies, ratios, held = (np.ascontiguousarray(one) for one in columns)
        self._choose_units(grams, moments, ratios, energies)
        self._rescale(Sums(grams, moments, ratios, energies, held))
        guess, p, n = self._guess(), self.dim + 1, len(sums)
        mean, mean_covariance, scatter = np.empty(p), np.empty((p, p)), np.empty((p, p))
        residual, told = kernels.population.expect(
            grams, moments, ratios, energies, inverse(self.line_tastes), self.line_noise,
            self._mean_precision(own=self.own_units), mean, mean_covariance, scatter,
        )  # fmt: skip
        full = (scatter + self._shifted(guess)) / (n + 1.0)
        tastes = (told * full + p * self._shifted(self._even(full))) / (told + p)
        # Directions that are hardly seen must not explain noise by enormous tastes.
        tastes /= max(1.0, float((np.diag(tastes) / guess).max()) / WIDEST)
        self.line, self.line_doubt, self.line_tastes = mean, mean_covariance, tastes
        self._set_noise(
            (FIRST_NOISE_WEIGHT * self.line_noise + residual) / (FIRST_NOISE_WEIGHT + held.sum())
        )
        self.changes *= FADING
        self.stream[column.FOLLOWED] *= FADING
        self._set_prior()

    def _even(self, covariance: FloatArray) -> FloatArray:
        """Return even variances of slopes, and that of the mean context's reward."""
        even, weights = np.empty(self.dim + 1), self._weights(own=self.own_units)
        even[:-1] = (covariance.diagonal()[:-1] / weights).mean() * weights
        z = np.append(self._centre, 1.0)
        even[-1] = z @ covariance @ z
        return even

    def _choose_units(
        self, grams: FloatArray, moments: FloatArray, ratios: FloatArray, energies: FloatArray
    ) -> None:
        """Decide in which units slopes are even: the caller's, or the features' deviations.

        The panel's evidence of the two even covariances, which explain the same variance of
        rewards, must differ clearly. Then the present one begins anew. The mean is integrated out
        under each of them: one that was fitted in the other units would look impossible, or free.
        """
        spreads = self._spreads()
        if spreads.max() <= UNEVEN * spreads[spreads > 0.0].min(initial=math.inf):
            return
        even, p = self._even(self.line_tastes), self.dim + 1
        signal = float(self.line_tastes.diagonal()[:-1] @ spreads)
        mean, covariance, scatter = np.empty(p), np.empty((p, p)), np.empty((p, p))

        def evened(own: bool) -> FloatArray:
            weights = self._weights(own=own)
            even[:-1] = signal / float(weights @ spreads) * weights
            return self._shifted(even)

        def evidence(tastes: FloatArray, own: bool) -> float:
            precision, before = inverse(tastes), self._mean_precision(own=own)
            kernels.population.expect(
                grams, moments, ratios, energies, precision, self.line_noise, before, mean,
                covariance, scatter,
            )  # fmt: skip
            total = len(grams) * _log_det(precision) + _log_det(before) + _log_det(covariance)
            total += float(mean @ inverse(covariance) @ mean)
            return 0.5 * total + float(
                kernels.population.panel_evidence(
                    grams, moments, ratios, precision, np.zeros(p), self.line_noise
                )
            )

        present, other = evened(self.own_units), evened(not self.own_units)
        gain = evidence(other, not self.own_units) - evidence(present, self.own_units)
        if gain > UNITS_NATS:
            self.own_units, self.line_tastes = not self.own_units, other

    def _rescale(self, sums: Sums) -> None:
        """Change the scales of Σ and of the noise where that raises the panel's evidence."""
        tastes, noise = better_scales(
            sums,
            Prior(self.line, self.line_tastes, self.line_noise),
            self.contexts,
            variance=self.variance,
            stride=self.stride,
            told=self._told is not None,
        )
        self.line_tastes = self.line_tastes * tastes
        self._set_noise(self.line_noise * noise)
        self.stride = next_stride(self.stride, found=(tastes, noise) != (1.0, 1.0))

    def compare_users(self, sums: FloatArray, weights: FloatArray) -> None:
        """Learn how much noise differs between users, from their sums of squared errors."""
        column = kernels.ledger
        self.stream[column.RATIO_PRIOR] = 0.0
        if self._told is not None or self.binary:
            return
        found = rates.noise_ratios(sums, weights)
        if found is not None:
            self.stream[column.RATIO_PRIOR], self.stream[column.RATIO_MEAN] = found

    def learn_newness(
        self, odds: Sequence[float], known: int, joined: float, alone: float, tastes: float = 1.0
    ) -> None:
        """Learn how likely a taste never met is, by one of `known` tastes: see `rates.newness`."""
        newness = rates.newness(odds, known, joined, alone, tastes)
        self.stream[kernels.ledger.NEWNESS] = math.log(newness)

    def count_tastes(self, grams: FloatArray, moments: FloatArray, ratios: FloatArray) -> float:
        """Return about how many tastes there are, by how often two segments have the same one.

        It is a cautious number, and 1 if a reward says so little that no two segments can be told
        apart (docs/theory.md §10.4).
        """
        if self._nats < TELLING:
            return 1.0
        n = len(ratios)
        factors = np.empty(n * (n - 1) // 2)
        precision = inverse(self.line_tastes + self.line_doubt)
        kernels.population.pair_evidence(
            grams, moments, ratios, precision, precision @ self.line, self.line_noise, factors
        )
        return 1.0 / rates.share_of_pairs(factors)

    def _set_noise(self, variance: float) -> None:
        """Set the noise of rewards; that of clicks is part of their weights (`kernels.laws`)."""
        column, all_rewards = kernels.ledger, self.variance
        if self._told is not None:
            square = self.totals[2] / max(self.totals[0], 1.0) or 1.0
            variance = min(max(self._told, RESOLUTION * square), square / RESOLUTION)
        else:
            variance = max(variance, self._least_noise * all_rewards)
        self.line_noise = variance
        self.stream[column.NOISE] = 1.0 if self.binary else variance
        spread = STRAY_SPREAD * max(all_rewards, variance)
        self.stream[column.STRAY] = math.log(STRAY_RATE) - 0.5 * math.log(2.0 * math.pi * spread)

    @property
    def _least_noise(self) -> float:
        """Least noise variance, by the variance of all rewards."""
        if not self.binary:
            return QUIETEST
        rare = min(self.rate, 1.0 - self.rate)
        return 1.0 - min(MOST_CLICKS, float(CLICK_SPREAD * rare / (1.0 - rare)))

    def _set_prior(self) -> None:
        """Set the prior of levels from that of the rewards."""
        self.line_tastes = 0.5 * (self.line_tastes + self.line_tastes.T)
        self.mean, self.covariance = self.line.copy(), self.line_tastes + self.line_doubt
        if self.binary:
            self.odds = self._odds_line()
            factor, constant = self.odds
            self.mean *= factor
            self.mean[-1] += constant
            self.covariance = self._bounded(factor**2 * self.covariance)
        self.precision = inverse(self.covariance)
        self.shift = self.precision @ self.mean
        self._set_hazard()

    def _bounded(self, covariance: FloatArray) -> FloatArray:
        """Return a covariance of log odds, smaller if it lets them vary too much."""
        spread = kernels.population.mean_variance(covariance, self.contexts)
        return covariance * min(1.0, WIDEST_ODDS / max(spread, RESOLUTION))

    def note_change(self, chance: float) -> None:
        """Count a change that has happened with this probability."""
        self.changes += chance
        self._set_hazard()

    def _set_hazard(self) -> None:
        column = kernels.ledger
        rewards = FIRST_HAZARD_WEIGHT + self.stream[column.FOLLOWED]
        self.stream[column.HAZARD] = max((1.0 + self.changes) / rewards, LEAST_HAZARD)

    @property
    def _nats(self) -> float:
        """What a reward says of a taste: ``log(1 + ρ)``, as in `set_span`."""
        signal = kernels.population.mean_variance(self.line_tastes, self.contexts)
        return math.log1p(signal / self.line_noise)

    def set_span(self) -> None:
        """Set how many rewards are remembered: what a change needs by the information per reward.

        A change is believed when the evidence for it exceeds ``log(1/hazard)``; a reward gives
        ``log(1 + ρ)`` nats, where ρ is the variance of expected rewards by that of the noise.
        """
        nats = self._nats
        most = min(MOST_SPAN, MOST_BYTES // (8 * (self.dim + kernels.memory.REMEMBERED)))
        needed = SPAN_NATS * math.log(1.0 / self.stream[kernels.ledger.HAZARD])
        self.span = max(LEAST_SPAN, min(most, math.ceil(needed / max(nats, 1e-3))))

    def dump(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return the complete state: what JSON can hold, and arrays."""
        state = {name: getattr(self, name) for name in _NUMBERS}
        return state, {name: getattr(self, name) for name in _ARRAYS}

    def fill(self, state: dict[str, Any], arrays: dict[str, FloatArray]) -> None:
        """Restore what `dump` returned; in older files all units are the caller's."""
        state = {"own_units": False} | state
        for name in _NUMBERS:
            setattr(self, name, state[name])
        self.first = [tuple(pair) for pair in state["first"]]
        self.odds = (state["odds"][0], state["odds"][1])
        for name in _ARRAYS:
            shape = getattr(self, name).shape
            setattr(self, name, columns.of_shape(name, arrays[name], shape).copy())


_NUMBERS = (
    "first",
    "changes",
    "segments",
    "span",
    "clock",
    "due",
    "line_noise",
    "odds",
    "stride",
    "own_units",
)
_ARRAYS = (
    "mean", "covariance", "precision", "shift", "totals", "contexts", "stream", "line",
    "line_tastes", "line_doubt",
)  # fmt: skip


def converted(
    precision: FloatArray, shift: FloatArray, factor: float, constant: float
) -> tuple[FloatArray, FloatArray]:
    """Return the natural form of ``factor · θ + (0, …, 0, constant)``, given that of θ.

    >>> precision, shift = converted(np.array([[4.0]]), np.array([8.0]), 0.5, 3.0)
    >>> precision, shift / precision[0]                                 # N(2, 1/4) -> N(4, 1/16)
    (array([[16.]]), array([4.]))
    """
    scaled = precision / factor**2
    return scaled, shift / factor + constant * scaled[..., -1]


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


def _log_det(matrix: FloatArray) -> float:
    """Return the log determinant of a positive definite matrix."""
    return float(np.linalg.slogdet(matrix)[1])


def _median(squares: Sequence[float]) -> float:
    """Return the median of the squares that are not 0; 0 if there are none.

    >>> _median([1.0, 0.0, 1e6])
    1.0
    """
    some = sorted(square for square in squares if square > 0.0)
    return some[(len(some) - 1) // 2] if some else 0.0
