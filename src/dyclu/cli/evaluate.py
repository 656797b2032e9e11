"""``dyclu evaluate``: what policies would have earned, from a log of decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dyclu import __version__
from dyclu.cli.output import print_error, print_files, print_json, silence_matplotlib
from dyclu.errors import DycluError, FileError, OptionError

if TYPE_CHECKING:
    from dyclu.data import Features, Log
    from dyclu.evaluate import Comparison, Replayed
    from dyclu.evaluate.targets import Target


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
        Path | None,
        typer.Option(
            help="File with one row per item.",
            metavar="ITEMS",
            show_default="LOG has one row per offered arm",
        ),
    ] = None,
    shown: Annotated[
        str, typer.Option(help="Without --items: column that is 1 for the arm that was shown.")
    ] = "shown",
    propensity: Annotated[
        str | None,
        typer.Option(
            help="Column of propensities.",
            show_default="they are estimated; without --items: propensity",
        ),
    ] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time.")] = None,
    decision: Annotated[
        str | None,
        typer.Option(
            help="Column of the decision's id; an id that occurs twice is refused.",
            show_default="rows are not checked for repetition; without --items: decision",
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
    and writes a report (Markdown, HTML, PNG), which needs matplotlib. LOG has one row per decision,
    and ITEMS the features of what was offered; or, without --items, LOG has one row per offered arm
    with its vector, as `dyclu export --arms` writes it.
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
    if items is None:
        read = Log.read_arms(
            log, user=user, reward=reward, shown=shown, time=time,
            propensity=propensity or "propensity", decision=decision or "decision",
        )  # fmt: skip
        _check_vectors(log, read, features, saved or [])
    else:
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
        print_json({"version": __version__, **numbers, "files": [str(file) for file in files]})
        return
    print_table(value_table(found))
    print_table(verdict_table(found))
    for name, one in replays.items():
        typer.echo(f"{name}: {one.verdict}")
    print_files(files)


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


def _check_vectors(log: Path, read: Log, file: Path | None, saved: Sequence[Path]) -> None:
    """Refuse policies that learnt with other features than those that the log's columns name."""
    from dyclu.data import Features
    from dyclu.data.arms import headers, unnamed
    from dyclu.errors import ForeignFile

    if file is not None:
        raise OptionError(
            f"{log} holds vectors, which need no --features; leave it out, or pass --items with "
            "the columns that the features are made of"
        )
    found = list(read.names or ())
    for path in [] if found == unnamed(read.dim) else saved:
        with suppress(ForeignFile):
            expected = headers(Features.load(path).names)
            if expected != found:
                raise OptionError(
                    f"{path} learnt with the features {_listed(expected)}; those of {log} are "
                    f"{_listed(found)}; evaluate it on a log of the service that it comes from"
                )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


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

    silence_matplotlib()
    facts = {"log": log.name, "version": f"dyclu {__version__}"}
    try:
        return write_report(evaluation_document(found, facts, replays), out)
    except MissingExtra as missing:
        print_error(str(missing))
        return []
