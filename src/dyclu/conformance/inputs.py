"""Arrays in unusual forms, and calls that a policy must refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

import numpy as np

from dyclu.conformance.contract import fail
from dyclu.conformance.streams import NAMES, STRANGER, Give
from dyclu.policy import Policy
from dyclu.validation import FloatArray


class Lender:
    """Lends arrays to a policy, and overwrites each one when the next one is lent."""

    def __init__(self) -> None:
        self._lent = self._original = np.empty(0)

    def lend(self, array: FloatArray) -> FloatArray:
        """Return a copy, and take back the one before."""
        self.take_back()
        self._lent, self._original = array.copy(), array
        return self._lent

    def take_back(self) -> None:
        """Fail if the copy was written; then overwrite it."""
        for place in np.argwhere(self._lent != self._original)[:1]:
            original, number = self._original[tuple(place)], self._lent[tuple(place)]
            fail(f"{original} to stay in the array passed in", number)
        self._lent[...] = 7.0


def read_only(array: FloatArray) -> FloatArray:
    """Return a copy that cannot be written."""
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array: FloatArray) -> FloatArray:
    """Return a view of every second number of a table in column-major order."""
    return np.repeat(array.T, 2, axis=0)[::2].T


FORMS: tuple[tuple[str, Give], ...] = (
    ("lists", methodcaller("tolist")),
    ("float32 arrays", methodcaller("astype", np.float32)),
    ("arrays of whole numbers", methodcaller("astype", np.int64)),
    ("strided views", strided),
)


def bad_calls(dim: int) -> Iterator[tuple[str, Callable[[Policy], Any]]]:
    """Yield calls that must raise, each with a description of its fault."""
    context = np.ones(dim)
    for user in (NAMES[0], STRANGER):
        for what, arms in (*bad_numbers((3, dim)), *bad_pools(dim)):
            yield f"arms {what}", methodcaller("decide", user, arms)
        for what, bad in (*bad_numbers((dim,)), *bad_contexts(dim)):
            yield f"context {what}", methodcaller("learn", user, bad, 1.0)
        for what, reward in (*bad_numbers(()), ("of an array", np.ones(1)), ("of a list", [1.0])):
            yield f"reward {what}", methodcaller("learn", user, context, reward)
    for bad in (None, 1.5, True, ["ana"]):
        yield f"user {bad!r} deciding", methodcaller("decide", bad, context[None, :])
        yield f"user {bad!r} learning", methodcaller("learn", bad, context, 1.0)


def bad_numbers(shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield arrays of the right shape whose last number is invalid."""
    yield "None", None
    numbers: tuple[Any, ...] = (math.nan, math.inf, -math.inf, 1e200, "1.0", 1j, {})
    for number in numbers:
        array = np.ones(shape, dtype=np.result_type(type(number), np.float64))
        array[(-1,) * len(shape)] = number
        yield f"holding {number!r}", array if shape else number


def bad_pools(dim: int) -> Iterator[tuple[str, Any]]:
    """Yield arms that must be refused, each with a description."""
    yield "with a feature too many", np.ones((3, dim + 1))
    yield "none at all", np.ones((0, dim))
    yield "of an empty list", []
    yield "in one dimension", np.ones(dim)
    yield "in three dimensions", np.ones((3, dim, 1))
    yield "of ragged lists", [[1.0] * dim, [1.0] * (dim + 1)]


def bad_contexts(dim: int) -> Iterator[tuple[str, Any]]:
    """Yield contexts that must be refused, each with a description."""
    yield "with a feature too many", np.ones(dim + 1)
    yield "in two dimensions", np.ones((1, dim))
    yield "of one number", 1.0
    yield "of ragged lists", [[1.0] * dim, [1.0] * (dim + 1)]
