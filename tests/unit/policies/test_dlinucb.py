from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dyclu import conformance
from dyclu.core.theory import exploration
from dyclu.errors import OptionError
from dyclu.policies.common.ridge_models import REFRESH
from dyclu.policies.dlinucb import MOST_SLAVES, DLinUCB, _Slaves
from dyclu.storage import read


@pytest.mark.parametrize("noise", [None, 0.1])
def test_contract(noise: float | None) -> None:
    conformance.check_policy(
        lambda: DLinUCB(5, noise=noise), load=lambda path: DLinUCB.restore(read(path))
    )


def test_a_slave_is_added_at_six_failures_of_twenty_and_discarded_at_seven() -> None:
    # d = √(log 10 / 40) = 0.2399: 5/20 < 0.02 + d = 0.2599 ≤ 6/20 < 0.1 + d = 0.3399 ≤ 7/20.
    policy = DLinUCB(1, noise=0.01)
    for _ in range(50):
        assert policy.learn("ana", [1.0], 0.9).kept
    pools = []
    for _ in range(7):
        policy.learn("ana", [1.0], -0.9)
        pools.append(policy.slaves("ana"))
    assert pools == [(0,)] * 5 + [(0, 1), (1,)]
    assert policy.decide("ana", [[1.0]]).mean == pytest.approx(-0.9 / 1.1)


def test_a_new_slave_is_judged_by_its_own_number_of_predictions() -> None:
    # A reward of 5 is out of every fresh slave's bounds (‖θ‖ ≤ 1). Of one entry d = 1.073 > 1: no
    # verdict. Of two d = 0.759: 2/2 ≥ 0.1 + 0.759 discards.
    policy = DLinUCB(1, noise=0.01)
    outcomes = [policy.learn("ana", [1.0], 5.0) for _ in range(6)]
    assert all(outcome.surprised for outcome in outcomes)
    assert [outcome.changed for outcome in outcomes] == [False, True] * 3
    assert policy.slaves("ana") == (3,)


@pytest.mark.parametrize("width_noise", [None, 0.2])
def test_surprise_and_estimate_follow_the_paper(width_noise: float | None) -> None:
    # Without a change the one slave is a ridge regression on the rewards it foresaw.
    rng = np.random.default_rng(0)
    theta, sigma = np.array([0.5, -0.3, 0.2]), 0.3
    policy = DLinUCB(3, noise=sigma, width_noise=width_noise, window_delta=1e-9)
    A, b, n, surprises = 0.1 * np.eye(3), np.zeros(3), 0, 0
    # A quarter of the rewards is shaken, so that some are out of bounds.
    for shaken in rng.random(300) < 0.25:
        arms = rng.normal(size=(4, 3))
        decision = policy.decide("ana", arms)
        x = arms[decision.arm]
        y = x @ theta + sigma * rng.normal() + 2 * shaken
        alpha = exploration(n, 3, noise=width_noise or sigma, ridge=0.1, delta=0.1)
        width = alpha * math.sqrt(x @ np.linalg.solve(A, x))
        mean = x @ np.linalg.solve(A, b)
        assert (decision.mean, decision.width) == pytest.approx((mean, width), rel=1e-9)
        # ε exceeds |η| with probability 1 − δ₁ = 0.9: 1.6449 σ.
        failed = abs(mean - y) > width + 1.6448536269514722 * sigma
        outcome = policy.learn("ana", x, y)
        assert outcome.surprised == failed
        assert outcome.segment == 0
        assert outcome.neighbours.tolist() == [0]
        if failed:
            surprises += 1
        else:
            A, b, n = A + np.outer(x, x), b + x * y, n + 1
    assert 10 < surprises < 100


def test_the_slave_with_the_lowest_bound_serves_not_the_lowest_mean() -> None:
    # 0/20 - √(ln 20) · 0.2399 = -0.42 against 1/4 - √(ln 20) · 0.5365 = -0.68.
    slaves = _Slaves(1, 0.1, 20, 0.1)
    old, young = slaves.create("ana"), slaves.create("ana")
    slaves.judged[[old, young]] = 20, 4
    assert slaves.serving("ana") == young
    slaves.failures[young, 0] = True
    assert slaves.serving("ana") == young
    # 2/4 - 0.93 = -0.43 still, 3/4 - 0.93 = -0.18 no more.
    slaves.failures[young, 1] = True
    assert slaves.serving("ana") == young
    slaves.failures[young, 2] = True
    assert slaves.serving("ana") == old


def test_the_oldest_of_equal_slaves_serves_and_a_new_one_is_tried_at_once() -> None:
    slaves = _Slaves(1, 0.1, 20, 0.1)
    first, second = slaves.create("ana"), slaves.create("ana")
    slaves.judged[[first, second]] = 20, 30
    assert slaves.serving("ana") == first
    newest = slaves.create("ana")
    assert slaves.serving("ana") == newest


def test_a_full_pool_discards_its_worst_slave() -> None:
    slaves = _Slaves(1, 0.1, 20, 0.1)
    for _ in range(MOST_SLAVES):
        slaves.create("ana")
    slaves.judged[:] = 20
    slaves.failures[3, :2] = True
    slaves.create("ana")
    ids = slaves.id[slaves.pool["ana"]].tolist()
    assert ids == [i for i in range(MOST_SLAVES + 1) if i != 3]


def test_rows_are_used_again_and_ids_are_not() -> None:
    policy = DLinUCB(2, noise=0.01)
    policy.learn("bea", [1.0, 0.0], 0.5)
    seen = []
    for t in range(60):
        # Rewards out of all bounds: every slave of ana lasts two rounds.
        outcome = policy.learn("ana", [1.0, 0.0], 5.0 * (-1) ** t)
        seen.append(outcome.segment)
    assert seen[-1] == 31
    assert len(policy._slaves.models) <= 3
    assert policy.slaves("bea") == (0,)
    assert policy.decide("bea", [[1.0, 0.0]]).mean == pytest.approx(0.5 / 1.1)


def test_users_who_do_not_change_keep_one_slave() -> None:
    # Hoeffding: where errors come at a rate of δ̃₁ = 2 % at most, a window's mean exceeds it by the
    # margin with chance δ₂ = 10 % at most. Here they come at 0.75 % (B is about σ wide; 15 ± 4 of
    # 2,000), and 6 of 20 has a chance below 1e-8 a round.
    rng = np.random.default_rng(1)
    policy = DLinUCB(4, noise=0.1)
    for user in range(10):
        theta = rng.normal(size=4)
        theta /= np.linalg.norm(theta)
        for x in rng.normal(size=(200, 4)):
            policy.learn(user, x, x @ theta + 0.1 * rng.normal())
        assert len(policy.slaves(user)) == 1
    assert policy._slaves.models.count[:10].sum() >= 0.98 * 2000


@pytest.mark.parametrize("noise", [0.1, None])
def test_the_error_rate_of_a_converged_model_is_the_level(noise: float | None) -> None:
    # With one feature B shrinks below 0.2 σ: errors come at 7-9 %, just under δ₁ = 10 %. Of 4,000
    # rewards the rate has standard error 0.45 %; σ known to 2 % adds 0.6 %.
    rng = np.random.default_rng(2)
    policy = DLinUCB(1, noise=noise)
    outcomes = [policy.learn("ana", [1.0], 0.5 + 0.1 * rng.normal()) for _ in range(6000)]
    learnt = outcomes[2000:]
    rate = np.mean([outcome.surprised for outcome in learnt])
    assert 0.05 < rate < 0.1 + 3 * 0.006
    # Windows of 20 such rewards hold 6 errors in 0.4 % of the rounds; Hoeffding allows δ₂ = 10 %.
    assert np.mean([outcome.changed for outcome in learnt]) < 0.01


def test_noise_is_estimated_although_large_errors_are_left_out() -> None:
    # Without undoing the selection the estimate would fall to 0.075 or less. Relative standard
    # error: 1/√12,000 = 0.9 %, and about twice that as estimate and selection feed on each other.
    rng = np.random.default_rng(3)
    policy = DLinUCB(1)
    for _ in range(6000):
        policy.learn("ana", [1.0], 0.5 + 0.1 * rng.normal())
    assert policy.noise == pytest.approx(0.1, rel=0.06)
    assert DLinUCB(1, noise=0.3).noise == pytest.approx(0.3)


def test_rewards_of_any_scale_are_learnt_where_the_noise_is_estimated() -> None:
    # Nothing is judged before there is an error to estimate from: the first reward is kept.
    policy = DLinUCB(1)
    for _ in range(50):
        assert not policy.learn("ana", [1.0], 1000.0).changed
    assert policy.decide("ana", [[1.0]]).mean == pytest.approx(1000 * 50 / 50.1)


def test_a_change_is_detected_within_six_rounds() -> None:
    # Of each unit vector 60 rewards of ±0.5 are known: B + ε < 0.3, and after a flip the error is
    # 1 ± 0.1: all fail. Six failures are enough, fewer if there were some by chance.
    rng = np.random.default_rng(4)
    policy = DLinUCB(5, noise=0.1)
    for user in range(8):
        theta = rng.choice([-0.4, 0.4], size=5)
        changed = []
        for t in range(310):
            sign = 1 if t < 300 else -1
            y = sign * theta[t % 5] + 0.1 * rng.normal()
            changed.append(policy.learn(user, np.eye(5)[t % 5], y).changed)
        (when,) = np.flatnonzero(changed)
        assert 300 <= when <= 305


def test_the_first_slave_is_no_change_and_an_unknown_user_has_none() -> None:
    policy = DLinUCB(2, noise=0.1)
    assert policy.slaves("ana") == ()
    assert policy.decide("ana", np.eye(2)).mean == 0
    outcome = policy.learn("ana", [1.0, 0.0], 0.5)
    assert (outcome.changed, outcome.segment) == (False, 0)


def test_the_reward_of_a_context_of_zeros_is_no_failure() -> None:
    policy = DLinUCB(2, noise=0.1)
    for _ in range(30):
        policy.learn("ana", [1.0, 0.0], 0.5)
    for _ in range(10):
        assert policy.learn("ana", [0.0, 0.0], 5.0).kept
    assert policy.decide("ana", [[1.0, 0.0]]).mean == pytest.approx(15 / 30.1)


@pytest.mark.parametrize("noise", [None, 0.1])
def test_numbers_of_any_size_give_finite_results_in_long_runs(noise: float | None) -> None:
    rng = np.random.default_rng(0)
    policy = DLinUCB(3, noise=noise)
    for _ in range(2 * REFRESH):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))
        assert 0 < len(policy.slaves("ana")) <= MOST_SLAVES


def test_options_are_checked_and_survive_saving(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"creation_level is 0.2 and error_level 0.1"):
        DLinUCB(2, creation_level=0.2)
    with pytest.raises(OptionError, match="window is 0"):
        DLinUCB(2, window=0)
    with pytest.raises(OptionError, match="width_noise is -1"):
        DLinUCB(2, width_noise=-1)
    policy = DLinUCB(
        2,
        noise=0.2,
        width_noise=0.04,
        ridge=0.5,
        error_level=0.2,
        creation_level=0.05,
        window=7,
        window_delta=0.3,
    )
    policy.save(tmp_path / "policy")
    assert repr(DLinUCB.restore(read(tmp_path / "policy"))) == repr(policy)
    assert repr(policy).startswith("DLinUCB(dim=2, noise=0.2, width_noise=0.04, ridge=0.5")
