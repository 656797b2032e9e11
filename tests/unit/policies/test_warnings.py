"""`policy.warnings`: where policies fail they say so, and in the paper's worlds they are silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu import policies
from dyclu.policies import Club, DLinUCB, DyClu, Sclub
from dyclu.policy import Policy
from dyclu.sim import Population
from dyclu.sim.worlds.paper import SETTINGS
from dyclu.storage import read, write

DIM = 4
CLICKS = (0.05, 0.02)
ARMS = np.eye(2)

ASIDE, MANY = "The surprises hold", "were set aside as surprises"
FLOOR, ALONE = "the least possible estimate", "No two of"


def rare_clicks(policy: Policy, *, rounds: int, seed: int, users: int = 50) -> None:
    """Play with users who are all alike and click one of two arms at 5 % and 2 %."""
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        arm = policy.decide(t % users, ARMS).arm
        policy.learn(t % users, ARMS[arm], float(rng.random() < CLICKS[arm]))


def linear(
    policy: Policy,
    *,
    users: int,
    tastes: int,
    rounds: int,
    noise: float = 0.1,
    offset: float = 0.0,
    seed: int = 0,
) -> None:
    """Let users with one of some tastes give rewards to random contexts, in turn."""
    rng = np.random.default_rng(seed)
    parameters = rng.normal(size=(tastes, DIM))
    for _ in range(rounds):
        for user in range(users):
            x = np.append(rng.normal(size=DIM - 1), 1.0)
            mean = x @ parameters[user % tastes] + offset
            policy.learn(user, x, float(mean + noise * rng.normal()))


@pytest.mark.parametrize("seed", range(4))
def test_dyclu_says_that_it_does_not_learn_rare_clicks(seed: int) -> None:
    policy = DyClu(2)
    rare_clicks(policy, rounds=4000, seed=seed)
    assert ASIDE in policy.warnings[0]
    # In some runs the first rewards are all 0, and the noise stays at its floor.
    assert (FLOOR in policy.warnings[-1]) == (policy.noise < 0.01)
    # The failure itself: the expected reward of either arm is far below 5 % and 2 %.
    assert policy.decide(0, ARMS).mean < 0.01


def test_the_advice_for_rare_clicks_helps() -> None:
    policy = DyClu(2, noise=0.5)
    rare_clicks(policy, rounds=4000, seed=0)
    assert policy.warnings == ()
    assert policy.decide(0, ARMS).mean == pytest.approx(CLICKS[0], rel=0.3)


@pytest.mark.parametrize("noise", [0.02, 0.04])
def test_dyclu_says_that_the_noise_is_larger_than_it_was_told(noise: float) -> None:
    policy = DyClu(DIM, noise=noise)
    linear(policy, users=12, tastes=3, rounds=60)
    assert any(ASIDE in one or MANY in one for one in policy.warnings)
    assert f"larger than {noise}" in policy.warnings[0]


def test_dyclu_is_silent_if_the_noise_is_right() -> None:
    for noise in (0.1, None):
        policy = DyClu(DIM, noise=noise)
        linear(policy, users=12, tastes=3, rounds=60)
        assert policy.warnings == ()


@pytest.mark.parametrize("name", ["dyclu", "dlinucb", "club", "sclub"])
@pytest.mark.parametrize("row", ["row1", "row4", "row9"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_no_policy_warns_in_the_worlds_of_the_paper(name: str, row: str, seed: int) -> None:
    setting = SETTINGS[row]
    periods = {"shortest": setting.shortest // 4, "longest": setting.longest // 4}
    small = replace(setting, users=20, parameters=5, dim=8, rounds=200, **periods)
    world, policy = small.world(seed), policies.make(name, small.dim)
    for turn in world:
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
        if turn.index % 20 == 0:
            assert policy.warnings == ()


def test_dyclu_is_silent_if_all_users_change_at_once() -> None:
    policy = DyClu(DIM, noise=0.1)
    for seed in range(2):
        linear(policy, users=9, tastes=3, rounds=25, seed=seed)
        assert policy.warnings == ()
    assert len(policy.changes) >= 9


def test_dyclu_is_silent_if_rewards_have_no_noise() -> None:
    policy = DyClu(DIM)
    linear(policy, users=12, tastes=3, rounds=30, noise=0.0)
    assert policy.warnings == ()


def test_dyclu_says_that_it_cannot_estimate_the_noise_of_rewards_far_from_zero() -> None:
    policy = DyClu(DIM)
    linear(policy, users=12, tastes=3, rounds=60, offset=100.0)
    (sentence,) = policy.warnings
    assert FLOOR in sentence


def test_dlinucb_says_that_it_does_not_learn_rare_clicks() -> None:
    policy = DLinUCB(2)
    rare_clicks(policy, rounds=5000, seed=0)
    (sentence,) = policy.warnings
    assert ASIDE in sentence


GROUPING: dict[str, Callable[[], Policy]] = {
    "dyclu": lambda: DyClu(DIM),
    "club": lambda: Club(DIM, tolerance=0.5),
    "sclub": lambda: Sclub(DIM, tolerance=0.5),
}


@pytest.mark.parametrize("make", GROUPING.values(), ids=GROUPING)
def test_policies_with_groups_say_that_no_two_users_share_one(make: Callable[[], Policy]) -> None:
    policy = make()
    linear(policy, users=12, tastes=12, rounds=100)
    (sentence,) = policy.warnings
    assert f"{ALONE} 12 users" in sentence
    for user in range(3):
        policy.forget(user)
    assert policy.warnings == ()  # nine users are too few


@pytest.mark.parametrize("make", GROUPING.values(), ids=GROUPING)
def test_policies_with_groups_are_silent_if_two_users_share_one(
    make: Callable[[], Policy],
) -> None:
    policy = make()
    linear(policy, users=12, tastes=11, rounds=100)
    assert policy.warnings == ()


def test_neighbours_with_few_rewards_do_not_count_as_shared() -> None:
    policy = DyClu(DIM)
    linear(policy, users=12, tastes=12, rounds=100)
    policy.learn("new", np.eye(DIM)[0], 0.0)
    for user in range(12):  # finds its neighbours anew: everybody is like a user with one reward
        policy.learn(user, np.zeros(DIM), 0.0)
    assert len(policy.neighbours(0)) > 1
    assert any(ALONE in one for one in policy.warnings)


def test_a_closed_segment_of_another_user_counts_as_shared() -> None:
    policy, rng = DyClu(1, noise=0.1), np.random.default_rng(0)
    for user in range(12):
        for taste in (user + 1, user):  # the open segment is like a closed one of the user before
            for _ in range(30):
                policy.learn(user, [1.0], 10.0 * taste + 0.1 * rng.normal())
    assert len(policy.changes) == 12
    assert len(policy.models) == 12
    assert not any(ALONE in one for one in policy.warnings)


@pytest.mark.parametrize("make", [DyClu, DLinUCB])
def test_a_loaded_policy_has_the_same_warnings(
    make: Callable[[int], DyClu | DLinUCB], tmp_path: Path
) -> None:
    policy = make(2)
    rare_clicks(policy, rounds=5000, seed=1)
    policy.save(tmp_path / "policy")
    assert policy.warnings
    assert dyclu.load(tmp_path / "policy").warnings == policy.warnings


@pytest.mark.parametrize("make", [DyClu, DLinUCB])
def test_a_file_from_before_warnings_is_read_and_counted_anew(
    make: Callable[[int], DyClu | DLinUCB], tmp_path: Path
) -> None:
    policy = make(2)
    rare_clicks(policy, rounds=500, seed=1)
    policy.save(tmp_path / "policy")
    saved = read(tmp_path / "policy")
    del saved.state["set_aside"]
    write(tmp_path / "older", saved)
    older = dyclu.load(tmp_path / "older")
    assert set(older.users) == set(policy.users)
    assert not any(ASIDE in one for one in older.warnings)


def test_policies_without_checks_have_no_warnings() -> None:
    setting = Population(users=2, parameters=1, dim=3, rounds=5)
    for name in ("linucb", "adts", "uniform"):
        assert policies.make(name, setting.dim).warnings == ()
