"""`dyclu.sim.reports.plan`: numbers, tables and figure of a plan."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dyclu.core.planning import POWERS, Plan
from dyclu.sim.reports.plan import plan_figure, plan_numbers, plan_tables

PLAN = Plan(dim=5, noise=0.2, separation=1.0)


def test_plan_numbers_are_the_properties_of_the_plan() -> None:
    numbers = plan_numbers(PLAN)
    assert numbers["delay"] == PLAN.delay
    assert numbers["window_wanted"] == PLAN.window_wanted
    assert numbers["alarm_within_window"] == PLAN.alarm_within(PLAN.window)
    for row, power in zip(numbers["observations"], POWERS, strict=True):
        assert row["each"] == PLAN.observations_for(power)
        assert row["against_group"] == PLAN.observations_for(power, partner=math.inf)
    for row in numbers["power"]:
        assert row["each"] == PLAN.power(row["observations"])
    assert numbers["power"][-1]["each"] > POWERS[-1]


def test_a_delay_that_never_ends_is_none_in_json_and_never_in_the_table() -> None:
    # In a window of one reward, no number of surprises raises the alarm.
    numbers = plan_numbers(replace(PLAN, window=1, window_delta=0.01))
    assert numbers["delay"] is None
    assert numbers["surprises_needed"] is None
    cells = {row[0]: row[1] for row in plan_tables(numbers)[0].rows}
    assert cells["surprises in a full window that ring the alarm"] == "never"


def test_users_that_cannot_be_distinguished_need_never_as_observations() -> None:
    hopeless = replace(PLAN, noise=1e6, separation=1e-6)
    numbers = plan_numbers(hopeless)
    assert {row["each"] for row in numbers["observations"]} == {None}
    assert plan_tables(numbers)[1].rows[0] == ("50%", "never", "never")
    assert plan_figure(hopeless).axes


def test_plan_tables_contain_the_numbers() -> None:
    numbers = plan_numbers(PLAN)
    _, needed, powers = plan_tables(numbers)
    assert needed.rows[1][:2] == ("90%", str(PLAN.observations_for(0.9)))
    assert len(powers.rows) == len(numbers["power"])


def test_the_picture_of_a_plan_is_its_power() -> None:
    above, below = plan_figure(PLAN).axes
    line = above.lines[0]
    observations = np.asarray(line.get_xdata(), dtype=float)
    assert np.array_equal(np.asarray(line.get_ydata()), PLAN.power_curve(observations))
    assert np.asarray(below.lines[0].get_ydata())[-1] == PLAN.alarm_within(PLAN.window)
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in (above, below))
