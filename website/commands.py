"""The page of the command line, made from the commands' own help."""

from __future__ import annotations

from typing import Any

import typer

from dyclu import cli
from website.markdown import one_line, paragraphs, table

LEAD = """\
# Command line

`dyclu COMMAND --help` prints the same. Errors are one line on stderr and exit status 2.

"""


def page() -> str:
    """Return the page: one section per command, with a table of its options.

    >>> "## dyclu demo" in page()
    True
    """
    group: Any = typer.main.get_command(cli.app)
    context = group.make_context("dyclu", [], resilient_parsing=True)
    commands = (group.get_command(context, name) for name in group.list_commands(context))
    return LEAD + "".join(_section(command, context) for command in commands)


def _section(command: Any, parent: Any) -> str:
    context = command.make_context(command.name, [], parent=parent, resilient_parsing=True)
    usage = one_line(command.get_usage(context)).removeprefix("Usage: ")
    rows = [
        _option(record) for one in command.get_params(context) if (record := _told(one, context))
    ]
    return (
        f"## dyclu {command.name}\n\n{paragraphs(command.help or '')}"
        f"```text\n{usage}\n```\n\n{table(['option', 'meaning'], rows)}"
    )


def _told(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return names and help of an option or argument, None for `--help`."""
    told: tuple[str, str] | None = parameter.get_help_record(context)
    return None if told is None or told[0].startswith("--help") else told


def _option(record: tuple[str, str]) -> tuple[str, str]:
    names, meaning = record
    return f"`{one_line(names)}`", meaning.replace("<", "&lt;")
