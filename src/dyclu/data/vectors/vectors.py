"""From columns to vectors, once everything is known: blocks, crosses, directions, the intercept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.data.tables.cells import Columns
from dyclu.data.vectors.declaration import Declaration
from dyclu.data.vectors.layout import Layout
from dyclu.data.vectors.memo import Memo
from dyclu.errors import ShapeError
from dyclu.validation import FloatArray, Ids, as_floats

INTERCEPT = "intercept"
NO_CONTEXT = np.zeros((1, 0))
"""The block of a context without columns."""

Row = Mapping[str, Any]


class Vectors:
    """Makes vectors of complete columns.

    Attributes
    ----------
    dim : int
        Number of features of a vector.
    raw_names : tuple of str
        Names of the features before they are reduced, the intercept first.
    """

    def __init__(self, declaration: Declaration, loadings: FloatArray | None) -> None:
        layout = Layout(declaration.arm, declaration.context, declaration.cross)
        width = layout.width if declaration.reduce is None else declaration.reduce
        if loadings is not None and loadings.shape != (layout.width, declaration.reduce):
            raise ShapeError(
                f"loadings have shape {loadings.shape}, expected "
                f"({layout.width}, {declaration.reduce}); fit the features again"
            )
        self._layout, self._loadings = layout, loadings
        self._constant = int(declaration.intercept)
        self.dim = self._constant + width
        self.raw_names = (*([INTERCEPT] if self._constant else []), *layout.names)
        # Without a context, an arm always has the same vector, and whole vectors are remembered.
        self._alone = not declaration.context
        self._memo = Memo(layout.arm.columns, self._remembered)

    def of_rows(self, arms: Sequence[Row], context: Row | None) -> FloatArray:
        """Return the vectors of arms given as dicts."""
        found = self._memo.of(arms)
        return found if self._alone else self.in_context(found, context)

    def of_columns(self, arm: Columns, context: Columns, rows: int) -> FloatArray:
        """Return rows given as columns, of which row i is one arm in one context."""
        theirs = self._layout.context.of_columns(context, rows)
        return self._joined(self.encode(arm, rows), theirs)

    def encode(self, arms: Columns, count: int) -> FloatArray:
        """Return the arms' own part of vectors, to be completed by `offered` or `in_context`."""
        return self._layout.arm.of_columns(arms, count)

    def offered(self, encoded: FloatArray, which: Ids, context: Columns) -> FloatArray:
        """Return vectors of encoded arms, `which` (rows, K), in the contexts of rows."""
        rows, most = which.shape
        theirs = self._layout.context.of_columns(context, rows)
        ours = encoded[which.reshape(-1)]
        vectors = self._joined(ours, np.repeat(theirs, most, axis=0))
        return vectors.reshape(rows, most, self.dim)

    def in_context(self, encoded: FloatArray, context: Row | None) -> FloatArray:
        """Return vectors of encoded arms in one context."""
        theirs = self._layout.context.of_rows([{} if context is None else context])
        return self._joined(encoded, theirs)

    def raw(self, arm: Row, context: Row | None) -> FloatArray:
        """Return the raw features of one arm in one context, in the order of `raw_names`."""
        ours = self._layout.arm.of_rows([arm])
        theirs = self._layout.context.of_rows([{} if context is None else context])
        vectors: FloatArray = self._layout.joined(ours, theirs, constant=self._constant)
        return vectors.reshape(-1)

    def raw_weights(self, theta: ArrayLike) -> FloatArray:
        """Return an estimate over vectors as one over raw features, in the order of `raw_names`.

        With the loadings V, a vector is ``x = Vᵀz`` for raw features z, so ``xᵀθ = zᵀ(Vθ)``.
        """
        estimate = as_floats(theta, "theta")
        if estimate.shape != (self.dim,):
            raise ShapeError(f"theta has shape {estimate.shape}, expected ({self.dim},)")
        if self._loadings is None:
            return estimate
        constant, rest = np.split(estimate, [self._constant])
        return np.concatenate([constant, self._loadings @ rest])

    def _remembered(self, arms: Sequence[Row]) -> FloatArray:
        if self._alone and self._layout.plain and self._loadings is None:
            return self._layout.arm.of_rows(arms, constant=self._constant)
        block = self._layout.arm.of_rows(arms)
        return self._joined(block, NO_CONTEXT) if self._alone else block

    def _joined(self, arms: FloatArray, context: FloatArray) -> FloatArray:
        """Return vectors of blocks of arms (n, width) in contexts (n or 1, width)."""
        if self._loadings is None:
            return self._layout.joined(arms, context, constant=self._constant)
        vectors = np.ones((len(arms), self.dim))
        raw = self._layout.joined(arms, context, constant=0)
        np.matmul(raw, self._loadings, out=vectors[:, self._constant :])
        return vectors
