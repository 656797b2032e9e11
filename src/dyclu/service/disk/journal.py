"""`Journal`: the durable list of lines, in SQLite (WAL mode, synchronous FULL, one writer).

Everything else the service knows follows from these lines. One connection in one thread appends
them in order, in batches; when `append` has returned, its lines survive kill -9 and a power cut.
Unique indexes ensure that no id is used twice and no decision is rewarded twice.

A batch is inserted as one JSON text by one statement: one call, one commit and one release of
Python's lock, however many lines there are. So the thread that serves is not delayed.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from dyclu.errors import FileError
from dyclu.service.engine.lines import Line, decode_body

LOG = logging.getLogger("dyclu.service")

FORMAT = 1
"""Version of the tables below."""

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
CREATE UNIQUE INDEX IF NOT EXISTS journal_end ON journal (of) WHERE kind = 'reward';
CREATE INDEX IF NOT EXISTS journal_activated ON journal (of) WHERE kind = 'activation';
CREATE INDEX IF NOT EXISTS journal_user ON journal (user) WHERE user IS NOT NULL;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

_APPEND = """
INSERT OR IGNORE INTO journal SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
  json_extract(value, '$[6]')
FROM json_each(?)
"""

_ERASE = (
    "DELETE FROM journal WHERE kind = '{kind}' AND of IN (SELECT seq FROM journal WHERE user = ?)"
)

_LINES = "SELECT seq, at, kind, ref, user, of, body FROM journal WHERE "


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts in the journal: dimension, secret, number of erasures (`epoch`), policy that serves."""

    dim: int
    secret: bytes
    epoch: int
    served: str


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
    [EventBody(x=[1.0, 0.5], value=0.7)]
    >>> journal.close()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = _connect(path)
        # Lines erased before a kill may still be in the write-ahead log.
        self.owes = True

    @classmethod
    def open(cls, path: Path, *, dim: int) -> Journal:
        """Open the journal at `path`, or begin one."""
        try:
            journal = cls(path)
            journal._begin(dim)
            journal.tidy()
        except sqlite3.DatabaseError as error:
            raise FileError(
                f"{path} cannot be used as a journal ({error}); name a folder on a disk with "
                "space that you may write to, or restore the file from a copy"
            ) from None
        with closing(journal.reader()) as reader:
            facts = reader.facts()
        if facts.dim != dim:
            raise FileError(
                f"{path} holds contexts of {facts.dim} features, the settings say dim = {dim}; "
                "set dim back, or begin a new journal in another folder"
            )
        return journal

    def _begin(self, dim: int) -> None:
        self._writer.executescript(f"BEGIN;{_TABLES}COMMIT;")
        facts = {"format": FORMAT, "dim": dim, "epoch": 0, "secret": secrets.token_hex(16)}
        self._writer.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", facts.items())

    def note_served(self, policy: str) -> None:
        """Store which policy serves, for a later `dyclu replay`."""
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES ('served', ?)", (policy,))

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

    def erase(self, user: str, mark: bytes) -> tuple[int, int]:
        """Delete all lines about a user, append the line `mark`; return how many went, and epoch.

        Deleted content is overwritten in the database. The write-ahead log is truncated at once, or
        by a later `tidy` if another process is reading the journal now.
        """
        with self._transaction():
            # Each kind has its own index; one statement for both would scan every line.
            ended = sum(
                self._writer.execute(_ERASE.format(kind=kind), (user,)).rowcount
                for kind in ("reward", "activation")
            )
            own = self._writer.execute("DELETE FROM journal WHERE user = ?", (user,)).rowcount
            epoch = self._writer.execute(
                "UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value"
            ).fetchone()[0]
            self._writer.execute(_APPEND, (f"[{mark.decode()}]",))
        self.owes = True
        self.tidy()
        return ended + own, int(epoch)

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
        """Return the number of the last line, 0 if there is none."""
        return int(
            self._connection.execute("SELECT ifnull(max(seq), 0) FROM journal").fetchone()[0]
        )

    def after(self, seq: int, *, upto: int | None = None) -> Iterator[Line]:
        """Yield the lines after number `seq` in order, up to and including `upto`."""
        while lines := self.chunk(seq, upto=upto):
            yield from lines
            seq = lines[-1].seq

    def chunk(self, seq: int, *, upto: int | None = None, most: int = CHUNK) -> list[Line]:
        """Return the first lines after number `seq`."""
        end = 2**62 if upto is None else upto
        return self._lines("seq > ? AND seq <= ? ORDER BY seq LIMIT ?", seq, end, most)

    def outcomes(self) -> Iterator[tuple[Line, Line | None]]:
        """Yield all decisions and events in order, with the reward of each decision if any."""
        for line in self.after(0):
            if line.kind == "decision":
                yield line, self.reward_of(line.seq)
            elif line.kind == "event":
                yield line, None

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id."""
        return next(iter(self._lines("ref = ? AND kind = ?", ref, kind)), None)

    def reward_of(self, seq: int) -> Line | None:
        """Return the reward of the decision with this number."""
        return next(iter(self._lines("of = ? AND kind = 'reward'", seq)), None)

    def _lines(self, where: str, *values: object) -> list[Line]:
        rows = self._connection.execute(_LINES + where, values).fetchall()
        return [
            Line(seq, at, kind, ref, user, of, decode_body(body))
            for seq, at, kind, ref, user, of, body in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


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
