"""Two processes on PostgreSQL, compared with one on SQLite: CPU time, load, and a take-over.

``python -m benchmarks.cluster postgresql://…`` prints a table; it needs an empty database on this
machine, which stays as it is afterwards. The load generator asks owners directly, as clients do
that have been running for a while. The CPU time of the database is what all processes used but
these. What the machine can do at most is measured in the same run: a bare endpoint, and lines that
are written to PostgreSQL without a service. ``--quick`` only checks that everything runs.
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

from benchmarks.servers import Server, bare, busy, serving
from benchmarks.service import DIM, LEARNT, POLICIES, USERS
from dyclu.client.owners import Owners
from dyclu.client.partitions import partition_of
from dyclu.service.cluster.leases import Leases
from dyclu.service.disk.postgres.database import Database
from dyclu.service.engine.lines import EventBody, encode, make_line
from dyclu.service.tools.loadtest import Load, LoadResult, load

CLIENTS, PACE, LEASE, PATIENCE = 64, 800.0, 10.0, 120.0
FEW, ROUNDS = 8, 600
"""Clients and rounds by which the load generator learns who owns what."""


class Asked:
    """A service, the address that is asked first, and what is known of its owners."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers, self._owners = servers, Owners(servers[0].url)
        if len(servers) > 1:
            self._load(Load(users=USERS, clients=FEW, seconds=3600.0, rounds=ROUNDS))

    def load(self, *, seconds: float = 3600.0, **more: float) -> LoadResult:
        """Run a load test; no request may fail."""
        return self._load(Load(users=USERS, clients=CLIENTS, seconds=seconds, **more))  # type: ignore[arg-type]

    def _load(self, wanted: Load) -> LoadResult:
        url = self.servers[0].url
        served = asyncio.run(load(url, wanted, dim=DIM, owners=self._owners))
        failed = {name: count for name, count in served.errors.items() if name != "not begun"}
        assert not failed, failed
        return served

    def cpu(self) -> float:
        """CPU seconds that all processes have used."""
        return sum(one.cpu() for one in self.servers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--policy", choices=POLICIES, default="atlas")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    told = parser.parse_args()
    words = POLICIES[told.policy]
    os.environ |= {"DYCLU_PARTITIONS": str(told.partitions), "DYCLU_LEASE": str(LEASE)}
    rounds, seconds = (300, 1.0) if told.quick else (5000, 10.0)
    print(f"{told.policy}, {told.partitions} partitions, {USERS} users, {DIM} features")
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory()))
        _ceilings(told.store, rounds, seconds / 2, told.partitions)
        alone = Asked([running.enter_context(serving(folder / "alone", DIM, *words))])
        members = [
            running.enter_context(serving(folder / name, DIM, *words, f"--store={told.store}"))
            for name in ("a", "b")
        ]
        _await_balance(members)
        cluster = Asked(members)
        print(f"idle: {_idle(members, seconds / 2):.1f} % of a core, both processes")
        for one in (alone, cluster):
            one.load(rounds=USERS if told.quick else USERS * LEARNT)
        base = _costs("SQLite, one process", alone, rounds, {})
        _costs("PostgreSQL, two processes", cluster, rounds, base)
        _loads("SQLite, one process", alone, seconds)
        _loads("PostgreSQL, two processes", cluster, seconds)
        took = _take_over(members, told.partitions)
        print(f"take-over after kill -9: {took:.1f} s (lease {LEASE:.0f} s)")


def _ceilings(store: str, rounds: int, seconds: float, partitions: int) -> None:
    """Print what the machine can do without a service, with the same load generator."""
    with bare(DIM) as endpoint:
        served = Asked([endpoint]).load(rounds=rounds, rewarded=0.0)
        rate = len(served.decisions) / served.seconds
        print(f"bare endpoint, which stores nothing: {rate:,.0f} decisions/s")
    rate = asyncio.run(_raw(store, seconds, partitions))
    print(f"PostgreSQL, lines written without a service: {rate:,.0f} /s, as many at a time as wait")


async def _raw(store: str, seconds: float, partitions: int) -> float:
    """Return the lines per second that one process writes, one at a time for each partition."""
    database = Database(store)
    database.begin()
    leases = Leases(database, "raw", "raw", lease=3600.0)
    leases.set_up({"raw": partitions})
    leases.register("http://nowhere")
    counts = [0] * partitions
    end = time.monotonic() + seconds

    async def write(index: int) -> None:
        claim, body = claims[index], EventBody([0.1234567890123456] * DIM, 0.5)
        while time.monotonic() < end:
            seq = counts[index] = counts[index] + 1
            line = make_line(seq, seq, body, ref=f"{index}-{seq}", user=f"u{seq % USERS}")
            await database.appends.append_soon(claim, [encode(line)], seq)

    claims = leases.claim(["raw"], partitions)
    await asyncio.gather(*(write(index) for index in range(partitions)))
    leases.leave()
    database.close()
    return sum(counts) / seconds


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


def _idle(members: Sequence[Server], seconds: float) -> float:
    """Return the share of a core that processes use which nobody asks anything, in percent."""
    time.sleep(1.0)
    before = sum(one.cpu() for one in members)
    time.sleep(seconds)
    return (sum(one.cpu() for one in members) - before) / seconds * 100


def _costs(name: str, asked: Asked, rounds: int, base: dict[float, float]) -> dict[float, float]:
    """Print CPU microseconds per round, without and with rewards; ratios to `base`."""
    found = {}
    for rewarded in (0.0, 1.0):
        cpu, all_before, own = asked.cpu(), busy(), time.process_time()
        asked.load(rounds=rounds, rewarded=rewarded)
        used = asked.cpu() - cpu
        others = busy() - all_before - used - (time.process_time() - own)
        found[rewarded] = used / rounds * 1e6
        what = "a decision and its reward" if rewarded else "a decision"
        ratio = f" ({found[rewarded] / base[rewarded]:.2f} ×)" if base else ""
        print(f"{name}, CPU of {what}: {found[rewarded]:,.0f} µs{ratio}; "
              f"database and others {others / rounds * 1e6:,.0f} µs")  # fmt: skip
    return found


def _loads(name: str, asked: Asked, seconds: float) -> None:
    """Print rates at full speed, and latencies at a fixed rate."""
    told = asked.load(seconds=seconds).numbers()
    print(
        f"{name}: {told['decisions_per_second']:,.0f} decisions/s, "
        f"{told['rewards_per_second']:,.0f} rewards/s, "
        f"p99 {told['decision_ms']['p99']:.0f} and {told['reward_ms']['p99']:.0f} ms"
    )
    told = asked.load(seconds=seconds, rate=PACE).numbers()
    print(
        f"{name}, paced at {PACE:,.0f} rounds/s: {told['decisions_per_second']:,.0f} decisions/s, "
        f"p99 {told['decision_ms']['p99']:.0f} and {told['reward_ms']['p99']:.0f} ms, "
        f"errors {told['errors']}"
    )


def _take_over(members: Sequence[Server], partitions: int) -> float:
    """Kill one; return the seconds until the other answers for a user of each partition."""
    users = {partition_of(name, partitions): name for name in (f"u{n}" for n in range(USERS))}
    arms = [{"id": "a", "features": [1.0] * DIM}]
    members[1].child.kill()
    began = time.monotonic()
    with httpx.Client(base_url=members[0].url, timeout=30) as http:
        for user in users.values():
            while http.post("/v1/decisions", json={"user": user, "arms": arms}).status_code != 200:
                time.sleep(0.02)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
