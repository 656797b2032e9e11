"""Studies: which runs belong together, how they are made, and what a report says of them.

`Study` compares policies in simulated settings; Table 1 and Figure 2 are such studies. It has two
verbs: `make` gives the results of all runs, computing only what is not stored; `document` is what
they come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from dyclu.errors import OptionError
from dyclu.sim.reports.common import BANDS_NOTE, QUICK_WARNING, everyday_parts, turnout
from dyclu.sim.reports.document import Document, Picture, Table, counted
from dyclu.sim.reports.figures import ENVIRONMENTS, comparison_figure, regret_figure
from dyclu.sim.reports.growth import growth_table
from dyclu.sim.reports.tables import contestants_table, regret_table, settings_table
from dyclu.sim.runs.contestants import CONTESTANTS, check_contestants
from dyclu.sim.runs.jobs import Job
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population

Progress = Callable[[int, int], object]
"""Told how many of how many runs are done."""

QUICK_ROWS = (1, 6, 9)
QUICK_USERS = 20
QUICK_SHARE = 5
"""A quick run has these rows, at most so many users, and rounds and periods this much shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Policies in simulated settings: every policy in every setting, once per seed.

    Attributes
    ----------
    name : str
        Of the folder its report goes to.
    title : str
        Of the report.
    settings : mapping of str to Population
        The settings by name.
    policies : tuple of str
        What `contestants.contestant` makes.
    seeds : tuple of int
        One run each.
    quick : bool
        Whether it is too small to be compared with the paper.
    left_out : str
        What of the paper is not in it, in words.
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

    def make(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs, of which `sweep` makes those that are not stored."""
        names = [name for name, *_ in self._runs()]
        jobs = [Job(self.settings[name], policy, seed=seed) for name, policy, seed in self._runs()]
        made = sweep(jobs, folder=folder, workers=workers, dask=dask, progress=progress)
        return [replace(result, setting=name) for name, result in zip(names, made, strict=True)]

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return what the results come to; without pictures, nothing needs matplotlib."""
        published = self.published()
        growth = growth_table(results, self.settings)
        drawn = [("As a picture", self._picture(results, published))] if pictures else []
        parts: list[tuple[str, Table | Picture]] = [
            ("Accumulated regret", regret_table(results, published)),
            *drawn,
            *([("What changes cost", growth)] if growth.rows else []),
            *everyday_parts(results),
            ("Settings", settings_table(self.settings)),
            ("Who played", contestants_table(self.policies, next(iter(self.settings.values())))),
        ]
        return Document(
            title=self.title,
            lead=f"{counted(self.settings, 'setting')}, {turnout(self.policies, self.seeds)}. "
            "Regret is what the choices gave away against always knowing the best arm."
            + (f" {self.left_out}" if self.left_out else ""),
            warning=QUICK_WARNING if self.quick else "",
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


def table1(
    *,
    rows: Sequence[int] | None = None,
    policies: tuple[str, ...] = CONTESTANTS,
    seeds: tuple[int, ...],
    quick: bool = False,
) -> Study:
    """Return the study of Table 1, or of some of its rows.

    >>> list(table1(rows=[1, 4], policies=("dyclu",), seeds=(0,)).settings)
    ['row1', 'row4']
    """
    chosen = (
        rows if rows is not None else QUICK_ROWS if quick else range(1, len(paper.PUBLISHED) + 1)
    )
    for row in chosen:
        if f"row{row}" not in paper.PUBLISHED:
            raise OptionError(f"Table 1 has no row {row}; choose from 1-{len(paper.PUBLISHED)}")
    names = [f"row{row}" for row in chosen]
    title, whole = "Table 1: regret in simulated settings", list(paper.PUBLISHED)
    return _study("table1", title, names, policies, seeds, quick, whole)


def figure2(
    *, policies: tuple[str, ...] = CONTESTANTS, seeds: tuple[int, ...], quick: bool = False
) -> Study:
    """Return the study of Figure 2: the three environments."""
    title = "Figure 2: regret in three environments"
    names = list(ENVIRONMENTS)
    return _study("figure2", title, names, policies, seeds, quick, names)


def shortened(setting: Population) -> Population:
    """Return a small version of a setting: fewer users, rounds and periods shortened alike.

    >>> small = shortened(paper.SETTINGS["row6"])
    >>> small.users, small.rounds, small.shortest, small.longest
    (20, 500, 240, 280)
    """
    lengths = ("rounds", "shortest", "longest")
    scaled = {name: max(1, getattr(setting, name) // QUICK_SHARE) for name in lengths}
    return replace(setting, users=min(setting.users, QUICK_USERS), **scaled)


def _study(
    name: str,
    title: str,
    settings: Sequence[str],
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    quick: bool,
    whole: Sequence[str],
) -> Study:
    absent = [one for one in (*whole, *CONTESTANTS) if one not in (*settings, *policies)]
    size = shortened if quick else lambda setting: setting
    return Study(
        name=folder_name(name, quick=quick),
        title=title,
        settings={setting: size(paper.SETTINGS[setting]) for setting in settings},
        policies=policies,
        seeds=seeds,
        quick=quick,
        left_out=f"A part of the paper's, without {', '.join(absent)}." if absent else "",
    )


def folder_name(name: str, *, quick: bool) -> str:
    """Return the name of the folder a study's report goes to."""
    # A folder of its own: a quick run must not replace what took a night.
    return f"{name}-quick" if quick else name
