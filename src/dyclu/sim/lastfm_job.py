"""Runs on Last.fm, to be swept as those in simulated settings are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from dyclu import __version__
from dyclu.sim import paper
from dyclu.sim.cast import stand_in
from dyclu.sim.jobs import Job, weight
from dyclu.sim.lastfm import LastFM
from dyclu.sim.listening import Listening, listen
from dyclu.sim.measures import delays
from dyclu.sim.records import Result, Timing, checkpoints
from dyclu.validation import FloatArray

OFFERED = 25
"""Artists that every event on Last.fm offers."""

QUICK_STREAM = {"users": 4, "parts": 2}
"""On Last.fm, a quick run has so many users, each made of so few people."""

LASTFM_NOISE = 0.4
"""Roughly the standard deviation of rewards of 0 and 1 around what a linear model expects."""


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
        Digest of the files it was read from.
    policy, seed
        As in `Job`.
    quick : bool
        Whether the stream is a small one.
    """

    data: LastFM = field(repr=False, compare=False)
    source: str
    policy: str
    seed: int = 0
    quick: bool = False

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """What it has for a setting."""
        return "lastfm"

    @property
    def stream(self) -> Mapping[str, Any]:
        """What `LastFM.stream` is given beside the seed."""
        return {"offered": OFFERED, **(QUICK_STREAM if self.quick else {})}

    @property
    def configuration(self) -> dict[str, Any]:
        """What the policy is told."""
        return self._told.configuration

    @property
    def key(self) -> str:
        """SHA-256 of what the policy is told, of the files and of the stream's options."""
        decisive = (self._told.key, self.source, sorted(self.stream.items()))
        return hashlib.sha256(repr(decisive).encode()).hexdigest()

    @property
    def cost(self) -> int:
        """Roughly how long the run takes, beside others: streams are all about as long."""
        return weight(self.policy)

    def run(self) -> Result:
        """Make the run, here and now."""
        world = self._told.population.world(self.seed)
        policy = paper.contestant(self.policy, world, seed=self.seed)
        return _measured(self, listen(policy, self.data.stream(self.seed, **self.stream)))

    @property
    def _told(self) -> Job:
        """A job whose setting stands for what a policy is told: the dimension and the noise."""
        setting = stand_in(self.data.features.shape[1], noise=LASTFM_NOISE)
        return Job(setting, self.policy, seed=self.seed)


def relative_reward(run: Result) -> FloatArray:
    """Return the reward of a run by that of random choice, at the checkpoints."""
    served = checkpoints(run.rounds)
    ratio: FloatArray = OFFERED * (1 - np.array(run.curve) / served)
    return ratio


def _measured(job: LastFMJob, listening: Listening) -> Result:
    regret, seconds = np.cumsum(1 - listening.reward), float(listening.seconds.sum())
    changes, found = _changes(listening)
    return Result(
        setting=job.name,
        policy=job.policy,
        seed=job.seed,
        rounds=len(listening),
        regret=float(regret[-1]),
        alarms_true=len(found),
        alarms_false=int(listening.changed.sum()) - len(found),
        alarms_missed=changes - len(found),
        median_delay=float(median(found)) if found else None,
        precision=None,
        recall=None,
        parameter_error=None,
        version=__version__,
        curve=tuple(regret[checkpoints(len(listening)) - 1].tolist()),
        timing=Timing(seconds=seconds, rounds_per_second=len(listening) / seconds),
    )


def _changes(listening: Listening) -> tuple[int, list[int]]:
    """Return how often a user became another person, and the delays of those that were noticed."""
    stream, total, found = listening.stream, 0, list[int]()
    for user in range(len(stream.hybrids)):
        own = stream.user == user
        changes = np.flatnonzero(np.diff(stream.person[own])) + 1
        total += len(changes)
        found += delays(np.flatnonzero(listening.changed[own]), changes)
    return total, found
