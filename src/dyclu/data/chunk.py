"""A chunk: some rows of a log as arrays, and the rules that they keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.data.tables.cells import Cells
from dyclu.data.tables.labels import is_missing
from dyclu.errors import KindError, NumberError, OptionError
from dyclu.validation import FloatArray, Ids, User, as_user

CHUNK_NUMBERS = 1 << 21
"""Features in one chunk: 2 million numbers take 16 MB."""

Objects = NDArray[np.object_]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some rows of a log, as arrays. K is the largest number of arms offered in one of them.

    Attributes
    ----------
    user : object array of shape (rows,)
        The users, `str` or `int`.
    time : array of shape (rows,), or None
        Seconds; never falls from one row to the next.
    chosen : int array of shape (rows,)
        Index of the arm that was shown, among those offered.
    reward : array of shape (rows,)
        Its reward.
    propensity : array of shape (rows,), or None
        Probability, above 0 and at most 1, with which it was shown.
    arms : array of shape (rows, K, dim)
        Features of all arms that were offered; zeros where a row has fewer than K of them.
    counts : int array of shape (rows,)
        Number of arms that were offered, 1 to K.
    decision : object array of shape (rows,), or None
        Ids of the decisions; no id occurs twice in a log.
    """

    user: Objects
    time: FloatArray | None
    chosen: Whole
    reward: FloatArray
    propensity: FloatArray | None
    arms: FloatArray
    counts: Whole
    decision: Objects | None

    def __len__(self) -> int:
        return len(self.user)

    @property
    def contexts(self) -> FloatArray:
        """Features of the shown arms, of shape (rows, dim)."""
        return self.arms[np.arange(len(self)), self.chosen]

    def part(self, start: int, stop: int) -> Chunk:
        """Return the rows from `start` to before `stop`, as read-only views."""
        return Chunk(*_parts(self, slice(start, stop)))

    def rows(self, which: Ids) -> Chunk:
        """Return some rows, by their numbers."""
        return Chunk(*_parts(self, which))


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of a chunk that do not depend on arms, judged."""

    user: Objects
    time: FloatArray | None
    reward: FloatArray
    propensity: FloatArray | None
    decision: Objects | None

    def with_arms(self, arms: FloatArray, counts: Whole, chosen: Whole) -> Chunk:
        """Return the chunk of these rows and their arms."""
        return Chunk(
            user=self.user,
            time=self.time,
            chosen=chosen,
            reward=self.reward,
            propensity=self.propensity,
            arms=arms,
            counts=counts,
            decision=self.decision,
        )

    def part(self, rows: slice) -> Rows:
        """Return some of the rows, as read-only views."""
        return Rows(*_parts(self, rows))


def _parts(columns: Chunk | Rows, rows: slice | Ids) -> list[Any]:
    values: list[Any] = [getattr(columns, field.name) for field in fields(columns)]
    return [None if one is None else _read_only(one[rows]) for one in values]


def _read_only(view: Any) -> Any:
    """Return a view that cannot be written to, so that who reads a log does not change it."""
    view.flags.writeable = False
    return view


class Judge:
    """Checks the rows of one log, batch after batch; one per reading."""

    def __init__(self) -> None:
        self._latest = -np.inf
        self._ids: set[Hashable] = set()

    def rows(self, cells: Mapping[str, Cells]) -> Rows:
        """Return the columns by their role; raise an error with row and column if one is bad."""
        return Rows(
            user=objects(cells["user"].each(_as_user)),
            time=self._times(cells["time"]) if "time" in cells else None,
            reward=cells["reward"].complete_floats(),
            propensity=_chances(cells["propensity"]) if "propensity" in cells else None,
            decision=self._decisions(cells["decision"]) if "decision" in cells else None,
        )

    def _times(self, cells: Cells) -> FloatArray:
        time = cells.seconds()
        steps = np.diff(time, prepend=self._latest)
        if (steps < 0).any():
            row = int((steps < 0).argmax())
            before = time[row - 1] if row else self._latest
            raise cells.wrong(
                OptionError,
                row,
                f"{time[row]:.16g} after {before:.16g}",
                "rows in order of time",
                f"sort the log by {cells.column!r}",
            )
        self._latest = float(time[-1]) if len(time) else self._latest
        return time

    def _decisions(self, cells: Cells) -> Objects:
        ids = cells.each(_as_decision)
        for row, id in enumerate(ids):
            if id in self._ids:
                raise cells.wrong(
                    OptionError,
                    row,
                    f"{id!r} once more",
                    "every id of a decision once",
                    "remove the repeated rows",
                )
            self._ids.add(id)
        return objects(ids)


def objects(values: list[Any]) -> Objects:
    """Return Python objects as an array."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _as_user(value: Any) -> User:
    if is_missing(value):
        raise KindError("got no value, expected a user")
    return as_user(value)


def _as_decision(value: Any) -> User:
    if is_missing(value):
        raise KindError("got no value, expected the id of a decision")
    if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
        raise KindError(f"got {value!r} ({type(value).__name__}), expected an id: a str or an int")
    return value if isinstance(value, str) else int(value)


def _chances(cells: Cells) -> FloatArray:
    chances = cells.complete_floats()
    bad = ~((chances > 0) & (chances <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise cells.wrong(
            NumberError,
            row,
            f"{chances[row]:g}",
            "a probability above 0 and at most 1",
            "log the probability with which the shown arm was chosen",
        )
    return chances
