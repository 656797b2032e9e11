"""The decision service: CPU time compared with a minimal endpoint, load, start-up, memory.

CPU time is a ratio within one run, so other processes hardly matter. Rates and latencies depend on
other processes, so the notes say how much CPU these used.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.results import Effort, Results, Row, Target, by_repetition
from benchmarks.servers import Server, bare, busy, serving
from benchmarks.soak import MOST_GROWTH, ROUNDS, soak
from benchmarks.tenants import crowd
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.loadtest import Load, LoadResult, load

DIM, CLIENTS, USERS = 25, 64, 200
LINUCB = ("--policy=linucb", "--options=alpha=0.3")
ATLAS = ("--policy=atlas",)
POLICIES = {"linucb": LINUCB, "atlas": ATLAS}

PACE = 1600.0
"""Rounds per second at which latencies are measured: slightly above the target."""

LEARNT = 80
"""Rewards per user before a measurement. By then Atlas has located all 200 users; after half as
many rewards, one in three."""

LEAST_RATE, MOST_LATENCY, MOST_RATIO, MOST_START = 1500.0, 25.0, 1.8, 5.0

BARE = "bare Starlette and msgspec, scoring"
OTHERS = "others"
"""Row that is shown in a note, not in the table."""

LIVES = {"linucb": 1, "atlas": 6}
"""Rewards per user of a large crowd: enough for a model, and enough to be located."""


def run(effort: Effort) -> Results:
    """Run all measurements of the service."""
    rows = [*_costs(effort), *_loads(effort), *_starts(effort), *_memory(effort)]
    found = {row.name: row for row in rows}
    return Results(
        title="The decision service",
        against="× bare endpoint",
        rows=tuple(row for row in rows if row.name != OTHERS),
        targets=tuple(_targets(found)),
        notes=(
            "At 25 features, 10 arms and 64 clients; CPU time is the server's, all its threads. A "
            "reward, like a decision, is on disk before it is answered. "
            f"{USERS} users, {LEARNT} rewards of each learnt beforehand.",
            f"Paced: {PACE:,.0f} rounds, a decision and its reward each, are begun per second; "
            "else each client begins one as soon as it is answered. Server and load generator "
            f"share two cores with others, who took {_range(found[OTHERS])} of them meanwhile.",
            "Start: from the command to the first answer, imports and kernels included. "
            "100,000 LinUCB models are 1 GB; of as many located users Atlas keeps 0.14 GB.",
            f"Memory: {ROUNDS:,} decisions, half of them rewarded, half expired; the slope of what "
            "the process holds, over the second half.",
        ),
    )


def _targets(found: dict[str, Row]) -> list[Target]:
    wanted: list[tuple[str, Literal["at least", "at most"], float]] = []
    for policy in POLICIES:
        wanted += [
            (f"{policy}, decisions", "at least", LEAST_RATE),
            (f"{policy}, durable rewards", "at least", LEAST_RATE),
            (f"{policy}, paced, p99 of a decision", "at most", MOST_LATENCY),
            (f"{policy}, start with 100,000 users", "at most", MOST_START),
            (f"{policy}, growth of memory", "at most", MOST_GROWTH),
        ]
    judged = [
        Target(name=name, value=found[name].median, sense=sense, limit=limit, unit=found[name].unit)
        for name, sense, limit in wanted
    ]
    return [*(_cost_target(found[f"{policy}, a decision"]) for policy in POLICIES), *judged]


def _cost_target(row: Row) -> Target:
    unit = "× bare endpoint"
    return Target(name=row.name, value=row.ratio, sense="at most", limit=MOST_RATIO, unit=unit)


# CPU time


def _costs(effort: Effort) -> list[Row]:
    """Return CPU microseconds per request; the minimal endpoint and the service take turns."""
    count = 300 if effort.quick else 2000
    spent: dict[str, list[float]] = {}
    with (
        TemporaryDirectory() as one,
        TemporaryDirectory() as other,
        bare(DIM) as endpoint,
        serving(Path(one), DIM, *LINUCB) as linucb,
        serving(Path(other), DIM, *ATLAS) as atlas,
    ):
        contestants: list[tuple[str, Server, float]] = [(BARE, endpoint, 0.0)]
        for name, server in (("linucb", linucb), ("atlas", atlas)):
            settle(server, effort)
            contestants.append((f"{name}, a decision", server, 0.0))
            contestants.append((f"{name}, a decision and its reward", server, 1.0))
        for repetition in range(1 + effort.repetitions):
            for name, server, rewarded in contestants:
                cost = _cost(server, rounds=count, rewarded=rewarded)
                if repetition:
                    spent.setdefault(name, []).append(cost)
    reference = tuple(spent[BARE])
    return [
        Row(name=name, unit="µs", values=tuple(all), ratios=by_repetition(tuple(all), reference))
        for name, all in spent.items()
    ]


def _cost(server: Server, *, rounds: int, rewarded: float) -> float:
    before = server.cpu()
    served = ask(server, rounds=rounds, rewarded=rewarded)
    return (server.cpu() - before) / len(served.decisions) * 1e6


# Load


def _loads(effort: Effort) -> list[Row]:
    """Return what ``dyclu loadtest`` reports, at full speed and at a fixed rate."""
    seconds = 0.5 if effort.quick else 8.0
    found: dict[str, list[float]] = {}
    units: dict[str, str] = {}

    def note(name: str, unit: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        units[name] = unit

    for policy, words in POLICIES.items():
        with TemporaryDirectory() as folder, serving(Path(folder), DIM, *words) as server:
            settle(server, effort)
            for _ in range(effort.repetitions):
                told, others = _others(server, lambda: ask(server, seconds=seconds).numbers())
                note(OTHERS, "cores", others)
                note(f"{policy}, decisions", "/s", told["decisions_per_second"])
                note(f"{policy}, durable rewards", "/s", told["rewards_per_second"])
                note(f"{policy}, p99 of a decision", "ms", told["decision_ms"]["p99"])
                told, others = _others(
                    server, lambda: ask(server, seconds=seconds, rate=PACE).numbers()
                )
                note(OTHERS, "cores", others)
                note(f"{policy}, paced, decisions", "/s", told["decisions_per_second"])
                note(f"{policy}, paced, p99 of a decision", "ms", told["decision_ms"]["p99"])
                note(f"{policy}, paced, p99 of a reward", "ms", told["reward_ms"]["p99"])
    return [Row(name=name, unit=units[name], values=tuple(all)) for name, all in found.items()]


def _others(server: Server, work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of some work, and the number of cores used by other processes."""
    began, all_before = time.monotonic(), busy()
    own_before = server.cpu() + time.process_time()
    result = work()
    own = server.cpu() + time.process_time() - own_before
    return result, max(0.01, (busy() - all_before - own) / (time.monotonic() - began))


def settle(server: Server, effort: Effort) -> None:
    """Let the service learn from all users before it is measured."""
    ask(server, rounds=USERS if effort.quick else USERS * LEARNT)


def ask(server: Server, *, seconds: float = 3600.0, **more: Any) -> LoadResult:
    """Run a load test; no request may fail."""
    wanted = Load(users=USERS, clients=CLIENTS, seconds=seconds, **more)
    served = asyncio.run(load(server.url, wanted, dim=DIM))
    # Rounds that a fixed rate asked for and that could not begin in time are no failed requests.
    failed = {name: count for name, count in served.errors.items() if name != "not begun"}
    assert not failed, failed
    return served


def _range(row: Row) -> str:
    low, high = min(row.values), max(row.values)
    return f"{low:.1f} to {high:.1f} (median {statistics.median(row.values):.1f})"


# Starts and memory


def _starts(effort: Effort) -> list[Row]:
    """Return the seconds until a service with many users answers."""
    users = 300 if effort.quick else 100_000
    specs = (PolicySpec("linucb", DIM, {"alpha": 0.3}), PolicySpec("atlas", DIM, {}))
    rows = []
    for spec in specs:
        data = crowd(effort.cache, spec, users=users, life=LIVES[spec.name])
        times = [_start(data, POLICIES[spec.name]) for _ in range(effort.repetitions)]
        name = f"{spec.name}, start with 100,000 users"
        rows.append(Row(name=name, unit="s", values=tuple(wall for wall, _ in times)))
        rows.append(Row(name=f"{name}, CPU", unit="s", values=tuple(cpu for _, cpu in times)))
    return rows


def _start(data: Path, words: tuple[str, ...]) -> tuple[float, float]:
    began = time.monotonic()
    with serving(data, DIM, *words) as server:
        return time.monotonic() - began, server.cpu()


def _memory(effort: Effort) -> list[Row]:
    rows = []
    for policy, words in POLICIES.items():
        with TemporaryDirectory() as folder:
            found = soak(640 if effort.quick else ROUNDS, Path(folder), *words)
        # Noise around zero may be negative, and rows must be positive.
        growth = max(found.growth, 0.001)
        rows.append(Row(name=f"{policy}, growth of memory", unit="bytes/round", values=(growth,)))
        last = found.resident[-1] / 1e6
        rows.append(Row(name=f"{policy}, resident at the end", unit="MB", values=(last,)))
    return rows
