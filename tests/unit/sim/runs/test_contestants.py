"""`dyclu.sim.runs.contestants` and `own_policies`: policies by name, and one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dyclu.errors import OptionError
from dyclu.policies import LinUCB, Uniform
from dyclu.policies.own import MEMBERS
from dyclu.policy import Policy
from dyclu.sim.runs.contestants import CONTESTANTS, RANDOM, contestant, contestants
from dyclu.sim.runs.play import play
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population, World

POLICIES = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")

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


@pytest.mark.parametrize("name", contestants())
def test_every_contestant_plays(name: str, world: World) -> None:
    policy = contestant(name, world, seed=2)
    assert isinstance(policy, Policy)
    assert len(play(policy, world)) == len(world)


def test_contestants_of_the_table_are_known() -> None:
    assert set(POLICIES) <= set(contestants())


@pytest.mark.parametrize(
    ("name", "options"),
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
def test_contestants_are_as_in_table_1(name: str, options: dict[str, Any]) -> None:
    world = replace(paper.SETTINGS["row7"], users=2, rounds=3).world(seed=0)
    shown = repr(contestant(name, world))
    assert all(f"{option}={value!r}" in shown for option, value in options.items()), shown


def test_dlinucb_has_variance_in_its_width_and_dlinucb_sigma_has_deviation() -> None:
    world = replace(paper.SETTINGS["row7"], users=2, rounds=3).world(seed=0)
    assert f"width_noise={0.12**2!r}" in repr(contestant("dlinucb", world))
    sigma = repr(contestant("dlinucb-sigma", world))
    assert "noise=0.12, width_noise=None" in sigma
    assert "dlinucb-sigma" not in CONTESTANTS


def test_a_module_that_ends_the_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(OptionError, match=r"'leaving:Mine' cannot be imported.*SystemExit: 3"):
        contestant("leaving:Mine", world)


def test_the_oracle_gets_the_true_parameters(world: World) -> None:
    oracle = contestant("oracle", world)
    segments = [oracle.learn(0, world.table[0], 0.0).segment for _ in range(8)]
    # One segment per parameter; after the last round, the last parameter stays.
    truth = [*world.truth[0].tolist(), *[world.truth[0, -1]] * 2]
    assert len(set(zip(segments, truth, strict=True))) == len(set(truth)) == len(set(segments))


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_policies_use_the_seed(name: str) -> None:
    world = Population(users=3, rounds=60, dim=4, parameters=2).world(seed=1)
    runs = [play(contestant(name, world, seed=seed), world).arm for seed in (1, 1, 2)]
    assert runs[0].tolist() == runs[1].tolist() != runs[2].tolist()


def test_an_own_policy_gets_the_dimension(world: World) -> None:
    policy = contestant("dyclu.policies:LinUCB", world)
    assert isinstance(policy, LinUCB)
    assert repr(policy) == repr(LinUCB(25))


def test_an_own_policy_is_given_a_seed_if_it_takes_one(world: World) -> None:
    mine = contestant(f"{__name__}:seeded", world, seed=5)
    theirs = contestant("uniform", world, seed=5)
    assert play(mine, world).arm.tolist() == play(theirs, world).arm.tolist()


def test_members_are_those_of_the_protocol() -> None:
    declared = {name for name in vars(Policy) if not name.startswith("_")}
    assert set(MEMBERS) == declared


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("dyclo", "choose one of uniform, linucb, "),
        ("", "no policy is called ''"),
        ("dyclu:", "no policy is called 'dyclu:'"),
        ("no_such_module:Policy", "cannot be imported"),
        ("dyclu.policies:NoSuchClass", r"policies/__init__\.py\) has no class called NoSuch"),
        ("dyclu.sim.runs.contestants:RIDGE", "has no class called RIDGE"),
        (f"{__name__}:needy", "missing a required argument: 'noise'"),
        (NOT_A_POLICY, "makes a NotAPolicy without learn, save"),
    ],
)
def test_names_that_are_no_policy_are_refused(spec: str, complaint: str, world: World) -> None:
    with pytest.raises(OptionError, match=complaint):
        contestant(spec, world)
