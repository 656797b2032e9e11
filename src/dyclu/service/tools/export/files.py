"""`write`: rows as a CSV or Parquet file, which is written completely or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dyclu.data.arms import headers
from dyclu.errors import MissingExtra

GROUP = 20_000
"""Rows per row group of a Parquet file."""

Column = tuple[str, type[Any]]
"""Name of a column, and the type of its values."""


def write(columns: Sequence[Column], rows: Iterator[list[Any]], path: Path) -> int:
    """Write rows and return their number; Parquet if `path` ends so, else CSV."""
    save = _parquet if path.suffix == ".parquet" else _csv
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = save(columns, rows, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def with_features(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """Return the columns of a table: these, then one per feature, under names of their own."""
    found = headers(names, beside=[name for name, _ in columns])
    return [*columns, *((name, float) for name in found)]


def _csv(columns: Sequence[Column], rows: Iterator[list[Any]], path: Path) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([name for name, _ in columns])
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def _parquet(columns: Sequence[Column], rows: Iterator[list[Any]], path: Path) -> int:
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
    shape = pyarrow.schema([(name, kinds[kind]) for name, kind in columns])
    count = 0
    with pyarrow.parquet.ParquetWriter(path, shape) as writer:
        while group := list(islice(rows, GROUP)):
            values = [list(column) for column in zip(*group, strict=True)]
            arrays = [pyarrow.array(v, f.type) for v, f in zip(values, shape, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=shape))
            count += len(group)
    return count
