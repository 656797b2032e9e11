"""`dyclu.service.engine.inspect`: what is shown of any policy, and of those that know more."""

from __future__ import annotations

import numpy as np
import pytest

import dyclu
from dyclu.policy import Outcome, Policy
from dyclu.service.engine import inspect


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_every_policy_can_be_looked_at(name: str) -> None:
    policy = dyclu.policies.make(name, 2)
    for i in range(30):
        policy.learn(f"u{i % 3}", [1.0, i / 30], 0.5)
    assert inspect.propensity_of_best(policy, 4) in (None, 0.25, 1.0)
    for user in ("u1", "stranger"):
        assert all(0 < one.probability <= 1 for one in inspect.belief_of(policy, user))
        assert all(one.observations >= 0 for one in inspect.segments_of(policy, user) or [])
        shown, total = inspect.neighbours_of(policy, user)
        assert len(shown) <= total
        assert inspect.model_of(policy, user, None) is None or name == "atlas"
    tastes = inspect.tastes(policy)
    assert sum(group.users for group in tastes.groups) in (0, 3)


TWO = {"ana": [1.0, 0.0], "bea": [1.0, 0.0], "cleo": [0.0, 1.0], "dora": [0.0, 1.0]}


def lived(policy: Policy, taste: dict[str, list[float]], *, rounds: int, seed: int) -> list[str]:
    """Let users live, and return who was said to have changed."""
    rng, changed = np.random.default_rng(seed), []
    for _ in range(rounds):
        for user, theta in taste.items():
            x = rng.normal(size=2)
            if policy.learn(user, x, x @ theta + 0.05 * rng.normal()).changed:
                changed.append(user)
    return changed


def test_atlas_is_seen_through() -> None:
    policy = dyclu.Atlas(2)
    lived(policy, TWO, rounds=30, seed=0)
    first, second = inspect.tastes(policy).groups
    assert (first.users, second.users) == (2, 2)
    assert {inspect.model_of(policy, user, None) for user in TWO} == {first.id, second.id}
    belief = inspect.belief_of(policy, "ana")
    assert belief[0].model == inspect.model_of(policy, "ana", None)
    assert belief[0].probability > 0.9
    assert sum(one.probability for one in belief) == pytest.approx(1, abs=0.01)
    stranger = inspect.belief_of(policy, "stranger")
    assert [(one.model, one.probability) for one in stranger] == [(None, 1.0)]


def test_atlas_says_where_from_and_where_to() -> None:
    policy = dyclu.Atlas(2)
    lived(policy, TWO, rounds=30, seed=0)
    before, after = (inspect.model_of(policy, user, None) for user in ("ana", "cleo"))
    assert lived(policy, {**TWO, "ana": TWO["cleo"]}, rounds=20, seed=1) == ["ana"]
    told = inspect.announced(policy, Outcome("ana", changed=True), None)
    assert (told.before, told.after) == (before, after)
    assert told.certainty is not None
    assert 0.9 < told.certainty <= 1.0


def test_dyclus_tastes_are_those_of_its_users() -> None:
    policy = dyclu.DyClu(2, noise=0.05)
    lived(policy, TWO, rounds=30, seed=0)
    found = inspect.tastes(policy)
    assert [group.users for group in found.groups] == [2, 2]
    estimates = sorted(np.round(group.theta, 1).tolist() for group in found.groups)
    assert np.allclose(estimates, [[0.0, 1.0], [1.0, 0.0]], atol=0.11)


def test_the_map_keeps_distances_in_a_plane() -> None:
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(7, 2)) @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    points = inspect.placed(flat)
    for i in range(7):
        expected = np.linalg.norm(flat - flat[i], axis=1)
        assert np.allclose(np.linalg.norm(points - points[i], axis=1), expected)


@pytest.mark.parametrize("count", [0, 1])
def test_a_map_of_next_to_nothing(count: int) -> None:
    assert inspect.placed(np.ones((count, 3))).tolist() == [[0.0, 0.0]] * count
