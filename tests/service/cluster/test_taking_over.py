"""Taking partitions over: clocks that differ, reads meanwhile, and what cannot be opened."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dyclu.service.cluster import keeper as keeping
from dyclu.service.cluster.keeper import Keeper
from dyclu.service.cluster.leases import Overview, Process
from dyclu.service.cluster.places import partition_of
from dyclu.service.disk.postgres import copies
from dyclu.service.disk.postgres.journal import PostgresJournal
from dyclu.service.tenant import saving
from dyclu.service.tenant.erasures import Erasures
from dyclu.service.tenant.files import TenantFiles
from dyclu.service.tenant.tenant import Tenant
from tests.service.cluster.test_cluster import PATIENCE, insist, member, partitions
from tests.service.running import Running, running, told, wait_until

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


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event; no journal is opened before it is set."""
    event, opens = threading.Event(), PostgresJournal.open

    def slow(*arguments: Any, **more: Any) -> PostgresJournal:
        assert event.wait(PATIENCE)
        return opens(*arguments, **more)

    monkeypatch.setattr(PostgresJournal, "open", slow)
    return event


def test_reads_are_refused_until_the_journal_is_copied(
    store: str, tmp_path: Path, copied: threading.Event
) -> None:
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


def keeper_of(made: Running) -> Keeper:
    found = made.service.keeper
    assert found is not None
    return found


def test_a_line_that_cannot_be_applied_drops_its_partition_and_no_other(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "REFUSED", 3.0)
    with member(store, tmp_path, name="a", partitions=2, lease=1.0) as a:
        by_place = {partition_of(user, 2): user for user in map(str, range(20))}
        for user in by_place.values():
            assert insist(lambda u=user: a.decide(u)).status_code == 200
        bad = keeper_of(a).serving["default", 0]
        monkeypatch.setattr(bad.tenant.engine, "committed", lambda _: 1 / 0)
        refused = a.decide(by_place[0], decision_id="d-bad")
        assert refused.status_code == 503
        assert "ZeroDivisionError" in refused.json()["error"]["message"]
        assert a.decide(by_place[1]).status_code == 200
        assert "could not be taken in" in keeper_of(a).refused["default", 0]
        assert a.http.get("/readyz").json()["status"] == "degraded"
        # Taken over again, from the journal, which has the line.
        again = insist(lambda: a.decide(by_place[0], decision_id="d-bad"))
        assert again.status_code == 200
        taken = keeper_of(a).serving["default", 0]
        assert taken is not bad
        assert taken.tenant.state.users[by_place[0]].decisions == 2


def test_a_partition_that_cannot_be_opened_here_is_told_and_left_to_others(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "REFUSED", 300.0)
    with member(store, tmp_path, name="a", partitions=1, lease=1.0) as a:
        assert insist(a.decide).status_code == 200
    # The journal holds contexts of two features.
    wrong = told(tmp_path, store=store, name="b", partitions=1, lease=1.0, dim=3)
    with running(wrong, trust_env=False) as b:
        wait_until(lambda: keeper_of(b).refused, seconds=PATIENCE)
        wait_until(lambda: b.http.get("/readyz").status_code == 503, seconds=PATIENCE)
        reason = b.http.get("/readyz").json()["reason"]
        assert "1 of 1 partitions have no owner" in reason
        assert "contexts of 2 features, the settings say dim = 3" in reason
        answer = b.http.get("/v1/users/ana")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "moved")
        assert "dim = 3" in answer.json()["error"]["message"]
        shown = b.http.get("/v1/cluster").json()["partitions"][0]
        assert shown["owner"] is None
        assert "dim = 3" in shown["trouble"]
        # The share of each is 1 of 1; but one of the two can serve none.
        with member(store, tmp_path, name="c", partitions=1, lease=1.0) as c:
            assert insist(lambda: c.http.get("/v1/users/ana")).json()["decisions"] == 1
            wait_until(lambda: b.http.get("/v1/users/ana").status_code == 200, seconds=PATIENCE)
            health = b.http.get("/readyz")
            assert (health.status_code, health.json()["status"]) == (200, "degraded")
            assert "dim = 3" in health.json()["reason"]


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk is full"), ValueError("odd")])
def test_an_error_while_the_journal_is_copied_does_not_leave_it_unserved(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(keeping, "REFUSED", 0.5)
    fill, failing = copies.fill, threading.Event()
    failing.set()

    def fails(*arguments: Any) -> None:
        if failing.is_set():
            raise error
        fill(*arguments)

    monkeypatch.setattr(copies, "fill", fails)
    with running(told(tmp_path, store=store, partitions=1, lease=1.0), trust_env=False) as made:
        wait_until(lambda: keeper_of(made).refused, seconds=PATIENCE)
        (why,) = keeper_of(made).refused.values()
        assert f"cannot be opened: {type(error).__name__}, see the log" in why
        # Strangers read why, and the text of such an error could name a user.
        assert str(error) not in why
        failing.clear()
        assert insist(made.decide).status_code == 200
        wait_until(lambda: made.http.get("/readyz").json()["status"] == "ok", seconds=PATIENCE)


def test_partitions_of_a_tenant_that_was_removed_do_not_count(store: str, tmp_path: Path) -> None:
    with member(store, tmp_path, name="a", partitions=1, lease=1.0):
        pass
    with psycopg.connect(store) as tables:
        tables.execute("INSERT INTO dyclu.tenant VALUES ('gone', 4)")
        tables.execute("INSERT INTO dyclu.partition SELECT 'gone', n FROM generate_series(0, 3) n")
        tables.execute("DELETE FROM dyclu.tenant WHERE name = 'default'")
        tables.execute("DELETE FROM dyclu.partition WHERE tenant = 'default'")
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(member(store, tmp_path, name=name, partitions=4, lease=1.0))
            for name in ("c", "d")
        )
        wait_until(lambda: partitions(b) == {"c": 2, "d": 2}, seconds=PATIENCE)
        assert {one["tenant"] for one in a.http.get("/v1/cluster").json()["partitions"]} == {
            "default"
        }


def test_the_lease_is_renewed_while_all_other_connections_are_busy(
    store: str, tmp_path: Path
) -> None:
    with member(store, tmp_path, name="a", partitions=1, lease=1.0) as a, ExitStack() as busy:
        keeper = keeper_of(a)
        for _ in range(8):
            busy.enter_context(keeper._database.connection())
        time.sleep(1.5)
        assert keeper.age < 1.0
        assert keeper.trouble is None
        assert a.http.get("/readyz").json()["status"] == "ok"


def test_partitions_that_wait_to_be_opened_are_handed_over_at_once(
    store: str, tmp_path: Path, copied: threading.Event
) -> None:
    rules: dict[str, Any] = {"store": store, "partitions": 16, "lease": 2.0}
    with ExitStack() as stack:
        stack.callback(copied.set)
        a = stack.enter_context(running(told(tmp_path, name="a", **rules), trust_env=False))
        wait_until(lambda: len(keeper_of(a).serving) == 16, seconds=PATIENCE)
        assert a.http.get("/v1/cluster").json()["starting"] == 16
        stack.enter_context(running(told(tmp_path, name="b", **rules), trust_env=False))
        # Four of those that stay are being opened; none of the others has to be.
        wait_until(lambda: partitions(a) == {"a": 8, "b": 8}, seconds=PATIENCE)
        copied.set()
        wait_until(lambda: a.http.get("/readyz").json()["status"] == "ok", seconds=PATIENCE)
        assert a.http.get("/v1/cluster").json()["starting"] == 0


def test_a_round_looks_at_the_moment_at_which_a_lease_ends(store: str, tmp_path: Path) -> None:
    with member(store, tmp_path, name="a", partitions=1, lease=8.0) as a:
        keeper = keeper_of(a)

        def pause(left: float) -> float:
            other = Process("x", "x", "http://nowhere", leaving=False, left=left)
            keeper.overview = Overview({**keeper.overview.processes, "x": other}, {})
            return keeper._pause()

        assert pause(8.0) == pause(-1.0) == keeping.LONGEST
        assert 0.0 < pause(0.3) < 0.4


def test_partitions_take_turns_with_the_processes_that_make_their_snapshots(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running_now, most, made = set[Path](), [0], set[Path]()

    async def runs(files: TenantFiles, *more: str) -> int:
        running_now.add(files.folder)
        most[0] = max(most[0], len(running_now))
        await asyncio.sleep(0.05)
        running_now.discard(files.folder)
        made.add(files.folder)
        return 1

    monkeypatch.setattr(TenantFiles, "_run_process", runs)
    monkeypatch.setattr(saving, "WORTH_A_SNAPSHOT", 0)
    monkeypatch.setattr(saving, "FEW_USERS", -1)
    with member(store, tmp_path, partitions=4, snapshot_every=0.2):
        wait_until(lambda: len(made) == 4, seconds=PATIENCE)
    assert most == [1]


def test_a_small_partition_is_saved_after_some_lines_without_a_process(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def runs(files: TenantFiles, *more: str) -> int:
        raise AssertionError("no process is needed")

    monkeypatch.setattr(TenantFiles, "_run_process", runs)
    monkeypatch.setattr(saving, "LOOK", 0.05)
    monkeypatch.setattr(saving, "LINES", 120)
    with member(store, tmp_path, partitions=1, name="a") as a, psycopg.connect(store) as tables:
        tables.autocommit = True

        def shared() -> list[str]:
            rows = tables.execute("SELECT value FROM dyclu.fact WHERE name = 'snapshot'")
            return [name for (name,) in rows.fetchall()]

        with monkeypatch.context() as erasing:
            # An erasure changes the state while it is written.
            erasing.setattr(Erasures, "running", ["ana"])
            for _ in range(60):
                a.reward(insist(a.decide).json()["decision_id"], 1.0)
            time.sleep(0.3)
            assert shared() == []
        wait_until(shared, seconds=PATIENCE)
        line = int(shared()[0].partition("-")[2])
        assert 120 <= line <= tables.execute("SELECT max(seq) FROM dyclu.journal").fetchone()[0]  # type: ignore[index]


def test_the_interpreter_is_arranged_for_serving_when_the_first_partitions_serve(
    store: str, tmp_path: Path, copied: threading.Event
) -> None:
    with running(told(tmp_path, store=store, partitions=1, lease=2.0), trust_env=False) as made:
        try:
            ready = threading.Event()
            made.service.on_ready = ready.set
            wait_until(lambda: keeper_of(made).serving, seconds=PATIENCE)
            assert not ready.wait(0.2)
        finally:
            copied.set()
        assert ready.wait(PATIENCE)
