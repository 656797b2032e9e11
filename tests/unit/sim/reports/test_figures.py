"""`dyclu.sim.reports.figures`: figures of results whose numbers are known."""

from __future__ import annotations

import numpy as np

from dyclu.plots.drawing import LINES
from dyclu.sim.reports.figures import FIXED_LINES, comparison_figure, regret_figure
from dyclu.sim.runs.results import checkpoints
from tests.unit.sim.samples import PUBLISHED, ROW1, a_result


def test_bands_are_one_standard_error() -> None:
    drawn = regret_figure(ROW1)
    (axes,) = drawn.axes
    assert [line.get_label() for line in axes.lines] == ["linucb", "dyclu"]
    assert np.array_equal(np.asarray(axes.lines[1].get_xdata()), checkpoints(10))
    assert np.allclose(np.asarray(axes.lines[1].get_ydata()), np.linspace(89, 890, 10))
    corners = axes.collections[1].get_paths()[0].vertices
    ends = np.asarray(corners)[np.asarray(corners)[:, 0] == 10, 1]
    assert {round(float(end), 6) for end in ends} == {880.0, 900.0}
    assert axes.get_xlabel()
    assert axes.get_ylabel()


def test_one_seed_has_no_band() -> None:
    (axes,) = regret_figure(ROW1[:1]).axes
    assert len(axes.lines) == 1
    assert not axes.collections


def test_a_policy_has_the_same_line_in_every_figure() -> None:
    both, alone = regret_figure(ROW1).axes[0], regret_figure(ROW1[2:]).axes[0]
    assert both.lines[1].get_color() == alone.lines[0].get_color() == LINES[2][0]
    assert len(FIXED_LINES) == len(LINES)


def test_unknown_policies_get_unused_lines() -> None:
    runs = [a_result("a", name, 0, 1.0) for name in ("x:A", "x:B", "dyclu", "linucb")]
    lines = regret_figure(runs).axes[0].lines
    assert len({line.get_color() for line in lines}) == 4


def test_the_comparison_shows_both_figures() -> None:
    (axes,) = comparison_figure(ROW1, PUBLISHED).axes
    shown = [float(x) for line in axes.lines for x in np.asarray(line.get_xdata())]
    assert {890.0, 853.0, 20_100.0, 19_954.0} <= set(shown)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["row1"]
