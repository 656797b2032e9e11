"""`History`: all lines there are: those of the archive, then those of the journal."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from dyclu.service.disk import archive
from dyclu.service.disk.journal import JournalReader, Row, line_of
from dyclu.service.engine.in_flight import decisions_changed_by
from dyclu.service.engine.lines import About, DecisionBody, Line


class History:
    """Reads a tenant's lines, the archived ones included.

    Attributes
    ----------
    start : int
        Lines up to this number are neither in the archive nor in the journal.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader, self._tenant = reader, reader.path.parent
        self._facts = reader.facts()
        complete = self._facts.archived == self._facts.base
        self.start = self._facts.archive_start if complete else self._facts.base
        self._archived = complete and self._facts.archived > 0

    def lines(self) -> Iterator[Line]:
        """Yield all lines in order; rewards say what they are about."""
        yield from self.archived()
        # Without an archive, decisions that were pending at the base are still in the journal.
        yield from self._reader.after(self._facts.base if self._archived else 0)

    def archived(self) -> Iterator[Line]:
        """Yield the archived lines in order."""
        made: dict[int, About] = {}
        for row in self._rows():
            line = line_of(*row)
            if isinstance(line.body, DecisionBody):
                made[line.seq] = About(line.user or "", line.body.x)
            elif line.kind == "reward":
                line = replace(line, about=made.get(line.of or 0))
            if line.kind != "activation":
                for seq in decisions_changed_by(line):
                    made.pop(seq, None)
            yield line

    def outcomes(self) -> Iterator[tuple[Line, Line | None]]:
        """Yield all decisions and events in order, with the reward of each decision if any."""
        with tempfile.TemporaryDirectory() as folder:
            rewards = _Rewards(Path(folder))
            rewards.fill(row for row in self._rows() if row[2] == "reward")
            for line in self.lines():
                if line.kind == "decision":
                    yield line, rewards.of(line.seq) or self._reader.reward_of(line.seq)
                elif line.kind == "event":
                    yield line, None
            rewards.close()

    def _rows(self) -> Iterator[Row]:
        return archive.rows(self._tenant, self._facts) if self._archived else iter(())


class _Rewards:
    """Archived rewards by decision, on disk: there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._rows = sqlite3.connect(folder / "rewards.db", isolation_level=None)
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE reward (of INTEGER PRIMARY KEY, seq, at, body)")

    def fill(self, rows: Iterator[Row]) -> None:
        """Add rewards."""
        self._rows.execute("BEGIN")
        self._rows.executemany(
            "INSERT OR IGNORE INTO reward VALUES (?, ?, ?, ?)",
            ((of, seq, at, body) for seq, at, _, _, _, of, body in rows),
        )
        self._rows.execute("COMMIT")

    def of(self, seq: int) -> Line | None:
        """Return the reward of a decision, if it is archived."""
        with closing(self._rows.execute("SELECT * FROM reward WHERE of = ?", (seq,))) as found:
            row = found.fetchone()
        return (
            None if row is None else line_of(row[1], row[2], "reward", None, None, row[0], row[3])
        )

    def close(self) -> None:
        """Close the file."""
        self._rows.close()
