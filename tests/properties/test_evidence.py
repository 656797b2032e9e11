"""Evidence is the density of the rewards, and gives Eq. (1) if the prior is wide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from dyclu import Stats, homogeneity, resemblance
from dyclu.core.evidence import Prior
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS

pytestmark = pytest.mark.uncompiled

DIMS, COUNTS = st.integers(1, 6), st.integers(1, 9)
NOISE, SPREAD = 0.3, 0.7


def drawn(seed: int, dim: int, count: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, dim)), rng.normal(size=count)


def log_density(X: FloatArray, y: FloatArray, mean: FloatArray) -> float:
    """Return the density of rewards, N(Xμ, σ²I + τ²XXᵀ), relative to that of pure noise."""
    covariance = NOISE**2 * np.eye(len(y)) + SPREAD**2 * X @ X.T
    rest = y - X @ mean
    alone = multivariate_normal(np.zeros(len(y)), NOISE**2 * np.eye(len(y))).logpdf(rest)
    return float(multivariate_normal(np.zeros(len(y)), covariance).logpdf(rest) - alone)


@given(SEEDS, DIMS, COUNTS)
def test_log_evidence_is_the_log_density_of_the_rewards(seed: int, dim: int, count: int) -> None:
    X, y = drawn(seed, dim, count)
    mean = np.random.default_rng(seed + 1).normal(size=dim)
    stats = Stats.of(X, y)
    found = Prior(mean, SPREAD**2, NOISE**2).log_evidence(stats.gram, stats.moment)
    assert found == pytest.approx(log_density(X, y, mean), rel=1e-6, abs=1e-6)


@given(SEEDS, DIMS, COUNTS, COUNTS)
def test_resemblance_is_symmetric(seed: int, dim: int, m: int, n: int) -> None:
    a, b = Stats.of(*drawn(seed, dim, m)), Stats.of(*drawn(seed + 1, dim, n))
    assert resemblance(a, b, noise=NOISE, spread=SPREAD) == pytest.approx(
        resemblance(b, a, noise=NOISE, spread=SPREAD), rel=1e-9, abs=1e-9
    )


@given(SEEDS, st.integers(1, 4), COUNTS, COUNTS)
def test_resemblance_under_a_wide_prior_is_the_statistic_of_equation_one(
    seed: int, dim: int, m: int, n: int
) -> None:
    a, b = Stats.of(*drawn(seed, dim, m)), Stats.of(*drawn(seed + 1, dim, n))
    wide = 1e4
    # Wide compared with the estimates, which are large if contexts are nearly collinear.
    assume(max(np.linalg.norm(stats.theta) for stats in (a, b, a + b)) < wide / 100)
    ridge = (NOISE / wide) ** 2

    def size(stats: Stats) -> float:
        return 0.5 * float(np.linalg.slogdet(stats.gram / ridge + np.eye(dim))[1])

    without = resemblance(a, b, noise=NOISE, spread=wide) + size(a + b) - size(a) - size(b)
    statistic = homogeneity(a, b, noise=NOISE).statistic
    assert without == pytest.approx(-statistic / 2, rel=1e-3, abs=1e-3)


@given(SEEDS, COUNTS, COUNTS)
def test_resemblance_without_common_directions_is_zero(seed: int, m: int, n: int) -> None:
    (X, y), (W, z) = drawn(seed, 3, m), drawn(seed + 1, 2, n)
    a = Stats.of(np.pad(X, ((0, 0), (0, 2))), y)
    b = Stats.of(np.pad(W, ((0, 0), (3, 0))), z)
    assert resemblance(a, b, noise=NOISE, spread=SPREAD) == pytest.approx(0.0, abs=1e-8)


@given(SEEDS, DIMS, COUNTS)
def test_the_posterior_mean_is_the_ridge_estimate_around_the_prior_mean(
    seed: int, dim: int, count: int
) -> None:
    X, y = drawn(seed, dim, count)
    prior = Prior(np.full(dim, 0.4), SPREAD**2, NOISE**2)
    theta, inverse = prior.posterior(X.T @ X, X.T @ y)
    matrix = X.T @ X + prior.ridge * np.eye(dim)
    np.testing.assert_allclose(matrix @ inverse, np.eye(dim), atol=1e-8)
    np.testing.assert_allclose(matrix @ theta, X.T @ y + prior.ridge * prior.mean, atol=1e-8)
