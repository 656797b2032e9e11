"""A catalogue: items whose part of the vectors is computed once, so that a decision names ids."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dyclu.data.offers import Items
from dyclu.data.tables.cells import Cells
from dyclu.data.tables.files import Kinds
from dyclu.data.tables.table import as_items
from dyclu.data.vectors.kinds import kinds_in_files
from dyclu.validation import FloatArray

if TYPE_CHECKING:
    from dyclu.data.features import Features


class Catalogue:
    """Items by id; made by `Features.catalogue`.

    Examples
    --------
    >>> import dyclu
    >>> shop = dyclu.Features(arm={"price": {"kind": "number", "mean": 10, "scale": 5}})
    >>> items = shop.catalogue([{"id": "a", "price": 5}, {"id": "b", "price": 20}], id="id")
    >>> items.vectors(["b", "a"])
    array([[ 1.,  2.],
           [ 1., -1.]])
    """

    def __init__(self, features: Features, items: Any, *, id: str) -> None:
        kinds: Kinds = {**kinds_in_files(features.arm), id: "text"}
        table = as_items(items, kinds)
        self._items = Items(table, id, tuple(features.arm))
        self._features = features
        self._encoded = features.encode(self._items.columns, self._items.count)
        # Without a context, an item always has the same vector.
        self._finished: FloatArray | None = None
        if not features.context:
            everything = np.arange(self._items.count)[None, :]
            self._finished = features.offered(self._encoded, everything, {})[0]

    def __len__(self) -> int:
        return self._items.count

    def vectors(
        self, ids: Sequence[Hashable], context: Mapping[str, Any] | None = None
    ) -> FloatArray:
        """Return the vectors of some items, of shape (ids, dim), in a context."""
        places = self._items.of(Cells("ids", list(ids), what="arm"))
        if self._finished is not None:
            return self._finished[places]
        return self._features.in_context(self._encoded[places], context)
