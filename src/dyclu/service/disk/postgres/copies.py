"""Fill the copy of a journal: the SQLite file from which its owner reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from dyclu.service.disk.postgres.database import Claim
from dyclu.service.disk.sqlite.tables import TABLES, Transaction, connect

ROWS = 2000
"""Rows that are read at a time."""

_WHERE = "WHERE tenant = %(tenant)s AND partition = %(partition)s"
_TABLES = {
    "journal": 'seq, at, kind, ref, "user", of, body',
    "meta": "name, value",
    "base": "generation, file, part, bytes",
    "erased": "epoch, first",
    "erasing": '"user", decisions',
}
"""Tables of a copy, with the columns that are read for them."""


def fill(connection: Any, claim: Claim, path: Path) -> None:
    """Replace everything in the copy at `path` by what the database has; makes it if needed."""
    with closing(connect(path, durable=False)) as copy:
        copy.executescript(f"BEGIN;{TABLES}COMMIT;")
        with Transaction(copy):
            for table, columns in _TABLES.items():
                copy.execute(f"DELETE FROM {table}")
                source = "fact" if table == "meta" else table
                select = f"SELECT {columns} FROM dyclu.{source} {_WHERE}"
                _insert(copy, table, _rows(connection, select, claim.named))
            # What was deleted may be left in unused space.
            copy.execute("INSERT OR REPLACE INTO meta VALUES ('unclean', 1)")


def follow(connection: Any, claim: Claim, path: Path, *, after: int) -> None:
    """Add the lines after number `after`, which the database has and the copy has not."""
    columns = _TABLES["journal"]
    select = f"SELECT {columns} FROM dyclu.journal {_WHERE} AND seq > %(after)s"
    with closing(connect(path, durable=False)) as copy, Transaction(copy):
        _insert(copy, "journal", _rows(connection, select, {**claim.named, "after": after}))


def _rows(connection: Any, select: str, parameters: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    with connection.cursor(name="dyclu_copy") as cursor:
        cursor.itersize = ROWS
        cursor.execute(select, parameters)
        yield from cursor


def _insert(copy: sqlite3.Connection, table: str, rows: Iterator[tuple[Any, ...]]) -> None:
    marks = ", ".join("?" for _ in _TABLES[table].split(","))
    copy.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
