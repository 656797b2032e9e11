"""What was declared: columns of arm and context, their crosses, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dyclu.data.columns import Column, column_of, declared
from dyclu.data.suggestions import nearest
from dyclu.errors import KindError, OptionError
from dyclu.validation import as_whole


class Declaration(NamedTuple):
    """A checked declaration; see `Features` for the meaning of its parts."""

    arm: Mapping[str, Column]
    context: Mapping[str, Column]
    cross: tuple[tuple[str, str], ...]
    intercept: bool
    reduce: int | None

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Declaration:
        """Return the declaration with these parts; parts that are left out have their defaults."""
        if not isinstance(parts, Mapping):
            raise KindError(f"the declaration is {parts!r}, expected a table")
        for key in parts:
            if key not in cls._fields:
                hint = nearest(str(key), cls._fields)
                raise OptionError(f"features have no {key!r}, expected {hint}")
        arm, context = (_columns(parts.get(side), side) for side in ("arm", "context"))
        for name in arm:
            if name in context:
                raise OptionError(
                    f"column {name!r} is declared for arm and context, expected one of them; "
                    "rename one"
                )
        intercept, reduce = parts.get("intercept", True), parts.get("reduce")
        if not isinstance(intercept, bool):
            raise KindError(f"intercept is {intercept!r}, expected true or false")
        return cls(
            arm,
            context,
            _crosses(parts.get("cross", ()), context, arm),
            intercept,
            None if reduce is None else as_whole(reduce, "reduce", least=1),
        )

    @property
    def open(self) -> tuple[str, ...]:
        """Columns of which something is left to be fitted."""
        both = (*self.arm.items(), *self.context.items())
        return tuple(name for name, column in both if not column.complete)

    def plain(self) -> dict[str, Any]:
        """Return the declaration as JSON can hold it."""
        return {
            "arm": {name: declared(column) for name, column in self.arm.items()},
            "context": {name: declared(column) for name, column in self.context.items()},
            "cross": [list(pair) for pair in self.cross],
            "intercept": self.intercept,
            "reduce": self.reduce,
        }


def _columns(columns: Any, side: str) -> dict[str, Column]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise KindError(f"{side} is {columns!r}, expected a table of columns")
    return {str(name): column_of(spec, str(name)) for name, spec in columns.items()}


def _crosses(
    pairs: Any, context: Mapping[str, Column], arm: Mapping[str, Column]
) -> tuple[tuple[str, str], ...]:
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise KindError(f"cross is {pairs!r}, expected a list of pairs of columns")
    return tuple(_pair(pair, context, arm) for pair in pairs)


def _pair(pair: Any, context: Mapping[str, Column], arm: Mapping[str, Column]) -> tuple[str, str]:
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise KindError(f"cross holds {pair!r}, expected a pair of names of columns")
    for name, side, known in ((pair[0], "context", context), (pair[1], "arm", arm)):
        if name not in known:
            raise OptionError(
                f"cross {tuple(pair)!r}: {name!r} is no column of the {side}, "
                f"expected {nearest(str(name), known)}"
            )
    return pair[0], pair[1]
