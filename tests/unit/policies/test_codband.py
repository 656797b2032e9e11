from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln, ndtr
from scipy.stats import multivariate_normal

from dyclu import conformance
from dyclu.core.evidence import Prior
from dyclu.core.homogeneity import homogeneity
from dyclu.core.stats import Stats
from dyclu.policies import CoDBand, LinUCB
from dyclu.policies.codband.mixture import NO_MODEL, Mixture
from dyclu.sim import Population, play, summary
from dyclu.storage import read
from dyclu.validation import FloatArray, User

Data = list[tuple[FloatArray, float]]

QUICK: dict[str, Any] = {"noise": 0.1, "concentration": 0.5, "window": 4, "window_delta": 0.5}
"""Options with which changes are found within the few rounds of a check."""


def taught(policy: CoDBand, user: User, contexts: Iterable[Any], rewards: Iterable[float]) -> None:
    for x, y in zip(contexts, rewards, strict=True):
        policy.learn(user, x, y)


def follows(policy: CoDBand, user: User) -> int:
    model = policy.locate(user).model
    assert model is not None
    return model


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.long),
        QUICK,
        pytest.param({"noise": 0.1, "seed": 3}, marks=pytest.mark.long),
    ],
)
def test_contract(options: dict[str, Any]) -> None:
    conformance.check_policy(
        lambda: CoDBand(5, **options), load=lambda path: CoDBand.restore(read(path))
    )


# The probabilities of the models


def log_density(data: Data, *, noise: float, ridge: float) -> float:
    """Return the log density of rewards with one parameter θ ~ N(0, I/λ), from raw data."""
    X, y = np.array([x for x, _ in data]), np.array([y for _, y in data])
    covariance = noise**2 * np.eye(len(y)) + X @ X.T / ridge
    return float(multivariate_normal.logpdf(y, np.zeros(len(y)), covariance))


def log_joint(groups: list[list[Data]], concentration: float, **options: float) -> float:
    """Return log p(groups, rewards): α₀ᴷ ∏(n_k − 1)! up to a constant, times the densities."""
    prior = sum(np.log(concentration) + gammaln(len(group)) for group in groups)
    return float(prior) + sum(log_density([*chain(*group)], **options) for group in groups)


@pytest.mark.parametrize("seed", range(6))
def test_belief_is_that_of_the_enumerated_partitions(seed: int) -> None:
    # Noise so large that no model is certain, in whichever groups the users are by then.
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {"noise": 0.8, "ridge": 0.6}
    policy = CoDBand(2, concentration=1.3, seed=seed, change_level=1e-9, **options)
    data: dict[int, Data] = defaultdict(list)
    for turn in range(3):
        for user, taste in enumerate(rng.normal(size=(5, 2))):
            if turn and user == 4:
                continue
            x = rng.normal(size=2)
            y = float(x @ taste + 0.8 * rng.normal())
            assert policy.learn(user, x, y).kept
            data[user].append((x, y))
    group_of = {user: follows(policy, user) for user in data}
    for user in data:
        others = defaultdict(list)
        for other in data:
            if other != user:
                others[group_of[other]].append(data[other])
        joints = {}
        for model in (*others, NO_MODEL):
            groups = {id: list(members) for id, members in others.items()}
            groups.setdefault(model, []).append(data[user])
            joints[model] = log_joint(list(groups.values()), 1.3, **options)
        weights = np.exp(np.array([*joints.values()]) - max(joints.values()))
        expected = dict(zip(joints, weights / weights.sum(), strict=True))
        found = policy.locate(user)
        assert found.new == pytest.approx(expected.pop(NO_MODEL), rel=1e-7)
        assert found.belief == pytest.approx(expected, rel=1e-7)
        assert max(expected.values()) < 0.999


def test_belief_is_that_of_direct_integration() -> None:
    # One feature, so that p(mine | θ) p(θ | model) can be summed on a grid; θ has deviation 1/√2.
    noise, grid = 0.5, np.linspace(-8, 8, 200_001)
    rng = np.random.default_rng(0)
    sets = [(rng.normal(size=n), rng.normal(size=n)) for n in (4, 2, 3)]

    def likelihood(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-((y[:, None] - np.outer(x, grid)) ** 2).sum(0) / 2 / noise**2))

    base = np.exp(-(grid**2) * 2 / 2)
    mine = likelihood(*sets[-1])
    posteriors = [base * likelihood(*some) for some in sets[:-1]] + [base]
    predictive = np.array([(mine * p).sum() / p.sum() for p in posteriors])
    weights = np.array([1, 1, 0.7]) * predictive

    mixture, *stats = Mixture(1), *(Stats.of(x[:, None], y) for x, y in sets)
    for some in stats[:-1]:
        mixture.join(mixture.found(0), some, 0)
    prior = Prior(np.zeros(1), 1 / 2.0, noise**2)
    belief = mixture.belief(stats[-1], prior, 0.7, own=NO_MODEL, others=Stats.empty(1))
    assert belief.ids == (0, 1, NO_MODEL)
    assert belief.probabilities == pytest.approx(weights / weights.sum(), rel=1e-9)


def test_belief_without_data_is_the_popularity_of_the_models() -> None:
    policy = CoDBand(1, noise=0.01, concentration=0.5)
    for user in range(5):
        taught(policy, user, [[1.0]] * 3, [1.0 if user < 3 else -1.0] * 3)
    popular, rare = follows(policy, 0), follows(policy, 4)
    assert [(m.id, m.size, m.users, m.founded, m.visited) for m in policy.models] == [
        (popular, 9, 3, 1, 9),
        (rare, 6, 2, 10, 15),
    ]
    stranger = policy.locate("stranger")
    assert stranger.belief == pytest.approx({popular: 3 / 5.5, rare: 2 / 5.5})
    assert stranger.new == pytest.approx(0.5 / 5.5)
    assert (stranger.model, stranger.located, stranger.segments) == (None, False, ())


def test_models_are_drawn_with_their_probabilities() -> None:
    # The chance that ben's only reward joins ana's model is that of a look-ahead of the same data,
    # given in advance by Bayes' rule. 800 seeds: standard error of at most 1.8 %.
    ana, ben = ([1.0], 0.5), ([1.0], -0.4)
    options: dict[str, Any] = {"noise": 0.6, "ridge": 1.0}
    pairs = [(np.array(x), y) for x, y in (ana, ben)]
    together = log_joint([[[pairs[0]], [pairs[1]]]], 2.0, **options)
    apart = log_joint([[[pairs[0]]], [[pairs[1]]]], 2.0, **options)
    chance = 1 / (1 + np.exp(apart - together))
    assert 0.1 < chance < 0.9
    joined = 0
    for seed in range(800):
        policy = CoDBand(1, concentration=2.0, seed=seed, **options)
        policy.learn("ana", *ana)
        policy.learn("ben", *ben)
        joined += follows(policy, "ana") == follows(policy, "ben")
    assert joined / 800 == pytest.approx(chance, abs=3 * 0.018)


def test_a_large_concentration_makes_more_models() -> None:
    def models(concentration: float) -> int:
        rng = np.random.default_rng(0)
        policy = CoDBand(2, noise=1.0, concentration=concentration)
        for _ in range(3):
            for user in range(20):
                policy.learn(user, rng.normal(size=2), rng.normal())
        return len(policy.models)

    assert models(1e-6) == 1
    assert models(1e6) == 20


def test_concentration_is_learnt_unless_it_is_given() -> None:
    rng = np.random.default_rng(0)
    learnt, given = CoDBand(1, noise=0.01), CoDBand(1, noise=0.01, concentration=2.0)
    for policy in (learnt, given):
        for user in range(40):
            taught(policy, user, [[1.0]] * 2, [float(user)] * 2)
            taught(policy, user, [[0.0]], [rng.normal()])
    assert len(learnt.models) == 40
    assert given._drawn_concentration == 2.0
    # 40 groups of 40 members: far above the prior's mean of 7.5.
    assert learnt._drawn_concentration > 12


# Decisions


def test_mean_and_width_are_those_of_the_model() -> None:
    rng = np.random.default_rng(1)
    theta, policy = np.array([0.5, -1.0, 0.2]), CoDBand(3, noise=0.3, ridge=0.5)
    X = rng.normal(size=(60, 3))
    y = X @ theta + 0.3 * rng.normal(size=60)
    kept = [policy.learn(t % 3, X[t], y[t]).kept for t in range(60)]
    assert len(policy.models) == 1
    X, y = X[kept], y[kept]
    precision = 0.5 * np.eye(3) + X.T @ X / 0.09
    mean = np.linalg.solve(precision, X.T @ y / 0.09)
    arm = rng.normal(size=3)
    decision = policy.decide(0, [arm])
    assert decision.theta == pytest.approx(mean, rel=1e-9)
    assert decision.mean == pytest.approx(arm @ mean, rel=1e-9)
    assert decision.width == pytest.approx(np.sqrt(arm @ np.linalg.solve(precision, arm)))
    assert policy.models[0].estimate == pytest.approx(mean, rel=1e-9)
    assert decision.propensity is None


def test_arms_are_chosen_by_draws_from_the_posterior() -> None:
    # θ̃ ~ N(θ̂, V), so that x wins over z with chance Φ(gᵀθ̂ / √(gᵀVg)), g = x − z. Scaling both is
    # another question with the same chance. 3,000 questions: standard error of at most 0.9 %.
    rng = np.random.default_rng(7)
    X = rng.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    y = X @ [0.1, 0.2] + 0.5 * rng.normal(size=6)
    policy = CoDBand(2, noise=0.5, concentration=1e-9)
    taught(policy, "ana", X, y)
    precision = 0.1 * np.eye(2) + X.T @ X / 0.25
    arms = np.array([[1.0, 0.4], [0.5, 0.6]])
    gap = arms[0] - arms[1]
    mean = np.linalg.solve(precision, X.T @ y / 0.25)
    chance = ndtr(gap @ mean / np.sqrt(gap @ np.linalg.solve(precision, gap)))
    assert 0.1 < chance < 0.9
    wins = [policy.decide("ana", scale * arms).arm == 0 for scale in np.linspace(1, 2, 3000)]
    assert np.mean(wins) == pytest.approx(chance, abs=3 * 0.009)


def test_users_without_data_are_served_by_models_drawn_by_their_popularity() -> None:
    # Weights 3 : 1 : 1. 2,000 questions: standard error of at most 1.1 %.
    policy = CoDBand(1, noise=0.01, concentration=1.0)
    for user in range(4):
        taught(policy, user, [[1.0]] * 5, [1.0 if user < 3 else -1.0] * 5)
    scales = np.linspace(1, 2, 2000)
    means = np.array([policy.decide("new", [[scale]]).mean / scale for scale in scales])
    shares = [np.mean(means > 0.5), np.mean(means < -0.5), np.mean(means == 0)]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=3 * 0.011)


def test_runs_depend_on_the_seed_only() -> None:
    def arms(seed: int) -> list[int]:
        rng, policy, chosen = np.random.default_rng(0), CoDBand(3, noise=0.5, seed=seed), []
        for t in range(60):
            table = rng.normal(size=(5, 3))
            chosen.append(policy.decide(t % 4, table).arm)
            policy.learn(t % 4, table[chosen[-1]], float(table[chosen[-1]].sum()))
        return chosen

    assert arms(1) == arms(1) != arms(2)


# Changes


def test_five_surprises_in_twenty_rewards_are_a_change() -> None:
    # 4/20 < 0.01 + √(log 10 / 40) = 0.2499 < 5/20, as for DyClu.
    policy = CoDBand(1, noise=0.05)
    taught(policy, "ana", [[1.0]] * 50, [1.0] * 50)
    outcomes = [policy.learn("ana", [1.0], -1.0) for _ in range(5)]
    assert [outcome.surprised for outcome in outcomes] == [True] * 5
    assert [outcome.changed for outcome in outcomes] == [False] * 4 + [True]
    assert [outcome.segment for outcome in outcomes] == [0] * 4 + [1]
    (change,) = policy.changes
    assert (change.user, change.at, change.before, change.after) == ("ana", 55, 0, 1)


def test_a_reward_surprises_if_the_test_of_homogeneity_rejects_it() -> None:
    rng = np.random.default_rng(2)
    X, theta = rng.normal(size=(400, 3)), np.array([1.0, -0.5, 0.2])
    # Late rewards have twice the noise, so that a third of them surprises.
    y = X @ theta + 0.1 * rng.normal(size=400) * np.where(np.arange(400) < 200, 1.0, 2.0)
    policy = CoDBand(3, noise=0.1, change_level=0.05, window_delta=1e-9, window=2)
    mine, surprises = Stats.empty(3), 0
    for x, reward in zip(X, y, strict=True):
        news = Stats.of(x, reward)
        outcome = policy.learn("ana", x, reward)
        assert outcome.surprised == (homogeneity(mine, news, noise=0.1).p_value < 0.05)
        assert not outcome.changed
        mine, surprises = mine + news if outcome.kept else mine, surprises + outcome.surprised
    assert 50 < surprises < 120
    assert policy.models[0].size == 400 - surprises


def test_a_context_in_a_new_direction_cannot_surprise() -> None:
    policy = CoDBand(3, noise=0.01)
    taught(policy, "ana", [[1.0, 0.0, 0.0]] * 5, [1.0] * 5)
    assert not policy.learn("ana", [1.0, 1.0, 0.0], 1e6).surprised
    assert policy.learn("ana", [2.0, 1.0, 0.0], 0.0).surprised
    assert not policy.learn("ana", [0.0, 0.0, 1.0], -1e6).surprised


def test_rewards_of_any_unit_are_learnt() -> None:
    # No reward of a user who stays the same is left out, however large the rewards are.
    for unit in (1e-3, 1e3, 1e6):
        policy = CoDBand(2, noise=0.01 * unit)
        taught(policy, "ana", np.tile(np.eye(2), (10, 1)), [unit, -unit] * 10)
        assert policy.models[0].size == 20
        assert not policy.changes


def test_surprising_rewards_are_not_learnt_and_a_closed_segment_stays_in_its_model() -> None:
    policy = CoDBand(1, noise=0.05)
    taught(policy, "ana", [[1.0]] * 50, [1.0] * 50)
    taught(policy, "ana", [[1.0]] * 5, [-1.0] * 5)
    (model,) = policy.models
    assert (model.size, model.users) == (50, 0)
    assert model.estimate == pytest.approx([1.0], abs=1e-3)
    here = policy.locate("ana")
    assert (here.model, here.located, here.since, here.neighbours) == (None, False, 55, ())
    assert here.segments is not None
    assert here.segments[0].observations == 0


def test_a_user_who_changes_back_returns_to_the_old_model() -> None:
    policy = CoDBand(1, noise=0.05)
    models = []
    for taste in (1.0, -1.0, 1.0):
        taught(policy, "ana", [[1.0]] * 50, [taste] * 50)
        models.append(follows(policy, "ana"))
    assert len(policy.changes) == 2
    assert models[0] == models[2] != models[1]
    assert policy.locate("ana").neighbours == (0, 2)


def test_false_alarms_are_rare() -> None:
    # A reward surprises with probability 1 %; five of twenty do with one of about 1e-6.
    rng, policy = np.random.default_rng(3), CoDBand(3, noise=0.2)
    theta = rng.normal(size=3)
    surprised = 0
    for t in range(3000):
        x = rng.normal(size=3)
        surprised += policy.learn(t % 3, x, x @ theta + 0.2 * rng.normal()).surprised
    assert not policy.changes
    assert surprised == pytest.approx(30, abs=3 * np.sqrt(30))


def test_the_reward_of_a_context_of_zeros_is_not_learnt() -> None:
    policy = CoDBand(2, noise=0.1)
    taught(policy, "ana", np.tile(np.eye(2), (10, 1)), [0.5] * 20)
    before = policy.models
    outcomes = [policy.learn("ana", [0.0, 0.0], 100.0) for _ in range(30)]
    assert not any(outcome.changed or outcome.surprised for outcome in outcomes)
    assert policy.models == before
    policy.learn("new", [0.0, 0.0], 1.0)
    assert policy.users == ("ana", "new")
    assert not policy.locate("new").located


# Sums, and forgetting


def expect_sums_of_raw_data(policy: CoDBand, data: dict[int, Data]) -> None:
    """Compare every model with the raw data of its segments, by id of the segment."""
    mixture, segments = policy._mixture, policy._segments
    seen = 0
    for model in policy.models:
        ids, row = segments.alike(model.id), mixture.row[model.id]
        raw = [pair for id in ids.tolist() for pair in data[id]]
        stats = Stats.of([x for x, _ in raw], [y for _, y in raw])
        assert mixture.all.gram[row] == pytest.approx(stats.gram, rel=1e-9)
        assert mixture.all.moment[row] == pytest.approx(stats.moment, rel=1e-9)
        assert mixture.all.energy[row] == pytest.approx(stats.energy, rel=1e-9)
        assert model.size == stats.count
        assert mixture.segments[row] == len(ids) > 0
        seen += stats.count
    assert seen == sum(map(len, data.values()))
    assert sum(model.users for model in policy.models) == sum(
        policy.locate(user).located for user in policy.users
    )


def test_every_model_is_the_sum_of_its_segments() -> None:
    # Loud noise, so that segments move between models again and again; three changes of each user.
    rng, policy = np.random.default_rng(4), CoDBand(2, noise=0.6)
    tastes, data = 3 * rng.normal(size=(4, 2)), defaultdict[int, Data](list)
    moves = 0
    for t in range(1200):
        user = t % 6
        x = rng.normal(size=2)
        y = float(x @ tastes[(user + t // 300) % 4] + 0.6 * rng.normal())
        before, segment = policy.locate(user).model, policy._segments.id[:6].copy()
        outcome = policy.learn(user, x, y)
        if outcome.kept:
            assert outcome.segment is not None
            data[outcome.segment].append((x, y))
            moves += before is not None and follows(policy, user) != before
        assert outcome.changed or t < 6 or (policy._segments.id[:6] == segment).all()
        if t % 100 == 99:
            expect_sums_of_raw_data(policy, data)
    assert moves > 20
    assert len(policy.changes) >= 12

    for user in (3, 0):
        gone = policy.locate(user).segments
        assert gone is not None
        del data[gone[0].id]
        policy.forget(user)
        expect_sums_of_raw_data(policy, data)
        assert user not in {change.user for change in policy.changes}
    for t in range(60):
        x = rng.normal(size=2)
        y = float(x @ tastes[t % 4])
        outcome = policy.learn(t % 6, x, y)
        if outcome.kept:
            assert outcome.segment is not None
            data[outcome.segment].append((x, y))
    expect_sums_of_raw_data(policy, data)


def test_a_model_without_segments_is_dropped_and_its_id_is_not_used_again() -> None:
    policy = CoDBand(1, noise=0.01)
    taught(policy, "ana", [[1.0]] * 3, [1.0] * 3)
    taught(policy, "ben", [[1.0]] * 3, [-1.0] * 3)
    gone, kept = follows(policy, "ana"), follows(policy, "ben")
    policy.forget("ana")
    assert [model.id for model in policy.models] == [kept]
    taught(policy, "cem", [[1.0]] * 3, [1.0] * 3)
    latest = follows(policy, "cem")
    assert latest not in (gone, kept)
    policy.forget("cem")
    taught(policy, "dua", [[1.0]] * 3, [1.0] * 3)
    assert follows(policy, "dua") not in (gone, kept, latest)


def test_the_only_user_of_a_model_keeps_its_id() -> None:
    policy = CoDBand(1, noise=0.01, concentration=1e6)
    policy.learn("ana", [1.0], 1.0)
    assert (policy.models[0].founded, policy.models[0].visited) == (1, 1)
    ids = set()
    for _ in range(50):
        policy.learn("ana", [1.0], 1.0)
        ids.add(follows(policy, "ana"))
    assert ids == {0}


# The noise, and worlds


def test_noise_is_estimated_from_prediction_errors() -> None:
    # 2,000 errors: relative standard error 1/√4000 = 1.6 %, and a little less for clipped errors.
    rng, policy = np.random.default_rng(9), CoDBand(3)
    theta = np.array([0.3, -0.2, 0.5])
    for _ in range(2000):
        x = rng.normal(size=3)
        policy.learn("ana", x, x @ theta + 0.2 * rng.normal())
    assert policy.noise == pytest.approx(0.2, rel=3 * 0.016)
    assert CoDBand(3, noise=0.7).noise == pytest.approx(0.7)


@pytest.mark.parametrize("noise", [None, 0.1])
def test_numbers_of_any_size_give_finite_results_in_long_runs(noise: float | None) -> None:
    rng, policy = np.random.default_rng(0), CoDBand(3, noise=noise)
    for t in range(1500):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide(t % 3, arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn(t % 3, arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


WORLD = Population(
    users=12, parameters=3, dim=6, arms=200, offered=8, rounds=150, shortest=50, longest=80
)


def test_true_groups_are_found_while_nobody_changes() -> None:
    world = replace(WORLD, shortest=150, longest=150).world(seed=5)
    policy = CoDBand(6, noise=WORLD.noise)
    play(policy, world)
    truth, found = world.truth[:, 0], [follows(policy, user) for user in range(12)]
    assert len(set(zip(truth.tolist(), found, strict=True))) == len(set(truth.tolist()))
    assert len(set(found)) == len(policy.models) == len(set(truth.tolist()))


@pytest.mark.parametrize("noise", [None, pytest.param(WORLD.noise, marks=pytest.mark.long)])
def test_regret_is_less_than_half_of_linucbs_if_users_change_and_are_alike(
    noise: float | None,
) -> None:
    # Measured: about a third; seed by seed, so that one lucky seed is not enough.
    for seed in range(3):
        world = WORLD.world(seed=seed)
        ours = summary(play(CoDBand(6, noise=noise, seed=seed), world))
        theirs = summary(play(LinUCB(6, noise=WORLD.noise, alpha=0.3), world))
        assert ours.regret < theirs.regret / 2
        assert ours.alarms_missed <= 2
        assert ours.alarms_false <= 1
