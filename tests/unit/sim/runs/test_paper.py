"""`dyclu.sim.runs.paper`: section 4's settings, numbers and contestants, by name."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dyclu.errors import OptionError
from dyclu.policies import LinUCB, Uniform
from dyclu.policy import Policy
from dyclu.sim.runs import paper
from dyclu.sim.runs.cast import CONTESTANTS
from dyclu.sim.runs.play import play
from dyclu.sim.worlds.population import Population, World

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

NOT_A_POLICY = f"{__name__}:NotAPolicy"


class NotAPolicy:
    def __init__(self, dim: int) -> None:
        self.dim = dim

    def decide(self, user: int, arms: Any) -> int:
        return 0


def needy(dim: int, noise: float) -> Uniform:
    return Uniform(dim)


def seeded(dim: int, *, seed: int = 0) -> Uniform:
    return Uniform(dim, seed=seed)


@pytest.fixture
def world() -> World:
    return replace(paper.SETTINGS["row1"], users=3, rounds=6, shortest=2, longest=3).world(seed=1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row[0]:.0f}")
def test_rows_are_the_papers_table(row: list[float]) -> None:
    name, setting = f"row{row[0]:.0f}", row[1:7]
    assert [asdict(paper.SETTINGS[name])[field] for field in PRINTED] == setting
    assert dict(paper.PUBLISHED[name]) == dict(zip(POLICIES, row[7:], strict=True))


def test_nothing_is_published_but_the_nine_rows() -> None:
    assert list(paper.PUBLISHED) == [f"row{row}" for row in range(1, 10)]
    assert list(paper.SETTINGS) == [*paper.PUBLISHED, "env1", "env2", "env3"]


@pytest.mark.parametrize("name", paper.SETTINGS)
def test_what_all_settings_share(name: str) -> None:
    setting = paper.SETTINGS[name]
    shared = (setting.dim, setting.arms, setting.offered, setting.rounds, setting.separation)
    assert shared == (25, 1000, 10, 2500, 0.9)


@pytest.mark.parametrize("name", paper.SETTINGS)
def test_every_setting_can_be_drawn(name: str) -> None:
    setting = paper.SETTINGS[name]
    assert len(setting.world(seed=0)) == setting.users * setting.rounds


def test_nobody_changes_in_environment_1_however_long_it_lasts() -> None:
    world = replace(paper.SETTINGS["env1"], rounds=5000).world(seed=0)
    assert not any(len(world.changes(user)) for user in range(100))
    assert len(world.parameters) == 5


def test_every_period_of_environment_2_has_its_own_parameter() -> None:
    world = paper.SETTINGS["env2"].world(seed=0)
    assert len(world.parameters) == 20 * 5
    assert all(world.changes(user).tolist() == [500, 1000, 1500, 2000] for user in range(20))


@pytest.mark.parametrize("name", paper.contestants())
def test_every_contestant_plays(name: str, world: World) -> None:
    policy = paper.contestant(name, world, seed=2)
    assert isinstance(policy, Policy)
    assert len(play(policy, world)) == len(world)


def test_contestants_of_the_table_are_known() -> None:
    assert set(POLICIES) <= set(paper.contestants())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("linucb", {"ridge": 0.1, "alpha": 0.3}),
        ("shared-linucb", {"ridge": 0.1, "alpha": 0.3, "shared": True}),
        ("oracle", {"ridge": 0.1, "alpha": 0.3}),
        ("club", {"ridge": 0.1, "alpha": 0.1, "tolerance": 2.0}),
        (
            "adts",
            {"ridge": 0.1, "noise": 0.12, "window": 200, "interval": 50}
            | {"level": 0.05, "shuffles": 999},
        ),
        (
            "dlinucb",
            {
                "ridge": 0.1,
                "noise": 0.12,
                "error_level": 0.1,
                "creation_level": 0.02,
                "window_delta": 0.1,
                "window": 20,
            },
        ),
        (
            "dyclu",
            {
                "ridge": 0.1,
                "noise": 0.12,
                "delta": 0.1,
                "window": 20,
                "window_delta": 0.1,
                "change_level": 0.01,
                "neighbour_level": 0.01,
            },
        ),
    ],
)
def test_contestants_are_as_in_table_1(name: str, told: dict[str, Any]) -> None:
    world = replace(paper.SETTINGS["row7"], users=2, rounds=3).world(seed=0)
    shown = repr(paper.contestant(name, world))
    assert all(f"{option}={value!r}" in shown for option, value in told.items()), shown


def test_dlinucb_plays_with_either_reading_of_its_width() -> None:
    world = replace(paper.SETTINGS["row7"], users=2, rounds=3).world(seed=0)
    assert f"width_noise={0.12**2!r}" in repr(paper.contestant("dlinucb", world))
    sigma = repr(paper.contestant("dlinucb-sigma", world))
    assert "noise=0.12, width_noise=None" in sigma
    assert "dlinucb-sigma" not in CONTESTANTS


def test_a_module_that_ends_the_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(OptionError, match=r"'leaving:Mine' cannot be imported.*SystemExit: 3"):
        paper.contestant("leaving:Mine", world)


def test_the_oracle_is_told_the_truth(world: World) -> None:
    oracle = paper.contestant("oracle", world)
    segments = [oracle.learn(0, world.table[0], 0.0).segment for _ in range(8)]
    # One segment per parameter, whichever they are; after the end the last parameter goes on.
    truth = [*world.truth[0].tolist(), *[world.truth[0, -1]] * 2]
    assert len(set(zip(segments, truth, strict=True))) == len(set(truth)) == len(set(segments))


@pytest.mark.parametrize("name", sorted(paper.RANDOM))
def test_dice_follow_the_seed(name: str) -> None:
    world = Population(users=3, rounds=60, dim=4, parameters=2).world(seed=1)
    runs = [play(paper.contestant(name, world, seed=seed), world).arm for seed in (1, 1, 2)]
    assert runs[0].tolist() == runs[1].tolist() != runs[2].tolist()


def test_an_own_policy_is_told_the_dimension(world: World) -> None:
    policy = paper.contestant("dyclu.policies:LinUCB", world)
    assert isinstance(policy, LinUCB)
    assert repr(policy) == repr(LinUCB(25))


def test_an_own_policy_is_given_a_seed_if_it_takes_one(world: World) -> None:
    mine = paper.contestant(f"{__name__}:seeded", world, seed=5)
    theirs = paper.contestant("uniform", world, seed=5)
    assert play(mine, world).arm.tolist() == play(theirs, world).arm.tolist()


def test_what_a_policy_must_have_is_what_the_protocol_says() -> None:
    declared = {name for name in vars(Policy) if not name.startswith("_")}
    assert set(paper.MEMBERS) == declared


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("dyclo", "choose one of uniform, linucb, "),
        ("", "no policy is called ''"),
        ("dyclu:", "no policy is called 'dyclu:'"),
        ("no_such_module:Policy", "cannot be imported"),
        ("dyclu.policies:NoSuchClass", r"policies/__init__\.py\) has no class called NoSuch"),
        ("dyclu.sim.runs.paper:RIDGE", "has no class called RIDGE"),
        (f"{__name__}:needy", "missing a required argument: 'noise'"),
        (NOT_A_POLICY, "makes a NotAPolicy without learn, save"),
    ],
)
def test_what_is_no_policy_is_refused(spec: str, complaint: str, world: World) -> None:
    with pytest.raises(OptionError, match=complaint):
        paper.contestant(spec, world)
