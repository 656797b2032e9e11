"""What changes cost: whether regret goes on growing after them, and how fast.

A policy that does not recover from a change pays in every round from then on: its regret is linear
in the rounds that users have lived since their own first change. These are counted over all users,
and cut in two halves of equally many. The regret in the later half by that in the earlier is 1 for
who never recovers, and less for who does; changes that keep coming bring it towards 1 for anybody.
So beside it stands how much regret such a round costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np

from dyclu.sim.reports.document import NOTHING, Table, counted
from dyclu.sim.reports.spread import Spread, by_setting
from dyclu.sim.runs.results import Result, checkpoints
from dyclu.sim.worlds.population import Population
from dyclu.validation import FloatArray

STRAIGHT = 0.9
"""The least ratio of regret that goes on growing."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How regret grows once users have changed.

    Attributes
    ----------
    ratio : float or None
        Regret in the later half of the rounds after a first change by that in the earlier half;
        None if that is 0.
    per_round : float
        Regret by the number of these rounds, of all users.
    """

    ratio: float | None
    per_round: float

    @classmethod
    def of(cls, run: Result, setting: Population) -> Growth | None:
        """Return the growth of a run; None where nobody changed."""
        times = checkpoints(run.rounds)
        lived = lived_since_change(setting, run.seed)[times - 1]
        if lived[-1] == 0:
            return None
        start = float(np.interp(setting.shortest, times, run.curve))
        middle, end = float(np.interp(lived[-1] / 2, lived, run.curve)), run.curve[-1]
        ratio = (end - middle) / (middle - start) if middle > start else None
        return cls(ratio, (end - start) / float(lived[-1]))


@lru_cache(maxsize=64)
def lived_since_change(setting: Population, seed: int) -> FloatArray:
    """Return how many rounds, of all users, lie behind a first change, after each round per user.

    >>> setting = Population(users=2, rounds=6, shortest=4, longest=4)
    >>> lived_since_change(setting, 0)
    array([0., 0., 0., 0., 2., 4.])
    """
    truth = setting.world(seed).truth
    changed = np.logical_or.accumulate(truth != truth[:, :1], axis=1)
    return np.cumsum(changed.sum(axis=0), dtype=np.float64)


def growth_table(results: Sequence[Result], settings: Mapping[str, Population]) -> Table:
    """Return the growth of regret of every policy in every setting where users change."""
    growths = {
        setting: {policy: _growths(runs, settings[setting]) for policy, runs in row.items()}
        for setting, row in by_setting(results).items()
        if setting in settings
    }
    growths = {setting: row for setting, row in growths.items() if any(row.values())}
    policies = list(dict.fromkeys(policy for row in growths.values() for policy in row))
    rows = [
        (setting, *(_cell(row.get(policy, ())) for policy in policies))
        for setting, row in growths.items()
    ]
    straight = [f"{policy} in {_straight(policy, growths)}" for policy in policies]
    note = (
        "Of the rounds that users have lived since their own first change: the regret in the later "
        "half by that in the earlier, mean over seeds ± its standard error, and in brackets the "
        "regret of such a round. Near 1 it goes on growing linearly. "
        f"At least {STRAIGHT:g}, of {counted(growths, 'setting')}: {', '.join(straight)}. "
        "Where changes keep coming nobody's regret stops; what a round costs then tells more. "
        "Where a user changes once, late, even a model that never forgets comes round in the end."
    )
    return Table(header=("setting", *policies), rows=tuple(rows), note=note)


def _growths(runs: Sequence[Result], setting: Population) -> list[Growth]:
    return [found for run in runs if (found := Growth.of(run, setting)) is not None]


def _cell(growths: Sequence[Growth]) -> str:
    if not growths:
        return NOTHING
    paid = fmean(growth.per_round for growth in growths)
    return f"{_ratio(growths) or NOTHING}\n({paid:.2g} a round)"


def _ratio(growths: Sequence[Growth]) -> Spread | None:
    known = [growth.ratio for growth in growths if growth.ratio is not None]
    return Spread.of(known) if known else None


def _straight(policy: str, growths: Mapping[str, Mapping[str, Sequence[Growth]]]) -> int:
    ratios = [_ratio(row[policy]) for row in growths.values() if policy in row]
    return sum(ratio is not None and ratio.mean >= STRAIGHT for ratio in ratios)
