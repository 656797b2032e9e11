"""Growth of regret after changes: does it go on, and how fast?

A policy that does not recover from a change loses reward in every later round: its regret is linear
in the number of rounds since each user's first change. These rounds are counted over all users and
split into two halves. The regret of the second half divided by that of the first is 1 for a policy
that never recovers, and less for one that does. Where users change again and again the ratio is
near 1 for every policy; therefore the table also has the regret per such round.
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

LINEAR = 0.9
"""From this ratio on, regret counts as growing linearly."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of regret after users have changed.

    Attributes
    ----------
    ratio : float or None
        Regret of the second half of the rounds after a first change, divided by that of the first
        half; None if the latter is 0.
    per_round : float
        Regret divided by the number of these rounds, over all users.
    """

    ratio: float | None
    per_round: float

    @classmethod
    def of(cls, run: Result, setting: Population) -> Growth | None:
        """Return the growth of a run; None if no user changed."""
        times = checkpoints(run.rounds)
        since = rounds_since_change(setting, run.seed)[times - 1]
        if since[-1] == 0:
            return None
        start = float(np.interp(setting.shortest, times, run.curve))
        middle, end = float(np.interp(since[-1] / 2, since, run.curve)), run.curve[-1]
        ratio = (end - middle) / (middle - start) if middle > start else None
        return cls(ratio, (end - start) / float(since[-1]))


@lru_cache(maxsize=64)
def rounds_since_change(setting: Population, seed: int) -> FloatArray:
    """Return the number of rounds of all users since their first change, after each round.

    >>> setting = Population(users=2, rounds=6, shortest=4, longest=4)
    >>> rounds_since_change(setting, 0)
    array([0., 0., 0., 0., 2., 4.])
    """
    truth = setting.world(seed).truth
    changed = np.logical_or.accumulate(truth != truth[:, :1], axis=1)
    return np.cumsum(changed.sum(axis=0), dtype=np.float64)


def growth_table(results: Sequence[Result], settings: Mapping[str, Population]) -> Table:
    """Return the growth of regret of every policy, for every setting in which users change."""
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
    linear = [f"{policy} in {_linear_count(policy, growths)}" for policy in policies]
    note = (
        "Of the rounds that users have lived since their own first change: the regret in the later "
        "half by that in the earlier, mean over seeds ± its standard error, and in brackets the "
        "regret of such a round. Near 1 it goes on growing linearly. "
        f"At least {LINEAR:g}, of {counted(growths, 'setting')}: {', '.join(linear)}. "
        "Where changes keep coming nobody's regret stops; what a round costs then tells more. "
        "Where a user changes once, late, even a model that never forgets comes round in the end."
    )
    return Table(header=("setting", *policies), rows=tuple(rows), note=note)


def _growths(runs: Sequence[Result], setting: Population) -> list[Growth]:
    return [found for run in runs if (found := Growth.of(run, setting)) is not None]


def _cell(growths: Sequence[Growth]) -> str:
    if not growths:
        return NOTHING
    per_round = fmean(growth.per_round for growth in growths)
    return f"{_ratio(growths) or NOTHING}\n({per_round:.2g} a round)"


def _ratio(growths: Sequence[Growth]) -> Spread | None:
    known = [growth.ratio for growth in growths if growth.ratio is not None]
    return Spread.of(known) if known else None


def _linear_count(policy: str, growths: Mapping[str, Mapping[str, Sequence[Growth]]]) -> int:
    ratios = [_ratio(row[policy]) for row in growths.values() if policy in row]
    return sum(ratio is not None and ratio.mean >= LINEAR for ratio in ratios)
