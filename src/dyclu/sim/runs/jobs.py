"""Runs to be made: a job is everything that decides the outcome of a run.

Its `key` is the hash of that, under which the result is stored. `Job` is a policy in a simulated
setting; whatever else has the members of `Work` can be swept as well.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dyclu import __version__
from dyclu.errors import OptionError
from dyclu.sim.runs import contestants
from dyclu.sim.runs.measures import regret, summary
from dyclu.sim.runs.own_policies import own_class
from dyclu.sim.runs.play import Run, play
from dyclu.sim.runs.results import POINTS, TIMES, Result, Timing, checkpoints
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population
from dyclu.validation import as_whole

RESULT_VERSION = 3
"""Raised when a configuration comes to give other numbers: stored runs are then computed anew."""

LOOK = 25
"""The neighbourhood is judged at every 25th round of a user, which costs next to nothing."""

HEAVY = {"adts": 2, "club": 2, "dlinucb": 2, "dyclu": 10}
"""Rough cost of a round, where it is not that of a policy with one model per user."""


class Work(Protocol):
    """What a sweep asks of a job; one that fails is named by its `str`."""

    @property
    def name(self) -> str:
        """What the setting of its result is called."""

    @property
    def configuration(self) -> dict[str, Any]:
        """What is stored beside its result, for people to read."""

    @property
    def key(self) -> str:
        """Hash of all that decides the outcome."""

    @property
    def cost(self) -> int:
        """Roughly how long the run takes, beside others."""

    def run(self) -> Result:
        """Make the run, here and now."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made: everything that decides its outcome.

    Attributes
    ----------
    setting : str or Population
        A name of `paper.SETTINGS`, or a setting of your own.
    policy : str
        What `contestants.contestant` makes: one of its names, or ``"module:Class"``.
    seed : int
        Decides the world, and the dice of a policy that throws any.
    rounds : int or None
        Rounds per user, where not the setting's own.

    Examples
    --------
    >>> job = Job("row1", "dyclu", seed=3, rounds=500)
    >>> job.key == Job(Population(rounds=500), "dyclu", seed=3).key
    True
    """

    setting: str | Population
    policy: str
    _: KW_ONLY
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.setting, str) and self.setting not in paper.SETTINGS:
            raise OptionError(
                f"no setting is called {self.setting!r}; choose one of "
                f"{', '.join(paper.SETTINGS)}, or pass a Population"
            )
        if self.policy not in contestants.contestants():
            own_class(self.policy, known=contestants.contestants())
        object.__setattr__(self, "seed", as_whole(self.seed, "seed", least=0))
        if self.rounds is not None:
            object.__setattr__(self, "rounds", as_whole(self.rounds, "rounds", least=1))

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The setting's name with rounds that are not its own, or what it differs from row 1 in."""
        if not isinstance(self.setting, str):
            return _described(self.population)
        own = self.population == paper.SETTINGS[self.setting]
        return self.setting if own else f"{self.setting} rounds={self.rounds}"

    @property
    def population(self) -> Population:
        """The setting, with the job's own rounds."""
        named = paper.SETTINGS[self.setting] if isinstance(self.setting, str) else self.setting
        return named if self.rounds is None else replace(named, rounds=self.rounds)

    @property
    def configuration(self) -> dict[str, Any]:
        """All that decides the outcome, in plain values; what a setting is called does not."""
        return {
            "setting": asdict(self.population),
            "policy": self.policy,
            "told": contestants.options(self.policy, self.population),
            "source": source_of(self.policy, known=contestants.contestants()),
            "seed": self.seed,
            "look": LOOK,
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
        """Roughly how long the run takes, beside others."""
        return self.population.users * self.population.rounds * weight(self.policy)

    def run(self) -> Result:
        """Make the run, here and now.

        >>> Job(Population(users=2, dim=3, rounds=40), "linucb").run().rounds
        40
        """
        world = self.population.world(self.seed)
        # A world takes its randomness from the seed itself, a policy from a child of it.
        dice = np.random.SeedSequence(self.seed, spawn_key=(0,)).generate_state(1)
        policy = contestants.contestant(self.policy, world, seed=int(dice[0]))
        return _measured(self, play(policy, world, look=LOOK))


def weight(policy: str) -> int:
    """Return roughly what a round costs a policy."""
    return HEAVY.get(policy, 1)


def digest(value: Any) -> str:
    """Return the SHA-256 of plain values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _measured(job: Job, played: Run) -> Result:
    numbers = asdict(summary(played))
    timing = Timing(**{name: numbers.pop(name) for name in TIMES})
    setting = played.world.setting
    curve = regret(played)[checkpoints(setting.rounds) * setting.users - 1]
    return Result(
        setting=job.name,
        policy=job.policy,
        seed=job.seed,
        rounds=setting.rounds,
        version=__version__,
        curve=tuple(curve.tolist()),
        timing=timing,
        **numbers,
    )


def _described(setting: Population) -> str:
    """Return what distinguishes a setting from row 1.

    >>> _described(Population(users=20, noise=0.1, rounds=500))
    'users=20 rounds=500 noise=0.1'
    """
    usual = asdict(paper.SETTINGS["row1"])
    own = [f"{name}={value}" for name, value in asdict(setting).items() if value != usual[name]]
    return " ".join(own) or "row1"


def source_of(policy: str, *, known: Sequence[str]) -> str | None:
    """Return the digest of the files that define somebody's own policy: edited, it is another.

    These are the module that is named and the one that defines the class, of a `partial` too. None
    for the policies of the library, and for what has no file.
    """
    return None if policy in known else _source(policy, tuple(known))


@cache
def _source(policy: str, known: tuple[str, ...]) -> str | None:
    # Kept, because the module is: a process goes on with the code it has loaded, and must not pass
    # for one with the code that is now in the file.
    made = own_class(policy, known=known)
    while isinstance(made, partial):
        made = made.func
    named = sys.modules[policy.partition(":")[0]]
    files = dict.fromkeys(file for one in (named, made) if (file := _file(one)))
    sources = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files]
    return digest(sources) if sources else None


def _file(defined: Any) -> str | None:
    """Return where something is defined, if it is in a file that can be read."""
    try:
        file = inspect.getfile(defined)
    except TypeError:  # built in, or typed at a prompt
        return None
    return file if Path(file).is_file() else None
