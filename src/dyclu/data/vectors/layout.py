"""The raw vector: which features of arm, context and their products it has, and in which order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dyclu import kernels
from dyclu.data.vectors.columns import Column
from dyclu.data.vectors.sides import Side
from dyclu.validation import FloatArray, Ids

AND = " & "
"""Between the names of two features whose product is a feature."""


class Layout:
    """Two sides and their crosses.

    Attributes
    ----------
    arm, context : Side
        The blocks that the two sides make, also of columns that are only crossed.
    names : list of str
        Names of the raw features.
    width : int
        Their number.
    plain : bool
        Whether a raw vector is the arm's block, and nothing else.
    """

    def __init__(
        self,
        arm: Mapping[str, Column],
        context: Mapping[str, Column],
        cross: tuple[tuple[str, str], ...],
    ) -> None:
        self.arm, self.context = Side(arm, what="arm"), Side(context, what="context")
        self._own_arm = _own(self.arm, arm)
        self._own_context = _own(self.context, context)
        pairs = [
            (theirs, ours)
            for one, two in cross
            for theirs in self.context.spans[one]
            for ours in self.arm.spans[two]
        ]
        self._theirs = np.array([pair[0] for pair in pairs], dtype=np.int64)
        self._ours = np.array([pair[1] for pair in pairs], dtype=np.int64)
        self.names = [
            *(self.arm.names[place] for place in self._own_arm),
            *(self.context.names[place] for place in self._own_context),
            *(self.context.names[a] + AND + self.arm.names[b] for a, b in pairs),
        ]
        self.width = len(self.names)
        self.plain = len(self._own_arm) == self.width == self.arm.width

    def joined(self, arms: FloatArray, context: FloatArray, *, constant: int) -> FloatArray:
        """Return raw features of arms (n, width) in contexts (n or 1, width).

        With ``constant=1`` the first feature is 1.
        """
        if self.plain and not constant:
            return arms
        raw = np.empty((len(arms), constant + self.width))
        kernels.features.join(
            arms, context, self._own_arm, self._own_context, self._ours, self._theirs,
            constant, raw,
        )  # fmt: skip
        return raw


def _own(side: Side, columns: Mapping[str, Column]) -> Ids:
    """Return the places of features that are features alone, not only in crosses."""
    crossed_only = {
        place for name, column in columns.items() if not column.alone for place in side.spans[name]
    }
    return np.array([i for i in range(side.width) if i not in crossed_only], dtype=np.int64)
