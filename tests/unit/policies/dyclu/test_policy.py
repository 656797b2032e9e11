from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu import DyClu, Stats, homogeneity
from dyclu.errors import KindError, OptionError
from tests.literal import LiteralDyClu, Step

NOISE = 0.1


def stream(
    seed: int, dim: int, *, users: int, rounds: int, tastes: int = 3, repeats: bool = False
) -> Any:
    """Yield (user, arms, means, noise); users share tastes, and each changes once."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(12 if repeats else 400, dim))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    parameters = rng.normal(size=(tastes, dim))
    parameters /= np.linalg.norm(parameters, axis=1, keepdims=True)
    taste = rng.integers(tastes, size=users)
    changes = rng.integers(rounds // 3, 2 * rounds // 3, size=users)
    for t, user in itertools.product(range(rounds), range(users)):
        if t == changes[user]:
            taste[user] = (taste[user] + 1) % tastes
        arms = table[rng.choice(len(table), 5, replace=False)]
        yield user, arms, arms @ parameters[taste[user]], NOISE * rng.normal()


def assert_same_steps(policy: DyClu, literal: LiteralDyClu, rounds: Any) -> list[Step]:
    steps = []
    for user, arms, means, noise in rounds:
        arm = policy.decide(user, arms).arm
        assert arm == literal.decide(user, arms)
        outcome = policy.learn(user, arms[arm], means[arm] + noise)
        found = (outcome.surprised, outcome.changed, tuple(outcome.neighbours.tolist()))
        assert found == literal.learn(user, arms[arm], means[arm] + noise)
        steps.append(Step(arm, *found))
    return steps


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("dim", [3, 8])
@pytest.mark.parametrize("noise", [NOISE, None])
def test_decisions_and_outcomes_equal_algorithm_one(
    seed: int, dim: int, noise: float | None
) -> None:
    rounds = stream(seed, dim, users=4, rounds=90)
    steps = assert_same_steps(DyClu(dim, noise=noise), LiteralDyClu(dim, noise), rounds)
    # The stream must contain changes, surprises and users with different neighbours.
    assert any(step.changed for step in steps)
    assert any(step.surprised for step in steps)
    assert any(len(step.neighbours) < 4 for step in steps)


@pytest.mark.parametrize("seed", [4, 5])
def test_decisions_and_outcomes_equal_algorithm_one_if_contexts_repeat(seed: int) -> None:
    # Twelve arms in eight dimensions: segments share contexts before any of them spans the space.
    rounds = stream(seed, 8, users=3, rounds=50, repeats=True)
    assert_same_steps(DyClu(8, noise=NOISE), LiteralDyClu(8, NOISE), rounds)


def played(policy: DyClu, seed: int = 7, *, users: int = 6, rounds: int = 60) -> list[Any]:
    seen = []
    for user, arms, means, noise in stream(seed, policy.dim, users=users, rounds=rounds):
        decision = policy.decide(user, arms)
        seen.append((decision, policy.learn(user, arms[decision.arm], means[decision.arm] + noise)))
    return seen


def test_a_change_closes_the_segment_and_opens_an_empty_one() -> None:
    policy = DyClu(3, noise=NOISE)
    outcomes = [outcome for _, outcome in played(policy)]
    changed = [outcome for outcome in outcomes if outcome.changed]
    assert changed
    assert len(policy.changes) == len(changed)
    for change in policy.changes:
        before, after = policy.segments[change.before], policy.segments[change.after]
        assert before.user == after.user == change.user
        assert before.closed == after.opened == change.at
    for outcome in changed:
        # The new segment is empty: all segments are neighbours again.
        assert len(outcome.neighbours) == outcome.segment + 1


def test_the_model_of_a_user_is_the_sum_of_the_neighbours() -> None:
    policy = DyClu(3, noise=NOISE)
    played(policy)
    together = sum((policy.segments[id].stats for id in policy.neighbours(0)), start=Stats.empty(3))
    expected = np.linalg.solve(together.gram + 0.1 * np.eye(3), together.moment)
    decision = policy.decide(0, np.eye(3))
    assert decision.theta == pytest.approx(expected, rel=1e-9)
    assert decision.mean == pytest.approx(expected[decision.arm])


def test_neighbours_are_the_homogeneous_segments() -> None:
    policy = DyClu(3, noise=NOISE)
    outcome = played(policy)[-1][1]
    mine = policy.segments[outcome.segment].stats
    expected = [
        segment.id
        for segment in policy.segments
        if homogeneity(mine, segment.stats, noise=NOISE).p_value >= 0.01
    ]
    assert policy.neighbours(outcome.user) == tuple(expected)


def test_neighbours_of_an_unknown_user_are_all_segments() -> None:
    policy = DyClu(3, noise=NOISE)
    assert policy.neighbours("unknown") == ()
    played(policy)
    assert policy.neighbours("unknown") == tuple(range(len(policy.segments)))


def test_a_surprising_reward_is_not_added_to_the_segment() -> None:
    policy = DyClu(1, noise=0.1)
    for _ in range(30):
        policy.learn("ana", [1.0], 1.0)
    before = policy.segments[0].stats
    outcome = policy.learn("ana", [1.0], 9.0)
    assert outcome.surprised
    assert not outcome.changed
    assert not outcome.kept
    assert policy.segments[0].stats == before


def test_the_fifth_surprise_in_twenty_rewards_is_a_change() -> None:
    policy = DyClu(1, noise=0.1)
    for _ in range(30):
        policy.learn("ana", [1.0], 1.0)
    changed = [policy.learn("ana", [1.0], 9.0).changed for _ in range(5)]
    # The threshold is 0.01 + √(log 10 / 40) = 0.2499, just under 5 of 20.
    assert changed == [False] * 4 + [True]
    assert [segment.stats.count for segment in policy.segments] == [30, 0]


def test_a_short_segment_has_a_short_window() -> None:
    # Two observations give the alarm two entries and the threshold 0.01 + √(log 10 / 4) = 0.77.
    policy = DyClu(1, noise=0.1)
    for _ in range(2):
        policy.learn("ana", [1.0], 1.0)
    assert [policy.learn("ana", [1.0], 9.0).changed for _ in range(2)] == [False, True]


def test_estimated_noise_converges_to_the_true_noise() -> None:
    # 4,800 residuals give a relative standard error of 1/√(2·4800) = 1 %; 4 of these are allowed.
    policy = DyClu(3)
    played(policy, users=8, rounds=600)
    assert policy.noise == pytest.approx(NOISE, rel=0.04)


def test_rewards_do_not_surprise_before_the_first_residual() -> None:
    policy = DyClu(3)
    outcomes = [
        policy.learn("ana", x, y) for x, y in zip(np.eye(3), (1.0, 50.0, -3.0), strict=True)
    ]
    assert not any(outcome.surprised or outcome.changed for outcome in outcomes)
    assert policy.noise == pytest.approx(np.sqrt((1 + 2500 + 9) / 3))


def test_users_can_be_any_str_or_int() -> None:
    policy = DyClu(2, noise=NOISE)
    for user in ("1", 1, "", "ana", -7, "ana ", np.int64(8), "日本"):
        policy.learn(user, [1.0, 0.0], 1.0)
    assert [segment.user for segment in policy.segments] == [
        "1",
        1,
        "",
        "ana",
        -7,
        "ana ",
        8,
        "日本",
    ]
    policy.learn(8, [1.0, 0.0], 1.0)
    assert len(policy.segments) == 8


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dim": 0}, OptionError),
        ({"dim": -3}, OptionError),
        ({"dim": 2.5}, KindError),
        ({"dim": True}, KindError),
        ({"noise": 0}, OptionError),
        ({"noise": -0.1}, OptionError),
        ({"noise": float("nan")}, OptionError),
        ({"noise": "large"}, KindError),
        ({"noise": 1e200}, OptionError),
        ({"noise": 10**400}, OptionError),
        ({"noise": 1e-200}, OptionError),
        ({"delta": 1e-310}, OptionError),
        ({"ridge": 1e-320}, OptionError),
        ({"window": 10**400}, OptionError),
        ({"ridge": 0.0}, OptionError),
        ({"ridge": -1}, OptionError),
        ({"ridge": float("inf")}, OptionError),
        ({"delta": 0}, OptionError),
        ({"delta": 1}, OptionError),
        ({"alpha": -1}, OptionError),
        ({"window": 0}, OptionError),
        ({"window": 2.0}, KindError),
        ({"window_delta": 1.5}, OptionError),
        ({"change_level": 0}, OptionError),
        ({"neighbour_level": 1}, OptionError),
        ({"neighbour_level": None}, KindError),
    ],
)
def test_options_out_of_range_raise_an_error(
    options: dict[str, Any], error: type[Exception]
) -> None:
    (name,) = options
    with pytest.raises(error, match=rf"^{name} is .*expected"):
        DyClu(**{"dim": 2, **options})


def test_a_loaded_policy_equals_the_saved_one(tmp_path: Path) -> None:
    policy = DyClu(3, window=7)
    played(policy)
    policy.save(tmp_path / "policy")
    back = dyclu.load(tmp_path / "policy")
    assert isinstance(back, DyClu)
    assert repr(back) == repr(policy)
    assert back.segments == policy.segments
    assert back.changes == policy.changes
    assert back.noise == policy.noise
    assert played(back, seed=8) == played(policy, seed=8)


def test_features_and_rewards_of_any_size_give_finite_decisions() -> None:
    rng = np.random.default_rng(0)
    policy = DyClu(3)
    for _ in range(200):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide(int(rng.integers(3)), arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        reward = rng.normal() * 10.0 ** rng.integers(-49, 6)
        policy.learn(decision.user, arms[decision.arm], reward)


def test_alpha_sets_a_constant_width_factor() -> None:
    policy = DyClu(2, alpha=0.3)
    for _ in range(10):
        policy.learn("ana", [1.0, 0.0], 1.0)
    assert policy.decide("ana", [[1.0, 0.0]]).width == pytest.approx(0.3 / np.sqrt(10.1))


def test_changing_an_outcome_does_not_change_the_policy() -> None:
    policy = DyClu(3, noise=NOISE)
    outcome = policy.learn("ana", [1.0, 0.0, 0.0], 1.0)
    outcome.neighbours[0] = 7
    assert policy.neighbours("ana") == (0,)
