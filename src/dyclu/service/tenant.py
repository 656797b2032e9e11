"""`Tenant`: one policy with its engine, journal and snapshots; tenants share nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from numpy.typing import NDArray

from dyclu.errors import DycluError, FileError
from dyclu.service import schema
from dyclu.service.disk import archive, bases, retention
from dyclu.service.disk.commit import Committer, unavailable
from dyclu.service.disk.journal import ErasedLines, Journal, JournalReader
from dyclu.service.disk.snapshots import (
    JOURNAL,
    SNAPSHOTS,
    Built,
    Snapshots,
    beginning,
    recover,
)
from dyclu.service.engine.checks import checked_arms
from dyclu.service.engine.choice import ranking
from dyclu.service.engine.engine import Engine, MustWait, Reply
from dyclu.service.engine.lines import encode
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Keep, TenantSettings
from dyclu.service.spec import warm_up
from dyclu.storage import make_folder, sync_folder

LOG = logging.getLogger("dyclu.service")

EXPIRE_EVERY = 0.5
"""Seconds between two checks for overdue decisions, and for lines that need not be kept."""

REPLAYED, FEW = 100, 20
"""Lines that a rebuild replays at a time, and how many of the last it replays without a pause."""

SLICE = 0.005
"""Seconds for which a ranking is computed before other requests get a turn."""

WORTH_A_SNAPSHOT = 100
"""Lines since the last snapshot that are needed for another one."""

SAVE_WHILE_STARTING = 30.0
"""Seconds of a replay at a start after which a snapshot is written on the way."""

SAY_WHILE_STARTING = 5.0
"""Seconds after which a start logs how far it is."""

ATTEMPTS = 50
"""How often a request waits for other requests with the same id, at most."""

A = TypeVar("A")


def new_id(at: int) -> str:
    """Return a unique id; ids sort by time."""
    return f"{at:014x}-{secrets.token_hex(8)}"


class Stopped(Exception):  # noqa: N818 - not an error
    """The service was told to stop while it was starting."""


@dataclass(slots=True)
class Progress:
    """How far a start is: lines replayed, and lines to be replayed."""

    done: int = 0
    total: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at the present rate; None if nothing is known yet."""
        if not self.done:
            return None
        return (self.total - self.done) * (time.monotonic() - self.began) / self.done


class Tenant:
    """Serves one tenant from the event loop, between `start` and `stop`.

    Attributes
    ----------
    progress : Progress or None
        How far the start is; None once it serves.
    stopped : str or None
        Why this tenant does not serve at all, such as a damaged journal.
    """

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
        self._clock, self._steady = clock, steady
        self._spec, self._keep = rules.spec(), Keep.parsed(rules.keep)
        self.progress: Progress | None = Progress()
        self.stopped: str | None = None
        self.batches = self.batched = 0
        self._told_to_stop = threading.Event()
        self._starting: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ranking = asyncio.Lock()
        self._erasure, self._rebuilt = asyncio.Event(), asyncio.Event()
        self._turn, self._basing, self._washing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._being_erased: dict[str, list[int]] = {}
        self._erasures: set[asyncio.Future[Any]] = set()
        self._erased_users: list[tuple[str, list[int]]] = []
        self._erased_since: list[tuple[str, list[int]]] = []

    # --- starting and stopping ---------------------------------------------------------------

    def open(self) -> None:
        """Open the journal; raises if it cannot be used. Nothing is read from it yet."""
        make_folder(self.folder)
        for above in (self.folder.parent, self.folder.parent.parent):
            sync_folder(above)
        self._journal = Journal.open(self.folder / JOURNAL, dim=self.rules.dim)
        self._reader = self._journal.reader()
        self._facts = self._reader.facts()
        self.snapshots = Snapshots(self.folder / SNAPSHOTS, self._spec, self._facts.id)
        if self.rules.archive:
            archive.library()

    async def recover(self) -> None:
        """Compute the state from the journal; nothing is answered until then."""
        with _damage_told(self.folder / JOURNAL):
            built = await asyncio.to_thread(self._recovered)
        self._facts = self._reader.facts()
        self.engine = Engine(
            built.state,
            self._reader,
            self.rules,
            clock=self._clock,
            steady=self._steady,
            new_id=new_id,
            secret=self._facts.secret,
        )
        self._epoch, self._built = self._facts.epoch, built.epoch
        self.saved = self.snapshots.used

    def _recovered(self) -> Built:
        warm_up(self._spec)
        self._sweep()
        # The process may have been killed during an erasure.
        for user, decisions in self._reader.being_erased():
            for write in self._without(user, decisions):
                write()
            archive.forget(self.folder, [user])
            self._journal.end_erasure(user)
        for write in self._cleaning():
            write()
        self.snapshots.discard(self._reader)
        self.snapshots.discard_ahead(self._reader.last())
        self._said = self._kept = time.monotonic()
        built = recover(self._reader, self.snapshots, progress=self._go_on)
        LOG.info("tenant %s is at line %d", self.name, built.state.total.seq)
        return built

    def _sweep(self) -> None:
        """Remove what a process left half-made, with users who may have been erased since."""
        bases.sweep(self.folder)
        archive.sweep(self.folder, self._reader.facts())
        self.snapshots.sweep()

    def _go_on(self, built: Built) -> None:
        """Tell how far the start is; save it now and then, and when it has to stop."""
        progress, seq, now = self.progress, built.state.total.seq, time.monotonic()
        assert progress is not None
        if not progress.total:
            self._from = seq
            progress.total, progress.began = self._reader.last() - seq, now
        progress.done = seq - self._from
        if now - self._said > SAY_WHILE_STARTING:
            self._said = now
            LOG.info(
                "tenant %s replays its journal: %d of %d lines, about %.0f s left",
                self.name, progress.done, progress.total, progress.seconds_left or 0,
            )  # fmt: skip
        stopping = self._told_to_stop.is_set()
        if now - self._kept > SAVE_WHILE_STARTING or (stopping and progress.done):
            self._write_snapshot(built.state, self._reader.facts().epoch, built.epoch)
            self._kept = time.monotonic()
        if stopping:
            raise Stopped

    @property
    def serving(self) -> bool:
        """Whether requests can be answered."""
        return self.progress is None and self.stopped is None

    @property
    def starting(self) -> bool:
        """Whether the state is being computed; `progress` says how far it is."""
        return self.progress is not None and self.stopped is None

    def check_serving(self) -> None:
        """Refuse if this tenant is still starting, or cannot serve at all."""
        if self.stopped is not None:
            raise Refusal(503, "stopped", self.stopped, retry_after=60)
        if self.progress is not None:
            left = self.progress.seconds_left
            done = f"{self.progress.done} of {self.progress.total} lines"
            wait = 1 if left is None else max(1, min(60, round(left)))
            raise Refusal(503, "starting", f"the journal is replayed: {done}", retry_after=wait)

    @property
    def state(self) -> State:
        """The state after all lines that are on disk."""
        return self.engine.state

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present, None if it can."""
        return self.committer.trouble

    @property
    def queued(self) -> int:
        """Lines that wait for the disk."""
        return self.committer.queued

    def follow(self, rules: TenantSettings) -> None:
        """Continue with other settings; policy, dimension and what is kept stay the same."""
        self.rules = rules
        if self.serving:
            self.engine.follow(rules)
            self.committer.follow(rules.limits.max_queue)

    @property
    def rebuilding(self) -> bool:
        """Whether the state is being computed again because a user was erased."""
        return self._built != self._epoch

    @property
    def base(self) -> int:
        """Line up to which the base stands for the lines; 0 if there is no base."""
        return self._reader.facts().base

    @property
    def built(self) -> int:
        """Epoch (number of erasures) that the present state was computed for."""
        return self._built

    def begin(self, *, snapshot_every: float) -> None:
        """Start in the background; `serving` says when it is done. Needs a running event loop."""
        self._starting = asyncio.create_task(self._start(snapshot_every))

    async def _start(self, snapshot_every: float) -> None:
        try:
            await self.start(snapshot_every=snapshot_every)
        except Stopped:
            LOG.info("tenant %s was told to stop while it was starting", self.name)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Do not serve, because of this error; other tenants go on."""
        self.stopped = f"tenant {self.name} is stopped: {error}"
        LOG.error("%s", self.stopped, exc_info=not isinstance(error, DycluError))

    async def start(self, *, snapshot_every: float) -> None:
        """Compute the state; start writing, expiring decisions, and taking snapshots."""
        if self.progress is not None and not hasattr(self, "engine"):
            await self.recover()
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
        jobs = (self._expire, self._rebuild, self._retain, lambda: self._snapshot(snapshot_every))
        self._tasks = [asyncio.create_task(_forever(job)) for job in jobs]
        self.progress = None
        # Settings may have been read again meanwhile.
        self.follow(self.rules)

    async def stop(self) -> None:
        """Write what is in flight, take a snapshot, and close."""
        self._told_to_stop.set()
        if self._starting is not None:
            await self._starting
        if self.serving:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *self._erasures, return_exceptions=True)
            await self.committer.stop()
            for write in self._cleaning():
                write()
            self._sweep()
            self.save()
        with suppress(AttributeError):  # a journal that could not be opened
            self._reader.close()
            self._journal.close()

    def save(self) -> None:
        """Take a snapshot in this process, unless the latest is as new."""
        if self.state.total.seq != self.saved and self._write_snapshot(
            self.state, self._epoch, self._built
        ):
            self.saved = self.state.total.seq

    def _write_snapshot(self, state: State, epoch: int, built: int) -> bool:
        """Write a snapshot; return whether it is there and contains nobody erased since."""
        line = state.total.seq
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            try:
                self.snapshots.write(state, epoch=epoch, built=built)
            except (FileError, OSError) as error:
                # An erasure removes drafts that contain the user.
                if reader.facts().epoch == epoch:
                    LOG.error(
                        "no snapshot of %s: %s; the next start takes longer", self.name, error
                    )
                return False
            self.snapshots.purge(reader)
            return line <= reader.free_of_erased(epoch)

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
                await self._progress_of_others()
                continue
            except sqlite3.Error as error:
                raise unavailable(f"the journal cannot be read: {error}") from None
            if reply.line is None or reply.line.seq not in await self.committer.submit(reply.line):
                return reply.answer
        raise Refusal(503, "busy", "others are busy with the same id", retry_after=1)

    async def erase(self, user: str) -> schema.Erased:
        """Delete a user's lines from the journal, and compute the state again without them.

        When this returns, journal, base, archive and snapshots contain nothing about the user. The
        state in memory is replaced as soon as the rest of the journal has been replayed.
        """
        self.committer.check()
        stored = await self._only_stored(user)
        try:
            mark = self.engine.erase(user, stored=stored)
        except MustWait:
            # A repetition. It must not erase what may come after the erasure that is under way.
            while self.engine.erases(user):
                await self._progress_of_others()
            raise Refusal(404, "unknown", "no such user any more", field="user") from None
        except Refusal:
            # Unknown user; but an old snapshot that could not be removed may contain them.
            self.snapshots.discard(self._reader)
            raise
        known = self.state.users.get(user)
        first = None if known is None else known.since
        # Queue the line at once: no line with a later number may be written before it.
        erased = self.committer.run(
            lambda: self._journal.erase(user, encode(mark), first=first), mark
        )
        return await asyncio.shield(self._kept_running(self._erase(user, erased)))

    async def _only_stored(self, user: str) -> bool:
        """Return whether only the archive, or a change, still names a user who was pushed out."""
        if user in self.state.users or self.engine.erases(user):
            return False
        if self._reader.first_line(user) is not None:
            return False
        if any(change.user == user for change in self.state.changes):
            return True
        async with self._basing:
            return await asyncio.to_thread(archive.holds, self.folder, user)

    async def _progress_of_others(self) -> None:
        """Wait for lines in flight; if there are none, for the end of an erasure."""
        if self.committer.idle and self._erasures:
            await asyncio.wait(self._erasures, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        await self.committer.settled()
        await asyncio.sleep(0)

    def _kept_running(self, job: Awaitable[A]) -> asyncio.Future[A]:
        """Run an erasure to its end, also if its caller leaves."""
        running = asyncio.ensure_future(job)
        self._erasures.add(running)
        running.add_done_callback(self._erasures.discard)
        return running

    async def _erase(self, user: str, erased: Awaitable[ErasedLines]) -> schema.Erased:
        gone = await erased
        self.engine.forget(user, gone.decisions)
        self._begin_epoch(gone.epoch)
        exact = await self._erase_elsewhere(user, gone.decisions)
        return schema.Erased(user, gone.lines, rebuilding=self.rebuilding, exact=exact)

    async def _erase_elsewhere(self, user: str, decisions: list[int]) -> bool:
        """Remove a user, whose lines are gone, from base and archive; return whether exactly."""
        self._being_erased[user] = decisions
        self._erased_users.append((user, decisions))
        self._erased_since.append((user, decisions))
        try:
            async with self._basing:
                before = self._reader.facts().generation
                await self._carry_out(self._without(user, decisions))
                await asyncio.to_thread(archive.forget, self.folder, [user])
                in_base = self._reader.facts().generation != before
            await self.committer.do(lambda: self._journal.end_erasure(user))
            await self._clean()
        finally:
            del self._being_erased[user]
        self.engine.end_erasure(user)
        return not in_base or self._spec.forgets_exactly

    def _without(self, user: str, decisions: list[int]) -> Iterator[bases.Write]:
        """Yield the writes that remove a user from the base."""
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            yield from bases.without(
                self._journal, reader, self.folder, self._spec, [(user, decisions)]
            )

    async def _clean(self) -> None:
        """Overwrite copies of erased lines in unused space of the journal, unless it is done."""
        async with self._washing:
            await self._carry_out(self._cleaning())

    def _cleaning(self) -> Iterator[bases.Write]:
        """Yield the writes that do this, until a process that reads is in the way."""
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            unclean = reader.facts().unclean
        page: int | None = 0

        def clean_some(first: int) -> None:
            nonlocal page
            page = self._journal.clean(first)

        while unclean and page is not None:
            yield partial(clean_some, page)
            if page == 0:
                yield partial(self._journal.note_clean, unclean)
                return

    async def _carry_out(self, writes: Iterator[bases.Write]) -> None:
        """Carry out writes, which are prepared in a thread, one after the other."""
        while (write := await asyncio.to_thread(next, writes, None)) is not None:
            await self.committer.do(write)

    def _begin_epoch(self, epoch: int) -> None:
        """Remove snapshots that contain an erased user, and start a rebuild of the state."""
        self._epoch, self.saved = epoch, 0
        self._erasure.set()
        self.snapshots.discard(self._reader)

    def _check_epoch(self) -> None:
        """Complete erasures that were made, although the disk reported an error."""
        if (epoch := self._reader.facts().epoch) != self._epoch:
            self._begin_epoch(epoch)
        for user, decisions in self._reader.being_erased():
            if user not in self._being_erased:
                self.engine.forget(user, decisions)
                self._kept_running(self._erase_elsewhere(user, decisions))

    # --- background tasks --------------------------------------------------------------------

    async def _expire(self) -> None:
        await asyncio.sleep(EXPIRE_EVERY)
        if self.snapshots.owes:
            self.snapshots.discard(self._reader)
        with suppress(Refusal):
            self.committer.check()
            while lines := [*self.engine.expire(), *self.engine.evict()]:
                for one in lines:
                    self.committer.submit(one)
                await self.committer.settled()
            await self.committer.tidy()
            if self._reader.facts().unclean and not self._erasures:
                # A process that reads was in the way.
                await self._clean()

    async def _rebuild(self) -> None:
        """After an erasure, replay what is left of the journal and continue with that state.

        A replay is always finished, even if more users are erased meanwhile: they are removed from
        the new state as from the present one, and the next replay, which starts at once, does not
        read their lines. So no user is kept for longer than two replays.
        """
        if not self.rebuilding:
            self._erasure.clear()
            await self._erasure.wait()
        async with self._turn:
            epoch = self._epoch
            async with self._basing:
                self._erased_users = list(self._being_erased.items())
                state = (await asyncio.to_thread(self._beginning)).state
            self._forget_erased(state)
            await self._catch_up(state)
            if state.total.seq - self.saved >= WORTH_A_SNAPSHOT:
                # Under steady erasures there would be no other.
                await self._save_rebuilt(state, epoch)
                await self._catch_up(state)
            self.engine.replace(state)
            self._built = epoch
        if not self.rebuilding:
            self._rebuilt.set()

    def _beginning(self) -> Built:
        """Return the newest snapshot from before the erased users, the base, or an empty state."""
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            return beginning(reader, self.snapshots, exact=True)

    async def _catch_up(self, state: State) -> None:
        """Apply the lines that the present state has applied."""
        while state.total.seq < self.state.total.seq:
            await self._replay_some(state)
            self._forget_erased(state)

    def _forget_erased(self, state: State) -> None:
        # If they came back since, their new lines have not been read yet.
        while self._erased_users:
            state.forget(*self._erased_users.pop())

    async def _save_rebuilt(self, state: State, built: int) -> None:
        """Write a snapshot of a state that does not serve yet."""
        if await asyncio.to_thread(self._write_snapshot, state, self._epoch, built):
            self.saved = state.total.seq
        self.snapshots.discard(self._reader)

    async def _retain(self) -> None:
        """Let a base stand for lines that need not be kept, and delete them."""
        facts = self._reader.facts()
        if facts.dropped != facts.base:
            # The process was killed while it deleted lines.
            async with self._turn:
                await self._carry_out(self._drop(await asyncio.to_thread(self._pending_at_base)))
        await asyncio.sleep(EXPIRE_EVERY)
        if self.trouble is not None or self._keep.forever:
            return
        upto = retention.due(self._reader, self._keep, now=self.engine.wall)
        if upto is not None:
            async with self._turn:
                await self._retire(upto)

    async def _retire(self, upto: int) -> None:
        """Make a base for the lines up to `upto`, and delete these lines."""
        self._erased_since = list(self._being_erased.items())
        with bases.drafts(self.folder) as files:
            kind = "archive" if self.rules.archive else "base only"
            if failed := await self._run_process(str(upto), str(files), kind):
                LOG.error("no base of %s was made (exit status %d)", self.name, failed)
                self._sweep()
                await asyncio.sleep(60)
                return
            while self._reader.facts().base != upto:
                async with self._basing:
                    await self._store_base(files, upto)
            pending = await asyncio.to_thread(retention.pending_at, files)
        await self._carry_out(self._drop(pending))
        self.snapshots.purge(self._reader)

    async def _store_base(self, files: Path, upto: int) -> None:
        """Store a base without users who were erased since it was begun."""
        epoch = self._epoch
        gone, self._erased_since = self._erased_since, []
        if gone:
            await asyncio.to_thread(bases.forget, files, self._spec, gone)
            await asyncio.to_thread(archive.forget, self.folder, [user for user, _ in gone])
        await self._carry_out(self._store(files, upto, epoch))

    def _store(self, files: Path, upto: int, epoch: int) -> Iterator[bases.Write]:
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            facts = reader.facts()
            # An archive that was off for a while begins again where it was switched on.
            start = facts.archive_start if facts.archived == facts.base else facts.base
            yield from bases.store(
                self._journal, reader, files, line=upto, epoch=epoch,
                archived=(start, upto) if self.rules.archive else None,
            )  # fmt: skip

    def _pending_at_base(self) -> NDArray[Any]:
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            state = bases.begin(reader, self.folder, self._spec)
        return state.pending.column("seq")

    def _drop(self, pending: NDArray[Any]) -> Iterator[bases.Write]:
        with closing(JournalReader(self.folder / JOURNAL)) as reader:
            yield from retention.drop(self._journal, reader, pending)

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
        async with self._turn:
            if self.state.total.seq - self.saved >= WORTH_A_SNAPSHOT and not self.rebuilding:
                await self._take_snapshot()

    async def _take_snapshot(self) -> None:
        """Start a process that makes a snapshot from the last one and the journal."""
        seq, epoch = self.state.total.seq, self._epoch
        try:
            failed = await self._run_process()
        finally:
            self.snapshots.sweep()
            self.snapshots.discard(self._reader)
        if self._epoch != epoch:
            return
        if failed:
            LOG.error("no snapshot of %s was made (exit status %d)", self.name, failed)
        else:
            self.saved = seq

    async def _run_process(self, *more: str) -> int:
        """Run a process that makes a snapshot, or a base; return its exit status."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dyclu.service.disk.snapshots",
            str(self.folder),
            json.dumps(asdict(self._spec)),
            *more,
            # When this process ends, the pipe is closed and the other one ends too.
            stdin=asyncio.subprocess.PIPE,
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise

    def _count_batch(self, lines: int) -> None:
        self.batches += 1
        self.batched += lines


def _replay(path: Path, state: State, upto: int) -> None:
    with closing(JournalReader(path)) as reader:
        state.apply_all(reader.chunk(state.total.seq, upto=upto, most=REPLAYED))


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Raise a `FileError` that says what to do if the journal cannot be read."""
    try:
        yield
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        raise FileError(
            f"{path} is damaged ({error}); restore it from a backup, and delete the snapshots "
            "beside it"
        ) from None


async def _forever(job: Callable[[], Awaitable[None]]) -> None:
    """Repeat a job; failures are logged and do not end it."""
    while True:
        try:
            await job()
        except Exception:
            LOG.exception("a background task failed; it is tried again")
            await asyncio.sleep(1)
