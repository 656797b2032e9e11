"""An hour's worth of events in a minute: does the service's memory grow with what has passed?

``python -m benchmarks.soak`` is ``make soak``. A running service is asked and rewarded as fast as
it answers; half of the decisions are never rewarded, and expire. Users and tastes stay the same, so
that nothing should grow. They come in another order each time and are offered other arms: users
who had only ever seen the same few could not be told to be of one taste, and Atlas would rightly
keep a model of each. Memory is looked at from outside, ten times over the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.servers import Server, serving
from dyclu.service.tools.loadtest import Load, load

ROUNDS = 144_000
"""Forty a second for an hour: as many decisions, half as many rewards and expiries each. A quarter
of it would be over before the first decisions have expired a few times, and show a beginning."""

DIM, CLIENTS, USERS, LOOKS = 25, 16, 200, 20
WAIT = "--reward-wait=5"

MOST_GROWTH = 64
"""Bytes per round: a decision that was kept would take a thousand."""


@dataclass(frozen=True, slots=True)
class Soaked:
    """Bytes held after each of equally many rounds, and rounds between two looks."""

    resident: tuple[int, ...]
    between: int

    @property
    def growth(self) -> float:
        """Bytes by which memory grew per round, over the second half: a line through the looks."""
        half = self.resident[len(self.resident) // 2 :]
        rounds = np.arange(len(half)) * self.between
        return float(np.polyfit(rounds, half, 1)[0])


def soak(rounds: int, folder: Path, *words: str) -> Soaked:
    """Put a service through so many rounds."""
    some = Load(users=USERS, clients=CLIENTS, seconds=3600, rounds=rounds // LOOKS, rewarded=0.5)
    with serving(folder, DIM, WAIT, *words) as server:
        looks = [_after(server, replace(some, turn=turn)) for turn in range(LOOKS)]
    return Soaked(tuple(looks), rounds // LOOKS)


def _after(server: Server, some: Load) -> int:
    served = asyncio.run(load(server.url, some))
    assert not served.errors, served.errors
    return server.resident()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    told = parser.parse_args()
    failed = False
    for policy in ("linucb", "atlas"):
        with tempfile.TemporaryDirectory() as folder:
            found = soak(told.rounds, Path(folder), f"--policy={policy}")
        held = ", ".join(f"{bytes / 1e6:.0f}" for bytes in found.resident)
        print(f"{policy}: {found.growth:+.1f} bytes per round in the second half; MB: {held}")
        failed |= found.growth > MOST_GROWTH
    sys.exit(failed)


if __name__ == "__main__":
    main()
