"""Runs in wild worlds: policies that know only the dimension, ceilings that are told, and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dyclu.policies.oracle import Oracle
from dyclu.policies.told import Told
from dyclu.policy import Policy
from dyclu.sim.runs.contestants import ALPHA, RIDGE, check_made
from dyclu.sim.runs.jobs import (
    COSTS,
    FIRST_RELEASE,
    LOOK,
    digest,
    result_of,
    result_version,
    source_of,
)
from dyclu.sim.runs.play import play
from dyclu.sim.runs.results import POINTS, Result
from dyclu.sim.runs.stream import contestants as uninformed
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.rounds import Round
from dyclu.sim.worlds.wild import Wild, WildWorld

CEILINGS = ("oracle", "told")
"""Policies that are told a part of the truth."""

PLAIN = ("uniform", "linucb", "linucb-0.3", "shared-linucb-0.3", "discounted-linucb")
"""What people use who have none of this library's ideas."""

CONTESTANTS = (*CEILINGS, *PLAIN, "random-effects", "dyclu", "dyclu-0.3", "atlas")
"""The policies of `dyclu reproduce wild`."""


def contestants() -> tuple[str, ...]:
    """Return the names that `contestant` knows, beside ``"module:Class"``.

    >>> contestants()[:2]
    ('oracle', 'told')
    """
    return (*CEILINGS, *uninformed.contestants())


class Present:
    """The round that is being decided or learnt; `play` tells it, ceilings ask for it."""

    def __init__(self, world: WildWorld) -> None:
        self._world, self._round = world, next(iter(world))

    def tell(self, now: Round) -> None:
        """Set the round."""
        self._round = now

    def contestant(self, name: str, *, seed: int = 0) -> Policy:
        """Return a new policy that knows nothing but the dimension, or a ceiling.

        The oracle knows whether there is an offset, not its size.
        """
        world, dim = self._world, self._world.setting.dim
        if name == "oracle":
            return Oracle(
                dim, truth=lambda user, time: self._round.parameter, **options(name, world.setting)
            )
        if name == "told":
            laws = [world.law(user) for user in range(world.setting.users)]
            return Told(
                dim,
                tastes=lambda user: world.tastes(self._round.index),
                law=lambda user: laws[int(user)],
                hazard=world.hazard,
            )
        return uninformed.contestant(name, dim, seed=seed)


def options(name: str, setting: Wild) -> dict[str, Any]:
    """Return the options of a policy beside its dimension, seed and truth.

    >>> options("linucb-0.3", Wild())
    {'ridge': 0.1, 'alpha': 0.3}
    """
    if name == "oracle":
        return {"ridge": RIDGE, "alpha": ALPHA, "intercept": setting.intercept}
    return {} if name == "told" else uninformed.options(name)


def check_contestants(names: Sequence[str], setting: Wild) -> None:
    """Make every policy once, so that errors appear before the first run."""
    small = setting.with_options({"users": 1, "rounds": 1, "parameters": 1})
    present = Present(small.world(0))
    check_made(names, present.contestant, contestants())


@dataclass(frozen=True, slots=True, kw_only=True)
class WildJob:
    """One run of a policy in a wild world.

    Attributes
    ----------
    setting : Wild
        The options of the world.
    policy : str
        A name of `contestants`, or ``"module:Class"``.
    seed : int
        Seed of the world, and of a policy that chooses at random.

    Examples
    --------
    >>> WildJob(setting=Wild(users=3, rounds=20), policy="told").run().rounds
    20
    """

    setting: Wild
    policy: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """Name of the world; without a name, its differences from the default options."""
        for name, named in WORLDS.items():
            if named == self.setting:
                return name
        plain = asdict(Wild())
        given = asdict(self.setting).items()
        return " ".join(f"{name}={value}" for name, value in given if value != plain[name])

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, in plain values; the name of a world is not part."""
        return {
            "wild": asdict(self.setting),
            "policy": self.policy,
            "told": options(self.policy, self.setting),
            "source": source_of(self.policy, known=contestants()),
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
        rounds = self.setting.users * self.setting.rounds
        return rounds * COSTS.get(uninformed.kind(self.policy), 1)

    def run(self) -> Result:
        """Play in the world and return the result."""
        world = self.setting.world(self.seed)
        present = Present(world)
        policy = present.contestant(self.policy, seed=self.seed)
        return result_of(self, play(policy, world, look=LOOK, tell=present.tell))
