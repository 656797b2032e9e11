from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dyclu import Stats
from tests.properties.observations import (
    SEEDS,
    Raw,
    as_stats,
    contexts,
    pairs,
    rank_of,
    well_separated,
)


@st.composite
def whole_stats(draw: st.DrawFn) -> Stats:
    """Draw statistics of small whole numbers, whose sums are exact in floating point."""
    rng = np.random.default_rng(draw(SEEDS))
    n = draw(st.integers(1, 9))
    return Stats.of(rng.integers(-9, 10, size=(n, 3)), rng.integers(-9, 10, size=n))


@given(whole_stats(), whole_stats())
def test_addition_is_commutative(a: Stats, b: Stats) -> None:
    assert a + b == b + a


@given(whole_stats(), whole_stats(), whole_stats())
def test_addition_is_associative(a: Stats, b: Stats, c: Stats) -> None:
    assert (a + b) + c == a + (b + c)


@given(whole_stats())
def test_adding_empty_stats_changes_nothing(a: Stats) -> None:
    assert a + Stats.empty(3) == a


@given(whole_stats(), st.integers(1, 8))
def test_adding_one_by_one_equals_stats_of_all_observations(a: Stats, n: int) -> None:
    rng = np.random.default_rng(n)
    X, y = rng.integers(-9, 10, size=(n, 3)), rng.integers(-9, 10, size=n)
    one_by_one = a
    for x, reward in zip(X, y, strict=True):
        one_by_one += Stats.of(x, reward)
    assert one_by_one == a + Stats.of(X, y)


@given(pairs())
def test_theta_rank_and_residual_equal_those_of_the_raw_data(two: tuple[Raw, Raw]) -> None:
    X, y = two[0]
    assume(well_separated(X))
    stats = as_stats((X, y))
    expected = np.linalg.pinv(X) @ y
    assert stats.rank == rank_of(X)
    np.testing.assert_allclose(stats.theta, expected, rtol=1e-6, atol=1e-8)
    residual = float(np.sum((y - X @ expected) ** 2))
    assert stats.residual == pytest.approx(residual, abs=1e-9 * (1 + stats.energy))


@given(SEEDS, st.sampled_from(["generic", "subspace", "repeated"]), st.integers(-6, 6))
def test_rank_does_not_depend_on_units(seed: int, kind: str, decades: int) -> None:
    rng = np.random.default_rng(seed)
    X = contexts(rng, kind, 8, 5)
    assume(well_separated(X))
    units = 10.0 ** rng.integers(-6, 7, size=5)
    y = rng.normal(size=8)
    assert Stats.of(X * units, y).rank == Stats.of(X, y).rank
    assert Stats.of(X * 10.0**decades, y).rank == Stats.of(X, y).rank


def test_rank_of_a_million_collinear_contexts_is_exact() -> None:
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(2, 6))
    stats = Stats.empty(6)
    for _ in range(100):
        X = rng.normal(size=(10_000, 2)) @ direction
        stats += Stats.of(X, X.sum(axis=1))
    assert stats.rank == 2


def test_zero_contexts_have_rank_zero() -> None:
    stats = Stats.of(np.zeros((3, 2)), [1.0, 2.0, 3.0])
    assert stats.rank == 0
    assert not stats.theta.any()
    assert stats.residual == stats.energy == 14.0


def test_arrays_of_stats_are_read_only() -> None:
    stats = Stats.of([1.0, 2.0], 3.0)
    with pytest.raises(ValueError, match="read-only"):
        stats.gram[0, 0] = 7
    with pytest.raises(ValueError, match="read-only"):
        stats.moment[0] = 7


def test_changing_the_input_arrays_does_not_change_stats() -> None:
    X, y = np.ones((2, 2)), np.ones(2)
    stats = Stats.of(X, y)
    X[:], y[:] = 5, 5
    assert stats == Stats.of(np.ones((2, 2)), np.ones(2))
