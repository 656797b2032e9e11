"""Studies of policies on recorded data sets: Last.fm and MovieLens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from dyclu.sim.reports.common import (
    BANDS_NOTE,
    QUICK_WARNING,
    common_parts,
    size_of_study,
    warning_lines,
)
from dyclu.sim.reports.document import Document, Picture, Table
from dyclu.sim.reports.figures import reward_figure
from dyclu.sim.reports.tables import (
    choices_table,
    lead_table,
    reward_table,
    stream_contestants_table,
)
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.stream.contestants import CONTESTANTS, check_contestants
from dyclu.sim.runs.stream.job import OFFERED, StreamJob, complete
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.studies.study import Progress, folder_name
from dyclu.sim.worlds import lastfm, movielens_files
from dyclu.sim.worlds.lastfm import LastFM
from dyclu.sim.worlds.movielens import MovieLens
from dyclu.sim.worlds.recording import Recording
from dyclu.sim.worlds.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experiment:
    """A recorded data set, and what its report says.

    Attributes
    ----------
    name, title : str
        The name that `dyclu reproduce` uses, and the name in titles.
    read, stream : callables
        The function that reads the data set, and the one that draws a stream from it.
    event : str
        A sentence that says what an event is.
    where : str
        How to get the files.
    policies : tuple of str
        The policies that play by default.
    quick : mapping
        Options of `stream` in a quick study.
    largest_norm : str
        What the reward of the policy `largest-norm` shows.
    choices : str
        Heading of the table of options.
    """

    name: str
    title: str
    read: Callable[..., Recording]
    stream: Callable[..., Stream]
    event: str
    where: str
    policies: tuple[str, ...]
    quick: Mapping[str, Any]
    largest_norm: str
    choices: str

    @property
    def options(self) -> frozenset[str]:
        """Names of the options of `read` and `stream`."""
        return frozenset(complete(self.read, {}) | complete(self.stream, {}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamStudy:
    """Policies on a recorded data set: every policy, once per seed.

    Attributes
    ----------
    experiment : Experiment
        The data set, and what its report says.
    data, source, reading, drawing
        As in `StreamJob`.
    policies, seeds, quick
        As in `Study`.
    """

    experiment: Experiment
    data: Recording = field(repr=False)
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
        experiment: Experiment,
        folder: Path,
        *,
        policies: tuple[str, ...],
        seeds: tuple[int, ...],
        reading: Mapping[str, Any] | None = None,
        drawing: Mapping[str, Any] | None = None,
        quick: bool = False,
    ) -> StreamStudy:
        """Read a folder; `reading` and `drawing` are options of the data's `read` and `stream`."""
        data = experiment.read(folder, **(reading or {}))
        return cls(
            experiment=experiment,
            data=data,
            source=data.digest,
            policies=policies,
            seeds=seeds,
            reading=reading or {},
            drawing={**(experiment.quick if quick else {}), **(drawing or {})},
            quick=quick,
        )

    @property
    def name(self) -> str:
        """Name of the folder of the report."""
        # Plain and hybrid users are two experiments, with a report each.
        plain = complete(self.data.stream, {})["parts"] == 1
        hybrid = "-hybrid" if plain and self.drawing.get("parts", 1) > 1 else ""
        return folder_name(self.data.name + hybrid, quick=self.quick)

    @property
    def jobs(self) -> list[StreamJob]:
        """One job for each policy and seed."""
        return [
            StreamJob(
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
        rewards = reward_table(results, self.experiment.largest_norm)
        parts: list[tuple[str, Table | Picture]] = [
            ("Reward, as a multiple of random choice's", rewards),
            *([("DyClu against LinUCB", lead)] if lead.rows else []),
            *drawn,
            ("Who played", stream_contestants_table(self.policies)),
            *common_parts(results),
            (self.experiment.choices, choices_table(choices["reading"] | choices["drawing"])),
        ]
        events = fmean(result.rounds for result in results)
        return Document(
            title=f"{self.experiment.title}: reward against random choice",
            lead=f"{size_of_study(self.policies, self.seeds)}; {events:,.0f} events per run. "
            f"{self.experiment.event} Nobody is told the noise.",
            warning=QUICK_WARNING if self.quick else "",
            policy_warnings=warning_lines(results),
            parts=tuple(parts),
            facts=facts,
        )

    def _picture(self, results: Sequence[Result]) -> Picture:
        return Picture(
            name=self.name,
            figure=reward_figure(results, f"Reward on {self.experiment.title}"),
            label=f"Reward of {', '.join(self.policies)} as a ratio to that of random choice",
            note=BANDS_NOTE,
        )


LASTFM = Experiment(
    name=LastFM.name,
    title="Last.fm",
    read=LastFM.read,
    stream=LastFM.stream,
    event=f"Every event offers {OFFERED} artists, one of which the person has tagged: it brings 1, "
    "the others 0.",
    where=lastfm.WHERE,
    policies=CONTESTANTS,
    quick={"users": 4, "parts": 2},
    largest_norm="largest-norm learns nothing and always takes the longest arm. An artist's "
    "features are the longer the more tags it got, and artists with many tags are the ones that "
    "people tag: popularity leaks into the length, and a reward up to this one's takes no "
    "learning.",
    choices="What the paper leaves open",
)

MOVIELENS = Experiment(
    name=MovieLens.name,
    title="MovieLens",
    read=MovieLens.read,
    stream=MovieLens.stream,
    event=f"Every event offers {OFFERED} films, one of which the person then rated highly: it "
    "brings 1, the others 0. Features are computed from what was written before the cut, events "
    "come after it.",
    where=movielens_files.WHERE,
    policies=(*CONTESTANTS, "atlas"),
    quick={"users": 20},
    largest_norm="largest-norm learns nothing and always takes the longest arm. The number of "
    "earlier ratings is among a film's features, so a popular film has longer features: a reward "
    "up to this one's takes no learning.",
    choices="Options of the experiment",
)

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment for experiment in (LASTFM, MOVIELENS)
}
"""The experiments by the name that `dyclu reproduce` uses."""
