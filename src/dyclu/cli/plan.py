"""``dyclu plan``: what to expect of DyClu, computed before anything is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dyclu import __version__
from dyclu.cli.output import print_error, print_files, print_json, silence_matplotlib


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
    silence_matplotlib()
    files = [] if no_picture else write_plan_figure(planned, out / "plan.png", warn=print_error)
    if as_json:
        print_json({"version": __version__, **numbers, "files": [str(file) for file in files]})
        return
    for table in plan_tables(numbers):
        print_table(table)
    print_files(files)
