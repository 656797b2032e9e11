"""Starting is a state: the port answers at once, and a stop in the middle loses little."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from dyclu.service.disk import snapshots
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.state import State
from dyclu.service.http.keys import digest
from dyclu.service.settings import Settings
from dyclu.service.spec import PolicySpec
from dyclu.service.tenant import start
from dyclu.service.tenant.start import Progress
from tests.service.bench import bits
from tests.service.disk.test_erasure import observe, started, tenant
from tests.service.running import ARMS, process, running, told, wait_until
from tests.service.test_tenant import killed

LINES = 6000


def filled(folder: Path, **rules: Any) -> bytes:
    """Leave a journal without snapshots; return the policy it leads to."""

    async def go() -> bytes:
        served = await started(folder, **rules)
        for user in range(LINES // 500):
            await observe(served, f"u{user}", 500)
        found = bits(served.state, folder)[0]
        await killed(served)
        return found

    return asyncio.run(go())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let every line of a replay wait until the event is set, once 3000 have been read."""
    go, apply = threading.Event(), State.apply

    def held(self: State, line: Any) -> None:
        if line.seq == 3001:
            go.wait(60)
        apply(self, line)

    monkeypatch.setattr(State, "apply", held)
    return go


def test_while_it_starts_it_answers_and_tells_how_far_it_is(
    tmp_path: Path, slow: threading.Event
) -> None:
    slow.set()
    filled(tmp_path)
    (tmp_path / "data" / "t").rename(tmp_path / "data" / "default")
    slow.clear()
    wanted = told(tmp_path / "data")
    with running(wanted, ready=False) as made:
        try:
            wait_until(lambda: made.http.get("/readyz").json().get("lines_done") == 3000)
            # A tenth of a second is the least that is told, and 3000 lines may take less.
            wait_until(lambda: made.http.get("/readyz").json()["seconds_left"] > 0)
            assert made.http.get("/healthz").status_code == 200
            ready = made.http.get("/readyz")
            assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
            assert ready.json()["status"] == "starting"
            assert ready.json()["lines_total"] == LINES
            assert 0 < ready.json()["seconds_left"] < 600
            for answer in (made.decide("ana"), made.http.get("/v1/policy")):
                assert answer.status_code == 503
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "starting"
            figures = made.http.get("/metrics").text
            assert 'dyclu_ready{tenant="default"} 0' in figures
            assert f'dyclu_starting_lines{{tenant="default"}} {LINES - 3000}' in figures
            (health,) = made.http.get("/tenants").json()["tenants"]
            assert (health["status"], health["line"]) == ("starting", None)
            assert f"3000 of {LINES} lines" in health["reason"]
            rules = msgspec.structs.replace(wanted.tenants["default"], epsilon=0.5)
            made.service.reload(msgspec.structs.replace(wanted, tenants={"default": rules}))
        finally:
            slow.set()
        wait_until(lambda: made.http.get("/readyz").status_code == 200)
        assert made.http.get("/v1/policy").json()["rewards"] == LINES
        # What was reloaded meanwhile holds now.
        assert made.decide("ana").json()["propensity"] < 1
        assert 'dyclu_ready{tenant="default"} 1' in made.http.get("/metrics").text


@pytest.mark.parametrize("there", ["snapshot of other code", "base", "nothing"])
def test_a_long_replay_answers_reads_from_an_earlier_state(
    tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    slow.set()
    rules = {"keep": "5000 lines"} if there == "base" else {}
    filled(tmp_path, **rules)
    folder = tmp_path / "data" / "t"
    if there == "snapshot of other code":
        made_earlier(folder, 1000, monkeypatch)
    elif there == "base":
        asyncio.run(with_base(tmp_path))
    folder.rename(tmp_path / "data" / "default")
    monkeypatch.setattr(start, "WORTH_A_PREVIEW", 100)
    slow.clear()
    with running(told(tmp_path / "data", **rules), ready=False) as made:
        try:
            wait_until(lambda: made.http.get("/readyz").json().get("lines_done", 0) > 0)
            shown = made.http.get("/v1/policy")
            assert made.decide("ana").json()["error"]["code"] == "starting"
            assert made.http.delete("/v1/users/u0").status_code == 503
            assert made.http.get("/readyz").status_code == 503
            if there == "nothing":
                assert shown.json()["error"]["code"] == "starting"
                return
            line = 1000
            assert shown.json()["rewards"] == line
            assert (shown.json()["healthy"], shown.json()["rebuilding"]) == (False, True)
            assert f"this is the state of line {line}" in shown.json()["warnings"][-1]
            assert made.http.get("/v1/users/u0").json()["rewards"] == 500
            for path in ("/v1/models", "/v1/activity", "/v1/changes"):
                assert made.http.get(path).status_code == 200
            epoch = made.http.get("/v1/changes").json()["epoch"]
            late = made.http.get(f"/v1/changes?since=9&epoch={epoch}")
            assert late.json()["error"]["code"] == "starting"
        finally:
            slow.set()
        wait_until(lambda: made.http.get("/readyz").status_code == 200)
        now = made.http.get("/v1/policy").json()
        assert (now["rewards"], now["healthy"], now["rebuilding"]) == (LINES, True, False)
        # Other code may have noticed other changes, so their numbers do not go on.
        assert made.http.get("/v1/changes").json()["epoch"] != epoch


def made_earlier(folder: Path, upto: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a snapshot of the first lines that another version of dyclu made."""
    spec = PolicySpec("linucb", 2, {"alpha": 0.5})
    with closing(JournalReader(folder / JOURNAL)) as reader, monkeypatch.context() as other:
        other.setattr(snapshots, "made_by", lambda _: {"dyclu": "0.0.1"})
        state = State(spec.make()).apply_all(reader.after(0, upto=upto))
        Snapshots(folder / SNAPSHOTS, spec, reader.facts().id).write(state, epoch=0)


async def with_base(folder: Path) -> None:
    """Let a base stand for the first thousand lines."""
    served = await started(folder, keep="5000 lines")
    async with asyncio.timeout(120):
        while served.files.reader.facts().dropped < 1000:
            await asyncio.sleep(0.01)
    await served.stop()
    for file in (served.folder / SNAPSHOTS).iterdir():
        file.unlink()


def test_a_stop_while_it_starts_keeps_what_was_replayed(
    tmp_path: Path, slow: threading.Event
) -> None:
    slow.set()
    expected = filled(tmp_path)
    slow.clear()

    async def go() -> None:
        served = tenant(tmp_path)
        served.begin(snapshot_every=1000)
        while served.progress is None or served.progress.done < 3000:
            await asyncio.sleep(0.01)
        served._start.stop.set()
        slow.set()
        await served.stop()
        served = tenant(tmp_path)
        await served.recover()
        assert served.snapshots.used == 4000
        assert bits(served.state, tmp_path)[0] == expected

    asyncio.run(go())


def test_a_long_start_writes_snapshots_on_the_way_and_logs_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(start, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(start, "SAY_EVERY", 0.0)
    caplog.set_level("INFO")

    async def go() -> None:
        served = tenant(tmp_path)
        await served.recover()
        stems = {file.stem for file in (served.folder / SNAPSHOTS).iterdir()}
        assert stems == {f"{0:08d}-{line:020d}" for line in (5000, 6000)}

    asyncio.run(go())
    assert "replays its journal: 3000 of 6000 lines, about" in caplog.text


def test_seconds_left_follow_from_the_rate() -> None:
    progress = Progress(done=250, total=1000, began=time.monotonic() - 10)
    assert progress.seconds_left == pytest.approx(30, rel=0.01)
    assert Progress(total=10).seconds_left is None


def test_sigterm_at_the_beginning_of_a_start_ends_the_process_in_order(tmp_path: Path) -> None:
    filled(tmp_path, policy="atlas", options={})
    (tmp_path / "data" / "t").rename(tmp_path / "data" / "default")
    with process(tmp_path / "data", "--dim=2", ready=False) as (child, url):
        began = time.monotonic()
        assert httpx.get(f"{url}/healthz").status_code == 200
        child.terminate()
        assert child.wait(timeout=30) == 0
        assert time.monotonic() - began < 30
    with process(tmp_path / "data", "--dim=2") as (_, url):
        assert httpx.get(f"{url}/v1/policy").json()["rewards"] == LINES


SLOW = """
import os, time
import dyclu
from dyclu.policies.common.plain import WithoutUsers
from dyclu.storage import Saved, read, write

class Slow(WithoutUsers):
    "Counts rewards; each takes as long as the variable SLOW says."

    def __init__(self, dim, *, rewards=0):
        self.dim, self.rewards = dim, rewards
        self.pause = float(os.environ.get("SLOW", 0))

    def decide(self, user, arms):
        return dyclu.Decision(user, 0, 0.0, 0.0)

    def learn(self, user, context, reward):
        time.sleep(self.pause)
        self.rewards += 1
        return dyclu.Outcome(user)

    def save(self, path):
        write(path, Saved("Slow", {"dim": self.dim, "rewards": self.rewards}, {}, {}))

    @classmethod
    def load(cls, path):
        return cls(**read(path).options)
"""


def test_sigterm_during_a_start_ends_the_process_and_the_next_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start replays only what this one had not replayed."""
    (tmp_path / "own_slow.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    filled(tmp_path, policy="own_slow:Slow", options={})
    (tmp_path / "data" / "t").rename(tmp_path / "data" / "default")
    (tmp_path / "s.toml").write_text('own_policies = ["own_slow:Slow"]\n')
    flags = ("--dim=2", "--policy=own_slow:Slow", f"--config={tmp_path / 's.toml'}")
    # Six seconds, and more where pauses are rounded up.
    monkeypatch.setenv("SLOW", "0.001")
    with (
        process(tmp_path / "data", *flags, ready=False) as (child, url),
        httpx.Client(base_url=url) as http,
    ):
        wait_until(lambda: http.get("/readyz").json().get("lines_done", 0) >= 1000)
        child.terminate()
        assert child.wait(timeout=30) == 0
    (saved,) = (tmp_path / "data" / "default" / SNAPSHOTS).glob("*.state")
    kept = int(saved.stem.partition("-")[2])
    assert 1000 <= kept < LINES
    monkeypatch.delenv("SLOW")
    with process(tmp_path / "data", *flags) as (child, url):
        assert httpx.get(f"{url}/v1/policy").json()["rewards"] == LINES
        child.terminate()
        assert child.wait(timeout=30) == 0
        assert child.stderr is not None
        log = child.stderr.read()
    assert f"tenant default is at line {LINES}: {LINES - kept} replayed" in log


def two_tenants(folder: Path) -> Settings:
    keys = {name: [{"digest": digest(name), "role": "read-write"}] for name in ("good", "bad")}
    shared = {"dim": 2, "policy": "linucb", "options": {"alpha": 0.5}}
    made = {name: {**shared, "keys": keys[name]} for name in keys}
    return msgspec.convert({"tenants": made, "data": str(folder / "data"), "port": 0}, Settings)


def test_of_two_tenants_whose_folders_are_one_only_one_serves(tmp_path: Path) -> None:
    """Two writers of one journal would each miss what the other wrote."""
    (tmp_path / "data" / "good").mkdir(parents=True)
    (tmp_path / "data" / "bad").symlink_to(tmp_path / "data" / "good")
    statuses, asked = {}, {"user": "ana", "arms": ARMS}
    with running(two_tenants(tmp_path)) as made:
        for name in ("good", "bad"):
            headers = {"Authorization": f"Bearer {name}"}
            answer = made.http.post("/v1/decisions", json=asked, headers=headers)
            statuses[answer.status_code] = answer.text
        assert sorted(statuses) == [200, 503]
        assert "another tenant" in statuses[503]
        assert "data/bad" in made.http.get("/readyz").json()["reason"]


@pytest.mark.parametrize("damage", ["not a database", "lines", "base"])
def test_a_damaged_journal_stops_its_tenant_and_no_other(tmp_path: Path, damage: str) -> None:
    wanted = two_tenants(tmp_path)
    with running(wanted) as made:
        for name in ("good", "bad"):
            headers = {"Authorization": f"Bearer {name}"}
            rows = [{"user": f"u{i}", "features": [1.0, 0.5], "reward": 1.0} for i in range(900)]
            made.http.post("/v1/observations", json={"observations": rows}, headers=headers)
    folder = tmp_path / "data" / "bad"
    for file in (folder / SNAPSHOTS).iterdir():
        file.unlink()
    journal = folder / "journal.db"
    if damage == "base":
        lines = sqlite3.connect(journal)
        lines.execute("UPDATE meta SET value = 100 WHERE name = 'base'")
        lines.commit()
        lines.close()
    else:
        start = 0 if damage == "not a database" else 60_000
        content = bytearray(journal.read_bytes())
        content[start:] = b"\x5a" * (len(content) - start)
        journal.write_bytes(content)
    with running(wanted) as made:
        ready = made.http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "tenant bad is stopped" in ready.json()["reason"]
        refused = made.http.get("/v1/policy", headers={"Authorization": "Bearer bad"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopped")
        assert "tenant bad is stopped" in refused.json()["error"]["message"]
        bad = {"Authorization": "Bearer bad"}
        (health,) = made.http.get("/tenants", headers=bad).json()["tenants"]
        assert health["status"] == "stopped"
        assert 'dyclu_ready{tenant="bad"} 0' in made.http.get("/metrics", headers=bad).text
        good = {"Authorization": "Bearer good"}
        assert made.http.get("/v1/policy", headers=good).json()["rewards"] == 900
        body = {"user": "ana", "arms": [{"id": "a", "features": [1.0, 0.0]}]}
        assert made.http.post("/v1/decisions", json=body, headers=good).status_code == 200
