"""`History`: all lines there are: those of the archive, then those of the journal."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from dyclu.service.disk import archive
from dyclu.service.disk.journal import Row
from dyclu.service.disk.sqlite.reader import JournalReader, by_slot, line_of
from dyclu.service.engine.lines import About, DecisionBody, ExpiryBody, Line, RewardBody


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
        made: dict[int, dict[int, About]] = {}
        for row in self._rows():
            line = line_of(*row)
            match line.body:
                case DecisionBody() as body:
                    slots = range(1, body.count + 1)
                    user = line.user or ""
                    made[line.seq] = {slot: About(user, body.slot(slot).x) for slot in slots}
                case RewardBody(slot=slot):
                    left = made.get(line.of or 0, {})
                    line = replace(line, about=left.pop(slot, None))
                    if not left:
                        made.pop(line.of or 0, None)
                case ExpiryBody(decisions=expired):
                    for seq in expired:
                        made.pop(seq, None)
            yield line

    def outcomes(self) -> Iterator[tuple[Line, dict[int, Line]]]:
        """Yield all decisions and events in order, with the rewards of each decision by slot."""
        with tempfile.TemporaryDirectory() as folder:
            rewards = _Rewards(Path(folder))
            rewards.fill(row for row in self._rows() if row[2] == "reward")
            for line in self.lines():
                if line.kind == "decision":
                    yield line, rewards.of(line.seq) | self._reader.rewards_of(line.seq)
                elif line.kind == "event":
                    yield line, {}
            rewards.close()

    def _rows(self) -> Iterator[Row]:
        return archive.rows(self._tenant, self._facts) if self._archived else iter(())


class _Rewards:
    """Archived rewards by decision, on disk: there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._rows = sqlite3.connect(folder / "rewards.db", isolation_level=None)
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE reward (of INTEGER, seq INTEGER, at, body)")

    def fill(self, rows: Iterator[Row]) -> None:
        """Add rewards."""
        self._rows.execute("BEGIN")
        self._rows.executemany(
            "INSERT INTO reward VALUES (?, ?, ?, ?)",
            ((of, seq, at, body) for seq, at, _, _, _, of, body in rows),
        )
        self._rows.execute("CREATE INDEX reward_of ON reward (of)")
        self._rows.execute("COMMIT")

    def of(self, seq: int) -> dict[int, Line]:
        """Return the rewards of a decision that are archived, by slot."""
        with closing(self._rows.execute("SELECT * FROM reward WHERE of = ?", (seq,))) as found:
            rows = found.fetchall()
        return by_slot(
            line_of(line, at, "reward", None, None, of, body) for of, line, at, body in rows
        )

    def close(self) -> None:
        """Close the file."""
        self._rows.close()
