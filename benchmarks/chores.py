"""The service while it does other work: snapshots, erasures, a start, and users nobody knows.

``python -m benchmarks.chores`` prints each figure beside what is wanted; ``--quick`` only checks
that everything runs. Latencies are meaningful on a quiet machine only.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.command import CACHE
from benchmarks.results import Effort, Results, Row, Target
from benchmarks.servers import Server, serving
from benchmarks.service import DIM, POLICIES, USERS, ask, settle
from benchmarks.tables import figures, targets
from benchmarks.tenants import crowd
from dyclu.service.spec import PolicySpec
from dyclu.sim.reports.terminal import print_table

PACE = 1500.0
MOST_LATENCY, MOST_DISTURBED, MOST_START, LEAST_FRESH = 25.0, 50.0, 5.0, 0.5
NEVER = 1e6
"""Seconds between snapshots where none is to be made."""

TIMES = 4
"""Snapshots, or erasures, during one measurement."""

FIRST = 10
"""Rounds per user of a service that knows nobody yet."""


def run(effort: Effort) -> Results:
    """Run all measurements."""
    rows = [*_latencies(effort), *_fresh(effort), _start(effort)]
    return Results(
        title="The service while it does other work",
        against="rate of a warm service",
        rows=tuple(rows),
        targets=tuple(_target(row) for row in rows if row.name in _LIMITS or row.ratios),
        notes=(
            f"At {DIM} features, 10 arms and 64 clients; {PACE:,.0f} rounds, a decision and its "
            f"reward each, are begun per second. {TIMES} snapshots or erasures per measurement.",
            f"Fresh: the first {FIRST} rounds of each of {USERS} users. A million lines: 20,000 "
            "LinUCB models, from a snapshot.",
        ),
    )


def _latency(policy: str, chore: str) -> str:
    return f"{policy}, p99 of a decision, {chore}"


PLAIN, SNAPSHOT, ERASURE = "nothing else", "while a snapshot is made", "while a user is erased"
STARTED = "linucb, start with 1,000,000 lines"
_LIMITS = {STARTED: MOST_START} | {
    _latency(policy, chore): MOST_LATENCY if chore == PLAIN else MOST_DISTURBED
    for policy in POLICIES
    for chore in (PLAIN, SNAPSHOT, ERASURE)
}


def _target(row: Row) -> Target:
    if row.ratios:
        return Target(
            name=row.name, value=row.ratio, sense="at least", limit=LEAST_FRESH, unit="× warm"
        )
    limit = _LIMITS[row.name]
    return Target(name=row.name, value=row.median, sense="at most", limit=limit, unit=row.unit)


# Latencies


def _latencies(effort: Effort) -> Iterator[Row]:
    seconds = 1.0 if effort.quick else 8.0
    for policy, words in POLICIES.items():
        for chore in (PLAIN, SNAPSHOT, ERASURE):
            with TemporaryDirectory() as name:
                config = Path(name) / "chores.toml"
                every = seconds / TIMES if chore == SNAPSHOT else NEVER
                config.write_text(f"snapshot_every = {every}")
                data, flags = Path(name) / "data", (*words, f"--config={config}")
                with serving(data, DIM, *flags) as server:
                    settle(server, effort)
                    values = [
                        _paced(server, data, chore, seconds, turn)
                        for turn in range(effort.repetitions)
                    ]
            yield Row(name=_latency(policy, chore), unit="ms", values=tuple(values))


def _paced(server: Server, data: Path, chore: str, seconds: float, turn: int) -> float:
    """Return the p99 of decisions at a fixed rate; the chore must have been done meanwhile."""
    began = time.time()
    with _erasing(server, seconds, turn) if chore == ERASURE else _doing_nothing():
        late: float = ask(server, seconds=seconds, rate=PACE).numbers()["decision_ms"]["p99"]
    if chore == SNAPSHOT:
        _await(lambda: any(one.stat().st_mtime > began for one in data.glob("*/snapshots/*.state")))
    return late


@contextmanager
def _doing_nothing() -> Iterator[None]:
    yield


@contextmanager
def _erasing(server: Server, seconds: float, turn: int) -> Iterator[None]:
    """Erase users, one after the other, in another thread."""
    gone = [f"gone-{turn}-{number}" for number in range(TIMES)]
    seen = [{"user": user, "features": [0.1] * DIM, "reward": 0.5} for user in gone] * 10
    with httpx.Client(base_url=server.url, timeout=60) as http:
        http.post("/v1/observations", json={"observations": seen}).raise_for_status()

        def erase() -> None:
            for user in gone:
                time.sleep(seconds / (TIMES + 1))
                http.delete(f"/v1/users/{user}").raise_for_status()

        erasing = threading.Thread(target=erase)
        erasing.start()
        yield
        erasing.join()
        _await(lambda: not http.get("/v1/policy").json()["rebuilding"])
        assert all(http.get(f"/v1/users/{user}").status_code == 404 for user in gone)


def _await(true: Callable[[], bool], *, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


# Users nobody knows, and a start


def _fresh(effort: Effort) -> Iterator[Row]:
    """Yield the rates of a service that knows nobody, divided by those of the same one later."""
    for policy, words in POLICIES.items():
        fresh, warm = [], []
        for _ in range(effort.repetitions):
            with TemporaryDirectory() as name, serving(Path(name), DIM, *words) as server:
                fresh.append(_rate(server))
                settle(server, effort)
                warm.append(_rate(server))
        ratios = tuple(one / other for one, other in zip(fresh, warm, strict=True))
        yield Row(name=f"{policy}, fresh, rounds", unit="/s", values=tuple(fresh), ratios=ratios)


def _rate(server: Server) -> float:
    served = ask(server, rounds=FIRST * USERS)
    return len(served.decisions) / served.seconds


def _start(effort: Effort) -> Row:
    """Return the seconds from the command until a service with a million lines serves."""
    spec, users = PolicySpec("linucb", DIM, {"alpha": 0.3}), 200 if effort.quick else 20_000
    data = crowd(effort.cache, spec, users=users, life=50, whole=True)
    values = []
    for _ in range(effort.repetitions):
        began = time.monotonic()
        with serving(data, DIM, *POLICIES["linucb"]):
            values.append(time.monotonic() - began)
    return Row(name=STARTED, unit="s", values=tuple(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--cache", type=Path, default=CACHE, help="default: %(default)s")
    told = parser.parse_args()
    found = run(Effort(quick=told.quick, cache=told.cache))
    print_table(figures(found))
    print_table(targets(found))


if __name__ == "__main__":
    main()
