"""`Result`: what is stored of a run; and tables of results (CSV).

`Timing` is kept apart and `write_csv` leaves it out, so the same jobs always give the same bytes.
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
"""Most points of a stored curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The speed of a run, which differs every time.

    Attributes
    ----------
    seconds : float
        Time inside the policy.
    rounds_per_second : float or None
        Rounds of all users divided by that time.
    """

    seconds: float
    rounds_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run; equal for equal jobs.

    Attributes
    ----------
    setting, policy, seed
        As in `Job`.
    rounds : int
        Rounds per user.
    regret, alarms_true, alarms_false, alarms_missed, median_delay
        As in `measures.Summary`.
    precision, recall, parameter_error
        As there, measured at every 25th round of a user.
    version : str
        Version of dyclu that made the run.
    curve : tuple of float
        Accumulated regret of all users after each of `checkpoints(rounds)`.
    timing : Timing
        Not compared: results that differ only in it are equal.
    warnings : tuple of str
        As in `measures.Summary`; empty in results that were stored before warnings existed.
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
    warnings: tuple[str, ...] = field(default=(), repr=False)


LABELS = ("setting", "policy", "seed", "rounds")
TIMES = tuple(column.name for column in fields(Timing))
NO_COLUMNS = frozenset({"curve", "timing", "warnings"})
COLUMNS = tuple(column.name for column in fields(Result) if column.name not in NO_COLUMNS)
"""First columns of the tables; columns of the timing; fields without a column; other columns."""


def checkpoints(rounds: int) -> Ids:
    """Return the rounds per user at which a curve is stored: evenly spaced, with the last one.

    >>> checkpoints(2500)[[0, 1, -1]]
    array([  10,   20, 2500])
    """
    count = min(rounds, POINTS)
    return np.arange(1, count + 1) * rounds // count


def write_csv(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write one line per run, sorted by setting, policy and seed; equal runs give equal bytes.

    Numbers are written exactly; values that could not be measured are empty.
    """
    _write_table(Path(path), COLUMNS, map(asdict, results))


def write_timing(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write the timing of every run."""
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
    """Return how many runs of an earlier table are not among the results."""
    try:
        with Path(path).open(newline="") as file:
            before = {tuple(row.get(name) for name in LABELS) for row in csv.DictReader(file)}
    except (OSError, ValueError, csv.Error):  # no file, or not such a table
        return 0
    now = {tuple(str(getattr(run, name)) for name in LABELS) for run in results}
    return sum(None not in run for run in before - now)


def _write_table(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(sorted(rows, key=lambda row: [row[label] for label in LABELS]))
    replace_file(path, text.getvalue().encode())
