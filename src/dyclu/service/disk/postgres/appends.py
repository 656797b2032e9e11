"""`Appends`: lines of all partitions of a process, written together (group commit).

Each partition has a thread that writes. While one of them waits for the database, the lines of the
others queue up; the next statement writes all of them, in one transaction. It locks the rows of
their partitions and checks each claim: a partition that has another owner gets nothing written.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dyclu.service.disk.journal import StoreError

if TYPE_CHECKING:
    from dyclu.service.disk.postgres.database import Claim

MOST = 4_000_000
"""Bytes of lines that are written together, unless those of one partition are more."""

COLUMNS = '(tenant, partition, seq, at, kind, ref, "user", of, slot, body)'

VALUES = (
    "(e->>0)::bigint, (e->>1)::bigint, e->>2, e->>3, e->>4, (e->>5)::bigint, "
    "coalesce((e->6->>'slot')::integer, 1), (e->6)::text"
)
"""The columns after `partition`, from the JSON array ``e`` of a line."""

_APPEND = f"""
WITH wanted AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(wanted)s::json) AS w(
    tenant text, partition integer, epoch bigint, owner text, first bigint, lines json)
), mine AS MATERIALIZED (
  SELECT p.tenant, p.partition FROM dyclu.partition AS p JOIN wanted AS w
    ON p.tenant = w.tenant AND p.partition = w.partition AND p.epoch = w.epoch AND p.owner = w.owner
    FOR UPDATE OF p {{locked}}
), used AS MATERIALIZED (
  SELECT w.tenant, w.partition FROM wanted AS w WHERE EXISTS (
    SELECT 1 FROM dyclu.journal AS j
      WHERE j.tenant = w.tenant AND j.partition = w.partition AND j.seq >= w.first)
), written AS (
  INSERT INTO dyclu.journal {COLUMNS}
    SELECT m.tenant, m.partition, {VALUES}
      FROM mine AS m JOIN wanted AS w USING (tenant, partition), json_array_elements(w.lines) AS e
      WHERE NOT EXISTS (
        SELECT 1 FROM used AS u WHERE u.tenant = m.tenant AND u.partition = m.partition)
    ON CONFLICT DO NOTHING RETURNING tenant, partition, seq
)
SELECT m.tenant, m.partition,
  EXISTS (SELECT 1 FROM used AS u WHERE u.tenant = m.tenant AND u.partition = m.partition),
  ARRAY(SELECT seq FROM written AS x WHERE x.tenant = m.tenant AND x.partition = m.partition)
  FROM mine AS m
"""
_WITHOUT_WAITING = _APPEND.format(locked="SKIP LOCKED")
_WAITING = _APPEND.format(locked="")
"""One statement is one transaction: a process that stops in the middle leaves none open.

It writes nothing for a partition if a line has one of the numbers already: that line was written by
somebody else, or by a transaction whose end we did not see.
"""


class Written(NamedTuple):
    """What became of a partition's lines.

    Attributes
    ----------
    held : bool
        Whether the claim holds; otherwise nothing was written.
    used : bool
        Whether the journal had one of the numbers, or a later one, already; then nothing was.
    numbers : list of int
        Numbers of the lines that were written; ids that are in use are left out.
    """

    held: bool
    used: bool
    numbers: list[int]


@dataclass(slots=True, eq=False)
class _Wanted:
    """Lines of a partition that wait, and what became of them."""

    claim: Claim
    lines: bytes
    first: int
    ready: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    written: Written | None = None
    error: Exception | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Tenant and partition."""
        return self.claim.tenant, self.claim.partition

    @property
    def text(self) -> str:
        """The lines and the claim as JSON."""
        claim = json.dumps({**self.claim.named, "first": self.first})
        return f'{claim[:-1]}, "lines": [{self.lines.decode()}]}}'


class Appends:
    """Writes what threads want to append, as much as possible at a time."""

    def __init__(self, connection: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._busy = False

    def append(self, claim: Claim, lines: Sequence[bytes], first: int) -> Written:
        """Append encoded lines to a partition, the lowest number of which is `first`.

        On return they are in the database. The thread that finds nobody writing writes for all that
        wait; at the end it lets the next one in the queue do so.
        """
        mine = _Wanted(claim, b",".join(lines), first)
        with self._lock:
            self._waiting.append(mine)
            leads, self._busy = not self._busy, True
        if not leads:
            mine.ready.wait()
        if not mine.done:
            self._lead()
        if mine.error is not None:
            raise StoreError(str(mine.error)) from mine.error
        if mine.written is None:
            # The claim is void, or another transaction has locked the row: only this thread waits.
            mine.written = self._write([mine], _WAITING).get(mine.place)
        return mine.written or Written(held=False, used=False, numbers=[])

    def _lead(self) -> None:
        """Write for all that wait, or as many as fit."""
        group = self._next_group()
        try:
            found = self._write(group, _WITHOUT_WAITING)
            for one in group:
                one.written = found.get(one.place)
        except Exception as error:
            for one in group:
                one.error = error
        finally:
            with self._lock:
                self._busy = bool(self._waiting)
                following = [*group, self._waiting[0]] if self._busy else group
            for one in group:
                one.done = True
            for one in following:
                one.ready.set()

    def _next_group(self) -> list[_Wanted]:
        with self._lock:
            group = [self._waiting.popleft()]
            size = len(group[0].lines)
            while self._waiting and (size := size + len(self._waiting[0].lines)) <= MOST:
                group.append(self._waiting.popleft())
        return group

    def _write(self, group: Sequence[_Wanted], statement: str) -> dict[tuple[str, int], Written]:
        """Return what was written, by partition; without those that were not held or locked."""
        wanted = f"[{','.join(one.text for one in group)}]"
        with self._connection() as connection:
            rows = connection.execute(statement, {"wanted": wanted}).fetchall()
        return {(tenant, number): Written(True, *rest) for tenant, number, *rest in rows}
