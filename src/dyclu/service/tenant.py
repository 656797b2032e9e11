"""`Tenant`: one policy, its journal, its snapshots, its engine; nothing shared with others."""

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
from dyclu.service.engine.choosing import ranking
from dyclu.service.engine.engine import Engine, InFlight, Reply
from dyclu.service.engine.judging import judged_arms
from dyclu.service.engine.records import encode
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.settings import TenantSettings
from dyclu.storage import make_folder, sync_folder

LOG = logging.getLogger("dyclu.service")

SWEEP = 0.5
"""Seconds between looks at which decisions have expired."""

REPLAYED, FEW = 100, 20
"""Lines that a policy which is made anew learns at a time, and the last of them without a pause."""

SLICE = 0.005
"""Seconds that a ranking takes at a time, between which other requests are served."""

WORTH_A_SNAPSHOT = 100
"""Lines since the last snapshot below which no other is made."""

ATTEMPTS = 50
"""How often a request waits for others that are about the same id."""

A = TypeVar("A")


def new_id(at: int) -> str:
    """Return an id nobody else will choose; later ones sort behind earlier ones."""
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
        # Whoever erased somebody may have been killed before their snapshots were gone.
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
        self._erased, self._rebuilt = asyncio.Event(), asyncio.Event()
        self._leaving: list[str] = []
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
        """What the tenant has learnt."""
        return self.engine.state

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present."""
        return self.committer.trouble

    @property
    def rebuilding(self) -> bool:
        """Whether the policy is being made anew because somebody was erased."""
        return self._built != self._epoch

    @property
    def built(self) -> int:
        """How many erasures there had been when what serves was made."""
        return self._built

    async def start(self, *, snapshot_every: float) -> None:
        """Begin to write, to expire, and to take snapshots."""
        self.committer = Committer(
            self._journal,
            self._reader,
            self.engine,
            max_queue=self.rules.limits.max_queue,
            served=json.dumps(asdict(self._spec)),
            watch=self._count_batch,
            healed=self._follow_erasures,
        )
        await self.committer.begin()
        jobs = (self._sweep, self._rebuild, lambda: self._photograph(snapshot_every))
        self._tasks = [asyncio.create_task(_forever(job)) for job in jobs]

    async def stop(self) -> None:
        """Drain, take a snapshot, close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.committer.stop()
        self.save()
        self._reader.close()
        self._journal.close()

    def save(self) -> None:
        """Take a snapshot here and now, unless the latest is as new."""
        if self.rebuilding or self.state.total.seq == self.saved:
            return
        try:
            self.snapshots.write(self.state, epoch=self._epoch)
            self.saved = self.state.total.seq
        except (FileError, OSError) as error:
            LOG.error("no snapshot of %s: %s; the next start takes longer", self.name, error)

    # --- what may be asked -------------------------------------------------------------------

    async def decide(
        self, asked: schema.DecisionRequest, order: list[int] | None = None
    ) -> schema.Decided:
        """Choose an arm; the answer is on disk. The arms' order, if wanted, may be known before."""
        if order is None and asked.rank is True:
            order = await self.ranked(asked)
        return await self._safely(lambda: self.engine.decide(asked, order))

    async def ranked(self, asked: schema.DecisionRequest) -> list[int] | None:
        """Return the order of the arms if it is wanted; None also if they are to be refused.

        A hundred arms are a hundred decisions, so others have their turn between them; of several
        rankings one goes on at a time, as together they would take all the turns.
        """
        if asked.rank is not True:
            return None
        try:
            arms = judged_arms(asked, self.rules)
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
        """Take in a reward; it is on disk and learnt."""
        return await self._safely(lambda: self.engine.reward(id, value))

    async def activate(self, id: str) -> schema.Activated:
        """Let an inactive decision count."""
        return await self._safely(lambda: self.engine.activate(id))

    async def observe(self, told: schema.Observation) -> schema.Observed:
        """Take in an observation from elsewhere; it is on disk and learnt."""
        return await self._safely(lambda: self.engine.observe(told))

    async def _safely(self, ask: Callable[[], Reply[A]]) -> A:
        """Ask the engine and give its answer once the line behind it is safe."""
        for _ in range(ATTEMPTS):
            self.committer.check()
            try:
                reply = ask()
            except InFlight:
                await self.committer.settled()
                continue
            except sqlite3.Error as error:
                raise unavailable(f"the journal cannot be read: {error}") from None
            if reply.line is None or reply.line.seq not in await self.committer.submit(reply.line):
                return reply.answer
        raise Refusal(503, "busy", "others are busy with the same id", retry_after=1)

    async def erase(self, user: str) -> schema.Erased:
        """Delete everything about a user from the journal, and make the policy anew without them.

        When this returns the journal and all snapshots are rid of the user; the policy in memory
        follows as soon as the rest of the journal has been replayed.
        """
        while True:
            self.committer.check()
            try:
                mark = self.engine.erase(user)
                break
            except InFlight:
                await self.committer.settled()
            except Refusal:
                # Unknown now; a snapshot that could not be removed when they went may know them.
                self.snapshots.discard_other_epochs(self._epoch)
                raise
        # Queued in the same step as it was numbered: no later number may reach the disk before it.
        erased = self.committer.run(lambda: self._journal.erase(user, encode(mark)), mark)
        gone = await asyncio.shield(asyncio.ensure_future(self._erase(user, erased)))
        return schema.Erased(user, gone, rebuilding=self.rebuilding)

    async def _erase(self, user: str, erased: Awaitable[tuple[int, int]]) -> int:
        gone, epoch = await erased
        self.engine.forget(user)
        self._leaving.append(user)
        self._begin_epoch(epoch)
        return int(gone)

    def _begin_epoch(self, epoch: int) -> None:
        """Drop what remembers somebody who was erased, and make the policy anew."""
        self._epoch, self.saved = epoch, 0
        self._erased.set()
        self.snapshots.discard_other_epochs(epoch)

    def _follow_erasures(self) -> None:
        """Find out whether an erasure that reported an error was made all the same."""
        if (epoch := self._reader.facts().epoch) != self._epoch:
            self._begin_epoch(epoch)

    # --- what goes on by itself --------------------------------------------------------------

    async def _sweep(self) -> None:
        await asyncio.sleep(SWEEP)
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
        """Whenever somebody was erased, replay what is left of the journal and go on with that.

        Once begun it is finished, whoever is erased meanwhile: they are let go of here as they are
        in what serves, and the next replay, which begins at once, never hears of them. So nobody
        is remembered for longer than two replays, however many erasures there are.
        """
        if not self.rebuilding:
            self._erased.clear()
            await self._erased.wait()
        epoch, state = self._epoch, State(self._spec.make())
        self._leaving.clear()
        while state.total.seq < self.state.total.seq:
            await self._replay_some(state)
            # What they did since they came back, if they did, is in lines that were not read yet.
            while self._leaving:
                state.forget(self._leaving.pop())
        self.engine.replace(state)
        self._built = epoch
        if not self.rebuilding:
            self._rebuilt.set()

    async def _replay_some(self, state: State) -> None:
        """Learn the next lines beside those who ask; the last ones while nobody does."""
        upto = self.state.total.seq
        if upto - state.total.seq > FEW:
            # In slices between requests, each would wait for several of them; a thread gives way,
            # and half of the time is left to whoever asks, if anybody does.
            began, batches = time.monotonic(), self.batches
            await asyncio.to_thread(_replay, self._reader.path, state, upto)
            await asyncio.sleep((time.monotonic() - began) * (self.batches > batches))
            return
        state.apply_all(self._reader.after(state.total.seq, upto=upto))
        if state.total.seq < upto:
            # Its line was erased, and the one that stands for that is about to be taken in.
            await asyncio.sleep(0)

    async def _photograph(self, every: float) -> None:
        """Take a snapshot now and then, and when the policy was made anew: all others are gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await self._rebuilt.wait()
        self._rebuilt.clear()
        if self.state.total.seq - self.saved >= WORTH_A_SNAPSHOT and not self.rebuilding:
            await self._take_snapshot()

    async def _take_snapshot(self) -> None:
        """Let another process make a snapshot from the last one and the journal."""
        seq = self.state.total.seq
        epoch = self._epoch
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dyclu.service.disk.snapshots",
            str(self.folder),
            json.dumps(asdict(self._spec)),
            # It ends when this process does, which closes the pipe.
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
        """Remove what a process that began in this epoch left half-written, or made too late."""
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
    """Do something again and again; a failure is told, and does not end it."""
    while True:
        try:
            await job()
        except Exception:
            LOG.exception("something that goes on by itself failed; it is tried again")
            await asyncio.sleep(1)
