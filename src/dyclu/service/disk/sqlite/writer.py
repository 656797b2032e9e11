"""`SqliteJournal`: a journal in SQLite (WAL mode, synchronous FULL, one writer).

One connection in one thread appends lines in order, in batches. Unique indexes ensure that no id is
used twice and no decision is rewarded twice.

A batch is inserted as one JSON text by one statement: one call, one commit and one release of
Python's lock, however many lines there are. So the thread that serves is not delayed.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from dyclu.data import Features
from dyclu.errors import FileError
from dyclu.service.disk.journal import ErasedLines, InThread, Journal
from dyclu.service.disk.named import check_features, noted_features
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.disk.sqlite.scrub import clear_gaps
from dyclu.service.disk.sqlite.tables import FORMAT, PATIENCE, TABLES, Transaction, connect
from dyclu.service.engine.lines import OTHERS

LOG = logging.getLogger("dyclu.service")

ERASURES_KEPT = 10_000
"""Latest erasures of which the first line is stored; snapshots from before them are not used."""

_APPEND = """
INSERT OR IGNORE INTO journal SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
  json_extract(value, '$[6]')
FROM json_each(?)
"""

DROPPED_UNTIL_TIDY = 2000
"""Deleted lines after which the write-ahead log is moved into the database. Each touches pages of
several indexes: a million lines would make a log of some gigabytes."""

PARTS_UNTIL_TIDY = 16
"""Parts of a base after which the write-ahead log is moved into the database."""

_UNCLEAN = (
    "INSERT INTO meta VALUES ('unclean', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
)
_PEOPLE = "INSERT OR REPLACE INTO meta VALUES ('people', ?)"
_GENERATION = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'generation'"

_ERASE = (
    "DELETE FROM journal WHERE kind = '{kind}' AND of IN (SELECT seq FROM journal WHERE user = ?)"
)


@contextmanager
def _unusable(path: Path) -> Iterator[None]:
    """Raise a `FileError` that says what to do if the journal cannot be used."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise FileError(
            f"{path} cannot be used as a journal ({error}); name a folder on a disk with "
            "space that you may write to, or restore the file from a copy"
        ) from None


class SqliteJournal(Journal):
    """The only writer of a journal in SQLite; erased lines may be in its write-ahead log (`owes`).

    Examples
    --------
    >>> from dyclu.service.engine.lines import EventBody, Line, encode
    >>> journal = SqliteJournal.open(Path("journal.db"), dim=2)
    >>> journal.append([encode(Line(1, 0, "event", "e1", "ana", None, EventBody([1.0, 0.5], 0.7)))])
    set()
    >>> [line.body for line in journal.reader().after(0)]
    [EventBody(x=[1.0, 0.5], value=0.7, at=None, propensity=None)]
    >>> journal.close()
    """

    owes: bool = True
    """Lines erased before a kill may still be in the write-ahead log."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path, self._durable = path, durable
        self._writer = connect(path, durable=durable)
        self._file: int | None = None
        self._dropped = 0

    @classmethod
    def open(
        cls, path: Path, *, dim: int, features: Features | None = None, durable: bool = True
    ) -> SqliteJournal:
        """Open the journal at `path`, or begin one; refuse it if it holds other vectors.

        One that is not `durable` is a copy, which is thrown away when its process ends.
        """
        with _unusable(path):
            journal = cls(path, durable=durable)
            journal._begin(dim)
            journal.tidy()
        with closing(journal.reader()) as reader:
            facts = reader.facts()
        check_features(path, facts.features, features)
        if facts.dim != dim:
            raise FileError(
                f"{path} holds contexts of {facts.dim} features, the settings say dim = {dim}; "
                "set dim back, or begin a new journal in another folder"
            )
        if features is not None and (told := noted_features(features)) != facts.features:
            with _unusable(path):
                journal.note("features", told)
        return journal

    def _begin(self, dim: int) -> None:
        self._writer.executescript(f"BEGIN;{TABLES}COMMIT;")
        facts = {
            "format": FORMAT, "dim": dim, "epoch": 0, "secret": secrets.token_hex(16),
            "id": secrets.token_hex(16), "base": 0, "generation": 0,
            "archive_start": 0, "archived": 0,
        }  # fmt: skip
        with self._transaction():
            self._writer.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", facts.items())
            self._writer.execute(
                "UPDATE meta SET value = ? WHERE name = 'format' AND value + 0 < ?",
                (FORMAT, FORMAT),
            )
            # Parts that a process had stored when it was killed.
            self._writer.execute(f"DELETE FROM base WHERE generation != ({_GENERATION})")

    def note(self, name: str, fact: str) -> None:
        """Store a fact about the journal."""
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, fact))

    def append(self, lines: Sequence[bytes]) -> set[int]:
        """Write encoded lines; on return they are on the disk.

        A line whose id is taken, or whose decision has ended, is left out. The numbers of such
        lines are returned; all others are written, or, if the disk refuses, none.
        """
        text = f"[{b','.join(lines).decode()}]"
        written = self._writer.execute(_APPEND, (text,)).rowcount
        return self._left_out(text) if written < len(lines) else set()

    async def append_soon(self, lines: Sequence[bytes], in_thread: InThread) -> set[int]:
        """Append them in the thread: the event loop must not wait for the disk."""
        return set(await in_thread(partial(self.append, lines)))

    def flush(self) -> None:
        """Do nothing: what was appended is in the file."""

    def _left_out(self, text: str) -> set[int]:
        rows = self._writer.execute(
            "SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[3]') AS id, "
            "(SELECT ref FROM journal WHERE seq = json_extract(value, '$[0]')) AS kept, "
            "EXISTS (SELECT 1 FROM journal WHERE seq = json_extract(value, '$[0]')) AS there "
            "FROM json_each(?)",
            (text,),
        )
        return {number for number, id, kept, there in rows if not there or id != kept}

    def taken_elsewhere(self, id: str, kind: str) -> bool:
        """Return False: there is one partition."""
        return False

    def erase(self, user: str, mark: bytes, *, first: int | None = None) -> ErasedLines:
        """Delete all lines about a user, and append the line `mark`.

        `first` is the number of the user's first line if it is known. The user's name is noted
        until `end_erasure`: what else is stored about them has to be removed too.

        Deleted content is overwritten in the database; copies of it that SQLite made before, by
        `clean`. The write-ahead log is truncated at once, or by a later `tidy` if another process
        is reading the journal now.
        """
        with self._transaction():
            decisions = self._numbers("SELECT seq FROM journal WHERE user = ?", user, "decision")
            first = self._first_line(user, first)
            # Each kind has its own index; one statement for both would scan every line.
            ended = sum(
                self._writer.execute(_ERASE.format(kind=kind), (user,)).rowcount
                for kind in ("reward", "arrival", "activation")
            )
            own = self._writer.execute("DELETE FROM journal WHERE user = ?", (user,)).rowcount
            epoch = self._begin_epoch(first)
            if user != OTHERS:
                self._writer.execute(_PEOPLE, (epoch,))
            self._writer.execute(
                "INSERT OR REPLACE INTO erasing VALUES (?, ?)", (user, json.dumps(decisions))
            )
            self._writer.execute(_UNCLEAN)
            self._writer.execute(_APPEND, (f"[{mark.decode()}]",))
        self.owes = True
        self.tidy()
        return ErasedLines(ended + own, decisions, epoch, first)

    def _numbers(self, select: str, user: str, kind: str) -> list[int]:
        rows = self._writer.execute(f"{select} AND kind = ? ORDER BY seq", (user, kind))
        return [seq for (seq,) in rows]

    def _first_line(self, user: str, known: int | None) -> int:
        """Return the number of the first line about a user; 0 if lines before it may have been."""
        if self._numbers("SELECT seq FROM journal WHERE user = ?", user, "eviction"):
            return 0
        found = self._writer.execute(
            "SELECT min(seq) FROM journal WHERE user = ?", (user,)
        ).fetchone()[0]
        return min((seq for seq in (found, known) if seq is not None), default=0)

    def _begin_epoch(self, first: int) -> int:
        epoch = self._writer.execute(
            "UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value"
        ).fetchone()[0]
        self._writer.execute("INSERT INTO erased VALUES (?, ?)", (epoch, first))
        self._writer.execute("DELETE FROM erased WHERE epoch <= ?", (int(epoch) - ERASURES_KEPT,))
        return int(epoch)

    def end_erasure(self, user: str) -> None:
        """Remove the note of a user's name: nothing about them is stored any more."""
        with self._transaction():
            self._writer.execute("DELETE FROM erasing WHERE user = ?", (user,))
            self._writer.execute(_UNCLEAN)
        self.owes = True
        self.tidy()

    def clean(self, first: int) -> int | None:
        """Overwrite copies of erased lines in some pages, from number `first` (from 0) on.

        Returns the number of the page to go on with, 0 if this was the last one; None if a process
        that reads the journal is in the way, or if the disk is: then begin again later.
        """
        try:
            _, logged, moved = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if logged != moved:
                return None  # pages in the log would be moved over those that are cleared
            if self._file is None:
                # It is not closed before the journal is: that would end SQLite's locks on it.
                self._file = os.open(self.path, os.O_RDWR)
            (size,) = self._writer.execute("PRAGMA page_size").fetchone()
            following = clear_gaps(self._file, first, size=size)
            # Pages in memory as they were before would be written again.
            self._writer.execute("PRAGMA shrink_memory").fetchone()
        except (sqlite3.Error, OSError) as error:
            LOG.warning("erased lines are not yet overwritten in %s (%s)", self.path, error)
            return None
        return following

    def note_clean(self, unclean: int) -> None:
        """Store that all pages are clean, if nobody was erased since `unclean` was read."""
        self._writer.execute(
            "DELETE FROM meta WHERE name = 'unclean' AND CAST(value AS INTEGER) = ?", (unclean,)
        )
        self.owes = True
        self.tidy()

    def put_part(self, generation: int, file: str, part: int, content: bytes) -> None:
        """Store a part of a base that is not in force yet."""
        self._writer.execute(
            "INSERT OR REPLACE INTO base VALUES (?, ?, ?, ?)", (generation, file, part, content)
        )
        if part % PARTS_UNTIL_TIDY == PARTS_UNTIL_TIDY - 1:
            self.tidy()

    def put_in_force(
        self,
        generation: int,
        line: int,
        *,
        epoch: int | None = None,
        archived: tuple[int, int] | None = None,
    ) -> bool:
        """Let the stored base stand for the lines up to `line`; return whether it does.

        It does not if `epoch`, in which the base was made, is over: somebody in it was erased.
        `archived` are the lines in the archive: after the first and up to the second number.
        """
        with self._transaction():
            now = self._writer.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0]
            if epoch is not None and int(now) != epoch:
                return False
            facts = [("base", line), ("generation", generation)]
            if archived is not None:
                facts += [("archive_start", archived[0]), ("archived", archived[1])]
            self._writer.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts)
        return True

    def drop_parts(self) -> bool:
        """Delete some parts of bases that are not in force; return whether any was left."""
        gone = self._writer.execute(
            f"DELETE FROM base WHERE rowid IN (SELECT rowid FROM base "
            f"WHERE generation != ({_GENERATION}) LIMIT {PARTS_UNTIL_TIDY})"
        ).rowcount
        self.owes = True
        self.tidy()
        return bool(gone)

    def note_dropped(self, line: int) -> None:
        """Store that all lines that the base for `line` stands for have been deleted."""
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES ('dropped', ?)", (line,))

    def drop_lines(self, seqs: Sequence[int]) -> None:
        """Delete lines that the base stands for."""
        self._writer.execute(
            "DELETE FROM journal WHERE seq IN (SELECT value FROM json_each(?))",
            (json.dumps(list(seqs)),),
        )
        self._dropped += len(seqs)
        if self._dropped >= DROPPED_UNTIL_TIDY:
            self._dropped = 0
            self.tidy()

    def _transaction(self) -> Transaction:
        return Transaction(self._writer)

    def sharing(self, snapshots: Path) -> Iterator[Callable[[], object]]:
        """Yield nothing: the snapshots stay beside the journal."""
        yield from ()

    def tidy(self) -> None:
        """Move the write-ahead log into the database, as far as readers allow; never wait for one.

        Erased lines stay in the log until it is truncated, and a reader prevents that. SQLite would
        wait for the reader, and all writes with it; so it does not wait, and `owes` says that
        `tidy` must be called again.
        """
        # If it fails, committed lines stay in the log; the next append reports a failing disk.
        with suppress(sqlite3.Error):
            if self.owes:
                self.owes = not self._truncate_log()
            else:
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _truncate_log(self) -> bool:
        """Empty the write-ahead log; return whether that was possible."""
        self._writer.execute("PRAGMA busy_timeout = 0").fetchone()
        try:
            busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            self._writer.execute(f"PRAGMA busy_timeout = {1000 * PATIENCE}").fetchone()
        return not busy

    def reopen(self) -> None:
        """Take up writing, with a fresh connection; raises if the disk takes nothing."""
        self._writer.close()
        self._writer = connect(self.path, durable=self._durable)
        with self._transaction():
            # A real write: a full or read-only disk is found out here.
            self._writer.execute("UPDATE meta SET value = value WHERE name = 'format'")
            self._writer.execute("CREATE TABLE probe (filler BLOB)")
            self._writer.execute("INSERT INTO probe VALUES (zeroblob(65536))")
            self._writer.execute("DROP TABLE probe")

    def reader(self) -> JournalReader:
        """Return a connection for reading."""
        return JournalReader(self.path)

    def close(self) -> None:
        """Move everything into the database file, as far as readers allow, and close it."""
        owed, self.owes = self.owes, True
        self.tidy()
        if owed and self.owes:
            LOG.warning(
                "a process reads %s: erased lines stay in its write-ahead log until the next "
                "start; end that process, or start the service again",
                self.path,
            )
        self._writer.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None
