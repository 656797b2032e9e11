"""`Start`: compute a tenant's state from what is on disk, and say how far it is."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dyclu.errors import DycluError, FileError
from dyclu.service.disk import archive
from dyclu.service.disk.snapshots import Built, Preview, preview, recover
from dyclu.service.spec import warm_up
from dyclu.service.tenant.files import TenantFiles
from dyclu.service.tenant.public import kind

LOG = logging.getLogger("dyclu.service")

SAVE_EVERY = 30.0
"""Seconds of a replay after which a snapshot is written on the way."""

SAY_EVERY = 5.0
"""Seconds after which the log says how far the replay is."""

MOMENT = 2.0
"""Seconds after which the log says what takes so long."""

WORTH_A_PREVIEW = 20_000
"""Lines to be replayed from which on an earlier state is read, to be shown meanwhile."""


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

    @property
    def doing(self) -> str:
        """What the start does now, in words; a journal without new lines leaves the kernels.

        >>> Progress().doing, Progress(total=7).doing
        ('compiled code is loaded, or made by a first start', 'the journal is replayed')
        """
        if self.total:
            return "the journal is replayed"
        return "compiled code is loaded, or made by a first start"


class Start:
    """Computes the state in a thread; `stop` may be set from another one.

    Attributes
    ----------
    progress : Progress
        How far it is.
    preview : Preview or None
        An earlier state that reads are answered from meanwhile, if the replay is long.
    stop : threading.Event
        Set it to end the start early; what was replayed is saved.
    """

    def __init__(self, files: TenantFiles) -> None:
        self._files = files
        self.progress = Progress()
        self.preview: Preview | None = None
        self.stop = threading.Event()

    def run(self) -> Built:
        """Return the state after the last line."""
        with _damage_told(self._files.reader.path):
            return self._run()

    def _run(self) -> Built:
        files = self._files
        with _told_if_slow("the loops of the policy are being compiled, once per installation"):
            warm_up(files.spec)
        files.sweep()
        self._finish_erasures()
        files.snapshots.discard(files.reader)
        files.snapshots.discard_ahead(files.reader.last())
        self._said = self._kept = time.monotonic()
        built = recover(files.reader, files.snapshots, progress=self._go_on)
        line = built.state.total.seq
        LOG.info(
            "tenant %s is at line %d: %d replayed, the others are in a snapshot or base",
            files.name, line, self.progress.done,
        )  # fmt: skip
        return built

    def _finish_erasures(self) -> None:
        """Finish what a process that was killed during an erasure left undone."""
        files = self._files
        for user, decisions in files.reader.being_erased():
            for write in files.without(user, decisions):
                write()
            archive.forget(files.folder, [user])
            files.journal.end_erasure(user)
        for write in files.cleaning():
            if self.stop.is_set():
                raise Stopped
            write()

    def _go_on(self, built: Built) -> None:
        """Tell how far the replay is; save it now and then, and when it has to stop."""
        if not self.progress.total:
            self._begin(built.state.total.seq)
        self.progress.done = built.state.total.seq - self._from
        self._say()
        stopping = self.stop.is_set()
        if time.monotonic() - self._kept > SAVE_EVERY or (stopping and self.progress.done):
            epoch = self._files.reader.facts().epoch
            self._files.write_snapshot(built.state, epoch=epoch, built=built.epoch)
            self._kept = time.monotonic()
        if stopping:
            raise Stopped

    def _begin(self, line: int) -> None:
        """Note where the replay begins."""
        self._from = line
        self.progress.total = self._files.reader.last() - line
        if self.progress.total > WORTH_A_PREVIEW and self.preview is None:
            try:
                self.preview = preview(self._files.reader, self._files.snapshots)
            except (DycluError, OSError) as error:
                LOG.warning("nothing is shown while tenant %s starts: %s", self._files.name, error)
        self.progress.began = time.monotonic()

    def _say(self) -> None:
        if time.monotonic() - self._said > SAY_EVERY:
            self._said = time.monotonic()
            LOG.info(
                "tenant %s replays its journal: %d of %d lines, about %.0f s left",
                self._files.name, self.progress.done, self.progress.total,
                self.progress.seconds_left or 0,
            )  # fmt: skip


@contextmanager
def _told_if_slow(what: str) -> Iterator[None]:
    """Log what is being done if it takes more than a moment."""
    timer = threading.Timer(MOMENT, LOG.info, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Raise a `FileError` that says what to do if the journal cannot be read."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # A full or failing disk; a damaged file raises another error.
        LOG.error("%s cannot be read or written: %s", path, error)
        raise FileError(
            f"{path} cannot be read or written ({kind(error)}); see to the disk, then start again"
        ) from None
    except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
        LOG.error("%s is damaged: %s", path, error)
        raise FileError(
            f"{path} is damaged ({kind(error)}); restore it from a backup, and delete the "
            "snapshots beside it"
        ) from None
