"""Error rates counted over simulated rewards agree with the lemmas.

A rate over N independent trials has a standard error of √(p(1 − p)/N). Exact rates must agree
within 4 standard errors (a true statement fails with probability 6e-5 per comparison), one-sided
bounds within 3. Seeds are fixed, so results do not vary.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dyclu.core import theory
from dyclu.core.stats import Stats

TRIALS = 20_000

Array = NDArray[np.float64]


def standard_error(rate: float) -> float:
    # At least 1 / TRIALS, so that a rate of exactly 0 or 1 has a positive tolerance.
    return max(math.sqrt(rate * (1 - rate) / TRIALS), 1 / TRIALS)


def projected(X: Array, Y: Array) -> Array:
    """Return the squared length of the fitted rewards, for every row of Y."""
    basis, values, _ = np.linalg.svd(X, full_matrices=False)
    fitted = Y @ basis[:, values > 1e-10 * values[0]]
    return np.asarray((fitted * fitted).sum(axis=1))


def statistics(rng: np.random.Generator, X1: Array, X2: Array, means: Array) -> Array:
    """Return TRIALS values of Eq. (1) with noise 1, from its definition on raw data.

    By Pythagoras ``‖X₁(ϑ₁ − ϑ₁₂)‖² + ‖X₂(ϑ₂ − ϑ₁₂)‖²`` is the squared length of the two separate
    fits minus that of the common fit.
    """
    Y = means + rng.normal(size=(TRIALS, len(means)))
    separate = projected(X1, Y[:, : len(X1)]) + projected(X2, Y[:, len(X1) :])
    return separate - projected(np.vstack((X1, X2)), Y)


DESIGNS = {
    "full rank": (3, 12, 30, 3, 3),
    "one side short of a direction": (4, 12, 10, 4, 3),
    "both deficient, overlapping": (5, 12, 12, 4, 3),
    "one new observation": (3, 15, 1, 3, 1),
}
"""dim, number of contexts and their rank on either side."""


@pytest.mark.parametrize("df", [1, 2, 5])
@pytest.mark.parametrize("level", [0.3, 0.05, 0.01])
def test_rate_of_type_one_errors_equals_lemma_one(df: int, level: float) -> None:
    rng = np.random.default_rng(df)
    X1, X2 = rng.normal(size=(8, 5)), np.eye(5)[:df]
    s = statistics(rng, X1, X2, np.concatenate((X1.sum(axis=1), X2.sum(axis=1))))
    alarms = float(np.mean(s > theory.threshold(level, df)))
    assert alarms == pytest.approx(level, abs=4 * standard_error(level))


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("size", [0.0, 0.5, 1.5])
def test_rate_of_type_two_errors_equals_theorem_one_and_obeys_lemma_two(
    name: str, size: float
) -> None:
    dim, n1, n2, rank1, rank2 = DESIGNS[name]
    rng = np.random.default_rng(len(name))
    X1 = rng.normal(size=(n1, rank1)) @ rng.normal(size=(rank1, dim)) / 2
    X2 = rng.normal(size=(n2, rank2)) @ rng.normal(size=(rank2, dim)) / 2
    theta1 = rng.normal(size=dim)
    difference = rng.normal(size=dim)
    theta2 = theta1 + size * difference / np.linalg.norm(difference)
    a, b = Stats.of(X1, np.zeros(n1)), Stats.of(X2, np.zeros(n2))
    df = a.rank + b.rank - (a + b).rank
    psi = theory.noncentrality(a, b, theta1, theta2, noise=1.0)

    s = statistics(rng, X1, X2, np.concatenate((X1 @ theta1, X2 @ theta2)))

    for level in (0.3, 0.05):
        cut = theory.threshold(level, df)
        missed = float(np.mean(s <= cut))
        exact = theory.type_two_error(cut, df, psi)
        assert missed == pytest.approx(exact, abs=4 * standard_error(exact))
        bound = theory.type_two_bound(cut, a, b, size, noise=1.0)
        assert missed <= bound + 3 * standard_error(bound)


def test_bound_of_lemma_two_is_exact_along_the_weakest_direction() -> None:
    # Along the weakest direction of both grams the bound equals the rate.
    rng = np.random.default_rng(5)
    X1, X2 = np.diag([1.0, 3.0]), np.diag([2.0, 4.0])
    a, b = Stats.of(X1, np.zeros(2)), Stats.of(X2, np.zeros(2))
    theta = np.array([2.0, 0.0])
    s = statistics(rng, X1, X2, np.concatenate((X1 @ theta, np.zeros(2))))
    cut = theory.threshold(0.1, 2)
    bound = theory.type_two_bound(cut, a, b, 2.0, noise=1.0)
    assert float(np.mean(s <= cut)) == pytest.approx(bound, abs=4 * standard_error(bound))


@pytest.mark.parametrize(
    ("level", "delta", "entries"),
    [
        (0.01, 0.1, 20),
        (0.3, 0.2, 20),
        (0.5, 0.3, 50),
        # The tightest cases of Hoeffding's inequality: one entry rings with probability 1/2 for
        # δₑ > exp(−1/2) = 0.6065, and must not ring for any δₑ below 0.5.
        (0.5, 0.607, 1),
        (0.5, 0.4, 1),
    ],
)
def test_rate_of_early_alarms_obeys_lemma_three(level: float, delta: float, entries: int) -> None:
    rng = np.random.default_rng(entries)
    means = rng.binomial(entries, level, size=TRIALS) / entries
    rings = float(np.mean(means > theory.alarm_threshold(level, delta=delta, entries=entries)))
    assert rings <= delta + 3 * standard_error(delta)


@pytest.mark.parametrize(("gap", "eigenvalue"), [(0.5, 4.0), (0.9, 1.0)])
def test_rate_of_detected_changes_obeys_lemmas_six_and_seven(gap: float, eigenvalue: float) -> None:
    # A segment with λ_min(A) = `eigenvalue` is tested with rewards whose mean has changed by `gap`.
    level, delta, noise = 0.01, 0.1, 0.3
    psi = theory.change_noncentrality(gap, eigenvalue, noise=noise)
    detection = theory.detection_probability(level, psi)
    window = int(theory.window_size(level, detection, delta=delta))
    rng = np.random.default_rng(window)
    # A new estimation error per reward: Hoeffding's inequality needs independent surprises.
    error = rng.normal(size=(TRIALS, window)) / math.sqrt(eigenvalue)
    off = gap / noise + rng.normal(size=(TRIALS, window)) - error
    surprised = off**2 / (1 + 1 / eigenvalue) > theory.threshold(level, 1)

    trials = TRIALS * window
    rate = float(surprised.mean())
    assert rate == pytest.approx(detection, abs=4 * math.sqrt(detection / trials))
    ringing = theory.alarm_threshold(level, delta=delta, entries=window)
    late = float(np.mean(surprised.mean(axis=1) <= ringing))
    assert late <= delta + 3 * standard_error(delta)
