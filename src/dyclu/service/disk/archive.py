"""The archive: lines that a base stands for, as Parquet files by day; other programs may read them.

A file is named after its day (UTC) and its first and last line. It holds the rows of the journal as
they were. Files beyond the last archived line, which the journal stores, do not count: a process
was killed before the base that goes with them was in force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from dyclu.errors import MissingExtra
from dyclu.service.disk.journal import Facts, Row
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import MICRO
from dyclu.storage import make_folder, sync_folder

ARCHIVE = "archive"
"""Name in a tenant's folder."""

COLUMNS = ("seq", "at", "kind", "ref", "user", "of", "body")
GROUP = 20_000
"""Rows per row group: so many are in memory at a time."""

_NAME = re.compile(r"[0-9-]{10}\.([0-9]{20})-([0-9]{20})\.parquet")


def library() -> Any:
    """Return pyarrow, or say that it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra(
            "archive = true needs pyarrow: pip install 'dyclu[archive]', or set archive = false"
        ) from None
    return pyarrow


def write(reader: JournalReader, tenant: Path, *, after: int, upto: int) -> None:
    """Write the lines after `after`, up to and including `upto`."""
    folder = tenant / ARCHIVE
    make_folder(folder)
    for day, rows in groupby(reader.rows(after, upto=upto), key=lambda row: _day(row[1])):
        _write_day(folder, day, rows)
    sync_folder(folder)


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / MICRO, UTC).date().isoformat()


def _write_day(folder: Path, day: str, rows: Iterable[Row]) -> None:
    draft = folder / f".{day}.{os.getpid()}"
    first = last = 0
    arrow = library()
    with arrow.parquet.ParquetWriter(draft, _schema()) as writer:
        group: list[Row] = []
        for row in rows:
            first, last = first or row[0], row[0]
            group.append(row)
            if len(group) == GROUP:
                writer.write_table(_table(group))
                group = []
        if group:
            writer.write_table(_table(group))
    _put(draft, folder / f"{day}.{first:020d}-{last:020d}.parquet")


def _schema() -> Any:
    arrow = library()
    number, text = arrow.int64(), arrow.string()
    types = (number, number, text, text, text, number, text)
    return arrow.schema(list(zip(COLUMNS, types, strict=True)))


def _table(rows: list[Row]) -> Any:
    arrow, shape = library(), _schema()
    columns = zip(*rows, strict=True)
    arrays = [arrow.array(list(c), f.type) for c, f in zip(columns, shape, strict=True)]
    return arrow.Table.from_arrays(arrays, schema=shape)


def _put(draft: Path, path: Path) -> None:
    """Give a complete file its name; it is on the disk afterwards."""
    handle = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    draft.replace(path)


def files(tenant: Path) -> list[tuple[int, Path]]:
    """Return the files of the archive with the numbers of their last lines, in order."""
    folder = tenant / ARCHIVE
    found = [(_NAME.fullmatch(p.name), p) for p in folder.iterdir()] if folder.is_dir() else []
    named = [(int(m[1]), int(m[2]), path) for m, path in found if m]
    return [(last, path) for _, last, path in sorted(named)]


def sweep(tenant: Path, facts: Facts) -> None:
    """Remove drafts, and files that go with no base."""
    for last, path in files(tenant):
        if last > facts.archived:
            path.unlink(missing_ok=True)
    for draft in (tenant / ARCHIVE).glob(".*"):
        draft.unlink(missing_ok=True)


def rows(tenant: Path, facts: Facts) -> Iterator[Row]:
    """Yield the archived rows, in order."""
    for last, path in files(tenant):
        if last <= facts.archived:
            for batch in library().parquet.ParquetFile(path).iter_batches(GROUP):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def holds(tenant: Path, user: str) -> bool:
    """Return whether any line in the archive is about a user."""
    wanted = [("user", "==", user)]
    return any(
        library().parquet.read_table(path, columns=["seq"], filters=wanted).num_rows
        for _, path in files(tenant)
    )


def forget(tenant: Path, users: Iterable[str]) -> bool:
    """Rewrite the files that hold lines of these users, without them; return whether any did."""
    there, names = files(tenant), list(users)
    if not there or not names:
        return False
    arrow = library()
    gone: set[int] = set()
    for _, path in there:
        made = arrow.parquet.read_table(path, columns=["seq"], filters=[("user", "in", names)])
        gone.update(made.column("seq").to_pylist())
    if gone:
        for _, path in there:
            _rewrite(path, arrow.array(sorted(gone)))
        sync_folder(tenant / ARCHIVE)
    return bool(gone)


def _rewrite(path: Path, gone: Any) -> None:
    """Remove the lines with these numbers, and lines about decisions with these numbers."""
    arrow = library()
    table = arrow.parquet.read_table(path)
    theirs = arrow.compute.is_in(table.column("seq"), value_set=gone)
    ended = arrow.compute.is_in(table.column("of"), value_set=gone)
    kept = table.filter(arrow.compute.invert(arrow.compute.or_(theirs, ended)))
    if kept.num_rows < table.num_rows:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        arrow.parquet.write_table(kept, draft)
        _put(draft, path)
