"""`Saving`: small partitions write their snapshots themselves, as long as that is quick."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.settings import TenantSettings
from dyclu.service.tenant import saving
from dyclu.service.tenant.files import TenantFiles
from dyclu.service.tenant.tenant import Tenant
from tests.service.disk.test_erasure import observe

LINES = 20
HOUR = 3600.0


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the tenants for which a process was started; all of them succeed."""
    found: list[str] = []

    async def runs(files: TenantFiles, *_: str) -> int:
        found.append(files.name)
        return 0

    monkeypatch.setattr(TenantFiles, "_run_process", runs)
    monkeypatch.setattr(saving, "LINES", LINES)
    monkeypatch.setattr(saving, "REPLAY", HOUR)
    # The lines here take less time than a snapshot.
    monkeypatch.setattr(saving, "WORTH", 0)
    monkeypatch.setattr(saving, "WORTH_A_SNAPSHOT", 1)
    monkeypatch.setattr(saving, "LOOK", 0.02)
    monkeypatch.setattr(saving, "QUICK", 0.3)
    return found


async def small(
    folder: Path, *, every: float = HOUR, beside: asyncio.Semaphore | None = None
) -> Tenant:
    """Return a tenant that serves, and writes its snapshots itself, in turns with others."""
    rules = TenantSettings(dim=2, policy="linucb", options={"alpha": 0.5})
    made = Tenant("t", folder / "data" / "t", rules, saves_here=True, beside=beside)
    made.open()
    await made.start(snapshot_every=every)
    return made


async def becomes(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def is_saved(served: Tenant) -> bool:
    return served.files.saved == served.state.total.seq


def test_an_error_of_a_policy_that_cannot_be_saved_stops_no_request(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await small(tmp_path, every=HOUR)

        def fails(*_: object, **__: object) -> None:
            raise TypeError("a bug in the save of one's own policy")

        with monkeypatch.context() as broken:
            broken.setattr(served.files.snapshots, "write", fails)
            await observe(served, "ana", LINES)
            await becomes(lambda: bool(processes) or served.committer.trouble is not None)
            assert served.committer.trouble is None
            assert is_saved(served)
            # The next one is due in an hour.
            await observe(served, "ana", LINES)
            await asyncio.sleep(0.2)
            assert processes == ["t"]
        await served.stop()

    asyncio.run(play())


def test_lines_that_are_slow_to_replay_are_saved_before_there_are_many(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A take-over has at most about `REPLAY` seconds to replay, whatever a line costs."""
    monkeypatch.setattr(saving, "LINES", 10**9)
    monkeypatch.setattr(saving, "REPLAY", 0.4)

    async def play() -> None:
        served = await small(tmp_path, every=HOUR)
        learn = served.state.policy.learn

        def slow(*told: Any, **more: Any) -> Any:
            time.sleep(0.05)
            return learn(*told, **more)

        monkeypatch.setattr(served.state.policy, "learn", slow)
        await observe(served, "ana", 2)
        await asyncio.sleep(0.2)
        assert served.files.saved == 0
        assert served.committer.applying >= 0.1
        # Twice: what was saved does not count again.
        for _ in range(2):
            before = served.files.saved
            await observe(served, "ana", 8)
            await becomes(lambda one=before: served.files.saved > one)  # type: ignore[misc]
            saved = served.files.saved
            await observe(served, "ana", 1)
            await asyncio.sleep(0.2)
            assert served.files.saved == saved
        assert processes == []
        await served.stop()

    asyncio.run(play())


def test_a_snapshot_that_waited_for_its_turn_is_not_slow(
    tmp_path: Path, processes: list[str]
) -> None:
    async def play() -> None:
        served = await small(tmp_path, every=HOUR)
        await observe(served, "ana", LINES)
        stall = served.committer.do(lambda: time.sleep(2 * saving.QUICK))
        await becomes(lambda: is_saved(served))
        assert stall.done()
        await observe(served, "ana", LINES)
        await becomes(lambda: is_saved(served))
        assert processes == []
        await served.stop()

    asyncio.run(play())


def test_after_a_slow_snapshot_the_next_one_waits_until_it_is_due_and_is_written_here(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await small(tmp_path, every=1.5)
        write = served.files.snapshots.write

        def slow(*told: object, **more: object) -> None:
            time.sleep(2 * saving.QUICK)
            write(*told, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as now:
            now.setattr(served.files.snapshots, "write", slow)
            await observe(served, "ana", LINES)
            await becomes(lambda: is_saved(served))
        began = time.monotonic()
        await observe(served, "ana", LINES)
        await becomes(lambda: is_saved(served))
        assert time.monotonic() - began > 0.75
        # That was quick: many lines are enough again.
        began = time.monotonic()
        await observe(served, "ana", LINES)
        await becomes(lambda: is_saved(served))
        assert time.monotonic() - began < 0.75
        assert processes == []
        await served.stop()

    asyncio.run(play())


def test_an_erasure_that_begins_meanwhile_makes_a_snapshot_neither_slow_nor_failed(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await small(tmp_path, every=HOUR)
        with monkeypatch.context() as now:

            def begins(*_: object, **__: object) -> bool:
                now.setattr(type(served.erasures), "running", ["ana"])
                return False

            now.setattr(served.files, "write_snapshot", begins)
            await observe(served, "ana", LINES)
            await becomes(lambda: bool(served.erasures.running))
            await asyncio.sleep(0.1)
        await becomes(lambda: is_saved(served))
        assert processes == []
        await served.stop()

    asyncio.run(play())


def test_a_rebuild_does_not_wait_for_snapshots_of_other_partitions(
    tmp_path: Path, processes: list[str]
) -> None:
    async def play() -> None:
        beside = asyncio.Semaphore()
        served = await small(tmp_path, beside=beside)
        async with beside:
            await observe(served, "ana", LINES)
            await observe(served, "bea", LINES)
            # By now it waits for its turn.
            await asyncio.sleep(0.2)
            await served.erase("ana")
            await becomes(lambda: not served.rebuilding)
            assert served.files.saved == 0
        await becomes(lambda: is_saved(served))
        assert "ana" not in served.state.users
        assert processes == []
        await served.stop()

    asyncio.run(play())


@pytest.mark.parametrize("waits_for", ["its turn", "the committer"])
def test_no_snapshot_is_written_here_while_the_state_has_to_be_computed_again(
    tmp_path: Path, processes: list[str], waits_for: str
) -> None:
    """The erasure comes while the snapshot waits, and its rebuild has not begun."""

    async def play() -> None:
        beside, go = asyncio.Semaphore(), threading.Event()
        served = await small(tmp_path, beside=beside)
        await beside.acquire()
        await observe(served, "ana", LINES)
        await asyncio.sleep(0.2)
        if waits_for == "the committer":
            stall = served.committer.do(lambda: go.wait(20))
            beside.release()
            await becomes(lambda: len(served.committer._waiting) > 0)
        served.erasures.epoch += 1
        go.set()
        if waits_for == "its turn":
            beside.release()
        else:
            await stall
        await asyncio.sleep(0.2)
        assert served.rebuilding
        assert served.files.saved == 0
        served.erasures.epoch -= 1
        await becomes(lambda: is_saved(served))
        await served.stop()

    asyncio.run(play())


def test_a_snapshot_here_and_a_retirement_do_not_wait_for_each_other(
    tmp_path: Path, processes: list[str]
) -> None:
    """A retirement has the turn and waits for `beside`; what a snapshot needs is the same."""

    async def play() -> None:
        beside = asyncio.Semaphore()
        served = await small(tmp_path, beside=beside)
        async with asyncio.timeout(20):
            await beside.acquire()
            await observe(served, "ana", LINES)
            await asyncio.sleep(0.2)
            async with served.files.turn:
                beside.release()
                await asyncio.sleep(0.2)
                async with beside:
                    assert served.files.saved == 0
        await becomes(lambda: is_saved(served))
        await served.stop()

    asyncio.run(play())


def test_the_rest_after_a_snapshot_holds_up_no_rebuild(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "LOOK", 1.0)
    monkeypatch.setattr(saving, "REST", HOUR)

    async def play() -> None:
        beside = asyncio.Semaphore()
        served = await small(tmp_path, beside=beside)
        await observe(served, "ana", LINES)
        await becomes(lambda: is_saved(served))
        await asyncio.sleep(0.2)
        assert beside.locked()
        assert not served.files.turn.locked()
        await served.stop()

    asyncio.run(play())


def test_a_snapshot_waits_until_lines_cost_more_than_the_last_one_with_its_upload(
    tmp_path: Path, processes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots take a bounded share of the time, also if the database takes them slowly."""
    monkeypatch.setattr(saving, "WORTH", 2)
    monkeypatch.setattr(saving, "QUICK", HOUR)

    async def play() -> None:
        served = await small(tmp_path)
        # To be prepared, and to be written.
        upload = 0.1 + 0.1

        def sharing() -> Iterator[Callable[[], object]]:
            time.sleep(upload / 2)
            yield lambda: time.sleep(upload / 2)

        monkeypatch.setattr(served.files, "sharing", sharing)
        await observe(served, "ana", LINES)
        await becomes(lambda: is_saved(served))
        await asyncio.sleep(2 * upload)
        await observe(served, "ana", LINES)
        await asyncio.sleep(0.3)
        assert not is_saved(served)
        served.committer.applying += 1.9 * upload
        await asyncio.sleep(0.3)
        assert not is_saved(served)
        # The snapshot itself took some milliseconds, too.
        served.committer.applying += HOUR
        await becomes(lambda: is_saved(served))
        assert processes == []
        await served.stop()

    asyncio.run(play())
