from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from dyclu import Noise, Stats
from dyclu.core.noise import LARGEST_SQUARE, Residuals, kept_variance
from dyclu.errors import KindError, OptionError


def test_within_pools_the_residuals_of_separate_fits() -> None:
    rng = np.random.default_rng(0)
    sets = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in (5, 9, 1)]
    residual = sum(float(np.sum((y - X @ np.linalg.pinv(X) @ y) ** 2)) for X, y in sets)
    noise = Noise.within(*(Stats.of(X, y) for X, y in sets))
    assert noise.df == (5 - 2) + (9 - 2) + (1 - 1)
    assert noise.variance == pytest.approx(residual / 10)


def test_without_residuals_the_variance_is_the_mean_square_and_df_is_zero() -> None:
    noise = Noise.within(Stats.of(np.eye(2), [3.0, 4.0]))
    assert noise == Noise(12.5, 0)
    assert Noise.within(Stats.empty(2)) == Noise(0.0, 0)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.1, 0.5])
def test_kept_variance_is_the_variance_of_truncated_noise(level: float) -> None:
    # A million draws: the standard error of a mean of squares is at most √2/1000.
    z2 = np.sort(np.random.default_rng(1).normal(size=1_000_000) ** 2)
    kept = z2[: int(len(z2) * (1 - level))]
    assert kept_variance(level) == pytest.approx(kept.mean(), abs=0.006)


def test_estimate_is_divided_by_the_kept_variance() -> None:
    assert Noise.estimated(9.0, 20.0, 13, 10, kept=0.9).variance == pytest.approx(1.0)


def test_known_noise_must_be_positive_and_finite() -> None:
    assert Noise.known(0.5) == Noise(0.25, math.inf)
    assert Noise.known(0.5).deviation == 0.5
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(OptionError, match="noise is"):
            Noise.known(wrong)
    with pytest.raises(KindError, match="noise is"):
        Noise.known("0.1")  # type: ignore[arg-type]


def residuals_of(rewards: Iterable[float]) -> Residuals:
    """Return the residuals of rewards that were all predicted to be 0."""
    residuals = Residuals()
    for reward in rewards:
        residuals = residuals.after(reward, reward * reward)
    return residuals


def test_running_estimate_is_the_standard_deviation_of_the_errors() -> None:
    # 20,000 normal rewards: relative standard error of the deviation 0.5 %.
    rewards = 0.3 * np.random.default_rng(2).normal(size=20_000)
    assert residuals_of(rewards).noise().deviation == pytest.approx(0.3, rel=0.02)


def test_outliers_raise_the_estimate_only_a_little() -> None:
    # One reward in a hundred is multiplied by 100: at most σ̂² = σ² / (1 − 0.01 · LARGEST_SQUARE).
    rng = np.random.default_rng(3)
    rewards = rng.normal(size=20_000) * np.where(rng.random(20_000) < 0.01, 100.0, 1.0)
    assert 1 < residuals_of(rewards).noise().variance < 1.1 / (1 - 0.01 * LARGEST_SQUARE)


@pytest.mark.parametrize("quiet", [1e-9, 0.0])
def test_an_estimate_that_was_far_too_small_recovers(quiet: float) -> None:
    rng = np.random.default_rng(4)
    start = [1.0, *(quiet * rng.normal(size=30))]
    recovered = residuals_of([*start, *(0.3 * rng.normal(size=600))]).noise().deviation
    # About 200 of the 600 rewards were clipped before the estimate had recovered.
    assert 0.2 < recovered < 0.33


def test_rewards_of_zero_give_no_degrees_of_freedom() -> None:
    assert residuals_of([0.0] * 10).noise() == Noise(0.0, 0)
    assert residuals_of([*[0.0] * 10, 1.0]).noise().df == 11
