"""The command line: ``dyclu demo``.

Commands are thin: they check what they can before the work begins, call `dyclu.sim`, and print.
Results go to stdout; progress and complaints go to stderr. What a command needs beyond the library
itself is imported when it runs, so that ``dyclu --help`` answers at once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dyclu import __version__
from dyclu.errors import DycluError, MissingExtra
from dyclu.policies import DyClu, LinUCB, Uniform
from dyclu.policy import Policy

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from dyclu.sim import Run, Summary, World

REFUSED = 2
INTERRUPTED = 130
"""Exit statuses: what was asked for cannot be done; Ctrl-C, as shells count it (128 + SIGINT)."""

WATCHED = "DyClu"
"""The contestant whose alarms are shown in the picture."""

UNLIMITED = 10_000
"""A width that no table reaches."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()


@contextmanager
def manners() -> Iterator[None]:
    """Decorate a command: what it refuses is one line on stderr and an exit status."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read our output has had enough, as in `| head`; typer leaves quietly.
        raise
    except (DycluError, OSError) as error:
        _complain(str(error))
        raise typer.Exit(REFUSED) from None
    except MemoryError as error:
        _complain(f"not enough memory ({error}); ask for fewer users, rounds or features")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        _complain("interrupted")
        raise typer.Exit(INTERRUPTED) from None


def _complain(message: str) -> None:
    typer.echo(f"dyclu: {message}", err=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dyclu {__version__}")
        raise typer.Exit


@app.callback()
def dyclu(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Bandits for a population of users who resemble each other and change."""


@app.command()
@manners()
def demo(
    users: Annotated[int, typer.Option(help="How many users there are.")] = 40,
    rounds: Annotated[int, typer.Option(help="How often each of them comes by.")] = 500,
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 10,
    parameters: Annotated[int, typer.Option(help="How many tastes the users share.")] = 5,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    tell_noise: Annotated[
        bool,
        typer.Option(
            "--tell-noise", help="Tell the policies the noise; otherwise they estimate it."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for picture and page.", metavar="DIR")] = Path(
        "dyclu-demo"
    ),
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no files.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Watch uniform, LinUCB and DyClu serve users who change.

    Every user has one of a few tastes and takes up another one from time to time. The policies are
    told neither who shares a taste nor when it changes. Takes under a minute, prints a table, and
    saves a picture (demo.png) and a page (demo.html); these need matplotlib:
    pip install 'dyclu[plots]'.
    """
    from dyclu.sim import Population, summary
    from dyclu.sim.report import check_writable

    setting = Population(
        users=users,
        parameters=parameters,
        dim=dim,
        rounds=rounds,
        shortest=max(1, rounds // 5),
        longest=max(1, rounds // 2),
        noise=noise,
    )
    trial = _Trial(world=setting.world(seed), seed=seed, tell_noise=tell_noise)
    if not no_picture:
        check_writable(out)
    talks = not (quiet or as_json)
    if talks:
        typer.echo(trial.introduction)

    runs = _play_all(trial.contestants(), trial.world, quiet=quiet)
    summaries = {name: summary(run) for name, run in runs.items()}
    if talks:
        _print_table(summaries)

    files = [] if no_picture else _pictures(out, trial, runs, summaries)
    if talks:
        for file in files:
            typer.echo(f"written: {file}")
    if as_json:
        typer.echo(_document(trial, summaries, files))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """What the demo plays, and how it is put into words."""

    world: World
    seed: int
    tell_noise: bool

    def contestants(self) -> dict[str, Policy]:
        dim = self.world.setting.dim
        noise = self.world.setting.noise if self.tell_noise else None
        return {
            "uniform": Uniform(dim, seed=self.seed),
            "LinUCB": LinUCB(dim, noise=noise),
            WATCHED: DyClu(dim, noise=noise),
        }

    @property
    def introduction(self) -> str:
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


def _play_all(contestants: Mapping[str, Policy], world: World, *, quiet: bool) -> dict[str, Run]:
    from dyclu.sim import play

    with _progress(quiet=quiet) as progress:
        return {
            name: play(policy, world, progress=_bar(progress, name, len(world)))
            for name, policy in contestants.items()
        }


def _progress(*, quiet: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


def _bar(progress: Progress, name: str, total: int) -> Callable[[int], None]:
    task = progress.add_task(name, total=total)
    return lambda done: progress.update(task, completed=done)


def _print_table(summaries: Mapping[str, Summary]) -> None:
    from rich.console import Console

    from dyclu.sim.report import CAPTION, HEADER, rows

    console = Console(highlight=False)
    lines = [HEADER, *rows(summaries)]
    wide = _table([[name.replace(" ", "\n") for name in HEADER], *lines[1:]])
    natural = console.measure(wide, options=console.options.update(width=UNLIMITED)).maximum
    narrow = _table(list(zip(*lines, strict=True)))
    console.print(wide if natural <= console.width else narrow)
    console.print(CAPTION)


def _table(lines: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first line is the header and whose first column names the lines."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    header, *body = lines
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for line in body:
        table.add_row(*line)
    return table


def _pictures(
    folder: Path, trial: _Trial, runs: Mapping[str, Run], summaries: Mapping[str, Summary]
) -> list[Path]:
    """Write picture and page; without matplotlib, say how to get it and write none."""
    from dyclu.sim.report import figure, write_html, write_png

    # Matplotlib's remarks on its caches are not what --quiet or a reader of stderr asked for.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        drawn = figure(runs, watched=WATCHED)
    except MissingExtra as missing:
        _complain(str(missing))
        return []
    png, page = folder / "demo.png", folder / "demo.html"
    write_png(drawn, png)
    write_html(
        drawn,
        page,
        title="dyclu demo",
        lead=trial.introduction,
        summaries=summaries,
        facts={
            "command": trial.command,
            "setting": repr(trial.world.setting),
            "version": f"dyclu {__version__}",
        },
    )
    return [png, page]


def _document(trial: _Trial, summaries: Mapping[str, Summary], files: list[Path]) -> str:
    document = {
        "version": __version__,
        "command": trial.command,
        "seed": trial.seed,
        "tell_noise": trial.tell_noise,
        "setting": asdict(trial.world.setting),
        "policies": {name: asdict(summary) for name, summary in summaries.items()},
        "files": [str(file) for file in files],
    }
    return json.dumps(document, indent=2, allow_nan=False)
