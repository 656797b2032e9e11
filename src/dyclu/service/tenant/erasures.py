"""`Erasures`: erase users from journal, base, archive and snapshots of a tenant that serves.

An erasure that has deleted the user's lines is always finished: if base or archive cannot be
written, it is tried again, and after a kill the next start finishes it. Until then no line about
the user is accepted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dyclu.errors import FileError
from dyclu.service.disk import archive
from dyclu.service.disk.commit import Committer, unavailable
from dyclu.service.disk.journal import ErasedLines
from dyclu.service.engine.engine import Engine, MustWait
from dyclu.service.engine.lines import encode
from dyclu.service.refusal import Refusal
from dyclu.service.tenant.files import TenantFiles, carry_out

LOG = logging.getLogger("dyclu.service")

RETRY = 5.0
"""Seconds after which an erasure that could not be finished is tried again."""

A = TypeVar("A")
Gone = tuple[str, list[int]]
"""A user who was erased, with the numbers of their decisions."""


@dataclass(frozen=True, slots=True)
class Erased:
    """How many lines an erasure deleted, and whether nothing learnt from the user is left."""

    lines: int
    exact: bool


class Erasures:
    """Erases users; used from the event loop.

    Attributes
    ----------
    epoch : int
        Number of erasures so far.
    begun : asyncio.Event
        Set when a user's lines have been deleted.
    retiring : int or None
        Line of a base that is being made; users with lines up to it may get into the base.
    """

    def __init__(self, files: TenantFiles, engine: Engine, committer: Committer) -> None:
        self._files, self._engine, self._committer = files, engine, committer
        self.epoch = files.reader.facts().epoch
        self.begun = asyncio.Event()
        self.retiring: int | None = None
        self._cleaning = asyncio.Lock()
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._unfinished: dict[str, list[int]] = {}
        self._followers: list[list[Gone]] = []
        self._times: deque[tuple[int, float]] = deque()
        self._retry_at = math.inf

    @property
    def running(self) -> list[asyncio.Future[Any]]:
        """Erasures that are under way."""
        return list(self._running.values())

    def age(self, built: int) -> float:
        """Return the seconds since the first erasure after epoch `built`; 0 if there is none."""
        while self._times and self._times[0][0] <= built:
            self._times.popleft()
        return time.monotonic() - self._times[0][1] if self._times else 0.0

    async def erase(self, user: str) -> Erased:
        """Delete a user's lines from the journal; the state must then be computed again.

        When this returns, journal, base, archive and snapshots contain nothing about the user. If
        somebody was reading the journal, copies in its unused space are overwritten a moment later.
        """
        self._committer.check()
        stored = await self._only_stored(user)
        self._committer.check()
        try:
            mark = self._engine.erase(user, stored=stored)
        except MustWait:
            # A repetition. It must not erase what may come after the erasure that is under way.
            raise await self._outcome_of_other(user) from None
        except Refusal:
            # Unknown user; but an old snapshot that could not be removed may contain them.
            self._files.snapshots.discard(self._files.reader)
            raise
        known = self._engine.state.users.get(user)
        first = None if known is None else known.since
        # Queue the line at once: no line with a later number may be written before it.
        erased = self._committer.run(
            lambda: self._files.journal.erase(user, encode(mark), first=first), mark
        )
        return await asyncio.shield(self._kept_running(user, self._erase(user, erased)))

    async def _only_stored(self, user: str) -> bool:
        """Return whether only the archive, or a change, still names a user who was pushed out."""
        state = self._engine.state
        if user in state.users or self._engine.erases(user):
            return False
        if self._files.reader.first_line(user) is not None:
            return False
        if state.knows(user):
            return True
        async with self._files.basing:
            return await asyncio.to_thread(archive.holds, self._files.folder, user)

    async def _outcome_of_other(self, user: str) -> Refusal:
        """Wait for the erasure of this user that is under way; return what to answer."""
        running = self._running.get(user)
        if running is not None:
            await asyncio.wait([running])
            if running.exception() is None:
                return Refusal(404, "unknown", "no such user any more", field="user")
        return unavailable("the user's lines are deleted; the rest of the erasure is tried again")

    def _kept_running(self, user: str, job: Coroutine[Any, Any, A]) -> asyncio.Future[A]:
        """Run an erasure to its end, also if its caller leaves."""
        running = asyncio.ensure_future(job)
        self._running[user] = running
        running.add_done_callback(partial(self._ended, user))
        return running

    def _ended(self, user: str, done: asyncio.Future[Any]) -> None:
        if self._running.get(user) is done:
            del self._running[user]
        if done.cancelled() or (error := done.exception()) is None:
            return
        LOG.error("an erasure failed (%s); what it left undone is tried again", error)
        self._retry_at = time.monotonic() + RETRY

    async def _erase(self, user: str, erased: Awaitable[ErasedLines]) -> Erased:
        try:
            gone = await erased
        except Refusal:
            # If the lines were deleted nevertheless, `resume` finds out.
            self._engine.end_erasure(user)
            raise
        self._engine.forget(user, gone.decisions)
        self.begin_epoch(gone.epoch)
        in_base = self.retiring is not None and gone.first <= self.retiring
        try:
            in_base |= await self._erase_elsewhere(user, gone.decisions)
            await self.clean()
        except (OSError, FileError, sqlite3.Error) as error:
            raise unavailable(
                f"the user's lines are deleted, but base or archive cannot be written ({error}); "
                "this is tried again"
            ) from None
        return Erased(gone.lines, exact=self._files.spec.forgets_exactly or not in_base)

    async def _erase_elsewhere(self, user: str, decisions: list[int]) -> bool:
        """Remove a user, whose lines are gone, from base and archive; return whether from any."""
        files = self._files
        self._unfinished[user] = decisions
        for followed in self._followers:
            followed.append((user, decisions))
        async with files.basing:
            before = files.reader.facts().generation
            await carry_out(files.without(user, decisions), self._committer)
            archived = await asyncio.to_thread(archive.forget, files.folder, [user])
            in_base = files.reader.facts().generation != before
        await self._committer.do(lambda: files.journal.end_erasure(user))
        # Not before: a rebuild that begins after a failure may read a base with the user in it.
        del self._unfinished[user]
        # From now on there may be lines about them again.
        self._engine.end_erasure(user)
        return in_base or archived

    async def clean(self) -> None:
        """Overwrite copies of erased lines in unused space of the journal, unless it is done."""
        async with self._cleaning:
            await carry_out(self._files.cleaning(), self._committer)

    @contextmanager
    def followed(self) -> Iterator[list[Gone]]:
        """Yield a list of users being erased, to which those are added who are erased from now on.

        Their lines may have been read before they were deleted.
        """
        gone = list(self._unfinished.items())
        self._followers.append(gone)
        try:
            yield gone
        finally:
            # By identity: two lists may be equal.
            self._followers = [one for one in self._followers if one is not gone]

    def begin_epoch(self, epoch: int) -> None:
        """Remove snapshots that contain an erased user, and start a rebuild of the state."""
        self.epoch, self._files.saved = epoch, 0
        self._times.append((epoch, time.monotonic()))
        self.begun.set()
        self._files.snapshots.discard(self._files.reader)

    def resume(self) -> None:
        """Finish erasures whose lines are deleted, but which ended with an error."""
        self._retry_at = math.inf
        if (epoch := self._files.reader.facts().epoch) != self.epoch:
            self.begin_epoch(epoch)
        for user, decisions in self._files.reader.being_erased():
            if user not in self._running:
                self._engine.resume_erasure(user)
                self._engine.forget(user, decisions)
                self._kept_running(user, self._erase_elsewhere(user, decisions))

    async def look_after(self) -> None:
        """Retry what could not be done: erasures, and cleaning."""
        if time.monotonic() > self._retry_at:
            self.resume()
        await self._committer.tidy()
        if self._files.reader.facts().unclean and not self._running:
            # A process that reads was in the way.
            await self.clean()
