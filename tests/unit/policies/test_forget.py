"""`forget`: what goes, and what stays exactly as it was for the other users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu.policies import Club, DyClu, Oracle, Sclub
from dyclu.policies.dyclu.segments import Segment
from dyclu.policy import Outcome, Policy
from dyclu.validation import FloatArray, User

DIM = 3
USERS = tuple(f"u{number}" for number in range(9))
GONE = ("u0", "u4", "u8")
ARMS = np.random.default_rng(7).normal(size=(6, DIM))

Observation = tuple[User, FloatArray, float]

SEPARATE: dict[str, Callable[[], Policy]] = {
    "linucb": lambda: dyclu.policies.make("linucb", DIM, noise=0.1),
    "discounted-linucb": lambda: dyclu.policies.make("discounted-linucb", DIM, noise=0.1),
    "sliding-linucb": lambda: dyclu.policies.make("sliding-linucb", DIM, noise=0.1, window=9),
    "dlinucb": lambda: dyclu.policies.make("dlinucb", DIM, noise=0.1),
    "adts": lambda: dyclu.policies.make("adts", DIM, noise=0.1, window=10, interval=5),
}
"""Policies in which users share nothing, given the noise."""


def observations(rounds: int, *, seed: int, without: tuple[User, ...] = ()) -> list[Observation]:
    """Return observations of users with one of three tastes each, who change once, in turn."""
    rng = np.random.default_rng(seed)
    tastes = 2 * rng.normal(size=(3, DIM))
    found: list[Observation] = []
    for time in range(rounds):
        for number, user in enumerate(USERS):
            x, noise = rng.normal(size=DIM), 0.1 * rng.normal()
            taste = tastes[(number + (time > rounds // 2)) % 3]
            found.append((user, x, float(x @ taste + noise)))
    return [one for one in found if one[0] not in without]


def learn(policy: Policy, some: list[Observation]) -> list[Outcome]:
    return [policy.learn(*one) for one in some]


def forget(policy: Policy) -> None:
    for user in GONE:
        policy.forget(user)


@pytest.mark.parametrize("make", SEPARATE.values(), ids=SEPARATE)
def test_users_who_share_nothing_are_served_as_if_nobody_was_forgotten(
    make: Callable[[], Policy],
) -> None:
    policy, twin = make(), make()
    for one in (policy, twin):
        learn(one, observations(40, seed=0))
    forget(policy)
    for some in ([], observations(30, seed=1, without=GONE)):
        learn(policy, some)
        learn(twin, some)
        for user in set(USERS) - set(GONE):
            assert policy.decide(user, ARMS) == twin.decide(user, ARMS)


@pytest.mark.parametrize("make", SEPARATE.values(), ids=SEPARATE)
def test_a_forgotten_user_who_comes_back_is_served_as_a_new_one(
    make: Callable[[], Policy],
) -> None:
    policy, some = make(), observations(12, seed=2)
    learn(policy, observations(40, seed=0))
    forget(policy)
    for one in some:
        policy.learn(*one)
        policy.learn(f"new {one[0]}", *one[1:])
    for user in GONE:
        back, new = policy.decide(user, ARMS), policy.decide(f"new {user}", ARMS)
        assert (back.arm, back.mean, back.width) == (new.arm, new.mean, new.width)


def test_a_shared_model_keeps_the_observations_of_forgotten_users() -> None:
    policy = dyclu.LinUCB(DIM, shared=True)
    learn(policy, observations(5, seed=0))
    before = policy.decide("u1", ARMS)
    forget(policy)
    assert policy.decide("u1", ARMS) == before


def test_an_oracle_starts_the_rounds_of_a_forgotten_user_again() -> None:
    policy = Oracle(1, truth=lambda user, time: time)
    for time in range(3):
        assert policy.learn("ana", [1.0], 1.0).segment == time
    policy.forget("ana")
    assert policy.learn("ana", [1.0], 1.0).segment == 0


@pytest.mark.parametrize("archive", ["all", 100])
def test_dyclu_forgets_as_if_it_had_never_learnt_the_user(archive: str | int) -> None:
    """With given noise, a segment depends on its user alone: the others' are the same."""
    policy, twin = (DyClu(DIM, noise=0.1, archive=archive) for _ in range(2))  # type: ignore[arg-type]
    assert any(one.changed for one in learn(policy, observations(40, seed=0)))
    learn(twin, observations(40, seed=0, without=GONE))
    forget(policy)
    for some in ([], observations(20, seed=3)):
        learn(policy, some)
        learn(twin, some)
        assert [owned(one) for one in policy.segments] == [owned(one) for one in twin.segments]
        for user in USERS:
            assert neighbours(policy, user) == neighbours(twin, user)
            ours, theirs = policy.decide(user, ARMS), twin.decide(user, ARMS)
            assert ours.arm == theirs.arm
            assert ours.mean == pytest.approx(theirs.mean)
            assert policy.locate(user).located == twin.locate(user).located
    assert [model.size for model in policy.models] == [model.size for model in twin.models]
    changes = [[(one.user, one.certainty) for one in each.changes] for each in (policy, twin)]
    assert changes[0] == changes[1]


def owned(segment: Segment) -> tuple[User, int, float, bool]:
    return segment.user, segment.stats.count, segment.stats.energy, segment.closed is None


def neighbours(policy: DyClu, user: User) -> list[tuple[User, int]]:
    of = {segment.id: (segment.user, segment.stats.count) for segment in policy.segments}
    return [of[id] for id in policy.neighbours(user)]


def test_dyclu_keeps_the_ids_of_the_others() -> None:
    policy = DyClu(DIM, noise=0.1)
    learn(policy, observations(40, seed=0))
    kept = [segment for segment in policy.segments if segment.user not in GONE]
    latest = max(segment.id for segment in policy.segments)
    forget(policy)
    assert [one.id for one in policy.segments] == [one.id for one in kept]
    assert policy.learn("u0", ARMS[0], 1.0).segment == latest + 1


def test_dyclu_with_folded_segments_forgets_the_segments_of_the_user(tmp_path: Path) -> None:
    policy = DyClu(DIM, noise=0.1, archive=3)
    for seed in range(4):
        learn(policy, observations(40, seed=seed))
        forget(policy)
        assert not {segment.user for segment in policy.segments} & set(GONE)
        assert set().union(*map(policy.neighbours, USERS)) <= {one.id for one in policy.segments}
    policy.save(tmp_path / "policy")
    assert set(dyclu.load(tmp_path / "policy").users) == set(policy.users)


def test_club_forgets_as_if_it_had_never_learnt_the_user() -> None:
    """Edges between two users depend on these two alone, if the contexts do."""
    policy, twin = Club(DIM, tolerance=0.5), Club(DIM, tolerance=0.5)
    learn(policy, observations(40, seed=0))
    learn(twin, observations(40, seed=0, without=GONE))
    forget(policy)
    assert len(policy.clusters) > 1
    assert groups(policy) == groups(twin)
    for user in set(USERS) - set(GONE):
        assert policy.decide(user, ARMS).mean == pytest.approx(twin.decide(user, ARMS).mean)


def test_club_separates_users_who_were_connected_through_a_forgotten_one() -> None:
    policy = Club(1, ridge=1.0)
    learn(policy, [(user, np.ones(1), 0.0) for user in ("left", "between", "right")])
    policy._edges[0, 2] = policy._edges[2, 0] = False
    policy.forget("between")
    assert groups(policy) == {("left",), ("right",)}


def test_sclub_keeps_no_share_of_a_forgotten_user_in_any_cluster() -> None:
    policy = Sclub(DIM, tolerance=0.5)
    for seed in range(3):
        learn(policy, observations(40, seed=seed))
        for user in (*GONE, *USERS[1:8:2]):
            policy.forget(user)
            rows = np.arange(len(policy._users))
            ids = policy._cluster[rows]
            assert 0 in ids
            assert ids.max() < len(rows)
            for id in rows:
                total = policy._users.total(rows[ids == id])
                np.testing.assert_allclose(policy._sums.gram[id], total.gram, rtol=1e-12)
                assert policy._sums.count[id] == total.count


def groups(policy: Club) -> set[tuple[User, ...]]:
    return {tuple(sorted(map(str, cluster))) for cluster in policy.clusters}


def test_club_keeps_no_sums_of_a_forgotten_user_in_rows_without_a_cluster() -> None:
    policy = Club(1, alpha=0.1, tolerance=0.1)
    for _ in range(200):
        policy.learn("ana", [1.0], 1.0)
        policy.learn("ben", [1.0], -1.0)
    policy.learn("cem", [1.0], 1.0)
    policy.learn("dua", [1.0], 1.0)
    policy.forget("ben")
    _, arrays = policy._dump()
    moments = arrays["cluster's moment"][:, 0]
    assert moments.sum() == pytest.approx(202.0)
    assert (moments >= 0.0).all()


def test_the_groups_of_dyclu_hold_present_neighbours_only() -> None:
    """With a full archive a row is used again; who was a neighbour then may be none now."""
    policy, reused = DyClu(DIM, noise=0.1, archive=2), 0
    for one in observations(60, seed=5) + observations(60, seed=6):
        policy.learn(*one)
        table = policy.table
        reused += table.next_id > len(table)
        for first, *others in table.groups():
            assert set(others) <= set(table.around(table.owner[first]).tolist())
    assert reused > 0
