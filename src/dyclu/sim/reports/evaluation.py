"""A `Comparison` of policies on a log as tables, a figure, a document and numbers for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dyclu.evaluate import Comparison, Estimate, Evaluation, Interval, Replayed
from dyclu.evaluate.estimators import METHODS
from dyclu.plots.drawing import INK, LINES, arrange, canvas, drawing
from dyclu.sim.reports.document import NOTHING, Document, Picture, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW_HEIGHT, FRAME_HEIGHT = 0.45, 1.1
"""Inches per policy, and of title and axis, in the figure."""


def value_table(found: Comparison) -> Table:
    """Return the estimates of every policy by every method, with bootstrap intervals."""
    rows = []
    for name, one in found.evaluations.items():
        cells = [_text(one.estimates[m]) if m in one.estimates else NOTHING for m in METHODS]
        rows.append((name, *cells, _text(one.gain)))
    note = (
        f"Mean reward per decision, with {found.level:.0%} intervals by the bootstrap over users. "
        f"What was logged has {found.logged}. Propensities are {found.propensities}. The direct "
        "method's interval does not contain the error of its model. Gain: doubly robust estimate "
        "minus what was logged; all gains and differences hold together."
    )
    return Table(header=("policy", *METHODS.values(), "gain"), rows=tuple(rows), note=note)


def overlap_table(found: Comparison) -> Table:
    """Return how much the log says about every policy."""
    rows = tuple(_overlap_row(one) for one in found.evaluations.values())
    note = (
        "The mean weight is 1 if propensities are right and the log shows all that a policy "
        "chooses. Empirical Bernstein: an interval of the doubly robust estimate that holds for "
        "any number of users, if no weight can exceed the largest one."
    )
    header = (
        "policy", "effective rows", "largest weight", "mean weight", "never shown", "rows unused",
        "SWITCH above", "empirical Bernstein",
    )  # fmt: skip
    return Table(header=header, rows=rows, note=note)


def _overlap_row(one: Evaluation) -> tuple[str, ...]:
    overlap = one.overlap
    sure = one.best.bernstein
    return (
        one.name,
        f"{overlap.effective:,.0f}",
        f"{overlap.largest:.3g}",
        _text(overlap.mean_weight),
        f"{overlap.missing:.1%}",
        f"{overlap.unused:.1%}",
        f"{one.threshold:g}" if math.isfinite(one.threshold) else "never",
        NOTHING if sure is None else _ends(sure),
    )


def difference_table(found: Comparison) -> Table:
    """Return the differences of all pairs of policies."""
    rows = tuple((f"{a} − {b}", _text(one)) for (a, b), one in found.differences.items())
    note = (
        "Doubly robust. All intervals, and those of the gains, hold together with probability "
        f"{found.level:.0%}."
    )
    return Table(header=("pair", "difference"), rows=rows, note=note)


def replay_table(replays: Mapping[str, Replayed]) -> Table:
    """Return what learning policies would have earned."""
    rows = tuple(
        (
            name,
            _text(one.estimate),
            _text(one.weighted),
            f"{one.accepted:,}",
            f"{one.acceptance:.3g}",
            one.verdict,
        )
        for name, one in replays.items()
    )
    note = (
        "Each policy learns the rows that it would have produced itself: it is taken to serve a "
        "share of the visits, the acceptance constant."
    )
    header = ("policy", "accepted rewards", "weighted", "rounds", "share of visits", "verdict")
    return Table(header=header, rows=rows, note=note, words=("verdict",))


def verdict_table(found: Comparison) -> Table:
    """Return the verdicts in words."""
    rows = tuple((name, one.verdict) for name, one in found.evaluations.items())
    return Table(header=("policy", "verdict"), rows=rows, note=found.verdict, words=("verdict",))


def evaluation_document(
    found: Comparison, facts: Mapping[str, str], replays: Mapping[str, Replayed] | None = None
) -> Document:
    """Return the report of an evaluation."""
    picture = Picture(
        name="evaluation",
        figure=evaluation_figure(found),
        label="Estimated mean reward of each policy with its interval",
        note="Doubly robust estimates. Grey: the log cannot say. Dashed: what was logged.",
    )
    parts: list[tuple[str, Table | Picture]] = [
        ("Verdicts", verdict_table(found)),
        ("What the policies would have earned", picture),
        ("", value_table(found)),
        ("How much the log says", overlap_table(found)),
    ]
    parts += [("Differences", difference_table(found))] if found.differences else []
    parts += [("Policies that learn", replay_table(replays))] if replays else []
    first = next(iter(found.evaluations.values())).overlap
    return Document(
        title="What policies would have earned",
        lead=f"{first.rows:,} logged decisions of {first.users:,} users. {found.verdict}",
        warning=_warning(found),
        parts=tuple(parts),
        facts=facts,
    )


def _warning(found: Comparison) -> str:
    if found.propensities == "logged":
        return ""
    return (
        "Propensities were not logged. They are estimated from the features, which is right only "
        "if the logging system chose by these features and at random."
    )


def evaluation_figure(found: Comparison) -> Figure:
    """Draw the doubly robust estimates with their intervals."""
    with drawing():
        drawn = canvas(FRAME_HEIGHT + ROW_HEIGHT * len(found.evaluations))
        axes = drawn.subplots()
        for row, one in enumerate(found.evaluations.values()):
            _draw_estimate(axes, row, one)
        axes.axvline(found.logged.value, color=INK, linestyle="--", linewidth=1)
        axes.set_yticks(range(len(found.evaluations)), list(found.evaluations))
        axes.invert_yaxis()
        axes.set(xlabel="mean reward per decision", ylim=(len(found.evaluations) - 0.5, -0.5))
        axes.grid(visible=False, axis="y")
        arrange(drawn)
    return drawn


def _draw_estimate(axes: Axes, row: int, one: Evaluation) -> None:
    colour = LINES[0][0] if one.problems else LINES[2][0]
    interval = one.best.interval
    if interval.bounded:
        axes.plot([interval.low, interval.high], [row, row], color=colour)
    axes.plot([one.best.value], [row], color=colour, marker="o")


def evaluation_numbers(
    found: Comparison, replays: Mapping[str, Replayed] | None = None
) -> dict[str, Any]:
    """Return an evaluation as plain values, ready for JSON; None is an end that is not known."""
    return {
        "level": found.level,
        "propensities": found.propensities,
        "logged": _plain(found.logged),
        "policies": {name: _numbers(one) for name, one in found.evaluations.items()},
        "differences": [
            {"first": a, "second": b, **_plain(one)} for (a, b), one in found.differences.items()
        ],
        "replayed": {name: _replayed(one) for name, one in (replays or {}).items()},
        "verdict": found.verdict,
    }


def _numbers(one: Evaluation) -> dict[str, Any]:
    overlap = one.overlap
    return {
        "estimates": {method: _plain(it) for method, it in one.estimates.items()},
        "gain": _plain(one.gain),
        "switch_threshold": one.threshold if math.isfinite(one.threshold) else None,
        "rows": overlap.rows,
        "users": overlap.users,
        "effective_sample_size": overlap.effective,
        "largest_weight": overlap.largest,
        "mean_weight": _plain(overlap.mean_weight),
        "never_shown": overlap.missing,
        "rows_unused": overlap.unused,
        "problems": list(one.problems),
        "verdict": one.verdict,
    }


def _replayed(one: Replayed) -> dict[str, Any]:
    return {
        "estimate": _plain(one.estimate),
        "weighted": _plain(one.weighted),
        "rounds": one.accepted,
        "acceptance": one.acceptance,
        "propensities": one.propensities,
        "splits": one.splits,
        "verdict": one.verdict,
    }


def _plain(one: Estimate) -> dict[str, Any]:
    sure = one.bernstein
    return {
        "value": one.value,
        **_finite(one.interval),
        **({} if sure is None else {"bernstein": _finite(sure)}),
    }


def _finite(interval: Interval) -> dict[str, float | None]:
    ends = {"low": interval.low, "high": interval.high}
    return {name: end if math.isfinite(end) else None for name, end in ends.items()}


def _text(one: Estimate) -> str:
    return f"{one.value:.4g}\n({_ends(one.interval)})"


def _ends(interval: Interval) -> str:
    return " to ".join(
        f"{end:.4g}" if math.isfinite(end) else "?" for end in (interval.low, interval.high)
    )
