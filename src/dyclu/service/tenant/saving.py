"""`Saving`: take snapshots now and then, in a process of low priority."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from dyclu.service.disk.commit import Committer
from dyclu.service.engine.engine import Engine
from dyclu.service.tenant.erasures import Erasures
from dyclu.service.tenant.files import TenantFiles, carry_out
from dyclu.service.tenant.rebuild import WORTH_A_SNAPSHOT, Rebuild

LOG = logging.getLogger("dyclu.service")


class Saving:
    """Takes snapshots of a tenant that serves, every `every` seconds."""

    def __init__(
        self,
        files: TenantFiles,
        engine: Engine,
        committer: Committer,
        erasures: Erasures,
        rebuild: Rebuild,
        *,
        every: float,
    ) -> None:
        self._files, self._engine, self._committer = files, engine, committer
        self._erasures = erasures
        self._rebuild, self._every = rebuild, every

    async def run(self) -> None:
        """Wait until a snapshot is due, or a rebuild is done, which removed all others; take it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._rebuild.done.wait()
        self._rebuild.done.clear()
        async with self._files.turn:
            new = self._engine.state.total.seq - self._files.saved
            if new >= WORTH_A_SNAPSHOT and not self._rebuild.needed:
                await self.take()

    async def take(self) -> None:
        """Start a process that makes a snapshot from the last one and the journal."""
        files, seq, epoch = self._files, self._engine.state.total.seq, self._erasures.epoch
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
            files.saved = seq
            await carry_out(files.sharing(), self._committer)

    def save(self) -> None:
        """Take a snapshot in this process, unless the latest is as new."""
        state = self._engine.state
        if state.total.seq != self._files.saved and self._files.write_snapshot(
            state, epoch=self._erasures.epoch, built=self._rebuild.built
        ):
            self._files.saved = state.total.seq
