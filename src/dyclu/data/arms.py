"""Tables with one row per offered arm, its vector in columns, as `dyclu export --arms` writes them.

The rows of one decision stand together. Only whole decisions become a chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyclu.data.chunk import CHUNK_NUMBERS, Chunk, Judge, Whole
from dyclu.data.tables.cells import Cells, Columns
from dyclu.data.tables.files import Kinds
from dyclu.data.tables.table import Table, as_table
from dyclu.errors import KindError, NumberError, OptionError
from dyclu.validation import LARGEST_FEATURE, FloatArray

KINDS: Kinds = {
    "decision": "text",
    "slot": "number",
    "time": "time",
    "user": "text",
    "group": "text",
    "arm": "text",
    "shown": "number",
    "propensity": "number",
    "reward": "number",
}
"""Columns beside the vector, and how they are read from a CSV file. All others are the vector."""


def headers(names: Sequence[str], *, beside: Iterable[str] = tuple(KINDS)) -> list[str]:
    """Return names of features as headers of a table that has other columns `beside` them.

    >>> headers(["price", "user"])
    ['price', 'x_user']
    """
    taken, found = set(beside), list[str]()
    for name in names:
        header = name
        while header in taken:
            header = f"x_{header}"
        taken.add(header)
        found.append(header)
    return found


def unnamed(dim: int) -> list[str]:
    """Return the headers of features without names: x0, x1, …"""
    return [f"x{place}" for place in range(dim)]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of whole decisions.

    Attributes
    ----------
    first : int
        Number of the first row, for messages.
    starts : int array of shape (decisions,)
        Where the rows of each decision begin.
    """

    first: int
    starts: Whole
    columns: dict[str, list[Any]]
    vectors: FloatArray

    @property
    def counts(self) -> Whole:
        """Number of rows of each decision."""
        return np.diff(self.starts, append=len(self.vectors))

    def cells(self, name: str) -> Cells:
        """Return a column."""
        return Cells(name, self.columns[name], self.first)


class Arms:
    """A table with one row per offered arm.

    Attributes
    ----------
    names : tuple of str
        The columns of the vector, in their order.
    """

    def __init__(self, table: Any, roles: dict[str, str]) -> None:
        kinds = {**KINDS, **{name: KINDS[role] for role, name in roles.items()}}
        self.table: Table = as_table(table, what="the log", kinds=kinds)
        self.table.check(list(roles.values()))
        self.roles = roles
        slot = ["slot"] if "slot" in self.table.names else []
        self._key = [roles["decision"], roles["user"], *slot]
        beside = {*KINDS, *roles.values()}
        self.names = tuple(name for name in self.table.names if name not in beside)
        if not self.names:
            raise OptionError(
                f"{self.table.what} has no columns beside {', '.join(sorted(beside))}; expected "
                "those of the arms' vectors"
            )

    def chunks(self) -> Iterator[Chunk]:
        """Yield the decisions, judged, as chunks of bounded size."""
        judge, decisions = Judge(), 0
        for part in self._parts():
            shown = self._shown(part)
            rows = {
                role: Cells(name, _picked(part.columns[name], shown), decisions, "decision")
                for role, name in self.roles.items()
                if role != "shown"
            }
            rows["decision"] = self._ids(part, shown, decisions)
            judged, counts = judge.rows(rows), part.counts
            decisions += len(counts)
            for some in _pieces(counts, len(self.names)):
                arms = _padded(part, some)
                yield judged.part(some).with_arms(arms, counts[some], (shown - part.starts)[some])
        if not decisions:
            raise OptionError(f"{self.table.what} is empty, expected one row per offered arm")

    def _parts(self) -> Iterator[Part]:
        """Yield the rows, cut where a decision ends."""
        names = list(dict.fromkeys([*self.roles.values(), *self._key]))
        first, kept = 0, {name: list[Any]() for name in names}
        vectors = np.zeros((0, len(self.names)))
        for _, batch in self.table.batches([*names, *self.names]):
            starts = self._starts(kept)
            # The rows of the last decision may go on in this batch.
            end = int(starts[-1]) if len(starts) else 0
            if end:
                whole = {name: values[:end] for name, values in kept.items()}
                yield Part(first, starts[:-1], whole, vectors[:end])
            kept = {name: kept[name][end:] + batch[name].listed() for name in names}
            vectors = np.concatenate([vectors[end:], _vectors(batch, self.names)])
            first += end
        if len(vectors):
            yield Part(first, self._starts(kept), kept, vectors)

    def _starts(self, columns: dict[str, list[Any]]) -> Whole:
        """Return where decisions begin: where their id, their slot or their user changes."""
        keys = list(zip(*(columns[name] for name in self._key), strict=True))
        begins = [place == 0 or key != keys[place - 1] for place, key in enumerate(keys)]
        return np.flatnonzero(begins)

    def _shown(self, part: Part) -> Whole:
        """Return the number of the shown row of each decision, of which there is exactly one."""
        cells = part.cells(self.roles["shown"])
        shown = cells.complete_floats()
        for row in np.flatnonzero((shown != 0) & (shown != 1))[:1]:
            raise cells.wrong(NumberError, int(row), f"{shown[row]:g}", "0 or 1")
        counts = np.add.reduceat(shown, part.starts)
        for wrong in np.flatnonzero(counts != 1)[:1]:
            raise cells.wrong(
                OptionError,
                int(part.starts[wrong]),
                f"{counts[wrong]:.0f} shown arms of one decision",
                "1",
                "keep the rows of a decision together, and mark the arm that was shown",
            )
        return np.flatnonzero(shown)

    def _ids(self, part: Part, shown: Whole, decisions: int) -> Cells:
        """Return an id for each slot of each decision."""
        name, columns = self.roles["decision"], part.columns
        ids = Cells(name, _picked(columns[name], shown), decisions, "decision").labels()
        if "slot" in self._key:
            slots = Cells("slot", _picked(columns["slot"], shown), decisions, "decision").labels()
            ids = [f"{id}/{slot}" for id, slot in zip(ids, slots, strict=True)]
        return Cells(name, ids, decisions, "decision")


def _picked(values: list[Any], which: Whole) -> list[Any]:
    return [values[place] for place in which]


def _vectors(batch: Columns, names: tuple[str, ...]) -> FloatArray:
    columns = [_feature(batch[name]) for name in names]
    return np.stack(columns, axis=1)


def _feature(cells: Cells) -> FloatArray:
    """Return one feature of all rows; a text is refused, as it is no part of a vector."""
    try:
        numbers = cells.complete_floats()
    except KindError as error:
        raise KindError(
            f"{error}; every column beside {', '.join(KINDS)} is a feature of the arm: remove it "
            "if it is none"
        ) from None
    for row in np.flatnonzero(np.abs(numbers) > LARGEST_FEATURE)[:1]:
        raise cells.wrong(
            NumberError, int(row), f"{numbers[row]:g}", f"numbers up to ±{LARGEST_FEATURE:g}"
        )
    return numbers


def _pieces(counts: Whole, dim: int) -> Iterator[slice]:
    """Yield runs of decisions whose padded arms are not too many numbers."""
    size = max(1, CHUNK_NUMBERS // (int(counts.max()) * dim))
    for start in range(0, len(counts), size):
        yield slice(start, start + size)


def _padded(part: Part, some: slice) -> FloatArray:
    """Return the arms of some decisions, of shape (decisions, K, dim), zeros beyond the offered."""
    counts, starts = part.counts[some], part.starts[some]
    most = np.arange(int(counts.max()))
    offered = most < counts[:, None]
    arms = np.zeros((*offered.shape, part.vectors.shape[1]))
    arms[offered] = part.vectors[(starts[:, None] + most)[offered]]
    return arms
