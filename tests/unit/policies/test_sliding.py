from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dyclu import LinUCB
from dyclu.conformance import check_policy
from dyclu.errors import OptionError
from dyclu.policies.common.ridge_models import REFRESH
from dyclu.policies.sliding import SlidingLinUCB, _add, _subtract
from dyclu.storage import read
from dyclu.validation import FloatArray


def expect_fresh_fit(policy: SlidingLinUCB, X: FloatArray, y: FloatArray) -> None:
    """Expect the model of "ana" to be the ridge regression on exactly these observations."""
    dim = X.shape[1]
    A = X.T @ X + policy.ridge * np.eye(dim)
    theta = np.linalg.solve(A, X.T @ y)
    for arm in np.random.default_rng(99).normal(size=(5, dim)):
        decision = policy.decide("ana", arm[None])
        width = math.sqrt(arm @ np.linalg.solve(A, arm))
        assert decision.mean == pytest.approx(arm @ theta, rel=1e-9, abs=1e-9)
        assert decision.width == pytest.approx(width, rel=1e-9)


@pytest.mark.parametrize("window", [1, 3, 64])
def test_the_model_equals_a_fresh_fit_of_the_window_in_long_runs(window: int) -> None:
    # So little ridge that never refitting would show: it leaves errors of 1e-8 in a short window.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10_000, 4)), rng.normal(size=10_000)
    policy = SlidingLinUCB(4, window=window, ridge=0.01, alpha=1.0)
    for t in range(10_000):
        policy.learn("ana", X[t], y[t])
        if t < 2 * window or t % 997 == 0:
            first = max(0, t + 1 - window)
            expect_fresh_fit(policy, X[first : t + 1], y[first : t + 1])
    expect_fresh_fit(policy, X[-window:], y[-window:])


def test_a_window_longer_than_the_refresh_does_not_drift() -> None:
    rng = np.random.default_rng(1)
    window, rounds = REFRESH + 300, 2 * REFRESH + 900
    X, y = rng.normal(size=(rounds, 3)), rng.normal(size=rounds)
    policy = SlidingLinUCB(3, window=window, alpha=1.0)
    for t in range(rounds):
        policy.learn("ana", X[t], y[t])
    expect_fresh_fit(policy, X[-window:], y[-window:])


def test_an_outlier_outside_the_window_has_no_effect() -> None:
    # Subtracted from running sums, 1e12 would leave 1e-4 of rounding and 1e39 nothing but that.
    rng = np.random.default_rng(2)
    for scale, reward in ((1e5, 1.0), (1.0, 1e39), (1e5, 1e12), (1e3, 1e12)):
        X, y = rng.normal(size=(45, 3)), rng.normal(size=45)
        X[20] *= scale
        y[20] *= reward
        policy = SlidingLinUCB(3, window=24, alpha=1.0)
        for t in range(45):
            policy.learn("ana", X[t], y[t])
        expect_fresh_fit(policy, X[-24:], y[-24:])


def test_rank_one_updates_are_exact_or_refused() -> None:
    inverse = np.eye(2) / 0.1
    x = np.array([1.0, 2.0])
    assert _add(inverse, x)
    assert np.allclose(inverse, np.linalg.inv(0.1 * np.eye(2) + np.outer(x, x)), rtol=1e-12)
    assert _subtract(inverse, x)
    assert np.allclose(inverse, np.eye(2) / 0.1, rtol=1e-12)
    for step, far in ((_add, 100 * x), (_subtract, x)):
        assert not step(inverse, far)
        assert np.allclose(inverse, np.eye(2) / 0.1, rtol=1e-12)


def test_a_window_that_never_fills_equals_linucb() -> None:
    policy, linucb = SlidingLinUCB(4, window=300, alpha=0.3), LinUCB(4, alpha=0.3)
    rng = np.random.default_rng(3)
    theta = rng.normal(size=4)
    for t in range(300):
        arms, user = rng.normal(size=(6, 4)), "ana" if t % 3 else "ben"
        ours, theirs = policy.decide(user, arms), linucb.decide(user, arms)
        assert ours.arm == theirs.arm
        assert ours.mean == pytest.approx(theirs.mean, rel=1e-9, abs=1e-9)
        assert ours.width == pytest.approx(theirs.width, rel=1e-9)
        reward = arms[ours.arm] @ theta + 0.2 * rng.normal()
        for twin in (policy, linucb):
            twin.learn(user, arms[ours.arm], reward)


def test_width_factor_follows_the_paper() -> None:
    policy = SlidingLinUCB(2, window=50, noise=0.3, ridge=0.5, delta=0.05)
    factor = 0.3 * math.sqrt(2 * math.log((1 + 50 / 0.5) / 0.05)) + math.sqrt(0.5)
    assert policy.decide("ana", [[0.0, 1.0]]).width == pytest.approx(factor / math.sqrt(0.5))
    policy.learn("ana", [0.0, 1.0], 1.0)
    assert policy.decide("ana", [[0.0, 1.0]]).width == pytest.approx(factor / math.sqrt(1.5))


def test_contexts_of_zeros_and_other_users_leave_the_window_unchanged() -> None:
    policy = SlidingLinUCB(2, window=3, alpha=0.3)
    policy.learn("ana", [1.0, 2.0], 1.0)
    before = policy.decide("ana", np.eye(2))
    for _ in range(5):
        policy.learn("ana", [0.0, 0.0], 1.0)
        policy.learn("ben", [2.0, 0.0], -1.0)
    assert policy.decide("ana", np.eye(2)) == before


def test_noise_is_estimated_from_the_windows() -> None:
    # 20 windows of 100: relative standard error 1/√4000 = 1.6 %. The louder rewards are forgotten.
    rng = np.random.default_rng(4)
    policy = SlidingLinUCB(4, window=100)
    for noise in (2.0, 0.2):
        for user in range(20):
            theta = rng.normal(size=4)
            for _ in range(100):
                x = rng.normal(size=4)
                policy.learn(user, x, x @ theta + noise * rng.normal())
    assert policy.noise == pytest.approx(0.2, rel=0.08)
    assert SlidingLinUCB(4, noise=0.7).noise == 0.7


def test_numbers_of_any_size_give_finite_results() -> None:
    rng = np.random.default_rng(5)
    policy = SlidingLinUCB(3, window=20)
    for _ in range(1000):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


@pytest.mark.parametrize("window", [1, 7])
def test_contract_holds_once_the_window_is_full(window: int) -> None:
    check_policy(
        lambda: SlidingLinUCB(5, window=window),
        load=lambda path: SlidingLinUCB.restore(read(path)),
    )


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="window is 0"):
        SlidingLinUCB(2, window=0)
    with pytest.raises(OptionError, match="alpha is -1"):
        SlidingLinUCB(2, alpha=-1)


def test_options_survive_saving(tmp_path: Path) -> None:
    policy = SlidingLinUCB(2, window=7, noise=0.2, ridge=0.5, delta=0.05, alpha=0.7)
    policy.save(tmp_path / "policy")
    assert repr(SlidingLinUCB.restore(read(tmp_path / "policy"))) == repr(policy)
    assert repr(policy).startswith("SlidingLinUCB(dim=2, window=7, noise=0.2")
