"""`TenantFiles`: what one tenant has on disk, and whose turn it is to change it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Protocol

from dyclu.data import Features
from dyclu.errors import FileError
from dyclu.service.disk import archive, bases
from dyclu.service.disk.commit import Committer
from dyclu.service.disk.journal import Journal
from dyclu.service.disk.locks import locked
from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import make_folder, sync_folder

LOG = logging.getLogger("dyclu.service")


class OpenJournal(Protocol):
    """Opens a journal whose lines can be read from the SQLite file at `path`."""

    def __call__(self, path: Path, *, dim: int, features: Features | None) -> Journal:
        """Open the journal, or begin one; refuse it if it holds other vectors."""
        ...


class TenantFiles:
    """Journal, base, archive and snapshots of one tenant; raises if the journal cannot be used.

    Attributes
    ----------
    journal : Journal
        The only writer; once the tenant serves, only the committer's thread uses it.
    reader : JournalReader
        For short reads from the event loop.
    snapshots : Snapshots
        The snapshots.
    saved : int
        Line of the latest snapshot that may be used, 0 if there is none.
    turn : asyncio.Lock
        Held by a rebuild, a snapshot or a retirement, so that only one of them runs at a time.
    beside : asyncio.Semaphore
        Held while a snapshot or a base is made; tenants of a process may share it.
    basing : asyncio.Lock
        Held while base or archive are read or changed, also by erasures.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        spec: PolicySpec,
        *,
        features: Features | None = None,
        opens: OpenJournal = SqliteJournal.open,
        beside: asyncio.Semaphore | None = None,
    ) -> None:
        self.name, self.folder, self.spec = name, folder, spec
        make_folder(folder)
        for above in (folder.parent, folder.parent.parent):
            sync_folder(above)
        # A link may lead two tenants to one folder; then each would miss the lines of the other.
        self._unlock = locked(folder, of=folder)
        try:
            self.journal = opens(folder / JOURNAL, dim=spec.dim, features=features)
            self.reader = self.journal.reader()
            self.snapshots = Snapshots(folder / SNAPSHOTS, spec, self.reader.facts().id)
        except BaseException:
            self._unlock()
            raise
        self.saved = 0
        self.turn, self.basing = asyncio.Lock(), asyncio.Lock()
        self.beside = beside or asyncio.Semaphore()

    def another_reader(self) -> closing[JournalReader]:
        """Return a reader for another thread, which is closed at the end of a `with`."""
        return closing(JournalReader(self.folder / JOURNAL))

    def close(self) -> None:
        """Close the journal."""
        self.reader.close()
        self.journal.close()
        self._unlock()

    def sweep(self) -> None:
        """Remove what a process left half-made, with users who may have been erased since."""
        bases.sweep(self.folder)
        archive.sweep(self.folder, self.reader.facts())
        self.snapshots.sweep()

    def write_snapshot(self, state: State, *, epoch: int, built: int) -> bool:
        """Write a snapshot; return whether it is there and contains nobody erased since."""
        line = state.total.seq
        with self.another_reader() as reader:
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

    def without(self, user: str, decisions: list[int]) -> Iterator[bases.Write]:
        """Yield the writes that remove a user from the base."""
        with self.another_reader() as reader:
            yield from bases.without(
                self.journal, reader, self.folder, self.spec, [(user, decisions)]
            )

    def cleaning(self) -> Iterator[bases.Write]:
        """Yield the writes that overwrite copies of erased lines in unused space of the journal.

        They end early if a process that reads is in the way.
        """
        with self.another_reader() as reader:
            unclean = reader.facts().unclean
        page: int | None = 0

        def clean_some(first: int) -> None:
            nonlocal page
            page = self.journal.clean(first)

        while unclean and page is not None:
            yield partial(clean_some, page)
            if page == 0:
                yield partial(self.journal.note_clean, unclean)
                return

    def sharing(self) -> Iterator[bases.Write]:
        """Yield the writes that give the latest snapshot to later owners of the journal."""
        yield from self.journal.sharing(self.folder / SNAPSHOTS)

    async def run_process(self, *more: str) -> int:
        """Run a process that makes a snapshot, or a base; return its exit status.

        Tenants that share a semaphore take turns: each process takes a second of CPU time, and the
        memory of a whole service.
        """
        async with self.beside:
            # It reads the file.
            self.journal.flush()
            return await self._run_process(*more)

    async def _run_process(self, *more: str) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dyclu.service.disk.snapshots",
            str(self.folder),
            json.dumps(asdict(self.spec)),
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


async def carry_out(writes: Iterator[bases.Write], committer: Committer) -> None:
    """Carry out writes, which are prepared in a thread, one after the other."""
    while (write := await asyncio.to_thread(next, writes, None)) is not None:
        await committer.do(write)
