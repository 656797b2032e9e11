"""Play a recorded stream: the loop, its record, and its reward relative to random choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dyclu.errors import ShapeError
from dyclu.policy import Policy
from dyclu.sim.runs.play import REPORT_EVERY, serve
from dyclu.sim.worlds.stream import Flags, Stream
from dyclu.validation import FloatArray, as_probability

MILESTONES = (0.1, 0.5, 1.0)
"""Shares of a stream at which results are reported."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamRun:
    """The record of a policy on a stream, one entry per event.

    Attributes
    ----------
    stream : Stream
        The events.
    reward : array
        1 where the policy chose the positive item, 0 elsewhere.
    changed : bool array
        As in `Outcome`.
    seconds : array
        Time inside `decide` and `learn`.
    warnings : tuple of str
        The policy's warnings at the end.
    """

    stream: Stream
    reward: FloatArray
    changed: Flags
    seconds: FloatArray
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.reward, self.changed, self.seconds):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.reward)


def play_stream(
    policy: Policy,
    stream: Stream,
    *,
    progress: Callable[[int], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> StreamRun:
    """Let a policy serve every event of a stream; `progress` and `clock` are those of `play`."""
    reward, seconds = np.empty(len(stream)), np.empty(len(stream))
    changed = np.empty(len(stream), dtype=np.bool_)
    for event in stream:
        i = event.index
        decision, outcome, seconds[i] = serve(policy, event, clock)
        reward[i], changed[i] = event.reward(decision.arm), outcome.changed
        done = i + 1
        if progress is not None and (done % REPORT_EVERY == 0 or done == len(stream)):
            progress(done)
    return StreamRun(
        stream=stream, reward=reward, changed=changed, seconds=seconds, warnings=policy.warnings
    )


def relative_reward(run: StreamRun, *, against: StreamRun | None = None) -> FloatArray:
    """Return the accumulated reward after each event, as a ratio to that of random choice.

    The reward of random choice is its expectation, ``t / offered`` after t events. With `against`,
    the divisor is the reward of that run instead; the ratio is nan until it is positive.
    """
    mine = np.cumsum(run.reward)
    random = _random_choice(run) if against is None else np.cumsum(against.reward)
    if len(random) != len(mine):
        raise ShapeError(
            f"against has {len(random)} events, expected {len(mine)}; pass a run on the same stream"
        )
    ratio: FloatArray = np.full(len(mine), np.nan)
    return np.divide(mine, random, out=ratio, where=random > 0)


def milestones(curve: FloatArray, *, shares: Sequence[float] = MILESTONES) -> tuple[float, ...]:
    """Return the values of a curve after these shares of it.

    >>> milestones(np.arange(1.0, 21.0))
    (2.0, 10.0, 20.0)
    """
    passed = [1.0 if share == 1 else as_probability(share, "shares") for share in shares]
    return tuple(float(curve[max(round(share * len(curve)), 1) - 1]) for share in passed)


def _random_choice(run: StreamRun) -> FloatArray:
    """Return the expected reward of random choice after each event."""
    return np.arange(1, len(run) + 1) / run.stream.offered
