"""``dyclu demo``: four policies, with users who change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dyclu.cli.output import print_error, print_files, print_json, silence_matplotlib


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

    silence_matplotlib()
    files = (
        []
        if no_picture
        else shown.write_pages(out, played, summaries, quiet=quiet, warn=print_error)
    )
    if prints_text:
        print_files(files)
    if as_json:
        print_json({**shown.numbers(summaries), "files": [str(file) for file in files]})
