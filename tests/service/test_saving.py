"""`Saving`: small partitions write their snapshots themselves, as long as that is quick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
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
    monkeypatch.setattr(saving, "WORTH_A_SNAPSHOT", 1)
    monkeypatch.setattr(saving, "LOOK", 0.02)
    monkeypatch.setattr(saving, "QUICK", 0.3)
    return found


async def small(folder: Path, *, every: float) -> Tenant:
    """Return a tenant that serves, and writes its snapshots itself."""
    rules = TenantSettings(dim=2, policy="linucb", options={"alpha": 0.5})
    made = Tenant("t", folder / "data" / "t", rules, saves_here=True)
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
