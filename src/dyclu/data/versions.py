"""Compare two declarations of features: can a policy that learnt with one use the other?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dyclu.data.features import Features

FITTED = ("mean", "scale", "values")
"""Options that are fitted where they are not given."""

IRRELEVANT = ("most",)
"""Options that matter only while fitting."""


def differences(ours: Features, theirs: Features) -> tuple[str, ...]:
    """Return the differences in sentences; see `Features.differences`."""
    found = list(_of_declarations(ours.declaration, theirs.declaration))
    both = ours.loadings is not None and theirs.loadings is not None
    if not found and both and not np.array_equal(ours.loadings, theirs.loadings):  # type: ignore[arg-type]
        found.append("reduce was fitted on another log, so its directions differ")
    return tuple(found)


def _of_declarations(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    for side in ("arm", "context"):
        yield from _of_columns(ours[side], theirs[side], side)
    for option in ("cross", "intercept", "reduce"):
        if ours[option] != theirs[option]:
            yield f"{option} was {ours[option]!r} and is {theirs[option]!r}"


def _of_columns(ours: Mapping[str, Any], theirs: Mapping[str, Any], side: str) -> Iterator[str]:
    for name in ours.keys() - theirs.keys():
        yield f"column {name!r} of the {side} was removed"
    for name in theirs.keys() - ours.keys():
        yield f"column {name!r} of the {side} was added"
    both = [name for name in ours if name in theirs]
    for name in both:
        yield from _of_column(name, ours[name], theirs[name])
    if both != [name for name in theirs if name in ours]:
        yield f"the columns of the {side} are in another order"


def _of_column(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    if ours["kind"] != theirs["kind"]:
        yield f"column {name!r} was a {ours['kind']} and is a {theirs['kind']}"
        return
    for option, was in ours.items():
        now = theirs[option]
        if was == now or option in IRRELEVANT or (now is None and option in FITTED):
            continue
        if option == "values" and was is not None:
            yield from _of_values(name, was, now)
        else:
            yield f"column {name!r}: {option} was {was!r} and is {now!r}"


def _of_values(name: str, was: list[str], now: list[str]) -> Iterator[str]:
    for value in was:
        if value not in now:
            yield f"column {name!r} no longer has the value {value!r}"
    for value in now:
        if value not in was:
            yield f"column {name!r} has the new value {value!r}"
    if sorted(was) == sorted(now):
        yield f"the values of column {name!r} are in another order"
