"""The demo: four policies in one world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dyclu import __version__
from dyclu.errors import MissingExtra
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform
from dyclu.policy import Policy
from dyclu.sim.reports.demo import figure, write_html
from dyclu.sim.reports.drawing import write_png
from dyclu.sim.reports.terminal import bar, progress_bars
from dyclu.sim.runs.measures import Summary
from dyclu.sim.runs.play import Run, play
from dyclu.sim.worlds.population import World

WATCHED = "DyClu"
"""The policy whose alarms are shown in the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Four policies in one world, and the texts and files about them.

    Attributes
    ----------
    world : World
        Where the policies play.
    seed : int
        Seed of the world and of policies that choose at random.
    tell_noise : bool
        Whether the policies are told the noise.
    """

    world: World
    seed: int
    tell_noise: bool

    def policies(self) -> dict[str, Policy]:
        """Return new policies by name."""
        dim = self.world.setting.dim
        noise = self.world.setting.noise if self.tell_noise else None
        return {
            "uniform": Uniform(dim, seed=self.seed),
            "LinUCB": LinUCB(dim, noise=noise),
            WATCHED: DyClu(dim, noise=noise),
            "Atlas": Atlas(dim, noise=noise),
        }

    def play(self, *, quiet: bool = False) -> dict[str, Run]:
        """Return the run of every policy, with progress bars on a terminal unless `quiet`."""
        self._warm_up()
        with progress_bars(quiet=quiet) as progress:
            return {
                name: play(policy, self.world, progress=bar(progress, name, len(self.world)))
                for name, policy in self.policies().items()
            }

    def _warm_up(self) -> None:
        """Compile the kernels: play a few rounds with other policies, so that times are fair."""
        small = replace(self.world.setting, users=2, rounds=2).world(self.seed)
        for policy in self.policies().values():
            play(policy, small)

    @property
    def introduction(self) -> str:
        """One sentence about the world."""
        setting = self.world.setting
        changes = sum(len(self.world.changes(user)) for user in range(setting.users))
        return (
            f"{setting.users} users share {setting.parameters} tastes; {setting.rounds} rounds "
            f"each, {changes} changes in all (seed {self.seed})"
        )

    @property
    def command(self) -> str:
        """The command line that gives the same runs."""
        setting = self.world.setting
        options = ("users", "rounds", "dim", "parameters", "noise")
        chosen = [f"--{name}={getattr(setting, name)}" for name in options]
        flag = ["--tell-noise"] if self.tell_noise else []
        return " ".join(["dyclu demo", *chosen, *flag, f"--seed={self.seed}"])

    def numbers(self, summaries: Mapping[str, Summary]) -> dict[str, Any]:
        """Return the options and the summaries of the runs, ready for JSON."""
        return {
            "version": __version__,
            "command": self.command,
            "seed": self.seed,
            "tell_noise": self.tell_noise,
            "setting": asdict(self.world.setting),
            "policies": {name: asdict(summary) for name, summary in summaries.items()},
        }

    def write_pages(
        self,
        folder: Path,
        runs: Mapping[str, Run],
        summaries: Mapping[str, Summary],
        *,
        warn: Callable[[str], object],
    ) -> list[Path]:
        """Write the picture and the page; without matplotlib, call `warn` and write nothing."""
        try:
            drawn = figure(runs, watched=WATCHED)
        except MissingExtra as missing:
            warn(str(missing))
            return []
        png, page = folder / "demo.png", folder / "demo.html"
        write_png(drawn, png)
        write_html(
            drawn,
            page,
            title="dyclu demo",
            lead=self.introduction,
            summaries=summaries,
            facts={
                "command": self.command,
                "setting": repr(self.world.setting),
                "version": f"dyclu {__version__}",
            },
        )
        return [png, page]
