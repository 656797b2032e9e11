"""From a table of decisions to chunks: roles of columns, offered arms, vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dyclu.data import fitting
from dyclu.data.cells import Columns
from dyclu.data.chunk import Chunk, Judge, Rows
from dyclu.data.features import Features
from dyclu.data.offers import ALWAYS, Items, Offer, Valid, alone, offers_of
from dyclu.data.tables import Table, as_table
from dyclu.errors import OptionError
from dyclu.validation import FloatArray, Ids

CHUNK_NUMBERS = 1 << 21
"""Features in one chunk: 2 million numbers take 16 MB."""


class Vectoriser(Protocol):
    """What makes vectors of columns: `Features`, or what stands in their place."""

    @property
    def dim(self) -> int:
        """Number of features of a vector."""
        ...

    @property
    def arm(self) -> Mapping[str, Any]:
        """Columns of an arm."""
        ...

    @property
    def context(self) -> Mapping[str, Any]:
        """Columns of the context."""
        ...

    def encode(self, arms: Columns, count: int) -> Any:
        """Return arms in a form that `offered` takes."""
        ...

    def offered(self, encoded: Any, which: Ids, context: Columns) -> FloatArray:
        """Return vectors of encoded arms, `which` (rows, K), in the contexts of rows."""
        ...


class Reader:
    """A table with names of its columns, and what was offered in its rows."""

    def __init__(
        self,
        table: Any,
        roles: Mapping[str, str],
        items: Any,
        offered: str | Valid | None,
        separator: str,
    ) -> None:
        ids = [roles[role] for role in ("user", "decision", "arm") if role in roles]
        self.roles = dict(roles)
        self.table = as_table(table, what="the log", text=ids)
        self.table.check(list(roles.values()))
        if self.table.rows == 0:
            raise _empty(self.table)
        self.items = None if items is None else as_table(items, what="the items", text=ids)
        self.offered, self.separator = offered, separator
        _check_offer(self.roles, items is not None, offered)

    def fitted(self, features: Vectoriser) -> FittedReader:
        """Return a reader whose features are fitted; on this log, if they are not yet."""
        reader = self._with(features)
        if not isinstance(features, Features) or features.fitted:
            return reader
        known = fitting.fit_all(
            features,
            context=lambda: self.table.batches(tuple(features.context)),
            arm=lambda: (self.items or self.table).batches(tuple(features.arm)),
            vectors=lambda raw: self._with(raw).vectors(),
        )
        return self._with(known)

    def _with(self, features: Vectoriser) -> FittedReader:
        arm = () if self.items else tuple(features.arm)
        names = [*self.roles.values(), *features.context, *arm]
        if isinstance(self.offered, str):
            names.append(self.offered)
        self.table.check(names)
        if self.items is not None:
            self.items.check([self.roles["arm"], *features.arm])
        return FittedReader(self, features, tuple(names))


@dataclass(frozen=True, slots=True)
class FittedReader:
    """A reader, the features that make vectors, and the columns that are read."""

    reader: Reader
    features: Any
    names: tuple[str, ...]

    @property
    def table(self) -> Table:
        """The table that is read."""
        return self.reader.table

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows, judged, as chunks of bounded size."""
        judge, offers, rows = Judge(), _offers(self), 0
        for count, batch in self.table.batches(self.names):
            cells = {role: batch[name] for role, name in self.reader.roles.items()}
            judged = judge.rows(cells)
            offer, encoded = offers(batch, judged)
            rows += count
            yield from self._chunks(judged, offer, encoded, batch)
        if not rows:
            raise _empty(self.table)

    def vectors(self) -> Iterator[FloatArray]:
        """Yield vectors of all offered arms, (n, dim), without padding."""
        for chunk in self.chunks():
            offered = np.arange(chunk.arms.shape[1]) < chunk.counts[:, None]
            yield chunk.arms[offered]

    def _chunks(self, rows: Rows, offer: Offer, encoded: Any, batch: Columns) -> Iterator[Chunk]:
        count, most = offer.which.shape
        size = max(1, CHUNK_NUMBERS // (most * max(1, self.features.dim)))
        for start in range(0, count, size):
            part = slice(start, start + size)
            context = {name: batch[name].part(part) for name in self.features.context}
            arms = self.features.offered(encoded, offer.which[part], context)
            arms[np.arange(most) >= offer.counts[part, None]] = 0.0
            yield Chunk(
                user=rows.user[part],
                time=None if rows.time is None else rows.time[part],
                chosen=offer.chosen[part],
                reward=rows.reward[part],
                propensity=None if rows.propensity is None else rows.propensity[part],
                arms=arms,
                counts=offer.counts[part],
                decision=None if rows.decision is None else rows.decision[part],
            )


def _offers(reader: FittedReader) -> Callable[[Columns, Rows], tuple[Offer, Any]]:
    """Return what finds out what a batch offered, and the encoded arms that the offer points to."""
    source, features = reader.reader, reader.features
    if source.items is None:

        def of_rows(batch: Columns, rows: Rows) -> tuple[Offer, Any]:
            count = len(rows.user)
            return alone(np.arange(count)), features.encode(batch, count)

        return of_rows
    shown, column = source.roles["arm"], source.offered
    valid = column if isinstance(column, Valid) else ALWAYS
    items = Items(source.items, shown, tuple(features.arm), valid)
    encoded = features.encode(items.columns, items.count)
    find = offers_of(items, column, source.separator)

    def of_items(batch: Columns, rows: Rows) -> tuple[Offer, Any]:
        listed = batch[column] if isinstance(column, str) else None
        return find(batch[shown], listed, rows.time), encoded

    return of_items


def _check_offer(roles: Mapping[str, str], items: bool, offered: str | Valid | None) -> None:
    if items and "arm" not in roles:
        raise OptionError("items are given without arm; name the column with the shown item's id")
    if offered is not None and not items:
        raise OptionError("offered is given without items; pass the table with the items' columns")
    timed = isinstance(offered, Valid) and (offered.since or offered.until)
    if timed and "time" not in roles:
        raise OptionError("offered depends on time; name the column with the time of a row")


def _empty(table: Table) -> OptionError:
    return OptionError(f"{table.what} is empty, expected at least one row")
