from __future__ import annotations

import math

import numpy as np
import pytest

from dyclu import DyClu, Stats, homogeneity
from dyclu.core.planning import Plan
from dyclu.errors import DycluError

PLAN = Plan(dim=5, noise=0.15, separation=1.0)


def contexts(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, PLAN.dim)) / math.sqrt(PLAN.dim)


def far_apart(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    theta = rng.normal(size=PLAN.dim)
    direction = rng.normal(size=PLAN.dim)
    return theta, theta + PLAN.separation * direction / np.linalg.norm(direction)


@pytest.mark.parametrize(("mine", "theirs"), [(3, 4), (5, 9), (20, 8)])
def test_noncentrality_is_the_mean_for_wishart_grams(mine: int, theirs: int) -> None:
    # 4,000 repeats; the standard deviation is about the mean, so the standard error is 1.6 %.
    rng = np.random.default_rng(mine)
    found = []
    for _ in range(4000):
        A, B = (X.T @ X for X in (contexts(rng, mine), contexts(rng, theirs)))
        parallel = A @ np.linalg.pinv(A + B) @ B
        found.append(np.trace(parallel) / PLAN.dim / PLAN.noise**2)
    assert np.mean(found) == pytest.approx(PLAN.noncentrality(mine, theirs), rel=0.06)


@pytest.mark.parametrize(("mine", "theirs"), [(3, 4), (7, 7), (20, 8)])
def test_noncentralities_have_the_distribution_for_wishart_grams(mine: int, theirs: int) -> None:
    # The standard error of shares is at most 0.008 for 4,000 repeats and 0.02 for the points.
    rng = np.random.default_rng(mine)
    found = []
    for _ in range(4000):
        A, B = (X.T @ X for X in (contexts(rng, mine), contexts(rng, theirs)))
        found.append((A @ np.linalg.pinv(A + B) @ B)[0, 0] / PLAN.noise**2)
    points = PLAN.noncentralities(mine, theirs)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        below = np.mean(np.array(found) < np.quantile(points, share))
        assert below == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("partner", [9.0, 1e4, math.inf])
@pytest.mark.parametrize("dim", [1, 2, 5, 25])
def test_mean_of_noncentralities_is_noncentrality(dim: int, partner: float) -> None:
    plan = Plan(dim=dim, noise=0.15, separation=1.0)
    for mine in (1, 8, 20, 1000):
        mean = plan.noncentralities(mine, partner).mean()
        assert mean == pytest.approx(plan.noncentrality(mine, partner), rel=0.05)


@pytest.mark.parametrize("n", [4, 5, 7, 10])
def test_power_equals_the_simulated_power(n: int) -> None:
    # The mean power is not the power at the mean ψ, which is larger by 0.11 at n = 7. The standard
    # error of 800 repeats is at most 0.018, and that of the lattice's points 0.01.
    rng = np.random.default_rng(n)
    rejected = 0
    for _ in range(800):
        sets = []
        for theta in far_apart(rng):
            X = contexts(rng, n)
            sets.append(Stats.of(X, X @ theta + PLAN.noise * rng.normal(size=n)))
        rejected += homogeneity(sets[0], sets[1], noise=PLAN.noise).p_value < PLAN.neighbour_level
    assert rejected / 800 == pytest.approx(PLAN.power(n), abs=0.01 + 3 * 0.018)


def test_surprise_and_delay_equal_the_simulated_ones() -> None:
    # 200 users who change; after 100 observations 1 + xᵀA⁻¹x is about 1.05.
    rng = np.random.default_rng(1)
    delays, surprised, rewards = [], 0, 0
    for _ in range(200):
        before, after = far_apart(rng)
        policy = DyClu(PLAN.dim, noise=PLAN.noise)
        for x in contexts(rng, 100):
            policy.learn("ana", x, x @ before + PLAN.noise * rng.normal())
        changes = len(policy.changes)
        for delay, x in enumerate(contexts(rng, 100), start=1):
            outcome = policy.learn("ana", x, x @ after + PLAN.noise * rng.normal())
            surprised, rewards = surprised + outcome.surprised, rewards + 1
            if outcome.changed:
                delays.append(delay)
                break
        assert len(policy.changes) <= changes + 1
    assert len(delays) > 190
    # Five surprises per user in about 2,200 rewards give a standard error of 2 %. Stopping at an
    # alarm increases the rate of surprises; leverage and wrongly learnt rewards reduce it: 15 %.
    assert surprised / rewards == pytest.approx(PLAN.surprise, rel=0.15)
    assert np.median(delays) == pytest.approx(PLAN.delay, rel=0.25)


@pytest.mark.parametrize("noise", [0.09, 0.15, 0.2])
def test_delay_is_within_a_factor_of_two_of_the_simulated_waiting_time(noise: float) -> None:
    # With the plan's own probability of a surprise; the standard error of 200 waits is 7 %.
    plan = Plan(dim=25, noise=noise, separation=0.9)
    rng, waits = np.random.default_rng(2), []
    for _ in range(200):
        times: list[int] = []
        now = 0
        while len(times) < 5 or times[-1] - times[-5] >= plan.window:
            now += int(rng.geometric(plan.surprise))
            times.append(now)
        waits.append(now)
    assert plan.delay / 2 < np.mean(waits) < plan.delay * 2


@pytest.mark.parametrize("dim", [1, 5, 25])
def test_power_of_one_reward_against_a_group_equals_surprise(dim: int) -> None:
    # Two ways to compute one number: ψ ~ signal · χ²₁ averaged over points, and a closed form for
    # a normal error. With the mean of ψ, the first would be wrong by 0.3.
    plan = Plan(dim=dim, noise=0.15, separation=1.0)
    assert plan.power(1, partner=math.inf) == pytest.approx(plan.surprise, abs=0.003)


def test_observations_for_is_the_smallest_number_with_the_power() -> None:
    for power in (0.5, 0.9, 0.99):
        needed = PLAN.observations_for(power)
        assert needed is not None
        assert PLAN.power(needed) >= power > PLAN.power(needed - 1)
    against_group = PLAN.observations_for(0.9, partner=math.inf)
    assert against_group is not None
    assert PLAN.power(against_group) < PLAN.power(against_group, partner=math.inf)


def test_power_is_zero_while_no_direction_is_shared() -> None:
    assert PLAN.comparable_after == 3
    assert PLAN.power(2) == 0 < PLAN.power(3)
    assert Plan(dim=2, noise=1e6, separation=1e-6).observations_for(0.9) is None


def test_alarm_needs_five_surprises_with_the_papers_options() -> None:
    assert PLAN.surprises_needed == 5
    assert PLAN.false_alarm < 1e-4
    assert Plan(dim=5, noise=0.15, separation=1.0, window=1).surprises_needed is None
    assert Plan(dim=5, noise=0.15, separation=1.0, window=1).delay == math.inf
    chances = [PLAN.alarm_within(rounds) for rounds in range(30)]
    assert chances[4] == 0
    assert chances == sorted(chances)
    assert chances[20] == chances[29]


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"noise": 0}, {"separation": -1}, {"window": 0}, {"change_level": 2}]
)
def test_options_out_of_range_raise_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(DycluError, match="expected"):
        Plan(**{"dim": 5, "noise": 0.3, "separation": 1.0, **wrong})  # type: ignore[arg-type]
