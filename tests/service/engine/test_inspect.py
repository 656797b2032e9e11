"""`dyclu.service.engine.inspect`: what the service shows of every policy."""

from __future__ import annotations

import numpy as np
import pytest

import dyclu
from dyclu.policy import Outcome, Policy
from dyclu.service.engine import inspect


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_every_policy_can_be_shown(name: str) -> None:
    policy = dyclu.policies.make(name, 2)
    for i in range(30):
        policy.learn(f"u{i % 3}", [1.0, i / 30], 0.5)
    assert policy.decide("u1", np.eye(2)).propensity in (None, 0.5, 1.0)
    for user in ("u1", "stranger"):
        location = policy.locate(user)
        assert all(0 < one.probability <= 1 for one in inspect.belief_of(location))
        assert all(one.observations >= 0 for one in location.segments or ())
        assert inspect.model_of(policy, user, 7) == 7
        located = name in ("dyclu", "atlas", "codband") and user == "u1"
        assert (inspect.model_of(policy, user, None) is not None) == located
    assert sum(model.users for model in inspect.largest(policy.models)) in (0, 3)


TWO = {"ana": [1.0, 0.0], "bea": [1.0, 0.0], "cleo": [0.0, 1.0], "dora": [0.0, 1.0]}


def learnt(policy: Policy, taste: dict[str, list[float]], *, rounds: int, seed: int) -> list[str]:
    """Learn rewards of users with these tastes; return the users of outcomes with a change."""
    rng, changed = np.random.default_rng(seed), []
    for _ in range(rounds):
        for user, theta in taste.items():
            x = rng.normal(size=2)
            if policy.learn(user, x, x @ theta + 0.05 * rng.normal()).changed:
                changed.append(user)
    return changed


def test_groups_and_beliefs_of_atlas_are_shown() -> None:
    policy = dyclu.Atlas(2)
    learnt(policy, TWO, rounds=30, seed=0)
    first, second = inspect.largest(policy.models)
    assert (first.users, second.users) == (2, 2)
    assert {inspect.model_of(policy, user, None) for user in TWO} == {first.id, second.id}
    belief = inspect.belief_of(policy.locate("ana"))
    assert belief[0].model == inspect.model_of(policy, "ana", None)
    assert belief[0].probability > 0.9
    assert sum(one.probability for one in belief) == pytest.approx(1, abs=0.01)
    stranger = inspect.belief_of(policy.locate("stranger"))
    assert [(one.model, one.probability) for one in stranger] == [(None, 1.0)]


def test_a_change_of_atlas_is_announced_with_both_models() -> None:
    policy = dyclu.Atlas(2)
    learnt(policy, TWO, rounds=30, seed=0)
    before, after = (inspect.model_of(policy, user, None) for user in ("ana", "cleo"))
    assert learnt(policy, {**TWO, "ana": TWO["cleo"]}, rounds=20, seed=1) == ["ana"]
    *models, certainty = inspect.announced(policy, Outcome("ana", changed=True), None)
    assert models == [before, after]
    assert certainty is not None
    assert 0.9 < certainty <= 1.0


def test_a_change_without_a_record_is_announced_with_the_segments_of_the_outcomes() -> None:
    outcome = Outcome("ana", changed=True, segment=4)
    assert inspect.announced(dyclu.LinUCB(2), outcome, 3) == (3, 4, None)


def test_groups_of_dyclu_have_the_tastes_of_their_users() -> None:
    policy = dyclu.DyClu(2, noise=0.05)
    learnt(policy, TWO, rounds=30, seed=0)
    found = inspect.largest(policy.models)
    assert [model.users for model in found] == [2, 2]
    assert {policy.locate(user).model for user in TWO} == {model.id for model in found}
    estimates = sorted(np.round(model.estimate, 1).tolist() for model in found)
    assert np.allclose(estimates, [[0.0, 1.0], [1.0, 0.0]], atol=0.11)


def test_the_map_keeps_distances_in_a_plane() -> None:
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(7, 2)) @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    points = inspect.placed(flat)
    for i in range(7):
        expected = np.linalg.norm(flat - flat[i], axis=1)
        assert np.allclose(np.linalg.norm(points - points[i], axis=1), expected)


@pytest.mark.parametrize("count", [0, 1])
def test_a_map_of_at_most_one_model_has_its_point_at_the_origin(count: int) -> None:
    assert inspect.placed(np.ones((count, 3))).tolist() == [[0.0, 0.0]] * count
