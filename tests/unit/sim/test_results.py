"""`dyclu.sim.results`: what reports say of results whose numbers are known."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu.errors import DycluError, MissingExtra, OptionError
from dyclu.policies import Uniform
from dyclu.sim import paper
from dyclu.sim.lastfm import LISTENED, TAGGED
from dyclu.sim.plan import POWERS, Plan
from dyclu.sim.population import Population
from dyclu.sim.report import LINES, Document, Table, html, markdown, write_report
from dyclu.sim.results import (
    CONTESTANTS,
    FAMILIAR,
    OFFERED,
    QUICK_ROWS,
    QUICK_WARNING,
    LastFMStudy,
    Spread,
    Study,
    comparison_figure,
    detection_table,
    figure2,
    machine,
    plan_figure,
    plan_numbers,
    plan_tables,
    ratio_table,
    regret_figure,
    regret_table,
    reward_table,
    settings_table,
    shortened,
    table1,
    timing_table,
)
from dyclu.sim.sweep import Result, Timing, checkpoints, write_csv, write_timing

TINY = Population(users=3, parameters=2, dim=3, arms=9, offered=3, rounds=20, shortest=8, longest=9)
FACTS = {"command": "dyclu simulate"}


def a_result(setting: str, policy: str, seed: int, regret: float, **other: Any) -> Result:
    told = Result(
        setting=setting,
        policy=policy,
        seed=seed,
        rounds=10,
        regret=regret,
        alarms_true=0,
        alarms_false=0,
        alarms_missed=2,
        median_delay=None,
        precision=None,
        recall=None,
        parameter_error=None,
        version="1",
        curve=tuple(np.linspace(regret / 10, regret, 10).tolist()),
        timing=Timing(seconds=2.0, rounds_per_second=100.0 * (seed + 1)),
    )
    return replace(told, **other)


ROW1 = [
    a_result("row1", "linucb", 0, 20_000.0),
    a_result("row1", "linucb", 1, 20_200.0),
    a_result("row1", "dyclu", 0, 880.0),
    a_result("row1", "dyclu", 1, 900.0),
]
PUBLISHED = {"row1": paper.PUBLISHED["row1"]}


def exploding(dim: int) -> Uniform:
    raise ZeroDivisionError("boom")


def made(study: Study | LastFMStudy, folder: Path) -> list[Result]:
    return study.make(folder, workers=1, dask=None, progress=lambda done, total: None)


# Spreads.


def test_a_standard_error_by_hand() -> None:
    # Deviations −1, 0, 1: variance 2/2 = 1, standard error 1/√3.
    assert Spread.of([4.0, 5.0, 6.0]) == Spread(5.0, 1 / math.sqrt(3))


def test_one_seed_has_no_standard_error() -> None:
    assert Spread.of([889.0]).error is None
    assert str(Spread.of([889.0])) == "889 ± n/a"


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(19_954.4, 100.6), "19,954 ± 101"),
        (Spread(44.12, 1.27), "44.1 ± 1.3"),
        (Spread(8.6, 0.049), "8.60 ± 0.05"),
        (Spread(0.0, 0.0), "0.00 ± 0.00"),
    ],
)
def test_a_spread_has_as_many_digits_as_it_deserves(spread: Spread, text: str) -> None:
    assert str(spread) == text


# Studies.


def test_table_1_is_all_its_rows_or_those_asked_for() -> None:
    study = table1(seeds=(0,))
    assert dict(study.settings) == {f"row{i}": paper.SETTINGS[f"row{i}"] for i in range(1, 10)}
    assert study.policies == CONTESTANTS
    assert list(table1(rows=(4, 2), seeds=(0,)).settings) == ["row4", "row2"]


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(OptionError, match="no row 10; choose from 1-9"):
        table1(rows=(1, 10), seeds=(0,))


def test_a_quick_study_is_short_and_has_a_folder_of_its_own() -> None:
    study = table1(seeds=(0,), quick=True)
    assert list(study.settings) == [f"row{row}" for row in QUICK_ROWS]
    assert study.name == "table1-quick"
    assert study.published() == {}
    assert figure2(seeds=(0,), quick=True).settings["env2"].shortest == 100


def test_shortening_keeps_the_number_of_periods() -> None:
    for setting in paper.SETTINGS.values():
        small = shortened(setting)
        assert small.rounds / small.shortest == setting.rounds / setting.shortest
        assert (
            replace(
                setting,
                users=small.users,
                rounds=small.rounds,
                shortest=small.shortest,
                longest=small.longest,
            )
            == small
        )


def test_figures_of_the_paper_are_for_its_own_settings_only() -> None:
    row1 = paper.SETTINGS["row1"]
    for setting, known in ((row1, True), (replace(row1, rounds=500), False)):
        study = Study(
            name="x", title="x", settings={"row1": setting}, policies=("dyclu",), seeds=(0,)
        )
        assert bool(study.published()) is known


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("nope", "no policy is called 'nope'; choose one of uniform, linucb"),
        ("no_such_module:Policy", "cannot be imported"),
        ("fractions:Fraction", "expected a policy"),
        (f"{__name__}:exploding", r"cannot be made \(ZeroDivisionError: boom\)"),
    ],
)
def test_what_is_no_policy_is_refused(policy: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        figure2(policies=("dyclu", policy), seeds=(0,))


def test_no_policies_are_refused() -> None:
    with pytest.raises(OptionError, match="there are no policies"):
        figure2(policies=(), seeds=(0,))


def test_results_bear_the_names_of_their_settings(tmp_path: Path) -> None:
    study = Study(
        name="x",
        title="x",
        settings={"mine": TINY, "yours": replace(TINY, noise=0.2)},
        policies=("uniform", "linucb"),
        seeds=(3, 5),
    )
    told = [(run.setting, run.policy, run.seed) for run in made(study, tmp_path)]
    assert told[:3] == [("mine", "uniform", 3), ("mine", "uniform", 5), ("mine", "linucb", 3)]
    assert len(told) == len(set(told)) == 8
    assert len(list((tmp_path / "runs").iterdir())) == 8


# Tables.


def test_the_regret_table_has_our_mean_and_the_papers_figure() -> None:
    table = regret_table(ROW1, PUBLISHED)
    assert table.header == ("setting", "linucb", "dyclu", "order")
    assert table.rows == (("row1", "20,100 ± 100\n(19,954)", "890 ± 10\n(853)", "yes"),)


def test_without_figures_of_the_paper_there_is_nothing_in_brackets() -> None:
    table = regret_table(ROW1, {})
    assert table.header == ("setting", "linucb", "dyclu")
    assert table.rows == (("row1", "20,100 ± 100", "890 ± 10"),)
    assert "paper" not in table.note


def test_the_order_of_policies_is_compared_pair_by_pair() -> None:
    # Three policies in the paper's order dyclu < linucb < club, ours linucb < dyclu < club.
    runs = [a_result("row1", name, 0, r) for name, r in (("linucb", 1), ("dyclu", 2), ("club", 3))]
    assert regret_table(runs, PUBLISHED).rows[0][-1] == "2 of 3"
    assert regret_table(runs[:1], PUBLISHED).rows[0][-1] == "-"
    own = [a_result("row1", "mine:Policy", 0, 1.0), *ROW1]
    assert regret_table(own, PUBLISHED).rows[0][-1] == "yes"


def test_ratios_are_ours_by_the_papers() -> None:
    own = [*ROW1, a_result("row1", "mine:Policy", 0, 1.0)]
    table = ratio_table(own, PUBLISHED)
    assert table.header == ("setting", "linucb", "dyclu")
    assert table.rows == (("row1", f"{20_100 / 19_954:.2f}", f"{890 / 853:.2f}"),)


def test_detections_are_averaged_over_seeds() -> None:
    runs = [
        a_result("a", "linucb", 0, 1.0),
        a_result("a", "oracle", 0, 1.0, precision=1.0),
        a_result("a", "dyclu", 0, 1.0, alarms_true=4, median_delay=6.0, precision=0.5, recall=1.0),
        a_result("a", "dyclu", 1, 1.0, alarms_true=5, alarms_false=1, precision=0.75),
    ]
    cells = ("4.5", "0.5", "2.0", "6.0", "0.62", "1.00")
    assert detection_table(runs).rows == (("a", "dyclu", *cells),)


def test_speed_is_the_median_over_all_runs_of_a_policy() -> None:
    assert timing_table(ROW1).rows == (("linucb", "2", "150", "4.0"), ("dyclu", "2", "150", "4.0"))


def test_settings_in_numbers() -> None:
    rows = settings_table({name: paper.SETTINGS[name] for name in ("row4", "env1", "env2")}).rows
    start = ("100", "10", "25", "10 of 1,000", "2,500")
    assert rows[0] == ("row4", *start, "200–400", "0.09", "0.9")
    assert rows[1][6] == "no changes"
    assert rows[2][2] == "-"


def test_reward_is_a_multiple_of_random_choices() -> None:
    # 10 events of which 6, then 4, were missed, all at the beginning: nothing after one of ten.
    runs = [
        a_result("lastfm", "dyclu", seed, missed, curve=(*range(1, missed + 1), *[missed] * hits))
        for seed, (missed, hits) in enumerate(((6, 4), (4, 6)))
    ]
    cells = (
        Spread(0.0, 0.0),
        Spread(OFFERED * 0.1, OFFERED * 0.1),
        Spread(OFFERED * 0.5, OFFERED * 0.1),
    )
    assert reward_table(runs).rows == (("dyclu", *map(str, cells)),)


# Pictures.


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


def test_a_policy_keeps_its_line_whoever_else_plays() -> None:
    both, alone = regret_figure(ROW1).axes[0], regret_figure(ROW1[2:]).axes[0]
    assert both.lines[1].get_color() == alone.lines[0].get_color() == LINES[2][0]
    assert len(FAMILIAR) == len(LINES)


def test_strangers_get_lines_that_nobody_has() -> None:
    runs = [a_result("a", name, 0, 1.0) for name in ("x:A", "x:B", "dyclu", "linucb")]
    lines = regret_figure(runs).axes[0].lines
    assert len({line.get_color() for line in lines}) == 4


def test_the_comparison_shows_both_figures() -> None:
    (axes,) = comparison_figure(ROW1, PUBLISHED).axes
    shown = [float(x) for line in axes.lines for x in np.asarray(line.get_xdata())]
    assert {890.0, 853.0, 20_100.0, 19_954.0} <= set(shown)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["row1"]


# Documents.


def a_document(results: list[Result], *, quick: bool = False) -> Document:
    study = Study(
        name="mine",
        title="Mine",
        settings={"<b>|": TINY},
        policies=("linucb", "dyclu"),
        seeds=(0, 1),
        quick=quick,
    )
    return study.document(results, facts=FACTS)


def test_a_page_needs_nothing_but_itself() -> None:
    page = html(a_document(ROW1))
    assert "://" not in page
    assert not re.search(r"<(link|script|img|iframe|object)\b", page)
    assert page.count("<svg") == 1
    assert "<b>" not in page
    assert "890 ± 10" in page


def test_a_text_refers_to_pictures_that_are_there(tmp_path: Path) -> None:
    files = write_report(a_document(ROW1), tmp_path)
    assert sorted(file.name for file in files) == ["mine.png", "report.html", "report.md"]
    assert "(mine.png)" in (tmp_path / "report.md").read_text()
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_tables_of_a_text_have_whole_lines() -> None:
    results = [*ROW1, *(replace(run, setting="a|b") for run in ROW1)]
    lines = [line for line in markdown(a_document(results)).splitlines() if line.startswith("|")]
    assert r"| a\|b | 20,100 ± 100 | 890 ± 10 |" in lines
    assert all(line.endswith("|") for line in lines)


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_run_says_so(quick: bool) -> None:
    document = a_document(ROW1, quick=quick)
    assert ("not comparable with the paper's" in markdown(document)) is quick
    assert (QUICK_WARNING.split("'")[0] in html(document)) is quick


def test_without_matplotlib_there_is_a_report_without_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    study = table1(rows=(1,), policies=("dyclu",), seeds=(0,))
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[plots\]'"):
        study.document(ROW1[2:], facts=FACTS)
    document = study.document(ROW1[2:], facts=FACTS, pictures=False)
    assert document.pictures == ()
    assert "890 ± 10 (853)" in markdown(document)


def test_facts_say_nothing_of_whose_machine_it_is() -> None:
    told = " ".join(machine().values())
    assert "cores" in told
    assert "numpy" in told
    assert "/" not in told


# Last.fm.


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three people, each of whom gave 40 of 120 artists 20 of 40 tags."""
    rng = np.random.default_rng(5)
    rows = [
        (person, 10 * (40 * person + artist), tag, 1, 4, 2009)
        for person in range(3)
        for artist in range(1, 41)
        for tag in rng.permutation(40)[:20].tolist()
    ]
    folder = tmp_path_factory.mktemp("hetrec")
    for (name, columns), table in ((TAGGED, rows), (LISTENED, [(0, 10, 1)])):
        lines = ["\t".join(map(str, line)) for line in (columns, *table)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_last_fm_runs_are_made_once(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform", "linucb"), seeds=(0,), quick=True)
    told: list[tuple[int, int]] = []
    results = study.make(
        tmp_path,
        workers=2,
        dask=None,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 2), (1, 2), (2, 2)]
    uniform, linucb = results
    # Four users of two people of 800 observations each.
    assert (uniform.policy, uniform.rounds) == ("uniform", 4 * 2 * 800)
    assert uniform.alarms_true + uniform.alarms_missed == 4
    assert linucb.regret < uniform.regret < uniform.rounds
    assert uniform.curve[-1] == uniform.regret

    before = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    assert made(study, tmp_path) == results
    assert {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()} == before

    document = study.document(results, facts=FACTS)
    assert document.title in html(document)
    assert isinstance(document.parts[0][1], Table)
    assert [row[0] for row in document.table.rows] == ["uniform", "linucb"]
    write_csv(results, tmp_path / "results.csv")
    write_timing(results, tmp_path / "timing.csv")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_another_policy_seed_or_file_is_another_run(data: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0,), quick=True)
    others = [
        replace(study, source="other"),
        replace(study, quick=False),
    ]
    (job,) = study.jobs
    keys = [
        study.key(job),
        study.key(replace(job, seed=1)),
        study.key(replace(job, policy="dyclu")),
    ]
    keys += [other.key(job) for other in others]
    assert len(set(keys)) == 5


def test_a_run_that_fails_names_itself(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0,), quick=True)
    # Fewer artists than are offered: drawing the stream fails, in the worker.
    few = replace(study.data, tagged=np.ones_like(study.data.tagged))
    with pytest.raises(DycluError, match=r"uniform on Last\.fm, seed 0, failed \(OptionError: "):
        made(replace(study, data=few), tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def test_nobody_can_be_an_oracle_on_last_fm(data: Path) -> None:
    with pytest.raises(OptionError, match=r"oracle cannot play .*choose from uniform, linucb"):
        LastFMStudy.read(data, policies=("oracle",), seeds=(0,))


# Plans.

PLAN = Plan(dim=5, noise=0.2, separation=1.0)


def test_numbers_of_a_plan_are_the_plans() -> None:
    numbers = plan_numbers(PLAN)
    assert numbers["delay"] == PLAN.delay
    assert numbers["window_wanted"] == PLAN.window_wanted
    assert numbers["alarm_within_window"] == PLAN.alarm_within(PLAN.window)
    for row, power in zip(numbers["observations"], POWERS, strict=True):
        assert row["each"] == PLAN.observations_for(power)
        assert row["against_group"] == PLAN.observations_for(power, partner=math.inf)
    for row in numbers["power"]:
        assert row["each"] == PLAN.power(row["observations"])
    assert numbers["power"][-1]["each"] > POWERS[-1]


def test_what_never_happens_is_none_and_never() -> None:
    # Five rewards cannot ring an alarm that waits for more than all of them.
    numbers = plan_numbers(replace(PLAN, window=1, window_delta=0.01))
    assert numbers["delay"] is None
    assert numbers["surprises_needed"] is None
    cells = {row[0]: row[1] for row in plan_tables(numbers)[0].rows}
    assert cells["surprises in a full window that ring the alarm"] == "never"


def test_tables_of_a_plan_say_its_numbers() -> None:
    numbers = plan_numbers(PLAN)
    _, needed, powers = plan_tables(numbers)
    assert needed.rows[1][:2] == ("90%", str(PLAN.observations_for(0.9)))
    assert len(powers.rows) == len(numbers["power"])


def test_the_picture_of_a_plan_is_its_power() -> None:
    above, below = plan_figure(PLAN).axes
    line = above.lines[0]
    observations = np.asarray(line.get_xdata(), dtype=float)
    assert np.array_equal(np.asarray(line.get_ydata()), PLAN.power_curve(observations))
    assert np.asarray(below.lines[0].get_ydata())[-1] == PLAN.alarm_within(PLAN.window)
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in (above, below))
