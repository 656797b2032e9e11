"""Runs on Last.fm, to be swept as those in simulated settings are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from dyclu import __version__
from dyclu.sim.runs.jobs import RESULT_VERSION, digest, source_of, weight
from dyclu.sim.runs.measures import delays
from dyclu.sim.runs.results import POINTS, Result, Timing, checkpoints
from dyclu.sim.runs.stream import contestants
from dyclu.sim.runs.stream.play import StreamRun, play_stream
from dyclu.sim.worlds.lastfm import LastFM
from dyclu.validation import FloatArray

OFFERED = 25
"""Artists that every event on Last.fm offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFMJob:
    """One run on Last.fm; the data go with it, wherever it is made.

    A choice that brings 0 gives 1 away, because one artist brings 1 in every event: its result is
    that of a simulation, with all events for rounds and one person after the other for changes.

    Attributes
    ----------
    data : LastFM
        What was read.
    source : str
        Its digest.
    policy : str
        What `contestants.contestant` makes.
    seed : int
        Decides the stream, and the dice of a policy that throws any.
    reading, drawing : mapping of str to value
        What `LastFM.read` was given, and what `LastFM.stream` is.
    """

    data: LastFM = field(repr=False, compare=False)
    source: str
    policy: str
    seed: int = 0
    reading: Mapping[str, Any] = field(default_factory=dict, hash=False)
    drawing: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """What it has for a setting: Last.fm, and the options that are not the defaults."""
        usual = complete(LastFM.read, {}) | complete(LastFM.stream, {})
        given = {**self.reading, **self.drawing}
        own = [f"{name}={value}" for name, value in given.items() if value != usual[name]]
        return " ".join(["lastfm", *own])

    @property
    def configuration(self) -> dict[str, Any]:
        """All that decides the outcome, in plain values, with the options nobody gave."""
        return {
            "data": self.source,
            "reading": complete(LastFM.read, self.reading),
            "drawing": complete(LastFM.stream, self.drawing) | {"offered": OFFERED},
            "policy": self.policy,
            "told": contestants.options(self.policy),
            "source": source_of(self.policy, known=contestants.contestants()),
            "seed": self.seed,
            "points": POINTS,
            "result": RESULT_VERSION,
            "dyclu": __version__,
        }

    @property
    def key(self) -> str:
        """SHA-256 of the configuration: the name under which the result is stored."""
        return digest(self.configuration)

    @property
    def cost(self) -> int:
        """Roughly how long the run takes, beside others: streams are all about as long."""
        return weight(contestants.kind(self.policy))

    def run(self) -> Result:
        """Make the run, here and now."""
        policy = contestants.contestant(self.policy, self.data.features.shape[1], seed=self.seed)
        stream = self.data.stream(self.seed, **{**self.drawing, "offered": OFFERED})
        return _measured(self, play_stream(policy, stream))


def complete(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a function: as given, or by default.

    >>> complete(LastFM.read, {"least": 500})
    {'dim': 25, 'least': 500, 'scaling': 'largest'}
    """
    parameters = inspect.signature(function).parameters.values()
    by_default = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    return by_default | dict(given)


def relative_reward(run: Result) -> FloatArray:
    """Return the reward of a run by that of random choice, at the checkpoints."""
    served = checkpoints(run.rounds)
    ratio: FloatArray = OFFERED * (1 - np.array(run.curve) / served)
    return ratio


def _measured(job: LastFMJob, run: StreamRun) -> Result:
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
    )


def _changes(run: StreamRun) -> tuple[int, list[int]]:
    """Return how often a user became another person, and the delays of those that were noticed."""
    stream, total, found = run.stream, 0, list[int]()
    for user in range(len(stream.hybrids)):
        own = stream.user == user
        changes = np.flatnonzero(np.diff(stream.person[own])) + 1
        total += len(changes)
        found += delays(np.flatnonzero(run.changed[own]), changes)
    return total, found
