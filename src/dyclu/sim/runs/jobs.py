"""A job is everything that decides the result of a run.

Its `key` is the hash of that; the result is stored under it. `Job` is a policy in a simulated
setting; `sweep` accepts every object with the members of `Work`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from dyclu import __version__
from dyclu.errors import OptionError
from dyclu.policies.own import own_class, own_files
from dyclu.sim.runs import contestants
from dyclu.sim.runs.measures import regret, summary
from dyclu.sim.runs.play import Run, play
from dyclu.sim.runs.results import POINTS, TIMES, Result, Timing, checkpoints
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population
from dyclu.validation import as_whole

RESULT_VERSION = 5
"""Increased when the code gives other numbers for a job; stored results are then not used."""

FIRST_RELEASE = "0.1.0"
"""Part of every key since the first stored results. A release changes no number by itself, so it
must not make stored results invalid; `RESULT_VERSION` and `POLICY_VERSIONS` do, where needed."""

POLICY_VERSIONS = {"atlas": 2, "random-effects": 1}
"""Increased instead when only these policies give other numbers: results of others stay valid."""

LOOK = 25
"""Neighbourhoods are measured at every 25th round of a user, which takes almost no time."""

COSTS = {"adts": 2, "club": 2, "dlinucb": 2, "dyclu": 10}
"""Rough cost of a round; it is 1 for a policy with one model per user."""


class Work(Protocol):
    """What `sweep` needs of a job; messages name a job by its `str`."""

    @property
    def name(self) -> str:
        """Name of the setting, for the result."""

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, in plain values; stored with the result."""

    @property
    def key(self) -> str:
        """Hash of the configuration."""

    @property
    def cost(self) -> int:
        """Rough duration relative to other runs."""

    def run(self) -> Result:
        """Make the run and return its result."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a policy in a simulated setting.

    Attributes
    ----------
    setting : str or Population
        A name of `paper.SETTINGS`, or a population.
    policy : str
        A name of `contestants.contestants`, or ``"module:Class"``.
    seed : int
        Seed of the world, and of a policy that chooses at random.
    rounds : int or None
        Rounds per user; None takes those of the setting.

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
        """Name of the setting and of other rounds; without a name, its differences from row 1."""
        if not isinstance(self.setting, str):
            return _described(self.population)
        own = self.population == paper.SETTINGS[self.setting]
        return self.setting if own else f"{self.setting} rounds={self.rounds}"

    @property
    def population(self) -> Population:
        """The setting with the rounds of the job."""
        named = paper.SETTINGS[self.setting] if isinstance(self.setting, str) else self.setting
        return named if self.rounds is None else replace(named, rounds=self.rounds)

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, in plain values; the name of a setting is not part."""
        return {
            "setting": asdict(self.population),
            "policy": self.policy,
            "told": contestants.options(self.policy, self.population),
            "source": source_of(self.policy, known=contestants.contestants()),
            "seed": self.seed,
            "look": LOOK,
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
        """Rough duration relative to other runs."""
        return self.population.users * self.population.rounds * COSTS.get(self.policy, 1)

    def run(self) -> Result:
        """Play in the world and return the result.

        >>> Job(Population(users=2, dim=3, rounds=40), "linucb").run().rounds
        40
        """
        world = self.population.world(self.seed)
        # The world uses the seed itself, the policy a child of it.
        child = np.random.SeedSequence(self.seed, spawn_key=(0,)).generate_state(1)
        policy = contestants.contestant(self.policy, world, seed=int(child[0]))
        return result_of(self, play(policy, world, look=LOOK))


def result_version(policy: str) -> tuple[int, int]:
    """Return the version of a policy's numbers, a part of the key of every job.

    >>> result_version("linucb") == (RESULT_VERSION, 0)
    True
    """
    return RESULT_VERSION, POLICY_VERSIONS.get(policy, 0)


def digest(value: Any) -> str:
    """Return the SHA-256 of plain values; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class _Named(Protocol):
    """A job of a policy in a simulated world."""

    @property
    def name(self) -> str: ...

    @property
    def policy(self) -> str: ...

    @property
    def seed(self) -> int: ...


def result_of(job: _Named, played: Run) -> Result:
    """Return what is stored of a run."""
    values = asdict(summary(played))
    timing = Timing(**{name: values.pop(name) for name in TIMES})
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
        **values,
    )


def _described(setting: Population) -> str:
    """Return the options in which a setting differs from row 1.

    >>> _described(Population(users=20, noise=0.1, rounds=500))
    'users=20 rounds=500 noise=0.1'
    """
    row1 = asdict(paper.SETTINGS["row1"])
    own = [f"{name}={value}" for name, value in asdict(setting).items() if value != row1[name]]
    return " ".join(own) or "row1"


def source_of(policy: str, *, known: Sequence[str]) -> str | None:
    """Return the digest of the source files of a policy of one's own, so that edits change the key.

    The files are the named module and the one that defines the class, also behind a `partial`. None
    for policies of the library (`known`), and if there is no file.
    """
    return None if policy in known else _source(policy, tuple(known))


@cache
def _source(policy: str, known: tuple[str, ...]) -> str | None:
    # Cached, because the process keeps the code that it has loaded, even if the file changes.
    files = own_files(policy, known=known)
    sources = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return digest(sources) if sources else None
