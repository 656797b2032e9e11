"""Cells: the values of one column, read as numbers, ids or tags, with errors that say where.

Values come from a data frame (a narwhals series), from an array, or from a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from dyclu.data.tables.labels import as_label, is_missing
from dyclu.data.tables.suggestions import nearest
from dyclu.errors import DycluError, KindError, NumberError, OptionError
from dyclu.validation import LARGEST, FloatArray

Columns = Mapping[str, "Cells"]
CONVERT = "convert it with float()"
CONVERT_OR_DECLARE = f"{CONVERT}, or declare the column as a category"


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """One column of some rows.

    Attributes
    ----------
    column : str
        Its name.
    values : series, array or list
        One value per row.
    first : int
        Number of the first row, for messages; rows are counted from 0.
    what : str
        What a row is, for messages.
    """

    column: str
    values: Any
    first: int = 0
    what: str = "row"

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: slice) -> Cells:
        """Return some of the rows."""
        return Cells(self.column, self.values[rows], self.first + rows.start, self.what)

    def listed(self) -> list[Any]:
        """Return the values as Python objects."""
        values = self.values
        if isinstance(values, list):
            return values
        if isinstance(values, tuple):
            return list(values)
        return list(values.tolist() if isinstance(values, np.ndarray) else values.to_list())

    def floats(self, *, todo: str = CONVERT_OR_DECLARE) -> FloatArray:
        """Return numbers, NaN where one is missing; text and infinite numbers are refused.

        `todo` says in the message what to do with a text.
        """
        numbers = _numeric(self.values)
        if numbers is None:
            numbers = np.array([self._number(i, one, todo) for i, one in enumerate(self.listed())])
        bad = np.abs(numbers) > LARGEST
        if bad.any():
            row = int(bad.argmax())
            raise self.wrong(NumberError, row, f"{numbers[row]:g}", f"numbers up to ±{LARGEST:g}")
        return numbers

    def complete_floats(self) -> FloatArray:
        """Return numbers, none of which may be missing: rewards, propensities or times."""
        numbers = self.floats(todo=CONVERT)
        missing = np.isnan(numbers)
        if missing.any():
            raise self.wrong(NumberError, int(missing.argmax()), "no value", "a number")
        return numbers

    def seconds(self, *, missing: bool = False) -> FloatArray:
        """Return times in seconds; dates count from 1970, numbers are taken as they are.

        With `missing`, a time that is missing is NaN; otherwise it is an error.
        """
        cells = Cells(self.column, _as_seconds(self.values), self.first, self.what)
        try:
            return cells.floats() if missing else cells.complete_floats()
        except KindError as error:
            place, _, _ = str(error).partition(", expected")
            raise KindError(
                f"{place}, expected seconds or a date; convert the column to dates first"
            ) from None

    def each(self, read: Callable[[Any], Any]) -> list[Any]:
        """Return `read` of every value; its error is raised with row and column."""
        values = self.listed()
        try:
            return [read(value) for value in values]
        except DycluError:
            return [self._read(read, row, value) for row, value in enumerate(values)]

    def labels(self) -> list[str]:
        """Return ids as labels, none of which may be missing."""
        return self.each(as_id)

    def wrong(
        self, error: type[DycluError], row: int, got: str, expected: str, todo: str = ""
    ) -> DycluError:
        """Return the error for one value, with its row and column."""
        where = f"{self.what} {self.first + row}, column {self.column!r}"
        return error(f"{where}: got {got}, expected {expected}{todo and '; ' + todo}")

    def _read(self, read: Callable[[Any], Any], row: int, value: Any) -> Any:
        try:
            return read(value)
        except DycluError as error:
            where = f"{self.what} {self.first + row}, column {self.column!r}"
            raise type(error)(f"{where}: {error}") from None

    def _number(self, row: int, value: Any, todo: str) -> float:
        if is_missing(value):
            return np.nan
        if isinstance(value, SupportsFloat) and not isinstance(value, str):
            try:
                return float(value)
            except OverflowError:
                raise self.wrong(NumberError, row, "a huge number", "a finite number") from None
            except (TypeError, ValueError):
                pass
        got = f"{value!r} ({type(value).__name__})"
        raise self.wrong(KindError, row, got, "a number", todo)


def pick(columns: Columns, names: tuple[str, ...], where: str) -> list[Cells]:
    """Return the named columns; `where` says in what they were looked for."""
    for name in names:
        if name not in columns:
            raise OptionError(f"{where} has no column {name!r}, expected {nearest(name, columns)}")
    return [columns[name] for name in names]


def as_id(value: Any) -> str:
    """Return an id as a label; it may not be missing."""
    if is_missing(value):
        raise KindError("got no value, expected an id")
    return as_label(value)


def _numeric(values: Any) -> FloatArray | None:
    """Return the values of a numeric array or series as floats; None if they are not numeric."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float64) if values.dtype.kind in "fiub" else None
    if isinstance(values, list | tuple):
        return None
    import narwhals as nw

    if values.dtype == nw.Boolean:
        # Missing values of a column of booleans are lost in a direct cast of some frames.
        values = values.cast(nw.Int8)
    if not values.dtype.is_numeric():
        return None
    return np.asarray(values.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _as_seconds(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return _instants(values) if values.dtype.kind == "M" else values
    if isinstance(values, list | tuple):
        return [_timestamp(one) for one in values]
    import narwhals as nw

    if values.dtype == nw.Date:
        values = values.cast(nw.Datetime("us"))
    if not isinstance(values.dtype, nw.Datetime):
        return values
    return values.dt.timestamp("us").cast(nw.Float64) / 1e6


def _instants(dates: NDArray[np.datetime64]) -> FloatArray:
    """Return dates in seconds; NaT, which is a very small integer, becomes NaN."""
    seconds = dates.astype("datetime64[us]").astype(np.int64) / 1e6
    return np.where(np.isnat(dates), np.nan, seconds)


def _timestamp(value: Any) -> Any:
    """Return a date in seconds, and anything else as it is; a date without a zone is UTC."""
    if is_missing(value):
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return value
