"""`Tail`: lines that the database has are copied later, and are there when they are read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dyclu.service.cluster.leases import Leases
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres import tail as tails
from dyclu.service.disk.postgres.database import Database
from dyclu.service.disk.postgres.journal import FEW, PostgresJournal
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.disk.sqlite.tables import FORMAT
from dyclu.service.engine.lines import EventBody, Line, encode, make_line
from dyclu.service.tenant import rebuild


@pytest.fixture
def journal(store: str, tmp_path: Path) -> Iterator[PostgresJournal]:
    database = Database(store)
    database.begin()
    leases = Leases(database, "a", "a", lease=60.0)
    leases.set_up({"shop": 1})
    assert leases.register("http://nowhere")
    (claim,) = leases.claim(["shop"], 1)
    made = PostgresJournal.open(database, claim, tmp_path / "j.db", dim=2, features=None)
    yield made
    made.close()
    database.close()


def event(seq: int) -> Line:
    return make_line(seq, seq, EventBody([1.0, -0.1], 0.7), ref=f"e{seq}", user="ana")


async def in_thread(job: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(job)


def append(journal: PostgresJournal, *numbers: int) -> Awaitable[set[int]]:
    return journal.append_soon([encode(event(seq)) for seq in numbers], in_thread)


def in_file(journal: PostgresJournal) -> list[int]:
    with closing(JournalReader(journal.path)) as reader:
        return reader.numbers(0, 2**40)


def test_lines_are_found_by_their_id_before_they_are_copied(journal: PostgresJournal) -> None:
    async def ask() -> None:
        await append(journal, 1, 2)
        with closing(journal.reader()) as reader:
            assert reader.find("e2", "event") == event(2)
            assert reader.find("e3", "event") is None
            assert reader.find("e2", "decision") is None
            assert in_file(journal) == []

    asyncio.run(ask())


def test_all_other_reads_copy_them_first(journal: PostgresJournal) -> None:
    async def ask() -> None:
        await append(journal, 1, 2)
        with closing(journal.reader()) as reader:
            assert list(reader.after(0)) == [event(1), event(2)]
            assert reader.last() == 2
            assert reader.find("e2", "event") == event(2)
        assert in_file(journal) == [1, 2]

    asyncio.run(ask())


def test_many_lines_are_copied_at_once_and_few_after_a_while(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        for seq in range(1, tails.MOST):
            await append(journal, seq)
        assert in_file(journal) == []
        await append(journal, tails.MOST)
        assert len(in_file(journal)) == tails.MOST
        monkeypatch.setattr(tails, "LATE", 0.05)
        await append(journal, tails.MOST + 1)
        assert len(in_file(journal)) == tails.MOST
        await asyncio.sleep(0.2)
        assert len(in_file(journal)) == tails.MOST + 1
        batch = range(tails.MOST + 2, tails.MOST + 4 + FEW)
        await append(journal, *batch)
        assert in_file(journal)[-1] == batch[-1]

    asyncio.run(ask())


def test_if_the_copy_takes_nothing_lines_are_found_and_nothing_else_is_read_until_it_is_filled(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> set[int]:
        raise sqlite3.OperationalError("database or disk is full")

    async def ask() -> None:
        assert await append(journal, 1) == set()
        with monkeypatch.context() as failing, closing(journal.reader()) as reader:
            failing.setattr(journal._copy, "append", full)
            with pytest.raises(sqlite3.OperationalError, match="full"):
                reader.last()
            with pytest.raises(sqlite3.OperationalError, match="lacks lines"):
                reader.last()
            assert reader.find("e1", "event") == event(1)
            # No line changes a fact, so operators are told what there is to tell.
            assert (reader.facts().dim, reader.format()) == (2, FORMAT)
            with pytest.raises(StoreError, match="lacks lines"):
                await append(journal, 2)
        await asyncio.to_thread(journal.reopen)
        assert await append(journal, 2) == set()
        with closing(journal.reader()) as reader:
            assert reader.last() == 2

    asyncio.run(ask())


def test_after_the_copy_was_filled_lines_are_copied_after_a_while_again(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "LATE", 0.05)

    def full(_: object) -> set[int]:
        raise sqlite3.OperationalError("database or disk is full")

    async def ask() -> None:
        with monkeypatch.context() as failing:
            failing.setattr(journal._copy, "append", full)
            await append(journal, 1)
            # This write was begun before the copy failed, and ends after it.
            append_soon = journal._database.appends.append_soon

            async def slow(*told: Any) -> Any:
                await asyncio.sleep(0.1)
                return await append_soon(*told)

            failing.setattr(journal._database.appends, "append_soon", slow)
            await append(journal, 2)
            assert journal._tail.failed
            await asyncio.sleep(0.1)
        await asyncio.to_thread(journal.reopen)
        await append(journal, 3)
        await asyncio.sleep(0.2)
        assert in_file(journal) == [1, 2, 3]

    asyncio.run(ask())


def test_no_lines_are_written_by_no_statement(journal: PostgresJournal) -> None:
    async def ask() -> None:
        assert await append(journal) == set()

    asyncio.run(ask())


def test_a_rebuild_reads_what_may_wait_from_the_event_loop() -> None:
    assert tails.MOST <= rebuild.FEW
