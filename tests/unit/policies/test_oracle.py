from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu import LinUCB, conformance
from dyclu.errors import KindError, OptionError
from dyclu.policies.oracle import Oracle
from dyclu.sim import Population, World, play, summary
from dyclu.storage import read
from dyclu.validation import User


def swapped(user: User, time: int) -> int:
    """Everybody changes after 20 rounds, halfway through a stream of the conformance checks."""
    return int(time >= 20)


def small_world() -> World:
    return Population(users=8, parameters=3, dim=4, rounds=60, shortest=15, longest=30).world(0)


def oracle_of(world: World, **options: Any) -> Oracle:
    def truth(user: User, time: int) -> int:
        assert isinstance(user, int)
        return int(world.truth[user, time])

    return Oracle(world.setting.dim, truth=truth, **options)


def test_contract() -> None:
    conformance.check_policy(
        lambda: Oracle(5, truth=swapped),
        load=lambda path: Oracle.restore(read(path), truth=swapped),
    )


@pytest.mark.parametrize("options", [{}, {"alpha": None, "noise": 0.1}, {"alpha": None}])
def test_equals_linucb_with_parameters_as_users(options: dict[str, Any]) -> None:
    world = small_world()
    oracle = oracle_of(world, **options)
    linucb = LinUCB(4, **{"alpha": 0.3, **options})
    for turn in world:
        mine, other = oracle.decide(turn.user, turn.arms), linucb.decide(turn.parameter, turn.arms)
        assert (mine.arm, mine.mean, mine.width) == (other.arm, other.mean, other.width)
        reward = turn.reward(mine.arm)
        outcome = oracle.learn(turn.user, turn.arms[mine.arm], reward)
        linucb.learn(turn.parameter, turn.arms[mine.arm], reward)
        assert outcome.kept
        assert outcome.segment == turn.parameter
        assert outcome.neighbours.tolist() == [turn.parameter]


def test_truth_gets_the_number_of_the_users_own_round() -> None:
    asked: list[tuple[User, int]] = []

    def truth(user: User, time: int) -> int:
        asked.append((user, time))
        return 0

    policy = Oracle(1, truth=truth)
    for user in ("ana", "bea", "ana"):
        policy.decide(user, [[1.0]])
        policy.decide(user, [[1.0]])
        policy.learn(user, [1.0], 0.5)
    assert asked == [("ana", 0)] * 3 + [("bea", 0)] * 3 + [("ana", 1)] * 3


def test_regret_is_below_half_of_that_of_linucb() -> None:
    # LinUCB serves users who change twice and more with one model each: no seed makes it win.
    world = small_world()
    told, alone = (summary(play(p, world)) for p in (oracle_of(world), LinUCB(4, alpha=0.3)))
    assert told.precision == told.recall == 1
    assert told.regret < 0.5 * alone.regret


@pytest.mark.parametrize(("answer", "error"), [(-1, OptionError), (1.5, KindError)])
def test_an_impossible_truth_is_refused_and_changes_nothing(
    answer: Any, error: type[Exception], tmp_path: Path
) -> None:
    policy = Oracle(1, truth=lambda user, time: answer)
    policy.save(tmp_path / "before")
    with pytest.raises(error, match=f"truth is {answer}"):
        policy.learn("ana", [1.0], 1.0)
    policy.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


def test_options_are_checked_and_survive_saving(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(KindError, match=r"truth is None .*expected a callable"):
        Oracle(2, truth=nothing)
    with pytest.raises(OptionError, match="alpha is 0"):
        Oracle(2, truth=swapped, alpha=0)
    options: dict[str, Any] = {
        "alpha": None,
        "noise": 0.2,
        "ridge": 0.5,
        "delta": 0.05,
        "intercept": True,
    }
    policy = Oracle(2, truth=swapped, **options)
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    assert repr(policy) == f"Oracle(dim=2, {shown})"
    policy.save(tmp_path / "policy")
    assert repr(Oracle.restore(read(tmp_path / "policy"), truth=swapped)) == repr(policy)


def test_an_intercept_is_a_constant_feature() -> None:
    policy, other = Oracle(2, truth=swapped, intercept=True), Oracle(3, truth=swapped)
    arms = np.array([[0.3, -1.0], [0.8, 0.1]])
    longer = np.column_stack([arms, np.ones(2)])
    for i in (0, 1, 1):
        policy.learn("ana", arms[i], i - 0.5)
        other.learn("ana", longer[i], i - 0.5)
    mine, theirs = policy.decide("ana", arms), other.decide("ana", longer)
    assert (mine.arm, mine.mean, mine.width) == (theirs.arm, theirs.mean, theirs.width)
    assert mine.theta is not None
    assert theirs.theta is not None
    assert np.array_equal(mine.theta, theirs.theta[:2])


def test_rounds_continue_after_loading(tmp_path: Path) -> None:
    policy = Oracle(1, truth=swapped)
    for _ in range(20):
        policy.learn("ana", [1.0], 1.0)
    policy.save(tmp_path / "policy")
    loaded = Oracle.restore(read(tmp_path / "policy"), truth=swapped)
    assert loaded.learn("ana", [1.0], 1.0).segment == 1
    assert np.isclose(loaded.decide("bea", [[1.0]]).mean, 20 / 20.1)
