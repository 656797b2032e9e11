"""Laws of rewards equal the normal and the logistic law, and clicks expand as calculus says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, logit
from scipy.stats import bernoulli, norm

from dyclu.kernels import laws

pytestmark = pytest.mark.uncompiled

LEVELS = st.floats(-8.0, 8.0)
VARIANCES = st.floats(0.0, 50.0)
CLICKS = st.sampled_from([0.0, 1.0])
CHANCES = st.floats(1e-6, 1.0 - 1e-6)

STEP = 1e-4
"""Half the distance of two points between which a slope is measured."""


@given(st.floats(-700.0, 700.0), st.floats(-700.0, 700.0))
def test_log_add_is_the_log_of_a_sum(a: float, b: float) -> None:
    assert laws.log_add(a, b) == pytest.approx(np.logaddexp(a, b), rel=1e-12, abs=1e-12)


@given(st.floats(-30.0, 30.0), st.floats(0.01, 100.0))
def test_log_normal_is_the_log_density(error: float, variance: float) -> None:
    assert laws.log_normal(error, variance) == pytest.approx(
        norm.logpdf(error, scale=math.sqrt(variance)), rel=1e-9, abs=1e-9
    )


@given(st.floats(-1e4, 1e4))
def test_logistic_is_the_logistic_function_also_far_out(level: float) -> None:
    assert laws.logistic(level) == pytest.approx(expit(level), rel=1e-12, abs=1e-300)


# The chance of a click whose level is uncertain


def test_blur_gives_logistic_and_normal_function_the_same_slope_at_zero() -> None:
    """MacKay's step: 1/(1 + exp(−m)) is replaced by Φ(√BLUR · m), whose slope is √BLUR φ(0)."""
    assert math.sqrt(laws.BLUR) * norm.pdf(0.0) == pytest.approx(0.25)


def distance_of_laws() -> float:
    """Return the largest difference between 1/(1 + exp(−m)) and Φ(√(π/8) m)."""
    m = np.linspace(-30.0, 30.0, 60001)
    return float(np.abs(expit(m) - norm.cdf(math.sqrt(math.pi / 8.0) * m)).max())


DISTANCE = distance_of_laws()


@settings(max_examples=60)
@given(LEVELS, VARIANCES)
def test_click_chance_is_the_mean_over_the_level(level: float, variance: float) -> None:
    """The mean of Φ over a normal level is known: Φ(√BLUR · m / √(1 + BLUR · v)).

    The logistic function is replaced by Φ under the integral, and Φ by the logistic function after
    it. Either step costs at most the largest distance of the two functions, 0.018.
    """
    deviation = math.sqrt(variance)

    def integrand(u: float) -> float:
        return float(expit(level + deviation * u) * norm.pdf(u))

    mean = quad(integrand, -9.0, 9.0, points=[-3.0, 0.0, 3.0])[0]
    assert laws.click_chance(level, variance) == pytest.approx(mean, abs=2.0 * DISTANCE + 1e-9)


@given(LEVELS)
def test_click_chance_of_a_known_level_is_logistic(level: float) -> None:
    assert laws.click_chance(level, 0.0) == pytest.approx(expit(level), rel=1e-12)


@given(LEVELS, VARIANCES, st.floats(0.01, 10.0))
def test_uncertainty_moves_a_click_chance_towards_a_half(
    level: float, variance: float, more: float
) -> None:
    less, chance = laws.click_chance(level, variance), laws.click_chance(level, variance + more)
    assert laws.click_chance(-level, variance) == pytest.approx(1.0 - less)
    assert abs(chance - 0.5) <= abs(less - 0.5)
    if abs(level) > 0.01:
        assert abs(chance - 0.5) < abs(less - 0.5)


# Log densities


@given(CLICKS, LEVELS)
def test_log_density_of_a_click_at_a_known_level_is_that_of_bernoulli(
    y: float, level: float
) -> None:
    found = laws.log_density(y, level, 0.0, 1.0, -1.0, True)
    assert found == pytest.approx(bernoulli.logpmf(y, expit(level)), rel=1e-9, abs=1e-12)


@given(st.floats(-600.0, 600.0), VARIANCES, st.floats(-5.0, 0.0))
def test_densities_of_both_clicks_sum_to_one_whatever_strays_and_noise(
    level: float, variance: float, stray: float
) -> None:
    logs = [laws.log_density(y, level, variance, 3.0, stray, True) for y in (0.0, 1.0)]
    assert math.fsum(map(math.exp, logs)) == pytest.approx(1.0)
    assert math.exp(logs[1]) == pytest.approx(laws.click_chance(level, variance), rel=1e-9)


@given(
    st.floats(-5.0, 5.0), LEVELS, VARIANCES, st.floats(0.01, 5.0),
    st.sampled_from([-math.inf, -3.0]),
)  # fmt: skip
def test_log_density_of_a_real_reward_is_normal_plus_stray(
    y: float, level: float, variance: float, noise: float, stray: float
) -> None:
    normal = norm.logpdf(y, level, math.sqrt(variance + noise))
    assert laws.log_density(y, level, variance, noise, stray, False) == pytest.approx(
        np.logaddexp(normal, stray), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize(("y", "click"), [(1.7, 1.0), (-0.2, 0.0)])
def test_a_reward_beyond_0_or_1_counts_as_the_nearest_click(y: float, click: float) -> None:
    assert laws.linearise(y, 0.4, 0.3) == laws.linearise(click, 0.4, 0.3)
    assert laws.log_density(y, 0.4, 0.3, 1.0, -1.0, True) == laws.log_density(
        click, 0.4, 0.3, 1.0, -1.0, True
    )


# A click as an observation of its level


@given(CLICKS, st.floats(-5.0, 5.0))
def test_linearise_has_slope_and_curvature_of_the_log_likelihood(y: float, level: float) -> None:
    """Of ½w(response − m)², at a known level: slopes are those of the Bernoulli log density."""

    def log_likelihood(m: float) -> float:
        return float(y * m - np.logaddexp(0.0, m))

    weight, response = laws.linearise(y, level, 0.0)
    up, here, down = (log_likelihood(level + move) for move in (STEP, 0.0, -STEP))
    assert weight * (response - level) == pytest.approx((up - down) / (2.0 * STEP), abs=1e-7)
    # Rounding of a second difference is about 4ε/STEP² = 1e-7.
    assert weight == pytest.approx(-(up - 2.0 * here + down) / STEP**2, abs=1e-6)


@given(CLICKS, st.floats(-4.0, 4.0), st.floats(0.0, 10.0))
def test_linearise_averages_slope_and_curvature_over_the_level(
    y: float, level: float, variance: float
) -> None:
    """The mean slope is y − E[p]; the mean curvature E[p(1 − p)] is how E[p] grows with the level.

    E[p] is `click_chance`; its third derivative is below 1/8, so the difference is right to 1e-9.
    """
    weight, response = laws.linearise(y, level, variance)
    up, down = (laws.click_chance(level + move, variance) for move in (STEP, -STEP))
    assert weight == pytest.approx((up - down) / (2.0 * STEP), abs=1e-8)
    slope = weight * (response - level)
    assert slope == pytest.approx(y - laws.click_chance(level, variance), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("level", [-40.0, -7.5, 7.5, 40.0])
def test_weight_of_an_almost_certain_click_has_a_floor_and_the_slope_stays(level: float) -> None:
    for y in (0.0, 1.0):
        weight, response = laws.linearise(y, level, 0.0)
        assert weight == laws.LEAST_CURVATURE
        assert weight * (response - level) == pytest.approx(y - expit(level), abs=1e-12)
    assert laws.linearise(0.0, math.copysign(6.5, level), 0.0)[0] > laws.LEAST_CURVATURE


@given(st.integers(1, 29))
def test_responses_at_the_most_likely_level_average_to_it(clicks: int) -> None:
    """Newton's method stays where the likelihood of 30 rewards is largest."""
    level = float(logit(clicks / 30))
    (w, hit), (_, miss) = (laws.linearise(y, level, 0.0) for y in (1.0, 0.0))
    assert w == pytest.approx(clicks * (30 - clicks) / 900)
    assert (clicks * hit + (30 - clicks) * miss) / 30 == pytest.approx(level, abs=1e-9)


# Exploration of clicks


@given(CHANCES, st.floats(-5.0, 5.0))
def test_raised_chance_multiplies_the_odds(chance: float, raise_by: float) -> None:
    raised = laws.raised_chance(chance, raise_by)
    assert logit(raised) == pytest.approx(logit(chance) + raise_by, rel=1e-6, abs=1e-6)


@given(CHANCES)
def test_raised_chance_by_nothing_is_the_chance(chance: float) -> None:
    assert laws.raised_chance(chance, 0.0) == pytest.approx(chance, rel=1e-12)


def test_raised_chance_stays_a_probability_at_the_ends() -> None:
    assert laws.raised_chance(0.0, 1e6) == 0.0
    assert laws.raised_chance(1.0, 1e6) == 1.0
    assert 1.0 - 1e-12 < laws.raised_chance(1e-6, 1e6) <= 1.0
