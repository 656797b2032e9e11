"""Taking partitions over: clocks that differ, reads meanwhile, and what cannot be opened."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.disk.postgres.journal import PostgresJournal
from dyclu.service.tenant.tenant import Tenant
from tests.service.cluster.test_cluster import PATIENCE, insist, member
from tests.service.running import running, told, wait_until

HOUR = 3600.0


def test_a_process_whose_clock_is_ahead_leaves_decisions_their_time(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"reward_wait": 600, "default_reward": 0.0, "partitions": 1}
    with member(store, tmp_path, name="a", **rules) as a:
        id = insist(a.decide).json()["decision_id"]
    right = time.time

    def wrong() -> float:
        return right() + HOUR

    monkeypatch.setattr(time, "time", wrong)
    # The default was read before the clock was set.
    monkeypatch.setitem(Tenant.__init__.__kwdefaults__ or {}, "clock", wrong)
    with member(store, tmp_path, name="b", **rules) as b:
        later = insist(b.decide).json()["decision_id"]
        # Ids made by the service begin with the time, in microseconds.
        assert abs(int(later[:14], 16) / 1e6 - right()) < 60
        activity = b.http.get("/v1/activity").json()
        assert sum(one["decisions"] for one in activity["seconds"]) == 2
        # Overdue decisions are ended every half second.
        time.sleep(0.7)
        answer = insist(lambda: b.reward(id, 1.0))
        assert (answer.status_code, answer.json()["value"]) == (200, 1.0)


def test_reads_are_refused_until_the_journal_is_copied(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, opens = threading.Event(), PostgresJournal.open

    def slow(*arguments: Any, **more: Any) -> PostgresJournal:
        assert copied.wait(PATIENCE)
        return opens(*arguments, **more)

    monkeypatch.setattr(PostgresJournal, "open", slow)
    with running(told(tmp_path, store=store, partitions=1, lease=2.0), trust_env=False) as made:
        try:
            keeper = made.service.keeper
            assert keeper is not None
            wait_until(lambda: keeper.serving, seconds=PATIENCE)
            for path in ("/v1/users/ana", "/v1/policy", "/v1/models"):
                answer = made.http.get(path)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
            for path in ("/metrics", "/v1/cluster", "/tenants"):
                assert made.http.get(path).status_code == 200, path
        finally:
            copied.set()
        assert insist(made.decide).status_code == 200
