"""An hour's worth of events in a minute: does the service's memory grow with the events?

``make soak`` runs it as ``python -m benchmarks.soak``. A running service gets requests and rewards
as fast as it answers; half of the decisions get no reward and expire. Users and tastes stay the
same, so memory should not grow. The order of users and the arms differ each time: if users saw only
the same few arms, Atlas could not tell that they have one taste, and would rightly keep one model
for each. Memory is measured from outside, ten times in the second half.
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
"""Forty decisions per second for an hour; half of them are rewarded, half expire. A quarter of this
would end soon after the first expiries, and show only the beginning."""

DIM, CLIENTS, USERS, LOOKS = 25, 16, 200, 20
WAIT = "--reward-wait=5"

MOST_GROWTH = 64
"""Largest allowed growth, in bytes per round; a decision that is never removed takes a thousand."""


@dataclass(frozen=True, slots=True)
class Soaked:
    """Resident bytes at regular intervals, and the number of rounds between two of them."""

    resident: tuple[int, ...]
    between: int

    @property
    def growth(self) -> float:
        """Growth in bytes per round in the second half: the slope of a fitted line."""
        half = self.resident[len(self.resident) // 2 :]
        rounds = np.arange(len(half)) * self.between
        return float(np.polyfit(rounds, half, 1)[0])


def soak(rounds: int, folder: Path, *words: str) -> Soaked:
    """Run a service for so many rounds and measure its memory."""
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
