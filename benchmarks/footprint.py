"""``python -m benchmarks.footprint SEGMENTS``: memory growth of a process per segment.

Users come one after the other, each until the test can tell them apart.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import dyclu
from benchmarks.history import USERS, population
from benchmarks.turns import Turn, serve, turn

STATUS = Path("/proc/self/statm")
"""File in which Linux reports the memory of a process; other systems do not have it."""

ROUNDS = 30
"""Rounds per user: more than there are features."""


def main(segments: int) -> None:
    """Print by how many bytes the process grows while it learns from so many users, as JSON."""
    dim, turns = _turns()
    serve(dyclu.DyClu(dim, noise=0.09), turns)
    policy = dyclu.DyClu(dim, noise=0.09)
    before = resident()
    for user in range(segments):
        serve(policy, _as_user(turns, user))
    gc.collect()
    grown = resident() - before
    print(json.dumps({"segments": len(policy.segments), "dim": dim, "grown": grown}))


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = int(STATUS.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _turns() -> tuple[int, list[Turn]]:
    world = population(USERS * ROUNDS).world(seed=0)
    return world.setting.dim, list(map(turn, world))


def _as_user(turns: list[Turn], user: int) -> list[Turn]:
    like = user % USERS
    return [one._replace(user=user) for one in turns if one.user == like]


if __name__ == "__main__":
    main(int(sys.argv[1]))
