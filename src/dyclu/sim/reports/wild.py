"""Tables and figure of wild worlds: regret divided by the ceilings', and by a plain policy's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

import numpy as np

from dyclu.plots.drawing import INK, LINES, arrange, canvas, drawing
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.reports.spread import regrets
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.wild import CEILINGS, PLAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Ratios = dict[str, dict[str, float]]
"""Ratios of regrets, by world and policy."""

BEST_PLAIN = "best plain"
"""Name of the plain policy that is the best one in a world."""

MARKERS = "ovDs^PXp"


def ceiling_ratios(results: Sequence[Result]) -> Ratios:
    """Return mean regrets divided by the sum of the two ceilings' mean regrets.

    A learner must find out both the tastes and who has which; the oracle is told one, `Told` the
    other. Worlds in which a ceiling did not play, or the sum is 0, are left out.
    """
    found: Ratios = {}
    for world, row in _means(results).items():
        total = sum(row.get(name, 0.0) for name in CEILINGS)
        if total > 0 and all(name in row for name in CEILINGS):
            others = _with_best_plain({k: v for k, v in row.items() if k not in CEILINGS})
            found[world] = {policy: regret / total for policy, regret in others.items()}
    return found


def plain_ratios(results: Sequence[Result]) -> Ratios:
    """Return mean regrets of all but plain policies, divided by that of the best plain policy."""
    found: Ratios = {}
    for world, row in _means(results).items():
        best = _with_best_plain(row).get(BEST_PLAIN)
        if best:
            others = {k: v for k, v in row.items() if k not in (*PLAIN, *CEILINGS)}
            found[world] = {policy: regret / best for policy, regret in others.items()}
    return {world: row for world, row in found.items() if row}


def ratio_table(ratios: Ratios, note: str) -> Table:
    """Return ratios by world, and their geometric means over all worlds."""
    policies = _policies(ratios)
    rows = [(world, *(_cell(row.get(name)) for name in policies)) for world, row in ratios.items()]
    means = (_cell(_geometric_mean(ratios, name)) for name in policies)
    return Table(
        header=("world", *policies),
        rows=(*rows, ("geometric mean", *means)),
        note=note,
    )


def ratio_figure(ratios: Ratios, label: str) -> Figure:
    """Draw ratios on a logarithmic axis, one line of marks per world; 1 is a vertical line."""
    shown = [name for name in _policies(ratios) if name not in PLAIN]
    with drawing():
        from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

        drawn = canvas(1.4 + 0.25 * len(ratios))
        axes = drawn.subplots()
        axes.axvline(1, color=INK, linewidth=1)
        for i, name in enumerate(shown):
            values = [row.get(name, np.nan) for row in ratios.values()]
            colour, mark = LINES[i % len(LINES)][0], MARKERS[i % len(MARKERS)]
            axes.plot(values, range(len(values)), mark, color=colour, ms=5, label=name)
        axes.set(xscale="log", xlabel=label, yticks=range(len(ratios)), yticklabels=list(ratios))
        axes.set_ylim(len(ratios) - 0.5, -0.5)
        axes.grid(visible=True, axis="both")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        handles, labels = axes.get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=4)
        arrange(drawn)
    return drawn


def _means(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    return {
        world: {policy: spread.mean for policy, spread in row.items()}
        for world, row in regrets(results).items()
    }


def _with_best_plain(row: Mapping[str, float]) -> dict[str, float]:
    """Return the regrets of one world, with that of the best plain policy if one played."""
    plain = [row[name] for name in PLAIN if name in row]
    return {**row, BEST_PLAIN: min(plain)} if plain else dict(row)


def _policies(ratios: Ratios) -> list[str]:
    return list(dict.fromkeys(name for row in ratios.values() for name in row))


def _geometric_mean(ratios: Ratios, policy: str) -> float | None:
    known = [row[policy] for row in ratios.values() if row.get(policy, 0.0) > 0]
    return geometric_mean(known) if known else None


def _cell(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"
