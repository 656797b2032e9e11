"""The split of a model in two: EM on a bound of the evidence of two tastes.

Each segment follows one of two tastes with chance 1/2. Expected values come from raw rewards.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm

from dyclu import kernels
from dyclu.kernels.tastes import IMPOSSIBLE
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS
from tests.unit.kernels.test_tastes import Observed, Prior, definite, observed, prior_of

pytestmark = pytest.mark.uncompiled

FEW = settings(max_examples=30)
DIMS = st.integers(1, 3)
NOISE = 0.5


def drawn(rng: np.random.Generator, taste: FloatArray, count: int) -> Observed:
    """Return observations of a taste."""
    data = observed(rng, len(taste) - 1, count, NOISE)
    return Observed(data.Z, data.Z @ taste + math.sqrt(NOISE) * data.y, NOISE)


class Model:
    """Segments of a model, each with a share, and a rest."""

    def __init__(
        self,
        prior: Prior,
        segments: list[Observed],
        *,
        shares: FloatArray | None = None,
        rest: Observed | None = None,
    ) -> None:
        p = len(prior.mean)
        nothing = Observed(np.zeros((0, p)), np.zeros(0), NOISE)
        self.prior, self.segments, self.rest = prior, segments, rest or nothing
        self.shares = np.ones(len(segments)) if shares is None else shares
        self.precision = np.array([data.precision for data in segments])
        self.shift = np.array([data.shift for data in segments])

    def log_evidence(self, parts: FloatArray, rest: float) -> float:
        """Return `log_evidence` of parts of the segments and of the rest, with the prior."""
        gram = np.tensordot(parts, self.precision, 1) + rest * self.rest.precision
        moment = parts @ self.shift + rest * self.rest.shift
        return kernels.tastes.log_evidence(
            gram, moment, self.prior.precision, self.prior.shift, 0.0, gram, moment
        )

    def split(self, sweeps: int) -> tuple[float, FloatArray]:
        stays, nobody = np.empty(len(self.segments)), np.zeros(len(self.segments))
        gain = kernels.births.split(
            self.precision, self.shift, self.shares, self.rest.precision, self.rest.shift,
            self.prior.precision, self.prior.shift, self.log_evidence(nobody, 0.0), sweeps, stays,
        )  # fmt: skip
        return gain, stays

    def bound(self, stays: FloatArray) -> float:
        """Return log Z(A) + log Z(B) − log Z(M) − log Z(0) − Σ share · (log 2 − entropy)."""
        halves = self.log_evidence(self.shares * stays, 1.0)
        halves += self.log_evidence(self.shares * (1.0 - stays), 0.0)
        whole = self.log_evidence(self.shares, 1.0) + self.log_evidence(0.0 * stays, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.nan_to_num([part * np.log(part) for part in (stays, 1.0 - stays)])
        return float(halves - whole - self.shares @ (math.log(2.0) + parts.sum(axis=0)))

    def exact(self) -> float:
        """Return the log evidence of two tastes over that of one, by all ways to divide segments.

        Every segment has the share 1.
        """
        logs, count = [], len(self.segments)
        for ways in itertools.product((0, 1), repeat=count):
            sides = [self.rest, Observed(self.rest.Z[:0], self.rest.y[:0], NOISE)]
            for side, data in zip(ways, self.segments, strict=True):
                sides[side] = sides[side] + data
            logs.append(sum(self.prior.log_marginal(data) for data in sides))
        whole = self.rest
        for data in self.segments:
            whole = whole + data
        return float(logsumexp(logs) - count * math.log(2.0) - self.prior.log_marginal(whole))


def model_of(seed: int, dim: int, count: int, *, whole: bool = False, rest: int = 0) -> Model:
    """Return a model of segments of two tastes, with shares unless they belong to it wholly."""
    rng = np.random.default_rng(seed)
    prior, tastes = prior_of(rng, dim), rng.normal(size=(2, dim + 1))
    segments = [drawn(rng, tastes[s % 2], int(rng.integers(1, 7))) for s in range(count)]
    shares = None if whole else rng.uniform(0.05, 1.0, size=count)
    return Model(prior, segments, shares=shares, rest=drawn(rng, tastes[0], rest))


@FEW
@given(SEEDS, DIMS, st.integers(2, 6), st.integers(1, 6), st.sampled_from([0, 5]))
def test_gain_of_a_split_is_the_bound_at_the_division_of_the_sweep_before(
    seed: int, dim: int, count: int, sweeps: int, rest: int
) -> None:
    model = model_of(seed, dim, count, rest=rest)
    _, stays = model.split(sweeps - 1)
    assert model.split(sweeps)[0] == pytest.approx(model.bound(stays), rel=1e-9, abs=1e-7)


@FEW
@given(SEEDS, DIMS, st.integers(2, 6), st.sampled_from([0, 5]))
def test_gain_of_a_split_never_falls_from_sweep_to_sweep(
    seed: int, dim: int, count: int, rest: int
) -> None:
    """EM climbs the bound in the tastes and in the division by turns."""
    model = model_of(seed, dim, count, rest=rest)
    gains = [model.split(sweeps)[0] for sweeps in range(1, 8)]
    assert (np.diff(gains) >= -1e-7).all()


@FEW
@given(SEEDS, st.integers(1, 2), st.integers(2, 5), st.sampled_from([0, 5]))
def test_gain_of_a_split_is_at_most_the_evidence_of_two_tastes(
    seed: int, dim: int, count: int, rest: int
) -> None:
    model = model_of(seed, dim, count, whole=True, rest=rest)
    assert model.split(10)[0] <= model.exact() + 1e-7


@FEW
@given(SEEDS, DIMS, st.integers(2, 6), st.floats(0.0, 2.0))
def test_a_split_of_identical_segments_never_gains(
    seed: int, dim: int, count: int, rest: float
) -> None:
    """The log of ∫ prior · Lᵏ is convex in k, so one taste with all of them is worth more."""
    rng = np.random.default_rng(seed)
    prior, data = prior_of(rng, dim), observed(rng, dim, 5, NOISE)
    model = Model(prior, [data] * count, shares=rng.uniform(0.05, 1.0, size=count))
    model.rest = Observed(math.sqrt(rest) * data.Z, math.sqrt(rest) * data.y, NOISE)
    for sweeps in (1, 2, 10):
        gain, stays = model.split(sweeps)
        assert gain <= 1e-7
        assert np.ptp(stays) < 1e-6


def clear_groups(seed: int, dim: int, first: int, second: int, rest: int) -> Model:
    """Return a model of two tastes that are 6 apart in the intercept; the rest has the first."""
    rng = np.random.default_rng(seed)
    tastes = np.zeros((2, dim + 1))
    tastes[0, -1], tastes[1, -1] = 3.0, -3.0
    prior = Prior(np.zeros(dim + 1), 9.0 * np.eye(dim + 1))
    segments = [drawn(rng, tastes[0], 10) for _ in range(first)]
    segments += [drawn(rng, tastes[1], 10) for _ in range(second)]
    return Model(prior, segments, rest=drawn(rng, tastes[0], rest))


@FEW
@given(SEEDS, DIMS, st.data())
@pytest.mark.parametrize("most", [3, pytest.param(5, marks=pytest.mark.long)])
def test_a_split_separates_two_groups_that_clearly_differ(
    most: int, seed: int, dim: int, data: st.DataObject
) -> None:
    """Only one division of the segments matters, so the bound is the evidence of that one, twice.

    Without a rest the two halves have no names: the exact evidence counts each division twice.
    It is summed over all divisions, whose number doubles with each segment.
    """
    first, second = (data.draw(st.integers(1, most)) for _ in range(2))
    model = clear_groups(seed, dim, first, second, 0)
    gain, stays = model.split(12)
    side = stays[0]
    np.testing.assert_allclose(stays[:first], side, atol=1e-3)
    np.testing.assert_allclose(stays[first:], 1.0 - side, atol=1e-3)
    assert min(side, 1.0 - side) < 1e-3
    assert gain > 10.0
    assert gain == pytest.approx(model.exact() - math.log(2.0), abs=1e-2)


@pytest.mark.parametrize("rest", [20, 200])
@pytest.mark.parametrize(("first", "second"), [(3, 3), (5, 1), (0, 4)])
def test_a_split_removes_from_the_rest_the_segments_that_differ_from_it(
    first: int, second: int, rest: int
) -> None:
    expected = np.array([1.0] * first + [0.0] * second)
    for seed in range(8):
        model = clear_groups(seed, 2, first, second, rest)
        gain, stays = model.split(12)
        np.testing.assert_allclose(stays, expected, atol=1e-3)
        assert gain == pytest.approx(model.bound(expected), abs=1e-2)


def test_a_split_of_an_indefinite_model_is_impossible() -> None:
    model = model_of(0, 2, 3)
    model.rest.noise = -1e-3
    model.rest.Z, model.rest.y = np.eye(3), np.zeros(3)
    assert model.split(3)[0] == IMPOSSIBLE


# Parts of the split


@FEW
@given(SEEDS, DIMS, st.integers(1, 4))
def test_expected_fits_are_mean_log_likelihoods_over_the_posterior(
    seed: int, dim: int, count: int
) -> None:
    """The mean of a quadratic form over a normal law is that over 2p points, exactly."""
    rng, p = np.random.default_rng(seed), dim + 1
    law, segments = prior_of(rng, dim), [observed(rng, dim, 4, NOISE) for _ in range(count)]
    out = np.empty(count)
    assert kernels.births.expected_fits(
        np.array([data.precision for data in segments]),
        np.array([data.shift for data in segments]),
        law.precision, law.shift, out,
    )  # fmt: skip
    moves = math.sqrt(p) * np.linalg.cholesky(law.covariance).T
    points = np.vstack((law.mean + moves, law.mean - moves))
    for s, data in enumerate(segments):
        logs = [norm.logpdf(data.y, data.Z @ theta, math.sqrt(NOISE)).sum() for theta in points]
        at_zero = norm.logpdf(data.y, scale=math.sqrt(NOISE)).sum()
        assert out[s] == pytest.approx(np.mean(logs) - at_zero, rel=1e-6, abs=1e-6)


def test_expected_fits_need_a_definite_precision() -> None:
    gram, zero = np.eye(2)[None], np.zeros((1, 2))
    assert not kernels.births.expected_fits(gram, zero, -np.eye(2), np.zeros(2), np.empty(1))


@FEW
@given(SEEDS, DIMS, st.integers(1, 6))
def test_principal_axis_of_leftovers_on_a_line_is_the_displacement_that_explains_them(
    seed: int, dim: int, count: int
) -> None:
    """What is left over is ``a·u``: the segments on one side pull with V u times their sum."""
    rng, p = np.random.default_rng(seed), dim + 1
    u, sizes, shares = rng.normal(size=p), rng.normal(size=count), rng.uniform(0.1, 1.0, size=count)
    covariance, axis = definite(rng, p), np.empty(p)
    kernels.births.principal_axis(np.outer(sizes, u), shares, covariance, axis)
    expected = shares @ np.abs(sizes) * (covariance @ u)
    sign = np.sign(axis @ expected)
    np.testing.assert_allclose(sign * axis, expected, rtol=1e-6, atol=1e-9)


def test_principal_axis_is_that_of_the_largest_spread() -> None:
    left = np.array([[3.0, 0.1], [-3.0, 0.1], [0.0, 1.0], [0.0, -1.2]])
    axis = np.empty(2)
    kernels.births.principal_axis(left, np.ones(4), np.eye(2), axis)
    assert abs(axis[0]) == pytest.approx(6.0)
    assert abs(axis[1]) < 0.5 * abs(axis[0])
    kernels.births.principal_axis(left, np.array([0.01, 0.01, 1.0, 1.0]), np.eye(2), axis)
    assert abs(axis[0]) < 0.1
    assert abs(axis[1]) == pytest.approx(2.2, abs=0.01)


def test_principal_axis_of_nothing_left_over_is_zero() -> None:
    axis = np.ones(2)
    kernels.births.principal_axis(np.zeros((3, 2)), np.ones(3), np.eye(2), axis)
    assert not axis.any()


@given(st.floats(0.0, 1.0))
def test_divided_is_the_entropy_of_two_parts(part: float) -> None:
    found = kernels.births.divided(part)
    assert found == pytest.approx(kernels.births.divided(1.0 - part), abs=1e-12)
    assert 0.0 <= found <= math.log(2.0) + 1e-15
    if 1e-9 < part < 1.0 - 1e-9:
        expected = -part * math.log(part) - (1.0 - part) * math.log(1.0 - part)
        assert found == pytest.approx(expected, rel=1e-9)


def test_divided_is_log_2_at_a_half_and_0_at_the_ends() -> None:
    assert kernels.births.divided(0.5) == pytest.approx(math.log(2.0))
    assert kernels.births.divided(0.0) == kernels.births.divided(1.0) == 0.0
