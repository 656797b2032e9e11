"""`Tenant`: one policy with its engine, journal and snapshots; tenants share nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from dyclu.service import schema
from dyclu.service.disk import archive
from dyclu.service.disk.commit import Committer, unavailable
from dyclu.service.disk.provenance import made_by
from dyclu.service.disk.snapshots import Snapshots
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.advice import missing_zeros
from dyclu.service.engine.checks import Given, checked_arms
from dyclu.service.engine.choosing.choice import ranking
from dyclu.service.engine.choosing.reasons import Reasons
from dyclu.service.engine.engine import Engine, MustWait, Reply
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Keep, TenantSettings
from dyclu.service.tenant.erasures import Erasures
from dyclu.service.tenant.files import OpenJournal, TenantFiles
from dyclu.service.tenant.public import PUBLIC, public
from dyclu.service.tenant.rebuild import Rebuild
from dyclu.service.tenant.retirement import Retirement
from dyclu.service.tenant.saving import Saving
from dyclu.service.tenant.sharing import Shard, Sharing
from dyclu.service.tenant.start import Progress, Start, Stopped

LOG = logging.getLogger("dyclu.service")

EXPIRE_EVERY = 0.5
"""Seconds between two checks for overdue decisions."""

SLICE = 0.005
"""Seconds for which a ranking is computed before other requests get a turn."""

ATTEMPTS = 50
"""How often a request waits for other requests with the same id, at most."""

A = TypeVar("A")


def new_id(at: int) -> str:
    """Return a unique id; ids sort by time."""
    return f"{at:014x}-{secrets.token_hex(8)}"


class Tenant:
    """Serves one tenant from the event loop, between `start` and `stop`.

    Attributes
    ----------
    clock : callable
        Gives the time that lines get.
    stopped : str or None
        Why this tenant does not serve at all, such as a damaged journal. If that happened while it
        served, its state in memory may be wrong, so nothing of it is answered or saved.
    sharing : Sharing or None
        What learns from other shards of the same tenant; None without a cluster, or while starting.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        rules: TenantSettings,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        opens: OpenJournal = SqliteJournal.open,
        new_id: Callable[[int], str] = new_id,
        shard: Shard | None = None,
        beside: asyncio.Semaphore | None = None,
        saves_here: bool = False,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.rules, self.folder = name, rules, folder
        self._opens, self._new_id = opens, new_id
        self.clock, self._steady = clock, steady
        self.stopped: str | None = None
        self._shard, self._beside, self._saves_here = shard, beside, saves_here
        self._broken = broken
        self.sharing: Sharing | None = None
        self._opened = self._computed = self._serves = False
        self._starting: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ranking = asyncio.Lock()
        self._advised = False

    # --- starting and stopping ---------------------------------------------------------------

    def open(self) -> None:
        """Open the journal; raises if it cannot be used. Nothing is read from it yet."""
        self.files = TenantFiles(
            self.name, self.folder, self.rules.spec(),
            features=self.rules.features, opens=self._opens, beside=self._beside,
        )  # fmt: skip
        self._start = Start(self.files)
        self._opened = True
        if self.rules.archive:
            archive.library()

    async def recover(self) -> None:
        """Compute the state from the journal; nothing is written until then."""
        built = await asyncio.to_thread(self._start.run)
        self.engine = Engine(
            built.state,
            self.files.reader,
            self.rules,
            clock=self.clock,
            steady=self._steady,
            new_id=self._new_id,
            secret=self.files.reader.facts().secret,
        )
        self._recovered = built.epoch
        self.files.saved = self.files.snapshots.used
        self._computed = True

    def begin(self, *, snapshot_every: float) -> None:
        """Start in the background; `serving` says when it is done. Needs a running event loop."""
        self._starting = asyncio.create_task(self._begin(snapshot_every))

    async def _begin(self, snapshot_every: float) -> None:
        try:
            await self.start(snapshot_every=snapshot_every)
        except Stopped:
            LOG.info("tenant %s was told to stop while it was starting", self.name)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Do not serve, because of this error; other tenants go on."""
        self._stop_for(public(error))
        LOG.error("%s is stopped by: %s", self.name, error, exc_info=not isinstance(error, PUBLIC))

    def _stop_for(self, why: str) -> None:
        self.stopped = f"tenant {self.name} is stopped: {why}"
        LOG.error("%s", self.stopped)

    def _break(self) -> None:
        """Stop serving, since the state in memory no longer follows from the journal."""
        self._stop_for(self.committer.trouble or "")
        for task in self._tasks:
            task.cancel()
        self._broken()

    async def start(self, *, snapshot_every: float) -> None:
        """Compute the state; start writing, expiring decisions, and taking snapshots."""
        if not self._computed:
            await self.recover()
        await self._set_up(snapshot_every)
        for warning in self.state.policy.warnings:
            LOG.warning("the policy of %s warns: %s", self.name, warning)
        jobs = [self._expire, self.rebuild.run, self.retirement.run, self.saving.run]
        if self.sharing is not None:
            jobs.append(self.sharing.run)
        self._tasks = [asyncio.create_task(_forever(job)) for job in jobs]
        self._serves = True
        self._start.preview = None
        # Settings may have been read again meanwhile.
        self.follow(self.rules)

    async def _set_up(self, snapshot_every: float) -> None:
        """Make the parts that work beside the requests."""
        files, engine = self.files, self.engine
        self.committer = Committer(
            files.journal,
            files.reader,
            engine,
            max_queue=self.rules.limits.max_queue,
            served=json.dumps(asdict(files.spec)),
            healed=lambda: self.erasures.resume(),
            broken=self._break,
        )
        self.erasures = Erasures(files, engine, self.committer)
        self.rebuild = Rebuild(files, engine, self.committer, self.erasures, built=self._recovered)
        self.retirement = Retirement(
            files, engine, self.committer, self.erasures,
            keep=Keep.parsed(self.rules.keep), archived=self.rules.archive,
        )  # fmt: skip
        self.saving = Saving(
            files, engine, self.committer, self.erasures, self.rebuild,
            every=snapshot_every, here=self._saves_here,
        )  # fmt: skip
        if self._shard is not None:
            self.sharing = Sharing(
                self._shard, files, engine, self.committer, self.erasures, self.rebuild,
                wanted=self.rules.share,
            )  # fmt: skip
        await self.committer.begin()

    async def stop(self) -> None:
        """Write what is in flight, take a snapshot, and close."""
        if not self._opened:
            return
        self._start.stop.set()
        if self._starting is not None:
            await self._starting
        if self._serves:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *self.erasures.running, return_exceptions=True)
            await self.committer.stop()
        if self.serving:
            await self._tidy_up()
        self.files.close()

    async def _tidy_up(self) -> None:
        """Finish cleaning, and take a last snapshot."""
        # A disk that takes nothing must not prevent the rest.
        with suppress(sqlite3.Error, OSError):
            for write in self.files.cleaning():
                write()
            self.files.sweep()
        # While a disk heals, an erasure may be half done: the state may still hold the user.
        if self.committer.trouble is None:
            self.save()
        with suppress(OSError):
            await asyncio.to_thread(self._share)

    def _share(self) -> None:
        for write in self.files.sharing():
            write()

    def save(self) -> None:
        """Take a snapshot in this process, unless the latest is as new."""
        self.saving.save()

    # --- what it is like now -----------------------------------------------------------------

    @property
    def progress(self) -> Progress | None:
        """How far the start is; None once it serves."""
        if self._serves:
            return None
        return self._start.progress if self._opened else Progress()

    @property
    def serving(self) -> bool:
        """Whether requests can be answered."""
        return self._serves and self.stopped is None

    @property
    def starting(self) -> bool:
        """Whether the state is being computed; `progress` says how far it is."""
        return not self._serves and self.stopped is None

    @property
    def broke(self) -> bool:
        """Whether it was stopped while it served: a new start may bring it back."""
        return self._serves and self.stopped is not None

    @property
    def shows(self) -> bool:
        """Whether reads can be answered: it serves, or shows an earlier state while it starts."""
        if not self._opened:
            return False
        return self.serving or (self.starting and self._start.preview is not None)

    def check_serving(self, *, writing: bool = True) -> None:
        """Refuse if this tenant cannot serve at all, or is starting and has nothing to show."""
        if self.stopped is not None:
            raise Refusal(503, "stopped", self.stopped, retry_after=60)
        if (writing or not self.shows) and (progress := self.progress) is not None:
            left = progress.seconds_left
            done = f": {progress.done} of {progress.total} lines" if progress.total else ""
            wait = 1 if left is None else max(1, min(60, round(left)))
            raise Refusal(503, "starting", f"{progress.doing}{done}", retry_after=wait)

    @property
    def state(self) -> State:
        """The state after all lines that are on disk; an earlier one while it starts."""
        preview = self._start.preview
        return self.engine.state if preview is None else preview.state

    @property
    def origin(self) -> tuple[int, dict[str, str]]:
        """What the present state was made by: number of erasures before it, and versions."""
        preview = self._start.preview
        return (
            (self.built, made_by(self.rules.spec().name))
            if preview is None
            else (preview.built, preview.made_by)
        )

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present, None if it can."""
        return self.committer.trouble if self._serves else self._start.progress.doing

    @property
    def snapshots(self) -> Snapshots:
        """Its snapshots."""
        return self.files.snapshots

    @property
    def rebuilding(self) -> bool:
        """Whether the state is being computed again because a user was erased, or by a start."""
        return self.rebuild.needed if self._serves else True

    @property
    def base(self) -> int:
        """Line up to which the base stands for the lines; 0 if there is no base."""
        return self.files.reader.facts().base

    @property
    def built(self) -> int:
        """Epoch (number of erasures) that the present state was computed for."""
        return self.rebuild.built

    def follow(self, rules: TenantSettings) -> None:
        """Continue with other settings; policy, dimension and what is kept stay the same."""
        self.rules = rules
        if self.serving:
            self.engine.follow(rules)
            self.committer.follow(rules.limits.max_queue)

    # --- requests ----------------------------------------------------------------------------

    async def decide(
        self,
        asked: schema.DecisionRequest,
        order: list[int] | None = None,
        reasons: Reasons | None = None,
    ) -> schema.Decided:
        """Choose an arm; the decision is on disk. `order` is the ranking, if already known.

        `reasons` name the features of the arms, if an explanation is asked for.
        """
        if order is None and asked.rank is True:
            order = await self.ranked(asked)
        return await self._when_on_disk(lambda: self.engine.decide(asked, order, reasons))

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

    async def reward(
        self, id: str, asked: schema.RewardRequest | schema.NamedReward
    ) -> schema.Rewarded:
        """Accept rewards of a decision; they are on disk, and learnt unless they settle later."""
        given = Given.of(asked)
        return await self._when_on_disk(lambda: self.engine.reward(id, given))

    async def activate(self, id: str) -> schema.Activated:
        """Activate an inactive decision."""
        return await self._when_on_disk(lambda: self.engine.activate(id))

    async def observe(self, observation: schema.Observation) -> schema.Observed:
        """Accept an observation from another source; it is on disk and learnt."""
        return await self._when_on_disk(lambda: self.engine.observe(observation))

    async def erase(self, user: str) -> schema.Erased:
        """Erase a user from the disk; the state in memory is computed again without them."""
        done = await self.erasures.erase(user)
        return schema.Erased(user, done.lines, rebuilding=self.rebuilding, exact=done.exact)

    async def _when_on_disk(self, ask: Callable[[], Reply[A]]) -> A:
        """Ask the engine; return its answer once the line behind it is on disk."""
        for _ in range(ATTEMPTS):
            self.committer.check()
            try:
                reply = ask()
            except MustWait:
                await self._progress_of_others()
                continue
            except Refusal as refusal:
                if refusal.status == 410:
                    await self._end_overdue()
                raise
            except sqlite3.Error as error:
                raise unavailable(f"the journal cannot be read: {error}") from None
            left_out = await self.committer.submit(*reply.lines) if reply.lines else set[int]()
            if not any(line.seq in left_out for line in reply.lines):
                return reply.answer
            for line in reply.lines:
                if line.seq in left_out and line.ref is not None:
                    await self._check_elsewhere(line.ref, line.kind)
        raise Refusal(503, "busy", "others are busy with the same id", retry_after=1)

    async def _check_elsewhere(self, id: str, kind: str) -> None:
        """Refuse an id that a line of another partition has; those of this one are looked up."""
        if await self.committer.do(lambda: self.files.journal.taken_elsewhere(id, kind)):
            field = f"{kind}_id"
            raise Refusal(409, "conflict", f"this {field} was used for another user", field=field)

    async def _progress_of_others(self) -> None:
        """Wait for lines in flight; if there are none, for the end of an erasure."""
        if self.committer.idle and (running := self.erasures.running):
            await asyncio.wait(running, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        await self.committer.settled()
        await asyncio.sleep(0)

    async def _end_overdue(self) -> None:
        """Return when the ends of all overdue decisions are on disk.

        Until then a refusal must not say so: the next owner has another clock, and could accept a
        copy of the same request that comes later.
        """
        while lines := self.engine.expire():
            self.committer.submit(*lines)
            await self.committer.settled()
        await self.committer.settled()

    async def _expire(self) -> None:
        """Wait a moment; end overdue decisions, push out users, and retry what failed."""
        await asyncio.sleep(EXPIRE_EVERY)
        if self.snapshots.owes:
            self.snapshots.discard(self.files.reader)
        self._advise()
        self.committer.flush()
        with suppress(Refusal):
            self.committer.check()
            while lines := [*self.engine.expire(), *self.engine.evict()]:
                self.committer.submit(*lines)
                await self.committer.settled()
            await self.erasures.look_after()

    def _advise(self) -> None:
        """Log once if only clicks are learnt."""
        warning = missing_zeros(self.state.total, self.rules)
        if warning is not None and not self._advised:
            LOG.warning("tenant %s: %s", self.name, warning)
        self._advised = warning is not None


async def _forever(job: Callable[[], Awaitable[None]]) -> None:
    """Repeat a job; failures are logged and do not end it."""
    while True:
        try:
            await job()
        except Exception:
            LOG.exception("a background task failed; it is tried again")
            await asyncio.sleep(1)
