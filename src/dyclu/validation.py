"""Turning what callers pass into what the library trusts: the only place where input is judged.

Every function returns a fresh value (arrays are always copies, so nothing a caller holds is kept)
or raises a `DycluError` that says what it got, what it expected and what to do.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Hashable, Iterable, Set
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import dasum

from dyclu.errors import KindError, NumberError, OptionError, ShapeError

FloatArray = NDArray[np.float64]
Ids = NDArray[np.intp]
User = str | int

LARGEST = 1e40
"""Largest magnitude of any number: products of six of them must still be finite."""

SMALLEST = 1e-40
"""Features and rewards below it count as 0: their squares must not vanish unnoticed."""

LARGEST_FEATURE = 1e6
"""Largest feature a policy takes: beside a larger one, a ridge near 1 is lost in rounding."""

EXTREME = 1e150
"""Largest positive option, and inverse of the smallest: squares and their inverses are finite."""

LARGEST_COUNT = 10**60
"""Largest whole number an option may be."""

LONGEST_NAME = 256
"""Bits of the largest whole number that may be a user's name."""

LARGEST_PLAIN = 2**63
"""Whole numbers up to it need no further look."""

_FLOAT64 = np.dtype(np.float64)
# An array, because comparing with one is quicker than with a number.
_SMALLEST = np.array(SMALLEST)


def as_user(user: Hashable) -> User:
    """Return the user's name as a plain `str` or `int`; ``"1"`` and ``1`` are two people."""
    if type(user) is int and -LARGEST_PLAIN <= user <= LARGEST_PLAIN:
        return user
    if isinstance(user, str):
        return _as_text(str.__str__(user))
    if isinstance(user, bool | np.bool_) or not isinstance(user, int | np.integer):
        raise KindError(
            f"user is {user!r} ({type(user).__name__}), expected a str or an int; "
            "pass the user's id or name"
        )
    number = operator.index(user)
    if number.bit_length() > LONGEST_NAME:
        raise NumberError(
            f"user is a number of {number.bit_length()} bits, expected at most {LONGEST_NAME}; "
            "pass a long id as a str"
        )
    return number


def _as_text(user: str) -> str:
    try:
        user.encode()
    except UnicodeEncodeError:
        raise KindError(
            f"user is {user!a}, which holds half of a character, expected text that can be "
            "written as UTF-8; decode the name as what it was encoded in"
        ) from None
    return user


def as_arms(arms: ArrayLike, dim: int) -> FloatArray:
    """Return the offered arms as a fresh ``(K, dim)`` array with K ≥ 1."""
    table = as_floats(arms, "arms", largest=LARGEST_FEATURE)
    if table.ndim != 2:
        raise ShapeError(
            f"arms have shape {table.shape}, expected (number of arms, {dim}); "
            "pass one row per arm, and a single arm as arms[None, :]"
        )
    if len(table) == 0:
        raise ShapeError("arms are empty, expected at least one; there is nothing to choose from")
    if table.shape[1] != dim:
        raise _wrong_features(table, dim, "arms")
    return table


def as_context(context: ArrayLike, dim: int, *, zero_tiny: bool = True) -> FloatArray:
    """Return the context of the chosen arm as a fresh ``(dim,)`` array.

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
    """Return the names of a batch, as `as_user` does each."""
    listed = not isinstance(users, str | bytes | Set) and isinstance(users, Iterable)
    if not listed or (isinstance(users, np.ndarray) and users.ndim != 1):
        raise KindError(
            f"users is {users!r} ({type(users).__name__}), expected several in an order; "
            "pass a list of users"
        )
    return [as_user(user) for user in users]


def as_tables(arms: ArrayLike, users: int, dim: int) -> FloatArray:
    """Return the offered arms of a batch as a fresh ``(users, K, dim)`` array with K ≥ 1."""
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
    """Return the chosen contexts of a batch as a fresh ``(users, dim)`` array."""
    table = as_floats(contexts, "contexts", largest=LARGEST_FEATURE)
    if users == 0 and table.shape == (0,):
        return np.empty((0, dim))
    if table.ndim != 2 or len(table) != users:
        raise ShapeError(
            f"contexts have shape {table.shape}, expected ({users}, {dim}); "
            "pass the row of the chosen arm of each user"
        )
    if table.shape[1] != dim:
        raise _wrong_features(table, dim, "contexts")
    return _without_tiny(table)


def as_rewards(rewards: ArrayLike, users: int) -> FloatArray:
    """Return the rewards of a batch as a fresh ``(users,)`` array."""
    values = as_floats(rewards, "rewards")
    if values.shape != (users,):
        raise ShapeError(
            f"rewards have shape {values.shape}, expected ({users},); pass one reward per user"
        )
    return values


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
    number = as_number(value, name, "a number strictly between 0 and 1")
    if not sys.float_info.min <= number < 1:
        raise OptionError(f"{name} is {value}, expected a number strictly between 0 and 1")
    return number


def as_positive(value: Any, name: str) -> float:
    """Return a number above 0 whose square and inverse are finite too."""
    expected = f"a number above 0, from {1 / EXTREME:g} to {EXTREME:g}"
    number = as_number(value, name, expected)
    if not (1 / EXTREME <= number <= EXTREME):
        raise OptionError(f"{name} is {value}, expected {expected}")
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
    try:
        return float(value)
    except OverflowError:
        raise OptionError(
            f"{name} is a number of {len(str(value))} digits, expected {expected}"
        ) from None


def as_floats(value: Any, name: str, *, largest: float = LARGEST) -> FloatArray:
    """Return finite numbers of any arrangement as a fresh array."""
    usual = type(value) is np.ndarray and value.dtype is _FLOAT64
    floats: FloatArray = value.copy() if usual else _copied(value, name)
    flat = floats.ravel()
    # The sum of sizes bounds each of them, at a fraction of the cost of looking at them.
    if len(flat) and not dasum(flat) <= largest and not np.abs(flat).max() <= largest:
        raise NumberError(
            f"{name} holds {_first_unusable(floats, largest)}, expected finite numbers up to "
            f"±{largest:g}; drop or repair the observation, or rescale"
        )
    return floats


def _copied(value: Any, name: str) -> FloatArray:
    if isinstance(value, np.ma.MaskedArray):
        raise KindError(
            f"{name} is a masked array, expected numbers without gaps; "
            "drop the observation, or fill in what is missing"
        )
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
    return raw.astype(np.float64, order="C")


def _without_tiny(floats: FloatArray) -> FloatArray:
    floats[np.abs(floats) < _SMALLEST] = 0.0
    return floats


def _described(value: Any, raw: NDArray[Any]) -> str:
    return type(value).__name__ if raw.ndim == 0 else f"an array of {raw.dtype}"


def _first_unusable(floats: FloatArray, largest: float) -> float:
    return float(floats[~(np.abs(floats) <= largest)].flat[0])


def _wrong_features(array: FloatArray, dim: int, name: str) -> ShapeError:
    features = array.shape[-1]
    return ShapeError(
        f"{name} have {features} features, this policy was built for {dim}; "
        f"pass dim={features} or cut the {name}"
    )
