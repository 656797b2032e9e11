"""Runs with known results, which show an unintended change of a policy's numbers."""

from __future__ import annotations

import pytest

from dyclu import policies
from dyclu.sim import Population, play, summary
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.runs.jobs import POLICY_VERSIONS, RESULT_VERSION
from dyclu.sim.worlds.paper import PUBLISHED, SETTINGS

SMALL = Population(
    users=12, parameters=3, dim=6, arms=200, offered=8, rounds=150, shortest=50, longest=80
)

SHORT: dict[str, dict[str, int]] = {"adts": {"window": 20, "interval": 5}}
"""Options of policies that would detect no change in so few rounds with their defaults."""

GOLDEN = {  # regret and alarms
    "uniform": (994.459317, 0),
    "linucb": (434.963875, 0),
    "shared-linucb": (535.066283, 0),
    "discounted-linucb": (384.76267, 0),
    "sliding-linucb": (440.071493, 0),
    "random-effects": (531.685170, 0),
    "dlinucb": (227.686852, 20),
    "adts": (301.690454, 14),
    "club": (618.481448, 0),
    "sclub": (603.019528, 0),
    "codband": (124.054472, 21),
    "dyclu": (133.459702, 21),
    "atlas": (55.873037, 23),
}


GOLDEN_VERSION = 5, {"atlas": 2, "random-effects": 1}
"""The `RESULT_VERSION` and `POLICY_VERSIONS` of these figures."""

CHANGED = (
    "the numbers of {name} changed, so stored results are out of date: if the change is intended, "
    "raise its number in POLICY_VERSIONS in dyclu.sim.runs.jobs, so that sweeps run it again, and "
    "put the new figures and the new version here"
)


@pytest.mark.parametrize("name", policies.names())
def test_regret_and_alarms_in_a_small_world_are_unchanged(name: str) -> None:
    policy = policies.make(name, SMALL.dim, **SHORT.get(name, {}))
    found = summary(play(policy, SMALL.world(seed=1)))
    regret, alarms = GOLDEN[name]
    assert found.regret == pytest.approx(regret, rel=1e-6), CHANGED.format(name=name)
    assert found.alarms_true + found.alarms_false == alarms, CHANGED.format(name=name)


def test_golden_figures_belong_to_the_current_result_version() -> None:
    assert (RESULT_VERSION, POLICY_VERSIONS) == GOLDEN_VERSION, "put the new figures here"


@pytest.mark.long
def test_regret_in_row_one_of_table_one_equals_the_published_one() -> None:
    # One seed of the row; results of other seeds differ by about 3 %.
    world = SETTINGS["row1"].world(seed=0)
    found = summary(play(contestant("dyclu", world), world, look=100))
    assert found.regret == pytest.approx(PUBLISHED["row1"]["dyclu"], rel=0.15)
    assert found.alarms_missed <= 3
    assert found.alarms_false <= 5


@pytest.mark.long
def test_regret_of_adts_in_row_one_of_table_one_equals_the_published_one() -> None:
    # As published, except for the observations kept after a change: docs/decisions/010.
    world = SETTINGS["row1"].world(seed=0)
    found = summary(play(contestant("adts", world), world, look=2500))
    assert found.regret == pytest.approx(PUBLISHED["row1"]["adts"], rel=0.15)
