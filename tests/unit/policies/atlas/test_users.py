"""What is kept of a user: segments with and without a seat, beliefs, one row of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import Atlas, kernels
from dyclu.core.evidence import Prior
from dyclu.policies.atlas.tastes import GONE, NEW, Tastes
from dyclu.policies.atlas.users import NONE, STANDING, UNLIKELY, Segment, Users
from tests.properties.observations import SEEDS

DIM, LAG = 4, 5


def there(lag: int = LAG) -> Users:
    models = Tastes(DIM, Prior(np.zeros(DIM), 1.0, 0.01))
    return Users(DIM, lag=lag, models=models)


@given(SEEDS, st.integers(0, 12), st.integers(1, 6))
def test_a_segment_is_the_sum_of_its_observations(seed: int, count: int, lag: int) -> None:
    rng, users = np.random.default_rng(seed), there(lag)
    row = users.welcome("ana", clock=0)
    contexts, rewards = rng.normal(size=(count, DIM)), rng.normal(size=count)
    for x, y in zip(contexts, rewards, strict=True):
        users.extend(row, x, float(y))
    gram, moment, size = users.segment(row)
    np.testing.assert_allclose(gram, contexts.T @ contexts, atol=1e-12)
    np.testing.assert_allclose(moment, contexts.T @ rewards, atol=1e-12)
    assert size == count
    assert (users.seat[row] == STANDING) == (count <= lag)


def test_a_seat_is_lent_only_to_long_segments_and_used_again() -> None:
    users = there()
    for name in range(100):
        row = users.welcome(name, clock=0)
        for _ in range(LAG):
            users.extend(row, np.ones(DIM), 1.0)
    assert users.seats.rows == 0
    for name in range(100):
        row = users.row[name]
        users.extend(row, np.ones(DIM), 1.0)
        assert users.segment(row).size == LAG + 1
        users.stand(row)
        assert users.seat[row] == NONE
    assert users.seats.rows == 1


def test_a_row_that_was_lent_holds_only_the_new_sums() -> None:
    users = there()
    first, second = users.welcome("a", clock=0), users.welcome("b", clock=0)
    users.sit(first, Segment(np.eye(DIM), np.ones(DIM), 3.0))
    users.stand(first)
    users.sit(second, Segment(2 * np.eye(DIM), np.zeros(DIM), 1.0))
    gram, moment, size = users.segment(second)
    np.testing.assert_array_equal(gram, 2 * np.eye(DIM))
    assert moment.sum() == 0.0
    assert size == 1.0


def test_what_waits_after_the_cut_is_the_segment_of_somebody_suspected() -> None:
    users = there()
    row = users.welcome("ana", clock=0)
    users.stand(row)
    users.waiting[row] = LAG
    users.contexts[row] = np.arange(LAG * DIM).reshape(LAG, DIM)
    users.rewards[row] = np.arange(LAG)
    users.suspect(row, cut=2)
    assert users.segment(row).size == LAG - 2
    np.testing.assert_array_equal(users.rewards[row, : LAG - 2], np.arange(2, LAG))
    np.testing.assert_array_equal(users.contexts[row, 0], np.arange(2 * DIM, 3 * DIM))


def test_beliefs_follow_models_that_are_founded_merged_and_closed() -> None:
    users = there()
    models, row = users.models, users.welcome("ana", clock=0)
    one, two, three = (models.found(clock) for clock in range(3))
    users.doubt_with(row, np.array([0.1, 0.2, 0.3, 0.4]))
    np.testing.assert_allclose(users.belief(row), [0.1, 0.2, 0.3, 0.4])
    models.close(two, into=one)
    np.testing.assert_allclose(users.belief(row), [0.1, 0.5, 0.0, 0.4])
    # Another model in the same row is not the one that was believed in.
    assert models.found(clock=9) == two
    np.testing.assert_allclose(users.belief(row), [0.1, 0.5, 0.0, 0.4])
    # What was believed of a model that is gone is shared by the others.
    models.close(three)
    np.testing.assert_allclose(users.belief(row), [1 / 6, 5 / 6, 0.0])
    models.close(one)
    np.testing.assert_allclose(users.belief(row)[NEW], 1.0)
    assert users.belief(row)[1:].sum() == 0.0
    assert models.rows_of([0, 1, 2, 3]) == [GONE, GONE, GONE, two]


def test_beliefs_leave_out_what_is_unlikely_but_never_somebody_new() -> None:
    users = there()
    row = users.welcome("ana", clock=0)
    for clock in range(3):
        users.models.found(clock)
    weight = np.array([0.001, 0.9, UNLIKELY / 2, 0.09])
    users.doubt_with(row, weight)
    np.testing.assert_allclose(users.belief(row), [0.001, 0.9, 0.0, 0.09])
    users.doubt_with(row, weight, unlikely=0.0)
    np.testing.assert_allclose(users.belief(row), weight)


def test_a_row_of_numbers_is_read_as_a_kernel_reads_it() -> None:
    users = there()
    row = users.welcome("ana", clock=0)
    users.ledger[row] = np.arange(users.ledger.shape[1])
    assert users.waiting[row] == kernels.atlas.WAITING
    assert users.credited[row] == kernels.atlas.CREDITED
    assert users.due[row] == kernels.atlas.DUE
    assert users.score[row, 0] == kernels.atlas.SCORE
    assert users.rewards[row, 0] == kernels.atlas.SCORE + DIM
    assert users.contexts[row, 0, 0] == kernels.atlas.SCORE + DIM + LAG
    assert users.contexts[row, -1, -1] == users.ledger.shape[1] - 1
    models = users.models
    models.tally[NEW] = np.arange(models.tally.shape[1])
    parts = (models.count, models.evidence, models.checked, models.updates, models.visited)
    assert [part[NEW] for part in (*parts, models.entry)] == list(range(6))


def test_rows_stay_what_they_were_as_users_come() -> None:
    users = there()
    for name in range(50):
        row = users.welcome(name, clock=0)
        users.extend(row, np.full(DIM, float(name)), float(name))
    assert [users.rewards[users.row[name], 0] for name in range(50)] == list(range(50))


@pytest.mark.parametrize("visits", [1, 2, 5])
def test_a_stranger_costs_less_than_two_kilobytes(visits: int) -> None:
    policy, rng = Atlas(25, noise=0.1), np.random.default_rng(0)
    names = list(range(300))
    for _ in range(visits):
        policy.learn_many(names, rng.normal(size=(300, 25)), rng.normal(size=300))
    users = policy._tracker.users
    beliefs = sum(ids.nbytes + weight.nbytes for ids, weight in users.doubts.values())
    _, arrays = users.dump()
    seats = users.seats.rows * (25 * 25 + 25 + 1) * 8
    located = int((users.seat[:300] == NONE).sum())
    assert seats == 0
    assert located == 0
    assert sum(array.nbytes for array in arrays.values()) + beliefs < 2048 * 300
