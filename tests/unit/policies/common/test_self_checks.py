"""`self_checks`: when a share is too large, and when it is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from dyclu.core.noise import Residuals
from dyclu.policies.common.self_checks import (
    MEMORY,
    SetAside,
    comparable,
    energy_beyond,
    floor_warnings,
    sharing_warnings,
)

LEVEL = 0.01
USERS = 10


def counted(tested: int, surprises: int) -> SetAside:
    """Return the sums of rewards that are all 0, so that only their number is judged."""
    aside = SetAside()
    for i in range(tested):
        aside.add(0.0, surprised=i < surprises)
    return aside


def said(aside: SetAside, *, level: float = LEVEL, users: int = USERS) -> tuple[str, ...]:
    return aside.warnings(level=level, noise=0.1, users=users)


@pytest.mark.parametrize(
    ("tested", "least"),
    [
        # P(Bin(100, 0.01) ≥ 9) = 8e-7 and P(Bin(100, 0.01) ≥ 8) = 8e-6;
        (100, 9),
        # P(Bin(200, 0.01) ≥ 13) = 2e-7 and P(Bin(200, 0.01) ≥ 12) = 1.1e-6;
        (200, 13),
        # then 5 times the odds of 1 % is the larger bound: a share of 5 / (5 + 99) = 4.81 %.
        (1000, 49),
        (10_000, 481),
    ],
)
def test_a_share_of_surprises_above_both_bounds_is_reported(tested: int, least: int) -> None:
    assert not said(counted(tested, least - 1))
    (sentence,) = said(counted(tested, least))
    assert f"of the latest {tested:,} rewards were set aside as surprises" in sentence
    assert "1 % is expected" in sentence
    assert "Pass a larger noise" in sentence


def test_fewer_than_a_hundred_rewards_are_not_judged() -> None:
    assert not said(counted(99, 99))
    assert said(counted(100, 100))


def test_at_a_high_level_the_bound_stays_below_one() -> None:
    # 5 times a share of 0.3 is more than 1; 5 times its odds is a share of 0.68.
    assert not said(counted(1000, 680), level=0.3)
    assert said(counted(1000, 690), level=0.3)


def test_surprises_at_the_level_are_not_reported_at_any_time() -> None:
    # 9 or more of the first 100 have probability 8e-7, and later bounds are further away: 300
    # streams with a look after every reward give a warning with a probability of less than 1e-2.
    rng = np.random.default_rng(3)
    for _ in range(300):
        aside = SetAside()
        for surprised in (rng.random(1000) < LEVEL).tolist():
            aside.add(0.0, surprised=surprised)
            assert not said(aside)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.1])
def test_energy_of_large_noise_has_the_moments_of_the_integral(level: float) -> None:
    def density(z: float) -> float:
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    beyond = {0.001: 3.2905267, 0.01: 2.5758293, 0.1: 1.6448536}[level]
    mean, fourth = (2 * quad(lambda z, p=p: z**p * density(z), beyond, 40)[0] for p in (2, 4))
    assert energy_beyond(level) == pytest.approx((mean, fourth - mean**2), rel=1e-6)


def test_normal_noise_alone_is_not_reported_at_any_time() -> None:
    # The largest energy of surprises that normal noise can have: no reward is predictable.
    rng = np.random.default_rng(4)
    for _ in range(50):
        aside = SetAside()
        for z in rng.normal(size=2000).tolist():
            aside.add(z, surprised=abs(z) > 2.5758)
            assert not said(aside)


def test_surprises_that_hold_most_of_the_energy_are_reported() -> None:
    # Clicks at 4 %, all of them surprises: below the bound on their number.
    aside = SetAside()
    for i in range(1000):
        aside.add(float(i % 25 == 0), surprised=i % 25 == 0)
    (sentence,) = said(aside)
    assert "The surprises hold 100 %" in sentence
    assert "at most 8 % is expected" in sentence
    assert "use Atlas or pass noise=0.5" in sentence


def test_surprises_before_one_alarm_per_user_are_explained_by_changes() -> None:
    aside = counted(200, 60)
    assert said(aside)
    for _ in range(USERS):
        aside.ring(6)
    assert not said(aside)


def test_surprises_before_an_alarm_every_twenty_rewards_are_not_explained() -> None:
    aside = counted(4000, 1200)
    for _ in range(200):
        aside.ring(6)
    assert said(aside)
    assert not said(aside, users=200)  # one alarm for each of many users is nothing unusual


def test_a_warning_ends_when_recent_rewards_fit() -> None:
    aside = counted(MEMORY - 1, MEMORY // 2)
    assert said(aside)
    for _ in range(8 * MEMORY):
        aside.add(0.0, surprised=False)
    assert not said(aside)
    assert aside.tested < MEMORY


def test_a_warning_begins_after_years_of_good_rewards() -> None:
    aside = counted(10 * MEMORY, 0)
    for _ in range(MEMORY // 2):
        aside.add(0.0, surprised=True)
    assert said(aside)


def residuals(rewards: np.ndarray, squares: np.ndarray) -> Residuals:
    found = Residuals()
    for reward, square in zip(rewards.tolist(), squares.tolist(), strict=True):
        found = found.after(reward, square)
    return found


def test_noise_at_its_floor_is_reported() -> None:
    rng = np.random.default_rng(0)
    # Rewards far from 0: the floor of 1 % of their size is larger than the noise.
    far = residuals(100 + 0.1 * rng.normal(size=500), 0.01 * rng.normal(size=500) ** 2)
    (sentence,) = floor_warnings(far)
    assert "estimated as 1, the least possible" in sentence
    assert "subtract a constant" in sentence
    assert not floor_warnings(residuals(rng.normal(size=500), 0.01 * rng.normal(size=500) ** 2))


def test_rewards_without_noise_are_not_reported() -> None:
    rewards = np.random.default_rng(0).normal(size=500)
    rounding = np.full(500, 1e-30)
    assert not floor_warnings(residuals(rewards, rounding))
    assert not floor_warnings(residuals(np.zeros(500), np.zeros(500)))


def test_noise_at_its_floor_is_not_judged_before_a_hundred_errors() -> None:
    rewards, squares = np.full(99, 100.0), np.full(99, 0.01)
    assert not floor_warnings(residuals(rewards, squares))
    assert floor_warnings(residuals(np.append(rewards, 100.0), np.append(squares, 0.01)))


def test_ten_users_who_share_nothing_are_reported() -> None:
    counts = np.full(10, comparable(25))
    (sentence,) = sharing_warnings(counts, shared=False, remedy="change this")
    assert "No two of 10 users" in sentence
    assert "at least 50 rewards" in sentence
    assert "change this" in sentence
    assert not sharing_warnings(counts, shared=True, remedy="change this")
    assert not sharing_warnings(counts[1:], shared=False, remedy="change this")
