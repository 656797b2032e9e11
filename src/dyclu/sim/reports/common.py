"""Texts and parts that the reports of all studies share."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import numpy as np
import scipy

from dyclu import __version__
from dyclu.sim.reports.document import Picture, Table, counted
from dyclu.sim.reports.spread import by_setting
from dyclu.sim.reports.tables import detection_table, timing_table
from dyclu.sim.runs.results import Result

QUICK_WARNING = (
    "A quick run: fewer users, shorter runs and periods, few seeds. It shows that everything "
    "works; its figures are not comparable with the paper's."
)

NAMED = 5
"""Most settings that are named in the line about a policy's warnings."""

BANDS_NOTE = "Lines are means over seeds, bands one standard error to either side."


def machine() -> dict[str, str]:
    """Return versions, cores and system, on which the speed of a run depends; no host name."""
    return {
        "version": f"dyclu {__version__}",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "software": f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}",
    }


def common_parts(results: Sequence[Result]) -> list[tuple[str, Table | Picture]]:
    """Return the parts that every report has: detected changes and neighbours, and speed."""
    detection = detection_table(results)
    detected = [("Changes and neighbours", detection)] if detection.rows else []
    return [*detected, ("Speed", timing_table(results))]


def warning_lines(results: Sequence[Result]) -> tuple[str, ...]:
    """Return one line per policy that had warnings at the end of a run.

    Numbers differ between runs; the sentences are those of its first run with warnings.
    """
    return tuple(_warning_line(policy, runs) for policy, runs in _by_policy(results).items())


def _by_policy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs of the policies that had warnings."""
    names = dict.fromkeys(run.policy for run in results if run.warnings)
    return {name: [run for run in results if run.policy == name] for name in names}


def _warning_line(policy: str, runs: Sequence[Result]) -> str:
    warned = [run for run in runs if run.warnings]
    settings = [*by_setting(warned)]
    places = ", ".join(settings[:NAMED]) + (", …" if len(settings) > NAMED else "")
    count = f"{len(warned)} of {counted(runs, 'run')}"
    return f"{policy} warns in {count} ({places}): {' '.join(warned[0].warnings)}"


def size_of_study(policies: Sequence[str], seeds: Sequence[int]) -> str:
    """Return the number of policies and of seeds, in words."""
    players = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    return f"{players}, {counted(seeds, 'seed')}"
