"""The command line: ``dyclu demo | reproduce | simulate | plan | evaluate``, and the service's.

This file has the options. A command checks them, calls `dyclu.sim` and prints: results on stdout,
progress and errors on stderr. Each command imports what it needs when it runs, so that
``dyclu --help`` is fast.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dyclu import __version__
from dyclu.errors import DycluError, FileError, OptionError
from dyclu.service import commands

if TYPE_CHECKING:
    from dyclu.data import Features
    from dyclu.evaluate import Comparison, Replayed
    from dyclu.evaluate.targets import Target
    from dyclu.sim import Population
    from dyclu.sim.studies.running import AnyStudy

REFUSED = 2
INTERRUPTED = 130
"""Exit statuses: the command refuses its options or fails; Ctrl-C (128 + SIGINT, as in shells)."""


class What(StrEnum):
    """Experiments; the name `all` means those of the paper."""

    TABLE1 = "table1"
    FIGURE2 = "figure2"
    LASTFM = "lastfm"
    MOVIELENS = "movielens"
    WILD = "wild"
    ALL = "all"


SCALINGS, ORDERS = "largest|unit|none", "shuffled|dated|published"
SERVINGS, DATED_SERVINGS = "in-turn|at-random", "dated|in-turn|at-random"
NEGATIVES, FILM_NEGATIVES = "unknown|untagged", "unrated|never-rated"
"""Choices of the options for lastfm and movielens; the first one is the default."""

Seeds = Annotated[
    str | None,
    typer.Option(
        help="Number of seeds, counted from 0; or a list of seeds: 0,3,7 or 5-9.",
        metavar="N|LIST",
        show_default="5",
    ),
]
Policies = Annotated[
    str | None, typer.Option(help="Comma-separated names, or module:Class.", metavar="LIST")
]
Jobs = Annotated[
    int | None, typer.Option(help="Number of runs at the same time.", show_default="one per core")
]
Dask = Annotated[
    str | None, typer.Option(help="Run on the workers of this Dask scheduler.", metavar="ADDRESS")
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
def errors_on_stderr() -> Iterator[None]:
    """Decorate a command: an error becomes one line on stderr and an exit status."""
    try:
        yield
    except BrokenPipeError:
        # The reader of our output has closed it, as `| head` does; typer exits without a message.
        raise
    except (DycluError, OSError) as error:
        _print_error(str(error))
        raise typer.Exit(REFUSED) from None
    except MemoryError as error:
        _print_error(f"not enough memory ({error}); ask for fewer users, rounds or features")
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt as stop:
        _print_error(str(stop) or "interrupted")
        raise typer.Exit(INTERRUPTED) from None


def _print_error(message: str) -> None:
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
@errors_on_stderr()
def demo(
    users: Annotated[int, typer.Option(help="Number of users.")] = 40,
    rounds: Annotated[int, typer.Option(help="Rounds of each user.")] = 500,
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 10,
    parameters: Annotated[int, typer.Option(help="Number of tastes that users share.")] = 5,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    tell_noise: Annotated[
        bool,
        typer.Option(
            "--tell-noise", help="Give the policies the noise; otherwise they estimate it."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for picture and page.", metavar="DIR")] = Path(
        "dyclu-demo"
    ),
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no files.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Compare uniform, LinUCB, DyClu and Atlas on users who change.

    Every user has one of a few tastes, and changes to another one from time to time. The policies
    do not know which users share a taste, nor when it changes. Takes less than a minute, prints a
    table, and saves a picture (demo.png) and a page (demo.html) with a tour, which need matplotlib:
    pip install 'dyclu[plots]'.
    """
    from dyclu.sim import Population, summary
    from dyclu.sim.reports.demo import summary_table, warning_lines
    from dyclu.sim.reports.terminal import print_lines, print_table
    from dyclu.sim.studies.demo import Demo
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
    shown = Demo(world=setting.world(seed), seed=seed, tell_noise=tell_noise)
    if not no_picture:
        check_writable(out)
    prints_text = not (quiet or as_json)
    if prints_text:
        typer.echo(shown.introduction)

    played = shown.play(quiet=quiet)
    summaries = {name: summary(run) for name, run in played.runs.items()}
    if prints_text:
        print_table(summary_table(summaries))
        print_lines(warning_lines(summaries))

    _silence_matplotlib()
    files = (
        []
        if no_picture
        else shown.write_pages(out, played, summaries, quiet=quiet, warn=_print_error)
    )
    if prints_text:
        _print_files(files)
    if as_json:
        _print_json({**shown.numbers(summaries), "files": [str(file) for file in files]})


def _recorded(help_text: str, **choices: str) -> Any:
    """Return an option of recorded data sets, from its choices or default for each of them."""
    of_each = "; ".join(f"{name}: {choice}" for name, choice in choices.items())
    return typer.Option(help=f"{help_text} ({of_each}).", show_default=False)


@app.command()
@errors_on_stderr()
def reproduce(
    what: Annotated[What, typer.Argument(help="The experiment.")],
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
        typer.Option(help="Folder with the data set, for lastfm and movielens.", metavar="DIR"),
    ] = None,
    least: Annotated[
        int | None,
        _recorded("Least number of observations of a person", lastfm="800", movielens="30"),
    ] = None,
    scaling: Annotated[
        str | None,
        _recorded(
            "Divide features by the largest norm, by each item's own, or by nothing",
            lastfm=SCALINGS,
            movielens=SCALINGS,
        ),
    ] = None,
    order: Annotated[
        str | None, _recorded("Order of a person's observations", lastfm=ORDERS)
    ] = None,
    serving: Annotated[
        str | None,
        _recorded("Order in which users come", lastfm=SERVINGS, movielens=DATED_SERVINGS),
    ] = None,
    negatives: Annotated[
        str | None,
        _recorded(
            "Items that are offered beside the positive one",
            lastfm=NEGATIVES,
            movielens=FILM_NEGATIVES,
        ),
    ] = None,
    parts: Annotated[
        int | None,
        _recorded("Number of people that each user is in turn", lastfm="3", movielens="1"),
    ] = None,
    cut: Annotated[
        str | None,
        _recorded("Features from before this date, events after it", movielens="2007-01-01"),
    ] = None,
    stars: Annotated[
        float | None, _recorded("Least rating of the positive film", movielens="4")
    ] = None,
    popular: Annotated[
        int | None,
        _recorded("Least number of ratings, before the cut, of an offered film", movielens="5"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version with 2 seeds; takes a few minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for runs and reports.", metavar="DIR")] = Path(
        "dyclu-results"
    ),
) -> None:
    """Repeat the paper's experiments, or run others, and compare the results.

    table1 is the paper's nine simulated settings, figure2 its three environments, lastfm its
    experiment with real people; all runs these three. movielens is like lastfm with films, and
    wild is 30 simulated worlds with clicks, drift, late rewards and the like; the paper has
    neither. At full size they take hours. Every finished run is stored in OUT/runs: the same
    command continues where it was stopped. Each experiment has its own folder in OUT for results
    (CSV) and report (Markdown, HTML, PNG).
    """
    from dyclu.sim.studies.options import command_line, parse_numbers, parse_policies, parse_seeds
    from dyclu.sim.studies.paper import paper_studies

    studies = paper_studies(
        what,
        rows=None if rows is None else parse_numbers(rows, "rows"),
        policies=None if policies is None else parse_policies(policies),
        seeds=parse_seeds(seeds, quick=quick),
        quick=quick,
        data=data,
        reading=_given(least=least, scaling=scaling, cut=cut, stars=stars, popular=popular),
        drawing=_given(
            order=order,
            # With a hyphen, the options need no quotes in a shell.
            serving=None if serving is None else serving.replace("-", " "),
            negatives=None if negatives is None else negatives.replace("-", " "),
            parts=parts,
        ),
    )
    options: dict[str, object] = {"rows": rows, "seeds": seeds, "policies": policies}
    options |= {"quick": quick, "least": least, "scaling": scaling, "order": order}
    options |= {"serving": serving, "negatives": negatives, "parts": parts, "cut": cut}
    options |= {"stars": stars, "popular": popular, "data": data and "DIR"}
    command = command_line(f"reproduce {what}", options)
    _run_studies({out / study.name: study for study in studies}, out, command, jobs, dask)


@app.command()
@errors_on_stderr()
def simulate(
    context: typer.Context,
    world: Annotated[
        str | None,
        typer.Option(help="A world of dyclu reproduce wild, instead of the options below."),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option("--set", help="With --world: other options of it.", metavar="KEY=VALUE"),
    ] = None,
    users: Annotated[int, typer.Option(help="Number of users.")] = 100,
    parameters: Annotated[
        int, typer.Option(help="Number of tastes that users share; 0 gives every period its own.")
    ] = 10,
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 25,
    arms: Annotated[int, typer.Option(help="Number of arms.")] = 1000,
    offered: Annotated[int, typer.Option(help="Number of arms that a round offers.")] = 10,
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
    shards: Annotated[
        int | None,
        typer.Option(help="Divide the users among so many policies that share what they learn."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --shards: growth of a model that is published.", metavar="ALPHA"),
    ] = None,
    delay: Annotated[
        int, typer.Option(help="With --shards: mean rounds that a message takes.", metavar="ROUNDS")
    ] = 0,
    lost: Annotated[
        float, typer.Option(help="With --shards: share of messages that never arrive.")
    ] = 0.0,
    twice: Annotated[
        float, typer.Option(help="With --shards: share of messages that arrive twice.")
    ] = 0.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --shards: print one JSON document instead.")
    ] = False,
) -> None:
    """Compare policies in a population that you describe by options.

    The defaults are row 1 of the paper's Table 1, which takes minutes per run. Runs are stored and
    reported as by dyclu reproduce; the same command continues where it was stopped.

    With --world, policies play in a world that is not the paper's, and are not told the noise:
    dyclu simulate --world clicks --set users=20,rounds=200

    With --shards, atlas or shared-linucb play three times: in one process, with the users divided
    among isolated shards, and among shards that share what they learn. Nothing is stored.
    """
    if shards is not None and world is not None:
        raise OptionError("--shards is not for --world; describe the population by its options")
    if shards is None and (threshold is not None or delay or lost or twice or as_json):
        raise OptionError("--threshold, --delay, --lost, --twice and --json are for --shards")
    if world is not None:
        _refuse_population(context)
        _simulate_world(world, changed or [], seeds, policies, jobs, dask, out)
        return
    if changed:
        raise OptionError("--set is for --world; name a world, or leave it out")
    from dyclu.sim import Population
    from dyclu.sim.runs.contestants import CONTESTANTS
    from dyclu.sim.runs.jobs import Job
    from dyclu.sim.studies.options import command_line, parse_policies, parse_seeds
    from dyclu.sim.studies.study import Study

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
    chosen = parse_seeds(seeds, quick=False)
    # Draws one world, so that impossible options are refused before the first run.
    setting.world(chosen[0])
    if shards is not None:
        names = ("atlas",) if policies is None else parse_policies(policies)
        network = _given(threshold=threshold) | {"delay": delay, "lost": lost, "twice": twice}
        _simulate_shards(setting, names, chosen, shards, network, as_json)
        return
    study = Study(
        name="simulation",
        title="A simulated population",
        settings={Job(setting, "uniform").name: setting},
        policies=CONTESTANTS if policies is None else parse_policies(policies),
        seeds=chosen,
    )
    options = asdict(setting) | {"parameters": parameters, "seeds": seeds, "policies": policies}
    _run_studies({out: study}, out, command_line("simulate", options), jobs, dask)


def _simulate_shards(
    setting: Population,
    policies: Sequence[str],
    seeds: Sequence[int],
    shards: int,
    network: Mapping[str, Any],
    as_json: bool,
) -> None:
    from dyclu.sim.reports.terminal import bar, print_table, progress_bars
    from dyclu.sim.runs.shards import Network
    from dyclu.sim.studies.shards import compare_shards, numbers_of, table_of

    sent, done = Network(**network), iter(range(1, 10**9))
    with progress_bars() as progress:
        step = bar(progress, "runs", 3 * len(policies) * len(seeds))
        found = compare_shards(
            setting, policies, seeds, shards=shards, network=sent, step=lambda: step(next(done))
        )
    if as_json:
        _print_json({"setting": asdict(setting), "network": asdict(sent), **numbers_of(found)})
    else:
        print_table(table_of(found))


def _refuse_population(context: typer.Context) -> None:
    """Refuse the options of a population that were given beside --world."""
    from dyclu.sim import Population

    for option in fields(Population):
        source = context.get_parameter_source(option.name)
        if source is not None and source.name == "COMMANDLINE":
            raise OptionError(
                f"--{option.name} is not for --world; write --set {option.name}=VALUE instead"
            )


def _simulate_world(
    world: str,
    changed: list[str],
    seeds: str | None,
    policies: str | None,
    jobs: int | None,
    dask: str | None,
    out: Path,
) -> None:
    from dyclu.sim.runs.wild import CONTESTANTS
    from dyclu.sim.studies.options import (
        command_line,
        parse_policies,
        parse_seeds,
        parse_settings,
    )
    from dyclu.sim.studies.wild import WildStudy
    from dyclu.sim.worlds.named import named

    setting = named(world).with_options(parse_settings(changed))
    study = WildStudy(
        name="simulation",
        title=f"A simulated world: {world}",
        settings={" ".join([world, *changed]): setting},
        policies=CONTESTANTS if policies is None else parse_policies(policies),
        seeds=parse_seeds(seeds, quick=False),
    )
    options = {"world": world, "set": ",".join(changed) or None}
    options |= {"seeds": seeds, "policies": policies}
    _run_studies({out: study}, out, command_line("simulate", options), jobs, dask)


commands.mount(app, errors_on_stderr)


@app.command()
@errors_on_stderr()
def plan(
    dim: Annotated[int, typer.Option(help="Number of features of an arm.")] = 25,
    noise: Annotated[float, typer.Option(help="Standard deviation of the rewards.")] = 0.09,
    gap: Annotated[
        float, typer.Option(help="Distance of two tastes that should be distinguished.")
    ] = 0.9,
    norm: Annotated[float, typer.Option(help="Length of an arm's features.")] = 1.0,
    change_level: Annotated[
        float, typer.Option(help="Probability of a surprise without a change.")
    ] = 0.01,
    neighbour_level: Annotated[
        float, typer.Option(help="Probability of leaving out a true neighbour.")
    ] = 0.01,
    window: Annotated[int, typer.Option(help="Number of latest rewards that the alarm uses.")] = 20,
    window_delta: Annotated[
        float, typer.Option(help="Probability of an alarm without a change.")
    ] = 0.1,
    out: Annotated[Path, typer.Option(help="Folder for the picture.", metavar="DIR")] = Path(
        "dyclu-plan"
    ),
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Write no file.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Compute what to expect of DyClu before anything is run.

    From the noise and the distance of two tastes: how soon a change is detected, how long the
    window should be, and how many observations distinguish two users. Saves a picture (plan.png),
    which needs matplotlib: pip install 'dyclu[plots]'.
    """
    from dyclu.core.planning import Plan
    from dyclu.sim.reports.plan import plan_numbers, plan_tables, write_plan_figure
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
    _silence_matplotlib()
    files = [] if no_picture else write_plan_figure(planned, out / "plan.png", warn=_print_error)
    if as_json:
        _print_json({"version": __version__, **numbers, "files": [str(file) for file in files]})
        return
    for table in plan_tables(numbers):
        print_table(table)
    _print_files(files)


@app.command()
@errors_on_stderr()
def evaluate(
    log: Annotated[Path, typer.Argument(help="Log of decisions: a .csv or .parquet file.")],
    saved: Annotated[
        list[Path] | None, typer.Argument(help="Saved policies, evaluated as they are.")
    ] = None,
    user: Annotated[str, typer.Option(help="Column of the user.")] = "user",
    reward: Annotated[str, typer.Option(help="Column of the reward.")] = "reward",
    arm: Annotated[str, typer.Option(help="Column of what was shown, also in ITEMS.")] = "arm",
    offered: Annotated[str, typer.Option(help="Column that lists what was offered.")] = "offered",
    items: Annotated[
        Path | None, typer.Option(help="File with one row per item.", metavar="ITEMS")
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(help="Column of propensities.", show_default="they are estimated"),
    ] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time.")] = None,
    decision: Annotated[
        str | None,
        typer.Option(
            help="Column of the decision's id; an id that occurs twice is refused.",
            show_default="rows are not checked for repetition",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Declaration of the features (.toml or .json).",
            show_default="those of the first saved policy",
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Share of random choices that saved policies make.")
    ] = 0.0,
    learning: Annotated[
        str | None,
        typer.Option(
            "--learn", help="Policies to replay: they learn from the log.", metavar="LIST"
        ),
    ] = None,
    splits: Annotated[
        int,
        typer.Option(help="Splits of users that show how much runs of --learn policies differ."),
    ] = 8,
    seed: Annotated[int, typer.Option(help="Seed of resamples and replays.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the report.", metavar="DIR")] = Path(
        "dyclu-evaluation"
    ),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no files.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Estimate what policies would have earned, from a log of decisions.

    Saved policies (and uniform choice) are evaluated without learning; those of --learn learn from
    the rows that they would have produced themselves. Prints estimates, intervals and a verdict,
    and writes a report (Markdown, HTML, PNG), which needs matplotlib.
    """
    from dyclu.data import Log
    from dyclu.evaluate import compare, replay, uniform
    from dyclu.policies import make
    from dyclu.sim.reports.evaluation import evaluation_numbers, value_table, verdict_table
    from dyclu.sim.reports.terminal import print_table
    from dyclu.storage import check_writable

    if not no_report:
        check_writable(out)
    targets = _targets(saved or [], epsilon)
    read = Log.read(
        log, features=_features(features, saved or []), user=user, reward=reward, arm=arm,
        offered=offered, items=items, propensity=propensity, time=time, decision=decision,
    )  # fmt: skip
    names = [] if learning is None else [name.strip() for name in learning.split(",")]
    learners = {name: partial(make, name, read.dim) for name in names}
    policies = {name: learner() for name, learner in learners.items()}
    found = compare(read, {**targets, "uniform": uniform}, seed=seed)
    replays = {
        name: replay(read, policies[name], fresh=learner, splits=splits, seed=seed)
        for name, learner in learners.items()
    }
    files = [] if no_report else _write_evaluation(found, replays, out, log)
    if as_json:
        numbers = evaluation_numbers(found, replays)
        _print_json({"version": __version__, **numbers, "files": [str(file) for file in files]})
        return
    print_table(value_table(found))
    print_table(verdict_table(found))
    for name, one in replays.items():
        typer.echo(f"{name}: {one.verdict}")
    _print_files(files)


def _targets(saved: Sequence[Path], epsilon: float) -> dict[str, Target]:
    """Return saved policies by the names of their files, without the ending."""
    from dyclu.evaluate import frozen
    from dyclu.policies import load

    targets: dict[str, Target] = {}
    for path in saved:
        if path.stem in (*targets, "uniform"):
            raise OptionError(
                f"{path} would be called {path.stem!r}, which another policy of the comparison is "
                "called; expected files with different names, other than 'uniform': rename it"
            )
        targets[path.stem] = frozen(load(path), epsilon=epsilon)
    return targets


def _features(file: Path | None, saved: Sequence[Path]) -> Features:
    """Return the features of a declaration, or those of the first saved policy.

    Every saved policy must have learnt with them.
    """
    from dyclu.data import Features

    if file is None and not saved:
        raise OptionError("neither --features nor a saved policy was given; give one of them")
    used = Features.load(saved[0]) if file is None else _declared(file)
    if saved and not used.fitted:
        raise OptionError(
            f"{file} leaves columns to be fitted on the log, expected the numbers with which "
            f"{saved[0]} learnt; omit --features, so that those saved with the policy are used, or "
            "declare mean and scale of numbers and values of categories"
        )
    for path in saved:
        _check_features(path, used, file or saved[0])
    return used


def _check_features(path: Path, used: Features, source: Path) -> None:
    """Refuse a saved policy that learnt with other features; one without features may pass."""
    from dyclu.data import Features
    from dyclu.errors import ForeignFile

    try:
        own = Features.load(path)
    except ForeignFile:
        return
    changed = own.differences(used) or used.differences(own)
    if changed:
        raise OptionError(
            f"{path} learnt with other features than those of {source}: {'; '.join(changed)}; "
            "expected the same features for all policies: evaluate it in a run of its own, without "
            "--features"
        )


def _declared(file: Path) -> Features:
    """Return the features of a declaration."""
    import tomllib

    from dyclu.data import Features

    try:
        text = file.read_text(encoding="utf-8")
        return Features.of(tomllib.loads(text) if file.suffix == ".toml" else json.loads(text))
    except OSError as error:
        raise FileError(f"cannot read {file} ({error.strerror}); check the path") from None
    except DycluError:
        raise
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{file} cannot be read as TOML or JSON ({error})") from None


def _write_evaluation(
    found: Comparison, replays: Mapping[str, Replayed], out: Path, log: Path
) -> list[Path]:
    """Write the report; without matplotlib, say so and write nothing."""
    from dyclu.errors import MissingExtra
    from dyclu.sim.reports.evaluation import evaluation_document
    from dyclu.sim.reports.page import write_report

    _silence_matplotlib()
    facts = {"log": log.name, "version": f"dyclu {__version__}"}
    try:
        return write_report(evaluation_document(found, facts, replays), out)
    except MissingExtra as missing:
        _print_error(str(missing))
        return []


class _WarningsOnStderr(logging.Handler):
    """Prints the warnings of the library on stderr, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_error(record.getMessage())


@contextmanager
def _warnings_shown() -> Iterator[None]:
    logger, handler = logging.getLogger("dyclu"), _WarningsOnStderr(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _run_studies(
    studies: Mapping[Path, AnyStudy],
    out: Path,
    command: str,
    jobs: int | None,
    dask: str | None,
) -> None:
    """Run studies, given by the folder of their report; print first table, warnings and files."""
    from dyclu.sim.reports.terminal import print_lines, print_table
    from dyclu.sim.studies.running import check_workers, run_study
    from dyclu.storage import check_writable

    check_workers(jobs)
    check_writable(out)
    _silence_matplotlib()
    for folder, study in studies.items():
        with _warnings_shown():
            document, files = run_study(
                study, folder, out, command=command, warn=_print_error, workers=jobs, dask=dask
            )
        typer.echo(document.title)
        print_table(document.table)
        print_lines(document.policy_warnings)
        if document.warning:
            typer.echo(document.warning)
        _print_files(files)


def _silence_matplotlib() -> None:
    """Hide matplotlib's messages about its caches."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _given(**options: object) -> dict[str, object]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _print_json(document: Mapping[str, object]) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def _print_files(files: Sequence[Path]) -> None:
    for file in files:
        typer.echo(f"written: {file}")
