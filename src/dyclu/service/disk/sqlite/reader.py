"""`JournalReader`: reads a journal in SQLite, beside its writer or without one."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from dyclu.errors import FileError
from dyclu.service.disk.journal import Facts, Row
from dyclu.service.disk.sqlite.tables import FORMAT
from dyclu.service.engine.lines import About, Line, RewardBody, contexts_of, decode_body

CHUNK = 2000
"""Lines read at a time: a long read would delay the writer's checkpoints."""

_COUNTED = ("base", "generation", "archive_start", "archived", "dropped", "people", "unclean")
_ROW = "SELECT seq, at, kind, ref, user, of, body FROM journal WHERE "
_ROWS = f"{_ROW}seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
_LINES = (
    "SELECT j.seq, j.at, j.kind, j.ref, j.user, j.of, j.body, d.user, d.body FROM journal AS j "
    "LEFT JOIN journal AS d ON j.kind = 'reward' AND d.seq = j.of WHERE "
)


class Tail(Protocol):
    """The latest lines of a journal, which are not in the file yet."""

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id, if it is here."""
        ...

    def flush(self) -> None:
        """Write all lines to the file; raises `sqlite3.Error`."""
        ...


class JournalReader:
    """Reads a journal, beside its writer or without one; never writes, never checkpoints.

    If nobody else uses the journal (`alone`), no file is made beside it either, unless its writer
    was killed. Lines of a `tail`, which are not in the file yet, are there before anything is read.
    """

    def __init__(self, path: Path, *, alone: bool = False, tail: Tail | None = None) -> None:
        if not path.exists():
            raise FileError(f"there is no journal at {path}; name the journal.db of a tenant")
        self.path, self._tail = path, tail
        still = alone and not path.with_name(f"{path.name}-wal").exists()
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
        self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)

    def facts(self) -> Facts:
        """Return the facts that the journal stores about itself."""
        try:
            # No line changes a fact: they can be read if the latest lines cannot be copied.
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

    def copy_to(self, path: Path) -> None:
        """Write a copy of the journal as it is at one moment; its writer does not wait."""
        self.facts()  # says so if it is no journal
        try:
            with closing(sqlite3.connect(path)) as copy:
                # All pages at once: a copy in steps begins again with every commit of the writer.
                self._connection.backup(copy)
        except sqlite3.Error as error:
            raise FileError(
                f"{self.path} cannot be copied to {path} ({error}); see that the disk has room, or "
                "name a folder on another one in the variable TMPDIR"
            ) from None

    def format(self) -> int:
        """Return the version of the tables and of the lines in them."""
        found = self._connection.execute("SELECT value FROM meta WHERE name = 'format'")
        return int(found.fetchone()[0])

    def last(self) -> int:
        """Return the number of the last line, that of the base if there is none after it."""
        last = self._execute("SELECT ifnull(max(seq), 0) FROM journal").fetchone()[0]
        return max(int(last), self.facts().base)

    def time_of(self, seq: int) -> int | None:
        """Return the time of a line, None if there is no such line."""
        row = self._execute("SELECT at FROM journal WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else int(row[0])

    def last_before(self, at: int) -> int:
        """Return the number of the last line that is older than time `at`; 0 if there is none."""
        low, high = 0, self.last()
        # Times never decrease, so the line is found by bisection.
        while low < high:
            middle = (low + high + 1) // 2
            row = self._execute(
                "SELECT seq, at FROM journal WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (middle,)
            ).fetchone()
            if row is None or row[1] < at:
                low = middle
            else:
                high = row[0] - 1
        return low

    def first_line(self, user: str) -> int | None:
        """Return the number of the first line about a user, None if there is none."""
        row = self._execute("SELECT min(seq) FROM journal WHERE user = ?", (user,))
        return row.fetchone()[0]  # type: ignore[no-any-return]

    def free_of_erased(self, epoch: int) -> int:
        """Return the number of the line up to which states made in `epoch` hold nobody erased."""
        count, first = self._execute(
            "SELECT count(*), min(first) FROM erased WHERE epoch > ?", (epoch,)
        ).fetchone()
        since = self.facts().epoch - epoch
        if count != since:
            return -1
        return 2**62 if first is None else int(first) - 1

    def being_erased(self) -> list[tuple[str, list[int]]]:
        """Return users whose erasure was begun and not ended, with numbers of their decisions."""
        rows = self._execute("SELECT user, decisions FROM erasing")
        return [(user, json.loads(decisions)) for user, decisions in rows]

    def parts(self, generation: int, file: str) -> Iterator[bytes]:
        """Yield the parts of one file of a base, in order."""
        for part in itertools.count():
            row = self._execute(
                "SELECT bytes FROM base WHERE generation = ? AND file = ? AND part = ?",
                (generation, file, part),
            ).fetchone()
            if row is None:
                return
            yield row[0]

    def numbers(self, after: int, upto: int, *, most: int = CHUNK) -> list[int]:
        """Return the numbers of the first lines after `after`, up to and including `upto`."""
        rows = self._execute(
            "SELECT seq FROM journal WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (after, upto, most),
        )
        return [seq for (seq,) in rows]

    def owners(self, after: int, upto: int, *, most: int = CHUNK) -> list[tuple[int, int]]:
        """Return the numbers of the first lines after `after`, and whom each is kept for.

        What has arrived is kept for its decision, every other line for itself.
        """
        return self._execute(
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
        while rows := self._execute(_ROWS, (after, upto, CHUNK)).fetchall():
            yield from rows
            after = rows[-1][0]

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id."""
        if self._tail is not None and (found := self._tail.find(ref, kind)) is not None:
            return found
        row = self._connection.execute(f"{_ROW}ref = ? AND kind = ?", (ref, kind)).fetchone()
        return None if row is None else line_of(*row)

    def decisions(self, seqs: Sequence[int]) -> dict[int, Line]:
        """Return the decisions with these numbers, by number."""
        if not seqs:
            return {}
        chosen = "seq IN (SELECT value FROM json_each(?)) AND kind = 'decision'"
        rows = self._execute(_ROW + chosen, (json.dumps(list(seqs)),)).fetchall()
        return {row[0]: line_of(*row) for row in rows}

    def rewards_of(self, seq: int) -> dict[int, Line]:
        """Return the rewards of the decision with this number, by slot."""
        rows = self._execute(f"{_ROW}of = ? AND kind = 'reward'", (seq,)).fetchall()
        return by_slot(line_of(*row) for row in rows)

    def ends_of(self, seq: int) -> list[Line]:
        """Return the rewards and the activation of the decision with this number, in order."""
        chosen = f"{_ROW}of = ? AND kind IN ('reward', 'activation') ORDER BY seq"
        return [line_of(*row) for row in self._execute(chosen, (seq,)).fetchall()]

    def arrivals(self, seqs: Sequence[int]) -> dict[int, list[Line]]:
        """Return what has arrived for the decisions with these numbers, in order."""
        if not seqs:
            return {}
        chosen = "of IN (SELECT value FROM json_each(?)) AND kind = 'arrival' ORDER BY seq"
        found: dict[int, list[Line]] = {}
        for row in self._execute(_ROW + chosen, (json.dumps(list(seqs)),)).fetchall():
            found.setdefault(row[5], []).append(line_of(*row))
        return found

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if self._tail is not None:
            self._tail.flush()
        return self._connection.execute(statement, values)

    def _lines(self, where: str, *values: object) -> list[Line]:
        rows = self._execute(_LINES + where, values).fetchall()
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
