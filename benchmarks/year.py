"""A year of lines: do disk, memory, start and erasure depend on what is kept, or on the age?

``python -m benchmarks.year`` fills a running service with twelve months of lines and measures it
after each of them. Decisions, their rewards (a quarter of them), expiries and observations come as
fast as the service answers. Every month half of the users are new; beyond `max_users` the one seen
longest ago is pushed out. ``--quick`` is a small version, ``--lines`` and ``--keep`` set the sizes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.servers import Server, serving

DIM, MONTHS, STEP = 10, 12, 1000
DECIDED, REWARDED = 400, 100
"""Decisions and rewards of a step; the rest of its lines are observations."""

WAIT = 5.0
"""Seconds for which a reward is waited for."""

JSON = {"Content-Type": "application/json"}
MOST_GROWTH = 1.5
"""Largest allowed ratio of a figure of the last month to the largest of the third to fifth.

By then what is kept is full, and the users are as many as there may be.
"""

CONFIG = """
snapshot_every = 30
[tenants.default]
dim = {dim}
policy = "{policy}"
reward_wait = {wait}
keep = "{keep} lines"
limits = {{max_users = {users}}}
"""


@dataclass(frozen=True, slots=True)
class Month:
    """What was measured after one month.

    Attributes
    ----------
    lines : int
        Number of the last line.
    disk, memory : float
        Megabytes of the data folder, and resident ones of the process.
    start, replay : float
        Seconds until it serves: from a snapshot, and from base and kept lines.
    answer, rebuilt : float
        Seconds until an erasure is answered, and until the policy is computed again.
    """

    lines: int
    disk: float
    memory: float
    start: float
    replay: float
    answer: float
    rebuilt: float


class Year:
    """A service with its data folder, and those who use it."""

    def __init__(self, folder: Path, *, lines: int, keep: int, policy: str) -> None:
        self.folder, self.lines, self.keep = folder, lines, keep
        self.rng = np.random.default_rng(0)
        self.people = max(20, lines // 50)
        self.config = folder / "year.toml"
        self.config.write_text(
            CONFIG.format(dim=DIM, policy=policy, wait=WAIT, keep=keep, users=2 * self.people)
        )
        self.tastes = self.rng.standard_normal((5, DIM)) / np.sqrt(DIM)
        self.count = self.late = 0

    def months(self) -> Iterator[Month]:
        """Yield the figures of every month."""
        for month in range(MONTHS):
            with self._serving() as (server, http):
                for _ in range(0, self.lines, STEP):
                    self._step(http, month)
                self._settle(http)
                answer, rebuilt = self._erase(http, month)
                self._settle(http)
                memory, disk = server.resident() / 1e6, _size(self.folder / "data")
                lines = _metric(http, "journal_line")
            start = self._start()
            shutil.rmtree(self.folder / "data/default/snapshots")
            yield Month(int(lines), disk, memory, start, self._start(), answer, rebuilt)

    @contextmanager
    def _serving(self) -> Iterator[tuple[Server, httpx.Client]]:
        with (
            serving(self.folder / "data", DIM, f"--config={self.config}") as server,
            httpx.Client(base_url=server.url, timeout=120) as http,
        ):
            _await(lambda: http.get("/readyz").status_code == 200)
            yield server, http
            server.child.terminate()
            server.child.wait()

    def _start(self) -> float:
        began = time.monotonic()
        with self._serving():
            return time.monotonic() - began

    def _settle(self, http: httpx.Client) -> None:
        """Wait until decisions have expired and lines have been retired."""
        _await(lambda: _metric(http, "pending_decisions") == 0)
        kept = 1.06 * self.keep
        _await(lambda: _metric(http, "journal_line") - _metric(http, "base_line") < kept)

    def _step(self, http: httpx.Client, month: int) -> None:
        users, arms = self._users(DECIDED, month), self._contexts(DECIDED, 3)
        first = self.count
        self.count += DECIDED
        asked = [
            {
                "user": f"u{user}",
                "decision_id": f"d{first + number}",
                "arms": [{"id": str(i), "features": x} for i, x in enumerate(offered)],
            }
            for number, (user, offered) in enumerate(zip(users, arms.tolist(), strict=True))
        ]
        told = self._posted(http, "/v1/decisions:batch", {"decisions": asked})
        some = self.rng.choice(DECIDED, REWARDED, replace=False)
        shown = arms[some, [int(told[i]["arm"]) for i in some]]
        worths = self._worths(users[some], shown)
        rows = [
            {"decision_id": f"d{first + number}", "value": value}
            for number, value in zip(some, worths, strict=True)
        ]
        self._posted(http, "/v1/rewards:batch", {"rewards": rows})
        count = STEP - DECIDED - REWARDED
        users, seen = self._users(count, month), self._contexts(count, 1)[:, 0]
        columns = zip(users, seen.tolist(), self._worths(users, seen), strict=True)
        rows = [{"user": f"u{user}", "features": x, "reward": value} for user, x, value in columns]
        self._posted(http, "/v1/observations", {"observations": rows})

    def _posted(self, http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        content = msgspec.json.encode(body)
        answer = http.post(path, content=content, headers=JSON).raise_for_status()
        results: list[dict[str, Any]] = answer.json()["results"]
        refused = [one["error"] for one in results if one["status"] == "refused"]
        wrong = [error for error in refused if error["code"] != "expired"]
        assert not wrong, wrong[0]
        # On a busy machine a reward may come after `WAIT`.
        self.late += len(refused)
        return results

    def _users(self, count: int, month: int) -> NDArray[np.int64]:
        """Half of a month's users come again in the next one, and in no later one."""
        return self.rng.integers(self.people, size=count) + month * self.people // 2

    def _contexts(self, count: int, arms: int) -> NDArray[np.float64]:
        return self.rng.standard_normal((count, arms, DIM)).round(4)

    def _worths(self, users: NDArray[np.int64], x: NDArray[np.float64]) -> list[float]:
        means = np.einsum("ij,ij->i", self.tastes[users % len(self.tastes)], x)
        worths: list[float] = (means + 0.1 * self.rng.standard_normal(len(x))).round(4).tolist()
        return worths

    def _erase(self, http: httpx.Client, month: int) -> tuple[float, float]:
        """Erase a user who came last month too, and so is in the base."""
        users = range(month * self.people // 2, month * self.people // 2 + self.people // 2)
        there = next(u for u in users if http.get(f"/v1/users/u{u}").status_code == 200)
        began = time.monotonic()
        http.delete(f"/v1/users/u{there}").raise_for_status()
        answer = time.monotonic() - began
        _await(lambda: not http.get("/v1/policy").json()["rebuilding"])
        return answer, time.monotonic() - began


def _metric(http: httpx.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"dyclu_{name}{{"))


def _await(true: Any, *, seconds: float = 900.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3,000 lines a month, 3,000 kept")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of a month")
    parser.add_argument("--keep", type=int, default=1_000_000, help="lines that are kept")
    parser.add_argument("--policy", default="atlas")
    told = parser.parse_args()
    lines, keep = (3000, 3000) if told.quick else (told.lines, told.keep)
    print("| month | line | disk, MB | memory, MB | start | replay | erased | rebuilt |")
    print("|---|---|---|---|---|---|---|---|")
    found: list[Month] = []
    with tempfile.TemporaryDirectory() as folder:
        year = Year(Path(folder), lines=lines, keep=keep, policy=told.policy)
        for number, one in enumerate(year.months(), 1):
            found.append(one)
            sizes = f"{one.lines:,} | {one.disk:.1f} | {one.memory:.0f}"
            starts = f"{one.start:.1f} s | {one.replay:.1f} s"
            print(
                f"| {number} | {sizes} | {starts} | {one.answer:.2f} s | {one.rebuilt:.1f} s |",
                flush=True,
            )
    grown = _grown(found)
    print(f"\nlargest growth from months 3 to 5 to the last: {grown:.2f} (at most {MOST_GROWTH})")
    print(f"rewards that came too late: {year.late}")
    sys.exit(grown > MOST_GROWTH)


def _grown(found: list[Month]) -> float:
    names = ("disk", "memory", "replay", "rebuilt")
    early = {name: max(getattr(one, name) for one in found[2:5]) for name in names}
    return max(float(getattr(found[-1], name) / early[name]) for name in names)


if __name__ == "__main__":
    main()
