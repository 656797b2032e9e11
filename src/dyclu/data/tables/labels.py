"""Labels: the texts by which values of categories and ids of items are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dyclu.errors import KindError

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
    if value is None or isinstance(value, str):
        return value is None
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")
