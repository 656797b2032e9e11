"""Retention: a base stands for the lines before it, and nobody notices."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu.contributions import Contribution
from dyclu.errors import DamagedFile, OptionError
from dyclu.service.disk import bases, retention
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, recover
from dyclu.service.engine.lines import OTHERS, AbsorbedBody, encode, make_line
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Observation
from dyclu.service.settings import Keep
from dyclu.service.spec import FORGETS_EXACTLY, PolicySpec
from tests.service.bench import ARMS, Bench, bits
from tests.service.disk.test_erasure import observe, rebuilt, started, tenant
from tests.service.disk.test_journal import holding

OPTIONS: dict[str, dict[str, Any]] = {
    "linucb": {"alpha": 0.5},
    "dyclu": {"noise": 0.1},
    "atlas": {},
}


def play(bench: Bench, rounds: int, *, first: int = 0, people: int = 4) -> None:
    """Decide for some users, and reward most of it later."""
    for i in range(first, first + rounds):
        bench.now += 1.0
        bench.decide(f"user-{i % people}", decision_id=f"d{i}")
        if i >= first + 3 and i % 5:
            bench.reward(f"d{i - 3}", (i % 7) / 7)


def retire(bench: Bench, upto: int, *, stop_after: int | None = None) -> None:
    """Put a base in force, as a tenant does; or be killed after so many writes."""
    with bases.drafts(bench.folder) as files:
        bases.make(bench.reader, bench.folder, bench.rules.spec(), upto=upto, into=files)
        pending = retention.pending_at(files)
        writes = bases.store(bench.journal, bench.reader, files, line=upto, epoch=bench.epoch)
        for number, write in enumerate(_chained(writes, pending, bench)):
            if number == stop_after:
                return
            write()


def _chained(writes: Iterator[bases.Write], pending: Any, bench: Bench) -> Iterator[bases.Write]:
    yield from writes
    yield from retention.drop(bench.journal, bench.reader, pending)


def fold(bench: Bench) -> State:
    """The state that base and lines give, without any snapshot."""
    state = bases.begin(bench.reader, bench.folder, bench.rules.spec())
    return state.apply_all(bench.reader.after(bench.reader.facts().base))


@pytest.mark.parametrize("policy", OPTIONS)
def test_base_and_kept_lines_give_the_same_state_as_all_lines(tmp_path: Path, policy: str) -> None:
    bench = Bench(tmp_path, policy=policy, options=OPTIONS[policy], reward_wait=20.0)
    play(bench, 60)
    bench.expire()
    expected = bits(bench.state, tmp_path)
    before = bench.reader.last()
    for upto in (20, 55, 90):
        retire(bench, upto)
        facts = bench.reader.facts()
        assert (facts.base, facts.dropped) == (upto, upto)
        assert bits(fold(bench), tmp_path) == expected
    bench.restart()
    assert bits(bench.state, tmp_path) == expected
    assert bench.reader.last() == before
    # Of the lines before the base, those of decisions that were pending then are kept.
    assert 0 < len(bench.reader.numbers(0, 90)) < 20
    bench.close()


def test_a_decision_pending_at_the_base_is_rewarded_later_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, reward_wait=1000.0)
    bench.decide("ana", decision_id="early")
    play(bench, 30)
    retire(bench, bench.reader.last())
    bench.restart()
    assert bench.reward("early", 0.75).value == 0.75
    expected = bits(bench.state, tmp_path)
    bench.restart()
    assert bits(bench.state, tmp_path) == expected
    assert bench.reward("early", 0.75).repeated
    retire(bench, bench.reader.last())
    assert bench.reader.find("early", "decision") is None
    assert bits(fold(bench), tmp_path) == expected
    bench.close()


def test_a_kill_after_any_write_of_a_retirement_loses_and_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    bench = Bench(tmp_path / "whole", reward_wait=20.0)
    play(bench, 40)
    retire(bench, 20)
    play(bench, 20, first=40)
    expected, now = bits(bench.state, tmp_path), bench.now
    bench.close()
    for stop_after in range(12):
        copy = tmp_path / f"killed-{stop_after}"
        shutil.copytree(tmp_path / "whole", copy)
        killed = Bench(copy, reward_wait=20.0)
        killed.now = now
        retire(killed, 60, stop_after=stop_after)
        killed.restart()
        assert bits(killed.state, tmp_path) == expected, stop_after
        generations = killed.journal._writer.execute("SELECT DISTINCT generation FROM base")
        assert len(generations.fetchall()) == 1
        facts = killed.reader.facts()
        base = bases.begin(killed.reader, copy, killed.rules.spec())
        for write in retention.drop(killed.journal, killed.reader, base.pending.column("seq")):
            write()
        retire(killed, 70)
        assert bits(fold(killed), tmp_path) == expected, stop_after
        killed.close()
        if facts.dropped == 60:
            return
    raise AssertionError("the retirement never ended")


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_a_damaged_base_is_reported_and_never_used(tmp_path: Path, damage: str) -> None:
    bench = Bench(tmp_path)
    play(bench, 20)
    retire(bench, 20)
    if damage == "flip":
        row = bench.journal._writer.execute("SELECT rowid, bytes FROM base LIMIT 1").fetchone()
        broken = row[1][:50] + bytes([row[1][50] ^ 1]) + row[1][51:]
        bench.journal._writer.execute("UPDATE base SET bytes = ? WHERE rowid = ?", (broken, row[0]))
    else:
        bench.journal._writer.execute("DELETE FROM base WHERE file = 'base.policy'")
    with pytest.raises(DamagedFile, match=r"lines up to 20, and it cannot be read .* backup"):
        fold(bench)
    bench.close()


def test_a_base_that_does_not_give_back_its_state_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    play(bench, 20)
    dump = State.dump

    def forgetful(self: State) -> Any:
        told, arrays = dump(self)
        return told, arrays | {"totals": arrays["totals"] * 1.5}

    monkeypatch.setattr(State, "dump", forgetful)
    with pytest.raises(DamagedFile, match="does not give back the state"):
        retire(bench, 20)
    assert bench.reader.facts().base == 0
    assert len(bench.reader.numbers(0, 20)) == 20
    bench.close()


def test_parts_that_the_database_does_not_give_back_are_not_put_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    play(bench, 20)
    put = bench.journal.put_part

    def lossy(generation: int, file: str, part: int, content: bytes) -> None:
        put(generation, file, part, content[:-1] + b"?")

    monkeypatch.setattr(bench.journal, "put_part", lossy)
    with pytest.raises(DamagedFile, match="does not give back the base"):
        retire(bench, 20)
    assert bench.reader.facts().base == 0
    bench.close()


def test_a_base_is_not_put_in_force_if_a_user_was_erased_since(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    play(bench, 20)
    with bases.drafts(tmp_path) as files:
        bases.make(bench.reader, tmp_path, bench.rules.spec(), upto=20, into=files)
        epoch = bench.epoch
        bench.erase("user-1")
        for write in bases.store(bench.journal, bench.reader, files, line=20, epoch=epoch):
            write()
    assert bench.reader.facts().base == 0
    assert not holding(tmp_path, b"user-1")
    bench.close()


def test_another_policy_learns_from_the_kept_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, reward_wait=1e6)
    play(bench, 40)
    retire(bench, 40)
    decisions, pending = bench.state.total.decisions, bench.ids()
    bench.close()
    other = Bench(tmp_path, policy="atlas", options={}, reward_wait=1e6)
    assert "another policy" in caplog.text
    assert repr(other.state.policy).startswith("Atlas")
    assert other.state.total.decisions == decisions
    assert other.ids() == pending
    other.reward(pending[0], 1.0)
    other.close()


def test_what_a_base_has_absorbed_is_news_for_another_policy(tmp_path: Path) -> None:
    """Its sums are in the policy of the base, which is not used."""
    spec = PolicySpec("linucb", 2, {"alpha": 0.5, "shared": True})
    one = Contribution("3@linucb", 0, 0, "linucb", np.eye(2), np.ones(2), 2.0, 2)
    state = State(spec.make())
    state.apply(make_line(1, 0, AbsorbedBody(one.shard, 0, [one.to_bytes()]), user=OTHERS))
    bases.write_files(tmp_path, state, spec)
    changed = PolicySpec("linucb", 2, {"alpha": 1.0, "shared": True})
    same, other = (bases.read_files(tmp_path, told).state for told in (spec, changed))
    for found, news in ((same, False), (other, True)):
        assert found.absorbed.is_news(one.shard, one.model, one.age) is news
        # An erasure must find it in the base.
        assert found.knows(OTHERS)


def test_how_much_is_kept_by_lines_and_by_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    play(bench, 50)
    now, last = round(bench.now * 1e6), bench.reader.last()
    assert retention.due(bench.reader, Keep.parsed("all"), now=now) is None
    assert retention.due(bench.reader, Keep.parsed("40 lines"), now=now) == last - 40
    assert retention.due(bench.reader, Keep.parsed(f"{last - 1} lines"), now=now) is None
    upto = retention.due(bench.reader, Keep.parsed("10s"), now=now)
    assert upto is not None
    times = {line.seq: line.at for line in bench.reader.after(0)}
    assert times[upto] < now - 10_000_000 <= times[upto + 1]
    assert retention.due(bench.reader, Keep.parsed("49s"), now=now) is None
    retire(bench, upto)
    assert retention.due(bench.reader, Keep.parsed("10s"), now=now) is None
    bench.close()


@pytest.mark.parametrize(
    "text", ["90", "d", "ninety days", "-1d", "0 lines", "1e3 lines", "0s", "00 lines"]
)
def test_an_unclear_keep_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match='expected "all", a time'):
        Keep.parsed(text)


# --- snapshots and their journal ------------------------------------------------------------------


def test_snapshots_of_another_journal_are_reported_removed_and_never_mixed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Bench(tmp_path / "one"), Bench(tmp_path / "two")
    play(one, 20, people=2)
    one.save()
    play(two, 30, people=3)
    expected = bits(two.state, tmp_path)
    one.close()
    two.close()
    shutil.rmtree(tmp_path / "two" / SNAPSHOTS)
    shutil.copytree(tmp_path / "one" / SNAPSHOTS, tmp_path / "two" / SNAPSHOTS)
    two.open()
    assert bits(two.state, tmp_path) == expected
    assert "made from another journal" in two.snapshots.complaints[0]
    assert not list((tmp_path / "two" / SNAPSHOTS).iterdir())
    two.close()


def test_snapshots_of_a_copy_that_went_on_elsewhere_are_not_used(tmp_path: Path) -> None:
    """Both have the same id, and both are long enough."""
    (tmp_path / "one").mkdir()
    one = Bench(tmp_path / "one")
    play(one, 10)
    one.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one, two = Bench(tmp_path / "one"), Bench(tmp_path / "two")
    play(one, 10, first=10)
    one.save()
    two.now += 0.5
    play(two, 20, first=50)
    expected = bits(two.state, tmp_path)
    one.close()
    two.close()
    shutil.rmtree(tmp_path / "two" / SNAPSHOTS)
    shutil.copytree(tmp_path / "one" / SNAPSHOTS, tmp_path / "two" / SNAPSHOTS)
    two.open()
    assert bits(two.state, tmp_path) == expected
    assert "of its journal was another one" in two.snapshots.complaints[0]
    two.close()


def test_a_rebuild_resumes_from_the_newest_snapshot_before_the_users_first_line(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    play(bench, 20)
    bench.save()
    early = bench.state.total.seq
    bench.decide("late")
    play(bench, 20, first=20)
    bench.save()
    bench.erase("late")
    found = bench.snapshots.latest(bench.reader, exact=True)
    assert found is not None
    assert found.state.total.seq == early
    again = recover(bench.reader, bench.snapshots)
    assert bits(again.state, tmp_path) == bits(bench.replayed(), tmp_path)
    bench.erase("user-1")
    assert bench.snapshots.latest(bench.reader, exact=True) is None
    assert not list((tmp_path / SNAPSHOTS).iterdir())
    bench.close()


# --- tenants --------------------------------------------------------------------------------------


async def until(true: Callable[[], bool], seconds: float = 180.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def anywhere(folder: Path, name: bytes) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and name in file.read_bytes()]


def lines(served: Any) -> int:
    return len(served.files.reader.numbers(0, 2**62, most=10**6))


@pytest.mark.parametrize("policy", ["linucb", "atlas"])
def test_a_tenant_keeps_what_it_was_told_to_keep(tmp_path: Path, policy: str) -> None:
    async def go() -> None:
        rules = {"policy": policy, "options": OPTIONS[policy], "keep": "100 lines"}
        served = await started(tmp_path, **rules)
        for turn in range(6):
            await observe(served, f"u{turn % 3}", 60)
        await until(lambda: lines(served) <= 105 and served.files.reader.facts().dropped >= 255)
        expected = bits(served.state, tmp_path)
        assert served.state.total.rewards == 360
        await served.stop()
        shutil.rmtree(served.folder / SNAPSHOTS)
        served = await started(tmp_path, **rules)
        assert bits(served.state, tmp_path) == expected
        await observe(served, "new", 5)
        await served.stop()

    asyncio.run(go())


@pytest.mark.parametrize(("policy", "exact"), [("linucb", True), ("atlas", False)])
def test_a_user_in_the_base_is_erased_everywhere(tmp_path: Path, policy: str, exact: bool) -> None:
    async def go() -> None:
        rules = {"policy": policy, "options": OPTIONS[policy], "keep": "100 lines"}
        served = await started(tmp_path, **rules)
        await observe(served, "anastasia", 60)
        await observe(served, "bob", 200)
        await until(lambda: served.files.reader.facts().dropped >= 150)
        await observe(served, "cleo", 3)
        assert (await served.erase("cleo")).exact
        told = await served.erase("anastasia")
        assert (told.exact, told.erased_records) == (exact, 0)
        # At once, or a moment later if the rebuild after cleo was reading.
        await until(lambda: not anywhere(served.folder, b"anastasia"))
        await rebuilt(served)
        assert list(served.state.users) == ["bob"]
        assert served.state.total.rewards == 200
        expected = bits(served.state, tmp_path)
        await served.stop()
        shutil.rmtree(served.folder / SNAPSHOTS)
        served = await started(tmp_path, **rules)
        assert bits(served.state, tmp_path) == expected
        if exact:
            fresh = served.rules.spec().make()
            for _ in range(200):
                fresh.learn("bob", [1.0, 0.0], 1.0)
            assert served.state.policy.decide("bob", ARMS) == fresh.decide("bob", ARMS)
        await served.stop()

    asyncio.run(go())


def test_a_kill_between_the_lines_and_the_base_of_an_erasure_is_completed_at_the_start(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        served = await started(tmp_path, keep="100 lines")
        await observe(served, "anastasia", 60)
        await observe(served, "bob", 200)
        await until(lambda: served.files.reader.facts().base >= 150)
        await until(lambda: served.files.reader.facts().dropped == served.files.reader.facts().base)
        mark = served.engine.erase("anastasia")
        served.files.journal.erase("anastasia", encode(mark), first=1)
        served.files.saved = served.state.total.seq
        await served.stop()
        rows = sqlite3.connect(served.folder / JOURNAL)
        assert rows.execute("SELECT user FROM erasing").fetchall() == [("anastasia",)]
        rows.close()
        served = await started(tmp_path, keep="100 lines")
        assert list(served.state.users) == ["bob"]
        assert served.state.policy.users == ("bob",)
        await served.stop()
        assert not anywhere(served.folder, b"anastasia")

    asyncio.run(go())


def test_snapshots_are_made_under_steady_erasures_and_used_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, none was made, not even by a stop, and the next start replayed everything."""

    async def go() -> None:
        served = await started(tmp_path, policy="atlas", options={})
        people = [f"u{i}" for i in range(12)]
        for user in people:
            await observe(served, user, 40)
        some = served.rebuild.replay_some

        async def interrupted(state: State) -> None:
            before = state.total.seq
            await some(state)
            if len(people) > 3 and state.total.seq - before > 50:
                await served.erase(people.pop())

        monkeypatch.setattr(served.rebuild, "replay_some", interrupted)
        written: list[int] = []
        write = served.snapshots.write

        def watched(state: State, *, epoch: int, built: int) -> None:
            write(state, epoch=epoch, built=built)
            written.append(epoch - built)

        monkeypatch.setattr(served.snapshots, "write", watched)
        await served.erase(people.pop())
        await until(lambda: len(people) == 3)
        assert written
        assert max(written) > 0

        async def held(state: State) -> None:
            await asyncio.Event().wait()

        # So that the stop comes while the last erasure is under way.
        monkeypatch.setattr(served.rebuild, "replay_some", held)
        await served.erase(people.pop())
        assert served.rebuilding
        await served.stop()
        monkeypatch.undo()
        served = tenant(tmp_path, policy="atlas", options={})
        await served.start(snapshot_every=1000)
        assert served.snapshots.used == served.state.total.seq
        assert set(served.state.users) == set(people)
        await rebuilt(served)
        fresh = State(served.rules.spec().make()).apply_all(served.files.reader.after(0))
        assert bits(served.state, tmp_path) == bits(fresh, tmp_path)
        await served.stop()

    asyncio.run(go())


@pytest.mark.parametrize("name", sorted(FORGETS_EXACTLY))
def test_policies_that_forget_exactly_decide_as_if_the_user_had_never_been(name: str) -> None:
    rng = np.random.default_rng(0)
    spec = PolicySpec(name, 3, {})
    policy, twin = spec.make(), spec.make()
    for turn in range(300):
        user, x = f"u{turn % 3}", rng.standard_normal(3)
        y = float(x[turn % 2] + 0.1 * rng.standard_normal())
        policy.learn(user, x, y)
        if user != "u1":
            twin.learn(user, x, y)
    policy.forget("u1")
    for user in ("u0", "u1", "u2", "new"):
        arms = rng.standard_normal((5, 3))
        mine, other = policy.decide(user, arms), twin.decide(user, arms)
        assert (mine.arm, mine.mean) == (other.arm, other.mean)
        # The estimated noise is a sum over users, in another order.
        assert mine.width == pytest.approx(other.width, rel=1e-12)


def test_requests_about_a_user_wait_while_the_base_is_rewritten_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in flight then: waiting for the disk alone would be a loop without an end."""

    async def go() -> None:
        served = await started(tmp_path, keep="100 lines")
        await observe(served, "ana", 60)
        await observe(served, "bob", 200)
        await until(lambda: served.files.reader.facts().base >= 150)
        read_base = bases.read_base

        def slowly(*told: Any) -> Any:
            time.sleep(0.3)
            return read_base(*told)

        monkeypatch.setattr(bases, "read_base", slowly)
        async with asyncio.timeout(20):
            first = asyncio.create_task(served.erase("ana"))
            await asyncio.sleep(0.1)
            again = asyncio.create_task(served.erase("ana"))
            await observe(served, "bob")
            assert not first.done()
            assert not again.done()
            with pytest.raises(Refusal, match="no such user"):
                await again
            assert first.done()
            # Once more, for somebody who comes back meanwhile: a repetition does not erase that.
            second = asyncio.create_task(served.erase("bob"))
            await asyncio.sleep(0.1)
            again = asyncio.create_task(served.erase("bob"))
            await served.observe(Observation("bob", [1.0, 0.0], 1.0))
            assert second.done()
            with pytest.raises(Refusal, match="no such user"):
                await again
        await rebuilt(served)
        assert list(served.state.users) == ["bob"]
        assert served.state.users["bob"].rewards == 1
        await served.stop()

    asyncio.run(go())
