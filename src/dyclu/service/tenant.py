"""`Tenant`: one policy with its engine, journal and snapshots; tenants share nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import msgspec

from dyclu.errors import FileError
from dyclu.service import schema
from dyclu.service.disk.commit import Committer, unavailable
from dyclu.service.disk.journal import Journal, JournalReader
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots, recover
from dyclu.service.engine.checks import checked_arms
from dyclu.service.engine.choice import ranking
from dyclu.service.engine.engine import Engine, MustWait, Reply
from dyclu.service.engine.lines import encode
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.settings import TenantSettings
from dyclu.storage import make_folder, sync_folder

LOG = logging.getLogger("dyclu.service")

EXPIRE_EVERY = 0.5
"""Seconds between two checks for overdue decisions."""

REPLAYED, FEW = 100, 20
"""Lines that a rebuild replays at a time, and how many of the last it replays without a pause."""

SLICE = 0.005
"""Seconds for which a ranking is computed before other requests get a turn."""

WORTH_A_SNAPSHOT = 100
"""Lines since the last snapshot that are needed for another one."""

ATTEMPTS = 50
"""How often a request waits for other requests with the same id, at most."""

A = TypeVar("A")


def new_id(at: int) -> str:
    """Return a unique id; ids sort by time."""
    return f"{at:014x}-{secrets.token_hex(8)}"


class Tenant:
    """Serves one tenant from the event loop, between `start` and `stop`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        rules: TenantSettings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.rules, self.folder = name, rules, folder
        make_folder(folder)
        for above in (folder.parent, folder.parent.parent):
            sync_folder(above)
        self._spec = rules.spec()
        self._journal = Journal.open(folder / JOURNAL, dim=rules.dim)
        self._reader = self._journal.reader()
        self._facts = self._reader.facts()
        self.snapshots = Snapshots(folder / SNAPSHOTS, self._spec)
        self.snapshots.sweep()
        # The process may have been killed after an erasure, before old snapshots were removed.
        self.snapshots.discard_other_epochs(self._facts.epoch)
        state = self._recovered()
        self.engine = Engine(
            state,
            self._reader,
            rules,
            clock=clock,
            steady=steady,
            new_id=new_id,
            secret=self._facts.secret,
        )
        self.batches = self.batched = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ranking = asyncio.Lock()
        self._erasure, self._rebuilt = asyncio.Event(), asyncio.Event()
        self._erased_users: list[str] = []
        self._epoch = self._built = self._facts.epoch
        self.saved = self.snapshots.used

    def _recovered(self) -> State:
        try:
            self.snapshots.discard_ahead(self._reader.last())
            return recover(self._reader, self.snapshots)
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise FileError(
                f"{self._reader.path} is damaged ({error}); restore it from a backup, and delete "
                "the snapshots beside it"
            ) from None

    @property
    def state(self) -> State:
        """The state after all lines that are on disk."""
        return self.engine.state

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present, None if it can."""
        return self.committer.trouble

    @property
    def rebuilding(self) -> bool:
        """Whether the state is being computed again because a user was erased."""
        return self._built != self._epoch

    @property
    def built(self) -> int:
        """Epoch (number of erasures) that the present state was computed for."""
        return self._built

    async def start(self, *, snapshot_every: float) -> None:
        """Start writing, expiring decisions, and taking snapshots."""
        self.committer = Committer(
            self._journal,
            self._reader,
            self.engine,
            max_queue=self.rules.limits.max_queue,
            served=json.dumps(asdict(self._spec)),
            watch=self._count_batch,
            healed=self._check_epoch,
        )
        await self.committer.begin()
        for warning in self.state.policy.warnings:
            LOG.warning("the policy of %s warns: %s", self.name, warning)
        jobs = (self._expire, self._rebuild, lambda: self._snapshot(snapshot_every))
        self._tasks = [asyncio.create_task(_forever(job)) for job in jobs]

    async def stop(self) -> None:
        """Write what is in flight, take a snapshot, and close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.committer.stop()
        self.save()
        self._reader.close()
        self._journal.close()

    def save(self) -> None:
        """Take a snapshot in this process, unless the latest is as new."""
        if self.rebuilding or self.state.total.seq == self.saved:
            return
        try:
            self.snapshots.write(self.state, epoch=self._epoch)
            self.saved = self.state.total.seq
        except (FileError, OSError) as error:
            LOG.error("no snapshot of %s: %s; the next start takes longer", self.name, error)

    # --- requests ----------------------------------------------------------------------------

    async def decide(
        self, asked: schema.DecisionRequest, order: list[int] | None = None
    ) -> schema.Decided:
        """Choose an arm; the decision is on disk. `order` is the ranking, if already known."""
        if order is None and asked.rank is True:
            order = await self.ranked(asked)
        return await self._when_on_disk(lambda: self.engine.decide(asked, order))

    async def ranked(self, asked: schema.DecisionRequest) -> list[int] | None:
        """Return the ranking of the arms; None if it is not wanted, or if the arms are invalid.

        Ranking 100 arms takes 100 decisions, so other requests get turns in between. One ranking
        runs at a time: several together would take all the turns.
        """
        if asked.rank is not True:
            return None
        try:
            arms = checked_arms(asked, self.rules)
        except Refusal:
            return None
        order = []
        async with self._ranking:
            began = time.monotonic()
            for arm in ranking(self.state.policy, asked.user, arms):
                order.append(arm)
                if time.monotonic() - began > SLICE:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            await asyncio.sleep(0)
        return order

    async def reward(self, id: str, value: float) -> schema.Rewarded:
        """Accept a reward; it is on disk and learnt."""
        return await self._when_on_disk(lambda: self.engine.reward(id, value))

    async def activate(self, id: str) -> schema.Activated:
        """Activate an inactive decision."""
        return await self._when_on_disk(lambda: self.engine.activate(id))

    async def observe(self, observation: schema.Observation) -> schema.Observed:
        """Accept an observation from another source; it is on disk and learnt."""
        return await self._when_on_disk(lambda: self.engine.observe(observation))

    async def _when_on_disk(self, ask: Callable[[], Reply[A]]) -> A:
        """Ask the engine; return its answer once the line behind it is on disk."""
        for _ in range(ATTEMPTS):
            self.committer.check()
            try:
                reply = ask()
            except MustWait:
                await self.committer.settled()
                continue
            except sqlite3.Error as error:
                raise unavailable(f"the journal cannot be read: {error}") from None
            if reply.line is None or reply.line.seq not in await self.committer.submit(reply.line):
                return reply.answer
        raise Refusal(503, "busy", "others are busy with the same id", retry_after=1)

    async def erase(self, user: str) -> schema.Erased:
        """Delete a user's lines from the journal, and compute the state again without them.

        When this returns, the journal and the snapshots contain nothing about the user. The state
        in memory is replaced as soon as the rest of the journal has been replayed.
        """
        while True:
            self.committer.check()
            try:
                mark = self.engine.erase(user)
                break
            except MustWait:
                await self.committer.settled()
            except Refusal:
                # Unknown user; but an old snapshot that could not be removed may contain them.
                self.snapshots.discard_other_epochs(self._epoch)
                raise
        # Queue the line at once: no line with a later number may be written before it.
        erased = self.committer.run(lambda: self._journal.erase(user, encode(mark)), mark)
        gone = await asyncio.shield(asyncio.ensure_future(self._erase(user, erased)))
        return schema.Erased(user, gone, rebuilding=self.rebuilding)

    async def _erase(self, user: str, erased: Awaitable[tuple[int, int]]) -> int:
        gone, epoch = await erased
        self.engine.forget(user)
        self._erased_users.append(user)
        self._begin_epoch(epoch)
        return int(gone)

    def _begin_epoch(self, epoch: int) -> None:
        """Remove snapshots that contain an erased user, and start a rebuild of the state."""
        self._epoch, self.saved = epoch, 0
        self._erasure.set()
        self.snapshots.discard_other_epochs(epoch)

    def _check_epoch(self) -> None:
        """Begin a new epoch if an erasure that reported an error was made nevertheless."""
        if (epoch := self._reader.facts().epoch) != self._epoch:
            self._begin_epoch(epoch)

    # --- background tasks --------------------------------------------------------------------

    async def _expire(self) -> None:
        await asyncio.sleep(EXPIRE_EVERY)
        if self.snapshots.owes:
            self.snapshots.discard_other_epochs(self._epoch)
        with suppress(Refusal):
            self.committer.check()
            while lines := self.engine.expire():
                for expired in lines:
                    self.committer.submit(expired)
                await self.committer.settled()
            await self.committer.tidy()

    async def _rebuild(self) -> None:
        """After an erasure, replay the rest of the journal and continue with that state.

        A replay is always finished, even if more users are erased meanwhile: they are removed from
        the new state as from the present one, and the next replay, which starts at once, does not
        read their lines. So no user is kept for longer than two replays.
        """
        if not self.rebuilding:
            self._erasure.clear()
            await self._erasure.wait()
        epoch, state = self._epoch, State(self._spec.make())
        self._erased_users.clear()
        while state.total.seq < self.state.total.seq:
            await self._replay_some(state)
            # If they came back since, their new lines have not been read yet.
            while self._erased_users:
                state.forget(self._erased_users.pop())
        self.engine.replace(state)
        self._built = epoch
        if not self.rebuilding:
            self._rebuilt.set()

    async def _replay_some(self, state: State) -> None:
        """Apply the next lines in a thread, between requests; the last few without a pause."""
        upto = self.state.total.seq
        if upto - state.total.seq > FEW:
            # In the event loop, each slice would delay several requests. A thread yields to them,
            # and pauses for half of the time if there are any.
            began, batches = time.monotonic(), self.batches
            await asyncio.to_thread(_replay, self._reader.path, state, upto)
            await asyncio.sleep((time.monotonic() - began) * (self.batches > batches))
            return
        state.apply_all(self._reader.after(state.total.seq, upto=upto))
        if state.total.seq < upto:
            # The last line was erased, and the line that records this is about to be applied.
            await asyncio.sleep(0)

    async def _snapshot(self, every: float) -> None:
        """Take a snapshot every `every` seconds, and after a rebuild, which removed all others."""
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await self._rebuilt.wait()
        self._rebuilt.clear()
        if self.state.total.seq - self.saved >= WORTH_A_SNAPSHOT and not self.rebuilding:
            await self._take_snapshot()

    async def _take_snapshot(self) -> None:
        """Start a process that makes a snapshot from the last one and the journal."""
        seq = self.state.total.seq
        epoch = self._epoch
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dyclu.service.disk.snapshots",
            str(self.folder),
            json.dumps(asdict(self._spec)),
            # When this process ends, the pipe is closed and the other one ends too.
            stdin=asyncio.subprocess.PIPE,
        )
        try:
            failed = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        finally:
            self._clean_up_after(epoch)
        if self._epoch != epoch:
            return
        if failed:
            LOG.error("no snapshot of %s was made (exit status %d)", self.name, failed)
        else:
            self.saved = seq

    def _clean_up_after(self, epoch: int) -> None:
        """Remove drafts of a snapshot process, and its snapshot if `epoch` is over."""
        self.snapshots.sweep()
        if self._epoch != epoch:
            self.snapshots.discard_other_epochs(self._epoch)

    def _count_batch(self, lines: int) -> None:
        self.batches += 1
        self.batched += lines


def _replay(path: Path, state: State, upto: int) -> None:
    with closing(JournalReader(path)) as reader:
        state.apply_all(reader.chunk(state.total.seq, upto=upto, most=REPLAYED))


async def _forever(job: Callable[[], Awaitable[None]]) -> None:
    """Repeat a job; failures are logged and do not end it."""
    while True:
        try:
            await job()
        except Exception:
            LOG.exception("a background task failed; it is tried again")
            await asyncio.sleep(1)
