"""`Journal`: what every durable list of lines can do, wherever it is kept.

Everything else the service knows follows from these lines. One owner appends them in order, in
batches; when `append` has returned, its lines survive kill -9 and a power cut. No id is used twice,
and no slot of a decision is rewarded twice.

Old lines may have been replaced by a *base*: the state after some line, stored in parts (`bases`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dyclu.service.disk.sqlite.reader import JournalReader

Row = tuple[int, int, str, str | None, str | None, int | None, str]
"""Number, time, kind, id, user, number of the decision, and body of a line."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a job in the thread of a journal, and gives its result to the event loop."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that the journal stores about itself.

    Attributes
    ----------
    id : str
        Random name of the journal; snapshots store it.
    epoch : int
        Number of erasures.
    served : str
        Policy that serves, as JSON.
    features : str
        Features that made its vectors, as JSON; empty if callers sent vectors.
    base, generation : int
        Line that the base stands for, 0 if there is none, and the number of its parts' generation.
    archive_start, archived : int
        Lines after the first and up to the second number are in the archive.
    dropped : int
        Line of the base whose lines have all been deleted.
    people : int
        Epoch that the last erasure of a user began; other erasures are of what was absorbed.
    unclean : int
        Not 0 if copies of erased lines may be in unused space (`scrub`); each erasure changes it.
    """

    dim: int
    secret: bytes
    epoch: int
    served: str
    features: str
    id: str
    base: int
    generation: int
    archive_start: int
    archived: int
    dropped: int
    people: int
    unclean: int


@dataclass(frozen=True, slots=True)
class ErasedLines:
    """What an erasure removed: how many lines, which decisions; and the epoch that began.

    `first` is the number of the user's first line, 0 if it is not known.
    """

    lines: int
    decisions: list[int]
    epoch: int
    first: int


class StoreError(OSError):
    """The place where a journal is kept took nothing; the message says why, without passwords."""


class Journal(ABC):
    """The only writer of a journal; all others use a `JournalReader`.

    Its methods raise `StoreError` or `sqlite3.Error` if nothing can be written. Then, whether the
    last write was made is known only after `reopen`.
    """

    @abstractmethod
    def flush(self) -> None:
        """Write what waits to be written to the file that is read; from the event loop.

        It is called before a thread works on the journal; raises `sqlite3.Error`.
        """

    @abstractmethod
    def reader(self) -> JournalReader:
        """Return a connection for reading, for the event loop."""

    @property
    @abstractmethod
    def owes(self) -> bool:
        """Whether erased lines may still be on the disk; `tidy` removes them when it can."""

    def note_served(self, policy: str) -> None:
        """Store which policy serves, for a later `dyclu replay`."""
        self.note("served", policy)

    @abstractmethod
    def note(self, name: str, fact: str) -> None:
        """Store a fact about the journal."""

    @abstractmethod
    def append(self, lines: Sequence[bytes]) -> set[int]:
        """Write encoded lines; on return they are durable.

        A line whose id is taken, or whose decision has ended, is left out. The numbers of such
        lines are returned; all others are written, or, if that fails, none.
        """

    @abstractmethod
    async def append_soon(self, lines: Sequence[bytes], in_thread: InThread) -> set[int]:
        """Do the same from the event loop, perhaps together with lines of other journals.

        Nothing else changes the journal meanwhile. What takes long is done `in_thread`.
        """

    @abstractmethod
    def taken_elsewhere(self, id: str, kind: str) -> bool:
        """Return whether a line of this kind in another partition has this id."""

    @abstractmethod
    def erase(self, user: str, mark: bytes, *, first: int | None = None) -> ErasedLines:
        """Delete all lines about a user, and append the line `mark`.

        `first` is the number of the user's first line if it is known. The user's name is noted
        until `end_erasure`: what else is stored about them has to be removed too.
        """

    @abstractmethod
    def end_erasure(self, user: str) -> None:
        """Remove the note of a user's name: nothing about them is stored any more."""

    @abstractmethod
    def clean(self, first: int) -> int | None:
        """Overwrite copies of erased lines in some pages, from number `first` (from 0) on.

        Returns the number of the page to go on with, 0 if this was the last one; None if a process
        that reads the journal is in the way, or if the disk is: then begin again later.
        """

    @abstractmethod
    def note_clean(self, unclean: int) -> None:
        """Store that all pages are clean, if nobody was erased since `unclean` was read."""

    @abstractmethod
    def put_part(self, generation: int, file: str, part: int, content: bytes) -> None:
        """Store a part of a base that is not in force yet."""

    @abstractmethod
    def put_in_force(
        self,
        generation: int,
        line: int,
        *,
        epoch: int | None = None,
        archived: tuple[int, int] | None = None,
    ) -> bool:
        """Let the stored base stand for the lines up to `line`; return whether it does.

        It does not if `epoch`, in which the base was made, is over: somebody in it was erased.
        `archived` are the lines in the archive: after the first and up to the second number.
        """

    @abstractmethod
    def drop_parts(self) -> bool:
        """Delete some parts of bases that are not in force; return whether any was left."""

    @abstractmethod
    def note_dropped(self, line: int) -> None:
        """Store that all lines that the base for `line` stands for have been deleted."""

    @abstractmethod
    def drop_lines(self, seqs: Sequence[int]) -> None:
        """Delete lines that the base stands for."""

    @abstractmethod
    def sharing(self, snapshots: Path) -> Iterator[Callable[[], object]]:
        """Yield the writes that give the latest snapshot in a folder to later owners.

        None are needed if this folder stays with the journal.
        """

    @abstractmethod
    def tidy(self) -> None:
        """Do what can wait, such as removing erased lines from a log; never wait for a reader."""

    @abstractmethod
    def reopen(self) -> None:
        """Take up writing, with a fresh connection; raises if nothing can be written."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""
