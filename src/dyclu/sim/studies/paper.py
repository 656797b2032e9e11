"""The studies of `dyclu reproduce`: Table 1, Figure 2, Last.fm, MovieLens and wild worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dyclu.errors import OptionError
from dyclu.sim.reports.figures import ENVIRONMENTS
from dyclu.sim.runs.contestants import CONTESTANTS
from dyclu.sim.studies.stream import EXPERIMENTS as RECORDED
from dyclu.sim.studies.stream import StreamStudy
from dyclu.sim.studies.study import Study, folder_name
from dyclu.sim.studies.wild import WildStudy, wild_study
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population

EXPERIMENTS = ("table1", "figure2", "lastfm")
"""The experiments of the paper, which ``"all"`` stands for."""

QUICK_ROWS = (1, 6, 9)
QUICK_USERS = 20
QUICK_SHARE = 5
"""Of a quick study: rows of Table 1, most users, and the divisor of rounds and periods."""


def paper_studies(
    experiment: str,
    *,
    rows: Sequence[int] | None = None,
    policies: tuple[str, ...] | None = None,
    seeds: tuple[int, ...],
    quick: bool = False,
    data: Path | None = None,
    reading: Mapping[str, Any] | None = None,
    drawing: Mapping[str, Any] | None = None,
) -> list[Study | StreamStudy | WildStudy]:
    """Return the studies of one experiment, or of ``"all"`` of `EXPERIMENTS`; options are checked.

    `rows` are those of Table 1, `data` is the folder of the files of a recorded data set; `reading`
    and `drawing` are as in `StreamStudy.read`. Without `policies`, each study has its own;
    ``"all"`` leaves the oracle out of Last.fm.
    """
    wanted = EXPERIMENTS if experiment == "all" else (experiment,)
    if rows is not None and "table1" not in wanted:
        raise OptionError(f"{experiment} has no rows; leave out --rows, or reproduce table1")
    recorded = [name for name in wanted if name in RECORDED]
    _check_options(recorded, [*(reading or {}), *(drawing or {})])
    if data is None and recorded:
        needed = RECORDED[recorded[0]]
        raise OptionError(
            f"{experiment} needs --data with the {needed.title} data set; {needed.where}"
        )

    simulated = CONTESTANTS if policies is None else policies
    studies: list[Study | StreamStudy | WildStudy] = []
    if "table1" in wanted:
        studies.append(table1(rows=rows, policies=simulated, seeds=seeds, quick=quick))
    if "figure2" in wanted:
        studies.append(figure2(policies=simulated, seeds=seeds, quick=quick))
    if "wild" in wanted:
        studies.append(wild_study(policies=policies, seeds=seeds, quick=quick))
    for name in recorded:
        assert data is not None
        players = RECORDED[name].policies if policies is None else policies
        if experiment == "all" and set(players) > {"oracle"}:
            players = tuple(player for player in players if player != "oracle")
        studies.append(
            StreamStudy.read(
                RECORDED[name],
                data,
                policies=players,
                seeds=seeds,
                quick=quick,
                reading=reading,
                drawing=drawing,
            )
        )
    return studies


def _check_options(recorded: Sequence[str], given: Sequence[str]) -> None:
    """Refuse options that none of the recorded data sets has."""
    known = frozenset().union(*(RECORDED[name].options for name in recorded))
    for option in given:
        if option not in known:
            owners = [name for name in RECORDED if option in RECORDED[name].options]
            raise OptionError(
                f"--{option} is for {' and '.join(owners)}; leave it out, or reproduce {owners[0]}"
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
    """Return a small version of a setting: fewer users, shorter rounds and periods.

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
