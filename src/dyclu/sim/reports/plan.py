"""A `Plan` as numbers for JSON, as tables and as a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dyclu.core.planning import POWERS, Plan
from dyclu.errors import MissingExtra
from dyclu.plots.drawing import INK, LINES, arrange, canvas, drawing, write_png
from dyclu.sim.reports.document import Table
from dyclu.validation import Ids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUANTITIES = {
    "surprise": "chance that a reward surprises once its user has changed",
    "surprises_needed": "surprises in a full window that ring the alarm",
    "delay": "rounds from a change to the last surprise needed, on average",
    "false_alarm": "chance that a full window rings for nothing",
    "window_wanted": "least window that is sure to notice, by Lemma 7",
    "comparable_after": "observations of each of two users before they can be compared",
}
"""Properties of a plan that are reported, with their description."""

CURVE_ROWS, CURVE_POINTS = 12, 200
"""Rows of the table of powers, and points of their curves."""


def plan_numbers(plan: Plan) -> dict[str, Any]:
    """Return the numbers of a plan, ready for JSON; None where something never happens."""
    return {
        "plan": asdict(plan),
        **{name: _finite(getattr(plan, name)) for name in QUANTITIES},
        "alarm_within_window": plan.alarm_within(plan.window),
        "observations": [
            {
                "power": power,
                "each": plan.observations_for(power),
                "against_group": plan.observations_for(power, partner=math.inf),
            }
            for power in POWERS
        ],
        "power": [
            {
                "observations": n,
                "each": plan.power(n),
                "against_group": plan.power(n, partner=math.inf),
            }
            for n in _horizon(plan, CURVE_ROWS).tolist()
        ],
    }


def plan_tables(numbers: Mapping[str, Any]) -> tuple[Table, Table, Table]:
    """Return `plan_numbers` as three tables: the alarm, the observations needed, the power."""
    window = numbers["plan"]["window"]
    alarm = [
        *((text, _number_text(numbers[name])) for name, text in QUANTITIES.items()),
        (
            f"chance that the alarm rings within a window ({window} rounds) of a change",
            _number_text(numbers["alarm_within_window"]),
        ),
    ]
    needed = [
        (f"{row['power']:.0%}", _count_text(row["each"]), _count_text(row["against_group"]))
        for row in numbers["observations"]
    ]
    powers = [
        (f"{row['observations']:,}", f"{row['each']:.3f}", f"{row['against_group']:.3f}")
        for row in numbers["power"]
    ]
    partners = ("two such users", "against a well-known group")
    return (
        Table(header=("what to expect", ""), rows=tuple(alarm)),
        Table(header=("told apart with chance", *partners), rows=tuple(needed)),
        Table(header=("observations of a user", *partners), rows=tuple(powers)),
    )


def plan_figure(plan: Plan) -> Figure:
    """Draw the probabilities of distinguishing two users, and of detecting a change in time."""
    with drawing():
        drawn = canvas(6.4)
        above, below = drawn.subplots(2)
        _draw_powers(above, plan)
        _draw_alarms(below, plan)
        for axes in (above, below):
            axes.set(ylim=(-0.03, 1.03), xlim=0)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(handlelength=3)
        arrange(drawn)
    return drawn


def write_plan_figure(plan: Plan, path: Path, *, warn: Callable[[str], object]) -> list[Path]:
    """Write the figure of a plan as PNG; without matplotlib, call `warn` and write nothing."""
    try:
        write_png(plan_figure(plan), path)
    except MissingExtra as missing:
        warn(str(missing))
        return []
    return [path]


def _horizon(plan: Plan, count: int) -> Ids:
    """Return numbers of observations, from 1 to 1.25 times as many as the highest power needs."""
    reached = (plan.observations_for(power) for power in reversed(POWERS))
    enough = max(next(filter(None, reached), 0), plan.comparable_after)
    return np.unique(np.linspace(1, 1.25 * enough, count).round().astype(np.intp))


def _draw_powers(axes: Axes, plan: Plan) -> None:
    observations = _horizon(plan, CURVE_POINTS)
    partners = (
        ("two such users", 0.0, LINES[2]),
        ("against a well-known group", math.inf, LINES[1]),
    )
    for label, partner, (colour, dashes) in partners:
        power = plan.power_curve(observations.astype(float), partner=partner)
        axes.plot(observations, power, color=colour, linestyle=dashes, label=label)
    first = plan.comparable_after
    axes.axvline(first, color=INK, linewidth=1, alpha=0.5, label=f"first comparable: {first}")
    axes.set(
        title=f"Telling apart users {plan.separation:g} apart",
        xlabel="observations of each user",
        ylabel="chance of telling them apart",
    )


def _draw_alarms(axes: Axes, plan: Plan) -> None:
    rounds = range(plan.window + 1)
    users = (
        ("a user who has changed", None, LINES[2]),
        ("anybody else", plan.change_level, LINES[0]),
    )
    for label, surprise, (colour, dashes) in users:
        chances = [plan.alarm_within(count, surprise=surprise) for count in rounds]
        axes.plot(rounds, chances, color=colour, linestyle=dashes, label=label)
    axes.set(
        title=f"Noticing a change, with a window of {plan.window}",
        xlabel="rounds since the change",
        ylabel="chance of an alarm by then",
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _number_text(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g}"


def _count_text(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"
