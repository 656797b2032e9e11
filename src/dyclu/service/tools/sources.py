"""`sources`: the journals that a command reads: one file, or a tenant's partitions in PostgreSQL.

They are copied to temporary files first, in one transaction that only reads. So all of them are
read as they were at one moment, and whoever serves them does not wait. An archive is not copied:
its files are those of the copied journal for good, but for an erasure, which takes all lines of a
user out of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyclu.errors import FileError, OptionError
from dyclu.service.disk.archive import ARCHIVE
from dyclu.service.disk.postgres import copies
from dyclu.service.disk.postgres.database import Claim, Database
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.storage import make_folder

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A copy of a journal.

    `partition` is its number, None for a file. `origin` says of what it is a copy.
    """

    reader: JournalReader
    partition: int | None = None
    origin: str = ""


@contextmanager
def sources(journal: Path | None, *, store: str | None, tenant: str) -> Iterator[list[Source]]:
    """Yield the journals of a file, or of a tenant in a database, as they are now.

    They are closed afterwards.
    """
    if (journal is None) == (store is None):
        raise OptionError(
            "expected the journal.db of a tenant, or --store with a cluster; pass one of them"
        )
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        if journal is not None:
            found = [_copied_file(journal, folder)]
        else:
            database = ends.enter_context(closing(Database(store or "", most=1)))
            found = list(_copied(database, tenant, folder))
        for one in found:
            ends.callback(one.reader.close)
        yield found


def _copied_file(journal: Path, folder: Path) -> Source:
    """Copy a journal, which may be served, and put its archive beside the copy."""
    path = folder / JOURNAL
    with closing(JournalReader(journal)) as reader:
        reader.copy_to(path)
    if (journal.parent / ARCHIVE).is_dir():
        (folder / ARCHIVE).symlink_to((journal.parent / ARCHIVE).absolute())
    return Source(JournalReader(path, alone=True), origin=str(journal))


def _copied(database: Database, tenant: str, folder: Path) -> Iterator[Source]:
    """Copy the partitions of a tenant that were ever served, and yield their journals."""
    with database.connection() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        for partition in _partitions(connection, database, tenant):
            path = folder / str(partition) / JOURNAL
            make_folder(path.parent)
            # No owner has epoch 0: with this claim nothing can be written.
            copies.fill(connection, Claim(tenant, partition, 0, ""), path)
            origin = f"partition {partition} of {tenant} in {database.shown}"
            yield Source(JournalReader(path, alone=True), partition, origin)


def _partitions(connection: Any, database: Database, tenant: str) -> list[int]:
    if connection.execute("SELECT to_regclass('dyclu.fact')").fetchone()[0] is None:
        raise FileError(f"{database.shown} holds no journals; name the database that dyclu serves")
    rows = connection.execute(
        "SELECT partition FROM dyclu.fact WHERE tenant = %s AND name = 'dim' ORDER BY partition",
        (tenant,),
    ).fetchall()
    if not rows:
        known = connection.execute("SELECT DISTINCT tenant FROM dyclu.fact ORDER BY 1").fetchall()
        names = ", ".join(name for (name,) in known) or "none"
        raise OptionError(
            f"{database.shown} has no journal of the tenant {tenant!r}, expected one of: {names}"
        )
    return [partition for (partition,) in rows]


def length(journals: Sequence[Source]) -> int:
    """Return the numbers of the last lines, added up, for a bar of progress."""
    return sum(one.reader.last() for one in journals)


def latest(journals: Sequence[Source]) -> int:
    """Return the time of the last line of all journals, 0 if there is none."""
    readers = [one.reader for one in journals]
    return max((line.at for one in readers for line in one.after(one.last() - 1)), default=0)


def in_turn(journals: Sequence[Source], progress: Progress) -> Iterator[tuple[Source, Progress]]:
    """Yield each journal, and what takes the number of its current line."""
    before = 0
    for one in journals:
        yield one, lambda seq, before=before: progress(before + seq)  # type: ignore[misc]
        before += one.reader.last()
