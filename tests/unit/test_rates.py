"""What a stream tells of its surroundings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dyclu.rates import (
    EXCEPTION,
    FIRST_HAZARD,
    FIRST_NOISE,
    FIRST_STRAYS,
    LEAST_NOVELTY,
    Rates,
)


def test_first_guesses_are_the_stated_ones() -> None:
    rates = Rates()
    rates.hear(2.0, 1.0)
    assert rates.noise == pytest.approx(4.0 * FIRST_NOISE)
    assert (rates.hazard, rates.stray) == pytest.approx((FIRST_HAZARD, FIRST_STRAYS))
    assert rates.novelty(0) == LEAST_NOVELTY


def test_told_noise_stays() -> None:
    rates = Rates(told=0.04)
    rates.hear(1.0, 1.0)
    rates.test(100.0)
    assert rates.noise == 0.04


def test_noise_is_learnt_from_residuals() -> None:
    # 3σ clipping costs 2.5 % of σ² at most, 4,000 squares have a standard error of 2.2 %.
    rng, rates = np.random.default_rng(0), Rates()
    for _ in range(4000):
        rates.hear(float(rng.normal()), 1.0)
        rates.test(float(rng.normal(scale=0.5)) ** 2)
    assert rates.noise == pytest.approx(0.25, rel=0.1)


def test_gross_outliers_raise_noise_and_scale_little() -> None:
    rng, rates = np.random.default_rng(1), Rates()
    for i in range(4000):
        outlier = 1e6 if i % 100 == 50 else 0.0
        rates.hear(float(rng.normal()) + outlier, 1.0)
        rates.test((float(rng.normal(scale=0.5)) + outlier) ** 2)
    assert rates.noise < 0.25 * 1.2
    assert rates.scale < 1.5


def test_rewards_that_never_differ_from_zero_have_a_scale() -> None:
    rates = Rates()
    for _ in range(50):
        rates.hear(0.0, 1.0)
        rates.test(0.0)
    assert rates.scale == 1.0
    assert 0 < rates.noise < 1
    assert rates.spread(0.0, 0) > 0


def test_changes_strays_and_new_tastes_are_shares() -> None:
    rates = Rates(followed=99_000, changes=99, strays=9, settled=96, founded=48)
    assert rates.hazard == pytest.approx(1e-3)
    assert rates.stray == pytest.approx(9.1e-5)
    assert rates.novelty(20) == pytest.approx(20.0)
    assert rates.floor == pytest.approx(rates.stray / math.sqrt(rates.scale))


def test_where_everybody_is_alike_a_new_taste_is_the_exception() -> None:
    assert Rates(alike=True, settled=96, founded=48).novelty(10) == EXCEPTION < LEAST_NOVELTY
