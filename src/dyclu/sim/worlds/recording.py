"""Recorded data sets: what `LastFM` and `MovieLens` have in common.

A recording holds what was read from files. `Recording.stream` draws an experiment from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import OptionError
from dyclu.sim.worlds.stream import Stream
from dyclu.validation import FloatArray, Ids


class Recording(Protocol):
    """What a study needs of a recorded data set."""

    name: ClassVar[str]
    """The name that `dyclu reproduce` uses."""

    @property
    def read(self) -> Callable[..., Any]:
        """The function that reads such a data set from a folder."""

    @property
    def stream(self) -> Callable[..., Stream]:
        """The function that draws a stream from a seed and options."""

    @property
    def features(self) -> FloatArray:
        """Features of the items, shape (items, dim)."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that was read."""


def digest_of(arrays: Iterable[NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays, with their shapes and types."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_name(value: object, name: str, choices: Any) -> None:
    """Refuse a value that is not one of the choices of a `Literal`."""
    if value not in get_args(choices):
        known = ", ".join(map(repr, get_args(choices)))
        raise OptionError(f"{name} is {value!r}, expected one of {known}")


def people_with(observed: Ids, least: int) -> Ids:
    """Return the people with enough observations; `observed` has their id once for each.

    >>> people_with(np.array([7, 8, 7, 9, 9]), 2)
    array([7, 9])
    """
    ids, counts = np.unique(observed, return_counts=True)
    most = counts.max(initial=0)
    if most < least:
        raise OptionError(
            f"least is {least}, and no person has more than {most} observations, expected "
            f"at least one person with enough; pass least={most} or lower"
        )
    return ids[counts >= least]


def check_room(*, people: int, parts: int, offered: int, room: int, items: str) -> None:
    """Refuse more parts than people, and more items per event than a person has new ones."""
    if parts > people:
        raise OptionError(
            f"parts is {parts}, and {people} people have enough observations, "
            f"expected at least {parts}; lower parts, or `least` when reading"
        )
    if offered > room + 1:
        raise OptionError(
            f"offered is {offered}, and one person has only {room} new {items}, expected "
            f"{offered - 1} beside the positive one; pass offered={room + 1} or lower"
        )
