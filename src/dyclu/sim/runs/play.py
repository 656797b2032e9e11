"""Play: let a policy serve every round of a world, and record what happened."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import OptionError
from dyclu.policy import Decision, Outcome, Policy
from dyclu.sim.worlds.rounds import Round, Simulated
from dyclu.validation import FloatArray, Ids, as_whole

REPORT_EVERY = 100
"""Rounds between two calls of `progress`."""

UNKNOWN = (math.nan, math.nan)
"""Precision and recall of a round where they were not measured."""

ROW = np.dtype(
    [
        ("arm", np.intp),
        ("reward", np.float64),
        ("regret", np.float64),
        ("surprised", np.bool_),
        ("changed", np.bool_),
        ("error", np.float64),
        ("precision", np.float64),
        ("recall", np.float64),
        ("seconds", np.float64),
    ]
)
"""The record of one round; its fields are the arrays of a `Run`."""


class Visit(Protocol):
    """One visit of a user: a `Round` of a simulated world, or an `Event` of a stream."""

    @property
    def user(self) -> int:
        """The user."""

    @property
    def arms(self) -> FloatArray:
        """The arms that are offered, shape (offered, dim)."""

    def reward(self, arm: int) -> float:
        """Return the reward of an arm."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """The record of a policy in a world, one entry per round.

    Attributes
    ----------
    world : Simulated
        The world, with the truth.
    arm : int array
        Index of the chosen arm among those offered.
    reward : array
        Its reward.
    regret : array
        Its regret in expectation: the largest mean minus the mean of this arm.
    surprised, changed : bool arrays
        As in the `Outcome` of learning this round's reward.
    error : array
        ``‖θ̂ − θ‖`` of the estimate that chose the arm; nan if the policy has none, or if rewards
        are not linear.
    precision : array
        Share of the observations in the neighbours' segments that have the user's parameter; nan
        if there are none, if the policy has no segments, or if the round was not measured.
    recall : array
        Share of all kept observations of the user's parameter that are in the neighbours' segments;
        nan in the same cases.
    seconds : array
        Time inside `decide` and `learn`.
    warnings : tuple of str
        The policy's warnings at the end.
    """

    world: Simulated
    arm: Ids
    reward: FloatArray
    regret: FloatArray
    surprised: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    error: FloatArray
    precision: FloatArray
    recall: FloatArray
    seconds: FloatArray
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arm)


def serve(
    policy: Policy, visit: Visit, clock: Callable[[], float]
) -> tuple[Decision, Outcome, float]:
    """Let a policy choose and learn once; return decision, outcome and seconds taken."""
    decision, deciding = _decide(policy, visit, clock)
    outcome, learning = _learn(policy, visit, decision.arm, clock)
    return decision, outcome, deciding + learning


def play(
    policy: Policy,
    world: Simulated,
    *,
    look: int = 1,
    tell: Callable[[Round], object] | None = None,
    progress: Callable[[int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Let a policy serve every round of a world, and learn from every reward.

    The reward of a round is learnt after the decision `world.delay` rounds later; rewards that have
    not come at the end are learnt then, in order.

    Parameters
    ----------
    policy : Policy
        It learns from the run. Precision and recall are measured on the observations of this run
        only, not on what the policy had learnt before.
    world : Simulated
        The rounds to play.
    look : int
        Measure the neighbourhood at every `look`-th round of each user.
    tell : callable or None
        Called with a round before its decision, and again before its reward is learnt. A policy
        that is told the truth gets it in this way.
    progress : callable or None
        Called with the number of rounds played, every `REPORT_EVERY` rounds and at the end.
    clock : callable
        Returns seconds.
    """
    look = as_whole(look, "look", least=1)
    rows = np.empty(len(world), ROW)
    counts = _SegmentCounts(world.count)
    for turn, learns in _in_order(world):
        if tell is not None:
            tell(turn)
        row = rows[turn.index]
        if not learns:
            decision, row["seconds"] = _decide(policy, turn, clock)
            row["arm"], row["regret"] = decision.arm, turn.regret(decision.arm)
            row["error"] = _distance(decision.theta, turn.taste) if world.linear else math.nan
            continue
        outcome, seconds = _learn(policy, turn, row["arm"], clock)
        counts.add(outcome, turn.parameter)
        measured = turn.time % look == 0
        quality = counts.quality(outcome, turn.parameter) if measured else UNKNOWN
        row["reward"], row["seconds"] = turn.reward(row["arm"]), row["seconds"] + seconds
        row["surprised"], row["changed"] = outcome.surprised, outcome.changed
        row["precision"], row["recall"] = quality
        done = turn.index + 1
        if progress is not None and (done % REPORT_EVERY == 0 or done == len(world)):
            progress(done)
    columns = {name: _column(rows, name) for name in ROW.fields or ()}
    return Run(world=world, **columns, warnings=policy.warnings)


def _in_order(world: Simulated) -> Iterator[tuple[Round, bool]]:
    """Yield every round twice: with False when it is decided, with True when it is learnt."""
    waiting = deque[Round]()
    for turn in world:
        yield turn, False
        waiting.append(turn)
        if len(waiting) > world.delay:
            yield waiting.popleft(), True
    yield from ((turn, True) for turn in waiting)


def _decide(policy: Policy, visit: Visit, clock: Callable[[], float]) -> tuple[Decision, float]:
    start = clock()
    decision = policy.decide(visit.user, visit.arms)
    seconds = clock() - start
    _check_arm(policy, decision, len(visit.arms))
    return decision, seconds


def _learn(
    policy: Policy, visit: Visit, arm: int, clock: Callable[[], float]
) -> tuple[Outcome, float]:
    context, reward = visit.arms[arm], visit.reward(arm)
    start = clock()
    outcome = policy.learn(visit.user, context, reward)
    return outcome, clock() - start


def _check_arm(policy: Policy, decision: Decision, offered: int) -> None:
    # Python would accept a negative index.
    if not 0 <= decision.arm < offered:
        raise OptionError(
            f"{type(policy).__name__} chose arm {decision.arm} of {offered}, expected an index "
            f"from 0 to {offered - 1}; decide must return the index of a row of its arms"
        )


def _distance(theta: FloatArray | None, true: FloatArray) -> float:
    if theta is None:
        return math.nan
    gap = theta - true
    return math.sqrt(gap.dot(gap))


def _column(rows: NDArray[np.void], name: str) -> NDArray[Any]:
    column = np.ascontiguousarray(rows[name])
    column.flags.writeable = False
    return column


class _SegmentCounts:
    """Number of kept observations of each true parameter in every segment."""

    def __init__(self, parameters: int) -> None:
        self._counts = np.zeros((parameters, 1), dtype=np.intp)
        self._of_segment = np.zeros(1, dtype=np.intp)
        self._of_parameter = [0] * parameters

    def add(self, outcome: Outcome, parameter: int) -> None:
        """Count an observation of this parameter if the policy kept it."""
        if outcome.segment is None or not outcome.kept:
            return
        self._reserve(outcome.segment)
        self._counts[parameter, outcome.segment] += 1
        self._of_segment[outcome.segment] += 1
        self._of_parameter[parameter] += 1

    def quality(self, outcome: Outcome, parameter: int) -> tuple[float, float]:
        """Return precision and recall of the neighbours for a user who follows this parameter."""
        if outcome.segment is None:
            return UNKNOWN
        ids = outcome.neighbours
        self._reserve(int(ids.max(initial=0)))
        correct = int(self._counts[parameter].take(ids).sum())
        return (
            _share(correct, int(self._of_segment.take(ids).sum())),
            _share(correct, self._of_parameter[parameter]),
        )

    def _reserve(self, segment: int) -> None:
        missing = segment + 1 - len(self._of_segment)
        if missing > 0:
            # At least doubled, so that the total cost of growing stays linear.
            more = max(missing, len(self._of_segment))
            self._counts = np.pad(self._counts, ((0, 0), (0, more)))
            self._of_segment = np.pad(self._of_segment, (0, more))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
