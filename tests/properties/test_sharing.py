"""Shards that share: what arrives, in whatever order, leads to the same state (theory §11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dyclu
from dyclu import Atlas, Contribution, LinUCB, Registry
from dyclu.validation import FloatArray

DIM, NOISE = 3, 0.1
SHARDS = ("a", "b", "c")
TASTES = np.random.default_rng(3).normal(size=(3, DIM))


def teach(policy: Atlas | LinUCB, shard: str, rounds: int, seed: int = 0) -> None:
    """Let four users of a shard give rewards, two tastes among them."""
    rng = np.random.default_rng([seed, SHARDS.index(shard)])
    for turn in range(rounds):
        user = turn % 4
        x = rng.normal(size=DIM)
        y = x @ TASTES[(user + SHARDS.index(shard)) % 3] + NOISE * rng.normal()
        policy.learn(f"{shard}{user}", x, y)


def make(kind: str) -> Atlas | LinUCB:
    return Atlas(DIM) if kind == "atlas" else LinUCB(DIM, shared=True)


def published(kind: str) -> list[Contribution]:
    """Return what shards b and c publish in the course of 160 rewards each, all versions."""
    every = []
    for shard in "bc":
        policy, known = make(kind), Registry()
        for part in range(8):
            teach(policy, shard, 20, seed=part)
            for one in policy.contributions(shard, since=known, threshold=0.5):
                known.add(one)
                every.append(one)
    return every


@pytest.fixture(scope="module", params=["atlas", "linucb"])
def exchange(request: pytest.FixtureRequest) -> tuple[str, list[Contribution]]:
    return request.param, published(request.param)


def state(policy: Atlas | LinUCB, folder: Path) -> bytes:
    policy.save(folder / "policy")
    return (folder / "policy").read_bytes()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_subset_in_any_order_and_then_all_gives_the_same_state(
    exchange: tuple[str, list[Contribution]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    kind, every = exchange
    folder, policies = tmp_path_factory.mktemp("states"), (make(kind), make(kind))
    for policy in policies:
        teach(policy, "a", 40)
    some = data.draw(st.lists(st.sampled_from(every)))
    for one in some:
        policies[1].absorb([one], shard="a")
    policies[1].absorb(data.draw(st.permutations(every)), shard="a")
    policies[0].absorb(every, shard="a")
    assert state(policies[0], folder) == state(policies[1], folder)
    for policy in policies:
        teach(policy, "a", 12, seed=1)
    assert state(policies[0], folder) == state(policies[1], folder)
    for policy in policies:
        policy.absorb(some, shard="a")
    assert state(policies[0], folder) == state(policies[1], folder)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_was_lost_the_registry_of_what_was_published_makes_up_for_it(
    exchange: tuple[str, list[Contribution]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    kind, every = exchange
    folder, policies = tmp_path_factory.mktemp("states"), (make(kind), make(kind))
    policies[0].absorb(every, shard="a")
    policies[1].absorb(data.draw(st.lists(st.sampled_from(every))), shard="a")
    policies[1].absorb(Registry(every), shard="a")
    for policy in policies:
        teach(policy, "a", 4)
    assert state(policies[0], folder) == state(policies[1], folder)


def test_a_lost_message_that_a_model_is_gone_counts_twice_until_it_is_sent_again() -> None:
    """Two models merge; the sum of both arrives, and the news that one of them is gone does not."""
    left, right = (
        Contribution("b", model, 0, "atlas-real", 50 * np.eye(DIM + 1), np.ones(DIM + 1), 0.0, 50)
        for model in range(2)
    )
    both = replace(left, gram=left.gram + right.gram, moment=2 * left.moment, count=100)
    said, here = Registry([left, right, both, Contribution.gone(right)]), Atlas(DIM, noise=NOISE)
    here.absorb([left, right, both], shard="a")
    assert sum(one.count for one in here._inference.sharing.registry) == 150
    assert here.absorb(said, shard="a") == 1
    assert sum(one.count for one in here._inference.sharing.registry) == 100


def test_a_saved_policy_with_pending_contributions_continues_bit_for_bit(
    exchange: tuple[str, list[Contribution]], tmp_path: Path
) -> None:
    kind, every = exchange
    policy = make(kind)
    for number, one in enumerate(every):
        teach(policy, "a", 8, seed=number)
        policy.absorb([one], shard="a")
        policy.save(tmp_path / "saved")
        loaded = dyclu.load(tmp_path / "saved")
        assert isinstance(loaded, Atlas | LinUCB)
        for each in (policy, loaded):
            teach(each, "a", 4, seed=100 + number)
        assert state(loaded, tmp_path) == state(policy, tmp_path)


def test_contributions_change_nothing(
    exchange: tuple[str, list[Contribution]], tmp_path: Path
) -> None:
    kind, every = exchange
    policy = make(kind)
    teach(policy, "a", 60)
    policy.absorb(every, shard="a")
    before = state(policy, tmp_path)
    policy.contributions("a", threshold=0.0)
    assert state(policy, tmp_path) == before


def gathered(contributions: Sequence[Contribution]) -> tuple[FloatArray, float]:
    return sum(c.gram for c in contributions), sum(c.count for c in contributions)  # type: ignore[return-value]


def test_what_is_published_after_absorbing_is_the_own_part_only(
    exchange: tuple[str, list[Contribution]],
) -> None:
    """A shard that has absorbed publishes as many own observations as it has learnt, at most."""
    kind, every = exchange
    policy = make(kind)
    policy.absorb(every, shard="a")
    teach(policy, "a", 120)
    mine = policy.contributions("a", threshold=0.0)
    assert mine
    assert all(one.shard == "a" for one in mine)
    _, count = gathered(mine)
    assert 60 < count <= 120 + 1e-6


def test_linear_shards_that_hear_everything_have_the_model_of_one_process() -> None:
    """FedLinUCB with threshold 0 is LinUCB: the sums are the same, up to the order of additions."""
    whole, parts = (
        LinUCB(DIM, shared=True, alpha=0.5),
        {s: LinUCB(DIM, shared=True, alpha=0.5) for s in SHARDS},
    )
    said = {shard: Registry() for shard in SHARDS}
    rng = np.random.default_rng(1)
    for turn in range(60):
        shard, x, y = SHARDS[turn % 3], rng.normal(size=DIM), rng.normal()
        for policy in (whole, parts[shard]):
            policy.learn("ana", x, y)
        news = parts[shard].contributions(shard, since=said[shard], threshold=0.0)
        assert [said[shard].add(one) for one in news] == [True]
        for other in SHARDS:
            parts[other].absorb(news, shard=other)
    x, y = rng.normal(size=DIM), rng.normal()
    for policy in (whole, parts["b"]):
        policy.learn("ana", x, y)
    arms = rng.normal(size=(4, DIM))
    a, b = whole.decide("ana", arms), parts["b"].decide("ana", arms)
    assert a.arm == b.arm
    assert np.allclose([a.mean, a.width], [b.mean, b.width], rtol=1e-9)


def test_a_linear_shard_speaks_when_the_determinant_has_grown() -> None:
    """With λ = 1 and contexts (1): det = 1 + n. α = 0.99 waits until it has nearly doubled."""
    policy, said, spoke = LinUCB(1, ridge=1.0, shared=True), Registry(), []
    for n in range(1, 17):
        policy.learn("ana", [1.0], 1.0)
        for one in policy.contributions("a", since=said, threshold=0.99):
            said.add(one)
            spoke.append(n)
    assert spoke == [1, 3, 7, 15]


def test_a_taste_that_another_shard_knows_becomes_a_model_with_its_evidence() -> None:
    there, here = Atlas(DIM, noise=NOISE), Atlas(DIM, noise=NOISE)
    teach(there, "b", 200)
    said = there.contributions("b")
    here.absorb(said, shard="a")
    here.learn("a0", np.ones(DIM), 0.0)
    assert len(here.models) == len(said) == len(there.models)
    ours = sorted(model.estimate.tolist() for model in here.models)
    theirs = sorted(model.estimate.tolist() for model in there.models)
    assert np.allclose(ours, theirs, atol=0.05)


def test_models_founded_twice_are_matched_and_their_sums_added() -> None:
    """Both shards have learnt the same two tastes: no new models, and the counts add up."""
    there, here = Atlas(DIM, noise=NOISE), Atlas(DIM, noise=NOISE)
    teach(there, "b", 200)
    teach(here, "b", 200, seed=9)
    before, said = here.models, there.contributions("b")
    here.absorb(said, shard="a")
    here.learn("b0", np.ones(DIM), float(TASTES[1].sum()))
    assert [model.id for model in here.models] == [model.id for model in before]
    total = sum(model.size for model in before) + sum(one.count for one in said)
    assert abs(sum(model.size for model in here.models) - total - 1) <= len(before)


def test_a_model_that_is_gone_is_taken_out_and_a_newer_sum_replaces_the_old_one() -> None:
    there, here = Atlas(DIM, noise=NOISE), Atlas(DIM, noise=NOISE)
    teach(there, "b", 200)
    first = there.contributions("b")
    teach(there, "b", 200, seed=5)
    second = there.contributions("b", since=first, threshold=0.0)
    sharing, tastes = here._inference.sharing, here._inference.tastes
    for some in (first, second, [Contribution.gone(one) for one in Registry([*first, *second])]):
        here.absorb(some, shard="a")
        here.learn("a0", np.zeros(DIM), 0.0)
        newest = {one.key: one for one in sharing.registry if one.count}
        foreign = sum(one.gram for _, one in sharing.placed.values())
        assert np.allclose(foreign, sum(one.gram for one in newest.values()))
        own = sum(sharing.own(int(row), tastes).count for row in tastes.rows[1:])
        assert own <= 3.0 + 1e-9
    assert not sharing.placed


def test_a_shard_says_what_is_gone_and_begins_an_epoch_when_it_knows_less() -> None:
    policy = Atlas(DIM, noise=NOISE)
    teach(policy, "b", 200)
    first = Registry(policy.contributions("b"))
    for user in policy.users:
        policy.forget(user)
    second = policy.contributions("b", since=first, threshold=0.0)
    assert {one.model for one in second} == {one.model for one in first}
    assert all(one.epoch == 1 for one in second)
    # All that is left is what located users have brought before their memory began.
    assert sum(one.count for one in second) < sum(one.count for one in first)


def test_nothing_is_news_right_after_it_was_published() -> None:
    policy = Atlas(DIM, noise=NOISE)
    teach(policy, "b", 100)
    said = policy.contributions("b")
    assert said
    assert policy.contributions("b", since=said) == ()


def test_threshold_0_publishes_every_change_and_nothing_else() -> None:
    """What another shard brings changes the own part by rounding, which is not news."""
    policy, there = Atlas(DIM, noise=NOISE), Atlas(DIM, noise=NOISE)
    teach(policy, "b", 100)
    said = Registry(policy.contributions("b", threshold=0.0))
    assert len(said) == len(policy.models)
    assert policy.contributions("b", since=said, threshold=0.0) == ()
    teach(there, "c", 100)
    policy.absorb(there.contributions("c"), shard="b")
    policy._inference.sharing.fold(policy._inference.tastes, policy._inference.population)
    assert policy._inference.sharing.placed
    assert policy.contributions("b", since=said, threshold=0.0) == ()
    teach(policy, "b", 4, seed=1)
    assert policy.contributions("b", since=said, threshold=0.0)


def test_a_merger_takes_nothing_away_from_other_shards() -> None:
    """Two models of 400 rewards merge: the determinant of the survivor grows by 8, less than 21."""
    there, here, rng = Atlas(2, noise=NOISE), Atlas(2, noise=NOISE), np.random.default_rng(0)
    for turn in range(800):
        x = rng.normal(size=2)
        there.learn(f"b{turn % 2}", x, x @ TASTES[turn % 2, :2] + NOISE * rng.normal())
    sharing, said = here._inference.sharing, Registry(there.contributions("b", threshold=0.0))
    here.absorb(said, shard="a")
    here.learn("a0", np.zeros(2), 0.0)
    before = sum(one.count for _, one in sharing.placed.values())
    assert before == pytest.approx(800, abs=1)
    into, other = there._inference.tastes.rows[1:].tolist()
    there._upkeep._merge(into, other)
    news = there.contributions("b", since=said, threshold=20.0)
    assert [one.count > 0.0 for one in news] == [True, False]
    for one in news:
        here.absorb([one], shard="a")
        here.learn("a0", np.zeros(2), 0.0)
        assert sum(one.count for _, one in sharing.placed.values()) >= before - 1e-6
    assert sum(one.count for one in sharing.registry) == pytest.approx(before)
    assert there.contributions("b", since=[*said, *news]) == ()


def test_clicks_and_real_rewards_are_not_added_up() -> None:
    """Levels of clicks are log odds: a shard of real rewards keeps them, and does not use them."""
    there, here = Atlas(DIM, rewards="binary"), Atlas(DIM, rewards="real")
    for turn in range(200):
        there.learn("ana", np.eye(DIM)[turn % DIM], float(turn % DIM == 0))
    here.absorb(there.contributions("b"), shard="a")
    here.learn("a0", np.ones(DIM), 0.3)
    assert not here._inference.sharing.placed
    assert not here._inference.sharing.pending


@pytest.mark.parametrize("kind", ["atlas", "linucb"])
def test_withdrawing_leaves_the_own_sums_and_the_same_can_be_absorbed_again(
    kind: str, tmp_path: Path
) -> None:
    there, here, alone = make(kind), make(kind), make(kind)
    teach(there, "b", 100)
    said = there.contributions("b", threshold=0.0)
    teach(here, "c", 40)
    own = Registry(here.contributions("c", threshold=0.0))
    here.absorb(said, shard="c")
    here.learn("c0", np.zeros(DIM), 0.0)
    before = state(alone, tmp_path)
    alone.withdraw()
    assert state(alone, tmp_path) == before
    here.withdraw()
    # The reward in between had no features: it adds to the count, and to the square of the 1.
    left = {one.model: one for one in here.contributions("c", threshold=0.0)}
    for one in own:
        now = left[one.model]
        assert np.allclose(now.gram[:DIM, :DIM], one.gram[:DIM, :DIM])
        assert np.allclose(now.moment[:DIM], one.moment[:DIM])
    if kind == "linucb":
        alike = make(kind)
        teach(alike, "c", 40)
        x = [1.0, 0.5, -0.2]
        assert np.isclose(here.decide("new", [x]).mean, alike.decide("new", [x]).mean)
    assert here.absorb(said, shard="c") == len(said)
    # What was withdrawn is not in what is saved.
    here.withdraw()
    there.withdraw()
    data = state(here, tmp_path)
    assert not any(one.gram.tobytes() in data for one in said)
