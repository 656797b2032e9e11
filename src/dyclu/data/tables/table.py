"""Tables from anywhere: data frames, DuckDB relations, CSV and Parquet files, lists of dicts.

A table is read in batches of columns, as often as wanted. Frames are read through narwhals; none of
the libraries that make them is needed unless it made yours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike
from typing import Any

from dyclu.data.tables.cells import Cells, Columns
from dyclu.data.tables.files import Kinds, open_file
from dyclu.data.tables.suggestions import nearest
from dyclu.errors import KindError, MissingExtra, OptionError

BATCH = 8192
"""Rows of a batch."""

Part = Callable[[str], Any]
"""Some rows: takes the name of a column, returns its values."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be read in batches.

    Attributes
    ----------
    what, row : str
        What it is, and what a row is, for messages.
    names : tuple of str
        Its columns.
    rows : int or None
        Number of rows; None if it is known only after reading.
    parts : callable
        Takes names of columns; yields, for each batch, the number of rows and their columns.
    """

    what: str
    names: tuple[str, ...]
    rows: int | None
    parts: Callable[[list[str]], Iterator[tuple[int, Part]]]
    row: str = "row"

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Columns]]:
        """Yield the number of rows and the columns of each batch."""
        wanted = list(dict.fromkeys(columns))
        self.check(wanted)
        first = 0
        for rows, part in self.parts(wanted):
            yield rows, {name: Cells(name, part(name), first, self.row) for name in wanted}
            first += rows

    def check(self, columns: Sequence[str]) -> None:
        """Refuse names of columns that the table does not have."""
        for name in columns:
            if not self.names:
                raise OptionError(f"{self.what} is empty, expected rows with a column {name!r}")
            if name not in self.names:
                hint = nearest(name, self.names)
                raise OptionError(f"{self.what} has no column {name!r}, expected {hint}")


def batches(
    table: Any, columns: Sequence[str], kinds: Kinds | None = None
) -> Iterator[tuple[int, Columns]]:
    """Yield the number of rows and the columns of each batch of any table."""
    return as_table(table, kinds=kinds).batches(columns)


def as_items(source: Any, kinds: Kinds | None = None) -> Table:
    """Return a table of items, one per row."""
    return replace(as_table(source, what="the table of items", kinds=kinds), row="item")


def as_table(source: Any, *, what: str = "the table", kinds: Kinds | None = None) -> Table:
    """Return a table from a data frame, a relation, a list of dicts, or a file's path.

    `kinds` say what columns hold: a CSV file does not say whether ``007`` is a number. Other
    tables have types of their own, and are read as they are.

    >>> table = as_table([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    >>> [(rows, columns["a"].values) for rows, columns in table.batches(["a"])]
    [(2, [1, 2])]
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | PathLike):
        return _of_reader(*open_file(source, kinds or {}), what=f"{what} {source}")
    if isinstance(source, Sequence):
        return _of_dicts(source, what)
    return _of_frame(source, what)


def _of_dicts(rows: Sequence[Any], what: str) -> Table:
    names = tuple(rows[0]) if rows and isinstance(rows[0], Mapping) else ()
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise KindError(f"row {number} of {what} is {row!r}, expected a dict of columns")
        if row.keys() != rows[0].keys():
            odd = sorted(map(str, row.keys() ^ rows[0].keys()))[0]
            raise OptionError(
                f"row {number} and row 0 of {what} differ in the column {odd!r}; "
                "give all rows the same columns, with None where a value is missing"
            )

    def parts(wanted: list[str]) -> Iterator[tuple[int, Part]]:
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            yield len(some), lambda name, some=some: [row[name] for row in some]  # type: ignore[misc]

    return Table(what, names, len(rows), parts)


def _of_frame(source: Any, what: str) -> Table:
    nw = narwhals()
    try:
        frame = nw.from_native(source)
        names = tuple(frame.collect_schema().names())
    except nw.exceptions.DuplicateError as error:
        raise OptionError(f"{what} has two columns of one name ({error}); rename one") from None
    except TypeError:
        raise KindError(
            f"{what} is {type(source).__name__}, expected a data frame, a DuckDB relation, a list "
            "of dicts, or the path of a CSV or Parquet file"
        ) from None
    if isinstance(frame, nw.LazyFrame):
        return _of_lazy(source, names, what)

    def parts(wanted: list[str]) -> Iterator[tuple[int, Part]]:
        chosen = frame.select(wanted)
        for start in range(0, len(frame), BATCH):
            some = chosen[start : start + BATCH]
            yield min(BATCH, len(frame) - start), some.__getitem__

    return Table(what, names, len(frame), parts)


def _of_lazy(source: Any, names: tuple[str, ...], what: str) -> Table:
    """Return a table of a lazy frame, which is computed again at every reading."""
    library = type(source).__module__.partition(".")[0].lstrip("_")
    if library == "polars":

        def read(wanted: list[str]) -> Iterator[Any]:
            selected = source.select(wanted)
            return iter(selected.collect_batches(chunk_size=BATCH, maintain_order=True))

    elif library == "duckdb":

        def read(wanted: list[str]) -> Iterator[Any]:
            needed("pyarrow", "DuckDB relations")
            quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
            return _tables(source.project(quoted).to_arrow_reader(BATCH))

    else:
        raise KindError(
            f"{what} is a lazy frame of {library}, expected one of polars or DuckDB; "
            "collect it first, or write it to a Parquet file"
        )
    return _of_reader(names, None, read, what=what)


def _of_reader(
    names: tuple[str, ...],
    rows: int | None,
    read: Callable[[list[str]], Iterator[Any]],
    *,
    what: str,
) -> Table:
    nw = narwhals()

    def parts(wanted: list[str]) -> Iterator[tuple[int, Part]]:
        for native in read(wanted):
            frame = nw.from_native(native, eager_only=True)
            for start in range(0, len(frame), BATCH):
                some = frame[start : start + BATCH]
                yield len(some), some.__getitem__

    return Table(what, names, rows, parts)


def _tables(batches: Any) -> Iterator[Any]:
    """Yield record batches as tables, which narwhals knows."""
    pyarrow = import_module("pyarrow")
    for batch in batches:
        yield pyarrow.Table.from_batches([batch])


def narwhals() -> Any:
    """Return narwhals; raise `MissingExtra` if it is not installed."""
    return needed("narwhals", "data frames and files", extra="data")


def needed(library: str, what: str, *, extra: str | None = None) -> Any:
    """Return an optional library; raise `MissingExtra` if it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        package = f"'dyclu[{extra}]'" if extra else library
        raise MissingExtra(f"{what} need {library}; pip install {package}") from None
