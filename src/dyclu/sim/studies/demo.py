"""The demo: four policies in one world, and a tour of what they found out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dyclu import __version__
from dyclu.errors import MissingExtra
from dyclu.plots.drawing import write_png
from dyclu.policies import Atlas, DyClu, LinUCB, Uniform
from dyclu.policy import Model, Policy
from dyclu.sim.reports.demo import figure, user_to_show, write_html
from dyclu.sim.reports.terminal import bar, progress_bars
from dyclu.sim.reports.tour import UNKNOWN, tour
from dyclu.sim.runs.measures import Summary
from dyclu.sim.runs.play import Run, play
from dyclu.sim.worlds.population import World
from dyclu.sim.worlds.rounds import Round
from dyclu.sim.worlds.wild import Wild

WATCHED = "DyClu"
"""The policy whose alarms are shown in the picture."""

MAPPED = "Atlas"
"""The policy whose models are shown on the map; it plays after the one that is watched."""

CLICK_ROUNDS = 200
"""Most rounds of each user in the world of clicks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What happened in a demo.

    Attributes
    ----------
    runs : dict of str to Run
        The run of every policy.
    user : int
        The user whose life is shown.
    followed : tuple of int
        Id of the model that this user followed for Atlas before each of their rounds, or `UNKNOWN`.
    models : tuple of Model
        Models of Atlas at the end.
    """

    runs: dict[str, Run]
    user: int
    followed: tuple[int, ...]
    models: tuple[Model, ...]


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

    def policies(self, *, noise: float | None) -> dict[str, Policy]:
        """Return new policies by name."""
        dim = self.world.setting.dim
        return {
            "uniform": Uniform(dim, seed=self.seed),
            "LinUCB": LinUCB(dim, noise=noise),
            WATCHED: DyClu(dim, noise=noise),
            MAPPED: Atlas(dim, noise=noise),
        }

    @property
    def _told(self) -> float | None:
        return self.world.setting.noise if self.tell_noise else None

    def play(self, *, quiet: bool = False) -> Played:
        """Let every policy play, with progress bars on a terminal unless `quiet`."""
        self._warm_up()
        policies, runs = self.policies(noise=self._told), dict[str, Run]()
        user, followed = 0, list[int]()

        def note(turn: Round) -> None:
            if turn.user == user and len(followed) == turn.time:
                model = policies[MAPPED].locate(user).model
                followed.append(UNKNOWN if model is None else model)

        with progress_bars(quiet=quiet) as progress:
            for name, policy in policies.items():
                tell = note if name == MAPPED else None
                shown = bar(progress, name, len(self.world))
                runs[name] = play(policy, self.world, tell=tell, progress=shown)
                user = user_to_show(runs[name]) if name == WATCHED else user
        models = policies[MAPPED].models
        return Played(runs=runs, user=user, followed=tuple(followed), models=models)

    def play_clicks(self, *, quiet: bool = False) -> dict[str, Run]:
        """Return the runs of new policies in a world of the same size whose rewards are clicks."""
        setting = self.world.setting
        rounds = min(setting.rounds, CLICK_ROUNDS)
        world = Wild(
            users=setting.users,
            parameters=setting.parameters,
            dim=setting.dim,
            rounds=rounds,
            shortest=max(1, rounds // 2),
            longest=rounds,
            rewards="logistic",
            offset=-1.0,
            slope=4.0,
        ).world(self.seed)
        with progress_bars(quiet=quiet) as progress:
            return {
                name: play(policy, world, progress=bar(progress, f"{name}, clicks", len(world)))
                for name, policy in self.policies(noise=None).items()
            }

    def _warm_up(self) -> None:
        """Compile the kernels: play a few rounds with other policies, so that times are fair."""
        small = replace(self.world.setting, users=2, rounds=2).world(self.seed)
        for policy in self.policies(noise=self._told).values():
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
        played: Played,
        summaries: Mapping[str, Summary],
        *,
        quiet: bool = False,
        warn: Callable[[str], object],
    ) -> list[Path]:
        """Write the picture and the page; without matplotlib, call `warn` and write nothing."""
        try:
            drawn = figure(played.runs, watched=WATCHED)
        except MissingExtra as missing:
            warn(str(missing))
            return []
        parts = tour(
            self.world,
            user=played.user,
            followed=played.followed,
            models=played.models,
            clicks=self.play_clicks(quiet=quiet),
        )
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
            tour=parts,
        )
        return [png, page]
