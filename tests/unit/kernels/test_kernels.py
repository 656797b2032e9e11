"""Kernels compute what their docstrings say, with the same numbers if they are not compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import Stats, homogeneity, kernels
from dyclu.core.stats import ROUNDING, overlap
from tests.properties.observations import SEEDS

pytestmark = pytest.mark.uncompiled

DIMS = st.integers(1, 11)


@given(SEEDS, DIMS)
def test_products_equal_those_of_numpy(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, v = rng.normal(size=(dim + 2, dim)), rng.normal(size=dim)
    A, out = X.T @ X, np.empty(dim)
    kernels.linalg.times(A, v, out)
    np.testing.assert_allclose(out, A @ v, rtol=1e-12, atol=1e-12)
    assert kernels.linalg.dot(v, out) == pytest.approx(v @ A @ v)
    assert kernels.linalg.norm(A) == pytest.approx(np.linalg.norm(A))
    assert kernels.linalg.trace(A) == pytest.approx(np.trace(A))
    kernels.linalg.add_outer(A, v, -0.5)
    np.testing.assert_allclose(A, X.T @ X - 0.5 * np.outer(v, v), rtol=1e-12, atol=1e-12)


@given(SEEDS, DIMS)
def test_factorise_returns_the_cholesky_factor(seed: int, dim: int) -> None:
    X = np.random.default_rng(seed).normal(size=(2 * dim + 1, dim))
    factor = X.T @ X
    assert kernels.linalg.factorise(factor)
    np.testing.assert_allclose(np.triu(factor), np.linalg.cholesky(X.T @ X).T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_factorise_returns_false_if_the_matrix_is_not_positive(value: float) -> None:
    assert not kernels.linalg.factorise(np.diag([1.0, value]))


@given(SEEDS, DIMS)
def test_posterior_equals_the_textbook_formula(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, mean = rng.normal(size=(dim + 1, dim)), rng.normal(size=dim)
    A, b, ridge = X.T @ X, rng.normal(size=dim), 0.3
    theta, inverse = np.empty(dim), np.empty((dim, dim))
    assert kernels.evidence.posterior(A, b, mean, ridge, theta, inverse)
    shifted = A + ridge * np.eye(dim)
    np.testing.assert_allclose(inverse @ shifted, np.eye(dim), atol=1e-9)
    np.testing.assert_allclose(theta, np.linalg.solve(shifted, b + ridge * mean), atol=1e-9)


def test_invert_returns_false_if_the_matrix_is_not_positive() -> None:
    assert not kernels.linalg.invert(-np.eye(2), 0.5, np.empty((2, 2)))


@given(SEEDS, DIMS)
def test_ucb_best_returns_the_best_arm_of_ucb(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, arms, theta = rng.normal(size=(dim, dim)), rng.normal(size=(7, dim)), rng.normal(size=dim)
    inverse, mean, width = X.T @ X, np.empty(7), np.empty(7)
    kernels.ridge.ucb(theta, inverse, arms, 0.4, mean, width, np.inf, 1.0)
    best = kernels.ridge.first_best(mean + width, 1e-9)
    found = kernels.ridge.ucb_best(theta, inverse, arms, 0.4, 1e-9, np.inf, 1.0)
    assert found == (best, mean[best], width[best])


def test_width_is_multiplied_by_bold_if_the_variance_exceeds_beyond() -> None:
    arms, widths = np.array([[3.0, 0.0], [0.0, 0.5]]), np.empty(2)
    inverse = np.diag([0.2, 0.8])
    kernels.ridge.ucb(np.zeros(2), inverse, arms, 0.5, np.empty(2), widths, 0.7, 4.0)
    assert widths == pytest.approx([0.5 * 3.0 * np.sqrt(0.2), 4.0 * 0.5 * 0.5 * np.sqrt(0.8)])


def test_first_best_returns_the_first_of_tied_scores() -> None:
    assert kernels.ridge.first_best(np.array([0.1, 0.5, 0.5 + 1e-12, 0.5 - 1e-12]), 1e-9) == 1


@given(SEEDS, DIMS)
def test_observe_updates_sums_inverse_and_estimate(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, x = rng.normal(size=(dim + 3, dim)), rng.normal(size=dim)
    A, b = X.T @ X + np.eye(dim), rng.normal(size=dim)
    inverse, theta = np.asarray(np.linalg.inv(A), np.float64), np.empty(dim)
    assert kernels.ridge.observe(A, b, inverse, theta, x, 0.7, 1e8, 1e12)
    np.testing.assert_allclose(A, X.T @ X + np.eye(dim) + np.outer(x, x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(theta, np.linalg.solve(A, b), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("most_leverage", "most_condition"), [(0.0, 1e9), (1e9, 0.0), (4.0, 1e9)])
def test_observe_updates_only_the_sums_if_leverage_or_condition_is_too_large(
    most_leverage: float, most_condition: float
) -> None:
    A, b, inverse, theta = np.eye(2), np.zeros(2), np.eye(2), np.zeros(2)
    x = np.array([2.0, 0.0])  # its leverage is 4
    assert not kernels.ridge.observe(A, b, inverse, theta, x, 1.0, most_leverage, most_condition)
    np.testing.assert_array_equal(A, [[5.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(b, [2.0, 0.0])
    np.testing.assert_array_equal(inverse, np.eye(2))
    np.testing.assert_array_equal(theta, [0.0, 0.0])


def _pair(rng: np.random.Generator, dim: int, shared: int) -> tuple[Stats, Stats]:
    """Return two sets that span at most `dim` - 1 directions each, `shared` of them in common."""
    basis = rng.normal(size=(dim, dim))
    ranks = [int(rng.integers(shared, dim)) for _ in range(2)]
    sides = []
    for side, rank in enumerate(ranks):
        own = basis[:shared] if side == 0 else rng.normal(size=(shared, shared)) @ basis[:shared]
        more = rng.normal(size=(rank - shared, dim))
        spanning = np.vstack((own, more))
        X = rng.normal(size=(rank + int(rng.integers(0, 4)), rank)) @ spanning
        sides.append(Stats.of(X, rng.normal(size=len(X))))
    return sides[0], sides[1]


@given(SEEDS, st.integers(2, 8), st.data())
def test_narrow_squared_gap_equals_the_definition(seed: int, dim: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    a, b = _pair(rng, dim, data.draw(st.integers(0, dim - 1)))
    gap = a.theta - b.theta
    df, either = overlap(a, b)
    rank, value = kernels.segments.narrow_squared_gap(
        a.gram.copy(),
        b.gram.copy(),
        a.seen @ gap,
        b.seen @ gap,
        max(a.rank, b.rank),
        min(a.rank + b.rank, dim),
        ROUNDING * (dim + a.count + b.count),
    )
    if rank < 0:  # not certified: the library then uses the definition
        return
    assert rank == min(either, a.rank + b.rank)
    if df:
        expected = homogeneity(a, b, noise=1.0).statistic
        assert value == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_narrow_squared_gap_certifies_the_rank_of_generic_pairs() -> None:
    """The fast path is used for short segments in 25 dimensions."""
    rng = np.random.default_rng(0)
    for first, second in ((3, 5), (12, 12), (12, 13), (20, 24)):
        a, b = (Stats.of(rng.normal(size=(n, 25)), np.zeros(n)) for n in (first, second))
        zeros, most = np.zeros(25), min(25, first + second)
        rank, _ = kernels.segments.narrow_squared_gap(
            a.gram.copy(), b.gram.copy(), zeros, zeros, max(first, second), most, ROUNDING * 60
        )
        assert rank == most


@pytest.mark.parametrize("dim", [1, 2, 9, 25])
def test_eigenvalue_bound_is_valid_and_tight(dim: int) -> None:
    rng = np.random.default_rng(dim)
    half = rng.normal(size=(dim, dim)) * np.logspace(0, 3, dim)
    for scale in (1e-12, 1.0, 1e12):
        matrix = scale * half @ half.T
        exact = float(np.linalg.eigvalsh(matrix)[-1])
        assert (
            exact * (1 - 1e-9)
            <= kernels.linalg.eigenvalue_bound(matrix)
            <= exact * dim**0.125 * (1 + 1e-9)
        )
    assert kernels.linalg.eigenvalue_bound(np.zeros((dim, dim))) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_widen_computes_a_generalised_inverse_for_a_new_direction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dim, units = 6, 10.0 ** rng.integers(-3, 4, size=6)
    A, b, inverse, theta = np.zeros((dim, dim)), np.zeros(dim), np.zeros((dim, dim)), np.zeros(dim)
    X = rng.normal(size=(dim, dim)) * units
    y = rng.normal(size=dim)
    for known, (x, reward) in enumerate(zip(X, y.tolist(), strict=True)):
        assert kernels.segments.widened_rank(A, x, known, 1e-14) == known + 1
        assert (
            kernels.segments.widened_rank(A + np.outer(x, x), 3.0 * x, known + 1, 1e-14)
            == known + 1
        )
        assert kernels.segments.widen(A, b, inverse, theta, x, reward, 1e30)
        seen = X[: known + 1]
        np.testing.assert_allclose(A, seen.T @ seen, rtol=1e-12)
        size = np.abs(A).max(axis=0)
        np.testing.assert_allclose(A @ inverse @ A / size, A / size, atol=1e-6)
        np.testing.assert_allclose(seen @ theta, y[: known + 1], atol=1e-6)
    np.testing.assert_allclose(inverse @ A, np.eye(dim), atol=1e-5)


def test_widen_returns_false_if_the_result_would_be_inexact() -> None:
    A, b, inverse, theta = np.eye(2) * [1.0, 0.0], np.zeros(2), np.eye(2) * [1.0, 0.0], np.zeros(2)
    x = np.array([1.0, 1e-6])
    assert not kernels.segments.widen(A, b, inverse, theta, x, 1.0, 1e7)
    assert not kernels.segments.widen(
        np.zeros((2, 2)), b, np.zeros((2, 2)), theta, np.zeros(2), 1.0, 1e7
    )
