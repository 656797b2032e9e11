from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dyclu import LinUCB
from dyclu.conformance import check_policy
from dyclu.errors import OptionError
from dyclu.policies.club import Club
from dyclu.policies.common.ridge_models import REFRESH
from dyclu.policy import Policy
from dyclu.sim.runs.play import play
from dyclu.sim.worlds.population import Population, World
from dyclu.storage import read
from dyclu.validation import FloatArray

Partition = set[frozenset[str | int]]


def stationary(*, users: int = 12, rounds: int = 250) -> World:
    """Return a world of three kinds of users, at least 0.9 apart, who never change."""
    setting = Population(
        users=users, parameters=3, dim=4, arms=60, rounds=rounds, shortest=rounds, longest=rounds
    )
    return setting.world(seed=3)


def truth(world: World) -> Partition:
    kinds = world.truth[:, 0]
    return {frozenset(np.flatnonzero(kinds == kind).tolist()) for kind in set(kinds.tolist())}


def found(policy: Club) -> Partition:
    return set(map(frozenset, policy.clusters))


def radius(count: int) -> float:
    return math.sqrt((1 + math.log(1 + count)) / (1 + count))


def feed(policy: Policy, rounds: int, *, users: int = 4, dim: int = 3, seed: int = 0) -> None:
    """Let users of opposite tastes send rewards in turn."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=dim)
    for t in range(rounds):
        x = rng.normal(size=dim)
        policy.learn(t % users, x, (-1) ** t * x @ theta + 0.1 * rng.normal())


class Literal:
    """CLUB on raw data: a set of edges, nothing kept but the rewards themselves."""

    def __init__(self, dim: int, *, tolerance: float) -> None:
        self.dim, self.tolerance = dim, tolerance
        self.data: dict[int, list[tuple[FloatArray, float]]] = {}
        self.edges: set[frozenset[int]] = set()

    def learn(self, user: int, x: FloatArray, y: float) -> None:
        if user not in self.data:
            self.edges |= {frozenset((user, other)) for other in self.data}
            self.data[user] = []
        self.data[user].append((x, y))
        self.edges -= {edge for edge in self.edges if user in edge and self.disproved(*edge)}

    def theta(self, user: int) -> FloatArray:
        A, b = 0.1 * np.eye(self.dim), np.zeros(self.dim)
        for x, y in self.data[user]:
            A, b = A + np.outer(x, x), b + y * x
        return np.asarray(np.linalg.solve(A, b))

    def disproved(self, a: int, b: int) -> bool:
        limit = self.tolerance * (radius(len(self.data[a])) + radius(len(self.data[b])))
        return bool(np.linalg.norm(self.theta(a) - self.theta(b)) > limit)

    def clusters(self) -> Partition:
        reach = {user: {user} for user in self.data}
        for a, b in self.edges:
            together = reach[a] | reach[b]
            reach |= dict.fromkeys(together, together)
        return set(map(frozenset, reach.values()))


@pytest.mark.parametrize("tolerance", [0.5, 1.0])
def test_equals_a_graph_computed_from_raw_data(tolerance: float) -> None:
    rng = np.random.default_rng(7)
    policy, literal = Club(3, tolerance=tolerance), Literal(3, tolerance=tolerance)
    thetas = rng.normal(size=(8, 3))
    partitions = set()
    for t in range(150):
        # The last users come late, to a graph that has thinned out.
        user, x = int(rng.integers(5 + t // 50)), rng.normal(size=3)
        y = float(x @ thetas[user] + 0.3 * rng.normal())
        policy.learn(user, x, y)
        literal.learn(user, x, y)
        names = list(policy._users.row)
        edges = {frozenset((names[i], names[j])) for i, j in np.argwhere(policy._edges)}
        assert edges == literal.edges
        assert found(policy) == literal.clusters()
        partitions.add(frozenset(literal.clusters()))
    assert len(partitions) > 8


def test_finds_exactly_the_true_clusters() -> None:
    # With 250 rewards each an edge bears a gap of 4 CB(250) = 0.65 < 0.9, while estimates with
    # noise 0.09 on unit contexts in 4 dimensions are off by some 0.09·√(4·4/250) = 0.02.
    world, policy = stationary(), Club(4)
    run = play(policy, world)
    assert found(policy) == truth(world)
    assert (run.precision[-12:] == 1).all()
    assert (run.recall[-12:] == 1).all()


def test_an_edge_is_removed_at_the_reward_that_contradicts_it() -> None:
    policy = Club(1, ridge=1.0, tolerance=1.0)
    policy.learn("ben", [1.0], -1.0)
    for k in range(1, 30):
        # ana's estimate is k/(k + 1), ben's −1/2.
        disproved = k / (k + 1) + 0.5 > radius(k) + radius(1)
        policy.learn("ana", [1.0], 1.0)
        assert len(policy.clusters) == 1 + disproved
    assert disproved


def test_width_shrinks_with_the_cluster_and_grows_with_time() -> None:
    policy = Club(2, ridge=0.5, alpha=0.2)
    assert policy.decide("ana", [[1.0, 0.0]]).width == pytest.approx(
        0.2 * math.sqrt(math.log(2) / 0.5)
    )
    for user in ("ana", "ben", "ana"):
        policy.learn(user, [1.0, 0.0], 0.1)
    # Three rewards so far, so this is round 4; λ counts once, not once per user.
    expected = 0.2 * math.sqrt(math.log(1 + 4) / (0.5 + 3))
    for user in ("ana", "ben", "somebody new"):
        assert policy.decide(user, [[1.0, 0.0]]).width == pytest.approx(expected)


@pytest.mark.parametrize(("tolerance", "shared"), [(1e9, True), (1e-9, False)])
def test_extreme_tolerances_keep_all_users_together_or_apart(
    tolerance: float, shared: bool
) -> None:
    # With everybody in one cluster, or nobody in any, all that is left of CLUB is its width.
    policy = Club(3, alpha=0.3, tolerance=tolerance)
    linucb = LinUCB(3, alpha=0.3, shared=shared)
    for twin in (policy, linucb):
        feed(twin, 200)
    arms = np.random.default_rng(1).normal(size=(20, 3))
    for user in range(4):
        for arm in arms:
            ours, theirs = policy.decide(user, arm[None]), linucb.decide(user, arm[None])
            assert ours.mean == pytest.approx(theirs.mean, rel=1e-9, abs=1e-12)
            assert ours.width == pytest.approx(theirs.width * math.sqrt(math.log(202)), rel=1e-9)


def test_clusters_split_and_never_merge() -> None:
    policy = Club(3, tolerance=0.5)
    feed(policy, 6, users=6)
    sizes = []
    for seed in range(60):
        before, edges = found(policy), policy._edges.copy()
        feed(policy, 6, users=6, seed=seed)
        assert not (policy._edges & ~edges).any()
        assert all(any(part <= whole for whole in before) for part in found(policy))
        sizes.append(len(before))
    assert sizes[0] < sizes[-1]


def test_order_of_arrival_does_not_matter() -> None:
    # What each user sends is the same, only who comes first in every sweep differs.
    rng = np.random.default_rng(4)
    thetas = np.repeat(np.eye(3), 4, axis=0)
    X = rng.normal(size=(100, 12, 3))
    y = np.einsum("tud,ud->tu", X, thetas) + 0.1 * rng.normal(size=(100, 12))
    expected = {frozenset(range(first, first + 4)) for first in (0, 4, 8)}
    for order in (range(12), reversed(range(12)), rng.permutation(12)):
        policy, sweep = Club(3), list(order)
        for t in range(100):
            for user in sweep:
                policy.learn(user, X[t, user], y[t, user])
        assert found(policy) == expected


def test_new_users_are_connected_to_all_users() -> None:
    policy, shared = Club(3), LinUCB(3, alpha=0.1, shared=True)
    for twin in (policy, shared):
        feed(twin, 800)
    assert len(policy.clusters) > 1
    arms = np.eye(3)
    assert policy.decide("new", arms[:1]).mean == pytest.approx(shared.decide(0, arms[:1]).mean)
    outcome = policy.learn("new", arms[0], 0.0)
    assert outcome.segment == 4
    assert outcome.neighbours.tolist() == [0, 1, 2, 3, 4]
    shared.learn("new", arms[0], 0.0)
    assert policy.decide(0, arms[:1]).mean == pytest.approx(shared.decide(0, arms[:1]).mean)


def test_clusters_hold_the_sum_of_their_users_in_long_runs() -> None:
    rng = np.random.default_rng(5)
    rounds = 2 * REFRESH + 7
    user = rng.integers(6, size=rounds)
    X = rng.normal(size=(rounds, 3))
    y = (-1.0) ** user * X[:, 0] + 0.1 * rng.normal(size=rounds)
    policy = Club(3)
    for t in range(rounds):
        policy.learn(int(user[t]), X[t], y[t])
    assert len(policy.clusters) == 2
    for members in policy.clusters:
        own = np.isin(user, members)
        theta = np.linalg.solve(X[own].T @ X[own] + 0.1 * np.eye(3), X[own].T @ y[own])
        assert policy.decide(members[-1], X[:1]).mean == pytest.approx(X[0] @ theta, rel=1e-9)


def test_numbers_of_any_size_give_finite_results() -> None:
    rng = np.random.default_rng(6)
    policy = Club(3)
    for t in range(400):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide(t % 5, arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn(t % 5, arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


def test_contract_holds_while_clusters_split() -> None:
    check_policy(lambda: Club(5, tolerance=0.3), load=lambda path: Club.restore(read(path)))


@pytest.mark.parametrize("option", ["ridge", "alpha", "tolerance"])
def test_options_are_checked(option: str) -> None:
    with pytest.raises(OptionError, match=f"{option} is 0"):
        Club(2, **{option: 0})


def test_removed_edges_are_saved(tmp_path: Path) -> None:
    policy = Club(3)
    feed(policy, 600)
    policy.save(tmp_path / "policy")
    loaded = Club.restore(read(tmp_path / "policy"))
    assert policy._edges.any()
    assert not policy._edges[0, 1]
    assert np.array_equal(loaded._edges, policy._edges)


def test_options_survive_saving(tmp_path: Path) -> None:
    policy = Club(2, ridge=0.5, alpha=0.7, tolerance=3.0)
    policy.save(tmp_path / "policy")
    assert repr(Club.restore(read(tmp_path / "policy"))) == repr(policy)
    assert repr(policy) == "Club(dim=2, ridge=0.5, alpha=0.7, tolerance=3.0)"
