from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu import LinUCB
from dyclu.core.theory import exploration
from dyclu.errors import OptionError
from dyclu.policies.common.ridge_models import REFRESH

pytestmark = pytest.mark.uncompiled


def test_each_user_has_a_model_and_a_shared_model_has_all_data() -> None:
    apart, shared = LinUCB(2, alpha=0.1), LinUCB(2, alpha=0.1, shared=True)
    for policy in (apart, shared):
        for _ in range(50):
            policy.learn("ana", [1.0, 0.0], 1.0)
    assert apart.decide("bea", [[1.0, 0.0]]).mean == 0
    assert shared.decide("bea", [[1.0, 0.0]]).mean == pytest.approx(50 / 50.1)
    assert apart.decide("ana", [[1.0, 0.0]]).mean == shared.decide("ana", [[1.0, 0.0]]).mean


def test_width_is_constant_or_equation_two() -> None:
    arms = [[1.0, 0.0]]
    constant, paper = LinUCB(2, alpha=0.3), LinUCB(2, noise=0.2)
    for policy in (constant, paper):
        for _ in range(10):
            policy.learn("ana", arms[0], 1.0)
    spread = np.sqrt(1 / 10.1)
    assert constant.decide("ana", arms).width == pytest.approx(0.3 * spread)
    alpha = exploration(10, 2, noise=0.2, ridge=0.1, delta=0.1)
    assert paper.decide("ana", arms).width == pytest.approx(alpha * spread)


def test_regret_flattens_on_a_stationary_user() -> None:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=5) / np.sqrt(5)
    policy = LinUCB(5, alpha=0.2)
    regret = []
    for _ in range(600):
        arms = rng.normal(size=(8, 5)) / np.sqrt(5)
        arm = policy.decide("ana", arms).arm
        policy.learn("ana", arms[arm], arms[arm] @ theta + 0.1 * rng.normal())
        regret.append((arms @ theta).max() - arms[arm] @ theta)
    assert sum(regret[300:]) < 0.2 * sum(regret[:300])


def test_numbers_of_any_size_give_finite_results_in_long_runs() -> None:
    rng = np.random.default_rng(0)
    policy = LinUCB(3)
    for _ in range(2 * REFRESH):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


def test_rank_one_updates_do_not_drift() -> None:
    rng = np.random.default_rng(1)
    policy, rounds = LinUCB(8, alpha=1.0), REFRESH + REFRESH // 2
    X, y = rng.normal(size=(rounds, 8)), rng.normal(size=rounds)
    for x, reward in zip(X, y, strict=True):
        policy.learn("ana", x, reward)
    A = X.T @ X + 0.1 * np.eye(8)
    decision = policy.decide("ana", X[:1])
    assert decision.mean == pytest.approx(X[0] @ np.linalg.solve(A, X.T @ y), rel=1e-9)
    assert decision.width == pytest.approx(np.sqrt(X[0] @ np.linalg.solve(A, X[0])), rel=1e-9)


def test_noise_is_estimated_from_prediction_errors() -> None:
    # 3,000 errors: relative standard error 1/√6000 = 1.3 %; the prior's misfit adds λ‖θ‖²/n.
    rng = np.random.default_rng(2)
    policy, theta = LinUCB(4), rng.normal(size=4)
    for _ in range(3000):
        x = rng.normal(size=4)
        policy.learn("ana", x, x @ theta + 0.2 * rng.normal())
    alpha = exploration(3000, 4, noise=0.2, ridge=0.1, delta=0.1)
    spread = policy.decide("ana", np.eye(4)).width / alpha
    told = LinUCB(4, noise=0.2)
    told._models = policy._models
    assert spread == pytest.approx(told.decide("ana", np.eye(4)).width / alpha, rel=0.05)


def test_options_are_checked_and_shown() -> None:
    with pytest.raises(OptionError, match="alpha is -1"):
        LinUCB(2, alpha=-1)
    assert repr(LinUCB(2, alpha=0.3)).startswith("LinUCB(dim=2, noise=None")


def test_options_survive_saving(tmp_path: Path) -> None:
    policy = LinUCB(2, noise=0.2, ridge=0.5, delta=0.05, alpha=0.7, shared=True)
    policy.save(tmp_path / "policy")
    assert repr(dyclu.load(tmp_path / "policy")) == repr(policy)
