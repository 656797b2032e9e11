"""The paper's results as functions: thresholds, error bounds, window size, regret bound.

Each function is one lemma. `docs/theory.md` explains them in order, `docs/notation.md` lists their
labels in the paper, and `docs/decisions/003-readings-of-the-paper.md` records how ambiguous places
of the paper are understood. An option outside its range raises `OptionError`. Special results:

- `NO_BOUND` (0): the formula gives no guarantee;
- `UNATTAINABLE` (infinity): no number of observations is enough;
- zero degrees of freedom: the sets cannot be compared, ``s`` is 0 and never exceeds a threshold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dyclu.core.stats import Stats, overlap, pseudo_inverse
from dyclu.errors import OptionError, ShapeError
from dyclu.validation import (
    LARGEST,
    FloatArray,
    as_dim,
    as_floats,
    as_positive,
    as_probability,
    as_whole,
    as_within,
)

NO_BOUND = 0.0
"""A trivial lower bound: the formula gives no guarantee here."""

UNATTAINABLE = math.inf
"""Number of observations if no number of them gives the guarantee."""

WORST_REGRET = 2.0
"""Largest regret of a round: rewards lie within ±1, since ‖x‖ ≤ 1 and ‖θ‖ ≤ 1."""

SMALLEST_ERROR = 1e-50
"""Smaller error rates are replaced by this: the non-central χ² has too few correct digits there."""

LARGEST_NONCENTRALITY = 1e7
"""Above this, ``√s`` is approximated as normal; probabilities change by less than df/10⁸."""


def threshold(level: float, df: int) -> float:
    """Return the ``υ`` that the statistic exceeds with probability `level` under homogeneity.

    ``1 − F(υ; df, 0) = level``: Lemma 1 solved for ``υ``. With ``df = 0`` both the statistic and
    the threshold are 0.

    χ² with two degrees of freedom is exponential, ``υ = −2 log(level)``:

    >>> threshold(math.exp(-3), 2)
    6.0
    """
    level, df = as_probability(level, "level"), as_whole(df, "df", least=0)
    return float(scipy.special.chdtri(df, level)) if df else 0.0


def type_one_error(threshold: float, df: int) -> float:
    """Return the probability of rejecting homogeneity although it holds: Lemma 1.

    ``P(s > υ | θ₁ = θ₂) = 1 − F(υ; df, 0)``, and 0 with ``df = 0``.

    >>> round(type_one_error(6.0, 2) / math.exp(-3), 12)
    1.0
    """
    threshold, df = _as_threshold(threshold), as_whole(df, "df", least=0)
    return float(scipy.special.chdtrc(df, threshold)) if df else 0.0


def noncentrality(
    a: Stats, b: Stats, theta_a: ArrayLike, theta_b: ArrayLike, *, noise: float
) -> float:
    """Return the non-centrality ``ψ`` of Theorem 1 for two known parameters.

    ``ψ = Δᵀ A₁ (A₁ + A₂)⁻ A₂ Δ / σ²`` with ``Δ = θ₁ − θ₂``, for grams of any rank. The rewards of
    `a` and `b` are not used.

    Examples
    --------
    Three and six observations of one context, parameters 1 apart: ``3 · 6 / (3 + 6) / 0.5² = 8``.

    >>> a, b = Stats.of([[1]] * 3, [0] * 3), Stats.of([[1]] * 6, [0] * 6)
    >>> noncentrality(a, b, [0], [1], noise=0.5)
    8.0
    """
    both, noise = a + b, as_positive(noise, "noise")
    gap = _as_theta(theta_a, "theta_a", a.dim) - _as_theta(theta_b, "theta_b", b.dim)
    size = float(np.abs(gap).max())
    if size == 0:
        return 0.0
    gap /= size
    # ψ is also the minimum over θ of ‖θ₁ − θ‖²_A₁ + ‖θ − θ₂‖²_A₂, which is at θ₁ − θ = `part`. At
    # a minimum, the rounding error of `part` has only a second-order effect.
    part = pseudo_inverse(both.gram, both.count) @ (b.gram @ gap)
    rest = gap - part
    least = float(part @ a.gram @ part + rest @ b.gram @ rest)
    return _signal(size / noise, max(0.0, least))


def type_two_error(threshold: float, df: int, noncentrality: float) -> float:
    """Return the probability of accepting homogeneity although it does not hold: Theorem 1.

    ``P(s ≤ υ) = F(υ; df, ψ)``, and 1 with ``df = 0``.

    With one degree of freedom, ``s = (z + √ψ)²`` with `z` standard normal; with ``υ = ψ = 1`` the
    error is ``P(−2 ≤ z ≤ 0)``:

    >>> round(type_two_error(1.0, 1, 1.0), 5)
    0.47725
    """
    threshold, df = _as_threshold(threshold), as_whole(df, "df", least=0)
    return _cdf(threshold, df, as_within(noncentrality, "noncentrality", 0, math.inf))


def type_two_bound(threshold: float, a: Stats, b: Stats, gap: float, *, noise: float) -> float:
    """Return an upper bound of the type-II error for parameters at distance `gap`: Lemma 2.

    ``F(υ; d, (gap²/σ²) / (1/λ_min(A₁) + 1/λ_min(A₂)))`` if both grams have full rank. Otherwise the
    difference may lie in a direction that one set has not observed: ``F(υ; df, 0)``.

    Examples
    --------
    Two observations each of one context give ``ψ ≥ 1 / (1/2 + 1/2) = 1``:

    >>> pair = Stats.of([[1], [1]], [0, 0])
    >>> round(type_two_bound(1.0, pair, pair, 1.0, noise=1.0), 5)
    0.47725
    """
    threshold, noise = _as_threshold(threshold), as_positive(noise, "noise")
    ratio, df = as_within(gap, "gap", 0, math.inf) / noise, overlap(a, b)[0]
    if min(a.rank, b.rank) < a.dim:
        return _cdf(threshold, df, 0.0)
    information = _parallel(_smallest_eigenvalue(a.gram), _smallest_eigenvalue(b.gram))
    return _cdf(threshold, df, _signal(ratio, information))


def alarm_threshold(level: float, *, delta: float, entries: int) -> float:
    """Return the mean of a window of surprises above which a change is declared: Lemma 3.

    ``level + √(log(1/δₑ) / (2 · entries))``. While the user does not change, each entry is a
    surprise with probability `level`, and by Hoeffding's inequality their mean exceeds the
    threshold with probability δₑ at most. With few entries the threshold is 1 or more: no alarm.

    >>> alarm_threshold(0.1, delta=math.exp(-2), entries=4)
    0.6
    """
    level, delta = as_probability(level, "level"), as_probability(delta, "delta")
    entries = as_whole(entries, "entries", least=1)
    return level + math.sqrt(-math.log(delta) / (2 * entries))


def min_eigenvalue_bound(count: int, dim: int, *, arm_eigenvalue: float, delta: float) -> float:
    """Return a lower bound of ``λ_min(A)`` after `count` observations: Lemma 12.

    ``λ′n/4 − 8 (log(dn/δ′) + √(n log(dn/δ′)))``, with probability ``1 − δ′``, under Assumption 3;
    `NO_BOUND` if that is negative.

    Parameters
    ----------
    count, dim : int
        Observations ``n`` and features ``d``.
    arm_eigenvalue : float
        ``λ′``, the smallest eigenvalue of ``E[xxᵀ]`` over the arms; at most ``1/d`` if ‖x‖ ≤ 1.
    delta : float
        ``δ′``, the probability that the bound fails.

    Examples
    --------
    With ``log(dn/δ′) = 25`` and n = 40,000: ``10000 − 8 (25 + 1000) = 1800``.

    >>> round(min_eigenvalue_bound(40_000, 1, arm_eigenvalue=1.0, delta=40_000 * math.exp(-25)))
    1800
    >>> min_eigenvalue_bound(400, 25, arm_eigenvalue=0.04, delta=0.1) == NO_BOUND
    True
    """
    count, dim = as_whole(count, "count", least=0), as_dim(dim)
    eigenvalue = as_positive(arm_eigenvalue, "arm_eigenvalue")
    delta = as_probability(delta, "delta")
    if count == 0:
        return NO_BOUND
    doubt = math.log(dim) + math.log(count) - math.log(delta)
    return max(NO_BOUND, eigenvalue * count / 4 - 8 * (doubt + math.sqrt(count * doubt)))


def observations_needed(
    eigenvalue: float, dim: int, *, arm_eigenvalue: float, delta: float
) -> float:
    """Return the least number from which on `min_eigenvalue_bound` is at least `eigenvalue`.

    It is 0 for an `eigenvalue` of 0, else at least 3; `UNATTAINABLE` above `validation.LARGEST`.

    >>> delta = 40_000 * math.exp(-25)
    >>> observations_needed(1800 - 1e-6, 1, arm_eigenvalue=1.0, delta=delta)
    40000
    """
    if as_within(eigenvalue, "eigenvalue", 0, LARGEST) == 0:
        return 0

    def enough(count: int) -> bool:
        return eigenvalue <= min_eigenvalue_bound(
            count, dim, arm_eigenvalue=arm_eigenvalue, delta=delta
        )

    # From n = 3 > e on, log(dn/δ′) / n decreases, so a positive bound increases: bisection works.
    few, many = 2, 3
    while not enough(many):
        if many > LARGEST:
            return UNATTAINABLE
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def change_noncentrality(reward_gap: float, eigenvalue: float, *, noise: float) -> float:
    """Return the non-centrality ``ψᵉ`` of a reward after a change: Lemma 6.

    ``ψᵉ = (Δ²/σ²) / (1 + 1/λ_min(A))``: the expected reward has changed by ``Δ`` (Assumption 1),
    and the variance of its prediction is at most ``σ²/λ_min(A)`` for ‖x‖ ≤ 1. The paper uses
    `min_eigenvalue_bound` as the eigenvalue; a measured one gives a sharper result.

    >>> change_noncentrality(1.0, 1.0, noise=0.5)
    2.0
    """
    ratio = as_within(reward_gap, "reward_gap", 0, math.inf) / as_positive(noise, "noise")
    return _signal(ratio, _parallel(1.0, as_within(eigenvalue, "eigenvalue", 0, math.inf)))


def detection_probability(
    level: float, noncentrality: float, *, portion: float = 1.0, eigenvalue_delta: float = 0.0
) -> float:
    """Return a lower bound of the probability of a surprise after a change: Lemma 6.

    ``ρ (1 − δ′) (1 − F(υᵉ; 1, ψᵉ))`` with ``1 − F(υᵉ; 1, 0) = level``.

    Parameters
    ----------
    level : float
        Probability of a surprise while the user does not change.
    noncentrality : float
        ``ψᵉ``, from `change_noncentrality`.
    portion : float
        ``ρ``, the share of arms whose expected reward changes (Assumption 1).
    eigenvalue_delta : float
        ``δ′``, the probability that the eigenvalue in ``ψᵉ`` is smaller than assumed; 0 if it was
        measured.

    Examples
    --------
    With non-centrality 0 there are only surprises by chance:

    >>> round(detection_probability(0.05, 0.0, portion=0.5, eigenvalue_delta=0.2), 6)
    0.02
    """
    missed = type_two_error(threshold(level, 1), 1, noncentrality)
    sure = 1 - as_within(eigenvalue_delta, "eigenvalue_delta", 0, 1)
    return as_within(portion, "portion", 0, 1) * sure * (1 - missed)


def window_size(level: float, detection: float, *, delta: float) -> float:
    """Return the smallest window ``τ`` that detects a change with probability ``1 − δₑ``: Lemma 7.

    ``τ ≥ 2 log(1/δₑ) / (detection − level)²``. After a change each reward is a surprise with
    probability `detection` (from `detection_probability`); by Hoeffding's inequality the mean of a
    full window then exceeds `alarm_threshold`. `UNATTAINABLE` if ``detection ≤ level``.

    >>> window_size(0.25, 0.75, delta=math.exp(-2))
    16
    >>> window_size(0.25, 0.25, delta=0.1) == UNATTAINABLE
    True
    """
    level, delta = as_probability(level, "level"), as_probability(delta, "delta")
    excess = as_within(detection, "detection", 0, 1) - level
    needed = -2 * math.log(delta) / excess / excess if excess > 0 else UNATTAINABLE
    return math.ceil(needed) if needed < UNATTAINABLE else UNATTAINABLE


def neighbour_noncentrality(level: float, dim: int, *, rarest: float) -> float:
    """Return the ``ψᶜ`` for which a share ``1 − level`` of the neighbours is correct: Lemma 10.

    It solves ``F(υᶜ; d, ψᶜ) = p · level / (1 − p)`` with ``1 − F(υᶜ; d, 0) = level``. It is 0 if
    ``p ≥ 1 − level``: then even a random segment is correct with probability ``1 − level``.

    Parameters
    ----------
    level : float
        Probability of missing a true neighbour.
    dim : int
        Number of features ``d``.
    rarest : float
        ``p = min_k p_k``, the frequency of the rarest parameter.

    Examples
    --------
    Half of all segments are true neighbours. 1 % of these are missed, so 1 % of the other half may
    be accepted:

    >>> separated = neighbour_noncentrality(0.01, 25, rarest=0.5)
    >>> round(type_two_error(threshold(0.01, 25), 25, separated), 6)
    0.01
    """
    cut, rarest = threshold(level, as_dim(dim)), as_within(rarest, "rarest", 0, 1)
    if rarest >= 1 - level:
        return 0.0
    allowed = max(SMALLEST_ERROR, rarest * level / (1 - rarest))
    return float(scipy.special.chndtrinc(cut, dim, allowed))


def neighbour_eigenvalue(noncentrality: float, *, noise: float, separation: float) -> float:
    """Return the ``λ_min(A)`` that both segments need for the non-centrality ``ψᶜ``: Lemma 9.

    ``2 ψᶜ σ² / γ²``, where the parameters have distance ``γ`` (Assumption 2).

    >>> neighbour_eigenvalue(16.0, noise=1.0, separation=4.0)
    2.0
    """
    apart = as_positive(separation, "separation")
    ratio = as_positive(noise, "noise") / apart
    return 2 * _signal(ratio, as_within(noncentrality, "noncentrality", 0, math.inf))


def exploration(count: int, dim: int, *, noise: float, ridge: float, delta: float) -> float:
    """Return the paper's width factor α for an estimate from `count` observations: Eq. (2).

    ``α = σ √(d log(1 + count/(dλ)) + 2 log(1/δ)) + √λ``

    >>> exploration(0, 25, noise=0.0, ridge=0.25, delta=0.1)
    0.5
    """
    spread = dim * math.log1p(count / (dim * ridge)) + 2 * math.log(1 / delta)
    return noise * math.sqrt(spread) + math.sqrt(ridge)


def linucb_regret(count: int, dim: int, *, noise: float, ridge: float, delta: float) -> float:
    """Return ``R_Lin(n)``: LinUCB's regret after `count` rounds, with probability ``1 − δ``.

    ``4 √(d n log(λ + n/d)) α`` with `exploration` α: Theorem 3 of Abbasi-Yadkori et al., proved for
    ``λ ≥ 1``. For smaller ``λ`` the proof gives ``log(1 + n/(dλ))``; α below 1 is replaced by 1.
    The result is at most `WORST_REGRET` per round.

    With almost no noise, α is ``√λ``:

    >>> regret = linucb_regret(10_000, 1, noise=1e-9, ridge=4.0, delta=0.1)
    >>> round(regret - 4 * math.sqrt(10_000 * math.log(4 + 10_000)) * 2, 4)
    0.0
    """
    count, dim = as_whole(count, "count", least=0), as_dim(dim)
    noise, ridge = as_positive(noise, "noise"), as_positive(ridge, "ridge")
    alpha = exploration(count, dim, noise=noise, ridge=ridge, delta=as_probability(delta, "delta"))
    growth = math.log(max(1.0, ridge) + count / (dim * min(1.0, ridge)))
    return min(WORST_REGRET * count, 4 * math.sqrt(dim * count * growth) * max(1.0, alpha))


@dataclass(frozen=True, slots=True)
class RegretBound:
    """The regret of DyClu, as the three terms of Eq. (3).

    Attributes
    ----------
    learning : float
        Regret of an oracle that knows every change and neighbour: first term.
    late_detection : float
        Regret between a change and its alarm: second term.
    clustering : float
        Regret while segments are too small to be distinguished: third term, without its constant.
    probability : float
        Probability with which the bound holds; `NO_BOUND` for ``δₑ ≥ 1/2``.
    """

    learning: float
    late_detection: float
    clustering: float
    probability: float

    @property
    def total(self) -> float:
        """Sum of the three terms."""
        return self.learning + self.late_detection + self.clustering


def regret_bound(
    counts: Iterable[int],
    periods: Iterable[int],
    dim: int,
    *,
    noise: float,
    ridge: float,
    delta: float,
    window: int,
    window_delta: float,
    neighbour_level: float,
    separation: float,
    arm_eigenvalue: float,
    eigenvalue_delta: float,
) -> RegretBound:
    """Return the bound on the regret of DyClu, term by term: Theorem 2, Eq. (3).

    - learning ``Σ_k R_Lin(n_k)``, with its constants;
    - late detection ``2 Σ_i (Γ_i − 1)(τ + 2/(1 − δₑ))``, if the window is at least `window_size`;
    - clustering ``2 Σ_i Γ_i · (2ψᶜσ²/(γ²λ′²)) log(d/δ′)``. The paper gives this term as ``O(·)``;
      the constant 1 is used here, so the term is an order of magnitude, not a bound.

    The bound holds with probability ``(1 − δ)(1 − δₑ/(1 − δₑ))(1 − δ′)``.

    Parameters
    ----------
    counts : whole numbers
        ``n_k``: for each distinct parameter, the rounds in which the served user had it.
    periods : whole numbers
        ``Γ_i``: number of stationary periods of each user.
    dim, noise, ridge, delta, window, window_delta, neighbour_level
        ``d, σ, λ, δ, τ, δₑ`` and ``1 − F(υᶜ)``: the options of the policy.
    separation, arm_eigenvalue, eigenvalue_delta : float
        ``γ``, ``λ′`` and ``δ′`` of Assumptions 2 and 3.

    Examples
    --------
    Without changes there is no regret of late detection:

    >>> bound = regret_bound([1000], [1], 5, noise=0.1, ridge=1.0, delta=0.1, window=20,
    ...     window_delta=0.1, neighbour_level=0.01, separation=0.9, arm_eigenvalue=0.2,
    ...     eigenvalue_delta=0.1)
    >>> bound.learning == linucb_regret(1000, 5, noise=0.1, ridge=1.0, delta=0.1)
    True
    >>> bound.late_detection, bound.clustering, round(bound.probability, 2)
    (0.0, 0.0, 0.72)
    """
    counts, periods = _as_counts(counts, "counts"), _as_counts(periods, "periods")
    late = as_probability(window_delta, "window_delta")
    doubt = math.log(as_dim(dim)) - math.log(as_probability(eigenvalue_delta, "eigenvalue_delta"))
    separated = neighbour_noncentrality(neighbour_level, dim, rarest=min(counts) / sum(counts))
    eigenvalue = neighbour_eigenvalue(separated, noise=noise, separation=separation)
    waiting = _signal(1 / as_positive(arm_eigenvalue, "arm_eigenvalue"), eigenvalue) * doubt
    detecting = as_whole(window, "window", least=1) + 2 / (1 - late)
    return RegretBound(
        sum(linucb_regret(n, dim, noise=noise, ridge=ridge, delta=delta) for n in counts),
        WORST_REGRET * sum(n - 1 for n in periods) * detecting,
        WORST_REGRET * sum(periods) * waiting,
        (1 - delta) * max(NO_BOUND, 1 - late / (1 - late)) * (1 - eigenvalue_delta),
    )


def _cdf(threshold: float, df: int, noncentrality: float) -> float:
    if df == 0:
        return 1.0
    if threshold < sys.float_info.min:  # of subnormal numbers, scipy before 1.15 returns NaN
        return 0.0
    if noncentrality > LARGEST_NONCENTRALITY:
        z = math.sqrt(threshold) - math.sqrt(noncentrality + df - 1)
        return float(scipy.special.ndtr(z))
    return float(scipy.special.chndtr(threshold, df, noncentrality))


def _signal(ratio: float, information: float) -> float:
    # ratio² · information; 0 without information, also if ratio² is infinite.
    return ratio * ratio * information if information else 0.0


def _parallel(first: float, second: float) -> float:
    return 1 / (1 / first + 1 / second) if first and second else 0.0


def _smallest_eigenvalue(gram: FloatArray) -> float:
    return max(0.0, float(np.linalg.eigvalsh(gram)[0]))


def _as_threshold(value: Any) -> float:
    return as_within(value, "threshold", 0, LARGEST)


def _as_theta(theta: ArrayLike, name: str, dim: int) -> FloatArray:
    vector = as_floats(theta, name)
    if vector.shape != (dim,):
        raise ShapeError(
            f"{name} has shape {vector.shape}, expected ({dim},); "
            "pass a parameter with one number per feature"
        )
    return vector


def _as_counts(values: Iterable[int], name: str) -> list[int]:
    counts = [as_whole(value, name, least=1) for value in values]
    if not counts:
        raise OptionError(f"{name} are empty, expected at least one whole number ≥ 1")
    return counts
