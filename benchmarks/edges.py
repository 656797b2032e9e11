"""HTTP servers side by side, under the same minimal endpoint: CPU time, rate, latency, memory.

``python -m benchmarks.edges`` prints a table; it needs the extra ``bench``. The servers take turns,
so that other processes on the machine disturb all of them; behind each figure stands its ratio to
that of granian, the server in use. The service was served by uvicorn with httptools before.
``--quick`` only checks that everything runs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.endpoint import SERVERS
from benchmarks.servers import Server, bare
from dyclu.service.tools.loadtest import Load, LoadResult, load

DIM, CLIENTS, USERS = 25, 64, 200
ROUNDS, TURNS = 4000, 5
PACE = 800.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    rounds, turns = (200, 1) if parser.parse_args().quick else (ROUNDS, TURNS)
    found: dict[str, list[tuple[float, ...]]] = {}
    with ExitStack() as running:
        servers = {name: running.enter_context(bare(DIM, on=name)) for name in SERVERS}
        for turn in range(turns + 1):
            for name, server in servers.items():
                measured = _measure(server, rounds)
                if turn:
                    found.setdefault(name, []).append(measured)
    print(f"| server | CPU, µs | rounds/s | p99, ms, at {PACE:.0f}/s | resident, MB |")
    print("|---|--:|--:|--:|--:|")
    for name, rows in found.items():
        print(f"| {name} | {' | '.join(_cells(rows, found['granian']))} |")


def _cells(rows: list[tuple[float, ...]], reference: list[tuple[float, ...]]) -> Iterator[str]:
    """Yield the median of each figure, with its ratio to the reference, turn by turn."""
    for mine, other in zip(zip(*rows, strict=True), zip(*reference, strict=True), strict=True):
        ratio = statistics.median(one / two for one, two in zip(mine, other, strict=True))
        yield f"{statistics.median(mine):,.1f} ({ratio:.2f})"


def _measure(server: Server, rounds: int) -> tuple[float, ...]:
    """Return CPU microseconds, rounds per second, p99 at a fixed rate, and resident megabytes."""
    before, began = server.cpu(), time.perf_counter()
    _ask(server, rounds=rounds)
    taken, cpu = time.perf_counter() - began, server.cpu() - before
    paced = _ask(server, rounds=rounds // 2, rate=PACE)
    late: float = paced.numbers()["decision_ms"]["p99"]
    return cpu / rounds * 1e6, rounds / taken, late, server.resident() / 1e6


def _ask(server: Server, **more: float) -> LoadResult:
    wanted = Load(users=USERS, clients=CLIENTS, seconds=3600.0, rewarded=0.0, **more)  # type: ignore[arg-type]
    served = asyncio.run(load(server.url, wanted, dim=DIM))
    assert not served.errors, served.errors
    return served


if __name__ == "__main__":
    main()
