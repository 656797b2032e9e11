"""`Saving`: take snapshots now and then, in a process of low priority, or here if it is quick."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from dyclu.service.disk.bases import Write
from dyclu.service.disk.commit import Committer
from dyclu.service.engine.engine import Engine
from dyclu.service.tenant.erasures import Erasures
from dyclu.service.tenant.files import TenantFiles, carry_out
from dyclu.service.tenant.rebuild import WORTH_A_SNAPSHOT, Rebuild

LOG = logging.getLogger("dyclu.service")

FEW_USERS, QUICK = 1_000, 0.5
"""Users up to which a partition writes its snapshot itself: a process needs a second of CPU time,
and replays what was learnt here already. After one that took so many seconds, or failed, the next
one waits until it is due."""

REST = 20
"""So many times as long as a snapshot took, but at most `LOOK` seconds, no other partition of the
process writes one."""

WORTH = 2
"""So many times as long as the last snapshot took, lines must have been applied since, before
another one is written that is not due: snapshots take at most half of the time of the lines."""

LINES, REPLAY, LOOK = 1_000, 0.05, 1.0
"""Lines after which it does so before a snapshot is due, or seconds that it took to apply them, and
seconds between two looks: what was not saved must be replayed by a take-over."""


class Saving:
    """Takes snapshots of a tenant that serves, every `every` seconds; if small, perhaps `here`."""

    def __init__(
        self,
        files: TenantFiles,
        engine: Engine,
        committer: Committer,
        erasures: Erasures,
        rebuild: Rebuild,
        *,
        every: float,
        here: bool,
    ) -> None:
        self._files, self._engine, self._committer = files, engine, committer
        self._erasures = erasures
        self._rebuild, self._every, self._here = rebuild, every, here
        self._took = self._applied = 0.0

    async def run(self) -> None:
        """Wait until a snapshot is due, or a rebuild is done, which removed all others; take it."""
        await self._wait()
        self._rebuild.done.clear()
        if self._small and await self._take_here():
            return
        async with self._files.turn:
            if self._wanted:
                await self.take()

    async def _wait(self) -> None:
        """Wait for a rebuild, or until so many seconds have passed or many lines have come."""
        end = time.monotonic() + self._every
        while (left := end - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK) if self._here else left):
                    await self._rebuild.done.wait()
                    return
            if self._small and self._took < QUICK and self._much and self._may:
                return

    @property
    def _may(self) -> bool:
        return not self._rebuild.needed and self._committer.trouble is None

    @property
    def _wanted(self) -> bool:
        """Whether there are enough new lines, and a snapshot may be written now."""
        return self._new >= WORTH_A_SNAPSHOT and self._may

    @property
    def _new(self) -> int:
        """Lines that are in no snapshot."""
        return self._engine.state.total.seq - self._files.saved

    @property
    def _much(self) -> bool:
        """Whether a take-over would have much to replay, and a snapshot is worth its time."""
        cost = self._committer.applying - self._applied
        many = self._new >= LINES or (cost >= REPLAY and self._new >= WORTH_A_SNAPSHOT)
        return many and cost >= WORTH * self._took

    @property
    def _small(self) -> bool:
        return self._here and len(self._engine.state.users) <= FEW_USERS

    async def _take_here(self) -> bool:
        """Write a snapshot here; return False if a process has to.

        All partitions have as many new lines at the same time: one after the other writes. A
        rebuild, which needs the turn only, does not wait for the snapshots of other partitions.
        """
        files = self._files
        while self._wanted and self._small:
            async with files.turn:
                # A rebuild may have it for long: wait for its end without holding up the others.
                pass
            async with files.beside:
                if not await _acquired_at_once(files.turn):
                    # By a retirement, say, which may be waiting for `beside`.
                    continue
                try:
                    # There may have been an erasure meanwhile.
                    wrote = self._wanted and self._small and await self._write_here()
                finally:
                    files.turn.release()
                if wrote:
                    await asyncio.sleep(min(REST * self._took, LOOK))
                    return math.isfinite(self._took)
                if self._small:
                    return True
        return not self._wanted

    async def _write_here(self) -> bool:
        """Write a snapshot of the present state, in the committer's thread, and share it.

        No line is applied while a job of the committer runs, so the state stands still; decisions
        only read it. Returns whether this was tried; not if somebody is erased.
        """
        took = await self._committer.do(self._save_standing)
        if took is None:
            return False
        self._took = took
        await carry_out(self._timed(self._files.sharing()), self._committer)
        return True

    def _timed(self, writes: Iterator[Write]) -> Iterator[Write]:
        """Yield writes that add their seconds to `_took`, with those to prepare them."""
        began = time.monotonic()
        for write in writes:
            self._took += time.monotonic() - began
            yield partial(self._add_time, write)
            began = time.monotonic()

    def _add_time(self, write: Write) -> None:
        began = time.monotonic()
        write()
        self._took += time.monotonic() - began

    def _save_standing(self) -> float | None:
        """Save; return the seconds it took, infinite if it failed, None if somebody is erased.

        After an erasure the state has to be computed again before it is saved.

        It never raises: the committer would take an error of a policy for one of the journal. Time
        in the committer's queue does not count.
        """
        erasures, epoch = self._erasures, self._erasures.epoch
        if erasures.running or self._rebuild.needed:
            return None
        began = time.monotonic()
        try:
            self.save()
        except Exception:
            LOG.exception("no snapshot of %s was written here", self._files.name)
            return math.inf
        if self._files.saved == self._engine.state.total.seq:
            self._applied = self._committer.applying
            return time.monotonic() - began
        return None if erasures.running or erasures.epoch != epoch else math.inf

    async def take(self) -> None:
        """Start a process that makes a snapshot from the last one and the journal."""
        files, seq, epoch = self._files, self._engine.state.total.seq, self._erasures.epoch
        applied = self._committer.applying
        try:
            failed = await files.run_process()
        finally:
            files.snapshots.sweep()
            files.snapshots.discard(files.reader)
        if self._erasures.epoch != epoch:
            return
        if failed:
            LOG.error("no snapshot of %s was made (exit status %d)", files.name, failed)
        else:
            files.saved, self._applied = seq, applied
            await carry_out(files.sharing(), self._committer)

    def save(self) -> None:
        """Take a snapshot in this process, unless the latest is as new."""
        state = self._engine.state
        if state.total.seq != self._files.saved and self._files.write_snapshot(
            state, epoch=self._erasures.epoch, built=self._rebuild.built
        ):
            self._files.saved = state.total.seq


async def _acquired_at_once(lock: asyncio.Lock) -> bool:
    """Acquire a lock if nobody has it or waits for it; return whether it was acquired."""
    try:
        async with asyncio.timeout(0):
            await lock.acquire()
    except TimeoutError:
        return False
    return True
