"""A database that is slow, read-only or full, and processes that hang: a clear state, no loss."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from dyclu.service.disk.postgres.journal import PostgresJournal
from dyclu.service.disk.sqlite.reader import JournalReader
from tests.service.browser import Browser, browser
from tests.service.cluster.test_cluster import PATIENCE, insist, member
from tests.service.cluster.test_owners import two_members
from tests.service.cluster.test_taking_over import keeper_of
from tests.service.postgres import Postgres
from tests.service.running import ARMS, Running, wait_until


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as made:
        yield made


def cluster(made: Running) -> dict[str, Any]:
    found: dict[str, Any] = made.http.get("/v1/cluster").json()
    return found


def owned(made: Running) -> list[str]:
    """Return the owners of all partitions, sorted."""
    return sorted(str(one["owner"]) for one in cluster(made)["partitions"])


def ready(made: Running) -> str:
    return str(made.http.get("/readyz").json()["status"])


def test_the_page_shows_who_owns_what(store: str, tmp_path: Path, window: Browser) -> None:
    with member(store, tmp_path, name="a", partitions=8) as a:
        with member(store, tmp_path, name="b", partitions=8) as b:
            # While a partition moves its views answer 503, which a browser complains of.
            wait_until(lambda: owned(a) == ["a"] * 4 + ["b"] * 4, seconds=PATIENCE)
            wait_until(lambda: ready(a) == ready(b) == "ok", seconds=PATIENCE)
            window.open(a.url)
            wait_until(lambda: window.text("#processes").count("4 (default: ") == 2, seconds=60)
            assert window.text("#cluster-state").startswith("2 processes, 8 partitions, all with")
            assert window.text("#processes").count("s left") == 2
            assert window.text("#cluster-troubles") == ""
            _fits(window, tmp_path / "even.png")
            assert window.complaints() == []
        wait_until(lambda: "8 (default: 0–7)" in window.text("#processes"), seconds=PATIENCE)


def _fits(window: Browser, picture: Path) -> None:
    window.phone(380, 800)
    assert window.run("return document.documentElement.scrollWidth") <= 380
    window.picture(picture)
    window.ask("POST", "goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride",
                                            "params": {}})  # fmt: skip


def test_a_database_that_is_down_is_told_on_the_page(
    server: Postgres, tmp_path: Path, window: Browser
) -> None:
    with member(server.fresh(), tmp_path, name="a", partitions=2) as a:
        window.open(a.url)
        wait_until(lambda: window.text("#processes") != "", seconds=PATIENCE)
        server.kill()
        try:
            wait_until(
                lambda: "the database does not answer" in window.text("#cluster-troubles"),
                seconds=PATIENCE,
            )
            wait_until(lambda: "over for" in window.text("#processes"), seconds=PATIENCE)
            wait_until(
                lambda: "what partitions have learnt was read" in window.text("#cluster-troubles"),
                seconds=PATIENCE,
            )
            assert window.run("return document.querySelector('#cluster-dot').className") == (
                "dot bad"
            )
            # Also by a page that is opened only now.
            window.open(a.url)
            wait_until(
                lambda: "the database does not answer" in window.text("#cluster-troubles"),
                seconds=PATIENCE,
            )
        finally:
            server.start()
        wait_until(lambda: window.text("#cluster-troubles") == "", seconds=PATIENCE)
        wait_until(lambda: window.text("#state") == "well", seconds=PATIENCE)


def test_a_database_that_is_slow_is_told_and_serves_on(store: str, tmp_path: Path) -> None:
    with member(store, tmp_path, name="a", partitions=1, lease=4.0) as a:
        id = insist(a.decide).json()["decision_id"]
        with psycopg.connect(store) as slow:
            # Every renewal waits for this lock.
            slow.execute("LOCK TABLE dyclu.process IN EXCLUSIVE MODE")
            release = threading.Timer(1.0, slow.rollback)
            release.start()
            wait_until(lambda: cluster(a)["database"] > 0.5, seconds=PATIENCE)
            release.join()
        assert cluster(a)["trouble"] is None
        # Within the lease nothing is refused.
        assert a.reward(id, 1.0).status_code == 200
        wait_until(lambda: cluster(a)["database"] < 0.5, seconds=PATIENCE)


def test_lines_that_could_not_be_copied_are_read_again_without_a_write(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(store, tmp_path, name="a", partitions=1) as a:
        insist(a.decide)
        (partition,) = keeper_of(a).serving.values()
        journal = partition.tenant.files.journal
        assert isinstance(journal, PostgresJournal)
        tail = journal._tail
        # Once: the log of the copy is cut, which would flush the tail as well.
        wait_until(lambda: not journal.owes, seconds=PATIENCE)

        def full(_: object) -> set[int]:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as failing:
            failing.setattr(journal._copy, "append", full)
            assert insist(a.decide).status_code == 200
            wait_until(lambda: tail.failed, seconds=PATIENCE)
        wait_until(lambda: not tail.failed, seconds=20)
        wait_until(lambda: partition.tenant.trouble is None, seconds=20)
        with closing(JournalReader(journal.path)) as reader:
            assert reader.last() == 2


def test_a_database_that_hangs_for_longer_than_the_lease_is_told(
    server: Postgres, tmp_path: Path
) -> None:
    store = server.fresh()
    with member(store, tmp_path, name="a", partitions=1, lease=1.0) as a:
        id = insist(a.decide).json()["decision_id"]
        with psycopg.connect(store) as slow:
            slow.execute("LOCK TABLE dyclu.process IN EXCLUSIVE MODE")
            wait_until(lambda: a.http.get("/v1/users/ana").status_code == 503, seconds=PATIENCE)
            assert cluster(a)["age"] > 1.0
            slow.rollback()
        assert insist(lambda: a.reward(id, 1.0)).json()["value"] == 1.0
        assert insist(lambda: a.http.get("/v1/users/ana")).json()["rewards"] == 1


def _read_only(server: Postgres, store: str, on: str) -> None:
    name = store.rpartition("/")[2]
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {on}")
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


def test_a_database_that_becomes_read_only_is_told(
    server: Postgres, tmp_path: Path, window: Browser
) -> None:
    store = server.fresh()
    with member(store, tmp_path, name="a", partitions=1) as a:
        id = insist(a.decide).json()["decision_id"]
        window.open(a.url)
        _read_only(server, store, "on")
        try:
            told = "the database is read-only"
            wait_until(lambda: told in str(cluster(a)["trouble"]), seconds=PATIENCE)
            wait_until(lambda: told in window.text("#cluster-troubles"), seconds=PATIENCE)
            wait_until(lambda: ready(a) == "unavailable", seconds=PATIENCE)
            assert told in a.http.get("/readyz").json()["reason"]
            answer = a.reward(id, 1.0)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        finally:
            _read_only(server, store, "off")
        assert insist(lambda: a.reward(id, 1.0)).json()["value"] == 1.0
        assert insist(lambda: a.http.get("/v1/users/ana")).json()["rewards"] == 1
        wait_until(lambda: ready(a) == "ok", seconds=PATIENCE)


@contextmanager
def small_disk(server: Postgres, size: str) -> Iterator[Path]:
    """Yield a folder on a file system of its own, which the database may use."""
    with tempfile.TemporaryDirectory(prefix="dyclu-small-") as name:
        Path(name).chmod(0o755)
        told = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name]
        if subprocess.run(told, check=False, capture_output=True).returncode:
            pytest.skip("a small file system needs mount, and the right to use it")
        try:
            folder = Path(name) / "space"
            folder.mkdir()
            shutil.chown(folder, server.user)
            yield folder
        finally:
            subprocess.run(["umount", "-l", name], check=True)


def _fill(store: str) -> None:
    """Write until the disk is full; what was written before stays."""
    with psycopg.connect(store, autocommit=True) as filling:
        filling.execute("CREATE TABLE filler (x text)")
        for rows in (500, 50, 5, 1):
            while _written(filling, rows):
                pass


def _written(connection: Any, rows: int) -> bool:
    insert = "INSERT INTO filler SELECT repeat('x', 2000) FROM generate_series(1, %s)"
    try:
        connection.execute(insert, (rows,))
    except psycopg.errors.DiskFull:
        return False
    return True


def test_a_full_database_is_told_and_nothing_is_lost(
    server: Postgres, tmp_path: Path, window: Browser
) -> None:
    with small_disk(server, "40m") as folder:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
            admin.execute("CREATE DATABASE small TABLESPACE small")
        store = f"{server.url.rpartition('/')[0]}/small"
        try:
            with member(store, tmp_path, name="a", partitions=1) as a:
                _full(a, store, window)
        finally:
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute("DROP DATABASE small WITH (FORCE)")
                admin.execute("DROP TABLESPACE small")


def _full(a: Running, store: str, window: Browser) -> None:
    window.open(a.url)
    given = 0
    for _ in range(20):
        insist(lambda: a.reward(insist(a.decide).json()["decision_id"], 1.0))
        given += 1
    _fill(store)
    for number in range(3000):
        answer = a.decide(decision_id=f"full-{number}")
        if answer.status_code != 200:
            break
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    told = "the database has a full disk"
    wait_until(lambda: told in a.http.get("/readyz").text, seconds=PATIENCE)
    wait_until(lambda: told in window.text("#state"), seconds=PATIENCE)
    wait_until(lambda: told in window.text("#cluster-troubles"), seconds=PATIENCE)
    with psycopg.connect(store, autocommit=True) as admin:
        admin.execute("DROP TABLE filler")
    assert insist(lambda: a.decide(decision_id=f"full-{number}")).status_code == 200
    wait_until(lambda: ready(a) == "ok", seconds=PATIENCE)
    found = insist(lambda: a.http.get("/v1/users/ana")).json()
    assert (found["rewards"], found["decisions"]) == (given, given + number + 1)


def test_an_owner_that_hung_and_wakes_up_acknowledges_nothing(store: str, tmp_path: Path) -> None:
    with two_members(tmp_path, store) as (hung, other):
        child, url = hung
        owned = _owned(other[1], url)
        child.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: not _owned(other[1], url), seconds=PATIENCE)
        finally:
            child.send_signal(signal.SIGCONT)
        # At once, before it can have asked the database.
        answer = httpx.post(f"{url}/v1/decisions", json={"user": "ana", "arms": ARMS}, timeout=10)
        assert answer.status_code in (200, 503)
        if answer.status_code == 200:
            # It was passed on: the new owner knows it.
            found = httpx.get(f"{other[1]}/v1/users/ana", timeout=10)
            assert found.json()["decisions"] == 1
        # It joins again, and gets partitions again.
        wait_until(lambda: len(_owned(other[1], url)) == len(owned), seconds=PATIENCE)


def _owned(asked: str, url: str) -> list[int]:
    told = httpx.get(f"{asked}/v1/cluster", timeout=10).json()
    alive = {one["name"] for one in told["processes"] if one["url"] == url and one["lease"] > 0}
    return [one["partition"] for one in told["partitions"] if one["owner"] in alive]
