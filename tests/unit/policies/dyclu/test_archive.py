"""An archive that is full folds what resembles each other, and never grows again."""

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


def live(
    policy: DyClu, *, changes: int, tastes: Any = TASTES[:2], period: int = 40
) -> list[Outcome]:
    """Let two users jump from taste to taste; return all outcomes."""
    rng = np.random.default_rng(5)
    outcomes = []
    for step in range(period * (changes + 1)):
        for user in range(2):
            x = rng.normal(size=DIM)
            taste = tastes[(step // period + user) % len(tastes)]
            outcomes.append(policy.learn(user, x, float(x @ taste + 0.05 * rng.normal())))
    return outcomes


def told(outcomes: list[Outcome]) -> list[tuple[Outcome, list[int]]]:
    """Return outcomes with what comparing them leaves out."""
    return [(outcome, outcome.neighbours.tolist()) for outcome in outcomes]


def closed(policy: DyClu) -> list[int]:
    return [segment.id for segment in policy.segments if segment.closed is not None]


def test_never_more_closed_segments_than_asked_for() -> None:
    policy = DyClu(DIM, noise=0.05, archive=3)
    live(policy, changes=12)
    assert len(policy.changes) >= 20
    assert len(closed(policy)) == 3
    assert len(policy.segments) == 5


def test_what_resembles_each_other_adds_up_and_nothing_is_lost() -> None:
    policy = DyClu(DIM, noise=0.05, archive=2)
    kept = sum(outcome.kept for outcome in live(policy, changes=12))
    assert sum(segment.stats.count for segment in policy.segments) == kept
    for segment in policy.segments:
        gaps = np.linalg.norm(TASTES[:2] - segment.stats.theta, axis=1)
        # Tastes lie √2 apart, an estimate of 35 rewards some 0.015 from its own.
        assert gaps.min() < 0.1, "tastes were mixed"


def test_of_what_resembles_nothing_the_smallest_goes() -> None:
    policy = DyClu(DIM, noise=0.05, archive=1)
    live(policy, changes=2, tastes=np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]))
    (id,) = closed(policy)
    everything = DyClu(DIM, noise=0.05)
    live(everything, changes=2, tastes=np.array([[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]))
    counts = {s.id: s.stats.count for s in everything.segments if s.closed is not None}
    assert id == max(counts, key=lambda id: counts[id])


def test_ids_are_never_used_again() -> None:
    policy = DyClu(DIM, noise=0.05, archive=1)
    outcomes = live(policy, changes=10)
    started = [outcome.segment or 0 for outcome in outcomes if outcome.changed]
    assert started == sorted(set(started))
    assert [change.after for change in policy.changes] == started
    for change in policy.changes:
        assert change.before < change.after


def two_users(*, counts: tuple[int, int] = (4, 6)) -> SegmentTable:
    """Return a book of ana and ben who have met, and one closed segment of cem's."""
    book = SegmentTable(DIM, folding=True)
    for user, count in zip(("ana", "ben"), counts, strict=True):
        row = book.start(user)
        for x in (*TASTES, *TASTES)[:count]:
            book.add(row, x, 1.0, spanned=False)
    book.start("cem")
    for x in (*TASTES, *TASTES)[:5]:
        book.add(2, x, 2.0, spanned=False)
    book.clock = 9
    book.start("cem")
    book.set_neighbours(1, np.array([0, 1, 2]), np.empty((3, 3)))
    book.clock = 10
    return book


def test_a_neighbour_whose_row_was_used_again_is_none_until_met_anew() -> None:
    book = two_users()
    assert book.around("ben").tolist() == [0, 1, 2]
    book.restart("ana", into=2, alike=True)  # ana's row now holds what she has become
    assert book.around("ben").tolist() == [1, 2]
    assert book.ids(book.around("ben")).tolist() == [1, 2]
    book.set_neighbours(1, np.array([0, 1]), np.empty((2, 3)))
    assert book.around("ben").tolist() == [0, 1]


def test_a_replaced_neighbour_is_none_either_and_its_row_has_a_new_owner() -> None:
    book = two_users(counts=(6, 6))
    book.restart("ana", into=2, alike=False)
    assert book.around("ben").tolist() == [1]
    assert (book.owner[2], int(book.id[2]), int(book.count[2])) == ("ana", 0, 6)
    assert (book.owner[0], int(book.id[0]), int(book.count[0])) == ("ana", 4, 0)
    assert book.open["ana"] == 0


def test_the_smaller_of_two_that_differ_is_dropped() -> None:
    book = two_users(counts=(4, 6))
    book.restart("ana", into=2, alike=False)
    assert (book.owner[2], int(book.id[2]), int(book.count[2])) == ("cem", 2, 5)
    assert book.around("ben").tolist() == [1, 2]


def test_folded_segments_are_the_sum() -> None:
    book = two_users()
    expected = book.stats(0) + book.stats(2)
    book.restart("ana", into=2, alike=True)
    assert book.stats(2) == expected
    np.testing.assert_allclose(book.theta[2], expected.theta)
    assert book.rank[2] == expected.rank


def test_what_cannot_be_compared_is_not_folded() -> None:
    """Ana has seen one direction and ben another: nothing says that they are alike."""
    policy = DyClu(2, noise=0.05, archive=1, window=4)
    for user, x in (("ana", [1.0, 0.0]), ("ben", [0.0, 1.0])):
        for reward in (1.0, 50.0):
            for _ in range(30):
                policy.learn(user, x, reward)
    assert len(policy.changes) == 2
    (kept,) = (segment for segment in policy.segments if segment.closed is not None)
    assert kept.stats.rank == 1


def test_saved_and_loaded_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    check_policy(lambda: DyClu(DIM, archive=1))
    policy = DyClu(DIM, noise=0.05, archive=2)
    live(policy, changes=5)
    policy.save(tmp_path / "policy")
    loaded = dyclu.load(tmp_path / "policy")
    assert isinstance(loaded, DyClu)
    assert loaded.changes == policy.changes
    assert told(live(loaded, changes=3)) == told(live(policy, changes=3))


def test_a_large_archive_changes_nothing() -> None:
    many, every = DyClu(DIM, archive=1000), DyClu(DIM)
    assert told(live(many, changes=6)) == told(live(every, changes=6))


def test_a_small_archive_costs_little_where_tastes_return() -> None:
    """Ten short periods each among 4 tastes: 3 closed segments serve nearly as well as 200."""
    world = Population(
        users=20, parameters=4, dim=5, arms=100, offered=6, rounds=300, shortest=25, longest=40
    ).world(seed=3)
    whole, folded = DyClu(5, noise=0.09), DyClu(5, noise=0.09, archive=6)
    lost = [float(regret(play(policy, world))[-1]) for policy in (whole, folded)]
    assert len(closed(whole)) > 100
    assert len(closed(folded)) == 6
    assert lost[1] < 1.15 * lost[0]


@pytest.mark.parametrize("archive", [0, -1, 1.5, "some", None, True])
def test_an_archive_is_all_or_a_number(archive: Any) -> None:
    with pytest.raises(DycluError, match="archive"):
        DyClu(DIM, archive=archive)
