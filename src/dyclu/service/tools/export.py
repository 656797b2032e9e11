"""`export`: write decisions and rewards as a table, CSV or Parquet."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from dyclu.errors import MissingExtra
from dyclu.service.disk.history import History
from dyclu.service.disk.sqlite.reader import JournalReader
from dyclu.service.engine.lines import MICRO, DecisionBody, EventBody, Line, RewardBody

COLUMNS: tuple[tuple[str, type[Any]], ...] = (
    ("line", int),
    ("at", str),
    ("kind", str),
    ("id", str),
    ("user", str),
    ("arm", str),
    ("offered", int),
    ("propensity", float),
    ("mean", float),
    ("width", float),
    ("model", int),
    ("version", int),
    ("would_choose", str),
    ("reward", float),
    ("reward_at", str),
    ("default", bool),
    ("slot", int),
    ("group", str),
)
"""Columns before the features ``x0``, ``x1``, …; empty where they do not apply."""

GROUP = 20_000
"""Rows per row group of a Parquet file."""


def export(
    reader: JournalReader, path: Path, *, progress: Callable[[int], None] = lambda _: None
) -> int:
    """Write the table and return its number of rows; Parquet if `path` ends so, else CSV.

    The file is written completely or not at all.
    """
    write = _parquet if path.suffix == ".parquet" else _csv
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = write(_rows(reader, progress), reader.facts().dim, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _rows(reader: JournalReader, progress: Callable[[int], None]) -> Iterator[list[Any]]:
    for line, rewards in History(reader).outcomes():
        progress(line.seq)
        head = [line.seq, _time(line.at), line.kind, line.ref, line.user]
        match line.body:
            case EventBody(x=x, value=value, at=at, propensity=chance):
                # An observation's time is that which its caller gave, if there is one.
                told = _time(line.at if at is None else round(at * MICRO))
                gap = [None] * 5
                yield [*head, None, None, chance, *gap, value, told, False, None, None, *x]
            case DecisionBody() as made:
                if made.at is not None:
                    head[1] = _time(round(made.at * MICRO))
                for slot in range(1, made.count + 1):
                    yield [*head, *_slot(made, slot, rewards.get(slot))]


def _slot(made: DecisionBody, slot: int, end: Line | None) -> list[Any]:
    """Return the row of a slot after its head."""
    one, tail = made.slot(slot), [None, None, None]
    if end is not None and isinstance(end.body, RewardBody):
        tail = [end.body.value, _time(end.at), end.body.default]  # type: ignore[list-item]
    return [
        one.arm,
        made.offered,
        one.propensity,
        one.mean,
        one.width,
        made.model,
        made.version,
        one.own,
        *tail,
        slot,
        made.group,
        *one.x,
    ]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / MICRO, UTC).isoformat(timespec="microseconds")


def _names(dim: int) -> list[str]:
    return [name for name, _ in COLUMNS] + [f"x{i}" for i in range(dim)]


def _csv(rows: Iterator[list[Any]], dim: int, path: Path) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_names(dim))
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def _parquet(rows: Iterator[list[Any]], dim: int, path: Path) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra(
            "Parquet needs pyarrow: pip install pyarrow, or name a file that ends in .csv"
        ) from None
    kinds = {
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
        bool: pyarrow.bool_(),
    }
    types = [kinds[kind] for _, kind in COLUMNS] + [pyarrow.float64()] * dim
    shape = pyarrow.schema(list(zip(_names(dim), types, strict=True)))
    count = 0
    with pyarrow.parquet.ParquetWriter(path, shape) as writer:
        while group := list(islice(rows, GROUP)):
            columns = [list(column) for column in zip(*group, strict=True)]
            arrays = [pyarrow.array(c, t) for c, t in zip(columns, types, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=shape))
            count += len(group)
    return count
