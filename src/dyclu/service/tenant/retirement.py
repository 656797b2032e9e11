"""`Retirement`: let a base stand for lines that need not be kept, and delete them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dyclu.service.disk import archive, bases, retention
from dyclu.service.disk.commit import Committer
from dyclu.service.engine.engine import Engine
from dyclu.service.settings import Keep
from dyclu.service.tenant.erasures import Erasures, Gone
from dyclu.service.tenant.files import TenantFiles, carry_out

LOG = logging.getLogger("dyclu.service")

CHECK_EVERY = 0.5
"""Seconds between two checks for lines that need not be kept."""

RETRY = 60.0
"""Seconds after which a base that could not be made is tried again."""


class Retirement:
    """Makes bases beside a tenant that serves; `keep` may be replaced."""

    def __init__(
        self,
        files: TenantFiles,
        engine: Engine,
        committer: Committer,
        erasures: Erasures,
        *,
        keep: Keep,
        archived: bool,
    ) -> None:
        self._files, self._engine, self._committer = files, engine, committer
        self._erasures, self.keep, self._archived = erasures, keep, archived

    async def run(self) -> None:
        """Wait a moment; make a base if one is due."""
        facts = self._files.reader.facts()
        if facts.dropped != facts.base:
            # The process was killed while it deleted lines.
            async with self._files.turn:
                await self._drop(await asyncio.to_thread(self._pending_at_base))
        await asyncio.sleep(CHECK_EVERY)
        if self._committer.trouble is not None or self.keep.forever:
            return
        upto = retention.due(self._files.reader, self.keep, now=self._engine.wall)
        if upto is not None:
            async with self._files.turn:
                made = await self._retire(upto)
            if not made:
                # Rebuilds and snapshots have their turns meanwhile.
                await asyncio.sleep(RETRY)

    async def _retire(self, upto: int) -> bool:
        """Make a base for the lines up to `upto`, and delete these; return whether it was made."""
        self._erasures.retiring = upto
        try:
            with self._erasures.followed() as gone:
                return await self._make(upto, gone)
        finally:
            self._erasures.retiring = None

    async def _make(self, upto: int, gone: list[Gone]) -> bool:
        files = self._files
        async with files.basing:
            # An attempt whose base could not be stored left the same lines in other files.
            archive.sweep(files.folder, files.reader.facts())
        with bases.drafts(files.folder) as drafts:
            kind = "archive" if self._archived else "base only"
            if failed := await files.run_process(str(upto), str(drafts), kind):
                LOG.error("no base of %s was made (exit status %d)", files.name, failed)
                # An erasure may be writing here too.
                async with files.basing:
                    files.sweep()
                return False
            while files.reader.facts().base != upto:
                async with files.basing:
                    await self._store(drafts, upto, gone)
            pending = await asyncio.to_thread(retention.pending_at, drafts)
        await self._drop(pending)
        files.snapshots.purge(files.reader)
        return True

    async def _store(self, drafts: Path, upto: int, gone: list[Gone]) -> None:
        """Store a base without users who were erased since it was begun."""
        files, epoch = self._files, self._erasures.epoch
        people, gone[:] = list(gone), []
        if people:
            await asyncio.to_thread(bases.forget, drafts, files.spec, people)
            await asyncio.to_thread(archive.forget, files.folder, [user for user, _ in people])
        await carry_out(self._storing(drafts, upto, epoch), self._committer)

    def _storing(self, drafts: Path, upto: int, epoch: int) -> Iterator[bases.Write]:
        with self._files.another_reader() as reader:
            facts = reader.facts()
            # An archive that was off for a while begins again where it was switched on.
            start = facts.archive_start if facts.archived == facts.base else facts.base
            yield from bases.store(
                self._files.journal, reader, drafts, line=upto, epoch=epoch,
                archived=(start, upto) if self._archived else None,
            )  # fmt: skip

    def _pending_at_base(self) -> NDArray[Any]:
        with self._files.another_reader() as reader:
            state = bases.begin(reader, self._files.folder, self._files.spec)
        return state.pending.column("seq")

    async def _drop(self, pending: NDArray[Any]) -> None:
        await carry_out(self._dropping(pending), self._committer)

    def _dropping(self, pending: NDArray[Any]) -> Iterator[bases.Write]:
        with self._files.another_reader() as reader:
            yield from retention.drop(self._files.journal, reader, pending)
