"""A full archive merges homogeneous segments, and does not grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu import DyClu
from dyclu.conformance import check_policy
from dyclu.errors import DycluError
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.policy import Outcome
from dyclu.sim.runs.measures import regret
from dyclu.sim.runs.play import play
from dyclu.sim.worlds.population import Population

DIM = 3
TASTES = np.eye(DIM)


def learn_with_changes(
    policy: DyClu, *, changes: int, tastes: Any = TASTES[:2], period: int = 40
) -> list[Outcome]:
    """Learn rewards of two users who change their taste every `period` rewards."""
    rng = np.random.default_rng(5)
    outcomes = []
    for step in range(period * (changes + 1)):
        for user in range(2):
            x = rng.normal(size=DIM)
            taste = tastes[(step // period + user) % len(tastes)]
            outcomes.append(policy.learn(user, x, float(x @ taste + 0.05 * rng.normal())))
    return outcomes


def comparable(outcomes: list[Outcome]) -> list[tuple[Outcome, list[int]]]:
    """Return outcomes with their neighbours, which ``==`` of outcomes ignores."""
    return [(outcome, outcome.neighbours.tolist()) for outcome in outcomes]


def closed(policy: DyClu) -> list[int]:
    return [segment.id for segment in policy.segments if segment.closed is not None]


def test_archive_limits_the_number_of_closed_segments() -> None:
    policy = DyClu(DIM, noise=0.05, archive=3)
    learn_with_changes(policy, changes=12)
    assert len(policy.changes) >= 20
    assert len(closed(policy)) == 3
    assert len(policy.segments) == 5


def test_homogeneous_segments_are_merged_without_losing_observations() -> None:
    policy = DyClu(DIM, noise=0.05, archive=2)
    kept = sum(outcome.kept for outcome in learn_with_changes(policy, changes=12))
    assert sum(segment.stats.count for segment in policy.segments) == kept
    for segment in policy.segments:
        gaps = np.linalg.norm(TASTES[:2] - segment.stats.theta, axis=1)
        # The distance of tastes is √2; the error of an estimate from 35 rewards is about 0.015.
        assert gaps.min() < 0.1, "segments of different tastes were merged"


def test_without_homogeneous_segments_the_smallest_is_dropped() -> None:
    policy = DyClu(DIM, noise=0.05, archive=1)
    learn_with_changes(policy, changes=2, tastes=np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]))
    (id,) = closed(policy)
    everything = DyClu(DIM, noise=0.05)
    learn_with_changes(
        everything, changes=2, tastes=np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]])
    )
    counts = {s.id: s.stats.count for s in everything.segments if s.closed is not None}
    assert id == max(counts, key=lambda id: counts[id])


def test_ids_are_never_reused() -> None:
    policy = DyClu(DIM, noise=0.05, archive=1)
    outcomes = learn_with_changes(policy, changes=10)
    started = [outcome.segment or 0 for outcome in outcomes if outcome.changed]
    assert started == sorted(set(started))
    assert [change.after for change in policy.changes] == started
    for change in policy.changes:
        assert change.before < change.after


def two_users(*, counts: tuple[int, int] = (4, 6)) -> SegmentTable:
    """Return a table of three users; ben's neighbours are ana and a closed segment of cem."""
    table = SegmentTable(DIM, folding=True)
    for user, count in zip(("ana", "ben"), counts, strict=True):
        row = table.start(user)
        for x in (*TASTES, *TASTES)[:count]:
            table.add(row, x, 1.0, spanned=False)
    table.start("cem")
    for x in (*TASTES, *TASTES)[:5]:
        table.add(2, x, 2.0, spanned=False)
    table.clock = 9
    table.start("cem")
    table.set_neighbours(1, np.array([0, 1, 2]), np.empty((3, 3)))
    table.clock = 10
    return table


def test_a_segment_in_a_reused_row_is_no_neighbour_until_it_is_compared_again() -> None:
    table = two_users()
    assert table.around("ben").tolist() == [0, 1, 2]
    table.restart("ana", into=2, alike=True)  # ana's row now holds her new segment
    assert table.around("ben").tolist() == [1, 2]
    assert table.ids(table.around("ben")).tolist() == [1, 2]
    table.set_neighbours(1, np.array([0, 1]), np.empty((2, 3)))
    assert table.around("ben").tolist() == [0, 1]


def test_a_replaced_segment_is_no_neighbour_and_its_row_has_a_new_owner() -> None:
    table = two_users(counts=(6, 6))
    table.restart("ana", into=2, alike=False)
    assert table.around("ben").tolist() == [1]
    assert (table.owner[2], int(table.id[2]), int(table.count[2])) == ("ana", 0, 6)
    assert (table.owner[0], int(table.id[0]), int(table.count[0])) == ("ana", 4, 0)
    assert table.open["ana"] == 0


def test_the_smaller_of_two_different_segments_is_dropped() -> None:
    table = two_users(counts=(4, 6))
    table.restart("ana", into=2, alike=False)
    assert (table.owner[2], int(table.id[2]), int(table.count[2])) == ("cem", 2, 5)
    assert table.around("ben").tolist() == [1, 2]


def test_merged_segments_have_the_sum_of_their_stats() -> None:
    table = two_users()
    expected = table.stats(0) + table.stats(2)
    table.restart("ana", into=2, alike=True)
    assert table.stats(2) == expected
    np.testing.assert_allclose(table.theta[2], expected.theta)
    assert table.rank[2] == expected.rank


def test_segments_that_cannot_be_compared_are_not_merged() -> None:
    """Ana and ben have no direction in common, so there is no evidence that they are alike."""
    policy = DyClu(2, noise=0.05, archive=1, window=4)
    for user, x in (("ana", [1.0, 0.0]), ("ben", [0.0, 1.0])):
        for reward in (1.0, 50.0):
            for _ in range(30):
                policy.learn(user, x, reward)
    assert len(policy.changes) == 2
    (kept,) = (segment for segment in policy.segments if segment.closed is not None)
    assert kept.stats.rank == 1


def test_a_loaded_policy_continues_bit_for_bit(tmp_path: Path) -> None:
    check_policy(lambda: DyClu(DIM, archive=1))
    policy = DyClu(DIM, noise=0.05, archive=2)
    learn_with_changes(policy, changes=5)
    policy.save(tmp_path / "policy")
    loaded = dyclu.load(tmp_path / "policy")
    assert isinstance(loaded, DyClu)
    assert loaded.changes == policy.changes
    assert comparable(learn_with_changes(loaded, changes=3)) == comparable(
        learn_with_changes(policy, changes=3)
    )


def test_an_archive_that_is_never_full_changes_no_outcome() -> None:
    many, every = DyClu(DIM, archive=1000), DyClu(DIM)
    assert comparable(learn_with_changes(many, changes=6)) == comparable(
        learn_with_changes(every, changes=6)
    )


def test_a_small_archive_costs_little_regret_if_tastes_return() -> None:
    """Ten short periods per user and 4 tastes: 6 closed segments are nearly as good as all."""
    world = Population(
        users=20, parameters=4, dim=5, arms=100, offered=6, rounds=300, shortest=25, longest=40
    ).world(seed=3)
    whole, folded = DyClu(5, noise=0.09), DyClu(5, noise=0.09, archive=6)
    regrets = [float(regret(play(policy, world))[-1]) for policy in (whole, folded)]
    assert len(closed(whole)) > 100
    assert len(closed(folded)) == 6
    assert regrets[1] < 1.15 * regrets[0]


@pytest.mark.parametrize("archive", [0, -1, 1.5, "some", None, True])
def test_an_invalid_archive_raises_an_error(archive: Any) -> None:
    with pytest.raises(DycluError, match="archive"):
        DyClu(DIM, archive=archive)
