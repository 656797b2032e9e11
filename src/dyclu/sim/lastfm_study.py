"""The study of Last.fm: which runs it has, and what a report says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean

from dyclu.errors import OptionError
from dyclu.sim import paper
from dyclu.sim.cast import check_policies
from dyclu.sim.document import Document, Picture, Table
from dyclu.sim.figures import reward_figure
from dyclu.sim.lastfm import LISTENED, TAGGED, LastFM
from dyclu.sim.lastfm_job import LASTFM_NOISE, OFFERED, LastFMJob
from dyclu.sim.records import Result
from dyclu.sim.results import BANDS_NOTE, QUICK_WARNING, everyday_parts, turnout
from dyclu.sim.studies import Progress, folder_name
from dyclu.sim.sweep import sweep
from dyclu.sim.tables import reward_table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastFMStudy:
    """Policies on Last.fm: every policy, once per seed.

    Attributes
    ----------
    data, source
        As in `LastFMJob`.
    policies, seeds, quick
        As in `Study`.
    """

    data: LastFM = field(repr=False)
    source: str
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False

    def __post_init__(self) -> None:
        if "oracle" in self.policies:
            raise OptionError(
                "oracle cannot play on Last.fm, where nobody knows the truth it has to be told; "
                f"choose from {', '.join(name for name in paper.contestants() if name != 'oracle')}"
            )
        check_policies(self.policies, self.data.features.shape[1])

    @classmethod
    def read(
        cls, folder: Path, *, policies: tuple[str, ...], seeds: tuple[int, ...], quick: bool = False
    ) -> LastFMStudy:
        """Read the files in a folder."""
        data, digest = LastFM.read(folder), hashlib.sha256()
        for file, _ in (TAGGED, LISTENED):
            digest.update((folder / file).read_bytes())
        source = digest.hexdigest()
        return cls(data=data, source=source, policies=policies, seeds=seeds, quick=quick)

    @property
    def name(self) -> str:
        """Of the folder its report goes to."""
        return folder_name("lastfm", quick=self.quick)

    @property
    def jobs(self) -> list[LastFMJob]:
        """The runs."""
        return [
            LastFMJob(
                data=self.data, source=self.source, policy=policy, seed=seed, quick=self.quick
            )
            for policy, seed in product(self.policies, self.seeds)
        ]

    def make(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs, of which `sweep` makes those that are not stored."""
        return sweep(self.jobs, folder=folder, workers=workers, dask=dask, progress=progress)

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return what the results come to; without pictures, nothing needs matplotlib."""
        drawn = [("As a picture", self._picture(results))] if pictures else []
        parts: list[tuple[str, Table | Picture]] = [
            ("Reward, as a multiple of random choice's", reward_table(results)),
            *drawn,
            *everyday_parts(results),
        ]
        events = fmean(result.rounds for result in results)
        return Document(
            title="Last.fm: reward against random choice",
            lead=f"{turnout(self.policies, self.seeds)}; {events:,.0f} events per run. Every event "
            f"offers {OFFERED} artists, one of which the person has tagged: it brings 1, the "
            f"others 0. Policies that can be told the noise are told {LASTFM_NOISE}.",
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
