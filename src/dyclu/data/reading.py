"""From a table of decisions to chunks: roles of columns, offered arms, vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dyclu.data.chunk import CHUNK_NUMBERS, Chunk, Judge, Rows
from dyclu.data.features import Features
from dyclu.data.fitting import fit_all
from dyclu.data.offers import ALWAYS, Items, Offer, Valid, alone, offers_of
from dyclu.data.tables.cells import Columns
from dyclu.data.tables.files import Kinds
from dyclu.data.tables.table import Table, as_items, as_table
from dyclu.data.vectors.kinds import kinds_in_files
from dyclu.errors import OptionError
from dyclu.validation import FloatArray, Ids

OUTCOMES = ("reward", "propensity", "decision")
"""Roles of columns that are written with a decision or after it."""

KIND_OF_ROLE: Kinds = {
    "user": "text",
    "decision": "text",
    "arm": "text",
    "reward": "number",
    "propensity": "number",
    "time": "time",
}
"""How the column of a role is read from a CSV file."""


@runtime_checkable
class Encoder(Protocol):
    """The methods of a `Vectoriser`; features that are not fitted have them, too."""

    def encode(self, arms: Columns, count: int) -> Any:
        """Return arms in a form that `offered` takes."""
        ...

    def offered(self, encoded: Any, which: Ids, context: Columns) -> FloatArray:
        """Return vectors of encoded arms, `which` (rows, K), in the contexts of rows."""
        ...


class Vectoriser(Encoder, Protocol):
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


class Reader:
    """A table with names of its columns, and what was offered in its rows."""

    def __init__(
        self,
        table: Any,
        roles: Mapping[str, str],
        items: Any,
        offered: str | Valid | None,
        separator: str,
        features: Vectoriser,
    ) -> None:
        self.roles, self.features = dict(roles), features
        self.table = as_table(table, what="the log", kinds=_log_kinds(features, roles, offered))
        self.table.check(list(roles.values()))
        if self.table.rows == 0:
            raise _empty(self.table)
        self.items: Table | None = None
        if items is not None:
            kinds = _item_kinds(features, roles, offered)
            self.items = as_items(items, kinds)
        self.offered, self.separator = offered, separator
        _check_offer(self.roles, items is not None, offered)

    def fitted(self) -> FittedReader:
        """Return a reader whose features are fitted; on this log, if they are not yet."""
        features = self.features
        reader = self._with(features)
        if not isinstance(features, Features) or features.fitted:
            return reader
        known = fit_all(
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
        _refuse_outcomes(self.roles, (*features.context, *arm))
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
            yield rows.part(part).with_arms(arms, offer.counts[part], offer.chosen[part])


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


def _refuse_outcomes(roles: Mapping[str, str], columns: Iterable[str]) -> None:
    """Refuse features that say what came of a decision: they are unknown when one is made."""
    outcomes = {roles[role]: role for role in OUTCOMES if role in roles}
    for name in columns:
        if name in outcomes:
            raise OptionError(
                f"the feature {name!r} is the column of the {outcomes[name]}, expected what is "
                "known before a decision; remove it from the features"
            )


def _log_kinds(
    features: Vectoriser, roles: Mapping[str, str], offered: str | Valid | None
) -> Kinds:
    """Return how columns of the log are read from a CSV file."""
    declared = kinds_in_files(features.arm, features.context)
    listed: Kinds = {offered: "text"} if isinstance(offered, str) else {}
    return {**declared, **{name: KIND_OF_ROLE[role] for role, name in roles.items()}, **listed}


def _item_kinds(
    features: Vectoriser, roles: Mapping[str, str], offered: str | Valid | None
) -> Kinds:
    """Return how columns of the items are read from a CSV file."""
    valid = offered if isinstance(offered, Valid) else ALWAYS
    times: Kinds = {name: "time" for name in (valid.since, valid.until) if name}
    ids: Kinds = {name: "text" for role, name in roles.items() if role == "arm"}
    return {**kinds_in_files(features.arm), **times, **ids}


def _empty(table: Table) -> OptionError:
    return OptionError(f"{table.what} is empty, expected at least one row")
