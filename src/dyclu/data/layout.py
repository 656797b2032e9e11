"""The raw vector: which features of arm, context and their products it has, and in which order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dyclu.data.columns import Column
from dyclu.data.sides import Side
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
        self._theirs = np.array([pair[0] for pair in pairs], dtype=np.intp)
        self._ours = np.array([pair[1] for pair in pairs], dtype=np.intp)
        self.names = [
            *(self.arm.names[place] for place in self._own_arm),
            *(self.context.names[place] for place in self._own_context),
            *(self.context.names[a] + AND + self.arm.names[b] for a, b in pairs),
        ]
        self.width = len(self.names)
        self._plain = len(self._own_arm) == self.width == self.arm.width

    def joined(self, arms: FloatArray, context: FloatArray) -> FloatArray:
        """Return raw features of arms (n, width) in contexts (n or 1, width)."""
        if self._plain:
            return arms
        raw = np.empty((len(arms), self.width))
        first, second = len(self._own_arm), len(self._own_arm) + len(self._own_context)
        raw[:, :first] = arms[:, self._own_arm]
        raw[:, first:second] = context[:, self._own_context]
        np.multiply(context[:, self._theirs], arms[:, self._ours], out=raw[:, second:])
        return raw


def _own(side: Side, columns: Mapping[str, Column]) -> Ids:
    """Return the places of features that are features alone, not only in crosses."""
    crossed_only = {
        place for name, column in columns.items() if not column.alone for place in side.spans[name]
    }
    return np.array([i for i in range(side.width) if i not in crossed_only], dtype=np.intp)
