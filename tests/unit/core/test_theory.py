"""The lemmas: identities, limits and cases computed by hand; `tests/statistics` counts errors."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, chdtr, gammaln, ndtr

from dyclu.core import theory
from dyclu.core.stats import Stats
from dyclu.errors import DycluError, KindError, OptionError, ShapeError
from dyclu.validation import LARGEST

Array = NDArray[np.float64]

levels = st.floats(1e-9, 1 - 1e-9)
dims = st.integers(1, 60)
noises = st.floats(1e-3, 1e3)
seeds = st.integers(0, 2**32 - 1)


def stats_of(X: Array) -> Stats:
    return Stats.of(X, np.zeros(len(X)))


def contexts(rng: np.random.Generator, dim: int) -> Array:
    """Return up to eight contexts that span some of the directions.

    They are small whole numbers, whose rank is exact; normal draws could be nearly singular.
    """
    count, rank = rng.integers(1, 9), rng.integers(1, dim + 1)
    X = rng.integers(-1, 2, size=(count, rank)) @ rng.integers(-1, 2, size=(rank, dim))
    return X.astype(np.float64)


def pair(seed: int) -> tuple[Array, Array, Array, Array]:
    """Return two designs, often rank-deficient, and two parameters."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 6))
    X1, X2 = contexts(rng, dim), contexts(rng, dim)
    return X1, X2, rng.normal(size=dim), rng.normal(size=dim)


# --- Lemma 1 --------------------------------------------------------------------------------------


@given(levels, dims)
def test_type_one_error_of_the_threshold_is_the_level(level: float, df: int) -> None:
    assert theory.type_one_error(theory.threshold(level, df), df) == pytest.approx(level, rel=1e-9)


@pytest.mark.parametrize(("level", "value"), [(0.05, 3.841459), (0.01, 6.634897)])
def test_threshold_of_one_direction_is_a_squared_normal_quantile(
    level: float, value: float
) -> None:
    assert theory.threshold(level, 1) == pytest.approx(value, abs=1e-6)


def test_with_zero_df_there_are_no_rejections() -> None:
    assert theory.threshold(0.01, 0) == 0
    assert theory.type_one_error(0.0, 0) == 0
    assert theory.type_two_error(0.0, 0, 5.0) == 1


# --- Theorem 1 ------------------------------------------------------------------------------------


@given(seeds, noises)
def test_noncentrality_equals_theorem_one_on_raw_data(seed: int, noise: float) -> None:
    X1, X2, theta1, theta2 = pair(seed)
    stacked, rewards = np.vstack((X1, X2)), np.concatenate((X1 @ theta1, X2 @ theta2))
    unexplained = rewards - stacked @ (np.linalg.pinv(stacked, rcond=1e-7) @ rewards)
    expected = float(unexplained @ unexplained) / noise**2

    found = theory.noncentrality(stats_of(X1), stats_of(X2), theta1, theta2, noise=noise)

    assert found == pytest.approx(
        expected, rel=1e-6, abs=1e-9 * float(rewards @ rewards) / noise**2
    )


@given(seeds)
def test_noncentrality_of_equal_parameters_is_zero(seed: int) -> None:
    X1, X2, theta, _ = pair(seed)
    assert theory.noncentrality(stats_of(X1), stats_of(X2), theta, theta, noise=0.1) == 0


@given(seeds)
def test_noncentrality_ignores_directions_that_one_set_has_not_observed(seed: int) -> None:
    X1, X2, theta, difference = pair(seed)
    unseen = difference - np.linalg.pinv(X2, rcond=1e-8) @ (X2 @ difference)
    assume(np.linalg.norm(unseen) > 1e-3)
    a, b = stats_of(X1), stats_of(X2)
    scale = np.trace(a.gram) * float(unseen @ unseen)
    assert theory.noncentrality(a, b, theta, theta + unseen, noise=1.0) <= 1e-12 * (1 + scale)


@given(seeds)
def test_noncentrality_does_not_depend_on_order_units_or_rewards(seed: int) -> None:
    X1, X2, theta1, theta2 = pair(seed)
    one = theory.noncentrality(stats_of(X1), stats_of(X2), theta1, theta2, noise=0.5)
    two = theory.noncentrality(
        Stats.of(1e6 * X2, np.arange(len(X2))), stats_of(1e6 * X1), theta2 / 1e6, theta1 / 1e6,
        noise=0.5,
    )  # fmt: skip
    assert two == pytest.approx(one, rel=1e-6, abs=1e-9)


@given(seeds)
def test_more_data_never_reduce_the_noncentrality(seed: int) -> None:
    X1, X2, theta1, theta2 = pair(seed)
    a, b = stats_of(X1), stats_of(X2)
    before = theory.noncentrality(a, b, theta1, theta2, noise=1.0)
    after = theory.noncentrality(a + stats_of(X2[:1]), b, theta1, theta2, noise=1.0)
    assert after >= before - 1e-9 * (1 + before)


def test_noncentrality_ignores_directions_lost_in_rounding() -> None:
    # In the sum, the small gram is lost in rounding, but its own rank is known.
    large, small = stats_of(np.array([[1.0, 1.0]])), stats_of(1e-9 * np.eye(2))
    assert (large + small).rank < small.rank
    assert theory.noncentrality(large, small, [1.0, -1.0], [0.0, 0.0], noise=1.0) < 1e-17
    assert theory.type_two_bound(4.0, large, small, 1.0, noise=1.0) == pytest.approx(chdtr(1, 4.0))


def test_noncentrality_of_extreme_scales_is_infinite_or_zero() -> None:
    a = Stats.of([[LARGEST, 0.0]], [0.0])
    assert theory.noncentrality(a, a, [LARGEST, 0.0], [0.0, 0.0], noise=1e-150) == math.inf
    assert theory.noncentrality(a, a, [0.0, LARGEST], [0.0, 0.0], noise=1e-150) == 0


@given(st.floats(0, 100), st.floats(0, 100))
def test_type_two_error_of_one_direction_is_a_normal_interval(cut: float, psi: float) -> None:
    exact = ndtr(math.sqrt(cut) - math.sqrt(psi)) - ndtr(-math.sqrt(cut) - math.sqrt(psi))
    assert theory.type_two_error(cut, 1, psi) == pytest.approx(exact, rel=1e-6, abs=1e-12)


def mixture(cut: float, df: int, psi: float) -> float:
    """Return F(υ; df, ψ) as its series: central distributions with Poisson(ψ/2) weights."""
    j = np.arange(20 + 2 * math.ceil(psi / 2 + 12 * math.sqrt(psi / 2 + 1)))
    weights = np.exp(-psi / 2 + j * math.log(max(psi, 1e-300) / 2) - gammaln(j + 1))
    return float(weights @ chdtr(df + 2 * j, cut))


@given(st.floats(0, 200), dims, st.floats(0, 200))
def test_type_two_error_is_a_poisson_mixture(cut: float, df: int, psi: float) -> None:
    expected = mixture(cut, df, psi)
    assert theory.type_two_error(cut, df, psi) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("deviations", [-2.0, 0.0, 2.0])
def test_type_two_error_of_large_noncentralities_equals_its_series(deviations: float) -> None:
    cut = (math.sqrt(5e4) + deviations) ** 2
    assert theory.type_two_error(cut, 25, 5e4) == pytest.approx(mixture(cut, 25, 5e4), abs=1e-9)


@given(levels, dims)
def test_with_noncentrality_zero_both_errors_add_up_to_one(level: float, df: int) -> None:
    cut = theory.threshold(level, df)
    assert theory.type_two_error(cut, df, 0.0) == pytest.approx(1 - level, abs=1e-12)


@given(st.floats(0, LARGEST), dims, st.floats(0), st.floats(0))
def test_type_two_error_is_a_probability_and_decreases_with_noncentrality(
    cut: float, df: int, psi: float, more: float
) -> None:
    low, high = sorted((psi, more))
    near, far = theory.type_two_error(cut, df, low), theory.type_two_error(cut, df, high)
    # The error of the normal approximation above LARGEST_NONCENTRALITY is at most df/1e8.
    assert 0 <= far <= near + df / 1e8
    assert near <= 1


@pytest.mark.parametrize("df", [1, 25, 60])
@pytest.mark.parametrize("deviations", [-2.0, 0.0, 2.0])
def test_normal_approximation_is_continuous_at_its_limit(df: int, deviations: float) -> None:
    psi = theory.LARGEST_NONCENTRALITY
    cut = (math.sqrt(psi) + deviations) ** 2
    below = theory.type_two_error(cut, df, psi)
    above = theory.type_two_error(cut, df, math.nextafter(psi, math.inf))
    assert above == pytest.approx(below, abs=(df + 1) / 1e8)


# --- Lemma 2 --------------------------------------------------------------------------------------


@given(seeds, levels)
def test_type_two_bound_is_at_least_the_type_two_error(seed: int, level: float) -> None:
    X1, X2, theta1, theta2 = pair(seed)
    a, b = stats_of(X1), stats_of(X2)
    df = a.rank + b.rank - (a + b).rank
    cut = theory.threshold(level, df)
    exact = theory.type_two_error(cut, df, theory.noncentrality(a, b, theta1, theta2, noise=1.0))
    gap = float(np.linalg.norm(theta1 - theta2))
    assert exact <= theory.type_two_bound(cut, a, b, gap, noise=1.0) + 1e-9


def test_type_two_bound_is_exact_along_the_weakest_direction() -> None:
    a, b = stats_of(np.diag([1.0, 3.0])), stats_of(np.diag([2.0, 4.0]))
    exact = theory.noncentrality(a, b, [0.7, 0.0], [0.0, 0.0], noise=0.5)
    bound = theory.type_two_bound(5.0, a, b, 0.7, noise=0.5)
    assert exact == pytest.approx((0.7 / 0.5) ** 2 / (1 / 1 + 1 / 4))
    assert bound == pytest.approx(theory.type_two_error(5.0, 2, exact))


def test_type_two_bound_ignores_the_gap_if_a_gram_is_rank_deficient() -> None:
    # Through rounding the smallest eigenvalue is 1e-16 instead of 0, so the gap must be large.
    rows = np.random.default_rng(0).normal(size=(2, 3))
    whole, part = stats_of(np.eye(3)), stats_of(rows)
    for a, b in ((whole, part), (part, whole)):
        assert theory.type_two_bound(4.0, a, b, 1e12, noise=0.1) == pytest.approx(chdtr(2, 4.0))
    assert theory.type_two_bound(4.0, part, part, 1e12, noise=0.1) == pytest.approx(chdtr(2, 4.0))
    assert theory.type_two_bound(4.0, part, Stats.empty(3), 9.0, noise=0.1) == 1


# --- Lemma 3 and Lemma 7: the window --------------------------------------------------------------


@given(st.floats(1e-3, 0.999), st.floats(1e-3, 0.999), st.integers(1, 40))
def test_probability_of_an_early_alarm_is_at_most_delta(
    level: float, delta: float, entries: int
) -> None:
    ringing = theory.alarm_threshold(level, delta=delta, entries=entries) * entries
    assert bdtrc(min(math.floor(ringing), entries), entries, level) <= delta


def test_bound_on_early_alarms_is_nearly_sharp() -> None:
    # One entry, level ½: the alarm rings at every surprise, but not for any smaller δₑ.
    delta = math.nextafter(math.exp(-1 / 2), 1)
    assert theory.alarm_threshold(0.5, delta=delta, entries=1) < 1
    assert theory.alarm_threshold(0.5, delta=0.6, entries=1) > 1


def test_alarm_threshold_with_the_papers_options() -> None:
    # 5 of 20 surprises are just enough: 0.25 > 0.24993.
    assert theory.alarm_threshold(0.01, delta=0.1, entries=20) == pytest.approx(0.249926, abs=1e-6)


windows = st.tuples(st.floats(1e-3, 0.5), st.floats(0.1, 0.5), st.floats(1e-3, 0.9))


@given(windows)
def test_window_size_is_the_smallest_that_hoeffdings_inequality_allows(
    options: tuple[float, float, float],
) -> None:
    level, excess, delta = options
    detection = level + excess

    def margin(window: int) -> float:
        least = detection - math.sqrt(math.log(1 / delta) / (2 * window))
        return least - theory.alarm_threshold(level, delta=delta, entries=window)

    window = int(theory.window_size(level, detection, delta=delta))
    assert margin(window) >= -1e-12
    assert window == 1 or margin(window - 1) <= 1e-12


@given(windows)
def test_probability_of_a_late_alarm_is_at_most_delta(options: tuple[float, float, float]) -> None:
    level, excess, delta = options
    window = int(theory.window_size(level, level + excess, delta=delta))
    no_alarm = math.floor(theory.alarm_threshold(level, delta=delta, entries=window) * window)
    assert bdtr(no_alarm, window, level + excess) <= delta


@given(levels, st.floats(0, 1), st.floats(1e-9, 0.999))
def test_window_size_is_unattainable_if_changes_cause_no_more_surprises(
    level: float, share: float, delta: float
) -> None:
    assert theory.window_size(level, share * level, delta=delta) == theory.UNATTAINABLE


def test_window_size_beyond_all_numbers_is_unattainable() -> None:
    assert theory.window_size(1e-300, 2e-300, delta=0.1) == theory.UNATTAINABLE


# --- Lemma 6: detection ---------------------------------------------------------------------------


@given(st.floats(0.01, 100), st.floats(0.01, 10), noises)
def test_change_noncentrality_equals_theorem_one_for_one_observation(
    eigenvalue: float, gap: float, noise: float
) -> None:
    segment = stats_of(math.sqrt(eigenvalue) * np.eye(3))
    news = Stats.of([0.0, 1.0, 0.0], 0.0)
    exact = theory.noncentrality(segment, news, [5.0, 0.0, 5.0], [5.0, gap, 5.0], noise=noise)
    assert theory.change_noncentrality(gap, eigenvalue, noise=noise) == pytest.approx(exact)


def test_change_noncentrality_with_eigenvalue_zero_and_infinity() -> None:
    assert theory.change_noncentrality(1.0, 0.0, noise=1e-150) == 0
    assert theory.change_noncentrality(3.0, math.inf, noise=2.0) == 2.25


@given(levels, st.floats(0, 1), st.floats(0, 1))
def test_detection_probability_increases_from_the_level_to_one(
    level: float, portion: float, delta: float
) -> None:
    def detection(noncentrality: float) -> float:
        return theory.detection_probability(
            level, noncentrality, portion=portion, eigenvalue_delta=delta
        )

    shown = portion * (1 - delta)
    assert detection(0.0) == pytest.approx(shown * level, rel=1e-6)
    assert detection(0.0) <= detection(4.0) + 1e-12
    assert detection(math.inf) == pytest.approx(shown)


# --- Lemma 12: eigenvalues ------------------------------------------------------------------------


@given(st.integers(0, 10**6), dims, st.floats(1e-6, 1), st.floats(1e-9, 0.999))
def test_eigenvalue_bound_is_at_most_a_quarter_of_the_mean(
    count: int, dim: int, arm_eigenvalue: float, delta: float
) -> None:
    bound = theory.min_eigenvalue_bound(count, dim, arm_eigenvalue=arm_eigenvalue, delta=delta)
    assert 0 <= bound <= arm_eigenvalue * count / 4


@given(st.floats(1e-6, 1e6), dims, st.floats(1e-3, 1e6), st.floats(1e-9, 0.999))
def test_observations_needed_is_the_first_count_that_reaches_the_bound(
    eigenvalue: float, dim: int, arm_eigenvalue: float, delta: float
) -> None:
    def bound(count: int) -> float:
        return theory.min_eigenvalue_bound(count, dim, arm_eigenvalue=arm_eigenvalue, delta=delta)

    needed = int(
        theory.observations_needed(eigenvalue, dim, arm_eigenvalue=arm_eigenvalue, delta=delta)
    )
    assert needed == 3 or bound(needed - 1) < eigenvalue
    assert eigenvalue <= bound(needed)
    assert bound(needed) < bound(needed + 1) < bound(10 * needed)


def test_observations_needed_is_zero_small_or_unattainable() -> None:
    assert theory.observations_needed(0.0, 25, arm_eigenvalue=0.04, delta=0.1) == 0
    assert theory.observations_needed(1.0, 25, arm_eigenvalue=1e3, delta=0.1) == 3
    needed = theory.observations_needed(1.0, 25, arm_eigenvalue=1e-150, delta=0.1)
    assert needed == theory.UNATTAINABLE


def test_lemmas_give_no_guarantee_for_the_papers_settings() -> None:
    # d = 25, unit-norm contexts (λ′ = 1/25), periods of 400: see docs/decisions/003.
    eigenvalue = theory.min_eigenvalue_bound(400, 25, arm_eigenvalue=1 / 25, delta=0.1)
    psi = theory.change_noncentrality(0.9, eigenvalue, noise=0.09)
    detection = theory.detection_probability(0.01, psi, portion=1.0, eigenvalue_delta=0.1)
    assert eigenvalue == theory.NO_BOUND
    assert theory.window_size(0.01, detection, delta=0.1) == theory.UNATTAINABLE
    needed = theory.observations_needed(1e-6, 25, arm_eigenvalue=1 / 25, delta=0.1)
    assert needed == pytest.approx(1.41e7, rel=0.01)


# --- Lemmas 9 and 10: neighbours ------------------------------------------------------------------


@given(st.floats(1e-6, 1 - 1e-6), dims, st.floats(1e-6, 1))
def test_share_of_correct_neighbours_is_one_minus_level(
    level: float, dim: int, rarest: float
) -> None:
    psi = theory.neighbour_noncentrality(level, dim, rarest=rarest)
    cut = theory.threshold(level, dim)
    wrong = (1 - rarest) / rarest * theory.type_two_error(cut, dim, psi) / (1 - level)
    right = 1 / (1 + wrong)
    if psi == 0:
        assert right >= (1 - level) * (1 - 1e-6)
    else:
        assert right == pytest.approx(1 - level, rel=1e-6)


def test_error_rates_below_the_smallest_are_replaced_by_it() -> None:
    psi = theory.neighbour_noncentrality(1e-60, 5, rarest=1e-9)
    cut = theory.threshold(1e-60, 5)
    error = theory.type_two_error(cut, 5, psi)
    assert error == pytest.approx(theory.SMALLEST_ERROR, rel=1e-6)


@given(st.floats(0.1, 200), st.floats(0.1, 2), noises)
def test_neighbour_eigenvalue_gives_lemma_two_the_noncentrality(
    psi: float, separation: float, noise: float
) -> None:
    eigenvalue = theory.neighbour_eigenvalue(psi, noise=noise, separation=separation)
    segment = stats_of(math.sqrt(eigenvalue) * np.eye(4))
    bound = theory.type_two_bound(9.0, segment, segment, separation, noise=noise)
    assert bound == pytest.approx(theory.type_two_error(9.0, 4, psi), rel=1e-6)


# --- Theorem 2: regret ----------------------------------------------------------------------------


def test_linucb_regret_equals_theorem_three_of_abbasi_yadkori() -> None:
    n, d, sigma, ridge, delta = 10**6, 5, 0.5, 2.0, 0.05
    alpha = sigma * math.sqrt(2 * math.log(1 / delta) + d * math.log(1 + n / (d * ridge)))
    expected = 4 * math.sqrt(d * n * math.log(ridge + n / d)) * (alpha + math.sqrt(ridge))
    found = theory.linucb_regret(n, d, noise=sigma, ridge=ridge, delta=delta)
    assert found == pytest.approx(expected)


@settings(deadline=None)
@given(seeds, st.integers(1, 4), st.floats(1e-4, 3), st.floats(1e-3, 1))
def test_linucb_regret_is_at_least_the_sum_of_widths(
    seed: int, dim: int, ridge: float, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    gram, widths = ridge * np.eye(dim), 0.0
    alpha = theory.exploration(300, dim, noise=noise, ridge=ridge, delta=0.1)
    for _ in range(300):
        x = rng.normal(size=dim)
        x /= np.linalg.norm(x)
        widths += min(2.0, 2 * alpha * math.sqrt(x @ np.linalg.solve(gram, x)))
        gram = gram + np.outer(x, x)
    assert widths <= theory.linucb_regret(300, dim, noise=noise, ridge=ridge, delta=0.1)


def test_linucb_regret_is_at_most_two_per_round() -> None:
    assert theory.linucb_regret(7, 25, noise=0.1, ridge=0.1, delta=0.1) == 14
    assert theory.linucb_regret(0, 25, noise=0.1, ridge=0.1, delta=0.1) == 0


def bound_of(**changed: float) -> theory.RegretBound:
    options: dict[str, float] = {
        "noise": 0.09, "ridge": 0.1, "delta": 0.1, "window_delta": 0.1, "neighbour_level": 0.01,
        "separation": 0.9, "arm_eigenvalue": 0.04, "eigenvalue_delta": 0.1,
    }  # fmt: skip
    return theory.regret_bound([6000, 4000], [3, 1], 25, window=20, **(options | changed))


def test_regret_bound_is_the_sum_of_three_terms() -> None:
    bound = bound_of()
    learning = [theory.linucb_regret(n, 25, noise=0.09, ridge=0.1, delta=0.1) for n in (6000, 4000)]
    psi = theory.neighbour_noncentrality(0.01, 25, rarest=0.4)
    clustering = 2 * 4 * 2 * psi * 0.1**2 / 0.04**2 * math.log(250)
    assert bound.learning == pytest.approx(sum(learning))
    assert bound.late_detection == pytest.approx(2 * 2 * (20 + 2 / 0.9))
    assert bound.clustering == pytest.approx(clustering)
    assert bound.probability == pytest.approx(0.9 * (1 - 1 / 9) * 0.9)
    assert bound.total == bound.learning + bound.late_detection + bound.clustering


def test_regret_bound_has_probability_zero_for_large_window_delta() -> None:
    assert bound_of(window_delta=0.5).probability == theory.NO_BOUND
    assert bound_of(window_delta=0.9).probability == theory.NO_BOUND


# --- errors ---------------------------------------------------------------------------------------

one = stats_of(np.eye(2))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: theory.threshold(1.0, 1), OptionError),
        (lambda: theory.threshold(0.1, -1), OptionError),
        (lambda: theory.threshold(0.1, 1.5), KindError),  # type: ignore[arg-type]
        (lambda: theory.type_one_error(-1.0, 1), OptionError),
        (lambda: theory.type_one_error(math.inf, 1), OptionError),
        (lambda: theory.type_two_error(1.0, 1, -1.0), OptionError),
        (lambda: theory.type_two_error(1.0, 1, math.nan), OptionError),
        (lambda: theory.noncentrality(one, one, [1.0], [0.0, 0.0], noise=1.0), ShapeError),
        (lambda: theory.noncentrality(one, one, [1, 1], ["a", "b"], noise=1.0), KindError),
        (lambda: theory.noncentrality(one, one, [1, 1], [0, 0], noise=0.0), OptionError),
        (lambda: theory.noncentrality(one, Stats.empty(3), [1, 1], [0, 0], noise=1), ShapeError),
        (lambda: theory.type_two_bound(1.0, one, one, -1.0, noise=1.0), OptionError),
        (lambda: theory.alarm_threshold(0.0, delta=0.1, entries=5), OptionError),
        (lambda: theory.alarm_threshold(0.1, delta=1.0, entries=5), OptionError),
        (lambda: theory.alarm_threshold(0.1, delta=0.1, entries=0), OptionError),
        (lambda: theory.min_eigenvalue_bound(5, 0, arm_eigenvalue=1, delta=0.1), OptionError),
        (lambda: theory.observations_needed(-1.0, 1, arm_eigenvalue=1, delta=0.1), OptionError),
        (lambda: theory.change_noncentrality(1.0, -1.0, noise=1.0), OptionError),
        (lambda: theory.detection_probability(0.1, 1.0, portion=1.1), OptionError),
        (lambda: theory.window_size(0.1, 1.1, delta=0.1), OptionError),
        (lambda: theory.neighbour_noncentrality(0.1, 2, rarest=1.1), OptionError),
        (lambda: theory.neighbour_eigenvalue(1.0, noise=1.0, separation=0.0), OptionError),
        (lambda: theory.linucb_regret(5, 1, noise=1.0, ridge=0.0, delta=0.1), OptionError),
        (lambda: bound_of(delta=2.0), OptionError),
    ],
)  # fmt: skip
def test_options_out_of_range_raise_an_error(
    call: Callable[[], float], error: type[DycluError]
) -> None:
    with pytest.raises(error, match=r"expected|cannot add"):
        call()


@pytest.mark.parametrize("empty", ["counts", "periods"])
def test_regret_bound_without_users_raises_an_error(empty: str) -> None:
    arguments: dict[str, list[int]] = {"counts": [1], "periods": [1]} | {empty: []}
    with pytest.raises(OptionError, match=f"{empty} are empty"):
        theory.regret_bound(
            **arguments, dim=2, noise=1.0, ridge=1.0, delta=0.1, window=20, window_delta=0.1,
            neighbour_level=0.01, separation=1.0, arm_eigenvalue=0.5, eigenvalue_delta=0.1,
        )  # fmt: skip
