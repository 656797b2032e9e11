"""``python -m benchmarks.evaluating``: time and memory of an evaluation, by number of rows.

10 arms of 10 features, 20,000 users, clicks, uniform propensities. The log is drawn chunk by chunk
while it is read, so that it is never in memory as a whole; the time to draw it is given beside the
total. Evaluated are a function, uniform choice, and a frozen LinUCB shared by all users.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator
from itertools import chain
from time import perf_counter

import numpy as np

from benchmarks.tables import markdown
from dyclu import LinUCB
from dyclu.data import Chunk, Log
from dyclu.evaluate import Target, compare, frozen, uniform
from dyclu.sim.reports.document import Table
from dyclu.validation import FloatArray

ROWS, ARMS, DIM, USERS, CHUNK = 1_000_000, 10, 10, 20_000, 20_000
NOTE = "Seconds; the log is drawn twice. Memory: the largest of this process."


def drawn(rows: int) -> Log:
    """Return a log that is drawn anew whenever it is read, always the same."""

    def read() -> Iterator[Chunk]:
        for start in range(0, rows, CHUNK):
            rng, size = np.random.default_rng([1, start]), min(CHUNK, rows - start)
            yield Chunk(
                user=np.array([f"u{i}" for i in rng.integers(USERS, size=size)], dtype=object),
                time=None,
                chosen=rng.integers(ARMS, size=size),
                reward=(rng.random(size) < 0.05).astype(float),
                propensity=np.full(size, 1 / ARMS),
                arms=rng.normal(size=(size, ARMS, DIM)),
                counts=np.full(size, ARMS),
                decision=None,
            )

    return Log(read, dim=DIM, rows=rows)


def policies(log: Log) -> dict[str, Target]:
    """Return three policies that do not learn."""
    weights = np.random.default_rng(0).normal(size=DIM)

    def greedy(chunk: Chunk) -> FloatArray:
        return np.asarray(np.eye(ARMS)[(chunk.arms @ weights).argmax(axis=1)])

    learnt = LinUCB(DIM, alpha=0.1, shared=True)
    first = next(log.chunks())
    learnt.learn_many(first.user.tolist(), first.contexts, first.reward)
    return {"function": greedy, "uniform": uniform, "LinUCB": frozen(learnt, epsilon=0.05)}


def table(rows: int) -> Table:
    """Measure one evaluation of each policy alone, and of all together."""
    log = drawn(rows)
    targets = policies(log)
    started = perf_counter()
    for _ in chain(log.chunks(), log.chunks()):
        pass
    drawing = perf_counter() - started
    measured = []
    for name, chosen in {**{n: {n: t} for n, t in targets.items()}, "all three": targets}.items():
        started = perf_counter()
        compare(log, chosen)
        seconds = perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        measured.append((name, f"{seconds:.1f}", f"{drawing:.1f}", f"{peak:.0f} MB"))
    header = ("policy", f"{rows:,} rows", "of which drawing the log", "memory")
    return Table(header=header, rows=tuple(measured), note=NOTE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    print(markdown(table(parser.parse_args().rows)))


if __name__ == "__main__":
    main()
