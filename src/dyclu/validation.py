"""Checks of all input from callers; the rest of the library trusts its arguments.

Every function returns a new value (arrays are copied, so later changes by the caller do no harm)
or raises a `DycluError` that says what it got, what it expected and what to do.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Hashable, Iterable, Set
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from dyclu.errors import KindError, NumberError, OptionError, ShapeError

FloatArray = NDArray[np.float64]
Ids = NDArray[np.intp]
User = str | int

LONGEST_ID = 128
ID = r"^[A-Za-z0-9_][A-Za-z0-9_.:@+=~-]*(?!\n)$"
"""Pattern of an id in the service: letters, digits and some punctuation; no slash, no space.

A ``$`` alone would accept a newline at the end.
"""

LARGEST = 1e40
"""Largest magnitude of any number; products of six such numbers are finite."""

SMALLEST = 1e-40
"""Features and rewards of smaller magnitude are set to 0; squares of larger ones are not 0."""

LARGEST_FEATURE = 1e6
"""Largest feature of arms and contexts; with larger ones, a ridge near 1 is lost in rounding."""

LARGEST_OPTION = 1e150
"""Largest positive option; its inverse is the smallest. Squares and their inverses are finite."""

LARGEST_COUNT = 10**60
"""Largest whole number that an option can be."""

LARGEST_USER_BITS = 256
"""Number of bits of the largest whole number that can be a user."""

LARGEST_COMMON_USER = 2**63
"""Users that are whole numbers up to this are accepted without further checks."""

_FLOAT64 = np.dtype(np.float64)
# An array, because numpy compares with an array faster than with a number.
_SMALLEST = np.array(SMALLEST)


def as_user(user: Hashable) -> User:
    """Return the user as a plain `str` or `int`; ``"1"`` and ``1`` are two users."""
    if type(user) is int and -LARGEST_COMMON_USER <= user <= LARGEST_COMMON_USER:
        return user
    if isinstance(user, str):
        return _as_text(str.__str__(user))
    if isinstance(user, bool | np.bool_) or not isinstance(user, int | np.integer):
        raise KindError(
            f"user is {user!r} ({type(user).__name__}), expected a str or an int; "
            "pass the user's id or name"
        )
    number = operator.index(user)
    if number.bit_length() > LARGEST_USER_BITS:
        raise NumberError(
            f"user is a number of {number.bit_length()} bits, expected at most "
            f"{LARGEST_USER_BITS}; pass a long id as a str"
        )
    return number


def _as_text(user: str) -> str:
    try:
        user.encode()
    except UnicodeEncodeError:
        raise KindError(
            f"user is {user!a}, which contains half of a character, expected text that UTF-8 can "
            "encode; decode the user's name with the encoding it was written in"
        ) from None
    return user


def as_arms(arms: ArrayLike, dim: int) -> FloatArray:
    """Return the offered arms as a new ``(K, dim)`` array with K ≥ 1."""
    table = as_floats(arms, "arms", largest=LARGEST_FEATURE)
    if table.ndim != 2:
        raise ShapeError(
            f"arms have shape {table.shape}, expected (number of arms, {dim}); "
            "pass one row per arm, and a single arm as arms[None, :]"
        )
    if len(table) == 0:
        raise ShapeError("arms are empty, expected at least one arm; pass one row per arm")
    if table.shape[1] != dim:
        raise _wrong_features(table, dim, "arms")
    return table


def as_context(context: ArrayLike, dim: int, *, zero_tiny: bool = True) -> FloatArray:
    """Return the context of the chosen arm as a new ``(dim,)`` array.

    `zero_tiny=False` skips setting features below `SMALLEST` to 0; the caller must do it.
    """
    vector = as_floats(context, "context", largest=LARGEST_FEATURE)
    if vector.ndim != 1:
        raise ShapeError(
            f"context has shape {vector.shape}, expected ({dim},); "
            "pass the row of the chosen arm, arms[decision.arm]"
        )
    if len(vector) != dim:
        raise _wrong_features(vector, dim, "context")
    return _without_tiny(vector) if zero_tiny else vector


def as_reward(reward: Any) -> float:
    """Return the reward as a float."""
    if isinstance(reward, float) and -LARGEST <= reward <= LARGEST:
        return float(reward)
    value = as_floats(reward, "reward")
    if value.ndim != 0:
        raise ShapeError(f"reward has shape {value.shape}, expected one number; pass y, not [y]")
    return float(value)


def as_users(users: Iterable[Hashable]) -> list[User]:
    """Return the users of a batch, each as `as_user` returns it."""
    ordered = not isinstance(users, str | bytes | Set) and isinstance(users, Iterable)
    if not ordered or (isinstance(users, np.ndarray) and users.ndim != 1):
        raise KindError(
            f"users is {users!r} ({type(users).__name__}), expected an ordered collection; "
            "pass a list of users"
        )
    return [as_user(user) for user in users]


def as_tables(arms: ArrayLike, users: int, dim: int) -> FloatArray:
    """Return the offered arms of a batch as a new ``(users, K, dim)`` array with K ≥ 1."""
    tables = as_floats(arms, "arms", largest=LARGEST_FEATURE)
    if users == 0 and tables.shape == (0,):
        return np.empty((0, 1, dim))
    if tables.ndim != 3 or len(tables) != users or tables.shape[1] == 0:
        raise ShapeError(
            f"arms have shape {tables.shape}, expected ({users}, number of arms, {dim}); "
            "pass one table of arms per user, all of the same length"
        )
    if tables.shape[2] != dim:
        raise _wrong_features(tables, dim, "arms")
    return tables


def as_contexts(contexts: ArrayLike, users: int, dim: int) -> FloatArray:
    """Return the chosen contexts of a batch as a new ``(users, dim)`` array."""
    table = as_floats(contexts, "contexts", largest=LARGEST_FEATURE)
    if users == 0 and table.shape == (0,):
        return np.empty((0, dim))
    if table.ndim != 2 or len(table) != users:
        raise ShapeError(
            f"contexts have shape {table.shape}, expected ({users}, {dim}); "
            "pass the chosen arm's row of each user"
        )
    if table.shape[1] != dim:
        raise _wrong_features(table, dim, "contexts")
    return _without_tiny(table)


def as_rewards(rewards: ArrayLike, users: int) -> FloatArray:
    """Return the rewards of a batch as a new ``(users,)`` array."""
    values = as_floats(rewards, "rewards")
    if values.shape != (users,):
        raise ShapeError(
            f"rewards have shape {values.shape}, expected ({users},); pass one reward per user"
        )
    return values


def as_observations(X: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return contexts ``(n, d)`` and rewards ``(n,)``; also accepts ``(d,)`` and one number."""
    contexts, rewards = as_floats(X, "X"), as_floats(y, "y")
    if contexts.ndim == 1 and rewards.ndim == 0:
        contexts, rewards = contexts[None, :], rewards[None]
    if contexts.ndim != 2 or rewards.shape != contexts.shape[:1] or contexts.shape[1] == 0:
        raise ShapeError(
            f"X has shape {contexts.shape} and y {rewards.shape}, expected (n, d) and (n,), "
            "or (d,) and one number; pass one reward per context"
        )
    return _without_tiny(contexts), _without_tiny(rewards)


def as_dim(dim: Any) -> int:
    """Return the number of features as an int ≥ 1."""
    return as_whole(dim, "dim", least=1)


def as_whole(value: Any, name: str, *, least: int, most: int | None = None) -> int:
    """Return a whole number from `least` to `most`."""
    expected = f"a whole number ≥ {least}" if most is None else f"a whole number, {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise KindError(f"{name} is {value!r} ({type(value).__name__}), expected {expected}")
    if value < least or (most is not None and value > most):
        raise OptionError(f"{name} is {value}, expected {expected}")
    if value > LARGEST_COUNT:
        raise OptionError(f"{name} is {value}, expected a whole number of at most 60 digits")
    return operator.index(value)


def as_probability(value: Any, name: str) -> float:
    """Return a number strictly between 0 and 1."""
    expected, below_1 = "a number strictly between 0 and 1", math.nextafter(1.0, 0.0)
    return _as_bounded(value, name, expected, sys.float_info.min, below_1)


def as_positive(value: Any, name: str) -> float:
    """Return a number above 0 whose square and inverse are finite."""
    expected = f"a number above 0, from {1 / LARGEST_OPTION:g} to {LARGEST_OPTION:g}"
    return _as_bounded(value, name, expected, 1 / LARGEST_OPTION, LARGEST_OPTION)


def as_within(value: Any, name: str, low: float, high: float) -> float:
    """Return a number from `low` to `high`, both included."""
    return _as_bounded(value, name, f"a number from {low:g} to {high:g}", low, high)


def as_threshold(value: Any) -> float:
    """Return the growth of information that is news to other shards; 0 if everything is."""
    return as_within(value, "threshold", 0.0, LARGEST)


def _as_bounded(value: Any, name: str, expected: str, low: float, high: float) -> float:
    number = as_number(value, name, expected)
    if not low <= number <= high:
        raise OptionError(f"{name} is {value}, expected {expected}")
    return number


def as_number(value: Any, name: str, expected: str) -> float:
    """Return any real number as a float; `expected` is text for the error message."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise KindError(f"{name} is {value!r} ({type(value).__name__}), expected {expected}")
    try:
        return float(value)
    except OverflowError:
        raise OptionError(
            f"{name} is a number of {len(str(value))} digits, expected {expected}"
        ) from None


def as_floats(value: Any, name: str, *, largest: float = LARGEST) -> FloatArray:
    """Return finite numbers, in an array of any shape, as a new array."""
    usual = type(value) is np.ndarray and value.dtype is _FLOAT64
    floats: FloatArray = value.copy() if usual else _as_new_array(value, name)
    flat, blas = floats.ravel(), scipy.linalg.blas
    # Σ|x| is an upper bound of every |x|, and BLAS computes it faster than numpy the maximum.
    if len(flat) and not blas.dasum(flat) <= largest and not np.abs(flat).max() <= largest:
        raise NumberError(
            f"{name} holds {_first_unusable(floats, largest)}, expected finite numbers up to "
            f"±{largest:g}; drop or repair the observation, or rescale"
        )
    return floats


def _as_new_array(value: Any, name: str) -> FloatArray:
    if isinstance(value, np.ma.MaskedArray):
        raise KindError(
            f"{name} is a masked array, expected numbers without gaps; "
            "drop the observation, or fill in the missing numbers"
        )
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise ShapeError(
            f"{name} cannot be converted to an array ({error}), expected rows of equal length; "
            "give every row the same number of features"
        ) from None
    if raw.dtype.kind not in "fiub":
        raise KindError(
            f"{name} is {_described(value, raw)}, expected real numbers; {_cure(value)}"
        )
    return raw.astype(np.float64, order="C")


def _without_tiny(floats: FloatArray) -> FloatArray:
    floats[np.abs(floats) < _SMALLEST] = 0.0
    return floats


def _described(value: Any, raw: NDArray[Any]) -> str:
    if value is None:
        return "None"
    return type(value).__name__ if raw.ndim == 0 else f"an array of {raw.dtype}"


def _cure(value: Any) -> str:
    """Return what to do about a value that holds no numbers."""
    if value is None:
        return "where a value is missing, leave the call out, or fill in a number"
    return "convert text with float() first, and fill in what is missing"


def _first_unusable(floats: FloatArray, largest: float) -> float:
    return float(floats[~(np.abs(floats) <= largest)].flat[0])


def _wrong_features(array: FloatArray, dim: int, name: str) -> ShapeError:
    features = array.shape[-1]
    cure = f"or cut the {name}" if features > dim else f"or give all {dim}"
    return ShapeError(
        f"{name}: got {features} features, this policy was built for {dim}; "
        f"pass dim={features} {cure}"
    )
