"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table, followed by an empty line.

    >>> print(table(["name", "kinds"], [["x", "a|b"]]), end="")
    | name | kinds |
    |---|---|
    | x | a\|b |
    <BLANKLINE>
    """
    lines = [_row(header), "|" + "---|" * len(header), *map(_row, rows)]
    return "\n".join(lines) + "\n\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", r"\|") for cell in cells) + " |"


def one_line(text: str) -> str:
    r"""Return a text without line breaks and repeated blanks.

    >>> one_line("several\n    lines")
    'several lines'
    """
    return re.sub(r"\s+", " ", text).strip()


def paragraphs(text: str) -> str:
    r"""Return a docstring as paragraphs of Markdown; reStructuredText's literals become Markdown's.

    >>> paragraphs("One ``x``,\n    indented.\n\n    Two.")
    'One `x`, indented.\n\nTwo.\n\n'
    """
    parts = re.split(r"\n\s*\n", text.strip())
    return "".join(f"{one_line(part).replace('``', '`')}\n\n" for part in parts)
