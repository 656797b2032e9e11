"""`Committer`: writes lines to the journal in batches (group commit).

While a batch is written (in a thread), the event loop accepts more requests; their lines are the
next batch. An answer is sent when its batch is on disk, never before.

If the disk fails, all lines in flight fail, nothing is accepted, and the disk is tried again every
second until it can be written. Then lines are read back from the journal, because a commit that
reported an error may have been made.

If a line that is on disk cannot be applied, the state no longer follows from the journal. Then
nothing is answered and nothing accepted any more, until a new start computes the state again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dyclu.errors import FileError
from dyclu.service.disk.journal import Journal, StoreError
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.engine import Engine
from dyclu.service.engine.lines import Line, encode
from dyclu.service.refusal import Refusal

LOG = logging.getLogger("dyclu.service")

SLICE = 0.005
"""Seconds for which lines are applied before other requests get a turn."""

TIDY = 5000
"""Lines after which the write-ahead log, some 50 MB by then, is moved into the database.

All requests wait while this is done. Done more often it takes longer in total, since the same pages
are written again: at 3000 lines per second and every 1000 lines, 2 % of the requests had to wait
for it.
"""


@dataclass(slots=True)
class _Batch:
    """Lines that are written together, or one job."""

    lines: list[Line] = field(default_factory=list)
    waiters: list[asyncio.Future[Any]] = field(default_factory=list)
    job: Callable[[], Any] | None = None
    left_out: set[int] = field(default_factory=set)

    def settle(self, result: Any) -> None:
        """Give waiters that were not cancelled the job's result, or which lines were left out."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(self.left_out if self.job is None else result)

    def give_up(self, refusal: Refusal) -> None:
        """Give waiters that were not cancelled a refusal."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(refusal)
                # Read it, so that asyncio does not warn about one that nobody awaits.
                waiter.exception()


class Committer:
    """Writes an engine's lines to the journal; used from the event loop.

    Attributes
    ----------
    trouble : str or None
        Why nothing is accepted at present, or ever again.
    batches, batched : int
        Commits so far, and lines in them.
    applying : float
        Seconds that it took to apply lines so far; to replay them takes as long.
    """

    def __init__(
        self,
        journal: Journal,
        reader: JournalReader,
        engine: Engine,
        *,
        max_queue: int,
        served: str,
        retry: float = 1.0,
        healed: Callable[[], None] = lambda: None,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal, self._reader, self._engine = journal, reader, engine
        self._most, self._served, self._retry = max_queue, served, retry
        self._healed, self._broken = healed, broken
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "dyclu-writer")
        self._waiting: deque[_Batch] = deque()
        self._writing: _Batch | None = None
        self._healing: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._queued = self._since_tidy = 0
        self._over = False
        self.batches = self.batched = 0
        self.applying = 0.0
        self.trouble: str | None = None

    async def begin(self) -> None:
        """Find out whether the disk takes lines; if it does not, nothing is accepted until then."""
        try:
            await self._loop.run_in_executor(self._thread, self._open)
        except (sqlite3.Error, StoreError) as error:
            self._fail(_Batch(), error)

    def _open(self) -> None:
        self._journal.reopen()
        self._journal.note_served(self._served)

    @property
    def queued(self) -> int:
        """Lines that wait for the disk."""
        return self._queued

    def follow(self, max_queue: int) -> None:
        """Let so many lines wait from now on."""
        self._most = max_queue

    def check(self) -> None:
        """Refuse if nothing more can be taken now."""
        if self.trouble is not None:
            raise unavailable(self.trouble)
        if self._queued >= self._most:
            raise Refusal(
                429,
                "limit",
                f"{self._queued} records wait for the disk (limit max_queue); try again shortly",
                retry_after=1,
            )

    def submit(self, *lines: Line) -> asyncio.Future[Any]:
        """Return a future that is done when lines are on disk and have been applied.

        One commit writes all of them, or none. The result is the set of numbers of the batch's
        lines that the journal left out.
        """
        if self._over:
            return self._given_up(_Batch())
        if not self._waiting or self._waiting[-1].job is not None:
            self._waiting.append(_Batch())
        batch = self._waiting[-1]
        batch.lines += lines
        self._queued += len(lines)
        waiter = self._wait_for(batch)
        self._kick()
        return waiter

    def run(self, job: Callable[[], Any], line: Line) -> asyncio.Future[Any]:
        """Run a job in the writing thread, in its turn; the job writes this line itself."""
        return self._run(_Batch([line], job=job))

    def do(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a job in the writing thread, in its turn; it changes no line."""
        return self._run(_Batch(job=job))

    def _run(self, batch: _Batch) -> asyncio.Future[Any]:
        if self.trouble is not None:
            # It would wait for a disk that may never be well, and a stop with it.
            return self._given_up(batch)
        waiter = self._wait_for(batch)
        self._waiting.append(batch)
        self._queued += len(batch.lines)
        self._kick()
        return waiter

    def _wait_for(self, batch: _Batch) -> asyncio.Future[Any]:
        waiter = self._loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def _given_up(self, batch: _Batch) -> asyncio.Future[Any]:
        """Return a future that is refused already."""
        waiter = self._wait_for(batch)
        batch.give_up(unavailable(self.trouble or ""))
        return waiter

    @property
    def idle(self) -> bool:
        """Whether nothing is being written, or waits for that."""
        return self._writing is None and not self._waiting

    async def settled(self) -> None:
        """Wait until everything submitted so far is on disk; raises if writing failed."""
        last = self._waiting[-1] if self._waiting else self._writing
        if last is not None:
            await self._wait_for(last)

    def flush(self) -> None:
        """Write what waits to the file that is read; if it cannot be, begin to heal it.

        Otherwise reads would fail until the next write finds out.
        """
        if self.trouble is None and self.idle:
            try:
                self._journal.flush()
            except sqlite3.Error as error:
                self._fail(_Batch(), error)

    async def tidy(self) -> None:
        """Cut what was erased off the write-ahead log, if a reader was in the way before."""
        if self._journal.owes and self.trouble is None:
            await self.do(self._journal.tidy)

    async def stop(self) -> None:
        """Write what is waiting and end the thread."""
        try:
            while self._waiting or self._writing:
                await self.settled()
        except (Refusal, sqlite3.Error, StoreError):
            LOG.error("stopped with a disk that takes nothing; nothing acknowledged is lost")
        if self._healing is not None:
            self._healing.cancel()
        with suppress(sqlite3.Error):
            self._journal.flush()
        await self._loop.run_in_executor(None, self._thread.shutdown)

    def _kick(self) -> None:
        if self._writing is None and self._waiting and self.trouble is None:
            self._writing = self._waiting.popleft()
            self._working = self._loop.create_task(self._work(self._writing))

    async def _work(self, batch: _Batch) -> None:
        """Write a batch, and apply its lines; then write the next one."""
        try:
            result = await self._written(batch)
        except Exception as error:
            self._writing = None
            self._fail(batch, error)
            return
        try:
            await self._take_in(batch)
        except Exception as error:
            self._writing = None
            self._break(batch, error)
            return
        self._writing = None
        self._queued -= len(batch.lines)
        self.batches += bool(batch.lines)
        self.batched += len(batch.lines)
        batch.settle(result)
        self._tidy_now_and_then(len(batch.lines))
        self._kick()

    async def _written(self, batch: _Batch) -> Any:
        if batch.job is not None:
            self._journal.flush()
            return await self._in_thread(batch.job)
        lines = [encode(line) for line in batch.lines]
        batch.left_out = await self._journal.append_soon(lines, self._in_thread)
        return None

    def _in_thread(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        return self._loop.run_in_executor(self._thread, job)

    def _tidy_now_and_then(self, lines: int) -> None:
        if (since := self._since_tidy + lines) > TIDY:
            self.do(self._journal.tidy)
            since = 0
        self._since_tidy = since

    async def _take_in(self, batch: _Batch) -> None:
        """Apply lines that are on disk, a few at a time."""
        began = time.monotonic()
        for line in batch.lines:
            if line.seq in batch.left_out:
                self._engine.left_out([line])
            else:
                self._engine.committed([line])
            if (took := time.monotonic() - began) > SLICE:
                self.applying += took
                await asyncio.sleep(0)
                began = time.monotonic()
        self.applying += time.monotonic() - began

    def _break(self, batch: _Batch, error: Exception) -> None:
        """Accept nothing any more: the state no longer follows from the journal."""
        self._over = True
        # Strangers may read it (/readyz), and the error could name a user: that is for the log.
        self.trouble = (
            f"a line of its journal could not be taken in ({type(error).__name__}, see the log); "
            "what it acknowledged is on disk, and a new start computes its state from there"
        )
        LOG.critical("%s", self.trouble, exc_info=error)
        self._give_up_all(batch, self.trouble)
        self._broken()

    def _fail(self, batch: _Batch, error: BaseException) -> None:
        LOG.error("the journal cannot be written (%s); nothing is accepted until it can", error)
        self.trouble = f"the journal cannot be written: {error}"
        self._engine.failed()
        with suppress(sqlite3.Error):
            self._journal.flush()
        self._give_up_all(batch, self.trouble)
        self._healing = self._loop.create_task(self._heal())

    def _give_up_all(self, batch: _Batch, trouble: str) -> None:
        """Refuse this batch, and all that wait."""
        lost = [batch, *self._waiting]
        self._waiting.clear()
        self._queued = 0
        for one in lost:
            one.give_up(unavailable(trouble))

    async def _heal(self) -> None:
        while True:
            await asyncio.sleep(self._retry)
            try:
                await self._loop.run_in_executor(self._thread, self._open)
                lines = list(self._reader.after(self._engine.state.total.seq))
            except Exception as error:
                # Any error: giving up would be worse than trying again.
                self.trouble = f"the journal cannot be written: {error}"
                continue
            try:
                self._engine.found_on_disk(lines)
            except Exception as error:
                self._break(_Batch(), error)
                return
            try:
                self._healed()
            except (sqlite3.Error, OSError, FileError) as error:
                # The lines are applied, so the next attempt finds none of them again.
                self.trouble = f"the journal cannot be written: {error}"
                continue
            except Exception as error:
                # A user may be half forgotten.
                self._break(_Batch(), error)
                return
            break
        LOG.warning("the journal can be written again")
        self.trouble = None
        self._kick()


def unavailable(reason: str) -> Refusal:
    """Return the refusal of a service that cannot write."""
    return Refusal(503, "unavailable", reason, retry_after=1)
