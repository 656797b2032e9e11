"""Figures of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from dyclu.plots.drawing import LINES, arrange, canvas, drawing
from dyclu.sim.reports.spread import Spread, by_setting, grouped, policies_of, regrets
from dyclu.sim.runs.results import Result, checkpoints
from dyclu.sim.runs.stream.contestants import CONSTANT
from dyclu.sim.runs.stream.job import relative_reward_curve
from dyclu.validation import FloatArray, Ids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIXED_LINES = ("uniform", "linucb", "dyclu", "oracle", "adts", "dlinucb", "club", "shared-linucb")
"""Policies that have the same line in every picture, in the order of `LINES`."""

VARIANT = (0, (4, 1.2, 1, 1.2))
"""Dashes of a policy with the constant width, in the colour of the policy it is a variant of."""

MARKERS = "os^DvPXp"
"""Markers of the policies in `comparison_figure`."""

ENVIRONMENTS = {
    "env1": "Environment 1: users share parameters and never change",
    "env2": "Environment 2: users change and share nothing",
    "env3": "Environment 3: users share parameters and change",
}
"""Titles of the environments of Figure 2."""


def regret_figure(results: Sequence[Result]) -> Figure:
    """Draw accumulated regret over time, one panel per setting; bands are one standard error."""
    panels = by_setting(results)
    with _panels(len(panels)) as (drawn, all_axes):
        for axes, (setting, curves) in zip(all_axes, panels.items(), strict=True):
            for policy, runs in curves.items():
                values = np.array([run.curve for run in runs])
                _draw_curve(axes, checkpoints(runs[0].rounds), values, policy, list(curves))
            axes.set(title=ENVIRONMENTS.get(setting, setting), ylabel="accumulated regret", ylim=0)
            axes.set(xlim=0, xlabel="rounds of each user")
    return drawn


def reward_figure(results: Sequence[Result], title: str) -> Figure:
    """Draw the reward on a stream divided by random choice's; bands are one standard error."""
    groups = grouped(results)
    policies = [policy for _, policy in groups]
    with _panels(1) as (drawn, (axes,)):
        for (_, policy), runs in groups.items():
            values = np.array([relative_reward_curve(run) for run in runs])
            # Streams differ in length, so the x axis is the share of the stream.
            shares = 100 * np.arange(1, values.shape[1] + 1) / values.shape[1]
            _draw_curve(axes, shares, values, policy, policies)
        axes.set(title=title, ylabel="multiple of random choice's", ylim=0)
        axes.set(xlim=(0, 100), xlabel="events served, % of the stream")
    return drawn


def comparison_figure(
    results: Sequence[Result], published: Mapping[str, Mapping[str, float]]
) -> Figure:
    """Draw our regret and the paper's, one row per setting."""
    spreads = regrets(results)
    policies, settings = policies_of(spreads), list(spreads)
    with drawing():
        drawn = canvas(1.6 + 0.55 * len(settings))
        axes = drawn.subplots()
        for i, policy in enumerate(policies):
            # Each policy has its own height in the row: some have nearly equal regret.
            places = np.arange(float(len(settings))) + 0.5 * ((i + 0.5) / len(policies) - 0.5)
            ours = [spreads[setting][policy] for setting in settings]
            theirs = [published.get(setting, {}).get(policy, math.nan) for setting in settings]
            _draw_marks(axes, places, ours, theirs, policy, policies)
        axes.set(xscale="log", xlabel="accumulated regret", title="Regret, here and in the paper")
        axes.set(yticks=range(len(settings)), yticklabels=settings)
        axes.set_ylim(len(settings) - 0.5, -0.5)
        axes.grid(axis="x")
        _legend_below(drawn, axes)
        arrange(drawn)
    return drawn


@contextmanager
def _panels(count: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure and its panels, one below the other; then add one legend for all panels."""
    with drawing():
        drawn = canvas(1 + 2.7 * count)
        panels = list(drawn.subplots(count, squeeze=False)[:, 0])
        yield drawn, panels
        _legend_below(drawn, panels[0])
        arrange(drawn)


def _legend_below(drawn: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Four short names fit in one line, or three longer ones.
    columns = 4 if max(map(len, labels), default=0) <= 8 else 3
    drawn.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.5)


def _lines(policies: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return colour and dashes of policies: fixed for `FIXED_LINES`, unused lines for others.

    >>> _lines(["mine:Policy", "linucb"])["linucb"] == LINES[1]
    True
    """
    fixed: dict[str, tuple[str, Any]] = dict(zip(FIXED_LINES, LINES, strict=True))
    fixed |= {name + CONSTANT: (colour, VARIANT) for name, (colour, _) in fixed.items()}
    used = {fixed[policy][0] for policy in policies if policy in fixed}
    left = cycle([line for line in LINES if line[0] not in used] or LINES)
    return {policy: fixed[policy] if policy in fixed else next(left) for policy in policies}


def _draw_curve(
    axes: Axes, x: Ids | FloatArray, curves: FloatArray, policy: str, policies: Sequence[str]
) -> None:
    """Draw the mean of curves (one per seed) and a band of one standard error."""
    colour, dashes = _lines(policies)[policy]
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, linestyle=dashes, label=policy)


def _draw_marks(
    axes: Axes,
    places: FloatArray,
    ours: Sequence[Spread],
    theirs: Sequence[float],
    policy: str,
    policies: Sequence[str],
) -> None:
    colour, _ = _lines(policies)[policy]
    mark = MARKERS[policies.index(policy) % len(MARKERS)]
    means, errors = [spread.mean for spread in ours], [spread.error or 0 for spread in ours]
    axes.errorbar(
        means, places, xerr=errors, fmt=mark, color=colour, ms=5, elinewidth=1, label=policy
    )
    axes.plot(theirs, places, mark, color=colour, ms=10, fillstyle="none")
