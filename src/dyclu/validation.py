"""Turning what callers pass into what the library trusts: the only place where input is judged.

Every function returns a fresh value (arrays are always copies, so nothing a caller holds is kept)
or raises a `DycluError` that says what it got, what it expected and what to do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.errors import KindError, NumberError, OptionError, ShapeError

FloatArray = NDArray[np.float64]
User = str | int

LARGEST = 1e50
"""Largest magnitude of a feature or reward: products of six of them must still be finite."""


def as_user(user: Hashable) -> User:
    """Return the user's name as a plain `str` or `int`; ``"1"`` and ``1`` are two people."""
    if isinstance(user, str):
        return str(user)
    if isinstance(user, bool | np.bool_) or not isinstance(user, int | np.integer):
        raise KindError(
            f"user is {user!r} ({type(user).__name__}), expected a str or an int; "
            "pass the user's id or name"
        )
    return operator.index(user)


def as_arms(arms: ArrayLike, dim: int) -> FloatArray:
    """Return the offered arms as a fresh ``(K, dim)`` array with K ≥ 1."""
    table = as_floats(arms, "arms")
    if table.ndim != 2:
        raise ShapeError(
            f"arms have shape {table.shape}, expected (number of arms, {dim}); "
            "pass one row per arm, and a single arm as arms[None, :]"
        )
    if len(table) == 0:
        raise ShapeError("arms are empty, expected at least one; there is nothing to choose from")
    _check_features(table, dim, "arms")
    return table


def as_context(context: ArrayLike, dim: int) -> FloatArray:
    """Return the context of the chosen arm as a fresh ``(dim,)`` array."""
    vector = as_floats(context, "context")
    if vector.ndim != 1:
        raise ShapeError(
            f"context has shape {vector.shape}, expected ({dim},); "
            "pass the row of the chosen arm, arms[decision.arm]"
        )
    _check_features(vector, dim, "context")
    return vector


def as_reward(reward: Any) -> float:
    """Return the reward as a float."""
    value = as_floats(reward, "reward")
    if value.ndim != 0:
        raise ShapeError(f"reward has shape {value.shape}, expected one number; pass y, not [y]")
    return float(value)


def as_observations(X: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return contexts ``(n, d)`` and rewards ``(n,)``; one pair may be ``(d,)`` and a number."""
    contexts, rewards = as_floats(X, "X"), as_floats(y, "y")
    if contexts.ndim == 1 and rewards.ndim == 0:
        contexts, rewards = contexts[None, :], rewards[None]
    if contexts.ndim != 2 or rewards.shape != contexts.shape[:1] or contexts.shape[1] == 0:
        raise ShapeError(
            f"X has shape {contexts.shape} and y {rewards.shape}, expected (n, d) and (n,), "
            "or (d,) and one number; pass one reward per context"
        )
    return contexts, rewards


def as_dim(dim: Any) -> int:
    """Return the number of features as an int ≥ 1."""
    return as_whole(dim, "dim", least=1)


def as_whole(value: Any, name: str, *, least: int) -> int:
    """Return a whole number ≥ `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise KindError(
            f"{name} is {value!r} ({type(value).__name__}), expected a whole number ≥ {least}"
        )
    if value < least:
        raise OptionError(f"{name} is {value}, expected a whole number ≥ {least}")
    return operator.index(value)


def as_probability(value: Any, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    number = as_number(value, name, "a number strictly between 0 and 1")
    if not 0 < number < 1:
        raise OptionError(f"{name} is {value}, expected a number strictly between 0 and 1")
    return number


def as_positive(value: Any, name: str) -> float:
    """Return a finite number above 0."""
    number = as_number(value, name, "a finite number above 0")
    if not (0 < number < math.inf):
        raise OptionError(f"{name} is {value}, expected a finite number above 0")
    return number


def as_within(value: Any, name: str, low: float, high: float) -> float:
    """Return a number from `low` to `high`, both included."""
    expected = f"a number from {low:g} to {high:g}"
    number = as_number(value, name, expected)
    if not low <= number <= high:
        raise OptionError(f"{name} is {value}, expected {expected}")
    return number


def as_number(value: Any, name: str, expected: str) -> float:
    """Return any real number as a float; `expected` is what the refusal asks for."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise KindError(f"{name} is {value!r} ({type(value).__name__}), expected {expected}")
    return float(value)


def as_floats(value: Any, name: str) -> FloatArray:
    """Return finite numbers of any arrangement as a fresh array."""
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise ShapeError(
            f"{name} cannot be arranged as an array ({error}), expected rows of equal length; "
            "give every row the same number of features"
        ) from None
    if raw.dtype.kind not in "fiub":
        raise KindError(
            f"{name} is {_described(value, raw)}, expected real numbers; convert with float() first"
        )
    floats = raw.astype(np.float64)
    if not (np.abs(floats) <= LARGEST).all():
        raise NumberError(
            f"{name} holds {_first_unusable(floats)}, expected finite numbers up to ±{LARGEST:g}; "
            "drop or repair the observation, or rescale the features"
        )
    return floats


def _described(value: Any, raw: NDArray[Any]) -> str:
    return type(value).__name__ if raw.ndim == 0 else f"an array of {raw.dtype}"


def _first_unusable(floats: FloatArray) -> float:
    return float(floats[~(np.abs(floats) <= LARGEST)].flat[0])


def _check_features(array: FloatArray, dim: int, name: str) -> None:
    features = array.shape[-1]
    if features != dim:
        raise ShapeError(
            f"{name} have {features} features, this policy was built for {dim}; "
            f"pass dim={features} or cut the {name}"
        )
