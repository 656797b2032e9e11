"""The report of the demo: runs of several policies in one world as a table, a figure and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dyclu.plots.drawing import BANDS, INK, LINES, arrange, canvas, draw_band, drawing
from dyclu.sim.reports.document import NOTHING, Document, Picture, Table
from dyclu.sim.reports.page import html
from dyclu.sim.runs.measures import Summary, regret
from dyclu.sim.runs.play import Run
from dyclu.storage import replace_file
from dyclu.validation import Ids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADER = (
    "policy",
    "regret",
    "true alarms",
    "false alarms",
    "missed changes",
    "median delay",
    "precision",
    "recall",
    "time",
)
"""Columns of `summary_table`."""

CAPTION = (
    "Delay in the user's own rounds, from the change to its alarm. "
    "Precision and recall of the neighbourhoods. Time inside the policy."
)

DEMO_NOTE = """\
Above: the regret, which is the reward lost compared with always choosing the best arm; lower is \
better. Below: one user (of those with several changes, the one with as many alarms as changes, or \
nearly so): when their taste changed, which rewards contradicted what was known (surprises), and \
when the policy concluded that they had changed (alarms)."""

ALARMS, SURPRISES, TRUTH = range(3)
"""Rows of the timeline, from the bottom."""


def summary_table(summaries: Mapping[str, Summary]) -> Table:
    """Return a table with one row per policy."""
    rows = tuple((name, *_cells(summary)) for name, summary in summaries.items())
    return Table(header=HEADER, rows=rows, note=CAPTION)


def warning_lines(summaries: Mapping[str, Summary]) -> tuple[str, ...]:
    """Return one line per policy that had warnings at the end."""
    said = ((name, " ".join(summary.warnings)) for name, summary in summaries.items())
    return tuple(f"{name} warns: {sentences}" for name, sentences in said if sentences)


def _cells(summary: Summary) -> tuple[str, ...]:
    return (
        f"{summary.regret:,.1f}",
        str(summary.alarms_true),
        str(summary.alarms_false),
        str(summary.alarms_missed),
        _or_nothing(summary.median_delay, "g"),
        _or_nothing(summary.precision, ".2f"),
        _or_nothing(summary.recall, ".2f"),
        f"{summary.seconds:.1f} s",
    )


def _or_nothing(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def user_to_show(run: Run) -> int:
    """Return the user of the timeline: one with several changes and about as many alarms.

    Users with at least two changes come first; then those whose numbers of alarms and changes
    differ least; then those with most changes; then the lowest number.
    """

    def rank(user: int) -> tuple[bool, int, int]:
        changes, alarms = len(run.world.changes(user)), len(_times(run, user, run.changed))
        return changes < 2, abs(alarms - changes), -changes

    return min(range(run.world.setting.users), key=rank)


def figure(runs: Mapping[str, Run], *, watched: str) -> Figure:
    """Draw the regret of every policy, and the alarms of one of them for one user.

    `runs` are by the name of their policy, all in the same world; `watched` is the name of the one
    whose alarms and surprises are shown, for its `user_to_show`.
    """
    run = runs[watched]
    with drawing():
        drawn = canvas(6.4)
        above, below = drawn.subplots(2, sharex=True, height_ratios=(2.2, 1))
        draw_regret(above, runs)
        _draw_timeline(below, run, user_to_show(run), watched)
        below.set(xlim=(0, run.world.setting.rounds), xlabel="rounds of each user")
        drawn.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        arrange(drawn)
    return drawn


def write_html(
    figure: Figure,
    path: Path,
    *,
    title: str,
    lead: str,
    summaries: Mapping[str, Summary],
    facts: Mapping[str, str],
    tour: tuple[tuple[str, Table | Picture], ...] = (),
) -> None:
    """Write a self-contained page: title, lead, figure, table of the summaries, tour and facts."""
    policies = ", ".join(summaries)
    picture = Picture(
        name="demo",
        figure=figure,
        label=f"Accumulated regret of {policies}; one user's changes and alarms",
        note=DEMO_NOTE,
    )
    parts: tuple[tuple[str, Table | Picture], ...] = (
        ("The race", picture),
        ("In numbers", summary_table(summaries)),
        *tour,
    )
    document = Document(
        title=title,
        lead=lead,
        policy_warnings=warning_lines(summaries),
        parts=parts,
        facts=facts,
    )
    page = html(document)
    replace_file(path, page.encode())


def draw_regret(axes: Axes, runs: Mapping[str, Run]) -> None:
    """Draw the accumulated regret of every policy; users are served in turn."""
    for i, (name, run) in enumerate(runs.items()):
        users, rounds = run.world.truth.shape
        colour, dashes = LINES[i % len(LINES)]
        # Users are served in turn: after every `users` rounds, each user has had one more.
        total = regret(run)[users - 1 :: users]
        axes.plot(np.arange(1, rounds + 1), total, color=colour, linestyle=dashes, label=name)
    axes.set(title=f"Regret of all {users} users together", ylabel="accumulated regret", ylim=0)
    axes.legend(loc="upper left", handlelength=3)


def _draw_timeline(axes: Axes, run: Run, user: int, policy: str) -> None:
    changes = run.world.changes(user)
    _draw_truth(axes, run.world.truth[user], changes)
    for i, change in enumerate(changes):
        axes.axvline(change, color=INK, linewidth=1, label=_once("true change", i))
    alarms, surprises = (_times(run, user, what) for what in (run.changed, run.surprised))
    axes.plot(alarms, np.full(len(alarms), ALARMS), "v", color="#d55e00", ms=8, label="alarm")
    axes.plot(
        surprises, np.full(len(surprises), SURPRISES), "|", color="#0080c4", ms=9, label="surprise"
    )
    axes.set(
        title=f"What {policy} noticed of user {user}",
        ylim=(ALARMS - 0.6, TRUTH + 0.5),
        yticks=(ALARMS, SURPRISES, TRUTH),
        yticklabels=("alarms", "surprises", "true taste"),
    )
    axes.tick_params(axis="y", length=0)


def _draw_truth(axes: Axes, truth: Ids, changes: Ids) -> None:
    starts, ends = (0, *changes), (*changes, len(truth))
    colours: dict[int, str] = {}
    for start, end in zip(starts, ends, strict=True):
        parameter = int(truth[start])
        colour = colours.setdefault(parameter, BANDS[len(colours) % len(BANDS)])
        draw_band(axes, TRUTH, (start, end), colour, f"taste {parameter}", within=len(truth))


def _once(label: str, i: int) -> str:
    """Return the label for the first item; `"_"` hides the others from the legend."""
    return "_" if i else label


def _times(run: Run, user: int, happened: NDArray[np.bool_]) -> Ids:
    """Return the rounds of a user, counted per user, at which `happened` is true."""
    return np.flatnonzero(happened[user :: run.world.setting.users])
