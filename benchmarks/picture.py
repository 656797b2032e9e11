"""The growth curves in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.results import Row
from dyclu.plots.drawing import LINES, arrange, canvas, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {
    "segments": "One segment against all, d = 25",
    "features": "One segment against 1,000",
    "rounds lived": "A round of DyClu after so many rounds",
}
"""Titles of the panels, by curve."""

PANEL = 2.2
"""Height of a panel, in inches."""


def curves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows that belong to each curve."""
    named: dict[str, list[Row]] = {}
    for row in rows:
        if row.curve:
            named.setdefault(row.curve, []).append(row)
    return named


def growth(named: dict[str, list[Row]]) -> Figure:
    """Draw one panel per curve: medians, and the range of the repetitions."""
    with drawing():
        figure = canvas(PANEL * len(named))
        panels = figure.subplots(len(named), squeeze=False)[:, 0]
        for axes, (name, rows) in zip(panels, named.items(), strict=True):
            _draw(axes, name, rows)
        arrange(figure)
    return figure


def _draw(axes: Axes, name: str, rows: Sequence[Row]) -> None:
    at = [float(row.at or 0) for row in rows]
    colour, dashes = LINES[2]
    low, high = [min(row.values) for row in rows], [max(row.values) for row in rows]
    axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(at, [row.median for row in rows], color=colour, linestyle=dashes, marker="o")
    axes.set(title=TITLES.get(name, name), xlabel=name, ylabel=rows[0].unit, xscale="log")
    if name == "rounds lived":
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
