"""Every error message says what was passed, what was expected and what to do."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from dyclu import DyClu, DycluError, Stats
from dyclu.errors import KindError, NumberError, ShapeError

ARMS = np.eye(3)


@pytest.mark.parametrize(
    ("arms", "error", "message"),
    [
        (np.eye(4), ShapeError, "got 4 features, this policy was built for 3; pass dim=4 or cut"),
        (np.eye(2), ShapeError, "got 2 features, this policy was built for 3; pass dim=2 or give"),
        (np.ones(3), ShapeError, "arms have shape (3,), expected (number of arms, 3)"),
        (np.ones((0, 3)), ShapeError, "arms are empty"),
        ([], ShapeError, "arms have shape (0,)"),
        ([[1, 2, 3], [1, 2]], ShapeError, "rows of equal length"),
        (np.full((2, 3), np.nan), NumberError, "arms holds nan"),
        ([[1, 2, -np.inf]], NumberError, "arms holds -inf"),
        ([[1, 2, 1e200]], NumberError, "arms holds 1e+200"),
        ([["a", "b", "c"]], KindError, "arms is an array of <U1, expected real numbers"),
        (np.eye(3) * 1j, KindError, "arms is an array of complex128"),
        ([[object()] * 3], KindError, "arms is an array of object"),
        (None, KindError, "arms is None, expected real numbers"),
        ([[10**400, 0, 0]], KindError, "arms is an array of object"),
        ([[0, 2e6, 0]], NumberError, "arms holds 2000000.0, expected finite numbers up to ±1e+06"),
        (np.ma.masked_array(np.eye(3), np.eye(3) > 0), KindError, "arms is a masked array"),
    ],
)
def test_invalid_arms_raise_an_error(arms: Any, error: type[DycluError], message: str) -> None:
    with pytest.raises(error) as caught:
        DyClu(3).decide("ana", arms)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize(
    ("context", "reward", "error", "message"),
    [
        (np.ones(4), 1.0, ShapeError, "context: got 4 features"),
        (np.ones((1, 3)), 1.0, ShapeError, "pass the row of the chosen arm"),
        ([1, 2, np.nan], 1.0, NumberError, "context holds nan"),
        (np.ones(3), None, KindError, "reward is None, expected real numbers; where a value is"),
        (np.ones(3), "good", KindError, "reward is str"),
        (np.ones(3), 1j, KindError, "reward is complex"),
        (np.ones(3), np.inf, NumberError, "reward holds inf"),
        (np.ones(3), np.ma.masked, KindError, "reward is a masked array"),
        (np.ones(3), [1.0], ShapeError, "reward has shape (1,), expected one number"),
    ],
)
def test_invalid_observations_raise_an_error_and_change_nothing(
    context: Any, reward: Any, error: type[DycluError], message: str
) -> None:
    policy = DyClu(3)
    with pytest.raises(error) as caught:
        policy.learn("ana", context, reward)
    assert message in str(caught.value)
    assert policy.segments == ()


@pytest.mark.parametrize("user", [None, 1.0, True, np.bool_(True), b"ana", ("ana",), ["ana"]])
def test_invalid_users_raise_an_error(user: Any) -> None:
    with pytest.raises(KindError, match=r"user is .*, expected a str or an int"):
        DyClu(3).decide(user, ARMS)


def test_users_that_cannot_be_saved_raise_an_error() -> None:
    with pytest.raises(KindError, match="half of a character"):
        DyClu(3).learn("\ud83d\ude00", [1, 0, 0], 1.0)
    with pytest.raises(NumberError, match="pass a long id as a str"):
        DyClu(3).learn(2**300, [1, 0, 0], 1.0)


def test_a_str_subclass_and_its_value_are_one_user() -> None:
    class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
        RED = "red"

    policy = DyClu(3)
    policy.learn(Colour.RED, [1, 0, 0], 1.0)
    policy.learn("red", [1, 0, 0], 1.0)
    assert [segment.user for segment in policy.segments] == ["red"]


def test_tiny_features_count_as_zero() -> None:
    stats = Stats.of([1e-160, 3e-160, 7e-160], 1.0)
    assert stats.rank == 0
    assert not stats.theta.any()


@pytest.mark.parametrize("reward", [1, np.float32(1), np.int8(1), True, np.array(1.0)])
def test_rewards_of_any_real_type_are_accepted(reward: Any) -> None:
    policy = DyClu(3)
    policy.learn("ana", [1, 0, 0], reward)
    assert policy.segments[0].stats == Stats.of([1.0, 0.0, 0.0], 1.0)


def test_stats_with_mismatched_shapes_raise_an_error() -> None:
    for X, y in (
        ([[1, 2]], [1, 2]),
        ([1, 2], [1, 2]),
        ([[1, 2]], 1),
        (1, 1),
        (np.ones((3, 0)), [1] * 3),
    ):
        with pytest.raises(ShapeError, match="one reward per context"):
            Stats.of(X, y)
    with pytest.raises(ShapeError, match="cannot add statistics of 2 and 3 features"):
        Stats.empty(2) + Stats.empty(3)
