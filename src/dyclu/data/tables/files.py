"""CSV and Parquet files, read in batches by pyarrow, or by polars if that is what is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from dyclu.errors import DycluError, FileError, KindError, MissingExtra, OptionError

BLOCK = 1 << 20
"""Bytes of a CSV file that are read at a time."""

ROWS = 8192
"""Rows of a Parquet file that are read at a time."""

LIBRARIES = ("pyarrow", "polars")
"""Libraries that can read files, in the order in which they are tried."""

Opened = tuple[tuple[str, ...], int | None, Callable[[list[str]], Iterator[Any]]]
"""Names of columns, number of rows if known, and what reads named columns in batches."""

Kinds = Mapping[str, Literal["text", "number", "time"]]
"""What columns hold. A CSV file does not say it, and its first rows can mislead."""


def open_file(path: str | PathLike[str], kinds: Kinds) -> Opened:
    """Return the columns of a file, and what reads it; `kinds` say what a CSV column holds."""
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
    for library in LIBRARIES:
        if find_spec(library) is not None:
            return _guarded(path, openers[library, kind], kinds)
    raise MissingExtra("files need pyarrow or polars; pip install pyarrow")


def _guarded(path: str | PathLike[str], opener: Callable[..., Opened], kinds: Kinds) -> Opened:
    """Open a file; whatever its library raises, also while reading, becomes a `FileError`."""
    try:
        names, rows, read = opener(fspath(path), kinds)
    except Exception as error:
        raise _unreadable(path, error) from None

    def guarded(wanted: list[str]) -> Iterator[Any]:
        batches = read(wanted)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except DycluError:
                raise
            except Exception as error:
                raise _unreadable(path, error) from None
            yield batch

    return names, rows, guarded


def _unreadable(path: str | PathLike[str], error: Exception) -> Exception:
    if "could not parse" in str(error):
        return KindError(f"{fspath(path)}: {error}; earlier rows hold another kind of value")
    return FileError(f"cannot read {fspath(path)} ({error}); check that the file is complete")


def _arrow_csv(path: str, kinds: Kinds) -> Opened:
    pyarrow = import_module("pyarrow")
    with _csv_reader(path, None, {}) as first:
        guessed = {field.name: field.type for field in first.schema}
    types = {name: _arrow_type(kinds[name], guessed[name]) for name in guessed if name in kinds}

    def read(wanted: list[str]) -> Iterator[Any]:
        try:
            with _csv_reader(path, wanted, types) as reader:
                for batch in reader:
                    yield pyarrow.Table.from_batches([batch])
        except pyarrow.ArrowInvalid:
            raise _misfit(path, {name: (guessed | types)[name] for name in wanted}) from None

    return tuple(guessed), None, read


def _arrow_type(kind: str, guessed: Any) -> Any:
    """Return the type in which a column is read; `guessed` is that of its first values."""
    pyarrow = import_module("pyarrow")
    if kind == "text":
        return pyarrow.string()
    if kind == "time":
        return pyarrow.float64() if pyarrow.types.is_integer(guessed) else guessed
    # "true" and "false" are numbers too, and cannot be read as floats.
    return guessed if pyarrow.types.is_boolean(guessed) else pyarrow.float64()


def _csv_reader(path: str, wanted: list[str] | None, types: Mapping[str, Any]) -> Any:
    csv = import_module("pyarrow.csv")
    convert = csv.ConvertOptions(
        include_columns=wanted,
        column_types=types,
        strings_can_be_null=True,
        # Only an empty cell is missing: "NA" is also a country.
        null_values=[""],
    )
    blocks = csv.ReadOptions(block_size=BLOCK)
    return csv.open_csv(path, read_options=blocks, convert_options=convert)


def _misfit(path: str, types: Mapping[str, Any]) -> Exception:
    """Return the error for the first value that is not of the type of its column."""
    pyarrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    rows = 0
    with _csv_reader(path, list(types), dict.fromkeys(types, pyarrow.string())) as reader:
        for batch in reader:
            for name, type_ in types.items():
                # Spaces around a number are no fault: the reader of CSV files drops them.
                cells = compute.utf8_trim_whitespace(batch.column(name))
                try:
                    cells.cast(type_)
                except pyarrow.ArrowInvalid:
                    return _first_misfit(cells, name, type_, rows)
            rows += len(batch)
    return FileError(f"cannot read {path} (a row has too many or too few cells)")


def _first_misfit(cells: Any, name: str, type_: Any, first: int) -> Exception:
    number = type_ == import_module("pyarrow").float64()
    expected = "a number" if number else f"{type_} as in the rows before"
    for row, cell in enumerate(cells):
        try:
            cell.cast(type_)
        except ValueError:
            where = f"row {first + row}, column {name!r}"
            return KindError(
                f"{where}: got {cell.as_py()!r}, expected {expected}; "
                "repair the value, or leave it empty if it is missing"
            )
    raise AssertionError("a column that cannot be converted has a cell that cannot")


def _arrow_parquet(path: str, kinds: Kinds) -> Opened:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        names, rows = tuple(file.schema_arrow.names), file.metadata.num_rows

    def read(wanted: list[str]) -> Iterator[Any]:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=wanted):
                yield pyarrow.Table.from_batches([batch])

    return names, rows, read


def _polars_csv(path: str, kinds: Kinds) -> Opened:
    polars = import_module("polars")
    guessed = polars.scan_csv(path, try_parse_dates=True).collect_schema()
    types = {name: _polars_type(kinds[name], guessed[name]) for name in guessed if name in kinds}
    return _polars(polars.scan_csv(path, try_parse_dates=True, schema_overrides=types))


def _polars_type(kind: str, guessed: Any) -> Any:
    """Return the type in which a column is read, as `_arrow_type` does."""
    polars = import_module("polars")
    if kind == "text":
        return polars.String
    if kind == "time":
        return polars.Float64 if guessed.is_integer() else guessed
    return guessed if guessed == polars.Boolean else polars.Float64


def _polars_parquet(path: str, kinds: Kinds) -> Opened:
    return _polars(import_module("polars").scan_parquet(path))


def _polars(frame: Any) -> Opened:
    def read(wanted: list[str]) -> Iterator[Any]:
        return iter(frame.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True))

    return tuple(frame.collect_schema().names()), None, read
