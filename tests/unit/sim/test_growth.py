"""`dyclu.sim.growth`: who recovers from changes, and who pays until the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dyclu.sim.growth import Growth, growth_table
from dyclu.sim.paper import SETTINGS
from dyclu.sim.population import Population
from dyclu.sim.records import Result
from tests.unit.sim.samples import a_result

SETTING = Population(rounds=100, shortest=20, longest=40)


def a_run(policy: str, curve: np.ndarray, seed: int = 0) -> Result:
    run = a_result("mine", policy, seed, float(curve[-1]), rounds=100, curve=tuple(curve.tolist()))
    return replace(run, alarms_true=3, alarms_missed=1)


def test_a_straight_line_has_a_ratio_of_one() -> None:
    # From round 20 to 100 at 2 a round, whatever was before: 160 for four changes.
    curve = 50 + 2.0 * np.arange(1, 101)
    growth = Growth.of(a_run("linucb", curve), SETTING)
    assert growth.ratio == pytest.approx(1.0)
    assert growth.per_change == pytest.approx(160 / 4)


def test_what_flattens_has_less() -> None:
    # √t between rounds 20, 60 and 100.
    growth = Growth.of(a_run("dyclu", np.sqrt(np.arange(1.0, 101.0))), SETTING)
    assert growth.ratio == pytest.approx((10 - 60**0.5) / (60**0.5 - 20**0.5))


def test_who_loses_nothing_has_no_ratio() -> None:
    run = a_run("oracle", np.full(100, 5.0))
    assert Growth.of(run, SETTING).ratio is None
    assert growth_table([run], {"mine": SETTING}).rows == (("mine", "-\n(0.0 each)"),)


def test_the_table_counts_whose_regret_does_not_flatten() -> None:
    runs = [
        *(a_run("linucb", (1.0 + seed) * np.arange(1, 101), seed) for seed in range(2)),
        a_run("dyclu", np.sqrt(np.arange(1.0, 101.0))),
    ]
    table = growth_table(runs, {"mine": SETTING})
    assert table.header == ("setting", "linucb", "dyclu")
    assert table.rows == (("mine", "1.00 ± 0.00\n(30.0 each)", "0.69 ± n/a\n(1.4 each)"),)
    assert "At least 0.9, of 1 setting: linucb in 1, dyclu in 0." in table.note


def test_nobody_is_judged_where_nobody_changes() -> None:
    runs = [replace(a_run("linucb", np.arange(1.0, 101.0)), setting="env1")]
    assert growth_table(runs, {"env1": SETTINGS["env1"]}).rows == ()
