"""Tables, lines of text and progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dyclu.sim.reports.document import Table, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table as Grid

UNLIMITED = 10_000
"""A width larger than that of any table."""

A_DAY = 86_400.0
"""Seconds over which the speed of a sweep is averaged: a single run may last minutes."""


def progress_bars(*, quiet: bool = False) -> Progress:
    """Return progress bars on stderr; hidden if `quiet` or if stderr is no terminal."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left:"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=A_DAY,
        disable=quiet or not console.is_terminal,
    )


def bar(progress: Progress, name: str, total: int) -> Callable[[int], None]:
    """Add a bar, and return the function that sets how much is done."""
    task = progress.add_task(name, total=total)
    return lambda done: progress.update(task, completed=done)


def print_table(table: Table) -> None:
    """Print a table in the first form that fits: as it is, transposed, or one cell per line."""
    console = _console()
    lines = [table.header, *table.rows]
    words = [i for i in range(len(table.header)) if table.is_words(i)]
    forms = (
        _grid(lines, words),
        _grid([[name.replace(" ", "\n") for name in table.header], *table.rows], words),
        _grid(list(zip(*lines, strict=True))),
        _grid(_cell_by_cell(table)),
    )
    unlimited = console.options.update(width=UNLIMITED)
    widths = [console.measure(form, options=unlimited).maximum for form in forms]
    fitting = [form for form, width in zip(forms, widths, strict=True) if width <= console.width]
    console.print((fitting or forms)[0 if fitting else -1])
    if table.note:
        console.print(table.note)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, broken between words where they are too long."""
    console = _console()
    for line in lines:
        console.print(line)


def _console() -> Console:
    from rich.console import Console

    # Without markup: the name of a policy may contain brackets or colons.
    return Console(highlight=False, markup=False, emoji=False)


def _cell_by_cell(table: Table) -> list[tuple[str, str, str]]:
    named = [
        (row[0], name, one_line(cell))
        for row in table.rows
        for name, cell in zip(table.header[1:], row[1:], strict=True)
    ]
    return [(table.header[0], "", ""), *named]


def _grid(lines: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> Grid:
    """Return a table whose first line is the header; columns of words are aligned left."""
    from rich import box
    from rich.table import Table as Grid

    table = Grid(box=box.SIMPLE, padding=(0, 1, 0, 0))
    header, *body = lines
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i in words else "right", overflow="fold")
    for line in body:
        table.add_row(*line)
    return table
