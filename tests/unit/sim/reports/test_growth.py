"""`dyclu.sim.reports.growth`: growth of regret after changes, and its table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dyclu.sim.reports.growth import LINEAR, Growth, growth_table, rounds_since_change
from dyclu.sim.runs.jobs import Job
from dyclu.sim.runs.results import Result, checkpoints
from dyclu.sim.worlds.paper import SETTINGS
from dyclu.sim.worlds.population import Population
from tests.unit.sim.samples import a_result

SETTING = Population(users=3, parameters=4, rounds=100, shortest=20, longest=60)
SINCE_CHANGE = rounds_since_change(SETTING, 0)


def a_run(policy: str, curve: np.ndarray, seed: int = 0) -> Result:
    return a_result("mine", policy, seed, float(curve[-1]), rounds=100, curve=tuple(curve.tolist()))


def test_rounds_after_a_first_change_are_counted_by_user() -> None:
    truth = SETTING.world(0).truth
    expected = [
        sum(bool((truth[user, : time + 1] != truth[user, 0]).any()) for user in range(3))
        for time in range(100)
    ]
    np.testing.assert_array_equal(SINCE_CHANGE, np.cumsum(expected))
    assert SINCE_CHANGE[-1] > 0


def test_constant_regret_per_round_has_a_ratio_of_one() -> None:
    growth = Growth.of(a_run("linucb", 50 + 0.2 * SINCE_CHANGE), SETTING)
    assert growth is not None
    assert growth.ratio == pytest.approx(1.0, abs=0.01)
    assert growth.per_round == pytest.approx(0.2)


def test_regret_that_stops_has_a_smaller_ratio() -> None:
    growth = Growth.of(a_run("dyclu", np.minimum(SINCE_CHANGE, 12.0)), SETTING)
    assert growth is not None
    assert growth.ratio == 0
    assert growth.per_round == pytest.approx(12 / SINCE_CHANGE[-1])


def test_no_regret_has_no_ratio() -> None:
    run = a_run("oracle", np.full(100, 5.0))
    assert growth_table([run], {"mine": SETTING}).rows == (("mine", "-\n(0 a round)"),)


def test_the_note_counts_settings_with_linear_regret() -> None:
    runs = [
        *(
            a_run("linucb", (1 + seed) * rounds_since_change(SETTING, seed), seed)
            for seed in (0, 1)
        ),
        a_run("dyclu", np.minimum(SINCE_CHANGE, 12.0)),
    ]
    table = growth_table(runs, {"mine": SETTING})
    assert table.header == ("setting", "linucb", "dyclu")
    assert table.rows[0][1].endswith("\n(1.5 a round)")
    assert f"At least {LINEAR:g}, of 1 setting: linucb in 1, dyclu in 0." in table.note


def test_settings_without_changes_are_left_out() -> None:
    runs = [replace(a_run("linucb", np.arange(1.0, 101.0)), setting="env1")]
    still = replace(SETTINGS["env1"], rounds=100)
    assert growth_table(runs, {"env1": still}).rows == ()


def test_linucb_has_a_larger_ratio_than_dyclu_in_a_population() -> None:
    """Users change once or twice: the regret of LinUCB stays linear, that of DyClu does not."""
    setting = Population(
        users=20, parameters=5, dim=8, arms=200, offered=8, rounds=400, shortest=80, longest=400
    )
    assert len(checkpoints(400)) == 250
    linucb, dyclu = (Growth.of(Job(setting, name).run(), setting) for name in ("linucb", "dyclu"))
    assert linucb is not None
    assert dyclu is not None
    assert linucb.ratio is not None
    assert dyclu.ratio is not None
    assert linucb.ratio > 0.65
    assert linucb.ratio > dyclu.ratio + 0.1
    assert linucb.per_round > 5 * dyclu.per_round
