"""What is kept of a run: a `Result`, and tables of them.

What a machine's speed decides (`Timing`) is kept apart, and `write_csv` leaves it out: the same
jobs give the same bytes, however often the sweep was killed on the way.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dyclu.storage import replace_file
from dyclu.validation import Ids

POINTS = 250
"""Most points a stored curve has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How fast a run was; no two runs agree on it.

    Attributes
    ----------
    seconds : float
        Time inside the policy.
    rounds_per_second : float or None
        Rounds, of all users, by that time.
    """

    seconds: float
    rounds_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to; equal for equal jobs.

    Attributes
    ----------
    setting, policy, seed
        As in `Job`.
    rounds : int
        Rounds per user.
    regret, alarms_true, alarms_false, alarms_missed, median_delay
        As in `measures.Summary`.
    precision, recall, parameter_error
        As there; the neighbourhoods were judged at every 25th round of a user.
    version : str
        Version of dyclu that made the run.
    curve : tuple of float
        Accumulated regret of all users after each of `checkpoints(rounds)`.
    timing : Timing
        Kept apart: results that differ only in it are equal.
    """

    setting: str
    policy: str
    seed: int
    rounds: int
    regret: float
    alarms_true: int
    alarms_false: int
    alarms_missed: int
    median_delay: float | None
    precision: float | None
    recall: float | None
    parameter_error: float | None
    version: str
    curve: tuple[float, ...] = field(repr=False)
    timing: Timing = field(compare=False)


LABELS = ("setting", "policy", "seed", "rounds")
TIMES = tuple(column.name for column in fields(Timing))
COLUMNS = tuple(column.name for column in fields(Result) if column.name not in ("curve", "timing"))
"""What a line of the tables begins with; columns of the timing; columns of the results."""


def checkpoints(rounds: int) -> Ids:
    """Return the rounds per user after which a curve is read: evenly spaced, the last included.

    >>> checkpoints(2500)[[0, 1, -1]]
    array([  10,   20, 2500])
    """
    count = min(rounds, POINTS)
    return np.arange(1, count + 1) * rounds // count


def write_csv(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write one line per run, ordered by setting, policy and seed; the same runs, the same bytes.

    Numbers are written so that they read back exactly; what could not be measured is left empty.
    """
    _write_table(Path(path), COLUMNS, map(asdict, results))


def write_timing(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write the timing of every run, which `write_csv` leaves out."""
    rows = (asdict(result) | asdict(result.timing) for result in results)
    _write_table(Path(path), (*LABELS, *TIMES), rows)


def write_curves(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write the accumulated regret of every run, one line per point of its curve.

    `after` counts rounds per user; on Last.fm, events.
    """
    rows = (
        asdict(run) | {"after": after, "regret": regret}
        for run in results
        for after, regret in zip(checkpoints(run.rounds).tolist(), run.curve, strict=True)
    )
    _write_table(Path(path), ("setting", "policy", "seed", "after", "regret"), rows)


def missing_runs(path: str | PathLike[str], results: Iterable[Result]) -> int:
    """Return how many runs of a table that was written before are not among the results."""
    try:
        with Path(path).open(newline="") as file:
            before = {tuple(row.get(name) for name in LABELS) for row in csv.DictReader(file)}
    except (OSError, ValueError, csv.Error):  # none there, or none of ours
        return 0
    now = {tuple(str(getattr(run, name)) for name in LABELS) for run in results}
    return sum(None not in run for run in before - now)


def _write_table(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(sorted(rows, key=lambda row: [row[label] for label in LABELS]))
    replace_file(path, text.getvalue().encode())
