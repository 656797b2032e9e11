"""Erasures and bases that fail half-way: they are finished later, and hold up nobody."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.disk import archive, bases
from dyclu.service.disk.snapshots import SNAPSHOTS, take
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Limits
from dyclu.service.tenant import erasures
from dyclu.service.tenant.tenant import Tenant
from tests.service.bench import Bench
from tests.service.disk.test_erasure import observe, rebuilt, started, tenant


def failing(times: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails as a full disk does, so many times."""
    left = [times]

    def maybe(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        return function(*args)

    return maybe


def test_an_erasure_that_the_archive_refuses_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "forget", failing(1, archive.forget))
    monkeypatch.setattr(erasures, "RETRY", 0.0)

    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        with pytest.raises(Refusal, match="No space left on device") as refused:
            await served.erase("ana")
        assert refused.value.status == 503
        assert served.files.reader.being_erased()
        # A repetition gets an answer, and nothing about the user is accepted meanwhile.
        async with asyncio.timeout(30):
            with pytest.raises(Refusal, match="is tried again"):
                await served.erase("ana")
            with pytest.raises(Refusal, match="busy"):
                await observe(served, "ana")
            while served.files.reader.being_erased():
                await asyncio.sleep(0.01)
            await rebuilt(served)
            await observe(served, "ana")
        assert served.state.users["ana"].rewards == 1
        await served.stop()

    asyncio.run(play())


def test_no_snapshot_and_no_rebuild_contains_a_user_whose_erasure_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their lines are gone, but base or archive may still have them."""
    monkeypatch.setattr(archive, "forget", failing(1, archive.forget))
    monkeypatch.setattr(erasures, "RETRY", 1e9)

    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        await observe(served, "bea", 3)
        with pytest.raises(Refusal, match="No space left on device"):
            await served.erase("ana")
        with served.erasures.followed() as gone:
            assert [user for user, _ in gone] == ["ana"]
        folder, spec = served.files.folder, served.files.spec
        before = sorted((folder / SNAPSHOTS).glob("*"))
        await asyncio.to_thread(take, folder, spec)
        assert sorted((folder / SNAPSHOTS).glob("*")) == before
        served.erasures.resume()
        async with asyncio.timeout(30):
            while served.erasures.running or served.files.reader.being_erased():
                await asyncio.sleep(0.01)
        with served.erasures.followed() as gone:
            assert not gone
        await asyncio.to_thread(take, folder, spec)
        assert sorted((folder / SNAPSHOTS).glob("*")) != before
        await served.stop()

    asyncio.run(play())


def test_a_user_whose_erasure_is_under_way_stays_blocked_when_the_disk_fails(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.decide("ana")
    bench.engine.erase("ana")
    bench.engine.failed()
    assert bench.engine.erases("ana")
    bench.engine.end_erasure("ana")
    assert not bench.engine.erases("ana")
    bench.close()


def test_a_stop_does_not_wait_for_an_erasure_if_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        wait, forget = asyncio.Event(), served.files.without

        def slowly(*args: Any) -> Any:
            loop.call_soon_threadsafe(wait.set)
            served.committer.trouble = "the disk is full"
            yield from forget(*args)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(served.files, "without", slowly)
        erased = asyncio.create_task(served.erase("ana"))
        await wait.wait()
        async with asyncio.timeout(30):
            await served.stop()
            with pytest.raises(Refusal, match="the disk is full"):
                await erased

    asyncio.run(play())


def test_parts_of_a_failed_attempt_do_not_get_into_the_next_base(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for user in range(5):
        bench.decide(f"u{user}")
    spec = bench.rules.spec()
    with bases.drafts(tmp_path) as files:
        bases.make(bench.reader, tmp_path, spec, upto=3, into=files)
        bench.journal.put_part(1, bases.STATE, 1, b"left by an attempt that wrote more parts")
        for write in bases.store(bench.journal, bench.reader, files, line=3):
            write()
    assert bench.reader.facts().base == 3
    assert len(bases.begin(bench.reader, tmp_path, spec).users) == 3
    bench.close()


async def with_a_base_of(served: Tenant, lines: int) -> None:
    async with asyncio.timeout(120):
        while served.files.reader.facts().dropped < lines:
            await asyncio.sleep(0.01)


def test_a_failed_retirement_removes_no_drafts_of_an_erasure_and_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await started(tmp_path, keep="10 lines")
        swept, sweep = list[bool](), served.files.sweep

        def watched() -> None:
            swept.append(served.files.basing.locked())
            sweep()

        async def fails(*_: str) -> int:
            return 1

        monkeypatch.setattr(served.files, "sweep", watched)
        monkeypatch.setattr(served.files, "run_process", fails)
        await observe(served, "ana", 30)
        async with asyncio.timeout(30):
            while not swept:
                await asyncio.sleep(0.01)
            # A rebuild can begin, although the base is tried again only after a while.
            await served.erase("ana")
            await rebuilt(served)
        assert swept == [True]
        await served.stop()

    asyncio.run(play())


def test_an_erasure_while_a_base_is_made_with_the_user_is_not_called_exact(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path, policy="atlas", options={})
        await observe(served, "ana", 3)
        await observe(served, "bob", 3)
        served.erasures.retiring = 4
        assert not (await served.erase("ana")).exact
        served.erasures.retiring = 4
        await observe(served, "cleo", 3)
        assert (await served.erase("cleo")).exact
        await served.stop()

    asyncio.run(play())


def test_an_erasure_of_a_user_whom_only_the_archive_knows_is_not_called_exact(
    tmp_path: Path,
) -> None:
    rules: dict[str, Any] = {"policy": "atlas", "options": {}, "keep": "10 lines", "archive": True}

    async def play() -> None:
        served = await started(tmp_path, **rules, limits=Limits(max_users=1))
        await observe(served, "ana", 3)
        await observe(served, "bob", 30)
        await with_a_base_of(served, 10)
        async with asyncio.timeout(120):
            while "ana" in served.state.users or served.files.reader.first_line("ana"):
                await observe(served, "bob", 20)
                await asyncio.sleep(0.05)
        assert not (await served.erase("ana")).exact
        await served.stop()

    asyncio.run(play())


def test_no_rebuild_is_needed_after_a_start_from_before_the_erased_users(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        await served.stop()
        served = await started(tmp_path)
        await observe(served, "bob", 3)
        await served.erase("bob")
        await rebuilt(served)
        served.files.saved = served.state.total.seq
        await served.stop()
        served = await started(tmp_path)
        assert served.snapshots.used == 3
        assert not served.rebuilding
        await served.stop()

    asyncio.run(play())


def test_a_full_disk_at_a_start_is_not_called_a_damaged_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(JournalReader, "being_erased", full)

    async def play() -> None:
        served = tenant(tmp_path)
        served.begin(snapshot_every=1000)
        while served.stopped is None:
            await asyncio.sleep(0.01)
        assert "see to the disk" in served.stopped
        assert "backup" not in served.stopped
        await served.stop()

    asyncio.run(play())
