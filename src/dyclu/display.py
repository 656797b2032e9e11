"""What notebooks show of policies, decisions and comparisons: small HTML tables, and pictures."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any


def html_table(title: str, rows: Iterable[Sequence[object]], *, note: str = "") -> str:
    """Return a table; texts are escaped, because ids of users come from anywhere.

    >>> html_table("a", [("user", "<b>")])
    '<table><caption>a</caption><tr><th>user</th><td>&lt;b&gt;</td></tr></table>'
    """
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption>{body}</table>{below}"


def _cells(row: Sequence[object]) -> str:
    head, *rest = (escape(_text(value)) for value in row)
    return f"<th>{head}</th>" + "".join(f"<td>{value}</td>" for value in rest)


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plotted(policy: object, user: Hashable, names: Sequence[str] | None) -> Any:
    """Return the picture of a policy, drawn by `dyclu.plots`.

    That room is above this one and needs matplotlib, so it is imported by its name when a picture
    is wanted, and never otherwise.
    """
    return import_module("dyclu.plots").plot(policy, user, names=names)
