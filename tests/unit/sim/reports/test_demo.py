"""`dyclu.sim.reports.demo`: table, figure and page of prepared runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dyclu.errors import FileError, MissingExtra
from dyclu.plots.drawing import INK, LINES, write_png
from dyclu.policies import Uniform
from dyclu.sim.reports.demo import (
    HEADER,
    figure,
    summary_table,
    user_to_show,
    warning_lines,
    write_html,
)
from dyclu.sim.runs.measures import Summary, regret, summary
from dyclu.sim.runs.play import Run, play
from dyclu.sim.worlds.population import Population
from dyclu.storage import check_writable

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

SETTING = Population(users=3, parameters=3, dim=4, arms=30, offered=5, rounds=40)

NO_CHANGE = ()
TWO_CHANGES = (10, 25)
THREE_CHANGES = (10, 20, 30)


def a_run(changes: Sequence[Sequence[int]], alarms: Sequence[Sequence[int]]) -> Run:
    """Return a run with changes and alarms of each user at given rounds."""
    world = SETTING.world(seed=0)
    truth = np.zeros_like(world.truth)
    changed = np.zeros(truth.shape, dtype=np.bool_)
    for user in range(SETTING.users):
        truth[user] = np.searchsorted(changes[user], np.arange(SETTING.rounds), side="right") % 3
        changed[user, list(alarms[user])] = True
    run = play(Uniform(SETTING.dim), replace(world, truth=truth))
    by_round = changed.T.ravel()
    return replace(run, changed=by_round, surprised=by_round)


@pytest.fixture(scope="module")
def run() -> Run:
    return a_run([NO_CHANGE, TWO_CHANGES, THREE_CHANGES], [(), (12, 27), (12,)])


@pytest.fixture(scope="module")
def drawn(run: Run) -> Figure:
    return figure({"quiet": run, "watchful": run}, watched="watchful")


def write_page(drawn: Figure, run: Run, path: Path, *, name: str = "watchful") -> str:
    facts = {"command": "dyclu demo --users=3"}
    summaries = {name: summary(run)}
    write_html(drawn, path, title="a page", lead="about it", summaries=summaries, facts=facts)
    return path.read_text(encoding="utf-8")


def bands_of(drawn: Figure) -> list[Rectangle]:
    return [patch for patch in drawn.axes[1].patches if isinstance(patch, Rectangle)]


def test_a_row_of_the_table_is_a_summary_as_text() -> None:
    found = Summary(
        regret=1234.56,
        alarms_true=9,
        alarms_false=1,
        alarms_missed=2,
        median_delay=5.0,
        precision=0.946,
        recall=None,
        parameter_error=0.1,
        seconds=1.26,
        rounds_per_second=100.0,
    )
    assert summary_table({"DyClu": replace(found, median_delay=4.5), "other": found}).rows == (
        ("DyClu", "1,234.6", "9", "1", "2", "4.5", "0.95", "-", "1.3 s"),
        ("other", "1,234.6", "9", "1", "2", "5", "0.95", "-", "1.3 s"),
    )
    assert len(HEADER) == 9


@pytest.mark.parametrize(
    ("changes", "alarms", "user"),
    [
        pytest.param(
            [NO_CHANGE, TWO_CHANGES, TWO_CHANGES], [(), (12,), (12, 27)], 2, id="best matched"
        ),
        pytest.param(
            [TWO_CHANGES, THREE_CHANGES, NO_CHANGE], [(12, 27), (12, 22, 32), ()], 1, id="busiest"
        ),
        pytest.param([(), TWO_CHANGES, ()], [(), (), ()], 1, id="changes before a perfect match"),
        pytest.param([(), (20,), ()], [(), (21,), ()], 1, id="no user changes twice"),
        pytest.param([(), (), ()], [(3,), (), ()], 1, id="no user changes"),
    ],
)
def test_the_user_to_show_has_several_changes_and_about_as_many_alarms(
    changes: list[Sequence[int]], alarms: list[Sequence[int]], user: int
) -> None:
    assert user_to_show(a_run(changes, alarms)) == user


def test_regret_is_drawn_after_each_round_of_all_users(drawn: Figure, run: Run) -> None:
    above, _ = drawn.axes
    for line, name in zip(above.lines, ("quiet", "watchful"), strict=True):
        assert line.get_label() == name
        assert np.array_equal(line.get_xdata(), np.arange(1, 41))
        assert np.array_equal(line.get_ydata(), regret(run)[2::3])


def test_policies_differ_in_colour_and_in_dashes() -> None:
    colours, dashes = zip(*LINES, strict=True)
    assert len(set(colours)) == len(set(dashes)) == len(LINES)


def test_the_timeline_shows_truth_and_alarms_of_the_user_to_show(drawn: Figure) -> None:
    _, below = drawn.axes
    assert "watchful" in below.get_title(loc="left")
    assert "user 1" in below.get_title(loc="left")
    *changes, alarms, surprises = (np.unique(line.get_xdata()).tolist() for line in below.lines)
    assert changes == [[10], [25]]
    assert alarms == surprises == [12, 27]
    bands = bands_of(drawn)
    assert [(band.get_x(), band.get_width()) for band in bands] == [(0, 10), (10, 15), (25, 15)]
    assert [text.get_text() for text in below.texts] == ["taste 0", "taste 1", "taste 2"]
    assert len({band.get_facecolor() for band in bands}) == 3


def test_a_taste_keeps_its_colour_when_it_returns() -> None:
    run = a_run([(10, 20, 30), (), ()], [(), (), ()])
    bands = bands_of(figure({"x": run}, watched="x"))
    assert bands[0].get_facecolor() == bands[3].get_facecolor() != bands[1].get_facecolor()


def test_a_period_too_short_for_a_name_has_none() -> None:
    run = a_run([(2, 25), (), ()], [(), (), ()])
    texts = figure({"x": run}, watched="x").axes[1].texts
    assert [text.get_text() for text in texts] == ["taste 1", "taste 2"]


def test_a_world_without_changes_can_be_drawn() -> None:
    run = a_run([(), (), ()], [(), (), ()])
    assert len(bands_of(figure({"x": run}, watched="x"))) == 1


def test_legends_cover_no_data(drawn: Figure) -> None:
    drawn.draw_without_rendering()
    above, below = drawn.axes
    (under,) = drawn.legends
    panel = below.get_tightbbox()
    assert panel is not None
    assert not under.get_window_extent().overlaps(panel)
    legend = above.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    for line in above.lines:
        points = above.transData.transform(line.get_xydata())
        assert not any(box.contains(x, y) for x, y in points)


def test_every_axis_is_labelled(drawn: Figure) -> None:
    above, below = drawn.axes
    assert above.get_ylabel() == "accumulated regret"
    assert below.get_xlabel() == "rounds of each user"
    labels = [text.get_text() for text in below.get_yticklabels()]
    assert labels == ["alarms", "surprises", "true taste"]


def test_drawing_neither_changes_nor_uses_matplotlibs_settings(
    run: Run, drawn: Figure, tmp_path: Path
) -> None:
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        again = figure({"quiet": run, "watchful": run}, watched="watchful")
        assert write_page(again, run, tmp_path / "a.html") == write_page(
            drawn, run, tmp_path / "b.html"
        )
        assert dict(matplotlib.rcParams) == before


def test_a_picture_is_a_png(drawn: Figure, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"what was there before")
    write_png(drawn, path)
    assert path.read_bytes().startswith(PNG_SIGNATURE)
    assert list(tmp_path.iterdir()) == [path]


def test_writing_a_picture_does_not_change_the_figure(run: Run, tmp_path: Path) -> None:
    fresh = figure({"x": run}, watched="x")
    before = write_page(fresh, run, tmp_path / "a.html")
    write_png(fresh, tmp_path / "a.png")
    assert write_page(fresh, run, tmp_path / "b.html") == before


def test_a_page_is_self_contained(drawn: Figure, run: Run, tmp_path: Path) -> None:
    page = write_page(drawn, run, tmp_path / "a.html")
    assert "://" not in page
    assert not re.search(r"<(link|script|img|iframe|object)\b", page)
    assert not re.search(r"""(src|href)=["'](?!\#)""", page)
    assert page.count("<svg") == page.count("</svg>") == 1


def test_a_page_holds_the_table_and_what_was_run(drawn: Figure, run: Run, tmp_path: Path) -> None:
    page = write_page(drawn, run, tmp_path / "a.html")
    (row,) = summary_table({"watchful": summary(run)}).rows
    assert f'<th scope="row">watchful</th><td>{"</td><td>".join(row[1:])}</td>' in page
    assert all(f'<th scope="col">{name}</th>' in page for name in HEADER)
    assert "<h1>a page</h1>\n<p>about it</p>" in page
    assert "<span>--users=3</span>" in page


def test_the_figure_of_a_page_takes_the_colour_of_its_text(
    drawn: Figure, run: Run, tmp_path: Path
) -> None:
    svg = re.search(r"<svg.*</svg>", write_page(drawn, run, tmp_path / "a.html"), re.DOTALL)
    assert svg is not None
    assert "currentColor" in svg[0]
    assert INK not in svg[0]
    assert "#ffffff" not in svg[0]


def test_warnings_of_a_policy_are_one_line_and_on_the_page(
    drawn: Figure, run: Run, tmp_path: Path
) -> None:
    assert warning_lines({"watchful": summary(run)}) == ()
    warned = replace(run, warnings=("Seen 1.", "Seen 2."))
    assert warning_lines({"watchful": summary(warned)}) == ("watchful warns: Seen 1. Seen 2.",)
    assert "watchful warns: Seen 1. Seen 2." in write_page(drawn, warned, tmp_path / "page.html")


def test_names_are_escaped_in_a_page(drawn: Figure, run: Run, tmp_path: Path) -> None:
    page = write_page(drawn, run, tmp_path / "a.html", name='<b>&"$title')
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&amp;&quot;$title") == 2


def test_a_failed_write_leaves_no_files(drawn: Figure, tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*a\.png \("):
        write_png(drawn, tmp_path / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_check_writable_creates_the_folder(tmp_path: Path) -> None:
    check_writable(tmp_path / "one" / "two")
    assert list((tmp_path / "one" / "two").iterdir()) == []


def test_check_writable_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match=f"cannot write {folder} .*; choose a folder"):
            check_writable(folder)


def test_without_matplotlib_the_table_works_and_the_figure_says_how_to_get_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert len(summary_table({"x": summary(run)}).rows) == 1
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[plots\]'"):
        figure({"x": run}, watched="x")
