"""`Journal`: the durable list of lines, in SQLite (WAL mode, synchronous FULL, one writer).

Everything else the service knows follows from these lines. One connection in one thread appends
them in order, in batches; when `append` has returned, its lines survive kill -9 and a power cut.
Unique indexes ensure that no id is used twice and no decision is rewarded twice.

Old lines may have been replaced by a *base*: the state after some line, stored in parts (`bases`).

A batch is inserted as one JSON text by one statement: one call, one commit and one release of
Python's lock, however many lines there are. So the thread that serves is not delayed.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dyclu.data import Features
from dyclu.errors import FileError
from dyclu.service.disk.named import check_features, noted_features
from dyclu.service.disk.scrub import clear_gaps
from dyclu.service.engine.lines import About, Line, RewardBody, contexts_of, decode_body

LOG = logging.getLogger("dyclu.service")

FORMAT = 4
"""Version of the tables below and of the lines in them. Version 1 had no bases, version 2 one
reward per decision, version 3 did not say how the rewards of a decision are combined, nor what is
compared with which baseline. They are brought up to date when they are opened; lines stay as they
were written."""

PATIENCE = 5
"""Seconds for which a write waits for a lock that another process holds."""

CHUNK = 2000
"""Lines read at a time: a long read would delay the writer's checkpoints."""

_TABLES = """
CREATE TABLE IF NOT EXISTS journal (
  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, ref TEXT, user TEXT, of INTEGER,
  body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS journal_ref ON journal (ref, kind) WHERE ref IS NOT NULL;
DROP INDEX IF EXISTS journal_end;
CREATE UNIQUE INDEX IF NOT EXISTS journal_learnt
  ON journal (of, ifnull(json_extract(body, '$.slot'), 1)) WHERE kind = 'reward';
CREATE INDEX IF NOT EXISTS journal_arrived ON journal (of) WHERE kind = 'arrival';
CREATE INDEX IF NOT EXISTS journal_activated ON journal (of) WHERE kind = 'activation';
CREATE INDEX IF NOT EXISTS journal_user ON journal (user) WHERE user IS NOT NULL;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS base (
  generation INTEGER NOT NULL, file TEXT NOT NULL, part INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY (generation, file, part)
);
CREATE TABLE IF NOT EXISTS erased (epoch INTEGER PRIMARY KEY, first INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS erasing (user TEXT PRIMARY KEY, decisions TEXT NOT NULL) WITHOUT ROWID;
"""

ERASURES_KEPT = 10_000
"""Latest erasures of which the first line is stored; snapshots from before them are not used."""

_APPEND = """
INSERT OR IGNORE INTO journal SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
  json_extract(value, '$[6]')
FROM json_each(?)
"""

PARTS_UNTIL_TIDY = 16
"""Parts of a base after which the write-ahead log is moved into the database."""

_COUNTED = ("base", "generation", "archive_start", "archived", "dropped", "unclean")
_UNCLEAN = (
    "INSERT INTO meta VALUES ('unclean', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
)
_GENERATION = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'generation'"

_ERASE = (
    "DELETE FROM journal WHERE kind = '{kind}' AND of IN (SELECT seq FROM journal WHERE user = ?)"
)

_ROW = "SELECT seq, at, kind, ref, user, of, body FROM journal WHERE "
_ROWS = f"{_ROW}seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
_LINES = (
    "SELECT j.seq, j.at, j.kind, j.ref, j.user, j.of, j.body, d.user, d.body FROM journal AS j "
    "LEFT JOIN journal AS d ON j.kind = 'reward' AND d.seq = j.of WHERE "
)


Row = tuple[int, int, str, str | None, str | None, int | None, str]
"""Number, time, kind, id, user, number of the decision, and body of a line."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the journal stores about itself.

    Attributes
    ----------
    id : str
        Random name of the journal; snapshots store it.
    epoch : int
        Number of erasures.
    served : str
        Policy that serves, as JSON.
    features : str
        Features that made its vectors, as JSON; empty if callers sent vectors.
    base, generation : int
        Line that the base stands for, 0 if there is none, and the number of its parts' generation.
    archive_start, archived : int
        Lines after the first and up to the second number are in the archive.
    dropped : int
        Line of the base whose lines have all been deleted.
    unclean : int
        Not 0 if copies of erased lines may be in unused space (`scrub`); each erasure changes it.
    """

    dim: int
    secret: bytes
    epoch: int
    served: str
    features: str
    id: str
    base: int
    generation: int
    archive_start: int
    archived: int
    dropped: int
    unclean: int


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


@dataclass(frozen=True, slots=True)
class ErasedLines:
    """What an erasure removed: how many lines, which decisions; and the epoch that began.

    `first` is the number of the user's first line, 0 if it is not known.
    """

    lines: int
    decisions: list[int]
    epoch: int
    first: int


class Journal:
    """The only writer of a journal; all others use a `JournalReader`.

    Attributes
    ----------
    owes : bool
        Whether erased lines may still be in the write-ahead log; `tidy` removes them when it can.

    Examples
    --------
    >>> from dyclu.service.engine.lines import EventBody, encode
    >>> journal = Journal.open(Path("journal.db"), dim=2)
    >>> journal.append([encode(Line(1, 0, "event", "e1", "ana", None, EventBody([1.0, 0.5], 0.7)))])
    set()
    >>> [line.body for line in journal.reader().after(0)]
    [EventBody(x=[1.0, 0.5], value=0.7, at=None, propensity=None)]
    >>> journal.close()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = _connect(path)
        # Lines erased before a kill may still be in the write-ahead log.
        self.owes = True
        self._file: int | None = None

    @classmethod
    def open(cls, path: Path, *, dim: int, features: Features | None = None) -> Journal:
        """Open the journal at `path`, or begin one; refuse it if it holds other vectors."""
        with _unusable(path):
            journal = cls(path)
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
        self._writer.executescript(f"BEGIN;{_TABLES}COMMIT;")
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

    def note_served(self, policy: str) -> None:
        """Store which policy serves, for a later `dyclu replay`."""
        self.note("served", policy)

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

    def _left_out(self, text: str) -> set[int]:
        rows = self._writer.execute(
            "SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[3]') AS id, "
            "(SELECT ref FROM journal WHERE seq = json_extract(value, '$[0]')) AS kept, "
            "EXISTS (SELECT 1 FROM journal WHERE seq = json_extract(value, '$[0]')) AS there "
            "FROM json_each(?)",
            (text,),
        )
        return {number for number, id, kept, there in rows if not there or id != kept}

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

    def _transaction(self) -> _Transaction:
        return _Transaction(self._writer)

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
        self._writer = _connect(self.path)
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


class _Transaction:
    """A transaction that is rolled back by any exception."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class JournalReader:
    """Reads a journal, beside its writer or without one; never writes, never checkpoints."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileError(f"there is no journal at {path}; name the journal.db of a tenant")
        self.path = path
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )

    def facts(self) -> Facts:
        """Return the facts that the journal stores about itself."""
        try:
            meta = dict(self._connection.execute("SELECT name, value FROM meta"))
            facts = Facts(
                int(meta["dim"]),
                bytes.fromhex(meta["secret"]),
                int(meta["epoch"]),
                meta.get("served", ""),
                meta.get("features", ""),
                meta.get("id", ""),
                *(int(meta.get(name, 0)) for name in _COUNTED),
            )
            version = int(meta["format"])
        except (sqlite3.DatabaseError, LookupError, ValueError) as error:
            raise FileError(f"{self.path} is not a journal of dyclu ({error})") from None
        if version > FORMAT:
            raise FileError(
                f"{self.path} has format {version}, this dyclu reads format {FORMAT}; "
                "install the dyclu that wrote it"
            )
        return facts

    def last(self) -> int:
        """Return the number of the last line, that of the base if there is none after it."""
        last = self._connection.execute("SELECT ifnull(max(seq), 0) FROM journal").fetchone()[0]
        return max(int(last), self.facts().base)

    def time_of(self, seq: int) -> int | None:
        """Return the time of a line, None if there is no such line."""
        row = self._connection.execute("SELECT at FROM journal WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else int(row[0])

    def last_before(self, at: int) -> int:
        """Return the number of the last line that is older than time `at`; 0 if there is none."""
        low, high = 0, self.last()
        # Times never decrease, so the line is found by bisection.
        while low < high:
            middle = (low + high + 1) // 2
            row = self._connection.execute(
                "SELECT seq, at FROM journal WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (middle,)
            ).fetchone()
            if row is None or row[1] < at:
                low = middle
            else:
                high = row[0] - 1
        return low

    def first_line(self, user: str) -> int | None:
        """Return the number of the first line about a user, None if there is none."""
        row = self._connection.execute("SELECT min(seq) FROM journal WHERE user = ?", (user,))
        return row.fetchone()[0]  # type: ignore[no-any-return]

    def free_of_erased(self, epoch: int) -> int:
        """Return the number of the line up to which states made in `epoch` hold nobody erased."""
        count, first = self._connection.execute(
            "SELECT count(*), min(first) FROM erased WHERE epoch > ?", (epoch,)
        ).fetchone()
        since = self.facts().epoch - epoch
        if count != since:
            return -1
        return 2**62 if first is None else int(first) - 1

    def being_erased(self) -> list[tuple[str, list[int]]]:
        """Return users whose erasure was begun and not ended, with numbers of their decisions."""
        rows = self._connection.execute("SELECT user, decisions FROM erasing")
        return [(user, json.loads(decisions)) for user, decisions in rows]

    def parts(self, generation: int, file: str) -> Iterator[bytes]:
        """Yield the parts of one file of a base, in order."""
        for part in itertools.count():
            row = self._connection.execute(
                "SELECT bytes FROM base WHERE generation = ? AND file = ? AND part = ?",
                (generation, file, part),
            ).fetchone()
            if row is None:
                return
            yield row[0]

    def numbers(self, after: int, upto: int, *, most: int = CHUNK) -> list[int]:
        """Return the numbers of the first lines after `after`, up to and including `upto`."""
        rows = self._connection.execute(
            "SELECT seq FROM journal WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, upto, most),
        )
        return [seq for (seq,) in rows]

    def owners(self, after: int, upto: int, *, most: int = CHUNK) -> list[tuple[int, int]]:
        """Return the numbers of the first lines after `after`, and whom each is kept for.

        What has arrived is kept for its decision, every other line for itself.
        """
        return self._connection.execute(
            "SELECT seq, CASE kind WHEN 'arrival' THEN of ELSE seq END FROM journal "
            "WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, upto, most),
        ).fetchall()

    def after(self, seq: int, *, upto: int | None = None) -> Iterator[Line]:
        """Yield the lines after number `seq` in order, up to and including `upto`."""
        while lines := self.chunk(seq, upto=upto):
            yield from lines
            seq = lines[-1].seq

    def chunk(self, seq: int, *, upto: int | None = None, most: int = CHUNK) -> list[Line]:
        """Return the first lines after number `seq`."""
        end = 2**62 if upto is None else upto
        return self._lines("j.seq > ? AND j.seq <= ? ORDER BY j.seq LIMIT ?", seq, end, most)

    def rows(self, after: int, *, upto: int) -> Iterator[Row]:
        """Yield the rows of lines as they are stored."""
        while rows := self._connection.execute(_ROWS, (after, upto, CHUNK)).fetchall():
            yield from rows
            after = rows[-1][0]

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id."""
        return self._one("ref = ? AND kind = ?", ref, kind)

    def decisions(self, seqs: Sequence[int]) -> dict[int, Line]:
        """Return the decisions with these numbers, by number."""
        if not seqs:
            return {}
        chosen = "seq IN (SELECT value FROM json_each(?)) AND kind = 'decision'"
        rows = self._connection.execute(_ROW + chosen, (json.dumps(list(seqs)),)).fetchall()
        return {row[0]: line_of(*row) for row in rows}

    def rewards_of(self, seq: int) -> dict[int, Line]:
        """Return the rewards of the decision with this number, by slot."""
        rows = self._connection.execute(f"{_ROW}of = ? AND kind = 'reward'", (seq,)).fetchall()
        return by_slot(line_of(*row) for row in rows)

    def arrivals(self, seqs: Sequence[int]) -> dict[int, list[Line]]:
        """Return what has arrived for the decisions with these numbers, in order."""
        if not seqs:
            return {}
        chosen = "of IN (SELECT value FROM json_each(?)) AND kind = 'arrival' ORDER BY seq"
        found: dict[int, list[Line]] = {}
        for row in self._connection.execute(_ROW + chosen, (json.dumps(list(seqs)),)).fetchall():
            found.setdefault(row[5], []).append(line_of(*row))
        return found

    def _one(self, where: str, *values: object) -> Line | None:
        """Return a line that is not a reward, or a reward without what it is about."""
        row = self._connection.execute(_ROW + where, values).fetchone()
        return None if row is None else line_of(*row)

    def _lines(self, where: str, *values: object) -> list[Line]:
        rows = self._connection.execute(_LINES + where, values).fetchall()
        return [line_of(*row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def line_of(
    seq: int,
    at: int,
    kind: str,
    ref: str | None,
    user: str | None,
    of: int | None,
    body: str,
    whose: str | None = None,
    decision: str | None = None,
) -> Line:
    """Return the line of a row, joined with user and body of the decision if it is a reward."""
    told = decode_body(body)
    about = None
    if decision is not None and isinstance(told, RewardBody):
        about = About(whose or "", contexts_of(decision)[told.slot - 1])
    return Line(seq, at, kind, ref, user, of, told, about)


def by_slot(rewards: Iterable[Line]) -> dict[int, Line]:
    """Return rewards of one decision by their slots."""
    return {line.body.slot: line for line in rewards if isinstance(line.body, RewardBody)}


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=PATIENCE
    )
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        # Checkpoints are ours to make: one that fails inside a commit would look like its failure.
        "wal_autocheckpoint = 0",
        "secure_delete = ON",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchone()
    return connection
