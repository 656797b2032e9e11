"""A policy meets a world: one loop, and the record of what happened."""

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
"""Precision and recall where there is nothing to judge."""

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
"""What is noted of a round: the arrays of a `Run`."""


class Visit(Protocol):
    """What a policy is served: somebody who comes by, whatever the world."""

    @property
    def user(self) -> int:
        """Who comes by."""

    @property
    def arms(self) -> FloatArray:
        """What may be chosen, shape (offered, dim)."""

    def reward(self, arm: int) -> float:
        """Return what an arm brings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a policy did in a world, one entry per round.

    Attributes
    ----------
    world : World
        Where it played, with the truth.
    arm : int array
        Index of the chosen arm among those offered.
    reward : array
        What it brought, ``xᵀθ + η``.
    regret : array
        What it gave away in expectation, ``max xᵀθ − x_armᵀθ``.
    surprised, changed : bool arrays
        As in `Outcome`.
    error : array
        ``‖θ̂ − θ‖`` of the estimate the arm was chosen with; nan where a policy has none.
    precision : array
        Share of the observations in the neighbours' segments that came from the parameter the user
        follows; nan where these hold none, where there are no segments, or where nobody looked.
    recall : array
        Share of all kept observations of that parameter that the neighbours' segments hold; nan
        where none was kept, where there are no segments, or where nobody looked.
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
    policy: Policy, turn: Visit, clock: Callable[[], float]
) -> tuple[Decision, Outcome, float]:
    """Let a policy choose and learn once; return what it did, and the seconds it took."""
    start = clock()
    decision = policy.decide(turn.user, turn.arms)
    deciding = clock() - start
    _check_arm(policy, decision, len(turn.arms))
    context, reward = turn.arms[decision.arm], turn.reward(decision.arm)
    start = clock()
    outcome = policy.learn(turn.user, context, reward)
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
        Changed by playing. What it learnt before counts neither for nor against its precision
        and recall, which are those of the observations of this run.
    world : World
        Where to play.
    look : int
        Judge the neighbourhood at every `look`-th round of each user.
    progress : callable or None
        Told the number of rounds played, now and then and at the end.
    clock : callable
        Seconds since any moment.
    """
    look = as_whole(look, "look", least=1)
    rows = np.empty(len(world), ROW)
    holdings = _Holdings(len(world.parameters))
    for turn in world:
        decision, outcome, seconds = serve(policy, turn, clock)
        holdings.note(outcome, turn.parameter)
        looked = turn.time % look == 0
        quality = holdings.quality(outcome, turn.parameter) if looked else UNKNOWN
        rows[turn.index] = (
            decision.arm,
            turn.reward(decision.arm),
            turn.regret(decision.arm),
            outcome.surprised,
            outcome.changed,
            _distance(decision.theta, world.parameters[turn.parameter]),
            *quality,
            seconds,
        )
        done = turn.index + 1
        if progress is not None and (done % REPORT_EVERY == 0 or done == len(world)):
            progress(done)
    return Run(world=world, **{name: _column(rows, name) for name in ROW.fields or ()})


def _check_arm(policy: Policy, decision: Decision, offered: int) -> None:
    # Python would count a negative index from the end.
    if not 0 <= decision.arm < offered:
        raise OptionError(
            f"{type(policy).__name__} chose arm {decision.arm} of {offered}, expected an index "
            f"from 0 to {offered - 1}; let decide return a row of the arms it was given"
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


class _Holdings:
    """How many kept observations of each true parameter every segment holds."""

    def __init__(self, parameters: int) -> None:
        self._counts = np.zeros((parameters, 1), dtype=np.intp)
        self._of_segment = np.zeros(1, dtype=np.intp)
        self._of_parameter = [0] * parameters

    def note(self, outcome: Outcome, parameter: int) -> None:
        """Count an observation of this parameter, if it was kept."""
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
        right = int(self._counts[parameter].take(ids).sum())
        return (
            _share(right, int(self._of_segment.take(ids).sum())),
            _share(right, self._of_parameter[parameter]),
        )

    def _reserve(self, segment: int) -> None:
        missing = segment + 1 - len(self._of_segment)
        if missing > 0:
            # At least doubling, so that growing costs no more than counting.
            more = max(missing, len(self._of_segment))
            self._counts = np.pad(self._counts, ((0, 0), (0, more)))
            self._of_segment = np.pad(self._of_segment, (0, more))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
