"""`dyclu.sim.runs.play`: the record of a run, with prepared policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import count
from os import PathLike
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from dyclu.errors import OptionError
from dyclu.policies.common.plain import WithoutUsers
from dyclu.policies.uniform import Uniform
from dyclu.policy import Decision, Outcome, Policy
from dyclu.sim.runs.play import REPORT_EVERY, play
from dyclu.sim.worlds.population import Population, World

nan = float("nan")

SMALL = Population(
    users=3, parameters=3, dim=4, arms=30, offered=5, rounds=40, shortest=5, longest=15
)


class Knowing(WithoutUsers):
    """Knows every user's parameter and takes the best arm, or the worst."""

    def __init__(self, world: World, *, best: bool = True) -> None:
        self.world, self.best = world, best
        self.seen: Counter[Hashable] = Counter()

    @property
    def dim(self) -> int:
        return self.world.setting.dim

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        assert isinstance(user, int)
        theta = self.world.parameters[self.world.truth[user, self.seen[user]]]
        means = np.asarray(arms) @ theta
        arm = int(means.argmax() if self.best else means.argmin())
        return Decision(user, arm, float(means[arm]), 0.0, theta)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        assert isinstance(user, int)
        self.seen[user] += 1
        return Outcome(user)

    def save(self, path: str | PathLike[str]) -> None:
        raise NotImplementedError


class Scripted(WithoutUsers):
    """Takes the last arm, and answers `learn` with prepared outcomes."""

    def __init__(self, outcomes: Sequence[Outcome], *, theta: ArrayLike | None = None) -> None:
        self.outcomes = iter(outcomes)
        self.theta = None if theta is None else np.asarray(theta, dtype=np.float64)
        self.learnt: list[tuple[Hashable, ArrayLike, Any]] = []

    @property
    def dim(self) -> int:
        return 4

    @property
    def warnings(self) -> tuple[str, ...]:
        return (f"Learnt {len(self.learnt)} rewards.",)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        assert isinstance(user, int)
        return Decision(user, len(np.asarray(arms)) - 1, 0.0, 0.0, self.theta)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        self.learnt.append((user, context, reward))
        return next(self.outcomes)

    def save(self, path: str | PathLike[str]) -> None:
        raise NotImplementedError


def truth(*rows: Sequence[int]) -> World:
    """Return a world with this truth and the unit vectors of four dimensions as parameters."""
    setting = Population(users=len(rows), dim=4, arms=8, offered=2, rounds=len(rows[0]))
    drawn = setting.world(0)
    return World(
        setting=setting,
        table=drawn.table,
        parameters=np.eye(4),
        truth=np.array(rows, dtype=np.intp),
        pools=drawn.pools,
        noises=drawn.noises,
    )


def outcome(segment: int | None, neighbours: Sequence[int], **flags: bool) -> Outcome:
    return Outcome(0, segment=segment, neighbours=np.array(neighbours, dtype=np.intp), **flags)


def plain(count: int) -> list[Outcome]:
    return [Outcome(0)] * count


def test_a_policy_that_knows_the_truth_has_no_regret_and_no_error() -> None:
    world = SMALL.world(1)
    run = play(Knowing(world), world)
    assert len(run) == 120
    np.testing.assert_allclose(run.regret, 0.0, atol=1e-14)
    assert (run.error == 0).all()


def test_regret_is_the_distance_to_the_best_arm() -> None:
    world = SMALL.world(2)
    run = play(Knowing(world, best=False), world)
    expected = [turn.means.max() - turn.means.min() for turn in world]
    np.testing.assert_allclose(run.regret, expected, rtol=1e-12)
    assert run.arm.tolist() == [int(turn.means.argmin()) for turn in world]


def test_the_policy_learns_from_the_arm_it_chose() -> None:
    world = SMALL.world(3)
    policy = Scripted(plain(120))
    run = play(policy, world)
    assert run.warnings == ("Learnt 120 rewards.",)
    for turn, (user, context, reward) in zip(world, policy.learnt, strict=True):
        assert user == turn.user
        assert np.array_equal(context, turn.arms[4])
        assert reward == run.reward[turn.index] == turn.means[4] + turn.noise


def test_every_policy_gets_the_same_noise() -> None:
    world = SMALL.world(4)
    one, other = play(Knowing(world), world), play(Scripted(plain(120)), world)
    means = [
        (turn.means[a], turn.means[b]) for turn, a, b in zip(world, one.arm, other.arm, strict=True)
    ]
    noises = np.column_stack([one.reward, other.reward]) - means
    np.testing.assert_allclose(noises[:, 0], noises[:, 1], atol=1e-14)


def test_error_is_measured_against_the_parameter_of_the_round() -> None:
    run = play(Scripted(plain(3), theta=[1, 0, 0, 0]), truth([0, 1, 0]))
    np.testing.assert_allclose(run.error, [0, np.sqrt(2), 0])


def test_without_an_estimate_there_is_no_error() -> None:
    assert np.isnan(play(Scripted(plain(3)), truth([0, 1, 0])).error).all()


def test_surprises_and_alarms_are_those_of_the_policy() -> None:
    script = [Outcome(0), Outcome(0, surprised=True), Outcome(0, changed=True)]
    run = play(Scripted(script), truth([0, 0, 0]))
    assert run.surprised.tolist() == [False, True, False]
    assert run.changed.tolist() == [False, False, True]


def test_precision_and_recall_by_hand() -> None:
    """Two users, in turn; user 0 follows 0, 0, 1 and user 1 follows 0, 1, 1."""
    script = [
        outcome(0, [0]),  # segment 0 holds {0}: 1 of 1 is right, 1 of 1 there
        outcome(1, [1]),  # segment 1 holds {0}: 1 of 1, but segment 0 has the other
        outcome(0, [0, 1]),  # segment 0 holds {0, 0}: 3 of 3, 3 of 3
        outcome(1, [0, 1]),  # segment 1 holds {0, 1}: of 4 held one is a 1; it is the only one
        outcome(2, [0, 2], changed=True),  # not kept; segment 0 holds no 1 and segment 2 nothing
        outcome(1, [1], surprised=True),  # not kept; of segment 1's two one is a 1, the only one
    ]
    run = play(Scripted(script), truth([0, 0, 1], [0, 1, 1]))
    np.testing.assert_allclose(run.precision, [1, 1, 1, 1 / 4, 0, 1 / 2])
    np.testing.assert_allclose(run.recall, [1, 1 / 2, 1, 1, 0, 1])


def test_precision_and_recall_are_nan_without_observations() -> None:
    script = [
        outcome(0, [0], surprised=True),  # no observation was kept
        outcome(0, []),  # one kept, no neighbour
        outcome(None, [0]),  # no segments at all
        outcome(1, [900], changed=True),  # a neighbour that this run never filled
    ]
    run = play(Scripted(script), truth([0, 0, 0, 0]))
    np.testing.assert_array_equal(run.precision, [nan, nan, nan, nan])
    np.testing.assert_array_equal(run.recall, [nan, 0, nan, 0])


def test_counts_grow_with_the_segments() -> None:
    script = [outcome(segment, [0, segment]) for segment in range(100)]
    run = play(Scripted(script), truth([0] + [1] * 99))
    np.testing.assert_allclose(run.precision[1:], 1 / 2)
    np.testing.assert_allclose(run.recall[1:], 1 / np.arange(1, 100))


def test_look_measures_every_nth_round_of_each_user() -> None:
    script = [outcome(0, [0])] * 10
    run = play(Scripted(script), truth([0] * 5, [0] * 5), look=2)
    assert np.isnan(run.precision).tolist() == [False, False, True, True] * 2 + [False, False]
    assert np.array_equal(np.isnan(run.recall), np.isnan(run.precision))


@pytest.mark.parametrize("look", [0, -1])
def test_look_of_zero_is_refused(look: int) -> None:
    with pytest.raises(OptionError, match=f"look is {look}, expected"):
        play(Scripted([]), truth([0]), look=look)


@pytest.mark.parametrize("arm", [-1, 10])
def test_an_arm_that_is_not_offered_is_refused(arm: int) -> None:
    class Astray(Uniform):
        def decide(self, user: Hashable, arms: ArrayLike, **_: Any) -> Any:
            return Decision(0, arm, 0.0, 0.0)

    world = Population(users=1, parameters=1, dim=2, rounds=3).world(seed=0)
    with pytest.raises(OptionError, match=rf"Astray chose arm {arm} of 10, expected .* 0 to 9"):
        play(Astray(2), world)


def test_only_the_policy_is_timed() -> None:
    """A clock that moves at each reading: two readings around `decide`, two around `learn`."""
    squares = (float(k * k) for k in count())
    run = play(Scripted(plain(2)), truth([0, 0]), clock=lambda: next(squares))
    assert run.seconds.tolist() == [(1 - 0) + (9 - 4), (25 - 16) + (49 - 36)]


def test_progress_ends_with_the_last_round() -> None:
    heard: list[int] = []
    world = truth([0] * (2 * REPORT_EVERY + 7))
    play(Scripted(plain(len(world))), world, progress=heard.append)
    assert heard == [REPORT_EVERY, 2 * REPORT_EVERY, 2 * REPORT_EVERY + 7]


def test_the_arrays_of_a_run_are_read_only() -> None:
    run = play(Scripted(plain(1)), truth([0]))
    with pytest.raises(ValueError, match="read-only"):
        run.regret[0] = 0


def test_the_policies_of_these_tests_are_policies() -> None:
    assert isinstance(Scripted([]), Policy)
    assert isinstance(Knowing(truth([0])), Policy)
