"""Kernels of the prior equal the E-step and the evidence of a random-effects model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu import kernels
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS
from tests.unit.kernels.test_tastes import Observed, Prior, inverse, observed, prior_of

pytestmark = pytest.mark.uncompiled

FEW = settings(max_examples=30)
DIMS, COUNTS = st.integers(1, 5), st.integers(1, 5)


class Panel:
    """Segments of one taste each, with a noise variance of their own."""

    def __init__(self, seed: int, dim: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        self.prior, self.noise = prior_of(rng, dim), float(rng.uniform(0.1, 2.0))
        self.ratios = rng.uniform(0.3, 3.0, size=count)
        self.segments = [
            observed(rng, dim, int(rng.integers(1, 8)), self.noise * ratio) for ratio in self.ratios
        ]
        self.grams = np.array([data.Z.T @ data.Z for data in self.segments])
        self.moments = np.array([data.Z.T @ data.y for data in self.segments])
        self.energies = np.array([data.y @ data.y for data in self.segments])
        self.about_mean = np.diag(rng.uniform(0.1, 2.0, size=dim + 1))


def outer_covariance(data: Observed, prior: Prior) -> FloatArray:
    """Return the covariance of a segment's rewards around ``Zμ``."""
    return np.asarray(data.noise * np.eye(len(data.y)) + data.Z @ prior.covariance @ data.Z.T)


@FEW
@given(SEEDS, DIMS, COUNTS)
def test_panel_evidence_differs_by_the_log_marginal_likelihood(
    seed: int, dim: int, count: int
) -> None:
    """Between two priors; what `panel_evidence` leaves out depends on the prior in a known way."""
    panel = Panel(seed, dim, count)
    other = prior_of(np.random.default_rng(seed + 1), dim)
    found, expected = [], []
    for prior in (panel.prior, other):
        own = 0.5 * (np.linalg.slogdet(prior.precision)[1] - prior.mean @ prior.shift)
        found.append(
            count * own
            + kernels.population.panel_evidence(
                panel.grams, panel.moments, panel.ratios, prior.precision, prior.shift, panel.noise
            )
        )
        expected.append(sum(prior.log_marginal(data) for data in panel.segments))
    assert found[0] - found[1] == pytest.approx(expected[0] - expected[1], rel=1e-6, abs=1e-6)


@FEW
@given(SEEDS, DIMS, COUNTS)
def test_expect_is_the_e_step_around_the_generalised_least_squares_mean(
    seed: int, dim: int, count: int
) -> None:
    panel, p = Panel(seed, dim, count), dim + 1
    covariance = panel.prior.covariance
    mean, about, scatter = np.empty(p), np.empty((p, p)), np.empty((p, p))
    residual, known = kernels.population.expect(
        panel.grams, panel.moments, panel.ratios, panel.energies, panel.prior.precision,
        panel.noise, panel.about_mean, mean, about, scatter,
    )  # fmt: skip
    # Weighted least squares of all rewards on μ, with N(0, M⁻¹) before: (M + ΣZᵀWZ)⁻¹ ΣZᵀWy.
    total, right = panel.about_mean.copy(), np.zeros(p)
    for data in panel.segments:
        weight = np.linalg.inv(outer_covariance(data, panel.prior))
        total = total + data.Z.T @ weight @ data.Z
        right = right + data.Z.T @ weight @ data.y
    np.testing.assert_allclose(about, inverse(total), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mean, np.linalg.solve(total, right), rtol=1e-6, atol=1e-7)
    # E-step: moments of each taste given its segment and μ.
    around = Prior(np.asarray(np.linalg.solve(total, right), np.float64), covariance)
    spread, left, told = np.zeros((p, p)), 0.0, 0.0
    for data, ratio in zip(panel.segments, panel.ratios, strict=True):
        law = around.given(data)
        gap = law.mean - around.mean
        spread += law.covariance + np.outer(gap, gap)
        error = data.y - data.Z @ law.mean
        left += (error @ error + np.trace(data.Z @ law.covariance @ data.Z.T)) / ratio
        told += 1.0 - np.trace(np.linalg.solve(covariance, law.covariance)) / p
    np.testing.assert_allclose(scatter, spread, rtol=1e-6, atol=1e-7)
    assert residual == pytest.approx(left, rel=1e-6, abs=1e-7)
    assert known == pytest.approx(told, rel=1e-6, abs=1e-7)


def test_expect_counts_segments_without_information_as_none() -> None:
    """Contexts of length 0 but for the intercept, and noise a million times the signal."""
    p, grams = 2, np.zeros((3, 2, 2))
    grams[:, 1, 1] = 1.0
    mean, about, scatter = np.empty(p), np.empty((p, p)), np.empty((p, p))
    _, known = kernels.population.expect(
        grams, np.zeros((3, p)), np.ones(3), np.zeros(3), np.eye(p), 1e6, np.eye(p), mean, about,
        scatter,
    )  # fmt: skip
    assert known == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_allclose(scatter, 3.0 * np.eye(p), rtol=1e-5)
    np.testing.assert_allclose(about, np.eye(p), rtol=1e-5)


@FEW
@given(SEEDS, DIMS)
def test_mean_variance_is_the_mean_over_contexts(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    covariance, Z = prior_of(rng, dim).covariance, observed(rng, dim, 20, 1.0).Z
    found = kernels.population.mean_variance(covariance, Z.T @ Z / 20)
    assert found == pytest.approx(np.mean([z @ covariance @ z for z in Z]))


def test_mean_variance_is_zero_without_contexts() -> None:
    assert kernels.population.mean_variance(np.eye(3), np.zeros((3, 3))) == 0.0


@FEW
@given(SEEDS, DIMS, st.integers(2, 5))
def test_pair_evidence_is_the_bayes_factor_of_a_common_taste(
    seed: int, dim: int, count: int
) -> None:
    panel = Panel(seed, dim, count)
    found = np.empty(count * (count - 1) // 2)
    kernels.population.pair_evidence(
        panel.grams, panel.moments, panel.ratios, panel.prior.precision, panel.prior.shift,
        panel.noise, found,
    )  # fmt: skip
    expected = [
        _log_density([panel.segments[s], panel.segments[t]], panel.prior)
        - _log_density([panel.segments[s]], panel.prior)
        - _log_density([panel.segments[t]], panel.prior)
        for s in range(count)
        for t in range(s)
    ]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


def _log_density(segments: list[Observed], prior: Prior) -> float:
    """Return the log density of all rewards of these segments under one taste."""
    Z, y = np.concatenate([data.Z for data in segments]), np.concatenate([d.y for d in segments])
    noise = np.concatenate([np.full(len(data.y), data.noise) for data in segments])
    covariance, error = np.diag(noise) + Z @ prior.covariance @ Z.T, y - Z @ prior.mean
    _, logdet = np.linalg.slogdet(2.0 * np.pi * covariance)
    return -0.5 * float(error @ np.linalg.solve(covariance, error) + logdet)
