"""Erased means erased: SQLite leaves copies of entries in its pages when it moves them."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dyclu.service.disk.sqlite import scrub
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.lines import ErasureBody, EventBody, encode, make_line
from tests.service.disk.test_erasure import observe, started
from tests.service.disk.test_retention import until
from tests.service.test_tenant import killed


class Book:
    """A journal with many users, some of whom are erased, and lines that are dropped."""

    def __init__(self, path: Path, *, seed: int) -> None:
        self.journal, self.rng = SqliteJournal.open(path, dim=2), random.Random(seed)
        self.seq = self.people = 0
        self.there: list[str] = []
        self.erased: list[str] = []

    def write(self, rounds: int) -> None:
        for _ in range(rounds):
            if self.rng.random() < 0.1 or len(self.there) < 8:
                self.people += 1
                self.there.append(f"c{self.rng.randrange(6)}-user-{self.people:06d}")
            users = [self.rng.choice(self.there) for _ in range(self.rng.randrange(1, 30))]
            self.journal.append([self._event(user) for user in users])
            if self.rng.random() < 0.1:
                self.journal.drop_lines(range(self.seq - 1000))
            if self.rng.random() < 0.1:
                self.erase(self.there.pop(self.rng.randrange(len(self.there))))

    def _event(self, user: str) -> bytes:
        self.seq += 1
        x = [self.rng.random() for _ in range(self.rng.randrange(2, 9))]
        return encode(make_line(self.seq, 0, EventBody(x, 1.0), ref=f"e{self.seq}", user=user))

    def erase(self, user: str) -> None:
        self.seq += 1
        self.journal.erase(user, encode(make_line(self.seq, 0, ErasureBody())))
        self.journal.end_erasure(user)
        self.erased.append(user)

    def left(self) -> list[str]:
        self.journal.owes = True
        self.journal.tidy()
        content = self.journal.path.read_bytes()
        return [user for user in self.erased if user.encode() in content]

    def clean(self) -> None:
        page: int | None = 0
        while page is not None:
            page = self.journal.clean(page) or None


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path / "journal.db", seed=1)
    yield made
    made.journal.close()


def whole(path: Path) -> bool:
    lines = sqlite3.connect(path)
    found = lines.execute("PRAGMA integrity_check").fetchone()[0]
    lines.close()
    return bool(found == "ok")


def test_names_of_erased_users_do_not_stay_in_unused_space_of_pages(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "AT_ONCE", 7)
    left = 0
    for _ in range(40):
        book.write(30)
        left += len(book.left())
        book.clean()
        assert not book.left()
        lines = list(book.journal.reader().after(0))
        assert lines[-1].seq == book.seq
    # Without `clean`, some had stayed.
    assert left
    assert whole(book.journal.path)


def test_what_was_cleared_is_not_written_again_from_memory(book: Book) -> None:
    """Pages that the writer holds in memory are those from before."""
    while not book.left():
        book.write(30)
    book.clean()
    for user in book.there:
        book.journal.append([book._event(user) for _ in range(20)])
    assert not book.left()


def test_a_reader_in_the_way_is_noticed_and_cleaning_begins_again_later(book: Book) -> None:
    book.write(30)
    other = sqlite3.connect(book.journal.path)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM journal").fetchone()
    book.write(1)
    assert book.journal.clean(0) is None
    other.close()
    assert book.journal.clean(0) == 0


def test_an_erasure_cleans_and_a_kill_before_that_is_made_good_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        served = await started(tmp_path)
        await observe(served, "ana", 50)
        await observe(served, "bea", 50)
        await served.erase("ana")
        # At once, or a second later if the rebuild was reading.
        await until(lambda: served.files.reader.facts().unclean == 0)
        monkeypatch.setattr(SqliteJournal, "clean", lambda *_: None)
        await served.erase("bea")
        assert served.files.reader.facts().unclean
        await killed(served)
        monkeypatch.undo()
        served = await started(tmp_path)
        assert served.files.reader.facts().unclean == 0
        await served.stop()

    asyncio.run(go())
