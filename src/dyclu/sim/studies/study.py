"""`Study`: policies in simulated settings. `run` returns the results, `document` their report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from dyclu.sim.reports.common import (
    BANDS_NOTE,
    QUICK_WARNING,
    common_parts,
    size_of_study,
    warning_lines,
)
from dyclu.sim.reports.document import Document, Picture, Table, counted
from dyclu.sim.reports.figures import comparison_figure, regret_figure
from dyclu.sim.reports.growth import growth_table
from dyclu.sim.reports.tables import contestants_table, regret_table, settings_table
from dyclu.sim.runs.contestants import check_contestants
from dyclu.sim.runs.jobs import Job
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population

Progress = Callable[[int, int], object]
"""Called with the number of finished runs and the number of all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Policies in simulated settings: every policy in every setting, once per seed.

    Attributes
    ----------
    name, title : str
        Name of the folder of the report, and title of the report.
    settings : mapping of str to Population
        The settings by name.
    policies, seeds : tuples of str and int
        Names as in `contestants.contestant`; seeds of the worlds.
    quick : bool
        Whether the study is too small to be compared with the paper.
    left_out : str
        A sentence that names what the paper has and this study has not.
    """

    name: str
    title: str
    settings: Mapping[str, Population]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False
    left_out: str = ""

    def __post_init__(self) -> None:
        for setting in self.settings.values():
            check_contestants(self.policies, setting.dim)

    def run(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs; `sweep` computes those that are not in the folder."""
        names = [name for name, *_ in self._runs()]
        jobs = [Job(self.settings[name], policy, seed=seed) for name, policy, seed in self._runs()]
        found = sweep(jobs, folder=folder, workers=workers, dask=dask, progress=progress)
        return [replace(result, setting=name) for name, result in zip(names, found, strict=True)]

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return the report of the results; ``pictures=False`` works without matplotlib."""
        published = self.published()
        growth = growth_table(results, self.settings)
        drawn = [("As a picture", self._picture(results, published))] if pictures else []
        parts: list[tuple[str, Table | Picture]] = [
            ("Accumulated regret", regret_table(results, published)),
            *drawn,
            *([("What changes cost", growth)] if growth.rows else []),
            *common_parts(results),
            ("Settings", settings_table(self.settings)),
            ("Who played", contestants_table(self.policies, next(iter(self.settings.values())))),
        ]
        return Document(
            title=self.title,
            lead=f"{counted(self.settings, 'setting')}, {size_of_study(self.policies, self.seeds)}."
            " Regret is what the choices gave away against always knowing the best arm."
            + (f" {self.left_out}" if self.left_out else ""),
            warning=QUICK_WARNING if self.quick else "",
            policy_warnings=warning_lines(results),
            parts=tuple(parts),
            facts=facts,
        )

    def published(self) -> dict[str, Mapping[str, float]]:
        """Return the paper's regret for the settings that are exactly the paper's."""
        return {
            name: paper.PUBLISHED[name]
            for name, setting in self.settings.items()
            if name in paper.PUBLISHED and setting == paper.SETTINGS[name]
        }

    def _runs(self) -> Iterator[tuple[str, str, int]]:
        return product(self.settings, self.policies, self.seeds)

    def _picture(
        self, results: Sequence[Result], published: Mapping[str, Mapping[str, float]]
    ) -> Picture:
        policies = ", ".join(self.policies)
        if published:
            return Picture(
                name=self.name,
                figure=comparison_figure(results, published),
                label=f"Regret of {policies} in every setting, here and in the paper",
                note="Filled: our mean, with its standard error where it is wide enough to be "
                "seen. Open: the paper's figure.",
            )
        return Picture(
            name=self.name,
            figure=regret_figure(results),
            label=f"Accumulated regret of {policies} over the rounds of each user",
            note=BANDS_NOTE,
        )


def folder_name(name: str, *, quick: bool) -> str:
    """Return the name of the folder of a study's report."""
    # A quick study has its own folder: it must not replace a report that took hours.
    return f"{name}-quick" if quick else name
