"""`dyclu.service.inspect`: what is shown of any policy, and of those that know more."""

from __future__ import annotations

import numpy as np
import pytest

import dyclu
from dyclu.service import inspect


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_every_policy_can_be_looked_at(name: str) -> None:
    policy = dyclu.policies.make(name, 2)
    for i in range(30):
        policy.learn(f"u{i % 3}", [1.0, i / 30], 0.5)
    assert inspect.propensity_of_best(policy, 4) in (None, 0.25, 1.0)
    assert inspect.certainty(policy) in (None, 0.9)
    assert inspect.belief_of(policy, "u1") == []
    for user in ("u1", "stranger"):
        assert all(one.observations >= 0 for one in inspect.segments_of(policy, user))
        shown, total = inspect.neighbours_of(policy, user)
        assert len(shown) <= total
    tastes = inspect.tastes(policy)
    users = sum(group.users for group in tastes.groups) + tastes.users_elsewhere
    assert users in (0, 3)


def test_dyclus_tastes_are_those_of_its_users() -> None:
    rng = np.random.default_rng(0)
    taste = {"ana": [1.0, 0.0], "bea": [1.0, 0.0], "cleo": [0.0, 1.0], "dora": [0.0, 1.0]}
    policy = dyclu.DyClu(2, noise=0.05)
    for _ in range(30):
        for user, theta in taste.items():
            x = rng.normal(size=2)
            policy.learn(user, x, x @ theta + 0.05 * rng.normal())
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
