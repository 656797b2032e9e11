"""The command line: ``dyclu demo | reproduce | simulate | plan | evaluate``, and the service's.

One file per command has its options; it checks them, calls another room and prints. Each command
imports what it needs when it runs, so that ``dyclu --help`` is fast. No statistics are computed
here.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dyclu import __version__
from dyclu.cli import demo, evaluate, plan, reproduce, simulate
from dyclu.cli.output import errors_on_stderr
from dyclu.service import commands

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()


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


app.command()(errors_on_stderr()(demo.demo))
app.command()(errors_on_stderr()(reproduce.reproduce))
app.command()(errors_on_stderr()(simulate.simulate))
commands.mount(app, errors_on_stderr)
app.command()(errors_on_stderr()(plan.plan))
app.command()(errors_on_stderr()(evaluate.evaluate))
