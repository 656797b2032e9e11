"""Metrics as text, for Prometheus and in the OpenMetrics format."""

from __future__ import annotations

import resource
import sqlite3
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dyclu import __version__
from dyclu.errors import FileError
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS
from dyclu.service.http.edge.budgets import Budget
from dyclu.service.http.keys import Caller
from dyclu.service.tenant.tenant import Tenant

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Upper bounds of the buckets of the latency histogram, in seconds."""

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content types of the two formats."""

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    r"""One metric: what it means, and its values by labels.

    Nothing in a label needs escaping: names of tenants, keys, calls and codes have no quotation
    marks.

    Examples
    --------
    >>> family = Family("dyclu_rewards_total", "counter", "Rewards learnt.")
    >>> family.add(3, {"tenant": "shop"})
    >>> print("\n".join(family.lines(open_metrics=True)))
    # HELP dyclu_rewards Rewards learnt.
    # TYPE dyclu_rewards counter
    dyclu_rewards_total{tenant="shop"} 3
    """

    name: str
    kind: Kind
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, labels: Labels, *, suffix: str = "") -> None:
        """Add a value."""
        self.samples.append((suffix, labels, value))

    def lines(self, *, open_metrics: bool) -> Iterator[str]:
        """Yield the metric as text; OpenMetrics names a counter without its suffix."""
        counts = open_metrics and self.kind == "counter"
        name = self.name.removesuffix("_total") if counts else self.name
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {self.kind}"
        for suffix, labels, value in self.samples:
            told = ",".join(f'{label}="{text}"' for label, text in labels.items())
            yield f"{self.name}{suffix}{{{told}}} {value}" if told else f"{self.name} {value}"


class Requests:
    """Counts a tenant's requests by call and status, and how long they took by call.

    Examples
    --------
    >>> requests = Requests()
    >>> requests.count("decide", 200, 0.003)
    >>> requests.statuses
    Counter({('decide', 200): 1})
    """

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.passed_on: Counter[str] = Counter()
        self._latencies: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._rising: dict[str, tuple[float, float]] = {}

    def rising(self, name: str, value: float) -> float:
        """Return a count that never falls, since a fall would look like a restart.

        Counters of a state fall when a user is erased.

        >>> requests = Requests()
        >>> [requests.rising("decisions", value) for value in (100, 90, 95)]
        [100, 100, 105]
        """
        last, added = self._rising.get(name, (value, 0))
        added += max(0, last - value)
        self._rising[name] = (value, added)
        return value + added

    def count(self, call: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.statuses[call, status] += 1
        if call not in self._latencies:
            self._latencies[call] = [0] * (len(BOUNDS) + 1)
            self._seconds[call] = 0.0
        self._latencies[call][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[call] += seconds

    def add_to(self, counts: Family, passed: Family, latencies: Family, tenant: str) -> None:
        """Add the counts to three metrics."""
        for call, count in sorted(self.passed_on.items()):
            passed.add(count, {"tenant": tenant, "call": call})
        for (call, status), count in sorted(self.statuses.items()):
            counts.add(count, {"tenant": tenant, "call": call, "status": str(status)})
        for call in sorted(self._latencies):
            labels, below = {"tenant": tenant, "call": call}, 0
            for bound, count in zip((*BOUNDS, "+Inf"), self._latencies[call], strict=True):
                below += count
                latencies.add(below, {**labels, "le": str(bound)}, suffix="_bucket")
            latencies.add(round(self._seconds[call], 6), labels, suffix="_sum")
            latencies.add(below, labels, suffix="_count")


@dataclass(frozen=True, slots=True)
class Watched:
    """A tenant, or a partition of one, and the counts of its own that never fall."""

    tenant: Tenant
    requests: Requests


@dataclass(frozen=True, slots=True)
class Edge:
    """What the edge knows about a tenant: its requests, which are not those of one partition."""

    requests: Requests
    budget: Budget


_Figure = Callable[[Watched], float | None]
_OF_TENANT: tuple[tuple[str, Kind, str, _Figure], ...] = (
    ("decisions_total", "counter", "Decisions made.", lambda w: w.tenant.state.total.decisions),
    ("rewards_total", "counter", "Rewards learnt.", lambda w: w.tenant.state.total.rewards),
    (
        "default_rewards_total", "counter", "Decisions that expired with the default reward.",
        lambda w: w.tenant.state.total.defaults,
    ),
    (
        "changes_total", "counter", "Changes of users noticed.",
        lambda w: w.tenant.state.total.changes,
    ),
    (
        "unlearnt_total", "counter", "Rewards that the policy could not learn.",
        lambda w: w.tenant.state.total.unlearnt,
    ),
    (
        "evicted_users_total", "counter", "Users pushed out because of max_users.",
        lambda w: w.tenant.state.total.evicted,
    ),
    ("commits_total", "counter", "Commits to the journal.", lambda w: w.tenant.committer.batches),
    (
        "committed_lines_total", "counter", "Lines in these commits.",
        lambda w: w.tenant.committer.batched,
    ),
    (
        "journal_line", "gauge", "Number of the journal's last line.",
        lambda w: w.tenant.state.total.seq,
    ),
    (
        "base_line", "gauge", "Line up to which the base stands for the lines; 0 without a base.",
        lambda w: w.tenant.base,
    ),
    ("queue_lines", "gauge", "Lines that wait for the disk.", lambda w: w.tenant.committer.queued),
    (
        "pending_decisions", "gauge", "Decisions that wait for their rewards.",
        lambda w: len(w.tenant.state.pending),
    ),
    (
        "pending_bytes", "gauge", "Memory that these decisions take.",
        lambda w: w.tenant.engine.waiting_bytes,
    ),
    ("users", "gauge", "Users known.", lambda w: len(w.tenant.state.users)),
    (
        "snapshot_line", "gauge", "Last line that is in the latest snapshot.",
        lambda w: w.tenant.files.saved,
    ),
    (
        "snapshot_complaints", "gauge", "Complaints about snapshots since the start.",
        lambda w: len(w.tenant.snapshots.complaints),
    ),
    (
        "rebuilding", "gauge", "1 while the state is computed again after an erasure.",
        lambda w: int(w.tenant.rebuilding),
    ),
    (
        "rebuild_lag_lines", "gauge", "Lines that this has yet to replay; 0 if it is not needed.",
        lambda w: w.tenant.rebuild.lag_lines,
    ),
    (
        "rebuild_lag_seconds", "gauge", "Time since the first erasure that the state may show.",
        lambda w: round(w.tenant.rebuild.lag_seconds, 3),
    ),
)  # fmt: skip
"""Figures of a tenant that serves."""

_OF_ANY_TENANT: tuple[tuple[str, Kind, str, _Figure], ...] = (
    ("ready", "gauge", "1 if the tenant has started and can write.", lambda w: _ready(w.tenant)),
    (
        "starting_lines", "gauge", "Lines that a start has yet to replay.",
        lambda w: _left(w.tenant),
    ),
    (
        "journal_bytes", "gauge", "Size of the journal on disk, with its write-ahead log.",
        lambda w: _journal_bytes(w.tenant.folder),
    ),
    (
        "snapshot_age_seconds", "gauge", "Age of the latest snapshot; missing if there is none.",
        lambda w: _snapshot_age(w.tenant.folder),
    ),
)  # fmt: skip

_OF_EDGE: tuple[tuple[str, Kind, str, Callable[[Budget], float]], ...] = (
    ("active_requests", "gauge", "Requests under way.", lambda budget: budget.active),
    (
        "connections", "gauge", "Connections with a request in the last idle_timeout seconds.",
        lambda budget: budget.connections,
    ),
    ("body_bytes", "gauge", "Bytes of request bodies under way.", lambda budget: budget.held),
)  # fmt: skip


def exposition(
    watched: Iterable[Watched],
    edges: Mapping[str, Edge],
    refusals: Mapping[tuple[int, str], int],
    keys: Iterable[tuple[Caller, float]],
    *,
    open_metrics: bool,
) -> str:
    """Return all metrics of these tenants, their requests, and the process, as text."""
    families = [
        *_of_tenants(list(watched)),
        *_of_edges(edges),
        _of_refusals(refusals),
        _of_keys(keys),
        *_of_process(),
    ]
    lines = [line for one in families for line in one.lines(open_metrics=open_metrics)]
    return "\n".join([*lines, *(["# EOF"] if open_metrics else []), ""])


def _of_tenants(watched: list[Watched]) -> Iterator[Family]:
    serving = [one for one in watched if one.tenant.serving]
    yield from (_family(serving, *told) for told in _OF_TENANT)
    yield from (_family(watched, *told) for told in _OF_ANY_TENANT)


def _of_edges(edges: Mapping[str, Edge]) -> Iterator[Family]:
    for figure, kind, told, value in _OF_EDGE:
        family = Family(f"dyclu_{figure}", kind, told)
        for name, one in edges.items():
            family.add(value(one.budget), {"tenant": name})
        yield family
    counts = Family("dyclu_requests_total", "counter", "Requests by call and status.")
    latencies = Family("dyclu_request_seconds", "histogram", "Time until a request is answered.")
    help = "Requests, or parts of batches, passed on to another process of the cluster."
    passed = Family("dyclu_passed_on_total", "counter", help)
    for name, one in edges.items():
        one.requests.add_to(counts, passed, latencies, name)
    yield from (counts, passed, latencies)


def _family(watched: list[Watched], name: str, kind: Kind, help: str, figure: _Figure) -> Family:
    family = Family(f"dyclu_{name}", kind, help)
    for one in watched:
        # A file may just have been removed, or the disk fail; then the figure is missing.
        with suppress(OSError, FileError, sqlite3.Error):
            if (value := figure(one)) is not None:
                if kind == "counter":
                    value = one.requests.rising(name, value)
                family.add(value, {"tenant": one.tenant.name})
    return family


def _of_refusals(refusals: Mapping[tuple[int, str], int]) -> Family:
    help = "Requests refused before their tenant was known, such as those with a wrong key."
    family = Family("dyclu_strangers_refused_total", "counter", help)
    for (status, code), count in sorted(refusals.items()):
        family.add(count, {"status": str(status), "code": code})
    return family


def _of_keys(keys: Iterable[tuple[Caller, float]]) -> Family:
    help = "Time until a key expires, from 14 days before; 0 if it has expired."
    family = Family("dyclu_key_seconds_left", "gauge", help)
    first: dict[tuple[str | None, str, str], float] = {}
    for key, left in keys:
        # A key and its replacement may have the same name.
        known = (key.tenant, key.role, key.key)
        first[known] = min(left, first.get(known, left))
    for (tenant, role, name), left in first.items():
        of = {} if tenant is None else {"tenant": tenant}
        family.add(round(left), {**of, "role": role, "key": name})
    return family


def _of_process() -> Iterator[Family]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures: list[tuple[str, Kind, str, float | None]] = [
        (
            "process_cpu_seconds_total", "counter", "CPU time used by this process.",
            round(used.ru_utime + used.ru_stime, 3),
        ),
        (
            "process_max_fds", "gauge", "Files that may be open.",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        ),
        ("process_open_fds", "gauge", "Files that are open.", _open_files()),
        ("process_resident_memory_bytes", "gauge", "Memory in use.", _resident()),
        ("process_start_time_seconds", "gauge", "When this process started.", STARTED),
    ]  # fmt: skip
    for name, kind, help, value in figures:
        if value is not None:
            yield Family(name, kind, help, [("", {}, value)])
    build = Family("dyclu_build_info", "gauge", "Version of dyclu; the value is 1.")
    build.add(1, {"version": __version__})
    yield build


STARTED = round(time.time(), 3)


def _ready(tenant: Tenant) -> int:
    return int(tenant.serving and tenant.trouble is None)


def _left(tenant: Tenant) -> int:
    progress = tenant.progress
    return progress.total - progress.done if tenant.starting and progress else 0


def _journal_bytes(folder: Path) -> int:
    files = (folder / f"{JOURNAL}{suffix}" for suffix in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _snapshot_age(folder: Path) -> float | None:
    times = [file.stat().st_mtime for file in (folder / SNAPSHOTS).glob("*.state")]
    return round(max(0.0, time.time() - max(times)), 3) if times else None


def _resident() -> int | None:
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * resource.getpagesize() if file.exists() else None


def _open_files() -> int | None:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else None
