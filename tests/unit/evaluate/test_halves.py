"""Halves of the users: the variance between runs, and what it does to an interval."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from dyclu import Decision, LinUCB
from dyclu.data import Chunk, Log
from dyclu.errors import OptionError
from dyclu.evaluate import Interval, replay
from dyclu.evaluate.intervals import UNBOUNDED, Ratios
from dyclu.evaluate.replays.halves import Halves
from dyclu.validation import FloatArray


def a_log(rng: np.random.Generator, users: int = 200, rounds: int = 10) -> Log:
    """Return a log of two arms, shown alike often; the second earns 2 in half of all cases."""
    chosen = rng.integers(2, size=users * rounds)
    return Log.of_arrays(
        user=np.tile(np.arange(users), rounds).tolist(),
        arms=np.tile(np.eye(2), (users * rounds, 1, 1)),
        chosen=chosen,
        reward=2.0 * (rng.random(users * rounds) < 0.5 * chosen),
        propensity=np.full(users * rounds, 0.5),
    )


class Always:
    """Shows one arm to everybody, and learns nothing."""

    dim = 2

    def __init__(self, arm: int = 1) -> None:
        self.arm, self.users = arm, set[Any]()

    def decide(self, user: Any, arms: Any) -> Decision:
        self.users.add(user)
        return Decision(user, self.arm, 0.0, 0.0)

    def learn(self, user: Any, context: Any, reward: Any) -> None: ...


class Sums:
    """A run whose ratio is the mean reward of its rows."""

    def __init__(self, _: np.random.Generator) -> None:
        self.reward: list[float] = []

    def add(self, chunk: Chunk, propensity: FloatArray) -> None:
        self.reward += chunk.reward.tolist()

    def ratio(self, num: str, den: str) -> Ratios:
        reward = np.array(self.reward)
        return Ratios.single(reward, np.ones(len(reward)))


def test_every_split_serves_each_user_by_one_of_two_policies() -> None:
    made: list[Always] = []

    def fresh() -> Always:
        made.append(Always())
        return made[-1]

    whole = Always()
    replay(a_log(np.random.default_rng(0)), whole, fresh=fresh, splits=3)  # type: ignore[arg-type]
    assert len(made) == 6
    for first, second in zip(made[::2], made[1::2], strict=True):
        assert not first.users & second.users
        assert first.users | second.users == whole.users
    assert made[0].users not in (made[2].users, made[3].users)


def test_without_luck_the_variance_is_that_of_independent_users() -> None:
    """One row per user with variance 1: E se² = 1/users, by 400 splits to about a tenth."""
    users = 300
    rng = np.random.default_rng(1)
    log = Log.of_arrays(
        user=range(users), arms=np.tile(np.eye(2), (users, 1, 1)), chosen=np.zeros(users, int),
        reward=rng.normal(size=users), propensity=np.full(users, 0.5),
    )  # fmt: skip
    halves = Halves(Sums, splits=400, seed=3)
    for chunk in log.chunks():
        halves.add(chunk, np.full(len(chunk), 0.5))
    found = halves.widened(Interval(0.0, 0.0), 0.0, ("", ""), 0.95)
    variance = float(np.concatenate([chunk.reward for chunk in log.chunks()]).var())
    # 1.966 is the quantile of Student's t with 400 degrees of freedom.
    assert found.high == pytest.approx(1.966 * np.sqrt(variance / users), rel=0.1)
    assert found.low == -found.high


def test_luck_that_all_users_share_widens_the_interval() -> None:
    """Half of the policies show the arm that never earns anything: runs earn 0 or 1."""
    log, arms = a_log(np.random.default_rng(2)), count()
    one = replay(log, Always())  # type: ignore[arg-type]
    many = replay(log, Always(), fresh=lambda: Always(next(arms) % 2))  # type: ignore[arg-type, return-value]
    assert one.estimate.interval.high - one.estimate.interval.low < 0.2
    # Every difference is about 1, so se is 0.5, and t with 8 degrees of freedom is 2.306.
    far = many.estimate.interval.high - many.estimate.value
    assert far == pytest.approx(2.306 * 0.5, abs=0.1)
    assert many.estimate.value == one.estimate.value
    assert (one.splits, many.splits) == (0, 8)
    assert "in this run" in one.verdict
    assert "in this run" not in many.verdict


def test_an_interval_is_never_shorter_than_that_of_one_run() -> None:
    log = a_log(np.random.default_rng(3), users=60)

    def fresh() -> LinUCB:
        return LinUCB(2, alpha=0.3, shared=True)

    one, many = replay(log, fresh()), replay(log, fresh(), fresh=fresh, splits=2)
    for name in ("estimate", "weighted"):
        short, long = getattr(one, name).interval, getattr(many, name).interval
        assert long.low <= short.low
        assert short.high <= long.high


def test_a_half_without_rounds_sets_no_bound() -> None:
    halves = Halves(Sums, splits=2, seed=0)
    assert halves.widened(Interval(0.1, 0.2), 0.15, ("", ""), 0.95) == UNBOUNDED


@pytest.mark.parametrize("splits", [0, 1, -3])
def test_fewer_than_two_splits_are_refused(splits: int) -> None:
    log = a_log(np.random.default_rng(4), users=20)
    with pytest.raises(OptionError, match=f"splits is {splits}"):
        replay(log, LinUCB(2), fresh=lambda: LinUCB(2), splits=splits)
