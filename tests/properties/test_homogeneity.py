from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dyclu import Noise, Stats, homogeneity
from dyclu.core.homogeneity import CANNOT_TELL
from tests.properties.observations import (
    SEEDS,
    Array,
    Raw,
    as_stats,
    pairs,
    statistic_from_raw_data,
    well_separated,
)

NOISE = 0.3


def usable(one: Raw, two: Raw) -> bool:
    return well_separated(one[0], two[0], np.vstack((one[0], two[0])))


def rotation(rng: np.random.Generator, dim: int) -> Array:
    return np.asarray(np.linalg.qr(rng.normal(size=(dim, dim)))[0])


@settings(max_examples=300)
@given(pairs())
def test_statistic_equals_equation_one_on_raw_data(two: tuple[Raw, Raw]) -> None:
    assume(usable(*two))
    expected, df = statistic_from_raw_data(*two, NOISE)
    evidence = homogeneity(as_stats(two[0]), as_stats(two[1]), noise=NOISE)
    assert evidence.df == df
    if df:
        assert evidence.statistic == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(pairs())
def test_statistic_equals_the_difference_of_fits(two: tuple[Raw, Raw]) -> None:
    assume(usable(*two))
    a, b = map(as_stats, two)
    both = a + b
    fits = [float(part.moment @ part.theta) for part in (a, b, both)]
    evidence = homogeneity(a, b, noise=NOISE)
    if not evidence.cannot_tell:
        expected = (fits[0] + fits[1] - fits[2]) / NOISE**2
        assert evidence.statistic == pytest.approx(expected, rel=1e-7, abs=1e-7)


@given(pairs())
def test_homogeneity_is_symmetric(two: tuple[Raw, Raw]) -> None:
    assume(usable(*two))
    a, b = map(as_stats, two)
    for noise in (NOISE, None):
        one, other = homogeneity(a, b, noise=noise), homogeneity(b, a, noise=noise)
        assert (one.df, one.df_residual) == (other.df, other.df_residual)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-9)


@given(pairs(), SEEDS)
def test_rotating_the_features_does_not_change_the_statistic(
    two: tuple[Raw, Raw], seed: int
) -> None:
    assume(usable(*two))
    (X1, y1), (X2, y2) = two
    Q = rotation(np.random.default_rng(seed), X1.shape[1])
    plain = homogeneity(as_stats(two[0]), as_stats(two[1]), noise=NOISE)
    rotated = homogeneity(as_stats((X1 @ Q, y1)), as_stats((X2 @ Q, y2)), noise=NOISE)
    assert rotated.df == plain.df
    assert rotated.statistic == pytest.approx(plain.statistic, rel=1e-6, abs=1e-8)


@given(pairs(), st.floats(1e-6, 1e6))
def test_scaling_rewards_and_noise_does_not_change_the_p_value(
    two: tuple[Raw, Raw], scale: float
) -> None:
    assume(usable(*two))
    (X1, y1), (X2, y2) = two
    a, b = as_stats(two[0]), as_stats(two[1])
    scaled = as_stats((X1, y1 * scale)), as_stats((X2, y2 * scale))
    known, unknown = homogeneity(a, b, noise=NOISE), homogeneity(a, b)
    assert homogeneity(*scaled, noise=NOISE * scale).p_value == pytest.approx(known.p_value)
    assert homogeneity(*scaled).p_value == pytest.approx(unknown.p_value)


@given(pairs(), SEEDS)
def test_one_observation_on_one_side_gives_the_one_sample_test(
    two: tuple[Raw, Raw], seed: int
) -> None:
    X, y = two[0]
    x, reward = two[1][0][:1], two[1][1][:1]
    assume(len(reward) and usable((X, y), (x, reward)))
    stats = as_stats((X, y))
    evidence = homogeneity(stats, Stats.of(x, reward), noise=NOISE)
    if evidence.df:
        leverage = float(x[0] @ np.linalg.pinv(X.T @ X) @ x[0])
        error = float(reward[0] - x[0] @ stats.theta)
        expected = error**2 / (1 + leverage) / NOISE**2
        assert evidence.statistic == pytest.approx(expected, rel=1e-6, abs=1e-8)


@given(pairs())
def test_sets_without_common_directions_cannot_be_compared(two: tuple[Raw, Raw]) -> None:
    X, y = two[0]
    a = as_stats((np.hstack((X, np.zeros_like(X))), y))
    b = as_stats((np.hstack((np.zeros_like(two[1][0]), two[1][0])), two[1][1]))
    evidence = homogeneity(a, b, noise=NOISE)
    assert evidence.cannot_tell
    assert evidence.p_value == CANNOT_TELL
    assert evidence.statistic == 0


@given(pairs())
def test_a_set_is_homogeneous_with_itself_and_with_the_empty_set(two: tuple[Raw, Raw]) -> None:
    assume(well_separated(two[0][0]))
    a = as_stats(two[0])
    assert homogeneity(a, a, noise=NOISE).p_value == pytest.approx(1)
    assert homogeneity(a, Stats.empty(a.dim), noise=NOISE).cannot_tell


def test_chow_test_equals_the_textbook_formula() -> None:
    rng = np.random.default_rng(3)
    X1, X2 = rng.normal(size=(12, 3)), rng.normal(size=(9, 3))
    y1, y2 = rng.normal(size=12), rng.normal(size=9)

    def residual(X: Array, y: Array) -> float:
        return float(np.sum((y - X @ np.linalg.lstsq(X, y)[0]) ** 2))

    apart = residual(X1, y1) + residual(X2, y2)
    together = residual(np.vstack((X1, X2)), np.concatenate((y1, y2)))
    f = ((together - apart) / 3) / (apart / (12 + 9 - 6))
    evidence = homogeneity(Stats.of(X1, y1), Stats.of(X2, y2))
    assert evidence.statistic == pytest.approx(f, rel=1e-9)
    assert (evidence.df, evidence.df_residual) == (3, 15)


def test_unknown_noise_without_residuals_gives_no_answer() -> None:
    evidence = homogeneity(Stats.of([1.0], 0.0), Stats.of([1.0], 9.0))
    assert evidence.cannot_tell
    assert (evidence.df, evidence.df_residual, evidence.p_value) == (1, 0, CANNOT_TELL)


def test_noiseless_rewards_differ_only_if_their_parameters_differ() -> None:
    # Residual and squared gap are then both only rounding errors, and their ratio is arbitrary.
    rng = np.random.default_rng(4)
    X1, X2 = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    theta = rng.normal(size=4)
    same = homogeneity(Stats.of(X1, X1 @ theta), Stats.of(X2, X2 @ theta))
    other = homogeneity(Stats.of(X1, X1 @ theta), Stats.of(X2, X2 @ (theta + 0.1)))
    assert same.p_value > 0.5
    assert other.p_value < 1e-9
    zeros = homogeneity(Stats.of(X1, np.zeros(30)), Stats.of(X2, np.zeros(30)))
    assert zeros.p_value == pytest.approx(1)


def test_sets_of_very_different_scales_are_compared_in_common_directions() -> None:
    # b has one direction of size 4e5, a has five of size 1: df is 1.
    rng = np.random.default_rng(5)
    theta = rng.normal(size=5)
    X1, X2 = rng.normal(size=(40, 5)), 4e5 * rng.normal(size=(40, 1)) * rng.normal(size=5)
    noise = 0.1
    same = homogeneity(
        Stats.of(X1, X1 @ theta + noise * rng.normal(size=40)),
        Stats.of(X2, X2 @ theta + noise * rng.normal(size=40)),
        noise=noise,
    )
    assert same.df == 1
    assert same.p_value > 1e-3


def test_large_rewards_do_not_reduce_the_precision_of_the_statistic() -> None:
    # The difference of three quadratic forms of 1e15 would lose all digits; a distance does not.
    rng = np.random.default_rng(6)
    theta = 1e6 * rng.normal(size=3)
    X1, X2 = rng.normal(size=(500, 3)), rng.normal(size=(500, 3))
    e1, e2 = rng.normal(size=500), rng.normal(size=500)
    large = homogeneity(Stats.of(X1, X1 @ theta + e1), Stats.of(X2, X2 @ theta + e2), noise=1.0)
    plain = homogeneity(Stats.of(X1, e1), Stats.of(X2, e2), noise=1.0)
    assert large.statistic == pytest.approx(plain.statistic, rel=1e-5)


def test_noise_can_be_a_number_a_noise_or_none() -> None:
    a, b = Stats.of([[1.0], [1.0]], [0.0, 2.0]), Stats.of([[1.0], [1.0]], [5.0, 9.0])
    known = homogeneity(a, b, noise=2.0)
    assert known == homogeneity(a, b, noise=Noise(4.0, math.inf))
    without, estimated = homogeneity(a, b), homogeneity(a, b, noise=Noise(5.0, 2))
    assert without.statistic == pytest.approx(estimated.statistic)
    assert without.df_residual == estimated.df_residual == 2
