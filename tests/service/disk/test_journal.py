"""`dyclu.service.disk.journal` and `snapshot`: what survives, and what is said of what does not."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu.errors import FileError
from dyclu.service.disk import provenance as maker
from dyclu.service.disk.provenance import made_by
from dyclu.service.disk.snapshots import JOURNAL, ORPHANED, SNAPSHOTS, Snapshots, take
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.lines import ErasureBody, EventBody, Line, decode_body, encode, make_line
from dyclu.service.engine.state import State
from dyclu.storage import Saved, read, write
from tests.service.bench import Bench, bits


def event(seq: int, *x: float, user: str = "ana") -> Line:
    return make_line(seq, seq, EventBody(list(x), 0.5), ref=f"e{seq}", user=user)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_read_back_as_the_same_doubles(x: list[float]) -> None:
    connection = sqlite3.connect(":memory:")
    written = encode(event(1, *x)).decode()
    body = connection.execute(
        "SELECT json_extract(value, '$[6]') FROM json_each(?)", (f"[{written}]",)
    ).fetchone()[0]
    read = decode_body(body)
    assert isinstance(read, EventBody)
    assert [value.hex() for value in read.x] == [value.hex() for value in x]


def test_lines_are_read_in_order_and_in_chunks(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    lines = [event(seq, seq / 3) for seq in range(1, 4001)]
    journal.append([encode(one) for one in lines])
    reader = journal.reader()
    assert list(reader.after(0)) == lines
    assert list(reader.after(10, upto=12)) == lines[10:12]
    assert reader.last() == 4000


def test_lines_whose_id_is_in_use_are_left_out_and_returned(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    assert journal.append([encode(event(1, 1.0))]) == set()
    again = make_line(3, 3, EventBody([2.0], 0.5), ref="e1", user="bea")
    assert journal.append([encode(event(2, 1.0)), encode(again), encode(event(4, 1.0))]) == {3}
    assert [one.seq for one in journal.reader().after(0)] == [1, 2, 4]


def test_a_full_disk_writes_no_line_and_reopens_once_there_is_space(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    pages = journal._writer.execute("PRAGMA page_count").fetchone()[0]
    journal._writer.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone()
    many = [encode(event(seq, 1.0, user=f"u{seq}" * 50)) for seq in range(1, 500)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.append(many)
    assert journal.reader().last() == 0
    journal.reopen()
    journal.append(many)
    assert journal.reader().last() == 499


@pytest.mark.parametrize("torn", [1, 100, 4096, 9000])
def test_a_truncated_log_loses_only_lines_that_were_not_acknowledged(
    tmp_path: Path, torn: int
) -> None:
    """A power cut in the middle of a write: the log ends anywhere, the commits before it stay."""
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    sizes = []
    for seq in range(1, 41):
        journal.append([encode(event(seq, 1.0))])
        sizes.append((tmp_path / "j.db-wal").stat().st_size)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("j.db", "j.db-wal"):
        shutil.copy(tmp_path / name, copy / name)
    log = copy / "j.db-wal"
    left = log.stat().st_size - torn
    log.write_bytes(log.read_bytes()[:left])
    after = SqliteJournal.open(copy / "j.db", dim=1)
    whole = sum(size <= left for size in sizes)
    assert [one.seq for one in after.reader().after(0)] == list(range(1, whole + 1))
    after.append([encode(event(whole + 1, 2.0))])


def test_an_erasure_scans_only_the_users_lines(tmp_path: Path) -> None:
    """Not at a journal of years: all writers wait meanwhile."""
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    asked: list[str] = []
    journal._writer.set_trace_callback(asked.append)
    mark = make_line(1, 0, ErasureBody())
    journal.erase("ana", encode(mark))
    deleting = [one for one in asked if one.startswith("DELETE")]
    assert len(deleting) == 5
    for statement in deleting:
        plan = journal._writer.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        assert not [step for *_, step in plan if step.startswith("SCAN")], statement
    journal.close()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Somebody copies the journal: they see it as it was when they began, until they end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM journal").fetchone()
        yield


def holding(folder: Path, name: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if file.is_file() and name in file.read_bytes()]


def test_an_erasure_does_not_wait_for_readers_and_is_complete_after_them(
    tmp_path: Path,
) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    journal.append([encode(event(1, 1.0, user="anastasia"))])
    with reading(tmp_path / "j.db"):
        began = time.monotonic()
        gone = journal.erase("anastasia", encode(make_line(2, 2, ErasureBody())))
        assert (gone.lines, gone.epoch) == (1, 1)
        journal.end_erasure("anastasia")
        journal.append([encode(event(3, 1.0))])
        journal.tidy()
        assert time.monotonic() - began < 2
        assert holding(tmp_path, b"anastasia")
        journal.append([encode(event(4, 1.0))])
    journal.tidy()
    assert not journal.owes
    assert not holding(tmp_path, b"anastasia")
    assert (tmp_path / "j.db-wal").stat().st_size == 0
    assert [one.seq for one in journal.reader().after(0)] == [2, 3, 4]


def test_a_stop_does_not_wait_for_readers_and_the_next_start_cleans_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    journal.append([encode(event(1, 1.0, user="anastasia"))])
    with reading(tmp_path / "j.db"):
        journal.erase("anastasia", encode(make_line(2, 2, ErasureBody())))
        journal.end_erasure("anastasia")
        began = time.monotonic()
        journal.close()
        assert time.monotonic() - began < 2
        assert "stay in its write-ahead log" in caplog.text
        again = SqliteJournal.open(tmp_path / "j.db", dim=1)
        assert again.owes
        assert holding(tmp_path, b"anastasia")
    again.tidy()
    assert not holding(tmp_path, b"anastasia")


def test_the_log_stays_small_while_many_lines_are_deleted(tmp_path: Path) -> None:
    """Users in any order, so that every slice of lines touches all of an index."""
    rng = np.random.default_rng(0)
    with closing(SqliteJournal.open(tmp_path / "journal.db", dim=10)) as journal:
        for first in range(1, 20_001, 1000):
            users = rng.integers(3000, size=1000)
            lines = [
                event(first + i, *rng.normal(size=10).tolist(), user=f"u{u}")
                for i, u in enumerate(users)
            ]
            journal.append([encode(line) for line in lines])
        journal.owes = True
        journal.tidy()
        longest = 0
        for first in range(1, 20_001, 250):
            journal.drop_lines(range(first, first + 250))
            longest = max(longest, (tmp_path / "journal.db-wal").stat().st_size)
    assert longest < 10e6


def test_a_closed_journal_is_one_file(tmp_path: Path) -> None:
    SqliteJournal.open(tmp_path / "j.db", dim=1).close()
    assert [file.name for file in tmp_path.iterdir()] == ["j.db"]


def test_a_journal_of_another_dimension_is_refused(tmp_path: Path) -> None:
    SqliteJournal.open(tmp_path / "j.db", dim=3).close()
    with pytest.raises(FileError, match="3 features, the settings say dim = 4"):
        SqliteJournal.open(tmp_path / "j.db", dim=4)


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\x00" * 64])
def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j.db").write_bytes(content)
    with pytest.raises(FileError, match="cannot be used as a journal"):
        SqliteJournal.open(tmp_path / "j.db", dim=1)
    with pytest.raises(FileError, match="not a journal of dyclu"):
        JournalReader(tmp_path / "j.db").facts()


def test_a_missing_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no journal"):
        JournalReader(tmp_path / "j.db")


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "j.db", dim=1)
    journal._writer.execute("UPDATE meta SET value = 99 WHERE name = 'format'")
    with pytest.raises(FileError, match="format 99"):
        journal.reader().facts()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path, policy="dyclu", options={"noise": 0.1})
    for i in range(30):
        made.reward(made.decide(f"u{i % 3}").decision_id, (i % 3) / 2)
        if i in (10, 20):
            made.save()
    return made


def snapshot_files(bench: Bench, suffix: str) -> list[Path]:
    return sorted((bench.folder / SNAPSHOTS).glob(f"*.{suffix}"))


def test_a_start_uses_the_latest_snapshot(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [int(file.stem[9:]) for file in snapshot_files(bench, "state")] == [22, 42]
    started: list[int] = []
    after = JournalReader.after

    def watched(self: JournalReader, seq: int, **more: Any) -> Any:
        started.append(seq)
        return after(self, seq, **more)

    monkeypatch.setattr(JournalReader, "after", watched)
    bench.restart()
    assert started == [42]
    assert not bench.snapshots.complaints


@pytest.mark.parametrize("suffix", ["state", "policy"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone"])
def test_a_damaged_snapshot_is_reported_and_the_one_before_is_used(
    bench: Bench, suffix: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = bits(bench.state, bench.folder)
    latest = snapshot_files(bench, suffix)[-1]
    content = latest.read_bytes()
    match damage:
        case "cut":
            latest.write_bytes(content[:-7])
        case "flip":
            latest.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
        case "empty":
            latest.write_bytes(b"")
        case _:
            latest.unlink()
    bench.restart()
    assert bits(bench.state, bench.folder) == before
    if (suffix, damage) != ("state", "gone"):
        assert len(bench.snapshots.complaints) == 1
        assert latest.stem in caplog.text


def test_without_a_snapshot_the_whole_journal_is_replayed(bench: Bench) -> None:
    before = bits(bench.state, bench.folder)
    shutil.rmtree(bench.folder / SNAPSHOTS)
    bench.restart()
    assert bits(bench.state, bench.folder) == before


def test_a_snapshot_of_another_policy_is_not_used(bench: Bench) -> None:
    bench.close()
    other = Bench(bench.folder, options={"alpha": 0.5})
    assert repr(other.state.policy).startswith("LinUCB")
    assert other.state.total.rewards == 30


@pytest.mark.parametrize("other", ["dyclu", "numpy", "numba", "machine", "source"])
def test_a_snapshot_of_another_version_is_reported_and_not_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, other: str
) -> None:
    before = bits(bench.state, bench.folder)
    monkeypatch.setattr(maker, "made_by", lambda name: {**made_by(name), other: "another"})
    replayed: list[int] = []
    after = JournalReader.after

    def watched(self: JournalReader, seq: int, **more: Any) -> Any:
        replayed.append(seq)
        return after(self, seq, **more)

    monkeypatch.setattr(JournalReader, "after", watched)
    bench.restart()
    assert replayed == [0]
    assert bits(bench.state, bench.folder) == before
    assert len(bench.snapshots.complaints) == 2
    assert f"made with {other} {made_by()[other]}, this is another" in caplog.text


def test_a_snapshot_without_versions_is_not_used(bench: Bench) -> None:
    for file in snapshot_files(bench, "state"):
        saved = read(file)
        write(file, Saved(saved.kind, {"spec": saved.options["spec"]}, saved.state, saved.arrays))
    bench.restart()
    assert "did not say what made it" in bench.snapshots.complaints[0]
    assert bench.snapshots.used == 0


def test_a_purge_in_an_old_epoch_keeps_snapshots_of_a_later_one(bench: Bench) -> None:
    """As a process that makes snapshots for a service that was killed."""
    late = Snapshots(bench.folder / SNAPSHOTS, bench.rules.spec(), bench.reader.facts().id)
    old = bench.replayed()
    bench.erase("u1")
    bench.save()
    names = {file.name for file in (bench.folder / SNAPSHOTS).iterdir()}
    late.write(old, epoch=0)
    assert names < {file.name for file in (bench.folder / SNAPSHOTS).iterdir()}
    bench.restart()
    assert "u1" not in bench.state.users
    assert not bench.snapshots.complaints


def test_a_snapshot_during_which_a_user_is_erased_is_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_it = Snapshots.write

    def overtaken(self: Snapshots, state: State, *, epoch: int, built: int) -> None:
        write_it(self, state, epoch=epoch, built=built)
        bench.journal.erase("u1", encode(make_line(bench.state.total.seq + 1, 0, ErasureBody())))

    monkeypatch.setattr(Snapshots, "write", overtaken)
    take(bench.folder, bench.rules.spec())
    assert not snapshot_files(bench, "state")
    assert not snapshot_files(bench, "policy")


def test_a_state_read_during_an_erasure_is_not_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the moment until it would remove itself: a kill could fall into it."""
    written: list[int] = []
    read_on = JournalReader.after

    def overtaken(self: JournalReader, seq: int, *, upto: int | None = None) -> Iterator[Line]:
        yield from read_on(self, seq, upto=upto)
        bench.journal.erase("u1", encode(make_line(bench.state.total.seq + 1, 0, ErasureBody())))

    monkeypatch.setattr(JournalReader, "after", overtaken)
    monkeypatch.setattr(Snapshots, "write", lambda *_, epoch, built: written.append(epoch))
    take(bench.folder, bench.rules.spec())
    assert written == []
    monkeypatch.setattr(JournalReader, "after", read_on)
    take(bench.folder, bench.rules.spec())
    # As long as the erasure is under way, the base may contain the user.
    assert written == []
    bench.journal.end_erasure("u1")
    take(bench.folder, bench.rules.spec())
    assert written == [1]


def test_a_snapshot_process_ends_when_its_service_ends(bench: Bench) -> None:
    before, spec = snapshot_files(bench, "state"), json.dumps(asdict(bench.rules.spec()))
    words = [sys.executable, "-m", "dyclu.service.disk.snapshots", str(bench.folder), spec]
    orphan = subprocess.run(words, stdin=subprocess.DEVNULL)
    assert orphan.returncode == ORPHANED
    assert snapshot_files(bench, "state") == before
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        assert child.wait(timeout=60) == 0
    assert int(snapshot_files(bench, "state")[-1].stem[9:]) == bench.state.total.seq


def test_a_journal_restored_from_an_old_copy_is_not_mixed_with_newer_snapshots(
    bench: Bench,
) -> None:
    bench.close()
    rows = sqlite3.connect(bench.folder / JOURNAL)
    rows.execute("DELETE FROM journal WHERE seq > 30")
    rows.commit()
    rows.close()
    bench.open()
    assert bench.state.total.seq == 30
    assert any("ahead of the journal" in one for one in bench.snapshots.complaints)
    assert bits(bench.state, bench.folder) == bits(bench.replayed(), bench.folder)


def test_a_snapshot_by_another_process_equals_one_by_the_service(bench: Bench) -> None:
    take(bench.folder, bench.rules.spec())
    assert int(snapshot_files(bench, "state")[-1].stem[9:]) == bench.state.total.seq
    made = bench.snapshots.latest(bench.reader)
    assert made is not None
    assert bits(made.state, bench.folder) == bits(bench.state, bench.folder)


def test_a_reward_that_cannot_be_learnt_does_not_stop_the_service(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    seq = bench.state.total.seq + 1
    wrong = make_line(
        seq, bench.state.total.at, EventBody([1.0, 2.0, 3.0], 1.0), ref="e", user="ana"
    )
    bench.write([wrong])
    bench.restart()
    assert bench.state.total.unlearnt == 1
    assert f"line {seq} of the journal could not be learnt" in caplog.text
    assert not bench.decide("ana").rank


def test_a_journal_of_the_first_format_is_brought_up_to_date(bench: Bench) -> None:
    bench.decide("ana", decision_id="waiting")
    before = bits(bench.state, bench.folder)
    bench.close()
    rows = sqlite3.connect(bench.folder / JOURNAL)
    for table in ("base", "erased", "erasing"):
        rows.execute(f"DROP TABLE {table}")
    rows.execute("DELETE FROM meta WHERE name NOT IN ('dim', 'epoch', 'secret', 'served')")
    rows.execute("INSERT INTO meta VALUES ('format', '1')")
    rows.commit()
    rows.close()
    bench.open()
    facts = bench.reader.facts()
    assert (len(facts.id), facts.base) == (32, 0)
    # Its snapshots do not say that they are of this journal.
    assert bench.snapshots.used == 0
    assert bits(bench.state, bench.folder) == before
    bench.reward("waiting", 0.5)
    bench.erase("u1")
    assert "u1" not in bench.state.users


def test_a_journal_whose_lines_do_not_say_how_rewards_are_combined_opens(tmp_path: Path) -> None:
    """Format 3 wrote `"settles": true`; the present setting says how."""
    bench = Bench(tmp_path, learn="settled", reward="sum", reward_wait=60.0)
    for id in ("old", "older"):
        bench.decide("ana", decision_id=id)
        bench.reward(id, 1.0, reward_id=f"first-of-{id}")
    before = bits(bench.state, tmp_path)
    bench.close()
    rows = sqlite3.connect(tmp_path / JOURNAL)
    changed = rows.execute(
        "UPDATE journal SET body = json_set(body, '$.settles', json('true')) "
        "WHERE json_extract(body, '$.settles') = 'sum'"
    ).rowcount
    rows.execute("UPDATE meta SET value = '3' WHERE name = 'format'")
    rows.commit()
    rows.close()
    assert changed == 2
    bench.open()
    assert bits(bench.state, tmp_path) == before
    assert bench.reward("old", 1.0, reward_id="first-of-old").repeated
    bench.reward("old", 2.0, reward_id="second-of-old")
    bench.now += 61
    bench.expire()
    learnt = [line.body.value for line in bench.reader.after(0) if line.kind == "reward"]  # type: ignore[union-attr]
    assert learnt == [3.0, 1.0]
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as rows:
        assert rows.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() == ("4",)
