"""``python -m benchmarks.weight located FILE`` or ``… strangers NUMBER``: memory of many users.

The first loads a policy with many located users, serves one of them and saves the policy. The
second learns one reward from each of so many strangers, with a policy that knows ten tastes.
"""

from __future__ import annotations

import gc
import json
import resource
import sys

import numpy as np

import dyclu
from benchmarks.crowd import grown
from benchmarks.footprint import resident
from benchmarks.location import population
from dyclu import Atlas

KNOWN, ROUNDS = 100, 60
"""Users who are learnt before the strangers come, and their rounds."""

BLOCK = 1_000
KIB = 1_024


def located(path: str) -> int:
    """Return by how many bytes the process grows when it loads the policy."""
    _warm()
    before = resident()
    policy = dyclu.load(path)
    policy.decide(0, np.eye(policy.dim))
    gc.collect()
    growth = resident() - before
    policy.save(f"{path}.again")
    return growth


def strangers(count: int) -> int:
    """Return by how many bytes the process grows while it learns from strangers."""
    policy, rng = _warm(), np.random.default_rng(0)
    before = resident()
    for start in range(0, count, BLOCK):
        names = [f"stranger {start + i}" for i in range(min(BLOCK, count - start))]
        contexts = rng.standard_normal((len(names), policy.dim)) / np.sqrt(policy.dim)
        policy.learn_many(names, contexts, rng.standard_normal(len(names)))
    gc.collect()
    return resident() - before


def _warm() -> Atlas:
    return grown(population(KNOWN, ROUNDS).world(seed=0))


def main(kind: str, what: str) -> None:
    """Print the growth and the peak of the process, in bytes, as JSON."""
    growth = located(what) if kind == "located" else strangers(int(what))
    peak = KIB * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"grown": growth, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
