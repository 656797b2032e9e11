"""Two processes on PostgreSQL, compared with one on SQLite: CPU time, load, and a take-over.

``python -m benchmarks.cluster postgresql://…`` prints a table; it needs an empty database on this
machine, which stays as it is afterwards. The load generator asks owners directly, as clients do.
The CPU time of the database is what all processes used but these. ``--quick`` only checks that
everything runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.servers import Server, busy, serving
from benchmarks.service import DIM, LEARNT, POLICIES, USERS
from dyclu.service.tools.loadtest import Load, LoadResult, load

CLIENTS, PACE, LEASE, PATIENCE = 64, 800.0, 10.0, 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--policy", choices=POLICIES, default="atlas")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    told = parser.parse_args()
    words = POLICIES[told.policy]
    os.environ |= {"DYCLU_PARTITIONS": str(told.partitions), "DYCLU_LEASE": str(LEASE)}
    rounds, seconds = (100, 1.0) if told.quick else (3000, 10.0)
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory()))
        alone = running.enter_context(serving(folder / "alone", DIM, *words))
        members = [
            running.enter_context(serving(folder / name, DIM, *words, f"--store={told.store}"))
            for name in ("a", "b")
        ]
        _await_balance(members)
        print(f"{told.policy}, {told.partitions} partitions, {USERS} users, {DIM} features")
        for one in ([alone], members):
            ask(one, rounds=USERS if told.quick else USERS * LEARNT)
        base = _costs("SQLite, one process", [alone], rounds, {})
        _costs("PostgreSQL, two processes", members, rounds, base)
        _loads("SQLite, one process", [alone], seconds)
        _loads("PostgreSQL, two processes", members, seconds)
        print(f"take-over after kill -9: {_take_over(members):.1f} s (lease {LEASE:.0f} s)")


def _await_balance(members: Sequence[Server]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        told = httpx.get(f"{members[0].url}/v1/cluster").json()["processes"]
        counts = [one["partitions"] for one in told]
        status = [httpx.get(f"{one.url}/readyz").json()["status"] for one in members]
        if len(counts) == len(members) and min(counts) and status == ["ok"] * len(members):
            return
        time.sleep(0.2)
    raise SystemExit("the processes did not share the partitions")


def _costs(
    name: str, servers: Sequence[Server], rounds: int, base: dict[float, float]
) -> dict[float, float]:
    """Print CPU microseconds per round, without and with rewards; ratios to `base`."""
    found = {}
    for rewarded in (0.0, 1.0):
        cpu, all_before, own = _cpu(servers), busy(), time.process_time()
        ask(servers, rounds=rounds, rewarded=rewarded)
        used = _cpu(servers) - cpu
        others = busy() - all_before - used - (time.process_time() - own)
        found[rewarded] = used / rounds * 1e6
        what = "a decision and its reward" if rewarded else "a decision"
        ratio = f" ({found[rewarded] / base[rewarded]:.2f} ×)" if base else ""
        print(f"{name}, CPU of {what}: {found[rewarded]:,.0f} µs{ratio}; "
              f"database and others {others / rounds * 1e6:,.0f} µs")  # fmt: skip
    return found


def _loads(name: str, servers: Sequence[Server], seconds: float) -> None:
    """Print rates at full speed, and latencies at a fixed rate."""
    told = ask(servers, seconds=seconds).numbers()
    print(
        f"{name}: {told['decisions_per_second']:,.0f} decisions/s, "
        f"{told['rewards_per_second']:,.0f} rewards/s, "
        f"p99 {told['decision_ms']['p99']:.0f} and {told['reward_ms']['p99']:.0f} ms"
    )
    told = ask(servers, seconds=seconds, rate=PACE).numbers()
    print(
        f"{name}, paced at {PACE:,.0f} rounds/s: {told['decisions_per_second']:,.0f} decisions/s, "
        f"p99 {told['decision_ms']['p99']:.0f} and {told['reward_ms']['p99']:.0f} ms, "
        f"errors {told['errors']}"
    )


def _cpu(servers: Sequence[Server]) -> float:
    return sum(one.cpu() for one in servers)


def ask(servers: Sequence[Server], *, seconds: float = 3600.0, **more: float) -> LoadResult:
    """Run a load test; the generator learns owners from the first process."""
    wanted = Load(users=USERS, clients=CLIENTS, seconds=seconds, **more)  # type: ignore[arg-type]
    served = asyncio.run(load(servers[0].url, wanted, dim=DIM))
    failed = {name: count for name, count in served.errors.items() if name != "not begun"}
    assert not failed, failed
    return served


def _take_over(members: Sequence[Server]) -> float:
    """Kill one; return the seconds until the other answers for each user."""
    arms = [{"id": "a", "features": [1.0] * DIM}]
    members[1].child.kill()
    began = time.monotonic()
    for user in range(USERS):
        body = {"user": f"u{user}", "arms": arms}
        while True:
            try:
                got = httpx.post(f"{members[0].url}/v1/decisions", json=body, timeout=30)
            except httpx.TransportError:
                continue
            if got.status_code == 200:
                break
            time.sleep(0.02)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
