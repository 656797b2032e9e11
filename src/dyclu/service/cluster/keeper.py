"""`Keeper`: keeps the lease of a process, and serves the partitions that it owns.

Every moment it renews the lease and looks who owns what. It takes over partitions that nobody owns,
up to its share, hands over those beyond it, and drops those that others have taken. What cannot be
opened here is left to others for a while. If the database does not answer until the lease is over,
requests are refused: others may own the partitions by now.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dyclu.errors import OptionError
from dyclu.service.cluster.leases import Leases, Overview, partition_of_decision
from dyclu.service.cluster.places import Place, with_partition
from dyclu.service.cluster.registry import PartitionShard, SharedRegistry
from dyclu.service.disk.journal import StoreError
from dyclu.service.disk.postgres.database import Claim, Database
from dyclu.service.disk.postgres.journal import PostgresJournal
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Settings
from dyclu.service.tenant.public import PUBLIC, public
from dyclu.service.tenant.tenant import Tenant, new_id

LOG = logging.getLogger("dyclu.service")

ROUNDS = 8
"""Rounds during one lease: so often it is renewed."""

LONGEST = 1.0
"""Seconds between two rounds, at most."""

MARGIN = 0.02
"""Seconds after the end of a lease at which a round looks at it; rounds also take some time."""

AT_ONCE = 4
"""Partitions that start, or stop, at the same time."""

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also runs while the machine sleeps, where there is one (Linux)."""

DRAIN = 10.0
"""Seconds that requests under way are given before their partition is handed over."""

REFUSED = 15.0
"""Seconds for which a partition that could not be opened here is left to others."""


class Serving:
    """A partition that this process owns, and the requests that it answers now."""

    def __init__(self, claim: Claim, tenant: Tenant) -> None:
        self.claim, self.tenant = claim, tenant
        self.active, self.begun, self.ending = 0, False, False
        self.opening = asyncio.Lock()

    @contextmanager
    def request(self) -> Iterator[Tenant]:
        """Count a request until it is answered; refuse it if the partition is handed over."""
        if self.ending:
            raise not_here(f"partition {self.claim.partition} is handed over")
        self.active += 1
        try:
            yield self.tenant
        finally:
            self.active -= 1


class Keeper:
    """Keeps the lease of this process; used from the event loop.

    Attributes
    ----------
    overview : Overview
        Who owned what in the last round.
    serving : dict of Place to Serving
        Partitions that this process owns.
    refused : dict of Place to str
        Why partitions could not be opened here; they are left to others for a while.
    trouble : str or None
        Why the lease cannot be renewed.
    took : float
        Seconds that the last renewal took.
    key : str
        The secret by which processes of the cluster know each other.
    registry : SharedRegistry
        What partitions have learnt, for each other.
    """

    def __init__(self, settings: Settings, database: Database, folder: Path, *, name: str) -> None:
        self.settings, self.name, self.id = settings, name, secrets.token_hex(8)
        self.overview = Overview({}, {})
        self.serving: dict[Place, Serving] = {}
        self.refused: dict[Place, str] = {}
        self._refused_until: dict[Place, float] = {}
        self.trouble: str | None = "the cluster is being joined"
        self._database, self._folder, self._lease = database, folder, settings.lease
        # Its own connection: the lease must be renewed also if copies and writes use all others.
        self._own = database.another(most=1)
        self._leases = Leases(self._own, self.id, name, lease=settings.lease)
        self._thread = ThreadPoolExecutor(1, "dyclu-keeper")
        self._finding = ThreadPoolExecutor(4, "dyclu-find")
        self._loop: asyncio.Task[None] | None = None
        self._url = ""
        self._valid, self._seen = 0.0, steady()
        self.took = 0.0
        self._leaving = False
        self._turns, self._beside = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore()
        self._jobs: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        partitions = {tenant: one.partitions for tenant, one in settings.tenants.items()}
        self._leases.set_up(partitions)
        self.key = self._leases.key()
        self.registry = SharedRegistry(database)

    # --- joining and leaving -----------------------------------------------------------------

    async def join(self, url: str) -> None:
        """Begin to serve; `url` is where others reach this process."""
        self._url = url
        end = time.monotonic() + self._lease + 2
        while not await self._do(self._leases.register, url):
            if time.monotonic() > end:
                raise OptionError(
                    f"another process called {self.name} is in this cluster; set another name"
                )
            await asyncio.sleep(0.2)
        self._loop = asyncio.create_task(self._run())
        self.registry.begin()

    async def leave(self) -> None:
        """Hand over all partitions, and end the lease."""
        self._leaving = True
        self._wake.set()
        while self.serving and self.trouble is None:
            await asyncio.sleep(0.05)
        if self._loop is not None:
            self._loop.cancel()
        for one in list(self.serving.values()):
            self._drop(one)
        await asyncio.gather(*self._jobs, return_exceptions=True)
        try:
            await self._do(self._leases.leave)
        except OSError as error:
            LOG.error("the lease ends by itself: %s", error)
        for threads in (self._thread, self._finding):
            await asyncio.to_thread(threads.shutdown)
        await asyncio.to_thread(self.registry.close)
        for database in (self._own, self._database):
            database.close()

    def follow(self, settings: Settings) -> None:
        """Continue with other settings of tenants."""
        self.settings = settings
        for place, one in self.serving.items():
            one.tenant.follow(settings.tenants[place[0]])

    # --- questions ---------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse if the lease may be over: what is known here may not be true any more."""
        if steady() > self._valid:
            raise not_here(self.trouble or "the lease of this process is over")

    def local(self, place: Place) -> Serving | None:
        """Return a partition that this process owns."""
        self.check()
        return self.serving.get(place)

    def owner_url(self, place: Place) -> str:
        """Return the address of the owner of a partition; refuse if there is none."""
        owner = self.overview.owner(place)
        if owner is None or owner.id == self.id:
            why = f"; here: {self.refused[place]}" if place in self.refused else ""
            raise not_here(f"partition {place[1]} of {place[0]} has no owner at present{why}")
        return owner.url

    @property
    def age(self) -> float:
        """Seconds since the last round in which the database answered."""
        return steady() - self._seen

    async def find(self, tenant: str, id: str) -> int | None:
        """Return the partition of a decision whose id a caller chose; None if there is none."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._finding, partition_of_decision, self._database, tenant, id
            )
        except OSError as error:
            raise not_here(str(error)) from None

    async def refresh(self) -> None:
        """Look again who owns what."""
        self._wake.set()
        self.overview = await self._do(self._leases.overview, list(self.settings.tenants))

    # --- rounds ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except OSError as error:
                self._tell(str(error))
            except Exception:
                LOG.exception("a round of the cluster failed; it is tried again")
            self._wake.clear()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _pause(self) -> float:
        """Return the seconds until the next round: less if the lease of another ends before."""
        lefts = [one.left - self.age for one in self.overview.processes.values()]
        ends = [left + MARGIN for left in lefts if left > 0]
        return min(LONGEST, self._lease / ROUNDS, *ends)

    def _tell(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            LOG.log(
                logging.INFO if trouble is None else logging.ERROR,
                "cluster: %s", trouble or "the lease is renewed",
            )  # fmt: skip
        self.trouble = trouble

    async def _round(self) -> None:
        began = steady()
        self._allow_again()
        if not await self._do(self._leases.renew, leaving=self._leaving, refused=len(self.refused)):
            await self._rejoin()
            return
        self.took = steady() - began
        self.overview = await self._do(self._leases.overview, list(self.settings.tenants))
        mine = self.overview.of(self.id)
        for place, one in list(self.serving.items()):
            if mine.get(place) != one.claim.epoch and not one.ending:
                LOG.warning("partition %d of %s has another owner now", place[1], place[0])
                self._drop(one)
        self._valid, self._seen = began + self._lease, began
        self._tell(None)
        for place, epoch in mine.items():
            if place not in self.serving:
                # Claimed by an answer that did not arrive.
                await self._do(self._leases.release, Claim(*place, epoch, self.id))
        await self._balance()

    async def _rejoin(self) -> None:
        """Register again, with nothing: others have taken everything over."""
        self._valid = 0.0
        for one in list(self.serving.values()):
            self._drop(one)
        if not await self._do(self._leases.register, self._url):
            self._tell(f"another process called {self.name} has joined; set another name")

    async def _balance(self) -> None:
        """Take over partitions up to our share, or hand over those beyond it."""
        share = 0 if self._leaving else self.overview.share(self.id)
        staying = [one for one in self.serving.values() if not one.ending]
        for one in staying[share:][:AT_ONCE]:
            self._drop(one)
        if not self._leaving and len(staying) < share:
            tenants, most = list(self.settings.tenants), share - len(staying)
            for claim in await self._do(self._leases.claim, tenants, most, but=self.refused):
                self._spawn(self._begin(self._taken(claim)))

    def _taken(self, claim: Claim) -> Serving:
        folder = self._folder / claim.tenant / f"{claim.partition}-{claim.epoch}"
        rules = self.settings.tenants[claim.tenant]
        tenant = Tenant(
            f"{claim.tenant}/{claim.partition}",
            folder,
            rules,
            # The time that is left for rewards must not depend on who takes over.
            clock=self._leases.clock,
            opens=partial(PostgresJournal.open, self._database, claim),
            new_id=lambda at: with_partition(new_id(at), claim.partition),
            shard=PartitionShard(self.registry, self._database, claim, rules.policy),
            beside=self._beside,
            saves_here=True,
            broken=lambda: self._refuse(one, tenant.stopped or ""),
        )
        one = self.serving[claim.tenant, claim.partition] = Serving(claim, tenant)
        return one

    async def _begin(self, one: Serving) -> None:
        async with self._turns:
            async with one.opening:
                if one.ending:
                    return
                one.begun = True
                if not await self._opened(one):
                    return
                one.tenant.begin(snapshot_every=self.settings.snapshot_every)
            while one.tenant.starting and not one.ending:
                await asyncio.sleep(0.02)
        if one.tenant.stopped is not None:
            self._refuse(one, one.tenant.stopped)

    async def _opened(self, one: Serving) -> bool:
        """Copy the journal of a partition; return whether it can be served."""
        try:
            await asyncio.to_thread(one.tenant.open)
        except StoreError as error:
            LOG.error("%s cannot be opened: %s", one.tenant.name, error)
            self._drop(one)
        except Exception as error:
            LOG.error("%s: %s", one.tenant.name, error, exc_info=not isinstance(error, PUBLIC))
            self._refuse(one, f"{one.tenant.name} cannot be opened: {public(error)}")
        else:
            return True
        return False

    def _refuse(self, one: Serving, why: str) -> None:
        """Give up a partition that cannot be served here; for a while others may try."""
        place = (one.claim.tenant, one.claim.partition)
        if self.refused.get(place) != why:
            LOG.error("%s; it is left to other processes for %.0f s", why, REFUSED)
        self.refused[place] = why
        self._refused_until[place] = steady() + REFUSED
        self._drop(one)

    def _allow_again(self) -> None:
        """Try partitions again whose time is over."""
        for place, until in list(self._refused_until.items()):
            if steady() > until:
                del self.refused[place], self._refused_until[place]

    def _drop(self, one: Serving) -> None:
        """Serve a partition no longer."""
        if not one.ending:
            one.ending = True
            self._spawn(self._end(one))

    async def _end(self, one: Serving) -> None:
        """Stop a partition, store a snapshot for its next owner, and give it up."""
        if one.begun:
            await self._stop(one)
        # What waits for its turn to be opened need not wait for it to be given up.
        place = (one.claim.tenant, one.claim.partition)
        if self.serving.get(place) is one:
            del self.serving[place]
        try:
            await self._do(self._leases.release, one.claim)
        except OSError as error:
            LOG.error("%s is given up when the lease ends: %s", one.tenant.name, error)
        self._wake.set()
        await asyncio.to_thread(shutil.rmtree, one.tenant.folder, ignore_errors=True)

    async def _stop(self, one: Serving) -> None:
        """Answer what was asked, and stop."""
        async with self._turns:
            end = time.monotonic() + DRAIN
            while one.active and time.monotonic() < end:
                await asyncio.sleep(0.01)
            try:
                async with one.opening:
                    await one.tenant.stop()
            except Exception:
                LOG.exception(
                    "%s did not stop in order; nothing acknowledged is lost", one.tenant.name
                )

    # --- tools -------------------------------------------------------------------------------

    async def _do(self, job: Any, *arguments: Any, **more: Any) -> Any:
        """Do something with the database in the keeper's own thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(job, *arguments, **more))

    def _spawn(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def steady() -> float:
    """Return seconds of this clock; it runs on while the process is stopped."""
    return time.clock_gettime(CLOCK)


def not_here(reason: str) -> Refusal:
    """Return the refusal of a request that this process cannot answer now."""
    return Refusal(503, "moved", reason, retry_after=1)
