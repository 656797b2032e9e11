"""`dyclu.sim.worlds.paper`: section 4's settings and published numbers, by name."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from dyclu.sim.worlds import paper

TABLE_1 = """
1 & 100 & 10 & 400 & 2500 & 2500 & 0.09 & 115 & 19954 & 9872 & 2432 & 20274 & 853
2 & 100 & 50 & 400 & 2500 & 2500 & 0.09 & 489 & 20952 & 9563 & 2420 & 21205 & 1363
3 & 100 & 100 & 400 & 2500 & 2500 & 0.09 & 873 & 21950 & 10961 & 2549 & 22280 & 1958
4 & 100 & 10 & 200 & 400 & 2500 & 0.09 & 112 & 39249 & 36301 & 10831 & 39436 & 3025
5 & 100 & 10 & 800 & 1000 & 2500 & 0.09 & 113 & 34385 & 13788 & 3265 & 34441 & 1139
6 & 100 & 10 & 1200 & 1400 & 2500 & 0.09 & 112 & 24769 & 8124 & 2144 & 24980 & 778
7 & 100 & 10 & 400 & 2500 & 2500 & 0.12 & 166 & 22453 & 10567 & 3301 & 22756 & 1140
8 & 100 & 10 & 400 & 2500 & 2500 & 0.15 & 232 & 19082 & 10000 & 5872 & 19427 & 1487
9 & 100 & 10 & 400 & 2500 & 2500 & 0.18 & 307 & 23918 & 11255 & 9848 & 24050 & 1956
"""
"""As the paper's source prints it, columns: n, m, S_min, S_max, T, σ, then the policies."""

PRINTED = ("users", "parameters", "shortest", "longest", "rounds", "noise")
POLICIES = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")
ROWS = [[float(cell) for cell in line.split("&")] for line in TABLE_1.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row[0]:.0f}")
def test_rows_are_the_papers_table(row: list[float]) -> None:
    name, setting = f"row{row[0]:.0f}", row[1:7]
    assert [asdict(paper.SETTINGS[name])[field] for field in PRINTED] == setting
    assert dict(paper.PUBLISHED[name]) == dict(zip(POLICIES, row[7:], strict=True))


def test_only_the_nine_rows_have_published_numbers() -> None:
    assert list(paper.PUBLISHED) == [f"row{row}" for row in range(1, 10)]
    assert list(paper.SETTINGS) == [*paper.PUBLISHED, "env1", "env2", "env3"]


@pytest.mark.parametrize("name", paper.SETTINGS)
def test_all_settings_share_dimension_arms_rounds_and_separation(name: str) -> None:
    setting = paper.SETTINGS[name]
    shared = (setting.dim, setting.arms, setting.offered, setting.rounds, setting.separation)
    assert shared == (25, 1000, 10, 2500, 0.9)


@pytest.mark.parametrize("name", paper.SETTINGS)
def test_every_setting_can_be_drawn(name: str) -> None:
    setting = paper.SETTINGS[name]
    assert len(setting.world(seed=0)) == setting.users * setting.rounds


def test_no_user_changes_in_environment_1_even_in_long_runs() -> None:
    world = replace(paper.SETTINGS["env1"], rounds=5000).world(seed=0)
    assert not any(len(world.changes(user)) for user in range(100))
    assert len(world.parameters) == 5


def test_every_period_of_environment_2_has_its_own_parameter() -> None:
    world = paper.SETTINGS["env2"].world(seed=0)
    assert len(world.parameters) == 20 * 5
    assert all(world.changes(user).tolist() == [500, 1000, 1500, 2000] for user in range(20))
