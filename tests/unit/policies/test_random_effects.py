"""`RandomEffects`: LinUCB per user, with a prior that is learnt from all users."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu.errors import OptionError
from dyclu.policies import LinUCB, RandomEffects
from dyclu.policies.common.panel import PANEL
from dyclu.policy import Policy
from dyclu.validation import FloatArray

DIM = 5
ALIKE, DIFFERENT = 0.0, 1.0
SEEDS = range(6)


def with_intercept(X: FloatArray) -> FloatArray:
    return np.column_stack((X, np.ones(len(X))))


def with_prior(mean: FloatArray, covariance: FloatArray, *, noise: float) -> RandomEffects:
    """Return a policy that has this prior and does not learn another one."""
    policy = RandomEffects(len(mean) - 1, noise=noise, alpha=1.0, rewards="real")
    policy.learn("somebody", np.ones(len(mean) - 1), 0.0)  # the first reward sets a prior
    policy._population.due = math.inf
    population = policy._population
    population.line, population.line_tastes = mean, covariance
    population.line_doubt = np.zeros_like(covariance)
    population._set_prior()
    return policy


def random_prior(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    root = rng.normal(size=(DIM + 1, DIM + 1))
    return rng.normal(size=DIM + 1), root @ root.T / DIM + 0.1 * np.eye(DIM + 1)


def play(
    policy: Policy,
    *,
    spread: float,
    seed: int,
    users: int = 30,
    rounds: int = 40,
    noise: float = 0.1,
    intercept: float = 0.0,
    clicks: bool = False,
) -> float:
    """Serve users in turn; return the regret.

    Parameters of users are a common one plus `spread` times one of their own.
    """
    rng = np.random.default_rng(seed)
    common = rng.normal(size=DIM) / math.sqrt(DIM)
    parameters = common + spread * rng.normal(size=(users, DIM)) / math.sqrt(DIM)
    regret = 0.0
    for _ in range(rounds):
        for user, parameter in enumerate(parameters):
            arms = rng.normal(size=(10, DIM))
            arms /= np.linalg.norm(arms, axis=1, keepdims=True)
            means = arms @ parameter + intercept
            if clicks:
                means = np.clip(intercept + 0.2 * arms @ parameter, 0.0, 1.0)
            luck, error = rng.random(), noise * rng.normal()
            arm = policy.decide(user, arms).arm
            reward = luck < means[arm] if clicks else means[arm] + error
            policy.learn(user, arms[arm], float(reward))
            regret += float(means.max() - means[arm])
    return regret


def total_regret(
    make: type[LinUCB | RandomEffects], *, spread: float, noise: float = 0.1, **options: Any
) -> float:
    """Return the regret in all worlds, one per seed."""
    return sum(play(make(DIM, **options), spread=spread, seed=seed, noise=noise) for seed in SEEDS)


# Given the prior


@pytest.mark.uncompiled
@pytest.mark.parametrize("rewards", [1, 4, 30])
def test_posterior_is_that_of_the_mixed_model(rewards: int) -> None:
    """Compare with the joint normal distribution of all rewards and the user's expected reward."""
    rng = np.random.default_rng(rewards)
    mean, covariance = random_prior(rng)
    noise = 0.3
    policy = with_prior(mean, covariance, noise=noise)
    names = ("ana", "ben")
    owner = np.repeat([0, 1], rewards)
    X = rng.normal(size=(len(owner), DIM))
    Z = with_intercept(X)
    parameters = rng.multivariate_normal(mean, covariance, size=2)
    # Errors of more than 3 deviations would get less weight.
    errors = noise * np.clip(rng.normal(size=len(owner)), -1.5, 1.5)
    y = (Z * parameters[owner]).sum(axis=1) + errors
    for row in rng.permutation(len(owner)):
        policy.learn(names[owner[row]], X[row], y[row])
    same = owner[:, None] == owner
    joint = same * (Z @ covariance @ Z.T) + noise**2 * np.eye(len(owner))
    arm = rng.normal(size=(1, DIM))
    z = with_intercept(arm)[0]
    for number, name in enumerate(names):
        cross = (owner == number) * (Z @ covariance @ z)
        expected = z @ mean + cross @ np.linalg.solve(joint, y - Z @ mean)
        variance = z @ covariance @ z - cross @ np.linalg.solve(joint, cross)
        decision = policy.decide(name, arm)
        assert decision.mean == pytest.approx(expected, rel=1e-8)
        assert decision.width == pytest.approx(math.sqrt(variance), rel=1e-8)


@pytest.mark.uncompiled
def test_width_is_alpha_deviations() -> None:
    rng = np.random.default_rng(0)
    bold, timid = (RandomEffects(DIM, noise=0.2, alpha=alpha) for alpha in (1.0, 0.25))
    for policy in (bold, timid):
        policy.learn("ana", np.ones(DIM), 1.0)
    arm = rng.normal(size=(1, DIM))
    assert bold.decide("ana", arm).width == pytest.approx(4 * timid.decide("ana", arm).width)


@pytest.mark.uncompiled
def test_a_gross_reward_counts_little() -> None:
    # Of 21 rewards, one of 1,000 would move the mean by about 50 if it counted like the others.
    policy = with_prior(np.zeros(2), np.eye(2), noise=0.1)
    for _ in range(20):
        policy.learn("ana", [1.0], 1.0)
    policy.learn("ana", [1.0], 1000.0)
    assert policy.decide("ana", [[1.0]]).mean == pytest.approx(1.0, abs=0.1)


def test_a_stranger_has_the_prior_and_the_uncertainty_of_its_mean() -> None:
    policy = RandomEffects(DIM, alpha=1.0)
    play(policy, spread=DIFFERENT, seed=0, users=10, rounds=5)
    population = policy._population
    arm = np.random.default_rng(1).normal(size=(1, DIM))
    z = with_intercept(arm)[0]
    decision = policy.decide("stranger", arm)
    assert decision.mean == pytest.approx(z @ population.mean)
    assert decision.width == pytest.approx(math.sqrt(z @ population.covariance @ z))
    assert z @ population.covariance @ z > z @ population.line_tastes @ z


# The prior is learnt


def test_prior_and_noise_are_learnt() -> None:
    # 128 users on the panel: the mean has the standard error √(Σᵢᵢ/128), 9 % of a deviation, and
    # a variance √(2/128), 12.5 % of itself; 4 standard errors are allowed. The estimate of Σ
    # counts as many users as parameters beforehand, whose features have the same variance.
    rng = np.random.default_rng(3)
    mean = rng.normal(size=DIM + 1)
    deviations = np.array([0.2, 0.5, 1.0, 0.5, 1.0, 2.0])
    parameters = mean + deviations * rng.normal(size=(200, DIM + 1))
    policy = RandomEffects(DIM)
    for _ in range(40):
        for user, parameter in enumerate(parameters):
            x = rng.normal(size=DIM)
            y = x @ parameter[:-1] + parameter[-1] + 0.2 * rng.normal()
            policy.learn(user, x, float(y))
    population = policy._population
    np.testing.assert_array_less(np.abs(population.mean - mean), 4 * 0.09 * deviations)
    even = np.append(np.full(DIM, (deviations[:-1] ** 2).mean()), deviations[-1] ** 2)
    expected = (PANEL * deviations**2 + (DIM + 1) * even) / (PANEL + DIM + 1)
    np.testing.assert_allclose(np.diag(population.line_tastes), expected, rtol=4 * 0.125)
    # 128 · 40 rewards less 128 · 6 parameters: the standard error of the noise is about 1 %.
    assert policy.noise == pytest.approx(0.2, rel=0.1)


def test_regret_is_near_that_of_a_shared_model_if_all_users_are_alike() -> None:
    ours = total_regret(RandomEffects, spread=ALIKE)
    assert ours < 2 * total_regret(LinUCB, spread=ALIKE, alpha=0.3, shared=True)
    assert ours < 0.1 * total_regret(LinUCB, spread=ALIKE, alpha=0.3)


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_regret_is_below_that_of_linucb_if_all_users_differ(noise: float) -> None:
    ours = total_regret(RandomEffects, spread=DIFFERENT, noise=noise)
    assert ours < 0.8 * total_regret(LinUCB, spread=DIFFERENT, noise=noise, alpha=0.3)


def test_clicks_are_learnt_with_their_base_rate() -> None:
    rate = 0.3
    policy = RandomEffects(DIM)
    ours = play(policy, spread=DIFFERENT, seed=0, rounds=60, intercept=rate, clicks=True)
    linucb = LinUCB(DIM, alpha=0.3)
    theirs = play(linucb, spread=DIFFERENT, seed=0, rounds=60, intercept=rate, clicks=True)
    assert ours < theirs
    # 1,800 clicks, chosen for a high rate: the intercept has a standard error of about 0.03.
    assert policy.decide("stranger", np.zeros((1, DIM))).mean == pytest.approx(rate, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_rare_clicks_are_learnt(seed: int) -> None:
    # The best arm gets most of 4,000 rounds: its rate has a standard error of 7 % of itself.
    chances, arms = (0.05, 0.02), np.eye(2)
    rng, policy = np.random.default_rng(seed), RandomEffects(2)
    for t in range(4000):
        arm = policy.decide(t % 50, arms).arm
        policy.learn(t % 50, arms[arm], float(rng.random() < chances[arm]))
    decision = policy.decide("stranger", arms)
    assert decision.arm == 0
    assert decision.mean == pytest.approx(chances[0], rel=0.3)


def test_the_noise_of_users_is_their_own_if_it_differs() -> None:
    rng, policy = np.random.default_rng(0), RandomEffects(2, alpha=1.0)
    for _ in range(60):
        for user in range(20):
            x = rng.normal(size=2)
            policy.learn(user, x, float(x.sum() + (1.0 if user % 2 else 0.1) * rng.normal()))
    quiet, loud = (policy._scale(row) ** -0.5 for row in (0, 1))
    assert loud > 4 * quiet


# Users


def test_forgetting_removes_the_user_and_changes_no_other_decision() -> None:
    policy = RandomEffects(DIM)
    play(policy, spread=DIFFERENT, seed=0, users=9, rounds=10)
    arms = np.random.default_rng(1).normal(size=(6, DIM))
    stranger = policy.decide("stranger", arms)
    before = {user: policy.decide(user, arms) for user in policy.users}
    for user in (0, 4, 8):
        policy.forget(user)
        decision = policy.decide(user, arms)
        assert (decision.arm, decision.mean) == (stranger.arm, stranger.mean)
    assert set(policy.users) == set(range(9)) - {0, 4, 8}
    for kept in policy.users:
        assert policy.decide(kept, arms) == before[kept]
    _, arrays = policy._dump()
    assert all(len(arrays[f"users_{name}"]) == 6 for name in policy._users._columns)
    for name in policy._users._columns:
        assert not getattr(policy._users, name)[6:].any()


def test_a_user_who_returns_after_being_forgotten_begins_anew() -> None:
    policy, arms = RandomEffects(DIM, noise=0.1), np.eye(DIM)
    play(policy, spread=DIFFERENT, seed=0, users=5, rounds=5)
    policy.forget(2)
    policy._population.due = math.inf
    policy.learn(2, np.ones(DIM), 0.5)
    policy.learn("new", np.ones(DIM), 0.5)
    ours, new = policy.decide(2, arms), policy.decide("new", arms)
    assert (ours.mean, ours.width) == (new.mean, new.width)


@pytest.mark.parametrize("options", [{}, {"noise": 0.1, "rewards": "real", "alpha": 1.0}])
def test_a_loaded_policy_continues_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    policy = RandomEffects(DIM, **options)
    play(policy, spread=DIFFERENT, seed=0, users=PANEL + 30, rounds=3)
    policy.forget(7)
    policy.save(tmp_path / "policy")
    loaded = dyclu.load(tmp_path / "policy")
    assert repr(loaded) == repr(policy)
    assert play(loaded, spread=DIFFERENT, seed=1, users=PANEL + 60, rounds=3) == play(
        policy, spread=DIFFERENT, seed=1, users=PANEL + 60, rounds=3
    )
    arms = np.random.default_rng(1).normal(size=(6, DIM))
    for user in (*policy.users, "stranger"):
        assert loaded.decide(user, arms) == policy.decide(user, arms)


def test_the_kernels_write_to_nothing_that_users_share() -> None:
    policy = RandomEffects(DIM)
    play(policy, spread=DIFFERENT, seed=0, users=5, rounds=5)
    shared = policy._shared
    assert not any(array.any() for array in (shared.precision, shared.shift, shared.tally))


def test_options_are_checked_and_shown() -> None:
    with pytest.raises(OptionError, match=r"rewards is 'clicks', expected 'binary'"):
        RandomEffects(2, rewards="clicks")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"alpha is -1"):
        RandomEffects(2, alpha=-1)
    shown = repr(RandomEffects(2, rewards="binary"))
    assert shown == "RandomEffects(dim=2, noise=None, alpha=0.25, rewards='binary')"
