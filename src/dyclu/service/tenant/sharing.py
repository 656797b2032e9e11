"""`Sharing`: a tenant that is one of several shards learns from the others, and they from it.

What others have published is absorbed as lines of the journal, so that the state stays a function
of the journal. What this shard has learnt is published when it is news (docs/theory.md §11.3).
After an erasure, everything published is replaced by what was learnt without the erased user; what
others had absorbed of the former is erased from their journals within `OUTDATED`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol, TypeVar
from zlib import crc32

from dyclu.contributions import Contribution, Registry
from dyclu.policy import THRESHOLD
from dyclu.service.disk.commit import Committer
from dyclu.service.disk.journal import StoreError
from dyclu.service.engine.engine import Engine, MustWait
from dyclu.service.engine.lines import MICRO, OTHERS, AbsorbedBody
from dyclu.service.refusal import Refusal
from dyclu.service.tenant.erasures import Erasures
from dyclu.service.tenant.files import TenantFiles
from dyclu.service.tenant.rebuild import Rebuild

LOG = logging.getLogger("dyclu.service")

TICK = 0.25
"""Seconds between two looks at what others have published, and at what was learnt here."""

EVERY = 4
"""Rewards after which the policy is asked whether it has news."""

REST, LONGEST_REST = 20, 2.0
"""The policies of a process are asked for news in turns. After each turn, so many times as long as
it took (and at most these seconds) none is asked: about a twentieth of the process's time."""

AT_ONCE = 8
"""Contributions per line: to apply one takes a fraction of a millisecond."""

OUTDATED = 86_400.0
"""Seconds after which lines that may hold rewards of an erased user of another shard are erased."""

RETRY = 5.0
"""Seconds after which a registry that did not answer is asked again."""

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the registry: a contribution, as bytes, too.

    `built` is the last erasure of a user of its shard whose rewards are surely not in it. `number`
    grows with each row that this process reads.
    """

    contribution: Contribution
    data: bytes
    built: int
    number: int = 0


class Shard(Protocol):
    """The place of one shard in the registry of its tenant.

    Attributes
    ----------
    name : str
        Name under which it publishes.
    turn : asyncio.Lock
        Held while its policy is asked for news.
    asking : asyncio.Lock
        Held while the registry is asked: if it does not answer, one thread and one connection of
        the process wait for it, and not those that erasures, take-overs and commits need.
    """

    name: str
    turn: asyncio.Lock
    asking: asyncio.Lock

    def of_others(self, after: int) -> Sequence[Published]:
        """Return what others of the same policy have published, as read last, in order."""
        ...

    def own(self) -> list[Published]:
        """Read what this shard has published; raises `StoreError`."""
        ...

    def publish(self, built: int, contributions: Sequence[Contribution]) -> None:
        """Replace what was published of these models; raises `StoreError`."""
        ...

    def leave(self, *, stays: bool) -> None:
        """Remove what was published as another policy, and, unless it `stays`, as this one."""
        ...


def name_of(partition: int, policy: str) -> str:
    """Return the name of a shard: what policies of another kind have learnt is of no use.

    >>> name_of(3, "atlas")
    '3@atlas'
    """
    return f"{partition}@{policy}"


def outdated_after(name: str) -> float:
    """Return the seconds after which this shard erases what may hold rewards of an erased user.

    All shards have absorbed it within seconds, and each replays its journal afterwards. So they do
    it at different times, in the last tenth of `OUTDATED`.
    """
    return OUTDATED * (1.0 - 0.1 * crc32(name.encode()) / 2**32)


class Sharing:
    """Absorbs and publishes; used from the event loop.

    Attributes
    ----------
    absorbed, published : int
        Contributions since the start.
    trouble : str or None
        Why nothing can be published at present.
    """

    def __init__(
        self,
        shard: Shard,
        files: TenantFiles,
        engine: Engine,
        committer: Committer,
        erasures: Erasures,
        rebuild: Rebuild,
        *,
        wanted: bool,
    ) -> None:
        self._shard, self._files, self._engine = shard, files, engine
        self._committer, self._erasures, self._rebuild = committer, erasures, rebuild
        self._shares = wanted and engine.state.policy.shares
        self._seen, self._asked = 0, -1
        self._said: Registry | None = None
        self._said_built = 0
        self._retry_at = 0.0
        self._epoch = self._people = -1
        self.absorbed = self.published = 0
        self.trouble: str | None = None

    async def run(self) -> None:
        """Wait a moment; absorb what others have published, and publish what is news."""
        await asyncio.sleep(TICK)
        if self._committer.trouble is not None:
            return
        try:
            await self._purge()
            if self._shares:
                await self._absorb()
        except (Refusal, MustWait):
            # Too much waits for the disk, or an erasure is under way: later.
            return
        if time.monotonic() >= self._retry_at:
            await self._speak()

    # --- absorbing ---------------------------------------------------------------------------

    async def _absorb(self) -> None:
        rows = self._shard.of_others(self._seen)
        for body in _bodies(row for row in rows if self._is_news(row)):
            self._committer.check()
            line = self._engine.absorb(body)
            await self._committer.submit(line)
            self.absorbed += len(body.contributions)
        if rows:
            self._seen = rows[-1].number

    def _is_news(self, row: Published) -> bool:
        one = row.contribution
        return self._engine.state.absorbed.is_news(one.shard, one.model, one.age)

    async def _purge(self) -> None:
        """Erase what was absorbed if it may be of an erased user, or is of no use any more.

        All of it: then the newest of what others have published is absorbed again.
        """
        absorbed = self._engine.state.absorbed
        late = absorbed.outdated
        wait = outdated_after(self._shard.name)
        due = late is not None and self._engine.wall - late >= wait * MICRO
        if due or (absorbed.shards and not all(map(self._useful, absorbed.shards))):
            # First: an erasure that fails is finished later, by others.
            self._seen = 0
            await self._erasures.erase(OTHERS)

    def _useful(self, shard: str) -> bool:
        same = shard.partition("@")[2] == self._shard.name.partition("@")[2]
        return self._shares and same

    # --- publishing --------------------------------------------------------------------------

    async def _speak(self) -> None:
        """Publish what is news; if the registry does not answer, go on without it."""
        try:
            await self._publish()
        except StoreError as error:
            if self.trouble is None:
                LOG.error("%s cannot publish what it has learnt: %s", self._files.name, error)
            self.trouble = str(error)
            # Whether the last write was made is not known.
            self._said, self._asked = None, -1
            self._retry_at = time.monotonic() + RETRY
        else:
            self.trouble = None

    async def _publish(self) -> None:
        if self._said is None:
            await self._ask(partial(self._shard.leave, stays=self._shares))
            rows = await self._ask(self._shard.own)
            self._said = Registry(row.contribution for row in rows)
            self._said_built = min((row.built for row in rows), default=self._built())
        built, version = self._built(), self._engine.state.total.version
        replaces = self._said_built < built
        if not self._shares or not (replaces or abs(version - self._asked) >= EVERY):
            return
        async with self._shard.turn:
            began = time.thread_time()
            news = self._replacement() if replaces else self._news()
            await asyncio.sleep(min(REST * (time.thread_time() - began), LONGEST_REST))
        self._asked = version
        if news:
            await self._ask(partial(self._shard.publish, built, news))
        for one in news:
            self._said.add(one)
        self._said_built = built
        self.published += len(news)

    async def _ask(self, job: Callable[[], A]) -> A:
        async with self._shard.asking:
            return await asyncio.to_thread(job)

    def _built(self) -> int:
        """Return the last erasure of a user that the present state was computed without."""
        if self._epoch != self._erasures.epoch:
            self._epoch, self._people = self._erasures.epoch, self._files.reader.facts().people
        return min(self._rebuild.built, self._people)

    def _news(self) -> list[Contribution]:
        assert self._said is not None
        policy, name = self._engine.state.policy, self._shard.name
        return list(policy.contributions(name, since=self._said, threshold=THRESHOLD))

    def _replacement(self) -> list[Contribution]:
        """Return what replaces everything published: what is known now, and what is gone."""
        assert self._said is not None
        policy, gone = self._engine.state.policy, Registry(map(Contribution.gone, self._said))
        for one in policy.contributions(self._shard.name, since=gone, threshold=0.0):
            gone.add(one)
        return list(gone)


def _bodies(rows: Iterable[Published]) -> Iterator[AbsorbedBody]:
    """Yield the bodies of the lines by which contributions are absorbed, in order."""
    for (shard, built), group in groupby(rows, lambda row: (row.contribution.shard, row.built)):
        data = [row.data for row in group]
        for start in range(0, len(data), AT_ONCE):
            yield AbsorbedBody(shard, built, data[start : start + AT_ONCE])
