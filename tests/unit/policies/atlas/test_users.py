"""What is kept of users and of tastes: memories, segments, rows that are used again."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import kernels
from dyclu.policies.atlas.tastes import EVERYTHING, NEW, Tastes
from dyclu.policies.atlas.users import CAPACITIES, LOCATED, NONE, Users
from dyclu.policies.common.population import Population
from tests.properties.observations import SEEDS

DIM = 3


def remember(users: Users, row: int, y: float, span: int = 4) -> None:
    """Append a reward of weight 1 to a user's memory, whose context repeats the reward."""
    block = users.roomy_memory(row, span)
    kernels.ledger.remember(users.ledger[row], block, np.full(DIM, y), y, y, 1.0, -1.0, 0.0)


def rewards(users: Users, row: int) -> list[float]:
    held = users.memory(row)[: int(users.length[row]), DIM + kernels.memory.REWARD]
    return [float(y) for y in held]


def test_a_memory_grows_up_to_the_span_and_keeps_the_last_rewards() -> None:
    users = Users(DIM)
    row = users.welcome("ana")
    for y in range(1, 60):
        remember(users, row, float(y), span=20)
        # A block is left when it is full and the span asks for more; the next one holds 24.
        assert rewards(users, row) == [float(t) for t in range(max(1, y - 23), y + 1)]
    assert CAPACITIES[int(users.pool[row])] == 24


def test_a_memory_shrinks_when_half_of_it_would_be_enough() -> None:
    users = Users(DIM)
    row = users.welcome("ana")
    for y in range(40):
        remember(users, row, float(y), span=32)
    for y in range(40, 60):
        remember(users, row, float(y), span=4)
    assert CAPACITIES[int(users.pool[row])] <= 12
    held = rewards(users, row)
    assert held == [float(t) for t in range(60 - len(held), 60)]


def test_memories_of_two_users_never_share_a_block() -> None:
    users, rng = Users(DIM), np.random.default_rng(0)
    rows = {name: users.welcome(name) for name in range(6)}
    expected: dict[int, list[float]] = {name: [] for name in rows}
    for step in range(300):
        name = int(rng.integers(6))
        remember(users, rows[name], float(step), span=int(rng.integers(4, 40)))
        expected[name].append(float(step))
        for other, row in rows.items():
            held = rewards(users, row)
            assert held == expected[other][len(expected[other]) - len(held) :]


@given(SEEDS, st.integers(0, 4))
def test_a_segment_that_is_not_stored_is_the_sum_of_the_memory(seed: int, count: int) -> None:
    """It sums responses; the rewards themselves, 9 here, do not matter."""
    rng, users = np.random.default_rng(seed), Users(DIM)
    row = users.welcome("ana")
    users.holding[row] = 7.0
    X, y = rng.normal(size=(count, DIM)), rng.normal(size=count)
    for x, reward in zip(X, y.tolist(), strict=True):
        block = users.roomy_memory(row, 4)
        kernels.ledger.remember(users.ledger[row], block, x, 9.0, reward, 0.5, 0.0, 0.0)
    Z = np.column_stack((X, np.ones(count)))
    for _ in range(2):
        gram, moment, sums = users.segment(row)
        np.testing.assert_allclose(gram, 0.5 * Z.T @ Z, atol=1e-12)
        np.testing.assert_allclose(moment, 0.5 * Z.T @ y, atol=1e-12)
        assert sums.tolist() == pytest.approx([count, 0.5 * y @ y, 7.0, 1.0])
        users.store_segment(row)  # and so is the one that is stored


def test_dropping_the_oldest_rewards_keeps_the_rest() -> None:
    users = Users(DIM)
    row = users.welcome("ana")
    for y in range(4):
        remember(users, row, float(y))
    users.forget_before(row, 3)
    assert rewards(users, row) == [3.0]


def test_nothing_of_a_dismissed_user_is_left() -> None:
    """Neither in the row nor in the memory, which others use next."""
    users = Users(DIM)
    row = users.welcome("ana")
    for y in range(1, 30):
        remember(users, row, float(y), span=16)
    users.doubtful[row] = None
    users.dismiss("ana")
    _, arrays = users.dump()
    assert not any(array.any() for array in arrays.values())
    assert users.welcome("ben") == row
    assert users.segment(row)[2][kernels.ledger.HELD] == 0.0


def test_renaming_a_model_replaces_it_everywhere() -> None:
    users = Users(DIM)
    for name in "ab":
        row = users.welcome(name)
        users.home[row], users.before[row] = 3, 3
        users.believe(row, 3)
    users.rename(3, 2)
    assert users.likely[:2, 0].tolist() == [2.0, 2.0]
    assert users.home[:2].tolist() == users.before[:2].tolist() == [2.0, 2.0]
    users.rename(2, NEW)  # the model is gone
    assert users.likely[:2, 0].tolist() == [NEW, NEW]
    assert users.home[:2].tolist() == users.before[:2].tolist() == [NONE, NONE]


def test_members_are_the_sums_of_beliefs_of_users_in_doubt() -> None:
    users = Users(DIM)
    for name, chance in (("a", 0.75), ("b", 0.25), ("located", 1.0)):
        row = users.welcome(name)
        users.likely[row, :2], users.chance[row, :2] = (2, NEW), (chance, 1.0 - chance)
        if name != "located":
            users.doubtful[row] = None
    assert users.members(users.in_doubt(), 4).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert users.believers(users.in_doubt(), 2, 0.5).tolist() == [users.row["a"]]
    assert users.believers(users.in_doubt(), NEW, 0.5).tolist() == [users.row["b"]]


def crowd(count: int, *, every: int) -> Users:
    """Return users who came once; one of `every` few is in doubt, the others are located."""
    users = Users(DIM)
    for name in range(count):
        row = users.welcome(name)
        users.rewards[row] = 1.0
        if name % every:
            users.status[row] = LOCATED
        else:
            users.doubtful[row] = None
    return users


def test_all_users_in_doubt_are_counted_while_they_are_few() -> None:
    users = crowd(30, every=3)
    users.dismiss(3)
    rows, weight = users.some_in_doubt(0)
    assert rows.tolist() == list(users.doubtful)
    assert weight == 1.0


@pytest.mark.parametrize("every", [1, 20])
def test_of_many_users_in_doubt_a_sample_of_the_wanted_size_stands_for_all(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Between half as many and twice as many as wanted; also where most users are located."""
    monkeypatch.setattr("dyclu.policies.atlas.users.COUNTED", 40)
    users = crowd(90 * every, every=every)
    for name in range(0, 10 * every, every):
        users.dismiss(name)
    drawn = Counter[int]()
    for turn in range(0, 7 * 300, 7):
        rows, weight = users.some_in_doubt(turn)
        assert weight * len(rows) == pytest.approx(len(users.doubtful))
        assert len(set(rows.tolist())) == len(rows)
        assert set(rows.tolist()) <= set(users.doubtful)
        drawn.update(rows.tolist())
    assert 20 <= drawn.total() / 300 <= 80
    # Each is drawn with a chance of one half; in 300 draws, five deviations are 43.
    assert all(abs(drawn[row] - 150) < 44 for row in users.doubtful)


def test_any_two_users_in_doubt_of_different_blocks_are_in_some_sample_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise two users with a taste of their own could never found a model."""
    monkeypatch.setattr("dyclu.policies.atlas.users.COUNTED", 10)
    users = crowd(40, every=1)
    pairs: set[tuple[int, ...]] = set()
    for turn in range(0, 7 * 400, 7):
        rows = sorted(users.some_in_doubt(turn)[0].tolist())
        pairs.update(combinations(rows, 2))
    wanted = {(a, b) for a, b in combinations(range(40), 2) if a // 4 != b // 4}
    assert pairs == wanted


# Tastes


def test_rows_of_models_are_used_again_and_ids_are_not() -> None:
    tastes = Tastes(DIM)
    first, second = tastes.found(clock=5), tastes.found(clock=6)
    tastes.add(first, np.eye(DIM + 1), np.ones(DIM + 1), 3.0)
    tastes.close(first)
    again = tastes.found(clock=9)
    assert (again, len(tastes), tastes.rows.tolist()) == (first, 2, [NEW, first, second])
    assert [int(tastes.id[row]) for row in (second, again)] == [1, 2]
    assert not tastes.precision[again].any()
    assert tastes.count[again] == 0.0
    assert tastes.founded[again] == 9


def test_many_models_keep_their_contents_as_rows_grow() -> None:
    tastes = Tastes(DIM)
    for number in range(60):
        row = tastes.found(clock=number)
        tastes.add(row, number * np.eye(DIM + 1), np.full(DIM + 1, float(number)), float(number))
    for row in tastes.rows[1:].tolist():
        assert tastes.shift[row, 0] == tastes.count[row] == tastes.id[row]


def test_what_was_added_to_a_model_can_be_taken_out() -> None:
    tastes = Tastes(DIM)
    row = tastes.found(clock=0)
    for count in (5.0, -5.0):
        tastes.add(row, 2.0 * np.eye(DIM + 1), np.ones(DIM + 1), count)
    assert not tastes.precision[row].any()
    assert not tastes.shift[row].any()
    assert tastes.count[row] == 0.0


def test_a_new_prior_makes_all_estimates_stale_until_they_are_refreshed() -> None:
    tastes, population = Tastes(DIM), Population(DIM, noise=None, rewards=None)
    row = tastes.found(clock=0)
    tastes.add(row, np.eye(DIM + 1), np.ones(DIM + 1), 4.0)
    tastes.refresh(population)
    np.testing.assert_allclose(tastes.theta[row], 0.5)  # the prior is N(0, I)
    population.precision, population.shift = 3.0 * np.eye(DIM + 1), np.zeros(DIM + 1)
    tastes.invalidate()
    assert tastes.stale[row] >= EVERYTHING
    assert np.isnan(tastes.evidence[row])
    tastes.refresh(population)
    np.testing.assert_allclose(tastes.theta[row], 0.25)
    np.testing.assert_allclose(tastes.covariance[NEW], np.eye(DIM + 1) / 3.0)
