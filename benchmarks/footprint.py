"""``python -m benchmarks.footprint SEGMENTS``: by how much a process grows with its segments.

Users come one after the other, each for as long as it takes to be told apart from the others.
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
"""Where Linux says how large a process is; other systems are not asked."""

ROUNDS = 30
"""Rounds of a user, more than there are features."""


def main(segments: int) -> None:
    """Print the growth in bytes of a process that learns of so many users, as JSON."""
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
    """Return the bytes of memory this process occupies."""
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
