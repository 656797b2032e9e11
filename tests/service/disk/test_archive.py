"""The archive: what left the journal is read along, and erased with it."""

from __future__ import annotations

import asyncio
import csv
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.errors import MissingExtra
from dyclu.service.disk import archive, bases, retention
from dyclu.service.disk.history import History
from dyclu.service.disk.snapshots import JOURNAL, make_base
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Limits
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.replay import replay
from dyclu.service.tools.sources import Source
from tests.service.bench import Bench, bits
from tests.service.disk.test_erasure import observe, rebuilt, started
from tests.service.disk.test_retention import anywhere, play, until


def retire(bench: Bench, upto: int, *, killed: bool = False) -> None:
    """Archive and retire lines, as a tenant does; or be killed when the archive is written."""
    facts = bench.reader.facts()
    with bases.drafts(bench.folder) as files:
        bases.make(bench.reader, bench.folder, bench.rules.spec(), upto=upto, into=files)
        archive.write(bench.reader, bench.folder, after=facts.base, upto=upto)
        if killed:
            return
        pending = retention.pending_at(files)
        for write in bases.store(
            bench.journal, bench.reader, files, line=upto, archived=(facts.archive_start, upto)
        ):
            write()
        for write in retention.drop(bench.journal, bench.reader, pending):
            write()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Bench, Bench]:
    """The same history twice: in a journal, and in an archive and a journal."""
    found = []
    for name in ("whole", "archived"):
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name, reward_wait=40.0)
        play(bench, 40)
        bench.now += 90_000
        bench.expire()
        play(bench, 40, first=40)
        found.append(bench)
    whole, archived = found
    for upto in (30, 50, 110):
        retire(archived, upto)
    return whole, archived


def test_archive_and_journal_hold_every_line_once_in_order(pair: tuple[Bench, Bench]) -> None:
    whole, archived = pair
    assert len(archive.files(archived.folder)) == 4  # one retirement spans two days
    assert list(History(archived.reader).lines()) == list(whole.reader.after(0))
    spec = whole.rules.spec()
    fresh = State(spec.make()).apply_all(History(archived.reader).lines())
    assert bits(fresh, whole.folder) == bits(whole.state, whole.folder)


def test_export_and_replay_read_the_archive_along(pair: tuple[Bench, Bench]) -> None:
    texts, reports = [], []
    for bench in pair:
        out = bench.folder / "table.csv"
        done = CliRunner().invoke(app, ["export", str(bench.folder / JOURNAL), str(out)])
        assert done.exit_code == 0, done.output
        texts.append(out.read_text())
        spec = PolicySpec("linucb", 2, {"alpha": 0.1})
        reports.append(replay([Source(bench.reader)], bench.rules.spec(), spec).numbers())
    assert len(list(csv.reader(texts[0].splitlines()))) == 81
    assert texts[0] == texts[1]
    assert reports[0] == reports[1]


def test_another_policy_learns_from_archive_and_journal(pair: tuple[Bench, Bench]) -> None:
    whole, archived = pair
    expected = State(PolicySpec("atlas", 2, {}).make()).apply_all(whole.reader.after(0))
    archived.close()
    other = Bench(archived.folder, policy="atlas", options={}, reward_wait=40.0)
    assert bits(other.state, whole.folder) == bits(expected, whole.folder)
    other.close()


def test_files_of_a_retirement_that_was_killed_do_not_count(pair: tuple[Bench, Bench]) -> None:
    whole, archived = pair
    before = archive.files(archived.folder)
    retire(archived, 120, killed=True)
    (archived.folder / archive.ARCHIVE / ".2023-11-14.77").touch()
    assert len(archive.files(archived.folder)) > len(before)
    assert list(History(archived.reader).lines()) == list(whole.reader.after(0))
    archive.sweep(archived.folder, archived.reader.facts())
    assert archive.files(archived.folder) == before
    assert len(list((archived.folder / archive.ARCHIVE).iterdir())) == len(before)
    retire(archived, 115)
    assert list(History(archived.reader).lines()) == list(whole.reader.after(0))


def users_in(folder: Path) -> set[str]:
    files = [path for _, path in archive.files(folder)]
    return {user for path in files for user in pyarrow.parquet.read_table(path)["user"].to_pylist()}


def test_an_erasure_rewrites_the_archive_without_the_user(pair: tuple[Bench, Bench]) -> None:
    whole, archived = pair
    assert "user-1" in users_in(archived.folder)
    archive.forget(archived.folder, ["user-1"])
    whole.erase("user-1")
    left = [line for line in whole.reader.after(0) if line.seq <= 110]
    assert list(History(archived.reader).archived()) == left
    untouched = [path.stat().st_mtime_ns for _, path in archive.files(archived.folder)]
    archive.forget(archived.folder, ["nobody"])
    assert [p.stat().st_mtime_ns for _, p in archive.files(archived.folder)] == untouched


def test_a_tenant_archives_what_it_retires_and_erases_there_too(tmp_path: Path) -> None:
    async def go() -> None:
        rules: dict[str, Any] = {"keep": "100 lines", "archive": True}
        served = await started(tmp_path, **rules)
        await observe(served, "anastasia", 60)
        await observe(served, "bob", 200)
        await until(lambda: served.files.reader.facts().dropped >= 150)
        assert users_in(served.folder) == {"anastasia", "bob"}
        numbers = [line.seq for line in History(served.files.reader).lines()]
        assert numbers == list(range(1, 261))
        assert (await served.erase("anastasia")).exact
        assert users_in(served.folder) == {"bob"}
        # A reader may hold up the cleaning of unused space for a moment.
        await until(lambda: not anywhere(served.folder, b"anastasia"))
        await rebuilt(served)
        await served.stop()

    asyncio.run(go())


def test_a_user_who_was_pushed_out_is_erased_when_only_the_archive_knows_them(
    tmp_path: Path,
) -> None:
    async def go() -> None:
        rules: dict[str, Any] = {"keep": "100 lines", "archive": True}
        served = await started(tmp_path, **rules, limits=Limits(max_users=1))
        await observe(served, "anastasia", 60)
        await observe(served, "bob", 60)
        await until(lambda: "anastasia" not in served.state.users)
        await observe(served, "bob", 200)
        await until(lambda: served.files.reader.first_line("anastasia") is None)
        assert users_in(served.folder) >= {"anastasia", "bob"}
        assert (await served.erase("anastasia")).erased_records == 0
        assert "anastasia" not in users_in(served.folder)
        # A reader may hold up the cleaning of unused space for a moment.
        await until(lambda: not anywhere(served.folder, b"anastasia"))
        with pytest.raises(Refusal, match="no such user"):
            await served.erase("anastasia")
        await rebuilt(served)
        await served.stop()

    asyncio.run(go())


def test_lines_of_a_base_that_could_not_be_stored_are_archived_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after the archive was written; the next base stands for more lines."""

    async def go() -> None:
        served = await started(tmp_path, keep="100 lines", archive=True)
        put, failed = served.files.journal.put_part, list[int]()

        def full_once(*part: Any) -> None:
            if not failed:
                failed.append(1)
                raise sqlite3.OperationalError("database or disk is full")
            put(*part)

        async def at_once(upto: str, into: str, _: str) -> int:
            make_base(served.folder, served.files.spec, int(upto), Path(into), archived=True)
            return 0

        monkeypatch.setattr(served.files.journal, "put_part", full_once)
        monkeypatch.setattr(served.files, "run_process", at_once)
        await observe(served, "ana", 110)
        await until(lambda: bool(failed) and served.trouble is None)
        await observe(served, "ana", 90)
        await until(lambda: served.files.reader.facts().dropped >= 90)
        numbers = [line.seq for line in History(served.files.reader).lines()]
        assert numbers == list(range(1, 201))
        await served.stop()

    asyncio.run(go())


def test_a_stop_leaves_nothing_of_a_base_that_was_being_made(tmp_path: Path) -> None:
    """A user who was erased since may be in it."""

    async def go() -> None:
        served = await started(tmp_path, keep="1000 lines", archive=True)
        await observe(served, "bob", 10)
        draft = served.folder / bases.DRAFTS / "77-00" / "base.state"
        draft.parent.mkdir(parents=True)
        draft.write_bytes(b"anastasia")
        archive.write(served.files.reader, served.folder, after=0, upto=10)
        (served.folder / archive.ARCHIVE / ".2023-11-14.77").write_bytes(b"anastasia")
        await served.stop()
        assert not anywhere(served.folder, b"anastasia")
        assert not archive.files(served.folder)

    asyncio.run(go())


def test_an_archive_without_pyarrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[archive\]'"):
        archive.library()
