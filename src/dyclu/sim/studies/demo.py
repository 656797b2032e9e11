"""The demo: four policies in one world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dyclu import __version__
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform
from dyclu.policy import Policy
from dyclu.sim.runs.measures import Summary
from dyclu.sim.runs.play import play
from dyclu.sim.worlds.population import World

WATCHED = "DyClu"
"""The contestant whose alarms are shown in the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the demo plays, and how it is put into words.

    Attributes
    ----------
    world : World
        Where everybody plays.
    seed : int
        What it was drawn from, and a policy's dice too.
    tell_noise : bool
        Whether the policies are told the noise.
    """

    world: World
    seed: int
    tell_noise: bool

    def contestants(self) -> dict[str, Policy]:
        """Return fresh policies by name."""
        dim = self.world.setting.dim
        noise = self.world.setting.noise if self.tell_noise else None
        return {
            "uniform": Uniform(dim, seed=self.seed),
            "LinUCB": LinUCB(dim, noise=noise),
            WATCHED: DyClu(dim, noise=noise),
            "Atlas": Atlas(dim, noise=noise),
        }

    def rehearse(self) -> None:
        """Let everybody play rounds that do not count: the first call compiles the kernels."""
        small = replace(self.world.setting, users=2, rounds=2).world(self.seed)
        for policy in self.contestants().values():
            play(policy, small)

    @property
    def introduction(self) -> str:
        """What is there, before anybody plays."""
        setting = self.world.setting
        changes = sum(len(self.world.changes(user)) for user in range(setting.users))
        return (
            f"{setting.users} users share {setting.parameters} tastes; {setting.rounds} rounds "
            f"each, {changes} changes in all (seed {self.seed})"
        )

    @property
    def command(self) -> str:
        """The command line that gives the same run."""
        setting = self.world.setting
        options = ("users", "rounds", "dim", "parameters", "noise")
        chosen = [f"--{name}={getattr(setting, name)}" for name in options]
        flag = ["--tell-noise"] if self.tell_noise else []
        return " ".join(["dyclu demo", *chosen, *flag, f"--seed={self.seed}"])

    def numbers(self, summaries: Mapping[str, Summary]) -> dict[str, Any]:
        """Return what was played and what came of it, ready for JSON."""
        return {
            "version": __version__,
            "command": self.command,
            "seed": self.seed,
            "tell_noise": self.tell_noise,
            "setting": asdict(self.world.setting),
            "policies": {name: asdict(summary) for name, summary in summaries.items()},
        }
