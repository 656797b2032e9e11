"""A disk that is full or read-only: refused with a reason, ready again by itself, nothing lost."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from dyclu.errors import FileError
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.state import State
from dyclu.service.tenant.tenant import Tenant
from tests.service.bench import Bench
from tests.service.running import ARMS, PATIENCE, process, running, told, wait_until
from tests.service.test_starting import two_tenants


def decide(http: httpx.Client, id: str) -> httpx.Response:
    return http.post("/v1/decisions", json={"user": "ana", "arms": ARMS, "decision_id": id})


def reward(http: httpx.Client, id: str) -> httpx.Response:
    return http.post(f"/v1/decisions/{id}/reward", json={"value": 0.5})


def test_a_full_disk_refuses_requests_until_there_is_space(tmp_path: Path) -> None:
    """Files may grow no further: the same errors as a full disk, and it can be lifted again."""
    with process(tmp_path, "--dim=2") as (child, url), httpx.Client(base_url=url) as http:
        decide(http, "before")
        full = (tmp_path / "default/journal.db-wal").stat().st_size + 30_000
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        accepted = []
        for i in range(400):
            answer = decide(http, f"d{i}")
            if answer.status_code == 503:
                break
            accepted.append(f"d{i}")
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "journal cannot be written" in answer.json()["error"]["message"]
        unready = http.get("/readyz")
        assert (unready.status_code, unready.headers["retry-after"]) == (503, "1")
        assert http.get("/healthz").status_code == 200
        assert reward(http, "before").status_code == 503
        assert http.get("/v1/policy").json()["healthy"] is False
        time.sleep(1.5)
        assert http.get("/readyz").status_code == 503
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, unlimited)
        wait_until(lambda: http.get("/readyz").status_code == 200, seconds=10)
        for id in ("before", *accepted):
            assert reward(http, id).status_code == 200
        assert decide(http, "after").status_code == 200
        child.kill()
        child.wait()
    rows = sqlite3.connect(tmp_path / "default/journal.db")
    kept = {id for (id,) in rows.execute("SELECT ref FROM journal WHERE kind = 'decision'")}
    assert kept >= {"before", "after", *accepted}
    assert (
        rows.execute("SELECT count(*) FROM journal WHERE kind = 'reward'").fetchone()[0]
        == len(accepted) + 1
    )


UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def files_up_to(most: int) -> Callable[[], None]:
    """Let files of a process grow no further, as on a full disk; it can be lifted again."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def earlier(folder: Path) -> Bench:
    """The journal of a service that has made one decision."""
    (folder / "default").mkdir()
    bench = Bench(folder / "default")
    bench.now = time.time()
    bench.decide("ana", decision_id="before")
    return bench


@pytest.mark.parametrize("killed", [True, False])
def test_a_service_started_on_a_full_disk_serves_once_there_is_space(
    tmp_path: Path, killed: bool
) -> None:
    """What is known is shown, nothing is accepted, and it heals."""
    bench = earlier(tmp_path)
    if not killed:
        bench.close()
    # Enough for SQLite's index of the log, without which nothing can be read.
    with (
        process(tmp_path, "--dim=2", before=files_up_to(33_000)) as (child, url),
        httpx.Client(base_url=url) as http,
    ):
        assert http.get("/readyz").status_code == 503
        assert http.get("/healthz").status_code == 200
        refused = reward(http, "before")
        assert refused.status_code == 503
        assert "journal cannot be written" in refused.json()["error"]["message"]
        shown = http.get("/v1/policy").json()
        assert (shown["pending"], shown["healthy"]) == (1, False)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        wait_until(lambda: http.get("/readyz").status_code == 200, seconds=10)
        assert reward(http, "before").status_code == 200


@pytest.mark.parametrize("known", [True, False])
def test_a_disk_too_full_to_open_a_journal_is_reported_in_one_line(
    tmp_path: Path, known: bool
) -> None:
    if known:
        earlier(tmp_path).close()
    with (
        pytest.raises(AssertionError, match=r"did not start: dyclu: \S+journal.db cannot be used"),
        process(tmp_path, "--dim=2", before=files_up_to(1000)),
    ):
        pass
    with process(tmp_path, "--dim=2") as (_, url), httpx.Client(base_url=url) as http:
        assert http.get("/readyz").status_code == 200
        assert http.get("/v1/policy").json()["pending"] == known
        assert decide(http, "after").status_code == 200


def test_a_read_only_disk_refuses_requests_until_it_is_writable(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        made.decide("ana", decision_id="before")
        journal = made.service.tenants["default"].files.journal
        assert isinstance(journal, SqliteJournal)
        # As a file system does that was remounted after an error.
        journal._writer.execute("PRAGMA query_only = ON")
        assert made.reward("before", 1.0).status_code == 503
        assert made.http.get("/readyz").status_code == 503
        assert made.service.tenants["default"].state.total.version == 0
        wait_until(lambda: made.http.get("/readyz").status_code == 200, seconds=10)
        assert made.reward("before", 2.0).json()["value"] == 2.0


def test_a_line_is_applied_if_its_commit_succeeded_but_reported_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is in the journal after all: what is served must follow from it."""
    with running(told(tmp_path)) as made:
        made.decide("ana", decision_id="d1")
        journal = made.service.tenants["default"].files.journal
        append = journal.append

        def lies(lines: Any) -> None:
            append(lines)
            monkeypatch.undo()
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(journal, "append", lies)
        assert made.reward("d1", 1.0).status_code == 503
        wait_until(lambda: made.http.get("/readyz").status_code == 200, seconds=10)
        assert made.reward("d1", 1.0).json()["repeated"] is True
        assert made.reward("d1", 2.0).status_code == 409
        assert made.service.tenants["default"].state.total.version == 1


def test_a_decision_counts_once_if_its_commit_reported_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(told(tmp_path)) as made:
        tenant = made.service.tenants["default"]
        append = tenant.files.journal.append

        def lies(lines: Any) -> None:
            append(lines)
            monkeypatch.undo()
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(tenant.files.journal, "append", lies)
        assert made.decide("ana", decision_id="d1").status_code == 503
        wait_until(lambda: made.http.get("/readyz").status_code == 200, seconds=10)
        assert made.decide("ana", decision_id="d1").status_code == 200
        assert len(tenant.state.pending) == 1
        # Below none, more could be pending than the limit says.
        assert tenant.engine._in_flight.decisions == 0


def test_an_erasure_is_completed_if_its_commit_reported_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(told(tmp_path)) as made:
        for user in ("ana", "bea"):
            made.reward(made.decide(user, decision_id=user).json()["decision_id"], 1.0)
        tenant = made.service.tenants["default"]
        tenant.save()
        erase = tenant.files.journal.erase

        def lies(*told: Any, **more: Any) -> None:
            erase(*told, **more)
            monkeypatch.undo()
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(tenant.files.journal, "erase", lies)
        assert made.http.delete("/v1/users/ana").status_code == 503
        wait_until(lambda: made.http.get("/readyz").status_code == 200, seconds=10)
        wait_until(lambda: made.http.get("/v1/users/ana").status_code == 404, seconds=10)
        assert made.http.get("/v1/users/bea").json()["rewards"] == 1
        assert not list((tmp_path / "default/snapshots").iterdir())
        assert made.http.delete("/v1/users/ana").status_code == 404


@pytest.mark.parametrize("reads", ["being_erased", "free_of_erased"])
@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), OSError("away"), FileError("no journal")]
)
def test_a_disk_that_fails_once_more_while_it_heals_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reads: str
) -> None:
    """Lines that were found on the disk are applied once, and the erasure is completed."""
    found: list[int] = []
    with running(told(tmp_path)) as made:
        monkeypatch.setattr(made.service, "die", lambda: None)
        for user in ("ana", "bea"):
            made.reward(made.decide(user, decision_id=user).json()["decision_id"], 1.0)
        tenant = made.service.tenants["default"]
        tenant.save()
        erase, resume, take_in = (
            tenant.files.journal.erase, tenant.erasures.resume, tenant.engine.found_on_disk,
        )  # fmt: skip

        def lies(*told: Any, **more: Any) -> None:
            erase(*told, **more)
            raise sqlite3.OperationalError("disk I/O error")

        def fails(*_: Any) -> Any:
            raise error

        def resumes() -> None:
            # Once, in the middle of it.
            monkeypatch.setattr(tenant.erasures, "resume", resume)
            with monkeypatch.context() as now:
                now.setattr(tenant.files.reader, reads, fails)
                resume()

        def counts(lines: Any) -> None:
            found.extend(line.seq for line in lines)
            take_in(lines)

        monkeypatch.setattr(tenant.files.journal, "erase", lies)
        monkeypatch.setattr(tenant.erasures, "resume", resumes)
        monkeypatch.setattr(tenant.engine, "found_on_disk", counts)
        assert made.http.delete("/v1/users/ana").status_code == 503
        wait_until(lambda: made.http.get("/readyz").status_code == 200, seconds=10)
        wait_until(lambda: made.http.get("/v1/users/ana").status_code == 404, seconds=10)
        assert made.http.get("/v1/users/bea").json()["rewards"] == 1
        assert tenant.stopped is None
        assert found == [5]
        wait_until(lambda: not list((tmp_path / "default/snapshots").iterdir()), seconds=10)


def test_a_stop_writes_everything_and_takes_a_snapshot(tmp_path: Path) -> None:
    with process(tmp_path, "--dim=2") as (child, url), httpx.Client(base_url=url) as http:
        for i in range(5):
            decide(http, f"d{i}")
        child.terminate()
        assert child.wait(timeout=20) in (0, -15)
    (snapshot,) = (tmp_path / "default/snapshots").glob("*.state")
    assert snapshot.stem.endswith("-00000000000000000005")
    assert not (tmp_path / "default/journal.db-wal").exists()


def test_a_tenant_that_cannot_stop_in_order_does_not_prevent_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(two_tenants(tmp_path)) as made:
        good = {"Authorization": "Bearer good"}
        rows = {"observations": [{"user": "ana", "features": [1.0, 0.0], "reward": 1.0}]}
        made.http.post("/v1/observations", json=rows, headers=good)

        def fails() -> None:
            raise RuntimeError("not in order")

        monkeypatch.setattr(made.service.tenants["bad"], "save", fails)
    assert list((tmp_path / "data/good/snapshots").glob("*.state"))
    assert "did not stop in order" in caplog.text


def test_snapshots_are_taken_while_it_serves(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("snapshot_every = 0.2\n")
    with (
        process(tmp_path / "data", "--dim=2", f"--config={tmp_path / 's.toml'}") as (_, url),
        httpx.Client(base_url=url) as http,
    ):
        rows = [{"user": f"u{i % 9}", "features": [1.0, 0.5], "reward": 1.0} for i in range(200)]
        http.post("/v1/observations", json={"observations": rows})
        folder = tmp_path / "data/default/snapshots"
        wait_until(lambda: any(folder.glob("*.state")), seconds=20)
        (name,) = (path.stem for path in folder.glob("*.state"))
        assert name.endswith("-00000000000000000200")


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killing_the_service_ends_its_snapshot_process(tmp_path: Path) -> None:
    """Nobody waits for it any more, and it must not write beside the next service."""
    (tmp_path / "s.toml").write_text("snapshot_every = 0.05\n")
    flags = ("--dim=2", f"--config={tmp_path / 's.toml'}")
    with process(tmp_path / "data", *flags) as (child, url), httpx.Client(base_url=url) as http:
        rows = [{"user": f"u{i % 9}", "features": [1.0, 0.5], "reward": 1.0} for i in range(200)]
        http.post("/v1/observations", json={"observations": rows})
        wait_until(lambda: children(child.pid))
        (orphan,) = children(child.pid)
        child.kill()
        child.wait()
        wait_until(lambda: not Path(f"/proc/{orphan}").exists())
    assert not list((tmp_path / "data/default/snapshots").glob("*.state"))


def test_a_line_that_cannot_be_applied_ends_a_service_without_other_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better a new start than answers that the journal does not explain."""
    with running(told(tmp_path)) as made:
        ended: list[bool] = []
        monkeypatch.setattr(made.service, "die", lambda: ended.append(True))
        monkeypatch.setattr(made.service.tenants["default"].engine, "committed", lambda _: 1 / 0)
        assert made.decide("ana").status_code == 503
        assert ended == [True]


ROWS = {"observations": [{"user": "ana", "features": [1.0, 0.0], "reward": 1.0}] * 3}


def of(tenant: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {tenant}"}}


def breaks(lines: Any) -> None:
    """Fail in the middle of a line, so that the state is neither the old one nor the new one."""
    raise MemoryError("of ana")


def test_a_line_that_cannot_be_applied_stops_its_tenant_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask, ended = {"user": "ana", "arms": ARMS, "decision_id": "d1"}, list[bool]()
    with running(two_tenants(tmp_path)) as made:
        monkeypatch.setattr(made.service, "die", lambda: ended.append(True))
        for name in ("good", "bad"):
            made.http.post("/v1/observations", json=ROWS, **of(name)).raise_for_status()
        monkeypatch.setattr(made.service.tenants["bad"].engine, "committed", breaks)
        # Its line is on disk, but it is not answered from a state that may be wrong.
        for refused in [
            made.http.post("/v1/decisions", json=ask, **of("bad")),
            made.http.post("/v1/decisions", json=ask, **of("bad")),
            made.http.get("/v1/policy", **of("bad")),
            made.http.get("/v1/users/ana", **of("bad")),
            made.http.delete("/v1/users/ana", **of("bad")),
        ]:
            assert refused.status_code == 503
            assert "taken in (MemoryError, see the log)" in refused.json()["error"]["message"]
            assert "of ana" not in refused.text
        ready = made.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "tenant bad is stopped: a line of its journal could not be" in ready.text
        assert 'dyclu_ready{tenant="bad"} 0' in made.http.get("/metrics", **of("bad")).text
        assert "dyclu_decisions_total{" not in made.http.get("/metrics", **of("bad")).text
        assert 'dyclu_ready{tenant="good"} 1' in made.http.get("/metrics", **of("good")).text
        assert made.http.post("/v1/decisions", json=ask, **of("good")).status_code == 200
        assert made.http.get("/v1/policy", **of("good")).json()["rewards"] == 3
    assert "tenant bad is stopped" in caplog.text
    assert "MemoryError: of ana" in caplog.text
    assert ended == []
    # Nothing was saved from what may be wrong; the other tenant stopped in order.
    assert not list((tmp_path / "data/bad/snapshots").glob("*.state"))
    assert list((tmp_path / "data/good/snapshots").glob("*.state"))
    with running(two_tenants(tmp_path)) as made:
        again = made.http.post("/v1/decisions", json=ask, **of("bad"))
        assert (again.status_code, again.json()["decision_id"]) == (200, "d1")
        assert made.http.get("/v1/policy", **of("bad")).json()["decisions"] == 1


@pytest.mark.parametrize("breaks_one", [True, False])
def test_a_start_that_fails_ends_a_service_only_if_its_other_tenant_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_one: bool
) -> None:
    """Tenants that no start can bring back must not make an endless loop of starts."""
    ended, go, recover = list[bool](), threading.Event(), Tenant.recover

    async def fails(self: Tenant) -> None:
        if self.name == "good" and breaks_one:
            await recover(self)
            return
        await asyncio.to_thread(go.wait, PATIENCE)
        raise ValueError("a bug")

    monkeypatch.setattr(Tenant, "recover", fails)
    with running(two_tenants(tmp_path), ready=False) as made:
        try:
            monkeypatch.setattr(made.service, "die", lambda: ended.append(True))
            good, bad = (made.service.tenants[name] for name in ("good", "bad"))
            if breaks_one:
                wait_until(lambda: good.serving)
                monkeypatch.setattr(good.engine, "committed", breaks)
                made.http.post("/v1/observations", json=ROWS, **of("good"))
                assert good.stopped is not None
                assert bad.starting
        finally:
            go.set()
        wait_until(lambda: bad.stopped is not None and good.stopped is not None)
        wait_until(lambda: made.service._settling.done())
        assert ended == [True] * breaks_one


def test_a_line_that_no_start_can_take_in_names_nobody_to_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers without a key read why a tenant is stopped; the log has all of it."""

    def fails(_: State, line: Any) -> None:
        raise KeyError(line.user)

    with running(told(tmp_path)) as made:
        monkeypatch.setattr(made.service, "die", lambda: None)
        monkeypatch.setattr(State, "apply", fails)
        assert made.decide("secret-ana").status_code == 503
    caplog.clear()
    with running(told(tmp_path)) as made:
        ready = made.http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["reason"] == "tenant default is stopped: KeyError, see the log"
        assert "secret-ana" not in made.decide("bea").text
    assert "KeyError: 'secret-ana'" in caplog.text


def test_a_journal_with_text_that_cannot_be_read_names_nobody_to_strangers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite quotes the text that it cannot decode."""
    with running(told(tmp_path)) as made:
        made.decide("secret-ana")
    for snapshot in (tmp_path / "default/snapshots").iterdir():
        snapshot.unlink()
    with sqlite3.connect(tmp_path / "default/journal.db") as journal:
        journal.execute("UPDATE journal SET user = CAST(user || x'ff' AS TEXT)")
    journal.close()
    with running(told(tmp_path)) as made:
        reason = made.http.get("/readyz").json()["reason"]
        assert "journal.db cannot be read or written (OperationalError)" in reason
        assert "secret-ana" not in reason
    assert "secret-ana" in caplog.text


def test_requests_that_wait_behind_a_line_that_cannot_be_applied_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them hangs, neither those of the same commit nor those of the next."""
    with running(two_tenants(tmp_path)) as made:
        for name in ("good", "bad"):
            made.http.post("/v1/observations", json=ROWS, **of(name)).raise_for_status()
        monkeypatch.setattr(made.service.tenants["bad"].engine, "committed", breaks)
        rows = [{"user": f"u{i}", "features": [1.0, 0.0], "reward": 1.0} for i in range(300)]
        answer = made.http.post("/v1/observations", json={"observations": rows}, **of("bad"))
        results = answer.json()["results"]
        assert [one["http"] for one in results] == [503] * 300
        assert made.http.get("/readyz").json()["status"] == "degraded"


def test_background_tasks_continue_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(told(tmp_path, reward_wait=0.1, default_reward=0.0)) as made:
        tenant = made.service.tenants["default"]
        expire, failures = tenant.engine.expire, iter([True])

        def once() -> Any:
            if next(failures, False):
                raise ValueError("a bug")
            return expire()

        monkeypatch.setattr(tenant.engine, "expire", once)
        made.decide("ana")
        wait_until(lambda: tenant.state.total.defaults == 1, seconds=10)
    assert "it is tried again" in caplog.text


def test_a_damaged_journal_is_reported(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        rows = [{"user": f"u{i}", "features": [1.0, 0.5], "reward": 1.0} for i in range(900)]
        made.http.post("/v1/observations", json={"observations": rows})
    journal = tmp_path / "default/journal.db"
    for snapshot in (tmp_path / "default/snapshots").iterdir():
        snapshot.unlink()
    content = bytearray(journal.read_bytes())
    # All but the schema at the beginning.
    content[40_000:] = b"\x5a" * (len(content) - 40_000)
    journal.write_bytes(content)
    with running(told(tmp_path)) as made:
        ready = made.http.get("/readyz")
        assert ready.status_code == 503
        assert "journal.db is damaged" in ready.json()["reason"]
        refused = made.decide("ana")
        assert refused.status_code == 503
        assert "restore it from a backup" in refused.json()["error"]["message"]
        assert made.http.get("/healthz").status_code == 200


def test_many_decisions_expire_at_once(tmp_path: Path) -> None:
    with running(told(tmp_path, reward_wait=0.5)) as made:
        for start in range(0, 1400, 700):
            asked = [
                {"user": f"u{i % 50}", "arms": ARMS, "decision_id": f"d{i}"}
                for i in range(start, start + 700)
            ]
            made.http.post("/v1/decisions:batch", json={"decisions": asked}, timeout=60)
        wait_until(lambda: made.http.get("/v1/policy").json()["pending"] == 0, seconds=20)
        assert made.reward("d1234", 1.0).status_code == 410
