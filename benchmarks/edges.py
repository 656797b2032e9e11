"""HTTP servers side by side, under the same minimal endpoint: CPU time, rate and latency.

``python -m benchmarks.edges`` prints a table; it needs the extra ``bench``. The servers take turns,
so that other processes on the machine disturb all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import ExitStack

from benchmarks.endpoint import SERVERS
from benchmarks.servers import Server, bare
from dyclu.service.tools.loadtest import Load, LoadResult, load

DIM, CLIENTS, USERS = 25, 64, 200
ROUNDS, TURNS = 4000, 5
PACE = 800.0


def main() -> None:
    found: dict[str, list[tuple[float, float, float]]] = {}
    with ExitStack() as running:
        servers = {name: running.enter_context(bare(DIM, on=name)) for name in SERVERS}
        for turn in range(TURNS + 1):
            for name, server in servers.items():
                measured = _measure(server)
                if turn:
                    found.setdefault(name, []).append(measured)
        print(f"{'server':12} {'CPU µs':>8} {'ratio':>6} {'/s':>8} {'p99 ms at ' + str(PACE):>16}")
        for name, rows in found.items():
            cpu, rate, late = (statistics.median(column) for column in zip(*rows, strict=True))
            pairs = zip(rows, found["granian"], strict=True)
            ratio = statistics.median(mine[0] / other[0] for mine, other in pairs)
            print(f"{name:12} {cpu:8.0f} {ratio:6.2f} {rate:8.0f} {late:16.1f}")


def _measure(server: Server) -> tuple[float, float, float]:
    before, began = server.cpu(), time.perf_counter()
    _ask(server, rounds=ROUNDS)
    taken, cpu = time.perf_counter() - began, server.cpu() - before
    paced = _ask(server, rounds=ROUNDS // 2, rate=PACE)
    late: float = paced.numbers()["decision_ms"]["p99"]
    return cpu / ROUNDS * 1e6, ROUNDS / taken, late


def _ask(server: Server, **more: float) -> LoadResult:
    wanted = Load(users=USERS, clients=CLIENTS, seconds=3600.0, rewarded=0.0, **more)  # type: ignore[arg-type]
    served = asyncio.run(load(server.url, wanted, dim=DIM))
    assert not served.errors, served.errors
    return served


if __name__ == "__main__":
    main()
