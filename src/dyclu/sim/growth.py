"""What changes cost: whether regret flattens after the first of them, and what is paid for each.

A policy that recovers from a change pays for it once; one that does not pays in every round from
then on, and its regret grows linearly. So the time from the first change on is cut in half, and the
slope of regret in its second half divided by that in the first: under 1 it flattens. Changes that
keep coming keep any regret growing, so beside it stands what was paid per change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from dyclu.sim.document import NOTHING, Table, counted
from dyclu.sim.population import Population
from dyclu.sim.records import Result, checkpoints
from dyclu.sim.spread import Spread, by_setting

STRAIGHT = 0.9
"""The least ratio of slopes of regret that does not flatten."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How regret grows after the first change.

    Attributes
    ----------
    ratio : float or None
        Slope in the second half of that time by the slope in the first; None if that is 0.
    per_change : float or None
        Regret in that time by the number of all changes; None without any.
    """

    ratio: float | None
    per_change: float | None

    @classmethod
    def of(cls, run: Result, setting: Population) -> Growth:
        """Return the growth of a run in a setting where users change."""
        ends = np.linspace(setting.shortest, setting.rounds, 3)
        start, middle, end = np.interp(ends, checkpoints(run.rounds), run.curve).tolist()
        changes = run.alarms_true + run.alarms_missed
        return cls(
            ratio=(end - middle) / (middle - start) if middle > start else None,
            per_change=(end - start) / changes if changes else None,
        )


def growth_table(results: Sequence[Result], settings: Mapping[str, Population]) -> Table:
    """Return the growth of regret of every policy in every setting where users change."""
    changing = {name: one for name, one in settings.items() if one.shortest < one.rounds}
    growths = {
        setting: {
            policy: [Growth.of(run, changing[setting]) for run in runs]
            for policy, runs in row.items()
        }
        for setting, row in by_setting(results).items()
        if setting in changing
    }
    policies = list(dict.fromkeys(policy for row in growths.values() for policy in row))
    rows = [
        (setting, *(_cell(row.get(policy, ())) for policy in policies))
        for setting, row in growths.items()
    ]
    straight = [f"{policy} in {_straight(policy, growths)}" for policy in policies]
    note = (
        "The time from the first possible change to the end is cut in half: the slope of regret "
        "in the second half by that in the first, mean over seeds ± its standard error. In "
        "brackets the regret of that time by the number of changes. Who does not recover from a "
        "change pays until the end: a ratio that is not under 1, and much per change. "
        f"At least {STRAIGHT:g}, of {counted(growths, 'setting')}: {', '.join(straight)}."
    )
    return Table(header=("setting", *policies), rows=tuple(rows), note=note)


def _cell(growths: Sequence[Growth]) -> str:
    paid = [growth.per_change for growth in growths if growth.per_change is not None]
    each = f"\n({fmean(paid):,.1f} each)" if paid else ""
    return f"{_ratio(growths) or NOTHING}{each}"


def _ratio(growths: Sequence[Growth]) -> Spread | None:
    known = [growth.ratio for growth in growths if growth.ratio is not None]
    return Spread.of(known) if known else None


def _straight(policy: str, growths: Mapping[str, Mapping[str, Sequence[Growth]]]) -> int:
    ratios = [_ratio(row[policy]) for row in growths.values() if policy in row]
    return sum(ratio is not None and ratio.mean >= STRAIGHT for ratio in ratios)
