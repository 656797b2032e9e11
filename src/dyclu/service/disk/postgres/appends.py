"""`Appends`: lines of all partitions of a process, written together (group commit).

One thread writes. While it waits for the database, the lines of all partitions queue up; the next
statement writes all of them, in one transaction. It locks the rows of their partitions and checks
each claim: a claim that is void gets nothing written.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dyclu.service.disk.journal import StoreError

if TYPE_CHECKING:
    from dyclu.service.disk.postgres.database import Claim

MOST = 4_000_000
"""Bytes of lines that are written together, unless those of one partition are more."""

APART = 0.008
"""Seconds between the beginnings of two statements, at least. A statement costs much more CPU time,
here and in the database, than a line in it: so more lines share one."""

COLUMNS = '(tenant, partition, seq, at, kind, ref, "user", of, slot, body)'

VALUES = (
    "(e->>0)::bigint, (e->>1)::bigint, e->>2, e->>3, e->>4, (e->>5)::bigint, "
    "coalesce((e->6->>'slot')::integer, 1), (e->6)::text"
)
"""The columns after `partition`, from the JSON array ``e`` of a line."""

_APPEND = f"""
WITH wanted AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(wanted)s::json) AS w(
    n integer, tenant text, partition integer, epoch bigint, owner text, first bigint, lines json)
), mine AS MATERIALIZED (
  SELECT w.* FROM dyclu.partition AS p JOIN wanted AS w
    ON p.tenant = w.tenant AND p.partition = w.partition AND p.epoch = w.epoch AND p.owner = w.owner
    FOR UPDATE OF p {{locked}}
), used AS MATERIALIZED (
  SELECT m.n FROM mine AS m WHERE EXISTS (
    SELECT 1 FROM dyclu.journal AS j
      WHERE j.tenant = m.tenant AND j.partition = m.partition AND j.seq >= m.first)
), written AS (
  INSERT INTO dyclu.journal {COLUMNS}
    SELECT m.tenant, m.partition, {VALUES} FROM mine AS m, json_array_elements(m.lines) AS e
      WHERE m.n NOT IN (SELECT n FROM used)
    ON CONFLICT DO NOTHING RETURNING tenant, partition, seq
)
SELECT m.n, m.n IN (SELECT n FROM used),
  ARRAY(SELECT seq FROM written AS x WHERE x.tenant = m.tenant AND x.partition = m.partition)
  FROM mine AS m
"""
_WITHOUT_WAITING = _APPEND.format(locked="SKIP LOCKED")
_WAITING = _APPEND.format(locked="")
"""One statement is one transaction: a process that stops in the middle leaves none open.

It writes nothing for a partition if a line has one of the numbers already: that line was written by
somebody else, or by a transaction whose end we did not see. Two claims to one partition may meet in
a statement, if a process has lost it and taken it over again: only the valid one gets its lines.
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


NOT_HELD = Written(held=False, used=False, numbers=[])


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """Lines that a claim wants to append, and who waits for what becomes of them."""

    claim: Claim
    lines: bytes
    first: int
    waiter: asyncio.Future[Written | None] | None = None

    def text(self, number: int) -> str:
        """The lines and the claim as JSON, numbered."""
        claim = json.dumps({**self.claim.named, "first": self.first, "n": number})
        return f'{claim[:-1]}, "lines": [{self.lines.decode()}]}}'


class Appends:
    """Writes what the partitions of a process want to append, as much as possible at a time."""

    def __init__(self, connection: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "dyclu-appends")
        self._waiting: deque[_Wanted] = deque()
        self._busy = False
        self._began = 0.0

    def append(self, claim: Claim, lines: Sequence[bytes], first: int) -> Written:
        """Append encoded lines, the lowest number of which is `first`; by themselves.

        On return they are in the database. It waits for a transaction that has locked the row of
        the partition.
        """
        (found,) = self._write([_Wanted(claim, b",".join(lines), first)], _WAITING)
        return found or NOT_HELD

    def append_soon(
        self, claim: Claim, lines: Sequence[bytes], first: int
    ) -> asyncio.Future[Written | None]:
        """Append encoded lines together with those of other partitions; from the event loop.

        When the result is there, they are in the database. It is None if nothing was written,
        because the claim is void or another transaction has locked the row of the partition.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Written | None] = loop.create_future()
        self._waiting.append(_Wanted(claim, b",".join(lines), first, waiter))
        if not self._busy:
            self._busy = True
            # Not at once: what others submit in the same turn of the loop is written with it.
            loop.call_soon(self._begin_apart)
        return waiter

    def close(self) -> None:
        """End the thread; nothing may be waiting."""
        self._thread.shutdown()

    def _begin_apart(self) -> None:
        """Write what waits, but not sooner after the last statement than `APART`."""
        asyncio.get_running_loop().call_at(self._began + APART, self._begin)

    def _begin(self) -> None:
        """Write all that wait, or as many as fit."""
        group = self._next_group()
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        work = loop.run_in_executor(self._thread, self._write, group, _WITHOUT_WAITING)
        work.add_done_callback(partial(self._done, group))

    def _next_group(self) -> list[_Wanted]:
        group = [self._waiting.popleft()]
        size = len(group[0].lines)
        while self._waiting and (size := size + len(self._waiting[0].lines)) <= MOST:
            group.append(self._waiting.popleft())
        return group

    def _done(
        self, group: Sequence[_Wanted], work: asyncio.Future[Sequence[Written | None]]
    ) -> None:
        """Tell everybody in a group what became of their lines, and write the next ones."""
        self._busy = bool(self._waiting)
        if self._busy:
            self._begin_apart()
        error = work.exception()
        found = [None] * len(group) if error is not None else work.result()
        for one, written in zip(group, found, strict=True):
            if one.waiter is None or one.waiter.done():
                continue
            if error is None:
                one.waiter.set_result(written)
            else:
                one.waiter.set_exception(StoreError(str(error)))

    def _write(self, group: Sequence[_Wanted], statement: str) -> list[Written | None]:
        """Return what was written, in order; None for claims that are void or kept from it."""
        wanted = f"[{','.join(one.text(number) for number, one in enumerate(group))}]"
        with self._connection() as connection:
            rows = connection.execute(statement, {"wanted": wanted}).fetchall()
        found = {number: Written(True, *rest) for number, *rest in rows}
        return [found.get(number) for number in range(len(group))]
