"""Long requests let others have their turn."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.service.running import process, running, told

ARMS, ITEMS, DIM = 100, 40, 25

LONGEST = 0.25
"""Seconds others may be kept waiting. Unbroken, 32 of these rankings take Atlas more than a second
as long as it does not know its users. Broken up it is some 0.02 s, most of it the reading of the
body; the rest is for a busy machine."""


def item(number: int, *, rank: bool = True) -> dict[str, Any]:
    rows = np.random.default_rng(number).normal(size=(ARMS, DIM)).round(1).tolist()
    arms = [{"id": str(i), "features": row} for i, row in enumerate(rows)]
    return {"user": f"u{number % 20}", "rank": rank, "arms": arms}


def learnt(http: httpx.Client) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"user": f"u{i % 20}", "features": x, "reward": float(rng.normal())}
        for i, x in enumerate(rng.normal(size=(400, DIM)).tolist())
    ]
    http.post("/v1/observations", json={"observations": rows}).raise_for_status()


def longest_wait(url: str, work: Callable[[], None]) -> float:
    """Seconds the slowest of many small requests took meanwhile."""
    done, waits = threading.Event(), []

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not done.is_set():
                began = time.perf_counter()
                http.get("/healthz").raise_for_status()
                waits.append(time.perf_counter() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.1)
    try:
        work()
    finally:
        done.set()
        asking.join()
    return max(waits)


def test_a_batch_of_rankings_does_not_delay_other_requests(tmp_path: Path) -> None:
    body = json.dumps({"decisions": [item(i) for i in range(ITEMS)]}).encode()
    with (
        process(tmp_path, f"--dim={DIM}") as (_, url),
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        learnt(http)

        def ask() -> None:
            kind = {"Content-Type": "application/json"}
            answer = http.post("/v1/decisions:batch", content=body, headers=kind)
            results = answer.json()["results"]
            assert [one["rank"][0] for one in results] == [one["arm"] for one in results]
            assert all(len(set(one["rank"])) == ARMS for one in results)

        assert longest_wait(url, ask) < LONGEST


def test_a_single_ranking_does_not_wait_for_all_rankings_of_a_batch(tmp_path: Path) -> None:
    """Whoever asks for one while a batch of forty is under way is answered before its end."""
    with running(told(tmp_path, dim=DIM, policy="atlas", options={})) as service:
        learnt(service.http)
        ended: dict[str, float] = {}

        def ask() -> None:
            many = {"decisions": [item(i) for i in range(ITEMS)]}
            with httpx.Client(base_url=service.url, timeout=60) as http:
                http.post("/v1/decisions:batch", json=many).raise_for_status()
            ended["batch"] = time.monotonic()

        batch = threading.Thread(target=ask)
        batch.start()
        ranking = service.service.tenants["default"]._ranking
        while not ranking.locked():
            time.sleep(0.001)
        service.http.post("/v1/decisions", json=item(0)).raise_for_status()
        ended["one"] = time.monotonic()
        batch.join()
    assert ended["one"] < ended["batch"]


def test_a_ranking_computed_in_slices_is_the_same(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=DIM)) as service:
        learnt(service.http)
        once = service.http.post("/v1/decisions", json=item(3)).json()
        batch = {"decisions": [item(i, rank=i % 2 == 1) for i in range(6)]}
        results = service.http.post("/v1/decisions:batch", json=batch).json()["results"]
        assert results[3]["rank"] == once["rank"]
        assert [("rank" in one) for one in results] == [False, True] * 3
        policy = service.service.tenants["default"].state.policy
        rows = np.array([arm["features"] for arm in item(3)["arms"]])
        for place in range(0, ARMS, 9):
            left = [int(id) for id in once["rank"][place:]]
            left.sort()
            assert left[policy.decide("u3", rows[left]).arm] == int(once["rank"][place])
