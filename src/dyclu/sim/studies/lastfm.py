"""The study of policies on Last.fm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from dyclu.sim.reports.common import BANDS_NOTE, QUICK_WARNING, common_parts, size_of_study
from dyclu.sim.reports.document import Document, Picture, Table
from dyclu.sim.reports.figures import reward_figure
from dyclu.sim.reports.tables import (
    choices_table,
    lead_table,
    reward_table,
    stream_contestants_table,
)
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.stream.contestants import check_contestants
from dyclu.sim.runs.stream.job import OFFERED, LastFMJob
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.studies.study import Progress, folder_name
from dyclu.sim.worlds.lastfm import LastFM

QUICK_DRAWING = {"users": 4, "parts": 2}
"""Users of a quick study, and people per user."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastFMStudy:
    """Policies on Last.fm: every policy, once per seed.

    Attributes
    ----------
    data, source, reading, drawing
        As in `LastFMJob`.
    policies, seeds, quick
        As in `Study`.
    """

    data: LastFM = field(repr=False)
    source: str
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    reading: Mapping[str, Any]
    drawing: Mapping[str, Any]
    quick: bool = False

    def __post_init__(self) -> None:
        check_contestants(self.policies, self.data.features.shape[1])
        # Draws one stream, so that impossible options are refused before the first run.
        self.data.stream(self.seeds[0], offered=OFFERED, **self.drawing)

    @classmethod
    def read(
        cls,
        folder: Path,
        *,
        policies: tuple[str, ...],
        seeds: tuple[int, ...],
        reading: Mapping[str, Any] | None = None,
        drawing: Mapping[str, Any] | None = None,
        quick: bool = False,
    ) -> LastFMStudy:
        """Read a folder; `reading` and `drawing` are options of `LastFM.read` and `.stream`."""
        data = LastFM.read(folder, **(reading or {}))
        return cls(
            data=data,
            source=data.digest,
            policies=policies,
            seeds=seeds,
            reading=reading or {},
            drawing=(QUICK_DRAWING if quick else {}) | dict(drawing or {}),
            quick=quick,
        )

    @property
    def name(self) -> str:
        """Name of the folder of the report."""
        return folder_name("lastfm", quick=self.quick)

    @property
    def jobs(self) -> list[LastFMJob]:
        """One job for each policy and seed."""
        return [
            LastFMJob(
                data=self.data,
                source=self.source,
                policy=policy,
                seed=seed,
                reading=self.reading,
                drawing=self.drawing,
            )
            for policy, seed in product(self.policies, self.seeds)
        ]

    def run(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs; `sweep` computes those that are not in the folder."""
        return sweep(self.jobs, folder=folder, workers=workers, dask=dask, progress=progress)

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return the report of the results; ``pictures=False`` works without matplotlib."""
        drawn = [("As a picture", self._picture(results))] if pictures else []
        choices, lead = self.jobs[0].configuration, lead_table(results)
        parts: list[tuple[str, Table | Picture]] = [
            ("Reward, as a multiple of random choice's", reward_table(results)),
            *([("DyClu against LinUCB", lead)] if lead.rows else []),
            *drawn,
            ("Who played", stream_contestants_table(self.policies)),
            *common_parts(results),
            ("What the paper leaves open", choices_table(choices["reading"] | choices["drawing"])),
        ]
        events = fmean(result.rounds for result in results)
        return Document(
            title="Last.fm: reward against random choice",
            lead=f"{size_of_study(self.policies, self.seeds)}; {events:,.0f} events per run. Every "
            f"event offers {OFFERED} artists, one of which the person has tagged: it brings 1, the "
            "others 0. Nobody is told the noise.",
            warning=QUICK_WARNING if self.quick else "",
            parts=tuple(parts),
            facts=facts,
        )

    def _picture(self, results: Sequence[Result]) -> Picture:
        return Picture(
            name=self.name,
            figure=reward_figure(results),
            label=f"Reward of {', '.join(self.policies)} as a ratio to that of random choice",
            note=BANDS_NOTE,
        )
