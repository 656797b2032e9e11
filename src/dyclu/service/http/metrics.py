"""Metrics in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from dyclu.service.tenant import Tenant

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Upper bounds of the buckets of the latency histogram, in seconds."""


class Requests:
    """Counts a tenant's requests by call and status, and how long they took by call.

    Examples
    --------
    >>> requests = Requests()
    >>> requests.count("decide", 200, 0.003)
    >>> [line for line in requests.lines("shop") if "total{" in line]
    ['dyclu_requests_total{tenant="shop",call="decide",status="200"} 1']
    """

    def __init__(self) -> None:
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._latencies: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def count(self, call: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._statuses[call, status] += 1
        if call not in self._latencies:
            self._latencies[call] = [0] * (len(BOUNDS) + 1)
            self._seconds[call] = 0.0
        self._latencies[call][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[call] += seconds

    def lines(self, tenant: str) -> list[str]:
        """Return the counts as text."""
        said = ["# TYPE dyclu_requests_total counter"]
        said += [
            f'dyclu_requests_total{{tenant="{tenant}",call="{call}",status="{status}"}} {count}'
            for (call, status), count in sorted(self._statuses.items())
        ]
        said.append("# TYPE dyclu_request_seconds histogram")
        for call in sorted(self._latencies):
            said += self._histogram(tenant, call)
        return said

    def _histogram(self, tenant: str, call: str) -> list[str]:
        label, below, said = f'tenant="{tenant}",call="{call}"', 0, []
        for bound, count in zip((*BOUNDS, "+Inf"), self._latencies[call], strict=True):
            below += count
            said.append(f'dyclu_request_seconds_bucket{{{label},le="{bound}"}} {below}')
        said.append(f"dyclu_request_seconds_sum{{{label}}} {self._seconds[call]:.6f}")
        said.append(f"dyclu_request_seconds_count{{{label}}} {below}")
        return said


def exposition(tenant: Tenant, requests: Requests) -> str:
    """Return all metrics of a tenant.

    Nothing in a tenant's name needs escaping; the settings check that.
    """
    state, total = tenant.state, tenant.state.total
    numbers = [
        ("decisions_total", "counter", total.decisions),
        ("rewards_total", "counter", total.rewards),
        ("default_rewards_total", "counter", total.defaults),
        ("changes_total", "counter", total.changes),
        ("unlearnt_total", "counter", total.unlearnt),
        ("commits_total", "counter", tenant.batches),
        ("committed_lines_total", "counter", tenant.batched),
        ("journal_line", "gauge", total.seq),
        ("pending_decisions", "gauge", len(state.pending)),
        ("users", "gauge", len(state.users)),
        ("snapshot_line", "gauge", tenant.saved),
        ("snapshot_complaints", "gauge", len(tenant.snapshots.complaints)),
        ("rebuilding", "gauge", int(tenant.rebuilding)),
        ("ready", "gauge", int(tenant.trouble is None)),
    ]
    said = []
    for name, kind, value in numbers:
        said.append(f"# TYPE dyclu_{name} {kind}")
        said.append(f'dyclu_{name}{{tenant="{tenant.name}"}} {value}')
    return "\n".join([*said, *requests.lines(tenant.name), ""])
