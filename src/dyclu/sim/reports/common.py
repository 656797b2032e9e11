"""What the reports of all studies have in common."""

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
    """Return what the speed of a run depends on, without saying whose machine it is."""
    return {
        "version": f"dyclu {__version__}",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "software": f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}",
    }


def everyday_parts(results: Sequence[Result]) -> list[tuple[str, Table | Picture]]:
    """Return the parts that every report has: what was noticed, and how fast."""
    detection = detection_table(results)
    noticed = [("Changes and neighbours", detection)] if detection.rows else []
    return [*noticed, ("Speed", timing_table(results))]


def turnout(policies: Sequence[str], seeds: Sequence[int]) -> str:
    """Return how many policies played how often, in words."""
    players = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    return f"{players}, {counted(seeds, 'seed')}"
