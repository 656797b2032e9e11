"""The study of wild worlds: policies compared with two ceilings that know a part of the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from dyclu.sim.reports.common import QUICK_WARNING, common_parts, size_of_study, warning_lines
from dyclu.sim.reports.document import Document, Picture, Table, counted
from dyclu.sim.reports.tables import regret_table
from dyclu.sim.reports.wild import (
    Ratios,
    ceiling_ratios,
    plain_ratios,
    ratio_figure,
    ratio_table,
)
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.runs.wild import CONTESTANTS, PLAIN, WildJob, check_contestants
from dyclu.sim.studies.study import Progress, folder_name
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.wild import Wild

QUICK_USERS = 8
QUICK_SHARE = 10
"""Of a quick study: most users, and the divisor of rounds, periods and delays."""

CEILINGS_NOTE = (
    "Mean regret divided by the sum of the ceilings': oracle is told who has which taste, and "
    "learns the tastes; told knows the tastes, how often users change and the law of rewards, and "
    "finds out who has which. A policy must do both; 1 is about as good as it can be."
)

PLAIN_NOTE = f"Mean regret divided by the least one of {', '.join(PLAIN)}; below 1 is better."


@dataclass(frozen=True, slots=True, kw_only=True)
class WildStudy:
    """Policies in wild worlds: every policy in every world, once per seed.

    Attributes
    ----------
    name, title : str
        Name of the folder of the report, and title of the report.
    settings : mapping of str to Wild
        The worlds by name.
    policies, seeds : tuples of str and int
        Names as in `Present.contestant`; seeds of the worlds.
    quick : bool
        Whether the study is too small for conclusions.
    """

    name: str
    title: str
    settings: Mapping[str, Wild]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False

    def __post_init__(self) -> None:
        for setting in self.settings.values():
            check_contestants(self.policies, setting)

    def run(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs; `sweep` computes those that are not in the folder."""
        runs = list(product(self.settings, self.policies, self.seeds))
        jobs = [
            WildJob(setting=self.settings[name], policy=policy, seed=seed)
            for name, policy, seed in runs
        ]
        found = sweep(jobs, folder=folder, workers=workers, dask=dask, progress=progress)
        return [replace(result, setting=run[0]) for run, result in zip(runs, found, strict=True)]

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return the report of the results; ``pictures=False`` works without matplotlib."""
        parts: list[tuple[str, Table | Picture]] = [
            ("Accumulated regret", regret_table(results, {}))
        ]
        ceilings, plain = ceiling_ratios(results), plain_ratios(results)
        if ceilings:
            parts.append(("Regret by the ceilings'", ratio_table(ceilings, CEILINGS_NOTE)))
        if pictures and (ceilings or plain):
            parts.append(("As a picture", self._picture(ceilings, plain)))
        if plain:
            parts.append(("Regret by the best plain policy's", ratio_table(plain, PLAIN_NOTE)))
        parts += [*common_parts(results), ("Worlds", worlds_table(self.settings))]
        return Document(
            title=self.title,
            lead=f"{counted(self.settings, 'world')}, {size_of_study(self.policies, self.seeds)}. "
            "Policies are told the dimension only. Regret is the expected reward that was lost, "
            "compared with always choosing the best arm.",
            warning=QUICK_WARNING if self.quick else "",
            policy_warnings=warning_lines(results),
            parts=tuple(parts),
            facts=facts,
        )

    def _picture(self, ceilings: Ratios, plain: Ratios) -> Picture:
        divisor = "the ceilings' sum" if ceilings else "the best plain policy's"
        label = f"regret divided by {divisor}"
        return Picture(
            name=self.name,
            figure=ratio_figure(ceilings or plain, label),
            label=f"In every world, {label}",
            note="Means over seeds; further left is better.",
        )


def wild_study(
    *,
    policies: tuple[str, ...] | None = None,
    seeds: tuple[int, ...],
    quick: bool = False,
) -> WildStudy:
    """Return the study of all named worlds."""
    return WildStudy(
        name=folder_name("wild", quick=quick),
        title="Wild worlds: regret where the paper's assumptions do not hold",
        settings={name: shortened(world) if quick else world for name, world in WORLDS.items()},
        policies=CONTESTANTS if policies is None else policies,
        seeds=seeds,
        quick=quick,
    )


def shortened(setting: Wild) -> Wild:
    """Return a small version of a world: fewer users, shorter rounds, periods and delays.

    >>> small = shortened(WORLDS["late"])
    >>> small.users, small.rounds, small.shortest, small.delay
    (8, 30, 10, 8)
    """
    lengths = ("rounds", "shortest", "longest")
    scaled = {name: max(1, getattr(setting, name) // QUICK_SHARE) for name in lengths}
    users = min(setting.users, QUICK_USERS)
    delay = setting.delay * users // (setting.users * QUICK_SHARE)
    return replace(setting, users=users, delay=delay, **scaled)


def worlds_table(settings: Mapping[str, Wild]) -> Table:
    """Return the size of every world, and its options that are not the defaults."""
    plain = asdict(Wild())
    size = ("users", "parameters", "dim", "rounds")
    rows = []
    for name, setting in settings.items():
        given = asdict(setting)
        others = (
            f"{key}={value}"
            for key, value in given.items()
            if key not in size and value != plain[key]
        )
        rows.append((name, *(str(given[key]) for key in size), ", ".join(others) or "-"))
    return Table(
        header=("world", *size, "other options"),
        rows=tuple(rows),
        words=("other options",),
        note="Rounds are the mean over users. The options are explained in the guide to worlds.",
    )
