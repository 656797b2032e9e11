"""Jobs on recorded events, which `sweep` runs like those in simulated settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from dyclu import __version__
from dyclu.sim.runs.jobs import COSTS, FIRST_RELEASE, digest, result_version, source_of
from dyclu.sim.runs.measures import delays
from dyclu.sim.runs.results import POINTS, Result, Timing, checkpoints
from dyclu.sim.runs.stream import contestants
from dyclu.sim.runs.stream.play import StreamRun, play_stream
from dyclu.sim.worlds.recording import Recording
from dyclu.validation import FloatArray

OFFERED = 25
"""Items that every event offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """One run on a recorded data set; it contains the data, so a worker needs no files.

    In every event one item has reward 1, so a choice with reward 0 has regret 1. Its `Result` is
    like that of a simulation: rounds are events, and a user changes where the next person follows.

    Attributes
    ----------
    data : Recording
        The files as they were read.
    source : str
        Digest of the data.
    policy : str
        A name of `contestants.contestants`, or ``"module:Class"``.
    seed : int
        Seed of the stream, and of a policy that chooses at random.
    reading, drawing : mapping of str to value
        Options of the data's `read` and `stream`.
    """

    data: Recording = field(repr=False, compare=False)
    source: str
    policy: str
    seed: int = 0
    reading: Mapping[str, Any] = field(default_factory=dict, hash=False)
    drawing: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """Name of the setting: the data's, and the options that differ from their defaults."""
        defaults = complete(self.data.read, {}) | complete(self.data.stream, {})
        given = {**self.reading, **self.drawing}
        own = [f"{name}={value}" for name, value in given.items() if value != defaults[name]]
        return " ".join([self.data.name, *own])

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, in plain values; defaults are written out."""
        return {
            "data": self.source,
            "reading": complete(self.data.read, self.reading),
            "drawing": complete(self.data.stream, self.drawing) | {"offered": OFFERED},
            "policy": self.policy,
            "told": contestants.options(self.policy),
            "source": source_of(self.policy, known=contestants.contestants()),
            "seed": self.seed,
            "points": POINTS,
            "result": result_version(self.policy),
            "dyclu": FIRST_RELEASE,
        }

    @property
    def key(self) -> str:
        """SHA-256 of the configuration; the result is stored under this name."""
        return digest(self.configuration)

    @property
    def cost(self) -> int:
        """Rough duration relative to other runs; all streams have about the same length."""
        return COSTS.get(contestants.kind(self.policy), 1)

    def run(self) -> Result:
        """Play the stream and return the result."""
        policy = contestants.contestant(self.policy, self.data.features.shape[1], seed=self.seed)
        stream = self.data.stream(self.seed, **{**self.drawing, "offered": OFFERED})
        return _result(self, play_stream(policy, stream))


def complete(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword options of a function: those given, and the defaults of the others.

    >>> complete(sorted, {"reverse": True})
    {'key': None, 'reverse': True}
    """
    parameters = inspect.signature(function).parameters.values()
    by_default = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    return by_default | dict(given)


def relative_reward_curve(result: Result) -> FloatArray:
    """Return the reward of a stored run divided by that of random choice, at its checkpoints."""
    events = checkpoints(result.rounds)
    ratio: FloatArray = OFFERED * (1 - np.array(result.curve) / events)
    return ratio


def _result(job: StreamJob, run: StreamRun) -> Result:
    regret, seconds = np.cumsum(1 - run.reward), float(run.seconds.sum())
    changes, found = _changes(run)
    return Result(
        setting=job.name,
        policy=job.policy,
        seed=job.seed,
        rounds=len(run),
        regret=float(regret[-1]),
        alarms_true=len(found),
        alarms_false=int(run.changed.sum()) - len(found),
        alarms_missed=changes - len(found),
        median_delay=float(median(found)) if found else None,
        precision=None,
        recall=None,
        parameter_error=None,
        version=__version__,
        curve=tuple(regret[checkpoints(len(run)) - 1].tolist()),
        timing=Timing(seconds=seconds, rounds_per_second=len(run) / seconds),
        warnings=run.warnings,
    )


def _changes(run: StreamRun) -> tuple[int, list[int]]:
    """Return the number of changes of person, and the delays of those that were detected."""
    stream, total, found = run.stream, 0, list[int]()
    for user in range(len(stream.hybrids)):
        own = stream.user == user
        changes = np.flatnonzero(np.diff(stream.person[own])) + 1
        total += len(changes)
        found += delays(np.flatnonzero(run.changed[own]), changes)
    return total, found
