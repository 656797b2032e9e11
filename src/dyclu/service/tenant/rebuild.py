"""`Rebuild`: after an erasure, replay what is left of the journal and continue with that state."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path

from dyclu.service.disk.commit import Committer
from dyclu.service.disk.snapshots import Built, beginning
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.engine import Engine
from dyclu.service.engine.state import State
from dyclu.service.tenant.erasures import Erasures, Gone
from dyclu.service.tenant.files import TenantFiles

REPLAYED, FEW = 100, 20
"""Lines that are replayed at a time, and how many of the last are replayed without a pause."""

WORTH_A_SNAPSHOT = 100
"""Lines since the last snapshot that are needed for another one."""


class Rebuild:
    """Replays the journal beside a tenant that serves.

    Attributes
    ----------
    built : int
        Epoch (number of erasures) that the present state was computed for.
    done : asyncio.Event
        Set when the present state is exact again.
    """

    def __init__(
        self,
        files: TenantFiles,
        engine: Engine,
        committer: Committer,
        erasures: Erasures,
        *,
        built: int,
    ) -> None:
        self._files, self._engine, self._committer = files, engine, committer
        self._erasures, self.built = erasures, built
        self.done = asyncio.Event()
        self._state: State | None = None
        self._since = time.monotonic()

    @property
    def needed(self) -> bool:
        """Whether the present state was computed before a user was erased."""
        return self.built != self._erasures.epoch

    @property
    def lag_lines(self) -> int:
        """Lines that a rebuild has yet to replay; 0 if none is needed."""
        if not self.needed:
            return 0
        done = self._files.reader.facts().base if self._state is None else self._state.total.seq
        return self._engine.state.total.seq - done

    @property
    def lag_seconds(self) -> float:
        """Seconds for which the state has not been exact; 0 if it is."""
        if not self.needed:
            return 0.0
        # An erasure of an earlier process: since the start.
        return self._erasures.age(self.built) or time.monotonic() - self._since

    async def run(self) -> None:
        """Wait for an erasure, if there was none, and rebuild once.

        A replay is always finished, even if more users are erased meanwhile: they are removed from
        the new state as from the present one, and the next replay, which starts at once, does not
        read their lines. So no user is kept for longer than two replays.
        """
        if not self.needed:
            self._erasures.begun.clear()
            await self._erasures.begun.wait()
        async with self._files.turn:
            epoch = self._erasures.epoch
            try:
                await self._rebuild(epoch)
            finally:
                self._state = None
            self.built = epoch
        if not self.needed:
            self.done.set()

    async def _rebuild(self, epoch: int) -> None:
        files = self._files
        with self._erasures.followed() as gone:
            async with files.basing:
                state = (await asyncio.to_thread(self._beginning)).state
            _forget(gone, state)
            self._state = state
            await self._catch_up(state, gone)
            if state.total.seq - files.saved >= WORTH_A_SNAPSHOT:
                # Under steady erasures there would be no other.
                await self._save(state, epoch)
                await self._catch_up(state, gone)
            self._engine.replace(state)

    def _beginning(self) -> Built:
        """Return the newest snapshot from before the erased users, the base, or an empty state."""
        with self._files.another_reader() as reader:
            return beginning(reader, self._files.snapshots, exact=True)

    async def _catch_up(self, state: State, gone: list[Gone]) -> None:
        """Apply the lines that the present state has applied."""
        while state.total.seq < self._engine.state.total.seq:
            await self.replay_some(state)
            _forget(gone, state)

    async def replay_some(self, state: State) -> None:
        """Apply the next lines in a thread, between requests; the last few without a pause."""
        upto = self._engine.state.total.seq
        if upto - state.total.seq > FEW:
            # In the event loop, each slice would delay several requests. A thread yields to them,
            # and pauses for half of the time if there are any.
            began, batches = time.monotonic(), self._committer.batches
            await asyncio.to_thread(_replay, self._files.reader.path, state, upto)
            pause = self._committer.batches > batches
            await asyncio.sleep((time.monotonic() - began) * pause)
            return
        state.apply_all(self._files.reader.after(state.total.seq, upto=upto))
        if state.total.seq < upto:
            # The last line was erased, and the line that records this is about to be applied.
            await asyncio.sleep(0)

    async def _save(self, state: State, built: int) -> None:
        """Write a snapshot of a state that does not serve yet."""
        write, epoch = self._files.write_snapshot, self._erasures.epoch
        if await asyncio.to_thread(write, state, epoch=epoch, built=built):
            self._files.saved = state.total.seq
        self._files.snapshots.discard(self._files.reader)


def _forget(gone: list[Gone], state: State) -> None:
    """Remove users who were erased; the list is empty afterwards."""
    # If they came back since, their new lines have not been read yet.
    while gone:
        state.forget(*gone.pop())


def _replay(path: Path, state: State, upto: int) -> None:
    with closing(JournalReader(path)) as reader:
        state.apply_all(reader.chunk(state.total.seq, upto=upto, most=REPLAYED))
