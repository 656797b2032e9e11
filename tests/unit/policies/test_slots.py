"""`decide(..., slots=k)`: different arms for the places of one page, for every policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu import policies
from dyclu.core.noise import Noise
from dyclu.errors import KindError, OptionError
from dyclu.policy import position_of

DIM = 3
ARMS = np.random.default_rng(5).normal(size=(6, DIM))
OPTIONS: dict[str, dict[str, Any]] = {"dyclu": {"noise": 0.1}}


def trained(name: str) -> Any:
    policy = policies.make(name, DIM, **OPTIONS.get(name, {}))
    rng = np.random.default_rng(1)
    for turn in range(60):
        x = rng.normal(size=DIM)
        policy.learn(f"u{turn % 4}", x, float(x[turn % 2] + 0.1 * rng.normal()))
    return policy


@pytest.mark.parametrize("name", policies.names())
def test_each_slot_is_the_decision_among_the_arms_that_are_left(name: str) -> None:
    policy = trained(name)
    slate = policy.decide("u1", ARMS, slots=4)
    left = list(range(len(ARMS)))
    for slot, made in enumerate(slate):
        alone = policy.decide("u1", ARMS[left])
        assert made.arm == left.pop(alone.arm)
        assert (made.mean, made.width, made.propensity) == (
            alone.mean, alone.width, alone.propensity,
        )  # fmt: skip
        assert np.array_equal(slate.contexts[slot], ARMS[made.arm])
    assert len(set(slate.arms)) == len(slate) == 4


@pytest.mark.parametrize("name", policies.names())
def test_slots_change_nothing_and_leave_the_arms_as_they_were(name: str, tmp_path: Path) -> None:
    policy, arms = trained(name), ARMS.copy()
    policy.save(tmp_path / "before")
    first = policy.decide("stranger", arms, slots=3, position=2)
    assert policy.decide("stranger", arms, slots=3, position=2) == first
    policy.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert np.array_equal(arms, ARMS)


def test_an_optimistic_policy_takes_the_best_scores_in_order() -> None:
    policy = trained("linucb")
    alone = [policy.decide("u1", arm[None]) for arm in ARMS]
    scores = [one.mean + one.width for one in alone]
    assert list(policy.decide("u1", ARMS, slots=6).arms) == np.argsort(scores)[::-1].tolist()


def test_one_slot_is_the_decision() -> None:
    policy = trained("atlas")
    assert policy.decide("u1", ARMS, slots=1).decisions == (policy.decide("u1", ARMS),)


def test_the_product_of_uniform_propensities_is_the_chance_of_the_slate() -> None:
    """Each ordered pair of three arms has 1/3 · 1/2; 3,000 questions, errors below 5 deviations."""
    policy, count = dyclu.Uniform(1, seed=3), Counter[tuple[int, ...]]()
    arms = np.array([[1.0], [2.0], [3.0]])
    for _ in range(3000):
        slate = policy.decide("ana", arms, slots=2)
        assert [one.propensity for one in slate] == [1 / 3, 1 / 2]
        count[slate.arms] += 1
        policy.learn("ana", [1.0], 0.0)
    assert len(count) == 6
    bound = 5 * np.sqrt(3000 / 6 * 5 / 6)
    assert all(abs(seen - 500) < bound for seen in count.values())


def test_the_position_is_in_its_column_of_every_context() -> None:
    slate = trained("linucb").decide("u1", ARMS, slots=3, position=1)
    assert slate.contexts[:, 1].tolist() == [position_of(slot) for slot in (1, 2, 3)]
    rest = [column for column in range(DIM) if column != 1]
    assert np.array_equal(slate.contexts[:, rest], ARMS[list(slate.arms)][:, rest])


def test_with_a_position_the_taste_is_learnt_as_if_every_slot_were_the_first() -> None:
    """Rewards fall by 0.8 times the position; least squares with the column separates both."""
    rng, taste = np.random.default_rng(2), np.array([0.7, -0.4])
    policy = dyclu.LinUCB(3, alpha=0.1, noise=0.1)
    assert policy._known == Noise.known(0.1)
    for _ in range(400):
        arms = np.column_stack([rng.normal(size=(5, 2)), np.zeros(5)])
        slate = policy.decide("ana", arms, slots=3, position=2)
        for x in slate.contexts:
            policy.learn("ana", x, float(x[:2] @ taste - 0.8 * x[2] + 0.1 * rng.normal()))
    theta = policy.decide("ana", np.eye(3)).theta
    assert theta is not None
    np.testing.assert_allclose(theta, [0.7, -0.4, -0.8], atol=0.03)


@pytest.mark.parametrize("slots", [0, -1, 7])
def test_a_number_of_slots_that_cannot_be_filled_is_refused(slots: int) -> None:
    with pytest.raises(OptionError, match="slots"):
        trained("linucb").decide("ana", ARMS, slots=slots)


@pytest.mark.parametrize("slots", [True, 1.0, "2"])
def test_slots_are_whole_numbers(slots: Any) -> None:
    with pytest.raises(KindError, match="slots"):
        trained("linucb").decide("ana", ARMS, slots=slots)


@pytest.mark.parametrize(("slots", "position"), [(2, 3), (2, -1), (None, 1)])
def test_a_position_outside_of_the_features_is_refused(slots: Any, position: int) -> None:
    with pytest.raises(OptionError, match="position"):
        trained("linucb").decide("ana", ARMS, slots=slots, position=position)
