"""What a stream tells of its surroundings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dyclu.policies.atlas.stream import (
    EXCEPTION,
    FIRST_HAZARD,
    FIRST_NOISE,
    FIRST_STRAYS,
    LEAST_NOVELTY,
    StreamStatistics,
)


def test_first_guesses_are_the_stated_ones() -> None:
    stream = StreamStatistics()
    stream.record(2.0, 1.0)
    assert stream.noise == pytest.approx(4.0 * FIRST_NOISE)
    assert (stream.hazard, stream.stray) == pytest.approx((FIRST_HAZARD, FIRST_STRAYS))
    assert stream.novelty(0) == LEAST_NOVELTY


def test_told_noise_stays() -> None:
    stream = StreamStatistics(told=0.04)
    stream.record(1.0, 1.0)
    stream.test(100.0)
    assert stream.noise == 0.04


def test_noise_is_learnt_from_residuals() -> None:
    # 3σ clipping costs 2.5 % of σ² at most, 4,000 squares have a standard error of 2.2 %.
    rng, stream = np.random.default_rng(0), StreamStatistics()
    for _ in range(4000):
        stream.record(float(rng.normal()), 1.0)
        stream.test(float(rng.normal(scale=0.5)) ** 2)
    assert stream.noise == pytest.approx(0.25, rel=0.1)


def test_gross_outliers_raise_noise_and_scale_little() -> None:
    rng, stream = np.random.default_rng(1), StreamStatistics()
    for i in range(4000):
        outlier = 1e6 if i % 100 == 50 else 0.0
        stream.record(float(rng.normal()) + outlier, 1.0)
        stream.test((float(rng.normal(scale=0.5)) + outlier) ** 2)
    assert stream.noise < 0.25 * 1.2
    assert stream.scale < 1.5


def test_rewards_that_never_differ_from_zero_have_a_scale() -> None:
    stream = StreamStatistics()
    for _ in range(50):
        stream.record(0.0, 1.0)
        stream.test(0.0)
    assert stream.scale == 1.0
    assert 0 < stream.noise < 1
    assert stream.spread(0.0, 0) > 0


def test_changes_strays_and_new_tastes_are_shares() -> None:
    stream = StreamStatistics(followed=99_000, changes=99, strays=9, settled=96, founded=48)
    assert stream.hazard == pytest.approx(1e-3)
    assert stream.stray == pytest.approx(9.1e-5)
    assert stream.novelty(20) == pytest.approx(20.0)
    assert stream.floor == pytest.approx(stream.stray / math.sqrt(stream.scale))


def test_where_everybody_is_alike_a_new_taste_is_the_exception() -> None:
    assert (
        StreamStatistics(alike=True, settled=96, founded=48).novelty(10)
        == EXCEPTION
        < LEAST_NOVELTY
    )
