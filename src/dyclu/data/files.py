"""CSV and Parquet files, read in batches by pyarrow, or by polars if that is what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from dyclu.errors import FileError, KindError, MissingExtra, OptionError

BLOCK = 1 << 20
"""Bytes of a CSV file that are read at a time."""

ROWS = 8192
"""Rows of a Parquet file that are read at a time."""

Opened = tuple[tuple[str, ...], int | None, Callable[[list[str]], Iterator[Any]]]
"""Names of columns, number of rows if known, and what reads named columns in batches."""


def open_file(path: str | PathLike[str], text: Sequence[str]) -> Opened:
    """Return the columns of a file, and what reads it; `text` names columns that hold ids."""
    suffixes = Path(path).suffixes[-2:]
    kind = next((one for one in suffixes if one in (".csv", ".parquet")), None)
    if kind is None:
        raise OptionError(f"{fspath(path)} is no .csv or .parquet file; rename or convert it")
    if not Path(path).is_file():
        raise FileError(f"cannot read {fspath(path)} (no such file); check the path")
    openers = {
        ("pyarrow", ".csv"): _arrow_csv,
        ("pyarrow", ".parquet"): _arrow_parquet,
        ("polars", ".csv"): _polars_csv,
        ("polars", ".parquet"): _polars_parquet,
    }
    for library in ("pyarrow", "polars"):
        if find_spec(library) is not None:
            return _guarded(path, openers[library, kind], text)
    raise MissingExtra("files need pyarrow or polars; pip install pyarrow")


def _guarded(path: str | PathLike[str], opener: Callable[..., Opened], text: Any) -> Opened:
    """Open a file; whatever its library raises, also while reading, becomes a `FileError`."""
    try:
        names, rows, read = opener(fspath(path), text)
    except Exception as error:
        raise _unreadable(path, error) from None

    def guarded(wanted: list[str]) -> Iterator[Any]:
        batches = read(wanted)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception as error:
                raise _unreadable(path, error) from None
            yield batch

    return names, rows, guarded


def _unreadable(path: str | PathLike[str], error: Exception) -> Exception:
    if "onversion error" in str(error):
        return KindError(
            f"{fspath(path)}: {error}; the first rows of this column hold another kind of value"
        )
    return FileError(f"cannot read {fspath(path)} ({error}); check that the file is complete")


def _arrow_csv(path: str, text: Sequence[str]) -> Opened:
    pyarrow, csv = import_module("pyarrow"), import_module("pyarrow.csv")

    def opened(wanted: list[str] | None) -> Any:
        options = csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(text, pyarrow.string()),
            strings_can_be_null=True,
            # Only an empty cell is missing: "NA" is also a country.
            null_values=[""],
        )
        return csv.open_csv(
            path, read_options=csv.ReadOptions(block_size=BLOCK), convert_options=options
        )

    with opened(None) as first:
        names = tuple(first.schema.names)

    def read(wanted: list[str]) -> Iterator[Any]:
        with opened(wanted) as reader:
            for batch in reader:
                yield pyarrow.Table.from_batches([batch])

    return names, None, read


def _arrow_parquet(path: str, text: Sequence[str]) -> Opened:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        names, rows = tuple(file.schema_arrow.names), file.metadata.num_rows

    def read(wanted: list[str]) -> Iterator[Any]:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=wanted):
                yield pyarrow.Table.from_batches([batch])

    return names, rows, read


def _polars_csv(path: str, text: Sequence[str]) -> Opened:
    polars = import_module("polars")
    plain = polars.scan_csv(path, try_parse_dates=True)
    known = plain.collect_schema().names()
    types = {name: polars.String for name in text if name in known}
    return _polars(polars.scan_csv(path, try_parse_dates=True, schema_overrides=types))


def _polars_parquet(path: str, text: Sequence[str]) -> Opened:
    return _polars(import_module("polars").scan_parquet(path))


def _polars(frame: Any) -> Opened:
    def read(wanted: list[str]) -> Iterator[Any]:
        return iter(frame.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True))

    return tuple(frame.collect_schema().names()), None, read
