"""The command line: ``dyclu demo | reproduce | simulate | plan``.

Commands are thin: they check what they can before the work begins, call `dyclu.sim`, and print.
Results go to stdout; progress and complaints go to stderr. What a command needs beyond the library
itself is imported when it runs, so that ``dyclu --help`` answers at once.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyclu import __version__
from dyclu.errors import DycluError, MissingExtra, OptionError
from dyclu.service import commands

if TYPE_CHECKING:
    from dyclu.core.planning import Plan
    from dyclu.policy import Policy
    from dyclu.sim import Run, Summary, World
    from dyclu.sim.reports.document import Document
    from dyclu.sim.runs.results import Result
    from dyclu.sim.studies.demo import Trial
    from dyclu.sim.studies.lastfm import LastFMStudy
    from dyclu.sim.studies.paper import Study

REFUSED = 2
INTERRUPTED = 130
"""Exit statuses: what was asked for cannot be done; Ctrl-C, as shells count it (128 + SIGINT)."""

MOST = 10_000
"""Longest list of numbers."""


class What(StrEnum):
    """What of the paper to run again."""

    TABLE1 = "table1"
    FIGURE2 = "figure2"
    LASTFM = "lastfm"
    ALL = "all"


Seeds = Annotated[
    str | None,
    typer.Option(
        help="How many runs of each kind, with seeds 0, 1, …; or which seeds: 0,3,7 or 5-9.",
        metavar="N|LIST",
        show_default="5",
    ),
]
Policies = Annotated[
    str | None,
    typer.Option(help="Names, or your own as module:Class; comma-separated.", metavar="LIST"),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Runs to make at the same time.", show_default="one per core"),
]
Dask = Annotated[
    str | None,
    typer.Option(help="Let the workers of this Dask scheduler make the runs.", metavar="ADDRESS"),
]

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
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "interrupted")
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
    """Watch uniform, LinUCB, DyClu and Atlas serve users who change.

    Every user has one of a few tastes and takes up another one from time to time. The policies are
    told neither who shares a taste nor when it changes. Takes under a minute, prints a table, and
    saves a picture (demo.png) and a page (demo.html); these need matplotlib:
    pip install 'dyclu[plots]'.
    """
    from dyclu.sim import Population, summary
    from dyclu.sim.reports.document import Table
    from dyclu.sim.reports.demo import CAPTION, HEADER, rows
    from dyclu.sim.reports.terminal import print_table
    from dyclu.sim.studies.demo import Trial
    from dyclu.storage import check_writable

    setting = Population(
        users=users,
        parameters=parameters,
        dim=dim,
        rounds=rounds,
        shortest=max(1, rounds // 5),
        longest=max(1, rounds // 2),
        noise=noise,
    )
    trial = Trial(world=setting.world(seed), seed=seed, tell_noise=tell_noise)
    if not no_picture:
        check_writable(out)
    talks = not (quiet or as_json)
    if talks:
        typer.echo(trial.introduction)

    trial.rehearse()
    runs = _play_all(trial.contestants(), trial.world, quiet=quiet)
    summaries = {name: summary(run) for name, run in runs.items()}
    if talks:
        print_table(Table(header=HEADER, rows=tuple(rows(summaries)), note=CAPTION))

    files = [] if no_picture else _pictures(out, trial, runs, summaries)
    if talks:
        _say_written(files)
    if as_json:
        _print_json({**trial.numbers(summaries), "files": [str(file) for file in files]})


@app.command()
@manners()
def reproduce(
    what: Annotated[What, typer.Argument(help="What to run again.")],
    rows: Annotated[
        str | None,
        typer.Option(help="Rows of Table 1, such as 1,4-6.", metavar="LIST", show_default="all"),
    ] = None,
    seeds: Seeds = None,
    policies: Policies = None,
    jobs: Jobs = None,
    dask: Dask = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the Last.fm data set, for lastfm.", metavar="DIR"),
    ] = None,
    least: Annotated[
        int | None,
        typer.Option(
            help="lastfm: observations a person must have to take part.", show_default="800"
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="lastfm: what features are divided by, the largest norm or each one's own.",
            metavar="largest|unit|none",
            show_default="largest",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="lastfm: order of a person's observations.",
            metavar="shuffled|dated|published",
            show_default="shuffled",
        ),
    ] = None,
    serving: Annotated[
        str | None,
        typer.Option(
            help="lastfm: in which order users come by.",
            metavar="in-turn|at-random",
            show_default="in-turn",
        ),
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            help="lastfm: what is offered beside the positive artist.",
            metavar="unknown|untagged",
            show_default="unknown",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version of it, 2 seeds, a few minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for runs and reports.", metavar="DIR")] = Path(
        "dyclu-results"
    ),
) -> None:
    """Run the paper's experiments again and compare.

    table1 is the paper's nine simulated settings, figure2 its three environments, lastfm its
    experiment with real people. At full size they take hours. Every run is stored as it is done, in
    OUT/runs: the same command goes on where it was stopped. Results (CSV) and report (Markdown,
    HTML, PNG) go to a folder of their own in OUT.
    """
    studies = _studies(
        what,
        rows=None if rows is None else _numbers(rows, "rows"),
        policies=None if policies is None else _names(policies),
        seeds=_seeds(seeds, quick=quick),
        quick=quick,
        data=data,
        reading=_given(least=least, scaling=scaling),
        drawing=_given(
            order=order,
            # Without quotes for the shell.
            serving=None if serving is None else serving.replace("-", " "),
            negatives=negatives,
        ),
    )
    told: dict[str, object] = {
        "rows": rows,
        "seeds": seeds,
        "policies": policies,
        "quick": quick,
        "least": least,
        "scaling": scaling,
        "order": order,
        "serving": serving,
        "negatives": negatives,
        "data": None if data is None else "DIR",
    }
    plant = _Plant.at(out, jobs=jobs, dask=dask)
    for study in studies:
        plant.conduct(study, command=_command(f"reproduce {what}", told), folder=out / study.name)


@app.command()
@manners()
def simulate(
    users: Annotated[int, typer.Option(help="How many users there are.")] = 100,
    parameters: Annotated[
        int, typer.Option(help="Tastes they share; 0 gives every period one of its own.")
    ] = 10,
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 25,
    arms: Annotated[int, typer.Option(help="Arms there are.")] = 1000,
    offered: Annotated[int, typer.Option(help="Arms each round offers.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds of each user.")] = 2500,
    shortest: Annotated[int, typer.Option(help="Shortest period between changes.")] = 400,
    longest: Annotated[int, typer.Option(help="Longest period between changes.")] = 2500,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    separation: Annotated[float, typer.Option(help="Least distance between two tastes.")] = 0.9,
    seeds: Seeds = None,
    policies: Policies = None,
    jobs: Jobs = None,
    dask: Dask = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.", metavar="DIR")] = Path(
        "dyclu-simulation"
    ),
) -> None:
    """Compare policies in a population of your own making.

    The defaults are row 1 of the paper's Table 1, which takes minutes per run. Runs are stored and
    reported as by dyclu reproduce, and the same command goes on where it was stopped.
    """
    from dyclu.sim import Population
    from dyclu.sim.runs.contestants import CONTESTANTS
    from dyclu.sim.runs.jobs import Job
    from dyclu.sim.studies.paper import Study

    setting = Population(
        users=users,
        parameters=parameters or None,
        dim=dim,
        arms=arms,
        offered=offered,
        rounds=rounds,
        shortest=shortest,
        longest=longest,
        noise=noise,
        separation=separation,
    )
    chosen = _seeds(seeds, quick=False)
    # Drawn here, so that a setting nobody can draw is found before the first run.
    setting.world(chosen[0])
    study = Study(
        name="simulation",
        title="A simulated population",
        settings={Job(setting, "uniform").name: setting},
        policies=CONTESTANTS if policies is None else _names(policies),
        seeds=chosen,
    )
    own = asdict(setting) | {"parameters": parameters}
    told = own | {"seeds": seeds, "policies": policies}
    plant = _Plant.at(out, jobs=jobs, dask=dask)
    plant.conduct(study, command=_command("simulate", told), folder=out)


commands.mount(app, manners)


@app.command()
@manners()
def plan(
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 25,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    gap: Annotated[float, typer.Option(help="Distance of two tastes to be told apart.")] = 0.9,
    norm: Annotated[float, typer.Option(help="Length of an arm's features.")] = 1.0,
    change_level: Annotated[
        float, typer.Option(help="Chance that a reward surprises for nothing.")
    ] = 0.01,
    neighbour_level: Annotated[
        float, typer.Option(help="Chance of leaving out a true neighbour.")
    ] = 0.01,
    window: Annotated[int, typer.Option(help="Latest rewards the alarm looks at.")] = 20,
    window_delta: Annotated[
        float, typer.Option(help="Chance that the alarm may ring for nothing.")
    ] = 0.1,
    out: Annotated[Path, typer.Option(help="Folder for the picture.", metavar="DIR")] = Path(
        "dyclu-plan"
    ),
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Tell what to expect of DyClu before anything is run.

    How soon a change is noticed, how long the window should be, and how many observations it takes
    to tell two users apart, from the size of the noise and of the difference. Saves a picture
    (plan.png), which needs matplotlib: pip install 'dyclu[plots]'.
    """
    from dyclu.core.planning import Plan
    from dyclu.sim.reports.plan import plan_numbers, plan_tables
    from dyclu.sim.reports.terminal import print_table
    from dyclu.storage import check_writable

    planned = Plan(
        dim=dim,
        noise=noise,
        separation=gap,
        norm=norm,
        change_level=change_level,
        neighbour_level=neighbour_level,
        window=window,
        window_delta=window_delta,
    )
    if not no_picture:
        check_writable(out)
    numbers = plan_numbers(planned)
    files = [] if no_picture else _plan_picture(planned, out / "plan.png")
    if as_json:
        _print_json({"version": __version__, **numbers, "files": [str(file) for file in files]})
        return
    for table in plan_tables(numbers):
        print_table(table)
    _say_written(files)


def _studies(
    what: What,
    *,
    rows: tuple[int, ...] | None,
    policies: tuple[str, ...] | None,
    seeds: tuple[int, ...],
    quick: bool,
    data: Path | None,
    reading: Mapping[str, Any],
    drawing: Mapping[str, Any],
) -> list[Study | LastFMStudy]:
    """Return the studies that were asked for; all that can be checked of them has been."""
    from dyclu.sim.runs.contestants import CONTESTANTS
    from dyclu.sim.runs.stream.contestants import CONTESTANTS
    from dyclu.sim.studies.lastfm import LastFMStudy
    from dyclu.sim.studies.paper import figure2, table1
    from dyclu.sim.worlds.lastfm import WHERE

    wanted = [one for one in What if what in (one, What.ALL) and one is not What.ALL]
    if rows is not None and What.TABLE1 not in wanted:
        raise OptionError(f"{what} has no rows; leave out --rows, or reproduce table1")
    if What.LASTFM not in wanted and (only := [*reading, *drawing]):
        raise OptionError(f"--{only[0]} is for lastfm; leave it out, or reproduce lastfm")
    if data is None and What.LASTFM in wanted:
        raise OptionError(f"{what} needs --data with the Last.fm data set; {WHERE}")

    players = CONTESTANTS if policies is None else policies
    studies: list[Study | LastFMStudy] = []
    if What.TABLE1 in wanted:
        studies.append(table1(rows=rows, policies=players, seeds=seeds, quick=quick))
    if What.FIGURE2 in wanted:
        studies.append(figure2(policies=players, seeds=seeds, quick=quick))
    if What.LASTFM in wanted and data is not None:
        listeners = CONTESTANTS if policies is None else policies
        if what is What.ALL and set(listeners) > {"oracle"}:
            listeners = tuple(name for name in listeners if name != "oracle")
        studies.append(
            LastFMStudy.read(
                data,
                policies=listeners,
                seeds=seeds,
                reading=reading,
                drawing=drawing,
                quick=quick,
            )
        )
    return studies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plant:
    """Where and how runs are made."""

    store: Path
    jobs: int | None
    dask: str | None

    @classmethod
    def at(cls, store: Path, *, jobs: int | None, dask: str | None) -> _Plant:
        """Return a plant that can be used: the folder takes files."""
        from dyclu.storage import check_writable

        if jobs is not None and jobs < 1:
            raise OptionError(f"jobs is {jobs}, expected 1 or more; leave it out for one per core")
        check_writable(store)
        return cls(store=store, jobs=jobs, dask=dask)

    def conduct(self, study: Study | LastFMStudy, *, command: str, folder: Path) -> None:
        """Make all runs of a study, write its files, print its first table."""
        from dyclu.sim.reports.page import write_report
        from dyclu.sim.reports.common import machine
        from dyclu.sim.reports.terminal import print_table
        from dyclu.sim.runs.results import missing_runs, write_csv, write_curves, write_timing
        from dyclu.storage import check_writable

        check_writable(folder)
        results, took = self._results(study)
        tables = [folder / "results.csv", folder / "timing.csv", folder / "curves.csv"]
        if lost := missing_runs(tables[0], results):
            _complain(
                f"the report that was in {folder} had {lost} runs that are not in this one; they "
                "are still stored, and the command that made them writes it again at once"
            )
        write_csv(results, tables[0])
        write_timing(results, tables[1])
        write_curves(results, tables[2])
        facts = {"command": command, **machine(), "time": took}
        document = _document_of(study, results, facts)
        files = write_report(document, folder)
        typer.echo(document.title)
        print_table(document.table)
        if document.warning:
            typer.echo(document.warning)
        _say_written([*tables, *files])

    def _results(self, study: Study | LastFMStudy) -> tuple[list[Result], str]:
        """Return the results, and in words what it took to have them."""
        from dyclu.sim.reports.terminal import progress_bars

        start, done_before = time.monotonic(), list[int]()
        with _warnings_told(), progress_bars() as progress:
            task = progress.add_task(study.name, total=None)

            def tell(done: int, total: int) -> None:
                done_before.append(done)
                progress.update(task, completed=done, total=total)

            try:
                results = study.make(self.store, workers=self.jobs, dask=self.dask, progress=tell)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"interrupted; finished runs are kept in {self.store / 'runs'}, "
                    "the same command goes on from there"
                ) from None
        made, seconds = len(done_before) - 1, time.monotonic() - start
        stored = done_before[0]
        runs = (
            f"{made} of {made + stored} runs, the others were stored" if stored else f"{made} runs"
        )
        return results, f"{seconds:,.0f} s by the clock for {runs}"


class _Teller(logging.Handler):
    """Shows what the library warns of as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        _complain(record.getMessage())


@contextmanager
def _warnings_told() -> Iterator[None]:
    logger, teller = logging.getLogger("dyclu"), _Teller(logging.WARNING)
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)


def _document_of(
    study: Study | LastFMStudy, results: Sequence[Result], facts: Mapping[str, str]
) -> Document:
    """Return the report of a study; without matplotlib, say how to get it and draw nothing."""
    _hush_matplotlib()
    try:
        return study.document(results, facts=facts)
    except MissingExtra as missing:
        _complain(str(missing))
        return study.document(results, facts=facts, pictures=False)


def _plan_picture(planned: Plan, path: Path) -> list[Path]:
    """Write the picture of a plan; without matplotlib, say how to get it and write none."""
    from dyclu.sim.reports.drawing import write_png
    from dyclu.sim.reports.plan import plan_figure

    _hush_matplotlib()
    try:
        write_png(plan_figure(planned), path)
    except MissingExtra as missing:
        _complain(str(missing))
        return []
    return [path]


def _hush_matplotlib() -> None:
    """Keep back matplotlib's remarks on its caches, which no reader of stderr asked for."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _given(**options: object) -> dict[str, object]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _print_json(document: Mapping[str, object]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def _say_written(files: Sequence[Path]) -> None:
    for file in files:
        typer.echo(f"written: {file}")


def _command(name: str, told: Mapping[str, object]) -> str:
    """Return the command line that asks for the same, but for folders, which are one's own.

    >>> _command("simulate", {"users": 4, "parameters": 0, "policies": None, "quick": True})
    'dyclu simulate --users=4 --parameters=0 --quick'
    >>> _command("reproduce lastfm", {"data": "DIR", "serving": "in turn"})
    "dyclu reproduce lastfm --data=DIR '--serving=in turn'"
    """
    given = {key: value for key, value in told.items() if value is not None and value is not False}
    flags = [f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items()]
    return " ".join([f"dyclu {name}", *map(shlex.quote, flags)])


def _names(text: str) -> tuple[str, ...]:
    """Return the policies of a comma-separated list, each once."""
    # Somebody's own module is looked for where they are, and last: were this folder the first, a
    # stray queue.py in it would be imported by whatever library needs the real one.
    if ":" in text and (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _seeds(text: str | None, *, quick: bool) -> tuple[int, ...]:
    """Return the seeds: so many from 0 on, or those of a list.

    >>> _seeds("3", quick=False), _seeds("0,7-9", quick=False)
    ((0, 1, 2), (0, 7, 8, 9))
    """
    asked = text if text is not None else "2" if quick else "5"
    if not re.fullmatch(r"[0-9]{1,9}", asked):
        return _numbers(asked, "seeds")
    if not 0 < int(asked) <= MOST:
        raise OptionError(f"seeds is {asked}, expected a number of runs from 1 to {MOST:,}")
    return tuple(range(int(asked)))


def _numbers(text: str, name: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as ``1,4-6``, each once."""
    span = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
    found = [span.fullmatch(part) for part in text.split(",")]
    spans = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in found if part]
    if len(spans) < len(found) or not all(spans) or sum(map(len, spans)) > MOST:
        raise OptionError(
            f"{name} is {text!r}, expected whole numbers such as 1,4-6, at most {MOST:,} of them"
        )
    return tuple(dict.fromkeys(number for numbers in spans for number in numbers))


def _play_all(contestants: Mapping[str, Policy], world: World, *, quiet: bool) -> dict[str, Run]:
    from dyclu.sim import play
    from dyclu.sim.reports.terminal import bar, progress_bars

    with progress_bars(quiet=quiet) as progress:
        return {
            name: play(policy, world, progress=bar(progress, name, len(world)))
            for name, policy in contestants.items()
        }


def _pictures(
    folder: Path, trial: Trial, runs: Mapping[str, Run], summaries: Mapping[str, Summary]
) -> list[Path]:
    """Write picture and page; without matplotlib, say how to get it and write none."""
    from dyclu.sim.reports.drawing import write_png
    from dyclu.sim.reports.demo import figure, write_html
    from dyclu.sim.studies.demo import WATCHED

    _hush_matplotlib()
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
