"""Shards over a network that delays, loses and repeats messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.sharing import count_published
from dyclu import LinUCB
from dyclu.errors import CannotShare, OptionError
from dyclu.policy import Policy
from dyclu.sim import Population, play
from dyclu.sim.runs.shards import Network, play_shards
from dyclu.sim.studies.shards import compare_shards, numbers_of, table_of
from dyclu.sim.worlds.population import World

SETTING = Population(users=6, parameters=1, dim=4, arms=60, offered=5, rounds=40, noise=0.3)


@pytest.fixture(scope="module")
def world() -> World:
    return SETTING.world(seed=1)


def shards(count: int) -> Sequence[Policy]:
    return [LinUCB(4, alpha=0.3, shared=True) for _ in range(count)]


def test_one_shard_plays_as_the_policy_alone(world: World) -> None:
    alone = play(LinUCB(4, alpha=0.3, shared=True), world)
    shared = play_shards(shards(1), world, Network())
    assert shared.regret == pytest.approx(alone.regret.sum(), rel=1e-12)
    assert (shared.messages, shared.every, shared.share) == (0, 0, 0.0)


def test_messages_that_never_arrive_leave_shards_isolated(world: World) -> None:
    silent = play_shards(shards(3), world, Network(silent=True))
    lost = play_shards(shards(3), world, Network(threshold=1.0, lost=1.0))
    assert lost.regret == silent.regret
    assert lost.published > 0 == silent.published


def test_messages_that_arrive_twice_change_nothing(world: World) -> None:
    once = play_shards(shards(3), world, Network(threshold=0.1))
    assert play_shards(shards(3), world, Network(threshold=0.1, twice=1.0)) == once


def test_late_lost_and_repeated_messages_still_help(world: World) -> None:
    """One taste, 240 rewards: shards that hear of each other learn more than isolated ones."""
    network = Network(threshold=0.1, delay=10, lost=0.3, twice=0.3, seed=2)
    silent = play_shards(shards(6), world, replace(network, silent=True))
    shared = play_shards(shards(6), world, network)
    assert shared.regret < 0.8 * silent.regret
    assert play_shards(shards(6), world, network) == shared


def test_messages_count_the_publication_and_every_receiver(world: World) -> None:
    shared = play_shards(shards(3), world, Network(threshold=0.0))
    assert shared.published == shared.rewards == 240
    assert shared.messages == shared.every == 3 * 240
    assert shared.share == 1.0


def test_the_comparison_plays_the_same_worlds_and_has_errors() -> None:
    found = compare_shards(
        SETTING, ["shared-linucb"], [0, 1], shards=3, network=Network(threshold=1.0)
    )
    ways = found["shared-linucb"]
    assert list(ways) == ["one process", "3 isolated shards", "3 shards that share"]
    assert all(len(runs) == 2 for runs in ways.values())
    table = table_of(found)
    assert "±" in table.rows[0][1]
    assert table.rows[0][2] == "1.00"
    assert numbers_of(found)["shared-linucb"]["3 shards that share"][0]["messages"] > 0


def test_policies_that_cannot_share_are_refused_before_the_first_run() -> None:
    with pytest.raises(CannotShare, match="dyclu cannot share"):
        compare_shards(SETTING, ["atlas", "dyclu"], [0], shards=2, network=Network())


@pytest.mark.parametrize(
    "option", [{"delay": -1}, {"lost": 1.5}, {"twice": -0.1}, {"threshold": -1.0}]
)
def test_impossible_networks_are_refused(option: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        Network(**option)  # type: ignore[arg-type]


def test_contributions_grow_with_the_logarithm_of_rewards() -> None:
    """Each doubling of the rewards adds about ``dim · tastes · log 2 / log(1 + α)`` at most."""
    found = count_published(4, 8000, 1.0, dim=5, tastes=2)
    added = found[-1][1] - found[-2][1]
    assert found[-1][0] == 2 * found[-2][0]
    assert 0 < added <= 2 * 5 * 2
