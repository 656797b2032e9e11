"""`dyclu.sim.reports.tables`: tables of results whose numbers are known."""

from __future__ import annotations

import numpy as np

from dyclu.sim.reports.spread import Spread
from dyclu.sim.reports.tables import (
    detection_table,
    lead_table,
    regret_table,
    reward_table,
    settings_table,
    timing_table,
)
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.stream.job import OFFERED
from dyclu.sim.worlds import paper
from tests.unit.sim.samples import PUBLISHED, ROW1, a_result


def test_the_regret_table_has_our_mean_and_the_papers_figure() -> None:
    table = regret_table(ROW1, PUBLISHED)
    assert table.header == ("setting", "linucb", "dyclu", "paper's order")
    linucb, dyclu = "20,100 ± 100\n(19,954; 1.01×)", "890 ± 10\n(853; 1.04×)"
    assert table.rows == (("row1", linucb, dyclu, "yes"),)


def test_without_published_numbers_there_are_no_brackets() -> None:
    table = regret_table(ROW1, {})
    assert table.header == ("setting", "linucb", "dyclu")
    assert table.rows == (("row1", "20,100 ± 100", "890 ± 10"),)
    assert "paper" not in table.note


def order_told(regrets: dict[str, list[float]]) -> str:
    runs = [
        a_result("row1", name, seed, regret)
        for name, values in regrets.items()
        for seed, regret in enumerate(values)
    ]
    return regret_table(runs, PUBLISHED).rows[0][-1]


def test_the_order_of_policies_is_compared_pair_by_pair() -> None:
    # The paper's order is dyclu < linucb < club.
    assert order_told({"linucb": [5, 6], "dyclu": [1, 2], "club": [8, 9]}) == "yes"
    assert order_told({"linucb": [1, 2], "dyclu": [5, 6], "club": [8, 9]}) == "2 of 3"
    assert order_told({"linucb": [1, 2]}) == "-"
    assert order_told({"mine:Policy": [1, 2], "linucb": [5, 6], "dyclu": [1, 2]}) == "yes"


def test_a_difference_within_its_error_is_undecided() -> None:
    # Differences 1, -3 and 1: a mean of -1/3 with a standard error of 4/3.
    close = {"linucb": [10.0, 20.0, 30.0], "club": [9.0, 23.0, 29.0]}
    assert order_told(close) == "undecided"
    assert order_told({**close, "dyclu": [0.0, 10.5, 20.0]}) == "2 of 3\n(1 undecided)"
    # With one seed, the error is unknown.
    assert order_told({"linucb": [10.0], "dyclu": [1.0]}) == "undecided"


def test_differences_pair_runs_of_the_same_seed() -> None:
    # Worlds differ by 100, policies by 2 in every one: means alone would decide nothing.
    assert order_told({"dyclu": [100.0, 200.0, 300.0], "linucb": [102.1, 202.0, 301.9]}) == "yes"


def test_detections_are_averaged_over_seeds() -> None:
    runs = [
        a_result("a", "linucb", 0, 1.0),
        a_result("a", "oracle", 0, 1.0, precision=1.0),
        a_result("a", "dyclu", 0, 1.0, alarms_true=4, median_delay=6.0, precision=0.5, recall=1.0),
        a_result("a", "dyclu", 1, 1.0, alarms_true=5, alarms_false=1, precision=0.75),
    ]
    cells = ("4.5", "0.5", "2.0", "6.0", "0.62", "1.00")
    assert detection_table(runs).rows == (("a", "dyclu", *cells),)


def test_policies_without_shared_models_have_no_precision_and_recall() -> None:
    given = {"alarms_true": 4, "precision": 0.5, "recall": 1.0}
    runs = [a_result("a", name, 0, 1.0, **given) for name in ("dlinucb", "dyclu", "dlinucb-sigma")]
    assert [row[-2:] for row in detection_table(runs).rows] == [
        ("-", "-"),
        ("0.50", "1.00"),
        ("-", "-"),
    ]


def test_columns_without_values_are_left_out() -> None:
    table = detection_table([a_result("lastfm", "dyclu", 0, 1.0, alarms_true=4, median_delay=6.0)])
    assert table.header[-1] == "median delay"
    assert table.rows == (("lastfm", "dyclu", "4.0", "0.0", "2.0", "6.0"),)


def test_speed_is_the_median_over_all_runs_of_a_policy() -> None:
    each = ("2", "150", "4.0")
    all_runs = ("all", "4", "150", "8.0")
    assert timing_table(ROW1).rows == (("linucb", *each), ("dyclu", *each), all_runs)


def test_the_settings_table_has_the_options() -> None:
    rows = settings_table({name: paper.SETTINGS[name] for name in ("row4", "env1", "env2")}).rows
    start = ("100", "10", "25", "10 of 1,000", "2,500")
    assert rows[0] == ("row4", *start, "200–400", "0.09", "0.9")
    assert rows[1][6] == "no changes"
    assert rows[2][2] == "-"


def test_dyclu_is_compared_with_linucb_of_the_same_width_and_seed() -> None:
    def a_run(policy: str, seed: int, missed: int) -> Result:
        curve = (*[0.0] * (10 - missed), *np.arange(1.0, missed + 1))
        return a_result("lastfm", policy, seed, missed, curve=curve)

    # Of 10 events dyclu misses 1 and 2 fewer than linucb: 0.1 and 0.2 of the random reward's 25.
    runs = [
        *(a_run("linucb", seed, missed) for seed, missed in enumerate((5, 9))),
        *(a_run("dyclu", seed, missed) for seed, missed in enumerate((4, 7))),
        *(a_run("dyclu-0.3", seed, missed) for seed, missed in enumerate((1, 2))),
    ]
    cells = (Spread(0.0, 0.0), Spread(OFFERED * 0.2, OFFERED * 0.2), Spread(3.75, 1.25))
    assert lead_table(runs).rows == (("dyclu − linucb", *(cell.text(2) for cell in cells)),)
    assert lead_table(runs[:2]).rows == ()


def test_reward_is_shown_as_a_multiple_of_random_choice() -> None:
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
    assert reward_table(runs).rows == (("dyclu", *(cell.text(2) for cell in cells)),)
