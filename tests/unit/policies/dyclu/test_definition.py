"""DyClu decides as if every test were a call of `homogeneity`, pair by pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dyclu import DyClu, Noise, Stats, homogeneity
from dyclu.policies.dyclu import policy as fast
from dyclu.policies.dyclu.neighbours import Neighbours
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.sim.runs.contestants import options
from dyclu.sim.worlds.paper import SETTINGS
from dyclu.sim.worlds.population import Population
from dyclu.validation import FloatArray


def by_definition(table: SegmentTable, mine: int, *, noise: Noise, level: float) -> Neighbours:
    my = table.stats(mine)
    alike = [
        id == mine or homogeneity(my, table.stats(id), noise=noise).p_value >= level
        for id in range(len(table))
    ]
    rows = np.flatnonzero(alike)
    return Neighbours(rows, np.full((len(rows), 3), -1.0))


def surprise(table: SegmentTable, id: int, context: FloatArray, reward: float) -> tuple[float, int]:
    noise = Noise.known(1.0)
    evidence = homogeneity(table.stats(id), Stats.of(context, reward), noise=noise)
    return evidence.statistic, evidence.df


SMALL = Population(
    users=9, parameters=3, dim=6, arms=60, offered=5, rounds=80, shortest=25, longest=60, noise=0.1
)


@pytest.mark.parametrize(
    ("setting", "known"),
    [
        (SMALL, True),
        pytest.param(SMALL, False, marks=pytest.mark.long),
        (replace(SMALL, dim=20, rounds=40), True),
        pytest.param(replace(SETTINGS["row1"], rounds=500), True, marks=pytest.mark.long),
    ],
    ids=["small", "noise estimated", "no segment spans the space", "row 1, 50,000 rounds"],
)
def test_decisions_equal_those_made_with_the_definition_of_the_test(
    setting: Population, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options("dyclu", setting) | ({} if known else {"noise": None})
    policy, literal = (DyClu(setting.dim, **given) for _ in range(2))
    changes = 0
    for turn in setting.world(seed=4):
        decision = policy.decide(turn.user, turn.arms)
        assert decision.arm == literal.decide(turn.user, turn.arms).arm
        news = turn.user, turn.arms[decision.arm], turn.reward(decision.arm)
        outcome = policy.learn(*news)
        with monkeypatch.context() as patched:
            patched.setattr(fast, "neighbours", by_definition)
            patched.setattr(SegmentTable, "surprise", surprise)
            expected = literal.learn(*news)
        assert outcome == expected, turn.index
        np.testing.assert_array_equal(outcome.neighbours, expected.neighbours, str(turn.index))
        changes += outcome.changed
    assert changes or setting.dim == 20, "the case did not occur"
