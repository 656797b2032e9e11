"""Declarations of columns: what a column holds, and which features are made of it.

A declaration is complete if it says everything that features need: mean and scale of a number,
the values of a category. What is left out is fitted, and a fitted column is a complete declaration
of the same type, so that it can also be written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np

from dyclu.data.suggestions import nearest
from dyclu.errors import KindError, OptionError
from dyclu.validation import LARGEST, as_positive, as_whole, as_within

OTHER = "(other)"
MISSING = "(missing)"
MOST_VALUES = 50
"""Values that a fitted vocabulary keeps, unless `most` says otherwise."""

LARGEST_CLIP = 1e6
"""Features beyond this are refused by policies."""

Label = str


def as_label(value: Any) -> Label:
    """Return the text by which a value of a category is known; 1, 1.0, True and "1" are the same.

    A column of whole numbers becomes one of floats in some data frames as soon as a value is
    missing, and text in a CSV file. It must stay the same category.

    >>> as_label("jazz"), as_label(1.0), as_label(True), as_label(2.5)
    ('jazz', '1', '1', '2.5')
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    raise KindError(f"got {value!r} ({type(value).__name__}), expected a str or a number")


def is_missing(value: Any) -> bool:
    """Return whether a value stands for a missing one: None, NaN, or a data frame's own mark."""
    if value is None:
        return True
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number x, as the feature ``(x − mean) / scale``; a missing one is the mean, so 0.

    Parameters
    ----------
    mean, scale : float or None
        Fitted as mean and standard deviation of the column if None.
    log : bool
        Take the natural logarithm first; numbers must be above 0.
    clip : float
        Features beyond ±clip are set to it, so that one wrong number does not rule a model.
    missing : bool
        Add a feature that is 1 where the number is missing.
    alone : bool
        Whether the column has features of its own beside its crosses.
    """

    mean: float | None = None
    scale: float | None = None
    log: bool = False
    clip: float = 10.0
    missing: bool = False
    alone: bool = True

    def __post_init__(self) -> None:
        if self.mean is not None:
            _set(self, mean=as_within(self.mean, "mean", -LARGEST, LARGEST))
        if self.scale is not None:
            _set(self, scale=as_positive(self.scale, "scale"))
        clip = as_positive(self.clip, "clip")
        if clip > LARGEST_CLIP:
            raise OptionError(f"clip is {clip:g}, expected at most {LARGEST_CLIP:g}")
        _set(self, clip=clip, **_flags(self, "log", "missing", "alone"))

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be fitted."""
        return self.mean is not None and self.scale is not None

    def names(self, column: str) -> list[str]:
        """Return the names of its features."""
        return [column, f"{column} {MISSING}"] if self.missing else [column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """One of several values, as one feature per value; a missing value is 0 in all of them.

    Parameters
    ----------
    values : tuple of str, or None
        The values with a feature of their own; the `most` frequent ones of the log if None.
    most : int
        How many values are fitted.
    other : bool
        Add a feature for all other values; without it, they count as missing.
    hashed : int or None
        Make this many features, and give every value the one that its hash says. Nothing is
        fitted, and no value is unseen; but values share features, and are known by number only.
    alone : bool
        Whether the column has features of its own beside its crosses.
    """

    values: tuple[Label, ...] | None = None
    most: int = MOST_VALUES
    other: bool = True
    hashed: int | None = None
    alone: bool = True

    def __post_init__(self) -> None:
        _set(self, most=as_whole(self.most, "most", least=1), **_flags(self, "other", "alone"))
        if self.hashed is not None:
            _set(self, hashed=as_whole(self.hashed, "hashed", least=1))
            if self.values is not None:
                raise OptionError("values and hashed are given, expected one of them")
        if self.values is not None:
            _set(self, values=_labels(self.values))

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be fitted."""
        return self.values is not None or self.hashed is not None

    def names(self, column: str) -> list[str]:
        """Return the names of its features."""
        if self.hashed is not None:
            return [f"{column}#{bucket}" for bucket in range(self.hashed)]
        return [f"{column}={value}" for value in _vocabulary(self)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Tags: any number of values, as one feature per value; none or a missing value is all 0.

    Parameters
    ----------
    values : tuple of str, or None
        The tags with a feature of their own; the `most` frequent ones of the log if None.
    most : int
        How many tags are fitted.
    other : bool
        Add a feature that is 1 if there is any other tag.
    separator : str
        What stands between tags that are written as one text; lists of tags are taken as they are.
    alone : bool
        Whether the column has features of its own beside its crosses.
    """

    values: tuple[Label, ...] | None = None
    most: int = MOST_VALUES
    other: bool = True
    separator: str = "|"
    alone: bool = True

    def __post_init__(self) -> None:
        _set(self, most=as_whole(self.most, "most", least=1), **_flags(self, "other", "alone"))
        if not isinstance(self.separator, str) or not self.separator:
            raise OptionError(f"separator is {self.separator!r}, expected a text such as '|'")
        if self.values is not None:
            _set(self, values=_labels(self.values))

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be fitted."""
        return self.values is not None

    def names(self, column: str) -> list[str]:
        """Return the names of its features."""
        return [f"{column}={value}" for value in _vocabulary(self)]


Column = Number | Category | Text
_Any = TypeVar("_Any", Number, Category, Text)
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


def _vocabulary(column: Category | Text) -> tuple[Label, ...]:
    return (*(column.values or ()), OTHER) if column.other else (column.values or ())


def _labels(values: Iterable[Any]) -> tuple[Label, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise KindError(f"values are {values!r}, expected a list of values")
    labels = tuple(map(as_label, values))
    if len(set(labels)) < len(labels) or not labels:
        raise OptionError(f"values are {labels!r}, expected at least one value, and none twice")
    return labels


def _flags(column: Column, *names: str) -> dict[str, bool]:
    for name in names:
        if not isinstance(getattr(column, name), bool):
            raise KindError(f"{name} is {getattr(column, name)!r}, expected true or false")
    return {name: getattr(column, name) for name in names}


def _set(column: Column, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(column, name, value)
