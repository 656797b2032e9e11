"""Replay of learning policies: exact distribution of accepted rows, and agreement with serving."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from dyclu import Decision, LinUCB, Uniform
from dyclu.data import Log
from dyclu.errors import OptionError
from dyclu.evaluate import Interval, replay
from dyclu.evaluate.replays.rejection import _Run
from tests.unit.evaluate import tiny
from tests.unit.evaluate.tiny import CHANCES, KINDS, LOGGED, Visit

FEATURES = np.column_stack([np.zeros(3), np.eye(3)])


def arms_of(kind: int) -> Any:
    arms = FEATURES.copy()
    arms[:, 0] = kind
    return arms


class Coins:
    """Uniform numbers chosen beforehand, in place of a random generator."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = numbers

    def random(self, size: int) -> Any:
        taken, self._numbers = self._numbers[:size], self._numbers[size:]
        return np.array(taken)


def histories_by_replay(visits: int, constant: float) -> Counter[tuple[Visit, ...]]:
    """Return the exact distribution of what a replayed policy learns, over all logs and coins."""
    found: Counter[tuple[Visit, ...]] = Counter()
    for chance, rows in tiny.logs(visits):
        for heads in product((True, False), repeat=visits):
            ways = [constant / LOGGED[kind, arm] for kind, arm, _ in rows]
            coin = float(np.prod([p if up else 1 - p for p, up in zip(ways, heads, strict=True)]))
            policy = Recorder()
            # Just below and just above c / p: the code must draw the line there.
            coins = [way - 1e-9 if up else way + 1e-9 for way, up in zip(ways, heads, strict=True)]
            run = _Run(policy, constant, Coins(coins))  # type: ignore[arg-type]
            for chunk in tiny.log_of(rows).chunks():
                run.add(chunk, chunk.propensity)  # type: ignore[arg-type]
            found[tuple(policy.learnt)] += chance * coin  # type: ignore[assignment]
    return found


class Recorder:
    """LinUCB that notes what it learns."""

    def __init__(self) -> None:
        self._policy = LinUCB(4, alpha=0.3, shared=True)
        self.learnt: list[Visit] = []
        self.dim = 4

    def decide(self, user: Any, arms: Any) -> Any:
        return self._policy.decide(user, arms)

    def learn(self, user: Any, context: Any, reward: float) -> Any:
        self.learnt.append((int(context[0]), int(context[1:].argmax()), int(reward)))
        return self._policy.learn(user, context, reward)


def histories_by_serving(visits: int, constant: float) -> Counter[tuple[Visit, ...]]:
    """Return the same for a policy that serves each visit with probability `constant`."""
    found: Counter[tuple[Visit, ...]] = Counter()
    for served in product((True, False), repeat=visits):
        coin = float(np.prod([constant if one else 1 - constant for one in served]))
        for outcome in product(product(range(2), range(2)), repeat=sum(served)):
            policy, chance = Recorder(), coin
            for kind, click in outcome:
                arm = policy.decide(0, arms_of(kind)).arm
                hit = CHANCES[kind, arm]
                chance *= float(KINDS[kind] * (hit if click else 1 - hit))
                policy.learn(0, arms_of(kind)[arm], float(click))
            found[tuple(policy.learnt)] += chance  # type: ignore[assignment]
    return found


def test_accepted_rows_are_distributed_as_if_the_policy_served_a_share_of_the_visits() -> None:
    """Every history of two visits has the same probability in both worlds, exactly."""
    replayed, served = histories_by_replay(2, 0.2), histories_by_serving(2, 0.2)
    likely = {history for history, chance in replayed.items() if chance > 0}
    assert likely == {history for history, chance in served.items() if chance > 0}
    for history in likely:
        assert replayed[history] == pytest.approx(served[history])
    assert sum(replayed.values()) == pytest.approx(1)


class ByKind(Recorder):
    """Shows the first arm in visits of the first kind, the second arm in all others."""

    def decide(self, user: Any, arms: Any) -> Any:
        return Decision(user, int(arms[0, 0]), 0.0, 0.0)


def random_log(visits: int, seed: int) -> Log:
    return tiny.log_of(tiny.drawn(visits, seed))


def test_the_constant_is_the_smallest_propensity_and_rows_are_accepted_that_often() -> None:
    found = replay(random_log(20_000, 1), Uniform(4))
    assert found.acceptance == LOGGED.min()
    # Four standard errors of a binomial share.
    assert found.accepted / found.rows == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / 20_000))
    assert 1 in found.mean_weight.interval
    assert found.capped == 0
    uniform = float(KINDS @ CHANCES.mean(axis=1))
    assert uniform in found.estimate.interval
    assert uniform in found.weighted.interval
    width = found.weighted.interval.high - found.weighted.interval.low
    assert width < found.estimate.interval.high - found.estimate.interval.low


def test_the_policy_learns_the_accepted_rows_only() -> None:
    policy = Recorder()
    found = replay(random_log(3_000, 2), policy)  # type: ignore[arg-type]
    assert len(policy.learnt) == found.accepted
    assert found.estimate.value == pytest.approx(np.mean([click for *_, click in policy.learnt]))


def test_a_larger_constant_is_refused_a_verdict_where_propensities_are_below_it() -> None:
    found = replay(random_log(3_000, 3), LinUCB(4, alpha=0.3, shared=True), acceptance=0.5)
    assert found.capped > 0.4
    assert "below the acceptance constant" in found.verdict


def test_a_log_without_exploration_gets_no_verdict() -> None:
    """Always the first arm, with propensity 1; the policy would choose others."""
    rows = [(kind, 0, click) for kind, _, click in tiny.drawn(2_000, 4)]
    log = tiny.log_of(rows)
    chunk = next(log.chunks())
    certain = Log.of_arrays(
        user=chunk.user, arms=chunk.arms, chosen=chunk.chosen, reward=chunk.reward,
        propensity=np.ones(len(chunk)),
    )  # fmt: skip
    found = replay(certain, ByKind())  # type: ignore[arg-type]
    assert found.mean_weight.value == pytest.approx(1 / 4, abs=0.05)
    assert found.verdict.startswith("The log cannot say")
    assert "the log never shows 7" in found.verdict


def test_too_few_rounds_get_no_verdict_and_none_are_refused() -> None:
    assert "only" in replay(random_log(40, 5), Uniform(4)).verdict
    never = Log.of_arrays(
        user=[1, 2], arms=np.tile([[1.0], [0.0]], (2, 1, 1)), chosen=[1, 1], reward=[0.0, 1.0],
        propensity=[0.5, 0.5],
    )  # fmt: skip
    policy = LinUCB(1, alpha=0.3, shared=True)
    policy.learn(0, [1.0], 1.0)
    with pytest.raises(OptionError, match="none of 2 rows was accepted"):
        replay(never, policy)


def test_equal_seeds_give_equal_results() -> None:
    log = random_log(2_000, 6)
    first, again, other = (replay(log, LinUCB(4, alpha=0.3), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.accepted != other.accepted


def test_wrong_propensities_are_noticed_if_the_weights_are_all_alike() -> None:
    """Both arms are the same to the policy, which always takes the first: all weights are 2."""
    log = Log.of_arrays(
        user=range(400), arms=np.ones((400, 2, 1)), chosen=np.zeros(400, int),
        reward=np.arange(400) % 2.0, propensity=np.full(400, 0.5),
    )  # fmt: skip
    found = replay(log, LinUCB(1, alpha=0.3, shared=True))
    assert found.mean_weight.interval == Interval(2.0, 2.0)
    assert "propensities contradict the log: the mean weight is 2.00" in found.verdict


def test_a_replay_without_any_click_gets_no_verdict() -> None:
    rows = [(kind, arm, 0) for kind, arm, _ in tiny.drawn(3_000, 7)]
    found = replay(tiny.log_of(rows), Uniform(4))
    assert found.estimate.interval == Interval(0.0, 1.0)
    assert "cannot say what this policy would have earned: too few different" in found.verdict


def test_a_log_of_shown_arms_alone_is_refused() -> None:
    log = Log.of_arrays(
        user=range(100), arms=np.ones((100, 1, 2)), chosen=np.zeros(100, int),
        reward=np.arange(100) % 2.0, propensity=np.full(100, 0.5),
    )  # fmt: skip
    with pytest.raises(OptionError, match="only the shown arm is known"):
        replay(log, LinUCB(2, alpha=0.3))
