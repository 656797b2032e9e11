"""The paper's results as functions: thresholds, error bounds, window size, regret bound.

Each function is one lemma. `docs/theory.md` tells them in order, `docs/notation.md` has their
labels in the paper, and `docs/decisions/003-readings-of-the-paper.md` says how it was read where it
leaves a choice. An option outside its range raises `OptionError`. Within the ranges every function
answers, and where a formula has nothing to say the answer has a name:

- `NO_BOUND` (0): a guarantee that guarantees nothing, be it of information or of probability;
- `UNATTAINABLE` (infinity): no number of observations is enough;
- zero degrees of freedom: nothing can be compared, ``s`` is 0 and never exceeds a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, chdtri, chndtr, chndtrinc, ndtr

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
"""A lower bound that is true of everything: the formula guarantees nothing here."""

UNATTAINABLE = math.inf
"""A number of observations that does not exist: more data cannot give the guarantee."""

WORST_REGRET = 2.0
"""Regret of a round at worst: rewards lie within ±1, since ‖x‖ ≤ 1 and ‖θ‖ ≤ 1."""

SMALLEST_ERROR = 1e-50
"""Error rates below this mean *never*; the non-central χ² has too few true digits beyond."""

LARGEST_NONCENTRALITY = 1e7
"""Above this ``√s`` is taken as normal, which changes probabilities by less than df/10⁸."""


def threshold(level: float, df: int) -> float:
    """Return the ``υ`` that the statistic exceeds with probability `level` by chance.

    ``1 − F(υ; df, 0) = level``: Lemma 1 solved for ``υ``. With ``df = 0`` the statistic is 0, and
    so is the threshold: nothing exceeds it.

    χ² with two degrees of freedom is exponential, ``υ = −2 log(level)``:

    >>> threshold(math.exp(-3), 2)
    6.0
    """
    level, df = as_probability(level, "level"), as_whole(df, "df", least=0)
    return float(chdtri(df, level)) if df else 0.0


def type_one_error(threshold: float, df: int) -> float:
    """Return the chance to tell apart what is the same: Lemma 1.

    ``P(s > υ | θ₁ = θ₂) = 1 − F(υ; df, 0)``, and 0 with ``df = 0``.

    >>> round(type_one_error(6.0, 2) / math.exp(-3), 12)
    1.0
    """
    threshold, df = _as_threshold(threshold), as_whole(df, "df", least=0)
    return float(chdtrc(df, threshold)) if df else 0.0


def noncentrality(
    a: Stats, b: Stats, theta_a: ArrayLike, theta_b: ArrayLike, *, noise: float
) -> float:
    """Return how far apart the data of two known parameters are: ``ψ`` of Theorem 1.

    With ``Δ = θ₁ − θ₂``, and whatever the ranks of ``A₁`` and ``A₂``,
    ``ψ = Δᵀ A₁ (A₁ + A₂)⁻ A₂ Δ / σ²``. Only the grams of `a` and `b` matter, not their rewards.

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
    # The minimum over θ of ‖θ₁ − θ‖²_A₁ + ‖θ − θ₂‖²_A₂, attained at θ₁ − θ = `part`: the same ψ,
    # and at a minimum rounding in `part` only enters squared.
    part = pseudo_inverse(both.gram, both.count) @ (b.gram @ gap)
    rest = gap - part
    least = float(part @ a.gram @ part + rest @ b.gram @ rest)
    return _signal(size / noise, max(0.0, least))


def type_two_error(threshold: float, df: int, noncentrality: float) -> float:
    """Return the chance to take for the same what is not: ``P(s ≤ υ) = F(υ; df, ψ)``, Theorem 1.

    It is 1 with ``df = 0``.

    With one degree of freedom, ``s = (z + √ψ)²`` with `z` standard normal; with ``υ = ψ = 1`` the
    error is ``P(−2 ≤ z ≤ 0)``:

    >>> round(type_two_error(1.0, 1, 1.0), 5)
    0.47725
    """
    threshold, df = _as_threshold(threshold), as_whole(df, "df", least=0)
    return _cdf(threshold, df, as_within(noncentrality, "noncentrality", 0, math.inf))


def type_two_bound(threshold: float, a: Stats, b: Stats, gap: float, *, noise: float) -> float:
    """Return an upper bound of the type-II error for any parameters `gap` apart: Lemma 2.

    ``F(υ; d, (gap²/σ²) / (1/λ_min(A₁) + 1/λ_min(A₂)))`` if both grams have full rank. Otherwise the
    difference may hide where one of them has not looked: ``F(υ; df, 0)``.

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

    ``level + √(log(1/δₑ) / (2 · entries))``. While nothing changes each entry is a surprise with
    probability `level`, and by Hoeffding's inequality their mean is larger with probability δₑ at
    most. A threshold of 1 or more is never exceeded: so few entries prove nothing.

    >>> alarm_threshold(0.1, delta=math.exp(-2), entries=4)
    0.6
    """
    level, delta = as_probability(level, "level"), as_probability(delta, "delta")
    entries = as_whole(entries, "entries", least=1)
    return level + math.sqrt(-math.log(delta) / (2 * entries))


def min_eigenvalue_bound(count: int, dim: int, *, arm_eigenvalue: float, delta: float) -> float:
    """Return a lower bound of ``λ_min(A)`` after `count` observations: Lemma 12.

    ``λ′n/4 − 8 (log(dn/δ′) + √(n log(dn/δ′)))``, with probability ``1 − δ′``, under Assumption 3.
    Where that is negative the answer is `NO_BOUND`: no gram has a negative eigenvalue.

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
    """Return how many observations give ``λ_min(A) ≥ eigenvalue`` by `min_eigenvalue_bound`.

    That many, and any larger number; 0 if nothing is asked for, else at least 3. `UNATTAINABLE` if
    it is beyond all counting, above `validation.LARGEST`.

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

    # From n = 3 > e on, log(dn/δ′) / n falls: the bound rises once positive, and can be bisected.
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
    """Return how much a reward stands out after a change: ``ψᵉ`` of Lemma 6.

    ``ψᵉ = (Δ²/σ²) / (1 + 1/λ_min(A))``: the reward is off by ``Δ`` (Assumption 1), and the segment
    with smallest eigenvalue ``λ_min(A)`` predicts it for ‖x‖ ≤ 1 with variance ``σ²/λ_min(A)`` at
    most. The paper puts `min_eigenvalue_bound` in for the eigenvalue; a measured one is sharper.

    >>> change_noncentrality(1.0, 1.0, noise=0.5)
    2.0
    """
    ratio = as_within(reward_gap, "reward_gap", 0, math.inf) / as_positive(noise, "noise")
    return _signal(ratio, _parallel(1.0, as_within(eigenvalue, "eigenvalue", 0, math.inf)))


def detection_probability(
    level: float, noncentrality: float, *, portion: float = 1.0, eigenvalue_delta: float = 0.0
) -> float:
    """Return a lower bound of the chance that a reward surprises after a change: Lemma 6.

    ``ρ (1 − δ′) (1 − F(υᵉ; 1, ψᵉ))`` with ``1 − F(υᵉ; 1, 0) = level``.

    Parameters
    ----------
    level : float
        Chance of a surprise while nothing changes.
    noncentrality : float
        ``ψᵉ``, of `change_noncentrality`.
    portion : float
        ``ρ``, the share of arms that show the change (Assumption 1).
    eigenvalue_delta : float
        ``δ′``, the probability that the eigenvalue behind ``ψᵉ`` is smaller than assumed; 0 if it
        was measured.

    Examples
    --------
    A reward that does not stand out surprises by chance only:

    >>> round(detection_probability(0.05, 0.0, portion=0.5, eigenvalue_delta=0.2), 6)
    0.02
    """
    missed = type_two_error(threshold(level, 1), 1, noncentrality)
    sure = 1 - as_within(eigenvalue_delta, "eigenvalue_delta", 0, 1)
    return as_within(portion, "portion", 0, 1) * sure * (1 - missed)


def window_size(level: float, detection: float, *, delta: float) -> float:
    """Return the smallest window ``τ`` that notices a change with probability ``1 − δₑ``: Lemma 7.

    ``τ ≥ 2 log(1/δₑ) / (detection − level)²``: a full window of surprises, each with probability
    `detection` (of `detection_probability`), then exceeds `alarm_threshold` by Hoeffding's
    inequality. `UNATTAINABLE` unless a change makes surprises more frequent, ``detection > level``.

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
    """Return how far apart segments must be for neighbours to be right ``1 − level`` of the time.

    Lemma 10: ``ψᶜ`` solves ``F(υᶜ; d, ψᶜ) = p · level / (1 − p)`` with ``1 − F(υᶜ; d, 0) = level``.
    It is 0 if ``p ≥ 1 − level``: then even a random segment is that likely to be right.

    Parameters
    ----------
    level : float
        Chance to miss a true neighbour.
    dim : int
        Number of features ``d``.
    rarest : float
        ``p = min_k p_k``, how often the rarest parameter occurs.

    Examples
    --------
    Half the segments are like mine, and 1 % of those are missed; as few wrong ones must come in:

    >>> separated = neighbour_noncentrality(0.01, 25, rarest=0.5)
    >>> round(type_two_error(threshold(0.01, 25), 25, separated), 6)
    0.01
    """
    cut, rarest = threshold(level, as_dim(dim)), as_within(rarest, "rarest", 0, 1)
    if rarest >= 1 - level:
        return 0.0
    allowed = max(SMALLEST_ERROR, rarest * level / (1 - rarest))
    return float(chndtrinc(cut, dim, allowed))


def neighbour_eigenvalue(noncentrality: float, *, noise: float, separation: float) -> float:
    """Return the ``λ_min(A)`` that both segments need for neighbours to be told apart.

    Lemma 9: ``2 ψᶜ σ² / γ²`` for parameters ``γ`` apart (Assumption 2); Lemma 2 then has ``ψᶜ``.

    >>> neighbour_eigenvalue(16.0, noise=1.0, separation=4.0)
    2.0
    """
    apart = as_positive(separation, "separation")
    ratio = as_positive(noise, "noise") / apart
    return 2 * _signal(ratio, as_within(noncentrality, "noncentrality", 0, math.inf))


def exploration(count: int, dim: int, *, noise: float, ridge: float, delta: float) -> float:
    """Return the paper's width factor α for an estimate from `count` observations, Eq. (2).

    ``α = σ √(d log(1 + count/(dλ)) + 2 log(1/δ)) + √λ``

    >>> exploration(0, 25, noise=0.0, ridge=0.25, delta=0.1)
    0.5
    """
    spread = dim * math.log1p(count / (dim * ridge)) + 2 * math.log(1 / delta)
    return noise * math.sqrt(spread) + math.sqrt(ridge)


def linucb_regret(count: int, dim: int, *, noise: float, ridge: float, delta: float) -> float:
    """Return ``R_Lin(n)``: LinUCB's regret after `count` rounds, with probability ``1 − δ``.

    ``4 √(d n log(λ + n/d)) α`` with `exploration` α: Theorem 3 of Abbasi-Yadkori et al., proved for
    ``λ ≥ 1``. For smaller ``λ`` its proof gives ``log(1 + n/(dλ))``, and ``α ≥ 1`` where α is less.
    Never more than `WORST_REGRET` in every round.

    With hardly any noise α is ``√λ``:

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
    """The regret of DyClu, by its causes.

    Attributes
    ----------
    learning : float
        What an oracle that knows every change and neighbour would lose too: Eq. (3), first term.
    late_detection : float
        Lost between a change and its alarm: second term.
    clustering : float
        Lost while segments are too small to be told apart: third term, an order of magnitude.
    probability : float
        With which the sum holds; `NO_BOUND` for ``δₑ ≥ 1/2``.
    """

    learning: float
    late_detection: float
    clustering: float
    probability: float

    @property
    def total(self) -> float:
        """The three terms together."""
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
    """Return the regret of DyClu term by term: Theorem 2, from Eq. (3) and its two lemmas.

    - learning ``Σ_k R_Lin(n_k)``, with its constants;
    - late detection ``2 Σ_i (Γ_i − 1)(τ + 2/(1 − δₑ))``, if the window is at least `window_size`;
    - clustering ``2 Σ_i Γ_i · (2ψᶜσ²/(γ²λ′²)) log(d/δ′)``. The paper gives this term as ``O(·)``;
      the constant is taken as 1, which makes it an order, not a bound.

    Together with probability ``(1 − δ)(1 − δₑ/(1 − δₑ))(1 − δ′)``.

    Parameters
    ----------
    counts : whole numbers
        ``n_k``: rounds in which each distinct parameter was the served user's.
    periods : whole numbers
        ``Γ_i``: stationary periods of each user.
    dim, noise, ridge, delta, window, window_delta, neighbour_level
        ``d, σ, λ, δ, τ, δₑ`` and ``1 − F(υᶜ)``: as of the policy.
    separation, arm_eigenvalue, eigenvalue_delta : float
        ``γ``, ``λ′`` and ``δ′``, of Assumptions 2 and 3.

    Examples
    --------
    A user who never changes is never detected late:

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
    if noncentrality > LARGEST_NONCENTRALITY:
        return float(ndtr(math.sqrt(threshold) - math.sqrt(noncentrality + df - 1)))
    return float(chndtr(threshold, df, noncentrality))


def _signal(ratio: float, information: float) -> float:
    # ratio² · information; no information is no signal, however strong.
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
