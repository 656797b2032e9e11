"""Options that commands with studies share, and the run of studies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dyclu.cli.output import print_error, print_files, silence_matplotlib, warnings_shown

if TYPE_CHECKING:
    from dyclu.sim.studies.running import AnyStudy

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


def given(**options: object) -> dict[str, object]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def run_studies(
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
    silence_matplotlib()
    for folder, study in studies.items():
        with warnings_shown():
            document, files = run_study(
                study, folder, out, command=command, warn=print_error, workers=jobs, dask=dask
            )
        typer.echo(document.title)
        print_table(document.table)
        print_lines(document.policy_warnings)
        if document.warning:
            typer.echo(document.warning)
        print_files(files)
