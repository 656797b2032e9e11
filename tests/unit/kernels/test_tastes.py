"""Kernels of tastes equal what Bayes' rule gives for normal priors, by dense linear algebra."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import multivariate_normal

from dyclu import kernels
from dyclu.kernels.choosing import FAMILIAR
from dyclu.kernels.tastes import (
    COUNT,
    EVIDENCE,
    IMPOSSIBLE,
    SLACK,
    STALE,
    TALLY,
    UNLIKELY,
)
from dyclu.validation import FloatArray, Ids
from tests.properties.observations import SEEDS

pytestmark = pytest.mark.uncompiled

FEW = settings(max_examples=30)
"""Without the compiler an example takes a hundred times as long."""

DIMS = st.integers(1, 6)
NEWNESS = 0.7
"""Log weight of a taste never met."""


def definite(rng: np.random.Generator, p: int) -> FloatArray:
    """Return a random covariance matrix, exactly symmetric, of eigenvalues that are not tiny."""
    half = rng.normal(size=(p, p))
    matrix = half @ half.T / p + 0.1 * np.eye(p)
    return np.ascontiguousarray(0.5 * (matrix + matrix.T))


def inverse(matrix: FloatArray) -> FloatArray:
    found = np.linalg.inv(matrix)
    return np.ascontiguousarray(0.5 * (found + found.T))


@dataclass
class Observed:
    """Observations of one taste, with their noise variance."""

    Z: FloatArray
    y: FloatArray
    noise: float

    @property
    def precision(self) -> FloatArray:
        return np.asarray(self.Z.T @ self.Z / self.noise)

    @property
    def shift(self) -> FloatArray:
        return np.asarray(self.Z.T @ self.y / self.noise)

    def __add__(self, other: Observed) -> Observed:
        assert self.noise == other.noise
        return Observed(np.vstack((self.Z, other.Z)), np.concatenate((self.y, other.y)), self.noise)


@dataclass
class Prior:
    """N(mean, covariance), and what it says of observations."""

    mean: FloatArray
    covariance: FloatArray

    @property
    def precision(self) -> FloatArray:
        return inverse(self.covariance)

    @property
    def shift(self) -> FloatArray:
        return np.asarray(self.precision @ self.mean)

    def log_marginal(self, data: Observed) -> float:
        """Return log p(y), of ``y ~ N(Zμ, σ²I + ZΣZᵀ)``."""
        if not len(data.y):
            return 0.0
        covariance = data.noise * np.eye(len(data.y)) + data.Z @ self.covariance @ data.Z.T
        law = multivariate_normal(data.Z @ self.mean, covariance, allow_singular=True)
        return float(law.logpdf(data.y))

    def given(self, data: Observed) -> Prior:
        """Return the posterior, by the gain of Kalman: no matrix of size p is inverted."""
        gain = (
            self.covariance
            @ data.Z.T
            @ np.linalg.inv(data.noise * np.eye(len(data.y)) + data.Z @ self.covariance @ data.Z.T)
        )
        return Prior(
            self.mean + gain @ (data.y - data.Z @ self.mean),
            self.covariance - gain @ data.Z @ self.covariance,
        )


def prior_of(rng: np.random.Generator, dim: int) -> Prior:
    return Prior(rng.normal(size=dim + 1), definite(rng, dim + 1))


def observed(rng: np.random.Generator, dim: int, count: int, noise: float) -> Observed:
    Z = np.column_stack((rng.normal(size=(count, dim)), np.ones(count)))
    return Observed(Z, rng.normal(size=count), noise)


@dataclass
class Shelf:
    """Models as kernels take them; row 0 is empty, and row 2 is not in use."""

    precision: FloatArray
    shift: FloatArray
    tally: FloatArray
    rows: Ids

    @classmethod
    def of(cls, *held: Observed) -> Shelf:
        room, p = len(held) + 2, held[0].Z.shape[1]
        shelf = cls(
            np.zeros((room, p, p)),
            np.zeros((room, p)),
            np.zeros((room, len(TALLY))),
            np.array([0, 1, *range(3, room)], np.intp),
        )
        for row, data in zip(shelf.rows[1:].tolist(), held, strict=True):
            shelf.precision[row], shelf.shift[row] = data.precision, data.shift
            shelf.tally[row, COUNT] = len(data.y)
        shelf.tally[:, EVIDENCE] = np.nan
        return shelf


def evidence_of(prior: Prior, data: Observed) -> float:
    """Return what `log_evidence` says of observations and the prior."""
    return kernels.tastes.log_evidence(
        data.precision, data.shift, prior.precision, prior.shift, 0.0, data.precision, data.shift
    )


def no_clicks(dim: int) -> FloatArray:
    """Return a memory without clicks."""
    return np.empty((0, dim + kernels.memory.REMEMBERED))


def log_likelihood_at_zero(data: Observed) -> float:
    """Return log p(y | θ = 0), which `log_evidence` leaves out: it is the same for all tastes."""
    return float(
        multivariate_normal(np.zeros(len(data.y)), data.noise * np.eye(len(data.y))).logpdf(data.y)
    )


@FEW
@given(SEEDS, DIMS, st.integers(1, 9), st.integers(1, 5))
def test_difference_of_log_evidence_is_the_log_marginal_likelihood(
    seed: int, dim: int, many: int, more: int
) -> None:
    rng = np.random.default_rng(seed)
    prior, noise = prior_of(rng, dim), float(rng.uniform(0.05, 2.0))
    held, news = observed(rng, dim, many, noise), observed(rng, dim, more, noise)
    nothing = Observed(np.zeros((0, dim + 1)), np.zeros(0), noise)
    from_nothing = evidence_of(prior, held) - evidence_of(prior, nothing)
    assert from_nothing == pytest.approx(
        prior.log_marginal(held) - log_likelihood_at_zero(held), rel=1e-7, abs=1e-7
    )
    both = kernels.tastes.log_evidence(
        held.precision, held.shift, prior.precision, prior.shift,
        1.0 / noise, news.Z.T @ news.Z, news.Z.T @ news.y,
    )  # fmt: skip
    # p(news | held) by Bayes' rule, in two ways.
    given_held = both - evidence_of(prior, held) + log_likelihood_at_zero(news)
    joint = prior.log_marginal(held + news) - prior.log_marginal(held)
    assert given_held == pytest.approx(joint, rel=1e-7, abs=1e-7)
    assert given_held == pytest.approx(prior.given(held).log_marginal(news), rel=1e-6, abs=1e-6)


def test_log_evidence_of_an_indefinite_precision_is_impossible() -> None:
    zero = np.zeros(2)
    found = kernels.tastes.log_evidence(
        np.diag([1.0, -3.0]), zero, np.eye(2), zero, 0.0, np.eye(2), zero
    )
    assert found == IMPOSSIBLE


@FEW
@given(SEEDS, DIMS, st.integers(0, 6), st.floats(0.0, 1.0), st.booleans())
def test_weigh_leaves_out_the_own_share_of_the_segment(
    seed: int, dim: int, length: int, share: float, cached: bool
) -> None:
    """Evidence is that given the others' data; predictions are those given the segment too."""
    rng, noise = np.random.default_rng(seed), 0.4
    prior, segment = prior_of(rng, dim), observed(rng, dim, length, noise)
    others = [observed(rng, dim, count, noise) for count in (5, 1, 8)]
    shelf, z = Shelf.of(*others), np.append(rng.normal(size=dim), 1.0)
    gram, moment = segment.Z.T @ segment.Z, segment.Z.T @ segment.y
    own = np.zeros(len(shelf.tally))
    if cached:  # the evidence of models that hold nothing of the segment
        for row, data in zip(shelf.rows[1:].tolist(), others, strict=True):
            shelf.tally[row, EVIDENCE] = evidence_of(prior, data)
    own[1] = share
    shelf.precision[1] += share * segment.precision
    shelf.shift[1] += share * segment.shift
    shelf.tally[1, EVIDENCE] = np.nan
    n = len(shelf.rows)
    evidence, mean, variance = np.empty(n), np.empty(n), np.empty(n)
    kernels.tastes.weigh(
        shelf.precision, shelf.shift, shelf.tally, shelf.rows, prior.precision, prior.shift,
        gram, moment, 1.0 / noise, own, z, no_clicks(dim), NEWNESS, evidence, np.empty(n), mean,
        variance,
    )  # fmt: skip
    nothing = Observed(np.zeros((0, dim + 1)), np.zeros(0), noise)
    constant = log_likelihood_at_zero(segment) if length else 0.0
    for q, data in enumerate([nothing, *others]):
        known = prior.given(data)
        after = known.given(segment)
        # A share below `NEGLIGIBLE` counts as none.
        assert evidence[q] - (NEWNESS if q == 0 else 0.0) + constant == pytest.approx(
            known.log_marginal(segment), rel=1e-4, abs=1e-4
        )
        assert mean[q] == pytest.approx(z @ after.mean, rel=1e-6, abs=1e-6)
        assert variance[q] == pytest.approx(z @ after.covariance @ z, rel=1e-6, abs=1e-6)


def test_weigh_stores_the_evidence_of_models_without_a_share_only() -> None:
    rng = np.random.default_rng(0)
    prior, segment, held = prior_of(rng, 2), observed(rng, 2, 3, 1.0), observed(rng, 2, 4, 1.0)
    shelf, own, n = Shelf.of(held, held + segment), np.zeros(4), 3
    own[3] = 1.0
    kernels.tastes.weigh(
        shelf.precision, shelf.shift, shelf.tally, shelf.rows, prior.precision, prior.shift,
        segment.precision, segment.shift, 1.0, own, np.ones(3), no_clicks(2), 0.0, np.empty(n),
        np.empty(n), np.empty(n), np.empty(n),
    )  # fmt: skip
    assert shelf.tally[1, EVIDENCE] == pytest.approx(evidence_of(prior, held))
    assert np.isnan(shelf.tally[3, EVIDENCE])


def test_weigh_calls_a_model_impossible_that_lacks_the_own_share() -> None:
    """More is taken out of a model than it holds: what rounding does to a model of one user."""
    rng = np.random.default_rng(0)
    segment = observed(rng, 2, 3, 1e-6)
    shelf, own, n = Shelf.of(Observed(segment.Z[:1], segment.y[:1], 1e-6)), np.zeros(3), 2
    own[1] = 1.0
    evidence, mean, variance = np.empty(n), np.empty(n), np.empty(n)
    shelf.precision[1] *= -1.0
    kernels.tastes.weigh(
        shelf.precision, shelf.shift, shelf.tally, shelf.rows, np.eye(3), np.zeros(3),
        segment.precision, segment.shift, 1.0, own, np.ones(3), no_clicks(2), 0.0, evidence,
        np.empty(n), mean, variance,
    )  # fmt: skip
    assert (evidence[1], mean[1], variance[1]) == (IMPOSSIBLE, 0.0, 0.0)
    assert np.isfinite(evidence[0])


@FEW
@given(SEEDS, DIMS, st.floats(-1.0, 1.0))
def test_contribute_adds_a_share_of_a_segment_to_one_model(
    seed: int, dim: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    held, segment = observed(rng, dim, 4, 0.5), observed(rng, dim, 3, 0.5)
    shelf = Shelf.of(held, held)
    shelf.tally[:, EVIDENCE] = 7.0
    kernels.tastes.contribute(
        shelf.precision, shelf.shift, shelf.tally, 3, share, 2.0,
        segment.Z.T @ segment.Z, segment.Z.T @ segment.y, 3.0,
    )  # fmt: skip
    np.testing.assert_allclose(shelf.precision[3], held.precision + share * segment.precision)
    np.testing.assert_allclose(shelf.shift[3], held.shift + share * segment.shift)
    assert shelf.tally[3, COUNT] == pytest.approx(4.0 + 3.0 * share)
    assert np.isnan(shelf.tally[3, EVIDENCE]) == (share != 0.0)
    assert shelf.tally[3, STALE] == pytest.approx(3.0 * abs(share))
    np.testing.assert_array_equal(shelf.precision[1], held.precision)
    assert shelf.tally[1, EVIDENCE] == 7.0


def test_contribute_leaves_the_row_of_a_new_taste_empty() -> None:
    shelf = Shelf.of(observed(np.random.default_rng(0), 1, 2, 1.0))
    shelf.tally[0, EVIDENCE] = 7.0
    kernels.tastes.contribute(
        shelf.precision, shelf.shift, shelf.tally, 0, 1.0, 1.0, np.eye(2), np.ones(2), 5.0
    )
    assert not shelf.precision[0].any()
    assert shelf.tally[0].tolist() == [0.0, 7.0] + 6 * [0.0]


@FEW
@given(SEEDS, DIMS)
def test_refresh_computes_posterior_and_mean_variance(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    prior, held = prior_of(rng, dim), observed(rng, dim, 6, 0.3)
    shelf, p = Shelf.of(held), dim + 1
    covariance, theta = np.zeros((3, p, p)), np.zeros((3, p))
    contexts = observed(rng, dim, 40, 1.0).Z
    kernels.tastes.refresh(
        shelf.precision, shelf.shift, covariance, theta, shelf.tally, 1, prior.precision,
        prior.shift, contexts.T @ contexts / 40,
    )  # fmt: skip
    expected = prior.given(held)
    np.testing.assert_allclose(covariance[1], expected.covariance, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(theta[1], expected.mean, rtol=1e-6, atol=1e-7)
    variances = ((contexts @ expected.covariance) * contexts).sum(axis=1)
    assert shelf.tally[1, SLACK] == pytest.approx(variances.mean(), rel=1e-6)


def test_refresh_stale_computes_models_that_have_grown_and_the_home() -> None:
    held = observed(np.random.default_rng(0), 1, 100, 1.0)
    shelf = Shelf.of(held, held, held)
    rows = [1, 3, 4]
    shelf.tally[rows, STALE] = 1.0, 3.0, 1.0  # 2 % of 100 are tolerated
    covariance, theta = np.zeros((5, 2, 2)), np.zeros((5, 2))
    kernels.tastes.refresh_stale(
        shelf.precision, shelf.shift, covariance, theta, shelf.tally, shelf.rows, np.eye(2),
        np.zeros(2), np.eye(2), 4,
    )  # fmt: skip
    assert [bool(theta[row].any()) for row in rows] == [False, True, True]
    assert shelf.tally[rows, STALE].tolist() == [1.0, 0.0, 0.0]


@FEW
@given(SEEDS, DIMS)
def test_estimate_without_is_the_posterior_mean_from_the_others(seed: int, dim: int) -> None:
    rng, noise = np.random.default_rng(seed), 0.4
    prior, segment = prior_of(rng, dim), observed(rng, dim, 3, noise)
    others = [observed(rng, dim, count, noise) for count in (5, 1, 8)]
    shelf, own = Shelf.of(*others), np.array([0.2, 0.8 - UNLIKELY, 0.0, UNLIKELY, 0.0])
    for row in (1, 3):
        shelf.precision[row] += own[row] * segment.precision
        shelf.shift[row] += own[row] * segment.shift
    theta = np.full((5, dim + 1), 7.0)
    kernels.tastes.estimate_without(
        shelf.precision, shelf.shift, shelf.rows, prior.precision, prior.shift,
        segment.Z.T @ segment.Z, segment.Z.T @ segment.y, 1.0 / noise, own, theta,
    )  # fmt: skip
    np.testing.assert_allclose(theta[1], prior.given(others[0]).mean, rtol=1e-6, atol=1e-7)
    # Other estimates stay: those of models without a noticeable share, and of a taste never met.
    assert (theta[[0, 2, 3, 4]] == 7.0).all()


@FEW
@given(SEEDS, DIMS, st.sampled_from([0, 4]), st.sampled_from([0.0, 0.3]), st.booleans())
def test_score_in_doubt_returns_means_over_the_mixture(
    seed: int, dim: int, suspect: int, suspicion: float, binary: bool
) -> None:
    """Over every model with the segment, and a suspect without it: rewards, and own widths."""
    rng, noise = np.random.default_rng(seed), 0.4
    prior, segment = prior_of(rng, dim), observed(rng, dim, 3, noise)
    others = [observed(rng, dim, count, noise) for count in (5, 1, 8)]
    shelf, arms = Shelf.of(*others), rng.normal(size=(4, dim))
    # The second model is too unlikely, so the others share its probability.
    belief = np.array([0.2, 0.3, 0.0, 0.2 * UNLIKELY, 0.0])
    belief[4] = 1.0 - belief.sum()
    for row in (1, 3, 4):
        shelf.precision[row] += belief[row] * segment.precision
        shelf.shift[row] += belief[row] * segment.shift
    shelf.tally[:, SLACK] = rng.uniform(0.001, 0.5, size=5)
    theta, mean, width = np.empty(dim + 1), np.empty(4), np.empty(4)
    kernels.choosing.score_in_doubt(
        shelf.precision, shelf.shift, shelf.rows, prior.precision, prior.shift,
        segment.Z.T @ segment.Z, segment.Z.T @ segment.y, 1.0 / noise, belief, suspect, suspicion,
        arms, shelf.tally, 50.0, noise, binary, 0.25, theta, mean, width,
    )  # fmt: skip
    rows = [0, 1, 4, suspect]
    laws = [prior.given(segment)] + [prior.given(others[i] + segment) for i in (0, 2)]
    laws.append(prior if suspect == 0 else prior.given(others[2]))
    weight = np.append((1.0 - suspicion) * belief[[0, 1, 4]], suspicion)
    weight /= weight.sum()
    scores = [
        scores_of(law, arms, shelf.tally[row, SLACK], shelf.tally[row, COUNT] + 50.0, noise, binary)
        for law, row in zip(laws, rows, strict=True)
    ]
    np.testing.assert_allclose(mean, weight @ [found[0] for found in scores], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(width, weight @ [found[1] for found in scores], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        theta, weight @ np.array([law.mean for law in laws]), rtol=1e-6, atol=1e-7
    )


def scores_of(
    law: Prior, arms: FloatArray, slack: float, horizon: float, noise: float, binary: bool
) -> tuple[FloatArray, FloatArray]:
    """Return expected rewards of arms, and widths of their levels, with 0.25 deviations."""
    Z = np.column_stack((arms, np.ones(len(arms))))
    value, variance = Z @ law.mean, ((Z @ law.covariance) * Z).sum(axis=1)
    information = np.full(len(arms), 1.0 / noise)
    if binary:
        value = expit(value)
        information = value * (1.0 - value)
    width = [
        kernels.choosing.exploration(float(v), slack, horizon * float(i), 0.25)
        for v, i in zip(variance, information, strict=True)
    ]
    return np.asarray(value), np.array(width)


def test_disagreement_of_models_does_not_widen_the_score_of_an_arm() -> None:
    """Two models that know all about the arm, and say 5 and −5."""
    sure, alpha = 1e12, 3.0
    precision, shift = np.zeros((3, 2, 2)), np.zeros((3, 2))
    precision[1:] = sure * np.eye(2)
    shift[1, 1], shift[2, 1] = 5.0 * sure, -5.0 * sure
    theta, mean, width = np.empty(2), np.empty(1), np.empty(1)
    kernels.choosing.score_in_doubt(
        precision, shift, np.arange(3), np.eye(2), np.zeros(2), np.zeros((2, 2)), np.zeros(2), 0.0,
        np.array([0.0, 0.5, 0.5]), 0, 0.0, np.ones((1, 1)), np.zeros((3, len(TALLY))), 1.0, 1.0,
        False, alpha, theta, mean, width,
    )  # fmt: skip
    assert mean[0] == pytest.approx(0.0, abs=1e-9)
    assert 0.0 < width[0] < 1e-5


def test_score_in_doubt_of_a_stranger_among_many_models_is_their_mean() -> None:
    rng, many = np.random.default_rng(0), 60
    held = [observed(rng, 1, 4, 0.5) for _ in range(many)]
    prior, shelf, arms = prior_of(rng, 1), Shelf.of(*held), np.ones((1, 1))
    belief = np.zeros(many + 2)
    belief[shelf.rows] = 1.0 / len(shelf.rows)
    theta, mean, width = np.empty(2), np.empty(1), np.empty(1)
    kernels.choosing.score_in_doubt(
        shelf.precision, shelf.shift, shelf.rows, prior.precision, prior.shift, np.zeros((2, 2)),
        np.zeros(2), 0.0, belief, 0, 0.0, arms, shelf.tally, 1.0, 0.5, False, 0.25, theta, mean,
        width,
    )  # fmt: skip
    means = [prior.mean.sum(), *(prior.given(data).mean.sum() for data in held)]
    assert mean[0] == pytest.approx(np.mean(means))


@FEW
@given(SEEDS, DIMS, st.floats(0.001, 1.0), st.booleans())
def test_score_located_returns_expected_rewards_and_widths_by_one_model(
    seed: int, dim: int, slack: float, binary: bool
) -> None:
    rng = np.random.default_rng(seed)
    law, arms = prior_of(rng, dim), rng.normal(size=(5, dim))
    mean, width = np.empty(5), np.empty(5)
    kernels.choosing.score_located(
        law.mean, law.covariance, arms, slack, 50.0, 0.4, binary, 0.25, mean, width
    )
    means, widths = scores_of(law, arms, slack, 50.0, 0.4, binary)
    np.testing.assert_allclose(mean, means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(width, widths, rtol=1e-9)


# Exploration


@given(st.floats(1e-6, 10.0), st.floats(0.0, 1.0), st.floats(0.0, 1e6), st.floats(0.0, 3.0))
def test_width_of_a_familiar_arm_is_alpha_deviations(
    slack: float, part: float, worth: float, alpha: float
) -> None:
    variance = part * (FAMILIAR * slack)
    assert kernels.choosing.exploration(variance, slack, worth, alpha) == pytest.approx(
        alpha * math.sqrt(variance), rel=1e-6, abs=1e-12
    )


@given(st.floats(1e-4, 10.0), st.floats(1.001, 50.0), st.floats(0.0, 1e6), st.floats(0.0, 3.0))
def test_width_of_a_little_known_arm_is_a_part_of_its_gittins_index(
    slack: float, times: float, worth: float, alpha: float
) -> None:
    """The part grows from 0 to 1 with the variance; `alpha` deviations are the least."""
    variance = times * FAMILIAR * slack
    index = (1.0 - 1.0 / times) * kernels.choosing.gittins(worth * variance)
    assert kernels.choosing.exploration(variance, slack, worth, alpha) == pytest.approx(
        max(alpha, index) * math.sqrt(variance), rel=1e-9
    )


def test_width_of_an_arm_whose_level_is_known_is_zero() -> None:
    assert kernels.choosing.exploration(0.0, 0.0, 1e6, 2.0) == 0.0
    assert kernels.choosing.exploration(0.0, 1.0, 1e6, 2.0) == 0.0


JOINTS = (0.2, 1.0, 5.0, 15.0)
"""Where the pieces of Brezzi and Lai's approximation meet."""


@given(st.sampled_from(list(itertools.pairwise((1e-6, *JOINTS, 1e6)))), st.data())
def test_gittins_grows_with_the_ratio_between_joints(
    piece: tuple[float, float], data: st.DataObject
) -> None:
    low, high = (data.draw(st.floats(piece[0] * (1.0 + 1e-9), piece[1])) for _ in range(2))
    low, high = min(low, high), max(low, high)
    assert kernels.choosing.gittins(low) <= kernels.choosing.gittins(high)
    if high > 1.01 * low:
        assert kernels.choosing.gittins(low) < kernels.choosing.gittins(high)


@pytest.mark.parametrize(
    ("joint", "jump"), list(zip(JOINTS, (-0.0722, -0.01, -0.0031, 0.0887), strict=True))
)
def test_gittins_jumps_at_the_joints_as_the_published_pieces_do(joint: float, jump: float) -> None:
    """The constants have two decimals, so pieces do not meet; computed by hand from the paper."""
    found = kernels.choosing.gittins(joint * (1.0 + 1e-9)) - kernels.choosing.gittins(joint)
    assert found == pytest.approx(jump, abs=1e-4)


def indices_by_induction(discount: float, most: int) -> FloatArray:
    """Return by how many deviations the index of a normal arm exceeds its mean, for n < `most`.

    The arm has been tried n times, with noise 1. Backward induction: a trial of an arm with the
    estimate m is worth it, against a sure reward of 0, if ``m + β E V(m′, n + 1) > 0``. The index
    of an arm with the estimate 0 is minus the least such m.
    """
    grid = np.linspace(-1.0, 1.0, 801)
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()
    value, index = np.maximum(grid, 0.0) / (1.0 - discount), np.zeros(most)
    for n in range(most + int(5.0 / (1.0 - discount)), 0, -1):
        step = 1.0 / math.sqrt(n * (n + 1.0))
        later = np.interp(np.add.outer(grid, step * nodes), grid, value) @ weights
        # Beyond the grid an arm is tried for ever.
        tried = np.where(grid > 0.9, grid / (1.0 - discount), grid + discount * later)
        value = np.maximum(tried, 0.0)
        if n < most:
            index[n] = -np.interp(0.0, tried, grid) * math.sqrt(n)
    return index


def test_gittins_is_a_cautious_part_of_the_index_by_backward_induction() -> None:
    """For 10 to 400 trials and a discount of 0.99: ratios of 0.25 to 10.

    Brezzi and Lai's boundary is that of Brownian motion; trials one by one lower it by 0.583 steps
    of the estimate (Chernoff and Petkau 1986), which are 0.583/√n deviations. The pieces lie below
    the index wherever they are constants minus 1/√s: by up to 0.56 of it, at a ratio of 10.
    """
    index, rate = indices_by_induction(0.99, 401), -math.log(0.99)
    for n in (10, 20, 40, 80, 160, 400):
        continuous = index[n] + 0.583 / math.sqrt(n)
        assert 0.44 < kernels.choosing.gittins(1.0 / (n * rate)) / continuous < 1.0


# Mergers


def places(*sizes: float) -> float:
    """Return the log of the chance that members sit where they do, up to what sizes share."""
    return sum(kernels.births.xlogx(size) for size in sizes)


@FEW
@given(SEEDS, st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0]))
def test_best_partner_gains_most_evidence_of_all_pairs(
    seed: int, dim: int, prudence: float
) -> None:
    rng, noise = np.random.default_rng(seed), 0.5
    prior, taste = prior_of(rng, dim), rng.normal(size=dim + 1)
    held = []
    for count, shift in ((6, 0.0), (5, 0.1), (7, 0.6), (4, 3.0)):
        data = observed(rng, dim, count, noise)
        held.append(Observed(data.Z, data.Z @ (taste + shift) + 0.7 * data.y, noise))
    shelf = Shelf.of(*held)
    members = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 3.0])
    divisions = rng.uniform(0.0, 2.0, size=5)  # no user is divided between models 3 and 5
    partner, gain = kernels.births.best_partner(
        shelf.precision, shelf.shift, shelf.tally, shelf.rows, prior.precision, prior.shift, 3,
        members, divisions, prudence,
    )  # fmt: skip
    expected = {}
    for row, data in zip(shelf.rows[1:].tolist(), held, strict=True):
        if row != 3:
            expected[row] = (
                prior.log_marginal(data + held[1])
                - prior.log_marginal(data)
                - prior.log_marginal(held[1])
                + prudence * (places(members[row] + members[3]) - places(members[row], members[3]))
                - prudence * (divisions[row] if row < 5 else 0.0)
            )
    best = max(expected, key=lambda row: expected[row])
    if expected[best] <= 0.0:
        assert (partner, gain) == (-1, 0.0)
    else:
        assert partner == best
        assert gain == pytest.approx(expected[best], rel=1e-6, abs=1e-6)


def test_xlogx_is_zero_at_zero() -> None:
    assert kernels.births.xlogx(0.0) == 0.0
    assert kernels.births.xlogx(3.0) == pytest.approx(3.0 * math.log(3.0))


def partition_evidence(prior: Prior, segments: list[Observed], label: Ids) -> float:
    """Return the log marginal likelihood of segments that share a taste where labels are equal."""
    total = 0.0
    for name in np.unique(label):
        together = [segments[i] for i in np.flatnonzero(label == name)]
        data = together[0]
        for more in together[1:]:
            data = data + more
        total += prior.log_marginal(data)
    return total


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(2, 6), st.floats(0.1, 1.5))
def test_group_stops_where_no_merge_of_two_groups_raises_the_evidence(
    seed: int, dim: int, count: int, apart: float
) -> None:
    rng, noise = np.random.default_rng(seed), 0.25
    prior, tastes = prior_of(rng, dim), apart * rng.normal(size=(2, dim + 1))
    segments = []
    for s in range(count):
        data = observed(rng, dim, int(rng.integers(1, 7)), noise)
        segments.append(Observed(data.Z, data.Z @ tastes[s % 2] + 0.5 * data.y, noise))
    precision = np.array([data.precision for data in segments])
    shift = np.array([data.shift for data in segments])
    p, label, gained = dim + 1, np.empty(count, np.intp), np.empty(count)
    empty = kernels.tastes.log_evidence(
        np.zeros((p, p)), np.zeros(p), prior.precision, prior.shift, 0.0, np.eye(p), np.ones(p)
    )
    total = kernels.births.group(
        precision, shift, prior.precision, prior.shift, empty, label, gained
    )
    found = partition_evidence(prior, segments, label)
    for name in np.unique(label):
        group = [segments[i] for i in np.flatnonzero(label == name)]
        together = partition_evidence(prior, group, np.zeros(len(group), np.intp))
        alone = sum(map(prior.log_marginal, group))
        assert gained[name] == pytest.approx(together - alone, rel=1e-6, abs=1e-6)
    assert not gained[np.setdiff1d(np.arange(count), label)].any()
    assert total == pytest.approx(
        found - sum(map(log_likelihood_at_zero, segments)), rel=1e-6, abs=1e-6
    )
    names = np.unique(label)
    for first, second in itertools.combinations(names, 2):
        merged = np.where(label == second, first, label)
        assert partition_evidence(prior, segments, merged) <= found + 1e-6
    # The greedy path, by the marginal likelihood of the raw rewards.
    path: Ids = np.arange(count)
    while True:
        pairs = list(itertools.combinations(np.unique(path), 2))
        options = [np.where(path == b, a, path) for a, b in pairs]
        values = [partition_evidence(prior, segments, option) for option in options]
        if not values or max(values) <= partition_evidence(prior, segments, path):
            break
        path = options[int(np.argmax(values))]
    np.testing.assert_array_equal(label, path)
    for name in names:
        held = [data for data, own in zip(segments, label, strict=True) if own == name]
        np.testing.assert_allclose(
            precision[name], sum(data.precision for data in held), rtol=1e-9, atol=1e-9
        )
