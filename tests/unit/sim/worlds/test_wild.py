"""`dyclu.sim.worlds.wild`: every option does what it says, and the truth fits the rewards."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu.errors import DycluError, OptionError
from dyclu.policies import LinUCB, Uniform
from dyclu.sim import play, summary
from dyclu.sim.worlds.named import WORLDS, named
from dyclu.sim.worlds.rounds import Round
from dyclu.sim.worlds.wild import Wild, WildWorld
from dyclu.validation import FloatArray

SMALL = Wild(users=6, parameters=3, dim=4, arms=30, offered=5, rounds=40, shortest=8, longest=15)
NEVER: dict[str, Any] = {"shortest": 10**9, "longest": 10**9}


@st.composite
def populations(draw: st.DrawFn) -> Wild:
    share = st.floats(0, 1)
    return replace(
        SMALL,
        parameters=draw(st.none() | st.integers(1, 4)),
        rewards=draw(st.sampled_from(["gaussian", "student", "logistic", "linear"])),
        offset=draw(share),
        loudness=draw(st.sampled_from([1.0, 3.0])),
        spread=draw(share),
        drift=draw(share),
        activity=draw(share),
        arrivals=draw(share),
        departures=draw(share),
        constant=draw(st.none() | share),
        correlation=draw(st.floats(0, 0.9)),
        scales=draw(st.sampled_from([1.0, 10.0])),
        catalogues=draw(st.integers(1, 4)),
        delay=draw(st.integers(0, 30)),
    )


def same(a: Round, b: Round) -> bool:
    plain = ("index", "user", "time", "noise", "parameter", "changed", "binary")
    return all(getattr(a, name) == getattr(b, name) for name in plain) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("arms", "means", "taste")
    )


class Recorder(Uniform):
    """Records what it was asked and what it learnt."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.steps: list[tuple[str, int, float]] = []

    def decide(self, user: Any, arms: Any, **_: Any) -> Any:
        self.steps.append(("decide", user, float(arms[0, 0])))
        return replace(super().decide(user, arms), arm=0)

    def learn(self, user: Any, context: Any, reward: Any) -> Any:
        self.steps.append(("learn", user, float(context[0])))
        return super().learn(user, context, reward)


# The truth


@given(populations(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_rounds_fit_the_truth_of_the_world(setting: Wild, seed: int) -> None:
    world = setting.world(seed)
    times, last = Counter[int](), dict[int, int]()
    for i, turn in enumerate(world):
        assert (turn.index, turn.user, turn.time) == (i, world.served[i], times[turn.user])
        assert turn.parameter == world.truth[turn.user, turn.time]
        assert turn.changed == (last.get(turn.user, turn.parameter) != turn.parameter)
        assert turn.changed == (turn.time in world.changes(turn.user))
        law = world.law(turn.user)
        np.testing.assert_allclose(turn.means, law.mean(turn.arms @ turn.taste), atol=1e-12)
        centre = world.tastes(i)[turn.parameter]
        assert setting.spread > 0 or np.array_equal(turn.taste, centre)
        reward = turn.reward(1)
        assert reward in (0, 1) if law.binary else reward == turn.means[1] + turn.noise
        times[turn.user], last[turn.user] = times[turn.user] + 1, turn.parameter
    assert sum(times.values()) == len(world) == setting.users * setting.rounds


@given(populations(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_the_same_seed_gives_the_same_world(setting: Wild, seed: int) -> None:
    world = setting.world(seed)
    play(LinUCB(setting.dim), world)
    assert all(map(same, world, setting.world(seed)))


def test_other_seeds_give_other_worlds() -> None:
    assert not all(map(same, SMALL.world(1), SMALL.world(2)))


def test_other_laws_keep_users_arms_and_tastes() -> None:
    one, other = SMALL.world(3), replace(SMALL, rewards="logistic", slope=4.0, delay=7).world(3)
    for a, b in zip(one, other, strict=True):
        assert (a.user, a.parameter) == (b.user, b.parameter)
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.taste, b.taste)


def test_arrays_are_read_only() -> None:
    turn = next(iter(SMALL.world(1)))
    for array in (turn.arms, turn.means, turn.taste):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# Rewards


@pytest.mark.parametrize(
    "law",
    [
        {"rewards": "gaussian", "noise": 0.5},
        {"rewards": "student", "noise": 0.5, "freedom": 9.0},
        {"rewards": "logistic", "offset": -1.0, "slope": 4.0},
        {"rewards": "linear", "offset": 0.5, "slope": 0.5},
    ],
)
def test_rewards_have_their_mean_and_variance(law: dict[str, Any]) -> None:
    world = replace(SMALL, users=50, rounds=400, **law).world(5)
    means = np.array([turn.means[0] for turn in world])
    rewards = np.array([turn.reward(0) for turn in world])
    variance = means * (1 - means) if world.law(0).binary else np.full(len(means), 0.25)
    # Errors in units of their deviation: mean 0, variance 1; four standard errors of the mean, and
    # of the mean square, whose deviation is at most 6: 0/1 rewards have p(1 − p) above 0.02 here.
    errors, root = (rewards - means) / np.sqrt(variance), sqrt(len(means))
    assert abs(errors.mean()) < 4 / root
    assert abs((errors**2).mean() - 1) < 4 * 6 / root


def test_clicks_have_the_frequency_of_their_mean() -> None:
    world = replace(SMALL, users=50, rounds=400, rewards="logistic", slope=4.0).world(6)
    pairs = np.array([(turn.means[0], turn.reward(0)) for turn in world])
    for low in np.arange(0, 1, 0.2):
        bin_ = pairs[(low <= pairs[:, 0]) & (pairs[:, 0] < low + 0.2)]
        # A frequency of n clicks has the standard error √(p(1 − p)/n) ≤ 1/(2√n); four of them.
        assert abs(bin_[:, 1].mean() - bin_[:, 0].mean()) < 2 / sqrt(len(bin_))


def test_loudness_is_a_noise_per_user() -> None:
    world = replace(SMALL, users=30, rounds=500, noise=0.2, loudness=4.0).world(7)
    noise = np.array([turn.noise for turn in world]).reshape(500, 30).std(axis=0)
    assert world.noise.min() >= 0.05
    assert world.noise.max() <= 0.8
    # The deviation of 500 normal numbers has the standard error σ/√1000; five of them.
    assert np.abs(noise / world.noise - 1).max() < 5 / sqrt(1000)
    assert world.law(3).noise == world.noise[3]


@pytest.mark.parametrize("delay", [0, 1, 7, 10**6])
def test_every_reward_is_delivered_once_in_order_and_after_its_delay(delay: int) -> None:
    world = replace(SMALL, delay=delay).world(8)
    policy = Recorder(4)
    run = play(policy, world)
    asked = [step[1:] for step in policy.steps if step[0] == "decide"]
    learnt = [step[1:] for step in policy.steps if step[0] == "learn"]
    assert asked == learnt == [(turn.user, turn.arms[0, 0]) for turn in world]
    kinds = np.array([step[0] == "decide" for step in policy.steps])
    decided = np.cumsum(kinds)[~kinds]
    assert decided.tolist() == [min(i + delay + 1, len(world)) for i in range(len(world))]
    assert run.reward.tolist() == [turn.reward(0) for turn in world]
    assert run.regret.tolist() == [turn.regret(0) for turn in world]


# Tastes


def spread_of(world: WildWorld) -> FloatArray:
    return np.array([turn.taste - world.tastes(turn.index)[turn.parameter] for turn in world])


def test_spread_is_the_size_of_what_a_period_adds() -> None:
    world = replace(SMALL, users=400, dim=8, rounds=2, spread=0.6, **NEVER).world(9)
    added = spread_of(world)
    assert np.array_equal(added[:400], added[400:])
    # ‖N(0, s²I/d)‖² has mean s² and deviation s²√(2/d): four standard errors over 400 users.
    assert abs((added[:400] ** 2).sum(axis=1).mean() / 0.36 - 1) < 4 * sqrt(2 / 8 / 400)


def test_a_new_period_has_a_new_deviation() -> None:
    world = replace(SMALL, users=1, spread=0.5).world(9)
    added, changed = spread_of(world), [turn.changed for turn in world]
    assert any(changed)
    for i in range(1, len(added)):
        # Adding and subtracting the taste leaves rounding errors.
        assert changed[i] != np.allclose(added[i], added[i - 1], rtol=0, atol=1e-12)


def test_drift_is_a_walk_on_the_sphere_of_the_asked_length() -> None:
    world = replace(SMALL, parameters=300, dim=20, rounds=50, drift=0.3).world(10)
    np.testing.assert_allclose(np.linalg.norm(world.path, axis=2), 1)
    steps = np.diff(world.path, axis=0)
    # On the sphere the walk loses the radial of d directions; the squares of 300 × 49 steps add up
    # to (1 − 1/d) · drift² · 49/50 on average. 4 % is many standard errors and the curvature.
    length = (steps**2).sum(axis=(0, 2)).mean()
    assert length == pytest.approx(0.09 * 0.95 * 49 / 50, rel=0.04)
    assert world.tastes(0) is not world.tastes(len(world) - 1)
    assert np.array_equal(world.tastes(len(world) - 1), world.path[-1])


def test_without_drift_tastes_stay() -> None:
    world = SMALL.world(10)
    assert np.array_equal(world.tastes(0), world.tastes(len(world) - 1))
    assert world.count == 3


# Users


def test_activity_is_a_power_law() -> None:
    world = replace(SMALL, users=5, rounds=4000, activity=1.0).world(11)
    counts = np.bincount(world.served)
    weight = 1 / np.arange(1.0, 6)
    expected = len(world) * weight / weight.sum()
    # χ² with 4 degrees of freedom exceeds 33.4 once in a million.
    assert ((counts - expected) ** 2 / expected).sum() < 33.4


def test_users_arrive_and_leave_in_their_share_of_the_run() -> None:
    world = replace(SMALL, users=100, rounds=100, arrivals=0.5, departures=0.3).world(12)
    first = np.array([np.flatnonzero(world.served == user)[0] for user in range(100)]) / 10_000
    last = np.array([np.flatnonzero(world.served == user)[-1] for user in range(100)]) / 10_000
    # The mean of 100 uniform times has the standard error 0.5/√1200; five, and the wait of a few
    # of the run's 100 steps until a user is served.
    assert abs(first.mean() - 0.25) < 5 * 0.5 / sqrt(1200) + 0.03
    assert abs(last.mean() - 0.85) < 5 * 0.3 / sqrt(1200) + 0.03


def test_users_are_served_in_turn_by_default() -> None:
    assert SMALL.world(12).served.tolist() == list(range(6)) * 40


# Arms


def test_one_hot_arms_are_one_hot_and_distinct() -> None:
    world = replace(SMALL, arms=4, offered=3, one_hot=True).world(13)
    for turn in world:
        assert sorted(set(turn.arms.ravel())) == [0, 1]
        assert (turn.arms.sum(axis=1) == 1).all()
        assert turn.arms.sum(axis=0).max() == 1


def test_a_constant_feature_has_its_weight_and_adds_it_to_every_mean() -> None:
    world = replace(SMALL, constant=2.0).world(14)
    for turn in world:
        assert (turn.arms[:, 0] == 1).all()
        assert turn.taste[0] == 2
        np.testing.assert_allclose(turn.means, 2 + turn.arms[:, 1:] @ turn.taste[1:])


def test_correlated_features_have_their_correlation() -> None:
    # The shared part of an arm is √ρ z, its own parts add √(1 − ρ) N(0, 1): the mean feature of an
    # arm has the square ρ + (1 − ρ)/d of its mean square, in expectation and, after scaling to unit
    # length, in the ratio below up to E[ratio] ≠ ratio of E, which is a few per cent at d = 200.
    for correlation in (0.0, 0.3, 0.6):
        world = replace(SMALL, dim=200, arms=4000, correlation=correlation).world(15)
        arms = world.catalogues[0]
        np.testing.assert_allclose(np.linalg.norm(arms, axis=1), 1)

        odds = arms.mean(axis=1) ** 2 / arms.var(axis=1)
        # z² has median 0.4549; the median of 4,000 has a standard error below 0.04.
        expected = 0.4549 * (correlation / (1 - correlation) + 1 / 200)
        assert np.median(odds) == pytest.approx(expected, rel=0.2)


def test_scales_change_features_but_not_means() -> None:
    plain, scaled = replace(SMALL, spread=0.3).world(16), replace(SMALL, spread=0.3, scales=100.0)
    for a, b in zip(plain, scaled.world(16), strict=True):
        np.testing.assert_allclose(b.arms, a.arms * 10.0 ** (np.arange(-3, 4, 2) * 2 / 3))
        np.testing.assert_allclose(a.means, b.means, atol=1e-12)


def test_catalogues_follow_each_other() -> None:
    world = replace(SMALL, catalogues=3).world(17)
    rows = {row.tobytes(): i for i, table in enumerate(world.catalogues) for row in table}
    parts = [{rows[arm.tobytes()] for arm in turn.arms} for turn in world]
    assert parts == [{3 * i // 240} for i in range(240)]


# Names and options


def test_named_worlds_cover_the_asked_sizes() -> None:
    found = {(option, getattr(w, option)) for w in WORLDS.values() for option in ("dim", "users")}
    assert {("dim", d) for d in (4, 8, 20, 40)} | {("users", n) for n in (20, 200, 1000)} <= found
    assert {1, 3, 30} <= {world.parameters for world in WORLDS.values()}
    assert any(world.parameters == world.users for world in WORLDS.values())


@pytest.mark.parametrize("name", WORLDS)
def test_a_named_world_can_be_played(name: str) -> None:
    setting = named(name)
    small = replace(setting, users=4, rounds=5, delay=min(setting.delay, 3))
    run = play(LinUCB(setting.dim), small.world(0))
    assert np.isfinite(run.regret).all()
    assert summary(run).regret > 0


def test_intercepts_are_needed_where_an_arm_of_score_0_has_a_reward() -> None:
    assert not Wild().intercept
    assert Wild(offset=1.0).intercept
    assert Wild(rewards="logistic").intercept
    assert Wild(rewards="linear", offset=0.5).intercept


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(OptionError, match="no world is called 'mars'; choose one of quiet"):
        named("mars")
    with pytest.raises(OptionError, match="no option 'colour'; choose from users, parameters"):
        Wild().with_options({"colour": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": 0}, "users is 0"),
        ({"delay": -1}, "delay is -1"),
        ({"parameters": 0}, "parameters is 0"),
        ({"rewards": "poisson"}, "choose one of gaussian"),
        ({"loudness": 0.5}, "loudness is 0.5, expected a number from 1"),
        ({"arrivals": 1.5}, "arrivals is 1.5"),
        ({"correlation": 1.0}, "correlation is 1.0"),
        ({"constant": "x"}, "constant is 'x'"),
        ({"spread": float("nan")}, "spread is nan"),
        ({"offered": 31}, "offered is 31 and arms is 30"),
        ({"one_hot": True}, "arms is 30 and dim is 4, .*set arms=4"),
        ({"one_hot": True, "arms": 4, "offered": 2, "scales": 2.0}, "scales is 2.0 and arms are"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DycluError, match=message):
        replace(SMALL, **options)


def test_options_are_plain_values_for_json() -> None:
    setting = replace(SMALL, noise=np.float32(0.5), users=np.int64(3))  # type: ignore[arg-type]
    kinds = {type(getattr(setting, option.name)) for option in fields(setting)}
    assert kinds <= {int, float, str, bool, type(None)}
