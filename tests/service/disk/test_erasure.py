"""Erasing users from a `Tenant` that serves: nobody else loses anything, and nobody comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.engine.lines import ErasureBody, ExpiryBody, make_line
from dyclu.service.engine.state import State
from dyclu.service.schema import Observation, RewardRequest
from dyclu.service.settings import TenantSettings
from dyclu.service.tenant.rebuild import WORTH_A_SNAPSHOT
from dyclu.service.tenant.tenant import Tenant
from tests.service.bench import ARMS, Bench, ask, bits
from tests.service.disk.test_journal import holding, reading


def tenant(folder: Path, **rules: Any) -> Tenant:
    told: dict[str, Any] = {"dim": 2, "policy": "linucb", "options": {"alpha": 0.5}}
    made = Tenant("t", folder / "data" / "t", TenantSettings(**(told | rules)))
    made.open()
    return made


async def started(folder: Path, **rules: Any) -> Tenant:
    served = tenant(folder, **rules)
    await served.start(snapshot_every=1000)
    return served


async def observe(served: Tenant, user: str, times: int = 1) -> None:
    told = (Observation(user, [1.0, 0.0], 1.0) for _ in range(times))
    await asyncio.gather(*map(served.observe, told))


async def rebuilt(served: Tenant) -> None:
    while served.rebuilding:
        await asyncio.sleep(0.001)


def test_a_reward_that_arrives_together_with_an_erasure_is_learnt(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 5)
        told = Observation("bob", [1.0, 0.0], 1.0)
        await asyncio.gather(served.erase("ana"), served.observe(told))
        await rebuilt(served)
        assert served.state.users["bob"].rewards == 1
        assert [one.kind for one in served.files.reader.after(0)] == ["erasure", "event"]
        await served.stop()

    asyncio.run(play())


def test_an_erasure_does_not_delay_requests_while_the_journal_is_read(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "anastasia", 5)
        with reading(served.folder / JOURNAL):
            async with asyncio.timeout(3):
                await served.erase("anastasia")
                await observe(served, "bob", 5)
                await rebuilt(served)
        async with asyncio.timeout(10):
            while holding(served.folder, b"anastasia"):
                await asyncio.sleep(0.05)
        with reading(served.folder / JOURNAL):
            async with asyncio.timeout(3):
                await served.stop()

    asyncio.run(play())


def test_a_line_with_an_old_number_is_not_applied() -> None:
    spec = TenantSettings(dim=2, policy="linucb", options={"alpha": 0.5}).spec()
    state = State(spec.make())
    state.apply(make_line(2, 0, ErasureBody()))
    for late in (1, 2):
        with pytest.raises(RuntimeError, match="came after line 2"):
            state.apply(make_line(late, 0, ErasureBody()))
    assert state.total.seq == 2


def test_a_user_erased_during_a_replay_stays_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        for user in ("ana", "bob", "cleo"):
            await observe(served, user, 300)
        known: list[bool] = []
        replace = served.engine.replace

        def watched(state: State) -> None:
            known.append("bob" in state.users)
            replace(state)

        monkeypatch.setattr(served.engine, "replace", watched)
        some, read = served.rebuild.replay_some, asyncio.Event()

        async def slowly(state: State) -> None:
            await some(state)
            if "bob" in state.users and not read.is_set():
                read.set()
                await served.erase("bob")

        monkeypatch.setattr(served.rebuild, "replay_some", slowly)
        await served.erase("ana")
        await read.wait()
        await rebuilt(served)
        # The replay that was under way, and the one that never heard of them.
        assert known == [False, False]
        assert served.state.users.keys() == {"cleo"}
        await served.stop()

    asyncio.run(play())


def test_frequent_erasures_do_not_delay_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is served follows: each replay ends, and is rid of all who had gone when it began."""

    async def play() -> None:
        served = await started(tmp_path)
        users = [f"u{i}" for i in range(12)]
        for user in users:
            await observe(served, user, 50)
        decided = await served.decide(ask("stays"))
        gone: list[str] = []
        seen: list[int] = []
        replace, some = served.engine.replace, served.rebuild.replay_some

        def watched(state: State) -> None:
            replace(state)
            begun = len(seen)
            seen.append(len(gone))
            assert not set(gone) & state.users.keys()
            # One was erased before the first replay began, and by each that ended, those seen then.
            for user in gone[: seen[begun - 1] if begun else 1]:
                assert state.policy.decide(user, ARMS).mean == 0.0

        async def interrupted(state: State) -> None:
            before = state.total.seq
            await some(state)
            if len(gone) < len(users) - 2 and state.total.seq - before > 50:
                gone.append(users[len(gone)])
                await served.erase(gone[-1])

        monkeypatch.setattr(served.engine, "replace", watched)
        monkeypatch.setattr(served.rebuild, "replay_some", interrupted)
        gone.append(users[0])
        await served.erase(users[0])
        while len(gone) < len(users) - 2:
            await asyncio.sleep(0.001)
        await rebuilt(served)
        assert seen[0] < len(gone)
        assert len(seen) >= 3
        await served.reward(decided.decision_id, RewardRequest(1.0))
        fresh = State(served.rules.spec().make()).apply_all(served.files.reader.after(0))
        assert bits(served.state, tmp_path) == bits(fresh, tmp_path)
        await served.stop()

    asyncio.run(play())


def test_a_decision_for_an_erased_user_who_comes_back_during_a_replay_stays_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        for user in ("ana", "bob", "cleo"):
            await observe(served, user, 300)
        some, made = served.rebuild.replay_some, list[str]()

        async def slowly(state: State) -> None:
            await some(state)
            if "bob" in state.users and not made:
                made.append("soon")
                await served.erase("bob")
                made[0] = (await served.decide(ask("bob"))).decision_id

        monkeypatch.setattr(served.rebuild, "replay_some", slowly)
        await served.erase("ana")
        replaced = served.state
        while served.state is replaced:
            await asyncio.sleep(0)
        assert served.rebuilding
        assert not (await served.reward(made[0], RewardRequest(1.0))).repeated
        await rebuilt(served)
        assert served.state.users["bob"].rewards == 1
        await served.stop()

    asyncio.run(play())


def test_the_lag_of_a_rebuild_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 10)
        await observe(served, "bob", 300)
        assert (served.rebuild.lag_lines, served.rebuild.lag_seconds) == (0, 0.0)
        lags, some = list[int](), served.rebuild.replay_some

        async def watched(state: State) -> None:
            await some(state)
            lags.append(served.rebuild.lag_lines)
            assert served.rebuild.lag_seconds > 0

        monkeypatch.setattr(served.rebuild, "replay_some", watched)
        await served.erase("ana")
        await rebuilt(served)
        # Lines of 310 that are left, and the one that records the erasure.
        assert lags == sorted(lags, reverse=True)
        assert 0 < lags[0] < 301
        assert (served.rebuild.lag_lines, served.rebuild.lag_seconds) == (0, 0.0)
        await served.stop()

    asyncio.run(play())


def test_a_snapshot_is_taken_after_a_rebuild(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 10)
        await observe(served, "bob", WORTH_A_SNAPSHOT)
        served.save()
        assert len(list(served.snapshots.folder.glob(f"{0:08d}-*"))) == 2
        await served.erase("ana")
        assert not list(served.snapshots.folder.glob(f"{0:08d}-*"))
        async with asyncio.timeout(30):
            while not served.files.saved:
                await asyncio.sleep(0.01)
        assert not served.rebuilding
        assert served.files.saved == served.state.total.seq
        served.snapshots.complaints.clear()
        made = served.snapshots.latest(served.files.reader, exact=True)
        assert made is not None
        assert bits(made.state, tmp_path) == bits(served.state, tmp_path)
        await served.stop()

    asyncio.run(play())


def test_a_reused_id_stays_when_its_first_decision_is_removed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.decide("ana", decision_id="d")
    first = bench.reader.find("d", "decision")
    assert first is not None
    bench.state.apply(make_line(2, first.at, first.body, ref="d", user="bob"))
    bench.state.apply(make_line(3, first.at, ExpiryBody([first.seq])))
    assert list(bench.state.pending) == [2]
    bench.state.apply(make_line(4, first.at, ExpiryBody([2])))
    assert list(bench.state.pending) == []
    bench.close()


Begun = asyncio.Queue[asyncio.subprocess.Process]


def waiting_instead(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """Let a process that does nothing until its input ends stand in for the one that snapshots."""
    begin, begun = asyncio.create_subprocess_exec, Begun()

    async def wait(*_: str, stdin: int) -> asyncio.subprocess.Process:
        process = await begin("cat", stdin=stdin)
        begun.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", wait)
    return begun


def draft(served: Tenant, *, epoch: int) -> Path:
    """What a process leaves that is killed while it writes."""
    path = served.snapshots.folder / f".{epoch:08d}-{3:020d}.policy.123-456"
    path.write_bytes(b"ana")
    return path


@pytest.mark.parametrize("end", ["killed", "well", "cancelled"])
def test_an_unfinished_snapshot_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def play() -> None:
        served, begun = tenant(tmp_path), waiting_instead(monkeypatch)
        await served.start(snapshot_every=1000)
        taking = asyncio.create_task(served.saving.take())
        process = await begun.get()
        left = draft(served, epoch=0)
        if end == "killed":
            process.kill()
        elif end == "cancelled":
            taking.cancel()
        elif process.stdin is not None:
            process.stdin.close()
        await asyncio.gather(taking, return_exceptions=True)
        assert process.returncode == (0 if end == "well" else -9)
        assert not left.exists()
        await served.stop()

    asyncio.run(play())


@pytest.mark.parametrize("end", ["well", "cancelled"])
def test_a_snapshot_finished_after_an_erasure_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    async def play() -> None:
        served, begun = tenant(tmp_path), waiting_instead(monkeypatch)
        await served.start(snapshot_every=1000)
        await observe(served, "ana", 3)
        remembers = State(served.rules.spec().make()).apply_all(served.files.reader.after(0))
        taking = asyncio.create_task(served.saving.take())
        process = await begun.get()
        await served.erase("ana")
        served.snapshots.write(remembers, epoch=0)
        if end == "cancelled":
            taking.cancel()
        elif process.stdin is not None:
            process.stdin.close()
        await asyncio.gather(taking, return_exceptions=True)
        assert not list(served.snapshots.folder.iterdir())
        assert served.files.saved == 0
        await served.stop()

    asyncio.run(play())


def test_an_erasure_removes_drafts_from_before_it_and_no_others(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        before, since = draft(served, epoch=0), draft(served, epoch=1)
        await served.erase("ana")
        assert not before.exists()
        before.touch()
        served.snapshots.purge(served.files.reader)
        assert not before.exists()
        # Somebody may be writing it.
        assert since.exists()
        await served.stop()

    asyncio.run(play())
