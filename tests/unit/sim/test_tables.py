"""`dyclu.sim.tables`: what tables say of results whose numbers are known."""

from __future__ import annotations

from dyclu.sim import paper
from dyclu.sim.lastfm_job import OFFERED
from dyclu.sim.spread import Spread
from dyclu.sim.tables import (
    detection_table,
    ratio_table,
    regret_table,
    reward_table,
    settings_table,
    timing_table,
)
from tests.unit.sim.samples import PUBLISHED, ROW1, a_result


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
