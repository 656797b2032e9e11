"""Atlas: locating, changing, returning, splitting, forgetting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dyclu
from dyclu import Atlas, LinUCB
from dyclu.errors import OptionError
from dyclu.policy import Policy
from dyclu.sim import Population, play
from dyclu.validation import FloatArray

DIM, NOISE = 5, 0.1
TASTES = np.linalg.qr(np.random.default_rng(8).normal(size=(DIM, DIM)))[0]
SMALL = Population(
    users=12, parameters=3, dim=6, arms=200, offered=8, rounds=120, shortest=10**6, longest=10**6
)


class Crowd:
    """Serves a policy, users following tastes it is told."""

    def __init__(self, policy: Policy, seed: int = 0) -> None:
        self.policy, self.rng = policy, np.random.default_rng(seed)

    def serve(
        self,
        tastes: dict[str, FloatArray],
        rounds: int,
        *,
        stray: Callable[[np.random.Generator], float] = lambda rng: 0.0,
    ) -> list[float]:
        """Return the regret of every round."""
        regret = []
        for _ in range(rounds):
            for user, taste in tastes.items():
                arms = self.rng.normal(size=(6, DIM)) / np.sqrt(DIM)
                means = arms @ taste
                arm = self.policy.decide(user, arms).arm
                noise = NOISE * self.rng.normal() + stray(self.rng)
                self.policy.learn(user, arms[arm], means[arm] + noise)
                regret.append(float(means.max() - means[arm]))
        return regret


def people(taste: FloatArray, *names: str) -> dict[str, FloatArray]:
    return dict.fromkeys(names, taste)


def test_users_who_share_a_taste_share_a_model() -> None:
    policy = Atlas(DIM, noise=NOISE)
    Crowd(policy).serve(people(TASTES[0], "a", "b") | people(TASTES[1], "c", "d"), 30)
    where = {user: policy.locate(user) for user in "abcd"}
    assert all(location.located for location in where.values())
    assert where["a"].model == where["b"].model != where["c"].model == where["d"].model
    assert sorted(model.users for model in policy.models) == [2, 2]
    for model, taste in zip(policy.models, (TASTES[0], TASTES[1]), strict=True):
        assert np.linalg.norm(model.estimate - taste) < 0.2


@pytest.mark.parametrize("rate", [0.01, 0.03])
@pytest.mark.parametrize("noise", [None, 0.15])
def test_rewards_that_are_seldom_one_are_learnt_from(rate: float, noise: float | None) -> None:
    """A click in a hundred is no stray: it is all there is."""
    rng, lost, chance = np.random.default_rng(0), 0.0, 0.0
    policy, taste = Atlas(6, noise=noise), rng.normal(size=6) / np.sqrt(6)
    for step in range(9_000):
        arms = np.column_stack((np.ones(8), rng.normal(size=(8, 5))))
        means = rate * np.exp(arms @ taste)
        arm = policy.decide(step % 30, arms).arm
        policy.learn(step % 30, arms[arm], float(rng.random() < means[arm]))
        lost, chance = lost + means.max() - means[arm], chance + means.max() - means.mean()
    assert lost < 0.75 * chance


@pytest.mark.parametrize("seed", [1, 2])
def test_newcomers_to_a_crowd_that_came_at_once_are_located_soon(seed: int) -> None:
    """One taste founds several models then, and newcomers are torn until these are one."""
    dim, tastes, policy = 12, 5, Atlas(12, noise=NOISE)
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(tastes, dim))
    taste /= np.linalg.norm(taste, axis=1, keepdims=True)

    def reward(user: int) -> None:
        arms = rng.normal(size=(6, dim)) / np.sqrt(dim)
        x = arms[policy.decide(user, arms).arm]
        policy.learn(user, x, float(x @ taste[user % tastes] + NOISE * rng.normal()))

    for _ in range(14):
        for user in range(300):
            reward(user)
    took = []
    for user in range(300, 400):
        took.append(0)
        while not policy.locate(user).located:
            reward(user)
            took[-1] += 1
    assert np.median(took) <= 5
    assert len(policy.models) <= tastes + 1


def test_a_newcomer_is_located_after_a_handful_of_rewards() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "a", "b") | people(TASTES[1], "c", "d"), 40)
    crowd.serve(people(TASTES[1], "early"), 6)
    home = policy.locate("c").model  # not firm yet: nobody is located there, but they believe in it
    assert home is not None
    assert policy.locate("early").belief[home] > 0.99
    crowd.serve(people(TASTES[0], "a", "b") | people(TASTES[1], "c", "d"), 60)
    crowd.serve(people(TASTES[1], "new"), 6)
    location = policy.locate("new")
    assert location.located
    assert location.model == policy.locate("c").model


def test_a_change_is_told_and_a_returner_finds_the_old_model() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    first, second = people(TASTES[0], "a", "b"), people(TASTES[1], "c", "d")
    crowd.serve(first | second, 40)
    before, other = policy.locate("a").model, policy.locate("c").model
    crowd.serve(first | second | people(TASTES[1], "a"), 12)
    crowd.serve(first | second, 12)
    moves = [(move.user, move.before, move.after) for move in policy.changes]
    assert moves == [("a", before, other), ("a", other, before)]
    assert all((move.certainty or 0) >= policy.certainty for move in policy.changes)
    assert policy.locate("a").model == before


def test_a_stray_changes_nothing() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "a", "b"), 40)
    before, home = policy.models[0].estimate, policy.locate("a").model
    assert policy.learn("a", np.ones(DIM), 1e4).surprised
    crowd.serve(people(TASTES[0], "a", "b"), 8)
    assert policy.locate("a").model == home
    assert np.linalg.norm(policy.models[0].estimate - before) < 0.1
    assert policy.changes == ()


def test_a_model_that_holds_two_tastes_is_split() -> None:
    policy = Atlas(DIM, noise=NOISE)
    near = TASTES[0] + 0.25 * TASTES[1]  # too near to be told apart by a few rewards
    Crowd(policy).serve(people(TASTES[0], "a", "b") | people(near, "c", "d"), 400)
    where = {user: policy.locate(user).model for user in "abcd"}
    assert where["a"] == where["b"] != where["c"] == where["d"]
    assert len(policy.changes) <= 1  # whoever follows another out of a mixed model seems to change


def test_forgetting_removes_a_person() -> None:
    policy = Atlas(DIM, noise=NOISE)
    Crowd(policy).serve(people(TASTES[0], "a", "b") | people(TASTES[1], "c"), 40)
    size = max(model.size for model in policy.models)
    policy.forget("a")
    assert not policy.locate("a").located
    assert max(model.size for model in policy.models) < 0.6 * size
    policy.forget("somebody never seen")
    Crowd(policy, seed=5).serve(people(TASTES[0], "a", "b"), 10)
    assert policy.locate("a").model == policy.locate("b").model


def estimate(policy: Atlas, user: str) -> FloatArray:
    home = policy.locate(user).model
    return next(model.estimate for model in policy.models if model.id == home)


def test_who_is_forgotten_takes_their_say_with_them() -> None:
    """A person a little apart pulls the model; after they left it is the others'."""
    policy = Atlas(DIM, noise=NOISE)
    others, apart = people(TASTES[0], "b", "c"), people(TASTES[0] + 0.06 * TASTES[1], "a")
    Crowd(policy).serve(others | apart, 60)
    assert len(policy.models) == 1
    before = np.linalg.norm(estimate(policy, "b") - TASTES[0])
    policy.forget("a")
    assert np.linalg.norm(estimate(policy, "b") - TASTES[0]) < 0.8 * before


def test_who_made_up_most_of_a_model_leaves_it_as_good_as_it_was() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "heavy"), 300)
    crowd.serve(people(TASTES[0], "light"), 30)
    assert policy.locate("light").model == policy.locate("heavy").model
    policy.forget("heavy")
    assert policy.models[0].size <= 30
    assert np.linalg.norm(estimate(policy, "light") - TASTES[0]) < 0.15


def test_who_is_forgotten_while_guests_are_there_leaves_sums_of_observations() -> None:
    """Whoever is on probation takes out what they brought, whatever others left with."""
    policy, rng = Atlas(DIM, noise=NOISE), np.random.default_rng(1)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "a", "b"), 20)
    assert policy.locate("a").located
    for step in range(8):  # the guest sees one direction, which the others hardly have
        x = np.eye(DIM)[0] * 3.0
        policy.learn("guest", x, float(x @ TASTES[0] + NOISE * rng.normal()))
        if step == 4:
            policy.forget("a")
    policy.forget("guest")
    models = policy._tracker.models
    for row in models.established.tolist():
        assert np.linalg.eigvalsh(models.gram[row]).min() > -1e-9
    assert np.linalg.norm(estimate(policy, "b") - TASTES[0]) < 0.2


def test_forgetting_somebody_suspected_of_a_change_empties_their_home_too() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "a", "b"), 40)
    while policy.locate("a").located:
        crowd.serve(people(-TASTES[0], "a"), 1)
    size = policy.models[0].size
    policy.forget("a")
    assert policy.models[0].size < 0.6 * size


def test_whoever_is_suspected_on_a_home_that_is_hardly_known_can_be_forgotten() -> None:
    """Their segment is all that keeps the home: when it is withdrawn, the home is gone."""
    rng = np.random.default_rng(23)
    taste, policy = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0][0], Atlas(DIM, noise=NOISE)

    def reward(user: str, off: float = 0.0) -> None:
        x = rng.normal(size=DIM) / np.sqrt(DIM)
        policy.learn(user, x, float(x @ taste + NOISE * rng.normal() + off))

    for user in ["heavy"] * 200 + ["light"] * 6:
        reward(user)
    policy.forget("heavy")
    while policy.locate("light").located:
        reward("light", 0.5)
    policy.forget("light")
    assert policy.models == ()
    assert policy.locate("light").model is None


def test_whoever_is_thought_to_be_on_a_model_that_closes_is_on_none() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "heavy"), 220)
    crowd.serve(people(TASTES[0], "new"), 2)
    assert policy.locate("new").model == policy.locate("heavy").model
    policy.forget("heavy")
    assert policy.locate("new").model is None
    crowd.serve(people(TASTES[1], "new"), 30)
    assert policy.locate("new").located


def test_a_home_that_its_last_user_left_early_is_closed() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], "heavy"), 200)
    crowd.serve(people(TASTES[0], "light"), 8)
    home = policy.locate("light").model
    policy.forget("heavy")
    assert [(model.id, model.size < 2 * DIM) for model in policy.models] == [(home, True)]
    crowd.serve(people(-TASTES[0], "light"), 30)
    assert policy.changes[0].before == home != policy.locate("light").model
    assert len(policy._tracker.models.live) == 2  # that of somebody new, and theirs


def test_forgetting_goes_into_the_file(tmp_path: Path) -> None:
    policy = Atlas(DIM, noise=NOISE)
    Crowd(policy).serve(people(TASTES[0], "margaret", "b"), 20)
    policy.forget("margaret")
    policy.save(tmp_path / "atlas")
    assert b"margaret" not in (tmp_path / "atlas").read_bytes()
    assert isinstance(dyclu.load(tmp_path / "atlas"), Atlas)


@pytest.mark.parametrize("size", [1, 7, 60])
def test_blocks_leave_the_same_policy_as_single_rewards(size: int, tmp_path: Path) -> None:
    world = replace(SMALL, rounds=80, shortest=20, longest=30).world(seed=3)
    turns = list(world)
    single, blocks = Atlas(6, noise=None), Atlas(6, noise=None)
    rng = np.random.default_rng(0)
    chosen = rng.integers(SMALL.offered, size=len(turns))
    for turn, arm in zip(turns, chosen, strict=True):
        single.learn(turn.user, turn.arms[arm], turn.reward(arm))
    for start in range(0, len(turns), size):
        part, arms = turns[start : start + size], chosen[start : start + size]
        names, tables = [turn.user for turn in part], np.array([turn.arms for turn in part])
        asked = blocks.decide_many(names, tables)
        one_by_one = [blocks.decide(user, table) for user, table in zip(names, tables, strict=True)]
        assert asked.arm.tolist() == [decision.arm for decision in one_by_one]
        assert asked.mean.tolist() == [decision.mean for decision in one_by_one]
        assert asked.width.tolist() == [decision.width for decision in one_by_one]
        contexts = tables[np.arange(len(part)), arms]
        rewards = [turn.reward(arm) for turn, arm in zip(part, arms, strict=True)]
        blocks.learn_many(names, contexts, rewards)
    single.save(tmp_path / "single")
    blocks.save(tmp_path / "blocks")
    assert single.changes
    assert (tmp_path / "single").read_bytes() == (tmp_path / "blocks").read_bytes()


def test_what_is_loaded_continues_bit_for_bit(tmp_path: Path) -> None:
    world = replace(SMALL, rounds=80, shortest=20, longest=30).world(seed=4)
    policy: Policy = Atlas(6)
    for index, turn in enumerate(world):
        if index % 97 == 0:  # in the middle of doubts, probations and merges
            policy.save(tmp_path / "kept")
            loaded = dyclu.load(tmp_path / "kept")
            loaded.save(tmp_path / "again")
            assert (tmp_path / "kept").read_bytes() == (tmp_path / "again").read_bytes()
            policy = loaded
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
    straight = Atlas(6)
    for turn in world:
        arm = straight.decide(turn.user, turn.arms).arm
        straight.learn(turn.user, turn.arms[arm], turn.reward(arm))
    policy.save(tmp_path / "broken")
    straight.save(tmp_path / "straight")
    assert (tmp_path / "broken").read_bytes() == (tmp_path / "straight").read_bytes()


def test_somebody_who_only_asks_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    for _ in range(20):
        crowd.serve(people(TASTES[0], "a", "b"), 1)
        policy.save(tmp_path / "before")
        for user in ("a", "somebody never seen"):
            policy.decide(user, np.eye(DIM))
            policy.locate(user)
        policy.save(tmp_path / "after")
        assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_what_is_loaded_continues_bit_for_bit_also_where_people_are_forgotten(
    tmp_path: Path,
) -> None:
    """A model that lost most of what it held grows by single credits, before and after loading."""
    world = replace(SMALL, rounds=60, shortest=20, longest=30).world(seed=5)
    policy, straight = Atlas(6), Atlas(6)
    for index, turn in enumerate(world):
        if index % 41 == 40:
            policy.save(tmp_path / "kept")
            policy = cast(Atlas, dyclu.load(tmp_path / "kept"))
        for one in (policy, straight):
            if index % 50 == 49:
                one.forget(index // 50 % 12)
            arm = one.decide(turn.user, turn.arms).arm
            one.learn(turn.user, turn.arms[arm], turn.reward(arm))
    policy.save(tmp_path / "broken")
    straight.save(tmp_path / "straight")
    assert (tmp_path / "broken").read_bytes() == (tmp_path / "straight").read_bytes()


def test_noise_that_is_not_told_is_found() -> None:
    policy = Atlas(DIM)
    Crowd(policy).serve(people(TASTES[0], "a", "b") | people(TASTES[1], "c"), 150)
    assert policy.noise == pytest.approx(NOISE, rel=0.1)


# Streams that mean harm; regret per round of random choice is some 0.5 here


def regret(make: Callable[[], Policy], setting: Population, seeds: int) -> float:
    """Return the sum over worlds of the regret of fresh policies."""
    worlds = map(setting.world, range(seeds))
    return sum(float(play(make(), world, look=10**6).regret.sum()) for world in worlds)


# LinUCB explores as in the paper's experiments: half as much regret as with Eq. (2)'s width.


def test_nobody_resembles_anybody() -> None:
    # The mean over 20 worlds is 0.98 times LinUCB's, and 1.06 ± 0.04 if the noise is not told.
    everyone_else = replace(SMALL, users=8, parameters=None)
    alone = regret(lambda: LinUCB(6, alpha=0.3), everyone_else, 6)
    assert regret(lambda: Atlas(6, noise=NOISE), everyone_else, 6) <= 1.05 * alone
    assert regret(lambda: Atlas(6), everyone_else, 6) <= 1.15 * alone


def test_nobody_resembles_anybody_and_nobody_tells_anyone_the_noise() -> None:
    # LinUCB estimates it too, and explores by Eq. (2).
    world = replace(SMALL, users=8, parameters=8).world(1)
    policies = Atlas(6), LinUCB(6)
    mine, alone = (play(policy, world, look=10**6).regret.sum() for policy in policies)
    assert mine <= 1.05 * alone


def test_everybody_is_alike() -> None:
    # The mean over 20 worlds is 0.94 times that of the shared LinUCB, which is told so.
    same = replace(SMALL, parameters=1)
    told = regret(lambda: LinUCB(6, alpha=0.3, shared=True), same, 8)
    assert regret(lambda: Atlas(6, noise=NOISE), same, 8) <= 1.1 * told
    assert regret(lambda: Atlas(6), same, 8) <= 1.1 * told


def test_an_exception_among_people_who_are_alike_is_found() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd = Crowd(policy)
    crowd.serve(people(TASTES[0], *"abcdefgh"), 30)
    late = crowd.serve(people(TASTES[1], "other"), 30)[15:]
    assert policy.locate("other").model != policy.locate("a").model
    assert sum(late) / len(late) < 0.02
    assert len(policy.models) == 2


@pytest.mark.parametrize(
    "stray",
    [
        lambda rng: NOISE * rng.standard_t(3),
        lambda rng: 20.0 * rng.choice([-1, 1]) if rng.random() < 0.01 else 0.0,
    ],
    ids=["student-t", "gross outliers"],
)
def test_heavy_tails_move_nobody(stray: Callable[[np.random.Generator], float]) -> None:
    policy = Atlas(DIM)
    tastes = people(TASTES[0], "a", "b") | people(TASTES[1], "c", "d")
    late = Crowd(policy).serve(tastes, 300, stray=stray)[-400:]
    assert sum(late) / len(late) < 0.02
    assert len(policy.changes) <= 3
    assert policy.noise < 4 * NOISE


@pytest.mark.parametrize("noise", [None, NOISE])
@pytest.mark.parametrize(("context", "reward"), [(1e4, 1e4), (1e5, 1e5), (1.0, 1e4), (1.0, 1e6)])
@pytest.mark.parametrize("at", [5, 15])
def test_one_gross_number_at_the_beginning_is_soon_forgotten(
    at: int, context: float, reward: float, noise: float | None
) -> None:
    """A unit mistaken, or a sensor that failed, among the first rewards; chance loses some 0.5."""
    policy, rng, lost = Atlas(DIM, noise=noise), np.random.default_rng(1), 0.0
    for step in range(1000):
        arms = rng.normal(size=(6, DIM)) / np.sqrt(DIM)
        means = arms @ TASTES[step % 2]
        arm = policy.decide(step % 4, arms).arm
        y = means[arm] + NOISE * rng.normal()
        if step == at:
            policy.learn(step % 4, context * arms[arm], reward * y)
        else:
            policy.learn(step % 4, arms[arm], y)
        lost += means.max() - means[arm]
    assert lost / 1000 < 0.05


def test_noise_told_too_small_for_contexts_that_hardly_differ() -> None:
    """What is noise in truth looks like an enormous taste along directions hardly seen."""
    policy, rng = Atlas(3, noise=1e-5), np.random.default_rng(0)
    base = rng.normal(size=3)
    for _ in range(300):
        x = base * (1.0 + 0.3 * rng.normal()) + 1e-9 * rng.normal(size=3)
        policy.learn("a", x, float(x.sum() + 0.1 * rng.normal()))
        decision = policy.decide("a", x[None, :])
        assert np.isfinite([decision.mean, decision.width]).all()
        assert abs(decision.mean) < 1e3


def test_slow_drift_is_followed() -> None:
    policy = Atlas(DIM)
    crowd, late = Crowd(policy), []
    for step in range(200):
        angle = 0.5 * np.pi * step / 200
        taste = np.cos(angle) * TASTES[0] + np.sin(angle) * TASTES[1]
        late = crowd.serve(people(taste, "a", "b"), 5)
    assert sum(late) / len(late) < 0.15


def test_somebody_who_alternates_is_followed() -> None:
    policy = Atlas(DIM, noise=NOISE)
    crowd, total = Crowd(policy), 0.0
    for block in range(12):
        total += sum(crowd.serve(people(TASTES[block % 2], "a") | people(TASTES[2], "b"), 50))
    assert 10 <= len(policy.changes) <= 13
    assert len(policy.models) == 3
    assert total / 1200 < 0.05


def test_duplicated_users_are_one_model() -> None:
    policy = Atlas(DIM, noise=NOISE)
    rng = np.random.default_rng(2)
    for _ in range(25):
        x = rng.normal(size=DIM)
        y = float(x @ TASTES[0] + NOISE * rng.normal())
        for user in ("a", "a again"):
            policy.learn(user, x, y)
    assert policy.locate("a").located
    assert policy.locate("a").model == policy.locate("a again").model is not None


@pytest.mark.parametrize("seed", range(6))
def test_an_arm_that_has_nothing_in_common_with_the_others_is_tried(seed: int) -> None:
    """One-hot arms: what nobody tried nobody knows; random choice has a regret of 1 here."""
    rng, arms = np.random.default_rng(seed), np.eye(6)
    tastes, policy = 1.0 + 0.5 * rng.normal(size=(2, 6)), Atlas(6)
    lost = chance = 0.0
    for step in range(1000):
        taste = tastes[step % 2]
        arm = policy.decide(step % 10, arms).arm
        policy.learn(step % 10, arms[arm], taste[arm] + 0.1 * rng.normal())
        lost, chance = lost + taste.max() - taste[arm], chance + taste.max() - taste.mean()
    assert lost < 0.5 * chance


@pytest.mark.parametrize("noise", [1e-150, 1e-60, 1e60, 1e150])
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e39])
def test_noise_out_of_all_proportion(noise: float, scale: float) -> None:
    policy, rng = Atlas(DIM, noise=noise), np.random.default_rng(0)
    for step in range(120):
        arms = rng.normal(size=(3, DIM))
        decision = policy.decide(step % 2, arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn(step % 2, arms[decision.arm], scale * float(arms[decision.arm].sum()))


def test_a_lag_that_nobody_could_keep_is_refused() -> None:
    with pytest.raises(OptionError, match="lag is 1000000000000, expected a whole number, 0"):
        Atlas(DIM, lag=10**12)


def test_contexts_that_never_span_the_space() -> None:
    policy, rng = Atlas(DIM), np.random.default_rng(3)
    for _ in range(200):
        x = np.concatenate((rng.normal(size=2), np.zeros(DIM - 2)))
        policy.learn("a", x, float(x @ TASTES[0] + NOISE * rng.normal()))
    decision = policy.decide("a", np.eye(DIM))
    assert np.isfinite([decision.mean, decision.width]).all()
    assert policy.decide("a", np.eye(DIM)[:1]).mean == pytest.approx(TASTES[0, 0], abs=0.05)


@pytest.mark.parametrize("constant", [0.0, 1.0, -1e30])
def test_constant_rewards(constant: float) -> None:
    policy, rng = Atlas(DIM), np.random.default_rng(4)
    for _ in range(60):
        for user in ("a", "b"):
            policy.learn(user, rng.normal(size=DIM), constant)
    decision = policy.decide("a", rng.normal(size=(4, DIM)))
    assert np.isfinite([decision.mean, decision.width]).all()


def test_one_arm() -> None:
    policy, arm = Atlas(DIM), np.full((1, DIM), 0.5)
    for reward in (1.0, 0.9, 1.1) * 20:
        assert policy.decide("a", arm).arm == 0
        policy.learn("a", arm[0], reward)
    assert policy.decide("a", arm).mean == pytest.approx(1.0, abs=0.02)
