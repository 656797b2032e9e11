"""Play: let a policy serve every round of a world, and record what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import OptionError
from dyclu.policy import Decision, Outcome, Policy
from dyclu.sim.worlds.population import World
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
    world : World
        The world, with the truth.
    arm : int array
        Index of the chosen arm among those offered.
    reward : array
        Its reward, ``xᵀθ + η``.
    regret : array
        Its regret in expectation, ``max xᵀθ − x_armᵀθ``.
    surprised, changed : bool arrays
        As in `Outcome`.
    error : array
        ``‖θ̂ − θ‖`` of the estimate that chose the arm; nan if the policy has none.
    precision : array
        Share of the observations in the neighbours' segments that have the user's parameter; nan
        if there are none, if the policy has no segments, or if the round was not measured.
    recall : array
        Share of all kept observations of the user's parameter that are in the neighbours' segments;
        nan in the same cases.
    seconds : array
        Time inside `decide` and `learn`.
    """

    world: World
    arm: Ids
    reward: FloatArray
    regret: FloatArray
    surprised: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    error: FloatArray
    precision: FloatArray
    recall: FloatArray
    seconds: FloatArray

    def __len__(self) -> int:
        return len(self.arm)


def serve(
    policy: Policy, visit: Visit, clock: Callable[[], float]
) -> tuple[Decision, Outcome, float]:
    """Let a policy choose and learn once; return decision, outcome and seconds taken."""
    start = clock()
    decision = policy.decide(visit.user, visit.arms)
    deciding = clock() - start
    _check_arm(policy, decision, len(visit.arms))
    context, reward = visit.arms[decision.arm], visit.reward(decision.arm)
    start = clock()
    outcome = policy.learn(visit.user, context, reward)
    return decision, outcome, deciding + (clock() - start)


def play(
    policy: Policy,
    world: World,
    *,
    look: int = 1,
    progress: Callable[[int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Let a policy serve every round of a world, and learn from every reward.

    Parameters
    ----------
    policy : Policy
        It learns from the run. Precision and recall are measured on the observations of this run
        only, not on what the policy had learnt before.
    world : World
        The rounds to play.
    look : int
        Measure the neighbourhood at every `look`-th round of each user.
    progress : callable or None
        Called with the number of rounds played, every `REPORT_EVERY` rounds and at the end.
    clock : callable
        Returns seconds.
    """
    look = as_whole(look, "look", least=1)
    rows = np.empty(len(world), ROW)
    counts = _SegmentCounts(len(world.parameters))
    for visit in world:
        decision, outcome, seconds = serve(policy, visit, clock)
        counts.add(outcome, visit.parameter)
        measured = visit.time % look == 0
        quality = counts.quality(outcome, visit.parameter) if measured else UNKNOWN
        rows[visit.index] = (
            decision.arm,
            visit.reward(decision.arm),
            visit.regret(decision.arm),
            outcome.surprised,
            outcome.changed,
            _distance(decision.theta, world.parameters[visit.parameter]),
            *quality,
            seconds,
        )
        done = visit.index + 1
        if progress is not None and (done % REPORT_EVERY == 0 or done == len(world)):
            progress(done)
    return Run(world=world, **{name: _column(rows, name) for name in ROW.fields or ()})


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
