"""Kinds of columns by name, as a declaration in TOML or JSON has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from dyclu.data.tables.files import Kinds
from dyclu.data.tables.suggestions import nearest
from dyclu.data.vectors.columns import Category, Column, Number, Text
from dyclu.errors import KindError, OptionError

KINDS: Mapping[str, Callable[..., Column]] = {"number": Number, "category": Category, "text": Text}


def column_of(spec: object, name: str) -> Column:
    """Return a column from ``"number"``, from ``{"kind": "number", ...}`` or as it is.

    >>> column_of({"kind": "category", "values": ["jazz", "rock"]}, "genre").values
    ('jazz', 'rock')
    """
    if isinstance(spec, Number | Category | Text):
        return spec
    if isinstance(spec, str):
        spec = {"kind": spec}
    if not isinstance(spec, Mapping) or not isinstance(spec.get("kind"), str):
        raise KindError(
            f"column {name!r} is {spec!r}, expected one of {', '.join(KINDS)}, or a table "
            "with a 'kind'"
        )
    options = {key: value for key, value in spec.items() if key != "kind"}
    kind = KINDS.get(spec["kind"])
    if kind is None:
        hint = nearest(spec["kind"], KINDS)
        raise OptionError(f"column {name!r} has kind {spec['kind']!r}, expected {hint}")
    return _made(kind, options, name)


def declared(column: Column) -> dict[str, Any]:
    """Return a column as JSON can hold it; `column_of` reads it back."""
    kind = next(name for name, one in KINDS.items() if one is type(column))
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(column).items()
    }
    return {"kind": kind, **options}


def kinds_in_files(*sides: Mapping[str, Any]) -> Kinds:
    """Return how declared columns are read from a CSV file; undeclared ones are left to guess.

    >>> kinds_in_files({"zip": Category(), "tags": Text()}, {"price": Number(), "other": None})
    {'zip': 'text', 'tags': 'text', 'price': 'number'}
    """
    declared = {name: column for side in sides for name, column in side.items()}
    return {
        name: "number" if isinstance(column, Number) else "text"
        for name, column in declared.items()
        if column is not None
    }


def _made(kind: Callable[..., Column], options: Mapping[str, Any], name: str) -> Column:
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            hint = nearest(option, known)
            raise OptionError(f"column {name!r} has an option {option!r}, expected {hint}")
    try:
        return kind(**options)
    except (KindError, OptionError) as error:
        raise type(error)(f"column {name!r}: {error}") from None
