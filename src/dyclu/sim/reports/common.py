"""Texts and parts that the reports of all studies share."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import numpy as np
import scipy

from dyclu import __version__
from dyclu.sim.reports.document import Picture, Table, counted
from dyclu.sim.reports.tables import detection_table, timing_table
from dyclu.sim.runs.results import Result

QUICK_WARNING = (
    "A quick run: fewer users, shorter runs and periods, few seeds. It shows that everything "
    "works; its figures are not comparable with the paper's."
)

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


def size_of_study(policies: Sequence[str], seeds: Sequence[int]) -> str:
    """Return the number of policies and of seeds, in words."""
    players = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    return f"{players}, {counted(seeds, 'seed')}"
