from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu import LinUCB
from dyclu.conformance import check_policy
from dyclu.errors import KindError, OptionError
from dyclu.policies.discounted import DiscountedLinUCB
from dyclu.policy import Policy
from dyclu.storage import read


def feed(policy: Policy, rounds: int, *, dim: int = 4, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=dim)
    for _ in range(rounds):
        x = rng.normal(size=dim)
        policy.learn("ana", x, x @ theta + 0.2 * rng.normal())


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.999])
def test_scores_are_those_of_the_weighted_sums(discount: float) -> None:
    rng = np.random.default_rng(0)
    X, y, arms = rng.normal(size=(80, 4)), rng.normal(size=80), rng.normal(size=(10, 4))
    policy = DiscountedLinUCB(4, discount=discount, ridge=0.3, alpha=0.7)
    for x, reward in zip(X, y, strict=True):
        policy.learn("ana", x, reward)
    weight = discount ** np.arange(79, -1, -1)
    V = (X.T * weight) @ X + 0.3 * np.eye(4)
    V_tilde = (X.T * weight**2) @ X + 0.3 * np.eye(4)
    theta = np.linalg.solve(V, X.T @ (weight * y))
    for arm in arms:
        decision, z = policy.decide("ana", arm[None]), np.linalg.solve(V, arm)
        assert decision.mean == pytest.approx(arm @ theta, rel=1e-9)
        assert decision.width == pytest.approx(0.7 * math.sqrt(z @ V_tilde @ z), rel=1e-9)


@pytest.mark.parametrize("options", [{"alpha": 0.3}, {"noise": 0.2}, {"delta": 0.01}])
def test_without_discount_it_is_linucb(options: dict[str, Any]) -> None:
    policy, linucb = DiscountedLinUCB(4, discount=1.0, **options), LinUCB(4, **options)
    rng = np.random.default_rng(1)
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


def test_weights_fall_at_the_rate_of_the_discount() -> None:
    # After 40 rewards of 1 and k of 0 the weights of the ones are γᵏ(1 − γ⁴⁰)/(1 − γ) in all.
    policy = DiscountedLinUCB(1, discount=0.9, ridge=0.1)
    for _ in range(40):
        policy.learn("ana", [1.0], 1.0)
    for k in range(1, 60):
        policy.learn("ana", [1.0], 0.0)
        ones, all_ = 0.9**k * (1 - 0.9**40), 1 - 0.9 ** (40 + k)
        expected = ones / (all_ + 0.1 * (1 - 0.9))
        assert policy.decide("ana", [[1.0]]).mean == pytest.approx(expected, rel=1e-9)


def test_width_factor_follows_the_paper() -> None:
    policy = DiscountedLinUCB(2, discount=0.8, noise=0.3, ridge=0.5, delta=0.05)
    for t in range(12):
        grown = (1 - 0.8 ** (2 * t)) / (1 - 0.8**2)
        beta = math.sqrt(0.5) + 0.3 * math.sqrt(
            2 * math.log(1 / 0.05) + 2 * math.log(1 + grown / (0.5 * 2))
        )
        # Nothing is known in this direction, so V⁻¹ṼV⁻¹ is 1/λ there.
        assert policy.decide("ana", [[0.0, 1.0]]).width == pytest.approx(beta / math.sqrt(0.5))
        policy.learn("ana", [1.0, 0.0], 1.0)


def test_only_a_users_own_rounds_discount_their_observations() -> None:
    policy = DiscountedLinUCB(4, discount=0.9, alpha=0.3)
    feed(policy, 30)
    arms = np.eye(4)
    before = policy.decide("ana", arms)
    for _ in range(100):
        policy.learn("ben", arms[0], 1.0)
    for _ in range(100):
        policy.learn("ana", np.zeros(4), 1.0)
    assert policy.decide("ana", arms) == before


def test_noise_is_estimated_from_the_weighted_residuals() -> None:
    # 400 users of 10 effective residuals: relative standard error of σ below 1/√(2·4000) = 1.1 %
    # by a factor of less than 1.5 for the weights. Taking Σw for the df would be 10 % too much.
    rng = np.random.default_rng(2)
    policy = DiscountedLinUCB(4, discount=0.9, ridge=0.1)
    for user in range(400):
        theta = 0.2 / math.sqrt(0.1) * rng.normal(size=4)
        for _ in range(25):
            x = rng.normal(size=4)
            policy.learn(user, x, x @ theta + 0.2 * rng.normal())
    assert policy.noise == pytest.approx(0.2, rel=0.05)
    assert DiscountedLinUCB(4, noise=0.7).noise == 0.7


def test_it_recovers_from_a_change_and_linucb_does_not() -> None:
    rng = np.random.default_rng(3)
    theta = np.eye(4)[0]
    late = {}
    for policy in (DiscountedLinUCB(4, discount=0.95, alpha=0.3), LinUCB(4, alpha=0.3)):
        regret = []
        for t in range(400):
            taste = theta if t < 200 else -theta
            arms = rng.normal(size=(8, 4))
            arm = policy.decide("ana", arms).arm
            policy.learn("ana", arms[arm], arms[arm] @ taste + 0.1 * rng.normal())
            regret.append((arms @ taste).max() - arms[arm] @ taste)
        late[type(policy)] = sum(regret[250:])
    assert late[DiscountedLinUCB] < 0.1 * late[LinUCB]


def test_numbers_of_any_size_give_finite_results() -> None:
    rng = np.random.default_rng(4)
    policy = DiscountedLinUCB(3, discount=0.9)
    for _ in range(1000):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


def test_contract_holds_with_a_small_discount() -> None:
    check_policy(
        lambda: DiscountedLinUCB(5, discount=0.7, alpha=0.3),
        load=lambda path: DiscountedLinUCB.restore(read(path)),
    )


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"discount is 1\.5, expected a number above 0 and up"):
        DiscountedLinUCB(2, discount=1.5)
    with pytest.raises(OptionError, match="discount is 0"):
        DiscountedLinUCB(2, discount=0)
    with pytest.raises(KindError, match="discount is True"):
        DiscountedLinUCB(2, discount=True)
    with pytest.raises(OptionError, match="alpha is -1"):
        DiscountedLinUCB(2, alpha=-1)


def test_options_survive_saving(tmp_path: Path) -> None:
    policy = DiscountedLinUCB(2, discount=0.7, noise=0.2, ridge=0.5, delta=0.05, alpha=0.7)
    policy.save(tmp_path / "policy")
    assert repr(DiscountedLinUCB.restore(read(tmp_path / "policy"))) == repr(policy)
    assert repr(policy).startswith("DiscountedLinUCB(dim=2, discount=0.7, noise=0.2")
