"""`dyclu.service.tenant`: how a tenant starts from what it finds."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS
from dyclu.service.engine.lines import encode
from dyclu.service.http.views.window import Window
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Arm, DecisionRequest, Observation, RewardRequest
from dyclu.service.tenant.tenant import EXPIRE_EVERY, Tenant
from tests.service.disk.test_erasure import observe, started, tenant


async def killed(served: Tenant) -> None:
    """End a tenant without its last snapshot."""
    served.files.saved = served.state.total.seq
    await served.stop()


def stems(served: Tenant) -> set[str]:
    return {path.stem for path in (served.folder / SNAPSHOTS).iterdir()}


def test_a_snapshot_ahead_of_the_journal_is_never_used(tmp_path: Path) -> None:
    """Not even when other lines have taken the numbers of those it was made from."""

    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        await served.stop()
        copy = shutil.copy(served.folder / JOURNAL, tmp_path)
        served = await started(tmp_path)
        await observe(served, "lost", 3)
        await served.stop()
        shutil.copy(copy, served.folder / JOURNAL)
        served = tenant(tmp_path)
        await served.recover()
        assert "ahead of the journal" in served.snapshots.complaints[0]
        await served.start(snapshot_every=1000)
        await observe(served, "bob", 5)
        await killed(served)
        served = tenant(tmp_path)
        await served.recover()
        assert {user: one.rewards for user, one in served.state.users.items()} == {
            "ana": 3,
            "bob": 5,
        }
        await served.start(snapshot_every=1000)
        await served.stop()

    asyncio.run(play())


def test_too_late_is_told_when_the_end_of_the_decision_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner has another clock: until then it could accept a copy of the request."""
    monkeypatch.setattr("dyclu.service.tenant.tenant.EXPIRE_EVERY", 3600)

    async def play() -> None:
        served = await started(tmp_path, reward_wait=0.05)
        arms = [Arm("a", [1.0, 0.0]), Arm("b", [0.0, 1.0])]
        decided = await served.decide(DecisionRequest("ana", arms))
        await asyncio.sleep(0.1)
        with pytest.raises(Refusal, match="too late"):
            await served.reward(decided.decision_id, RewardRequest(1.0))
        assert [one.kind for one in served.files.reader.after(0)] == ["decision", "expiry"]
        await served.stop()

    asyncio.run(play())


def test_rewards_of_several_slots_are_written_by_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two commits would leave a part of them, and the rest would be too late."""

    async def play() -> None:
        served = await started(tmp_path)
        arms = [Arm("a", [1.0, 0.0]), Arm("b", [0.0, 1.0]), Arm("c", [1.0, 1.0])]
        decided = await served.decide(DecisionRequest("ana", arms, slots=3))
        commits: list[int] = []
        append = served.files.journal.append

        def counted(lines: Sequence[bytes]) -> set[int]:
            commits.append(len(lines))
            return append(lines)

        monkeypatch.setattr(served.files.journal, "append", counted)
        values = {1: 1.0, 2: 0.0, 3: 0.5}
        await served.reward(decided.decision_id, RewardRequest(values=values))
        assert commits == [3]
        await served.stop()

    asyncio.run(play())


@pytest.mark.parametrize(("error", "ends"), [(MemoryError, True), (ZeroDivisionError, False)])
def test_only_errors_that_recur_in_a_replay_skip_a_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], ends: bool
) -> None:
    async def play() -> None:
        served = await started(tmp_path)

        def fails(*_: object) -> None:
            raise error

        monkeypatch.setattr(served.state.policy, "learn", fails)
        with pytest.raises(Refusal, match="could not be taken in") if ends else nullcontext():
            await observe(served, "ana")
        assert (served.stopped is not None) == ends
        assert served.state.total.unlearnt == (not ends)
        await killed(served)

    asyncio.run(play())


def test_a_kill_during_an_erasure_leaves_no_snapshot_with_the_user(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        served.save()
        mark = served.engine.erase("ana")
        served.files.journal.erase("ana", encode(mark))
        assert served.files.reader.being_erased() == [("ana", [])]
        await killed(served)
        assert stems(served) == {f"{0:08d}-{3:020d}"}
        served = tenant(tmp_path)
        await served.recover()
        assert stems(served) == set()
        assert not served.files.reader.being_erased()
        await served.start(snapshot_every=1000)
        (served.folder / SNAPSHOTS / f"{0:08d}-{3:020d}.state").touch()
        with pytest.raises(Refusal, match="no such user"):
            await served.erase("ana")
        assert stems(served) == set()
        await killed(served)

    asyncio.run(play())


def test_lines_replayed_at_the_start_are_saved_by_the_next_snapshot(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        await killed(served)
        served = tenant(tmp_path)
        await served.recover()
        assert served.files.saved == 0
        await served.start(snapshot_every=1000)
        await served.stop()
        assert stems(served) == {f"{0:08d}-{3:020d}"}
        served = tenant(tmp_path)
        await served.recover()
        assert served.files.saved == 3
        await served.start(snapshot_every=1000)
        await served.erase("ana")
        assert served.files.saved == 0
        await killed(served)

    asyncio.run(play())


async def cleared(served: Tenant) -> None:
    async with asyncio.timeout(10):
        while stems(served):
            await asyncio.sleep(0.01)


def test_snapshots_that_cannot_be_listed_are_reported_and_removed_later(tmp_path: Path) -> None:
    """The erasure is made by then: it is answered, and what remembers goes as soon as it can."""

    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        served.save()
        folder, aside = served.folder / SNAPSHOTS, tmp_path / "aside"
        folder.rename(aside)
        folder.touch()
        assert (await served.erase("ana")).erased_records == 3
        assert served.files.saved == 0
        (told,) = Window(served).policy().warnings
        assert "snapshots cannot be read (Not a directory)" in told
        await asyncio.sleep(2 * EXPIRE_EVERY)
        assert Window(served).policy().warnings == [told]
        folder.unlink()
        aside.rename(folder)
        assert stems(served) == {f"{0:08d}-{3:020d}"}
        await cleared(served)
        await killed(served)

    asyncio.run(play())


def test_a_snapshot_that_cannot_be_removed_is_removed_later_and_others_at_once(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 3)
        served.save()
        stuck = served.folder / SNAPSHOTS / f"{0:08d}-{1:020d}.state"
        stuck.mkdir()
        await served.erase("ana")
        assert stems(served) == {stuck.stem}
        assert f"{stuck} cannot be removed" in Window(served).policy().warnings[0]
        stuck.rmdir()
        stuck.touch()
        await cleared(served)
        await killed(served)

    asyncio.run(play())


async def click_rarely(served: Tenant) -> None:
    """Learn 400 rewards of which every 25th is a click: DyClu sets the clicks aside."""
    told = (Observation("ana", [1.0, 0.0], float(i % 25 == 24)) for i in range(400))
    await asyncio.gather(*map(served.observe, told))


def test_warnings_of_the_policy_are_shown_after_those_of_the_service(tmp_path: Path) -> None:
    async def play() -> None:
        served = await started(tmp_path, policy="dyclu", options={"noise": 0.1})
        assert Window(served).policy().warnings == []
        await click_rarely(served)
        served.state.total.unlearnt = 3
        first, second = Window(served).policy().warnings
        assert first == "3 rewards could not be learnt; see the log"
        assert second == served.state.policy.warnings[0]
        assert "The surprises hold" in second
        await killed(served)

    asyncio.run(play())


def test_warnings_of_the_policy_are_logged_when_the_service_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        for _ in range(2):
            served = await started(tmp_path, policy="dyclu", options={"noise": 0.1})
            if not served.state.total.rewards:
                await click_rarely(served)
            await served.stop()

    with caplog.at_level(logging.WARNING, "dyclu.service"):
        asyncio.run(play())
    (line,) = caplog.messages
    assert line.startswith("the policy of t warns: The surprises hold")
