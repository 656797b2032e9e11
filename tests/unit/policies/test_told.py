"""`Told`: the filter equals enumeration of all histories of tastes."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyclu import conformance
from dyclu.core.rewards import Kind, Law
from dyclu.errors import KindError, OptionError, ShapeError
from dyclu.policies import Told, load
from dyclu.storage import read
from dyclu.validation import FloatArray, User

TASTES = np.array([[1.0, 0.0], [-0.5, 0.8], [0.0, -1.0]])


def told(law: Law, hazard: float, tastes: FloatArray = TASTES) -> Told:
    return Told(tastes.shape[1], tastes=lambda user: tastes, law=lambda user: law, hazard=hazard)


def swapped(user: User) -> FloatArray:
    """Return the two tastes of the stream of the conformance checks, roughly."""
    return np.array([[1.0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0]])


def options() -> dict[str, Any]:
    """Return what the checks tell: no hazard, which would move beliefs without any information."""
    return {"tastes": swapped, "law": lambda user: Law(noise=2.0)}


def test_contract() -> None:
    conformance.check_policy(
        lambda: Told(5, **options()), load=lambda path: Told.restore(read(path), **options())
    )


@pytest.mark.parametrize("kind", ["gaussian", "student", "logistic", "linear"])
def test_the_belief_is_the_posterior_over_all_histories(kind: Kind) -> None:
    law, hazard, rounds = Law(kind=kind, offset=0.3, slope=0.6, noise=0.5), 0.2, 5
    rng = np.random.default_rng(3)
    contexts, rewards = rng.standard_normal((rounds, 2)), rng.integers(2, size=rounds)
    policy = told(law, hazard)
    for x, y in zip(contexts, rewards, strict=True):
        policy.learn("ana", x, float(y))
    # A history is the taste at each of the rounds, and at the next one.
    weight = np.zeros(3)
    for history in product(range(3), repeat=rounds + 1):
        probability = 1 / 3
        for before, after in pairwise(history):
            probability *= 1 - hazard if before == after else hazard / 2
        for taste, x, y in zip(history, contexts, rewards, strict=False):
            score = np.array([x @ TASTES[taste]])
            probability *= float(np.exp(law.log_density(float(y), score))[0])
        weight[history[-1]] += probability
    found = policy.locate("ana").belief
    np.testing.assert_allclose(list(found.values()), weight / weight.sum(), rtol=1e-12)


def test_the_choice_has_the_largest_expected_reward_under_the_belief() -> None:
    law = Law(kind="logistic", offset=-1.0, slope=3.0)
    policy, rng = told(law, 0.1), np.random.default_rng(4)
    for _ in range(30):
        arms = rng.standard_normal((4, 2))
        decision = policy.decide("ana", arms)
        q = policy.locate("ana").belief or dict.fromkeys(range(3), 1 / 3)
        expected = [sum(q[k] * law.mean(arms @ TASTES[k])[i] for k in q) for i in range(4)]
        assert decision.arm == np.argmax(expected)
        assert decision.mean == pytest.approx(max(expected))
        policy.learn("ana", arms[decision.arm], float(rng.integers(2)))


def test_a_change_is_noticed_and_recorded() -> None:
    policy = told(Law(noise=0.1), 0.05)
    changed = [policy.learn("ana", [1.0, 0.5], y).changed for y in (1.0, 1.0, 1.0, -0.1, -0.1)]
    assert changed.count(True) == 1
    assert [(c.user, c.before, c.after) for c in policy.changes] == [("ana", 0, 1)]
    assert policy.locate("ana").model == 1


def test_without_a_hazard_nobody_changes() -> None:
    policy = told(Law(noise=0.1), 0.0)
    for _ in range(400):
        policy.learn("ana", [1.0, 0.0], 1.0)
    assert policy.locate("ana").belief == pytest.approx({0: 1.0, 1: 0.0, 2: 0.0})


def test_one_taste_is_certain() -> None:
    policy = told(Law(noise=0.1), 0.3, tastes=TASTES[:1])
    policy.learn("ana", [1.0, 0.0], -5.0)
    assert policy.locate("ana").belief == {0: 1.0}


def test_an_impossible_reward_leaves_a_belief() -> None:
    # 60 deviations from every taste: densities underflow, their logarithms do not.
    policy = told(Law(noise=0.1), 0.1)
    policy.learn("ana", [1.0, 0.0], 60.0)
    assert sum(policy.locate("ana").belief.values()) == pytest.approx(1.0)


def test_what_it_is_told_is_checked(tmp_path: Path) -> None:
    tastes: Any = TASTES
    with pytest.raises(KindError, match="tastes is of type ndarray, expected a callable"):
        Told(2, tastes=tastes, law=lambda user: Law())
    with pytest.raises(OptionError, match="hazard is 2"):
        told(Law(), 2.0)
    with pytest.raises(ShapeError, match=r"tastes have shape \(3, 2\), expected \(m, 4\)"):
        Told(4, tastes=lambda user: TASTES, law=lambda user: Law()).decide("ana", np.eye(4))
    told(Law(), 0.1).save(tmp_path / "policy")
    with pytest.raises(OptionError, match=r"use Told\.restore"):
        load(tmp_path / "policy")


def test_users_may_have_different_numbers_of_tastes_also_when_saved(tmp_path: Path) -> None:
    known = {"ana": TASTES, "ben": TASTES[:2]}
    given: dict[str, Any] = {"tastes": known.__getitem__, "law": lambda user: Law(noise=0.5)}
    policy = Told(2, **given)
    for user in known:
        policy.learn(user, [1.0, 0.5], 0.7)
    policy.save(tmp_path / "told")
    again = Told.restore(read(tmp_path / "told"), **given)
    for user in known:
        assert again.locate(user) == policy.locate(user)
