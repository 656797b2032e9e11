"""`History`: all lines there are: those of the archive, then those of the journal."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from dyclu.service.disk import archive
from dyclu.service.disk.journal import Row
from dyclu.service.disk.sqlite.reader import JournalReader, by_slot, line_of
from dyclu.service.engine.lines import (
    About,
    ActivationBody,
    DecisionBody,
    ExpiryBody,
    Line,
    RewardBody,
)

ENDS = ("reward", "activation")
"""Kinds of lines that say what came of a decision."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision or event, and what came of it.

    Attributes
    ----------
    line : Line
        The decision or event.
    rewards : dict of int to Line
        Rewards of a decision, by slot.
    until : int or None
        When the time of a decision is over; None if it was never active, and for an event.
    """

    line: Line
    rewards: dict[int, Line]
    until: int | None


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

    def outcomes(self) -> Iterator[Outcome]:
        """Yield all decisions and events in order, and what came of them."""
        with tempfile.TemporaryDirectory() as folder, closing(_Ends(Path(folder))) as ends:
            ends.fill(row for row in self._rows() if row[2] in ENDS)
            for line in self.lines():
                if line.kind == "event":
                    yield Outcome(line, {}, None)
                elif isinstance(line.body, DecisionBody):
                    found = [*ends.of(line.seq), *self._reader.ends_of(line.seq)]
                    yield Outcome(line, by_slot(found), _until(line.body, found))

    def _rows(self) -> Iterator[Row]:
        return archive.rows(self._tenant, self._facts) if self._archived else iter(())


def _until(made: DecisionBody, ends: list[Line]) -> int | None:
    """Return when the time of a decision is over; its activation changes that."""
    begun = [line.body.until for line in ends if isinstance(line.body, ActivationBody)]
    return begun[0] if begun else made.until if made.active else None


class _Ends:
    """Archived lines that end decisions, on disk: there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._rows = sqlite3.connect(folder / "ends.db", isolation_level=None)
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE ends (seq INTEGER, at, kind, ref, user, of INTEGER, body)")

    def fill(self, rows: Iterator[Row]) -> None:
        """Add lines."""
        self._rows.execute("BEGIN")
        self._rows.executemany("INSERT INTO ends VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._rows.execute("CREATE INDEX ends_of ON ends (of)")
        self._rows.execute("COMMIT")

    def of(self, seq: int) -> list[Line]:
        """Return the archived lines that end a decision, in order."""
        chosen = "SELECT * FROM ends WHERE of = ? ORDER BY seq"
        with closing(self._rows.execute(chosen, (seq,))) as found:
            return [line_of(*row) for row in found]

    def close(self) -> None:
        """Close the file."""
        self._rows.close()
