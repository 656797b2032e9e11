"""A scikit-learn transformer in the place of `Features`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dyclu.data.cells import Cells, Columns
from dyclu.errors import OptionError, ShapeError
from dyclu.validation import LARGEST_FEATURE, FloatArray, Ids, as_floats


class Transformed:
    """Vectors made by a fitted transformer; it stands in for `Features` in `Log.read`.

    Parameters
    ----------
    transformer : object
        Has a method ``transform(frame)`` that returns a matrix with one row per row of the frame.
    arm, context : list of str
        The columns of the frame: those of an arm, and those of the context.
    frame : callable
        Makes a data frame of a dict of lists, such as ``pandas.DataFrame``.
    dim : int
        Number of columns of the matrix.
    """

    def __init__(
        self,
        transformer: Any,
        *,
        arm: Sequence[str],
        context: Sequence[str] = (),
        frame: Callable[[dict[str, list[Any]]], Any],
        dim: int,
    ) -> None:
        self.arm: Mapping[str, Any] = dict.fromkeys(arm)
        self.context: Mapping[str, Any] = dict.fromkeys(context)
        self.dim = dim
        self._transformer, self._frame = transformer, frame

    def vectors(
        self, arms: Sequence[Mapping[str, Any]], context: Mapping[str, Any] | None = None
    ) -> FloatArray:
        """Return the arms of one decision as vectors, of shape (arms, dim)."""
        columns = {name: [arm[name] for arm in arms] for name in self.arm}
        given = {} if context is None else context
        return self._made(columns | {name: [given[name]] * len(arms) for name in self.context})

    def encode(self, arms: Columns, count: int) -> dict[str, list[Any]]:
        """Return the columns of arms as lists."""
        return {name: arms[name].listed() for name in self.arm}

    def offered(
        self, encoded: Mapping[str, list[Any]], which: Ids, context: Mapping[str, Cells]
    ) -> FloatArray:
        """Return vectors of encoded arms, `which` (rows, K), in the contexts of rows."""
        rows, most = which.shape
        places = which.reshape(-1).tolist()
        columns = {name: [values[place] for place in places] for name, values in encoded.items()}
        for name in self.context:
            columns[name] = [value for value in context[name].listed() for _ in range(most)]
        return self._made(columns).reshape(rows, most, self.dim)

    def _made(self, columns: dict[str, list[Any]]) -> FloatArray:
        matrix = self._transformer.transform(self._frame(columns))
        if not isinstance(matrix, np.ndarray) and not hasattr(matrix, "__array__"):
            raise OptionError(
                f"the transformer returned a {type(matrix).__name__}, expected an array; "
                "pass sparse_output=False, or sparse_threshold=0, where it is made"
            )
        vectors = as_floats(np.asarray(matrix), "the transformer's matrix", largest=LARGEST_FEATURE)
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ShapeError(
                f"the transformer made a matrix of shape {vectors.shape}, expected "
                f"(rows, {self.dim}); pass the dim that it makes"
            )
        return vectors
