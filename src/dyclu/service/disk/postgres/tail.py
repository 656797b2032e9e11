"""`Tail`: the latest lines of a partition, which its copy does not have yet.

To copy each line by itself would cost an owner as much CPU time as all the rest of a write, so some
are copied together: when they are many, or old, or when something is to be read that may be among
them. All of them are in the database already.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from dyclu.service.disk.sqlite.reader import line_of
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.lines import Line

MOST = 16
"""Lines that wait to be copied. A rebuild reads the last `rebuild.FEW`, which are more, from the
event loop, so it never waits for them."""

LATE = 0.25
"""Seconds after which lines are copied."""

_Head = tuple[int, int, str, str | None, str | None, int | None, msgspec.Raw]
_decode = msgspec.json.Decoder(_Head).decode


class Tail:
    """Lines that wait to be copied; used from the event loop only.

    It is empty whenever a thread works on the journal.
    """

    def __init__(self, copy: SqliteJournal) -> None:
        self._copy = copy
        self._lines: list[bytes] = []
        self._by_ref: dict[tuple[str, str], _Head] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.failed = False

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines that the database has."""
        for line in lines:
            self._lines.append(line)
            head = _decode(line)
            if head[3] is not None:
                self._by_ref[head[3], head[2]] = head
        if len(self._lines) >= MOST:
            self._flush_late()
        elif self._timer is None and self._lines:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._flush_late)

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id, if it is here."""
        head = self._by_ref.get((ref, kind))
        return None if head is None else line_of(*head[:-1], bytes(head[-1]).decode())

    def flush(self) -> None:
        """Copy all lines; raises `sqlite3.Error` if that fails, and until `filled`."""
        if self.failed:
            raise sqlite3.OperationalError("the copy of the journal lacks lines; it is filled")
        if not self._lines:
            return
        self._cancel()
        # If it fails they stay: what is looked up by its id must be found.
        self.failed = True
        if self._copy.append(self._lines):
            raise sqlite3.OperationalError("the copy of the journal has other lines; it is filled")
        self.filled()

    def filled(self) -> None:
        """Forget the lines: the copy has them."""
        self._lines, self._by_ref = [], {}
        self.failed = False

    def close(self) -> None:
        """Copy nothing any more."""
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_late(self) -> None:
        # Also if the copy fails: lines that come later need a timer.
        self._cancel()
        # The next write, or whoever reads, finds out that it failed.
        with suppress(sqlite3.Error):
            self.flush()
