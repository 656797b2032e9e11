"""Kernels of Atlas: one reward of a user in doubt, of a located user, and the search for a change.

Expected values come from raw rewards: marginal likelihoods of whole segments, and Bayes' rule.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, logsumexp
from scipy.stats import bernoulli, norm

from dyclu import kernels
from dyclu.kernels import atlas, choosing, laws, ledger, linalg, restarts
from dyclu.kernels.choosing import FAMILIAR
from dyclu.kernels.tastes import COUNT, EVIDENCE, SLACK, STALE, VISITED
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS
from tests.unit.kernels.test_tastes import Observed, Prior, Shelf, observed, prior_of

pytestmark = pytest.mark.uncompiled

FEW = settings(max_examples=30)
DIMS = st.integers(1, 5)
BELIEF = {0: 0.2, 1: 0.5, 4: 0.3}
"""Probability by row of the models, of a user in doubt about some of them."""


def a_stream(
    noise: float = 0.4, hazard: float = 0.01, stray: float = -math.inf, *, binary: bool = False
) -> FloatArray:
    stream = np.zeros(9)
    stream[ledger.NOISE], stream[ledger.HAZARD], stream[ledger.STRAY] = noise, hazard, stray
    stream[ledger.CLOCK], stream[ledger.BINARY] = 77.0, float(binary)
    return stream


def a_click_stream(hazard: float = 0.01) -> FloatArray:
    """Return a stream of 0/1 rewards; a log density of strays that such rewards do not have."""
    return a_stream(1.0, hazard, -1.0, binary=True)


def a_user(belief: dict[int, float], *, home: int | None = None) -> FloatArray:
    user = np.zeros(ledger.WIDTH)
    for place, (row, chance) in enumerate(belief.items()):
        user[ledger.LIKELY + place], user[ledger.CHANCE + place] = row, chance
    user[ledger.STATUS] = ledger.IN_DOUBT if home is None else ledger.LOCATED
    user[ledger.HOME] = -1 if home is None else home
    return user


def belief_of(user: FloatArray, room: int) -> FloatArray:
    belief = np.empty(room)
    ledger.load_belief(user, belief)
    return belief


def memory_of(data: Observed, *, room: int = 8, density: FloatArray | None = None) -> FloatArray:
    """Return a block of memory with these rewards, all of weight 1 and their own response."""
    d, n = data.Z.shape[1] - 1, len(data.y)
    block = np.zeros((room, d + kernels.memory.REMEMBERED))
    block[:n, :d], block[:n, d + kernels.memory.REWARD] = data.Z[:, :-1], data.y
    block[:n, d + kernels.memory.RESPONSE], block[:n, d + kernels.memory.WEIGHT] = data.y, 1.0
    if density is not None:
        block[:n, d + kernels.memory.DENSITY] = density
    return block


def empty_memory(dim: int) -> FloatArray:
    return np.zeros((8, dim + kernels.memory.REMEMBERED))


def chance_of_click(level: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the mean of 1/(1 + exp(−m)) over normal levels, as MacKay approximates it."""
    return np.asarray(expit(level / np.sqrt(1.0 + math.pi * variance / 8.0)))


def click(y: float, level: float, variance: float) -> tuple[float, float]:
    """Return weight and response of a click: the mean curvature, and a step by slope/curvature."""
    flat = 1.0 / math.sqrt(1.0 + math.pi * variance / 8.0)
    chance = float(expit(flat * level))
    weight = max(flat * chance * (1.0 - chance), 1e-3)
    return weight, level + (y - chance) / weight


class Scene:
    """Three models, and a segment of a user in doubt whom they hold by the belief."""

    def __init__(self, seed: int, dim: int, length: int, *, noise: float = 0.4) -> None:
        self.rng, self.dim, self.noise = np.random.default_rng(seed), dim, noise
        self.prior = prior_of(self.rng, dim)
        self.segment = observed(self.rng, dim, length, noise)
        self.others = [observed(self.rng, dim, count, noise) for count in (5, 3, 8)]
        self.shelf = Shelf.of(*self.others)
        self.room = len(self.shelf.tally)
        self.gram = self.segment.Z.T @ self.segment.Z
        self.moment = np.asarray(self.segment.Z.T @ self.segment.y)
        self.sums = np.array([length, self.segment.y @ self.segment.y, 1.0 / noise, 1.0])
        self.user = a_user(BELIEF)
        self.share_out(1.0)
        p = dim + 1
        self.covariance, self.theta = np.zeros((self.room, p, p)), np.zeros((self.room, p))
        self.contexts = np.eye(p)

    def share_out(self, sign: float) -> None:
        shelf = self.shelf
        atlas.share_out(
            shelf.precision, shelf.shift, shelf.tally, self.user, sign, self.sums, self.gram,
            self.moment,
        )  # fmt: skip

    def refresh(self) -> None:
        self.shelf.tally[:, STALE] = 1e300
        kernels.tastes.refresh_stale(
            self.shelf.precision, self.shelf.shift, self.covariance, self.theta, self.shelf.tally,
            self.shelf.rows, self.prior.precision, self.prior.shift, self.contexts, 0,
        )  # fmt: skip

    def learn(self, x: FloatArray, y: float, stream: FloatArray, block: FloatArray) -> bool:
        shelf = self.shelf
        return atlas.learn_in_doubt(
            shelf.precision, shelf.shift, shelf.tally, shelf.rows, self.prior.precision,
            self.prior.shift, self.gram, self.moment, self.sums, self.user, block, stream, x, y,
        )  # fmt: skip

    def place(
        self, stream: FloatArray, block: FloatArray, banned: int = -1
    ) -> tuple[FloatArray, FloatArray]:
        """Compute the belief anew; return the log evidence by model, and its part by misfits."""
        shelf, evidence, misfits = self.shelf, np.empty(4), np.empty(4)
        atlas.place(
            shelf.precision, shelf.shift, shelf.tally, shelf.rows, self.prior.precision,
            self.prior.shift, self.gram, self.moment, self.sums, self.user, block, stream, banned,
            evidence, misfits,
        )  # fmt: skip
        return evidence, misfits

    def laws(self) -> list[Prior]:
        """Return what is known of each taste from the others, in the order of `rows`."""
        return [self.prior, *(self.prior.given(data) for data in self.others)]

    def chances(self) -> FloatArray:
        """Return the chance of each model, given the others' data and the segment."""
        logs = np.array([law.log_marginal(self.segment) for law in self.laws()])
        return np.asarray(np.exp(logs - logsumexp(logs)))

    def rests(self, stray: float, *, binary: bool) -> dict[int, FloatArray]:
        """Return the log density of the segment's rewards from each point on, by row."""
        data = self.segment
        new = (
            clicks_under(self.prior, data)
            if binary
            else rest_under(self.prior, data, np.ones(len(data.y)), stray)
        )
        return {0: new} | {row: rest_at(self, row, stray, binary=binary) for row in (1, 3, 4)}

    def assert_sums_have_grown(self, z: FloatArray, response: float, weight: float) -> None:
        """Check that the segment has one more observation, and that the models hold it."""
        Z, y, held = self.segment.Z, self.segment.y, len(self.segment.y) + 1
        np.testing.assert_allclose(self.gram, Z.T @ Z + weight * np.outer(z, z), atol=1e-9)
        np.testing.assert_allclose(
            self.moment, Z.T @ y + weight * response * z, rtol=1e-6, atol=1e-8
        )
        assert self.sums.tolist() == pytest.approx(
            [held, y @ y + weight * response**2, 1.0 / self.noise, 1.0]
        )
        self.assert_books(self.noise, self.gram, self.moment, held)

    def assert_books(self, noise: float, gram: FloatArray, moment: FloatArray, held: float) -> None:
        """Check that every model holds the others' data, and the segment by the belief."""
        belief = belief_of(self.user, self.room)
        for row, data in zip(self.shelf.rows[1:].tolist(), self.others, strict=True):
            np.testing.assert_allclose(
                self.shelf.precision[row], data.precision + belief[row] * gram / noise, rtol=1e-7,
                atol=1e-9,
            )  # fmt: skip
            np.testing.assert_allclose(
                self.shelf.shift[row], data.shift + belief[row] * moment / noise, rtol=1e-7,
                atol=1e-9,
            )  # fmt: skip
            assert self.shelf.tally[row, COUNT] == pytest.approx(len(data.y) + belief[row] * held)
        assert not self.shelf.precision[0].any()


# Small parts


@given(SEEDS, st.integers(1, 12))
def test_normalise_returns_probabilities_and_the_log_of_the_sum(seed: int, count: int) -> None:
    logs = 300.0 * np.random.default_rng(seed).normal(size=count)
    chance = logs.copy()
    total = laws.normalise(chance)
    assert total == pytest.approx(logsumexp(logs))
    np.testing.assert_allclose(chance, np.exp(logs - logsumexp(logs)), rtol=1e-9, atol=1e-300)


def test_extended_appends_the_feature_of_the_intercept() -> None:
    assert linalg.extended(np.array([3.0, -2.0])).tolist() == [3.0, -2.0, 1.0]


def test_ledger_parts_are_where_kernels_read_them() -> None:
    at = 0
    columns = (
        "STATUS", "HOME", "BEFORE", "UNIT", "SEAT", "POOL", "SLOT", "LENGTH", "SINCE", "REWARDS",
        "HOLDING", "NOISE_SUM", "NOISE_WEIGHT", "SUSPECT", "SUSPICION", "LIKELY", "CHANCE",
    )  # fmt: skip
    for name, (part, shape) in zip(columns, ledger.ledger_parts().items(), strict=True):
        assert name.lower() == part
        assert getattr(ledger, name) == at
        at += math.prod(shape)
    assert at == ledger.WIDTH


def test_user_variance_is_the_population_s_if_users_do_not_differ() -> None:
    user, stream = a_user({0: 1.0}), a_stream(noise=0.3)
    user[ledger.NOISE_SUM], user[ledger.NOISE_WEIGHT] = 500.0, 10.0
    assert ledger.user_variance(user, stream) == 0.3


def test_user_variance_shrinks_the_own_ratio_towards_one() -> None:
    """Ten rewards of ratio 6 by the mean 2 of all users, and five that the prior counts as."""
    user, stream = a_user({0: 1.0}), a_stream(noise=0.3)
    stream[ledger.RATIO_PRIOR], stream[ledger.RATIO_MEAN] = 5.0, 2.0
    assert ledger.user_variance(user, stream) == pytest.approx(0.3)
    user[ledger.NOISE_SUM], user[ledger.NOISE_WEIGHT] = 60.0, 10.0
    assert ledger.user_variance(user, stream) == pytest.approx(0.3 * (5 * 1.0 + 10 * 3.0) / 15)


@given(st.floats(0.1, 5.0), st.floats(0.0, 5.0), st.floats(0.1, 5.0))
def test_note_noise_measures_the_user_s_ratio_without_bias(
    variance: float, spread: float, noise: float
) -> None:
    """An error of exactly one deviation, ``σ_u² + q``, counts as the ratio ``σ_u²/σ²``."""
    user = a_user({0: 1.0})
    ledger.note_noise(user, math.sqrt(variance + spread), spread, variance, noise)
    assert user[ledger.NOISE_WEIGHT] == pytest.approx(variance / (variance + spread))
    assert user[ledger.NOISE_SUM] / user[ledger.NOISE_WEIGHT] == pytest.approx(variance / noise)


def test_note_noise_bounds_gross_errors() -> None:
    user = a_user({0: 1.0})
    ledger.note_noise(user, 1e9, 0.0, 1.0, 1.0)
    assert user[ledger.NOISE_SUM] == laws.OUTLYING**2


def test_columns_of_a_memory_are_numbered_without_gaps() -> None:
    names = ("REWARD", "RESPONSE", "WEIGHT", "DENSITY", "CREDIT")
    assert [getattr(kernels.memory, name) for name in names] == list(
        range(kernels.memory.REMEMBERED)
    )


def test_observe_bounds_the_weighted_square_of_the_error_of_a_real_reward() -> None:
    assert laws.observe(1.0 + 2.9 * 0.5, 1.0, 0.05, 0.2, False) == (1.0, 1.0 + 2.9 * 0.5)
    weight, response = laws.observe(-39.0, 1.0, 0.05, 0.2, False)
    # The weight times the squared error stays that of a reward at the limit, 3 deviations.
    assert weight * 1600 == pytest.approx((3.0 * 0.5) ** 2)
    assert response == -39.0


@given(st.sampled_from([0.0, 1.0]), st.floats(-6.0, 6.0), st.floats(0.0, 9.0))
def test_observe_gives_a_click_the_slope_and_the_curvature_of_its_likelihood(
    y: float, level: float, spread: float
) -> None:
    found = laws.observe(y, level, spread, 1.0, True)
    assert found == pytest.approx(click(y, level, spread))


def test_store_belief_keeps_the_likeliest_models_and_sums_to_one() -> None:
    chance = np.array([0.05, 0.3, 0.0005, 0.02, 0.1, 0.04, 0.2, 0.01, 0.06, 0.2195])
    rows, user = np.arange(0, 20, 2, dtype=np.intp), a_user({0: 1.0})
    ledger.store_belief(user, rows, chance)
    belief = belief_of(user, 20)
    kept = np.argsort(-chance)[: ledger.PLACES]
    assert sorted(np.flatnonzero(belief).tolist()) == sorted((2 * kept).tolist())
    np.testing.assert_allclose(belief[2 * kept], chance[kept] / chance[kept].sum())
    assert user[ledger.LIKELY] == 2
    assert (np.diff(user[ledger.CHANCE : ledger.CHANCE + ledger.PLACES]) <= 0).all()
    ledger.store_belief(user, rows[:2], np.array([1.0 - 0.5 * ledger.TINY_SHARE, 0.0005]))
    assert belief_of(user, 20)[0] == 1.0


def test_load_belief_adds_up_places_that_name_the_same_model() -> None:
    """So it is after two models were merged."""
    user = a_user({1: 0.25, 0: 0.25})
    user[ledger.LIKELY + 2], user[ledger.CHANCE + 2] = 1, 0.5
    assert belief_of(user, 3).tolist() == [0.25, 0.75, 0.0]


def test_choose_adds_widths_to_real_rewards() -> None:
    mean, width = np.array([1.0, 0.0, 0.5]), np.array([0.1, 1.2, 0.65])
    assert choosing.choose(mean, width, False, 1e-9) == (1, 0.0, 1.2)


def test_choose_raises_the_odds_of_clicks_by_the_widths_of_levels() -> None:
    """Odds of 1 become 3, a chance of 3/4; odds of 1/9 become 4, a chance of 4/5."""
    mean, width = np.array([0.5, 0.1]), np.array([math.log(3.0), math.log(36.0)])
    assert choosing.choose(mean, width, True, 1e-9) == pytest.approx((1, 0.1, 0.7))
    np.testing.assert_allclose(width, [0.25, 0.7])
    assert choosing.choose(mean, np.log([3.0, 18.0]), True, 1e-9) == pytest.approx((0, 0.5, 0.25))


def test_choose_returns_the_first_of_arms_that_tie() -> None:
    mean = np.array([0.0, 0.5, 0.5 + 1e-12])
    for binary in (False, True):
        assert choosing.choose(mean, np.zeros(3), binary, 1e-9)[0] == 1
        assert choosing.choose(mean, np.zeros(3), binary, 0.0)[0] == 2


def recorded(
    totals: FloatArray, contexts: FloatArray, x: list[float], y: float, *sizes: float
) -> FloatArray:
    """Record a reward; `sizes` are the most that a reward and a squared length count as."""
    context = np.array(x)
    most_reward, most = sizes or (0.0, 0.0)
    atlas.record(totals, contexts, context, y, 1e-40, 25.0, 20.0, most_reward, most)
    return context


def test_record_counts_rewards_and_contexts_up_to_a_given_size() -> None:
    totals, contexts = np.zeros(6), np.zeros((3, 3))
    recorded(totals, contexts, [3.0, 4.0], 1.0)
    recorded(totals, contexts, [30.0, 40.0], -7.0, 2.0, 25.0)
    assert totals.tolist() == [2.0, -1.0, 5.0, 50.0, 1.0, 1.0]
    z = np.array([3.0, 4.0, 1.0])  # the second context is cut to the length of the first
    np.testing.assert_allclose(contexts, np.outer(z, z))


def test_record_bounds_squares_by_their_mean_once_that_is_settled() -> None:
    totals, contexts = np.array([20.0, 0.0, 80.0, 20.0, 20.0, 3.0]), np.eye(2)
    recorded(totals, contexts, [100.0], -1e3)
    # At most 25 times the mean square of 4, and 25 times the mean squared length of 1.
    assert totals.tolist() == [21.0, -10.0, 180.0, 45.0, 21.0, 3.0]


def test_record_sets_tiny_features_to_zero() -> None:
    assert recorded(np.zeros(6), np.zeros((3, 3)), [1e-41, -2.0], 1.0).tolist() == [0.0, -2.0]


def test_record_weights_contexts_equally_and_then_by_age() -> None:
    rng, totals, contexts = np.random.default_rng(0), np.zeros(6), np.zeros((2, 2))
    X = rng.normal(size=(50, 1))
    for x in X:
        recorded(totals, contexts, x.tolist(), 0.0)
    assert contexts[0, 0] == pytest.approx(float((X**2).mean()))
    totals[0], totals[3], before = 1e9, 1e9, contexts[0, 0]
    recorded(totals, contexts, [5.0], 0.0)
    assert contexts[0, 0] - before == pytest.approx(atlas.OLDEST * (25.0 - before))


def test_add_to_segment_adds_one_weighted_observation() -> None:
    gram, moment, sums = np.eye(2), np.ones(2), np.array([3.0, 1.0, 7.0, 2.0])
    atlas.add_to_segment(gram, moment, sums, np.array([3.0]), -2.0, 0.5)
    np.testing.assert_allclose(gram, [[5.5, 1.5], [1.5, 1.5]])
    np.testing.assert_allclose(moment, [-2.0, 0.0])
    assert sums.tolist() == [4.0, 3.0, 7.0, 2.0]


@FEW
@given(SEEDS, DIMS, st.booleans())
def test_decide_located_scores_by_the_belief_and_the_deviations_of_the_home(
    seed: int, dim: int, binary: bool
) -> None:
    """No arm is much less known than the contexts seen, so widths are 0.25 deviations."""
    scene = Scene(seed, dim, 3)
    user, arms = located(scene, {1: 0.8, 3: 0.2}), scene.rng.normal(size=(5, dim))
    scene.shelf.tally[1, SLACK] = 1e9
    estimate = np.empty(dim + 1)
    arm, mean, width = choosing.decide_located(
        scene.theta, scene.covariance, scene.shelf.tally, user, arms, a_stream(binary=binary),
        0.25, 0.0, estimate,
    )  # fmt: skip
    expected = 0.8 * scene.theta[1] + 0.2 * scene.theta[3]
    np.testing.assert_allclose(estimate, expected)
    Z = np.column_stack((arms, np.ones(5)))
    variances = ((Z @ scene.covariance[1]) * Z).sum(axis=1)
    means, widths = Z @ expected, 0.25 * np.sqrt(variances)
    if binary:
        means = expit(means)
        widths = expit(logit(means) + widths) - means
    assert arm == np.argmax(means + widths)
    assert (mean, width) == pytest.approx((means[arm], widths[arm]))


@pytest.mark.parametrize(("binary", "information"), [(False, 1.0 / 0.4), (True, 0.25)])
def test_decide_located_gives_an_arm_that_is_little_known_a_gittins_index(
    binary: bool, information: float
) -> None:
    """Its variance of 1 is 20 times the slack, so it has most of the index of a new arm.

    The model has 5 rewards, and 100 more until the taste changes.
    """
    scene = Scene(0, 1, 3)
    user, estimate = located(scene, {1: 1.0}), np.empty(2)
    scene.theta[1], scene.covariance[1] = 0.0, np.diag([1.0, 0.0])
    worth = 105.0 * information
    assert worth > 15.0  # the last piece of the approximation
    index = math.sqrt(2 * math.log(worth) - math.log(16 * math.pi * math.log(worth)))
    for slack, level in ((0.05, (1.0 - 0.05 * FAMILIAR) * index), (1.0, 0.25)):
        scene.shelf.tally[1, SLACK] = slack
        _, _, width = choosing.decide_located(
            scene.theta, scene.covariance, scene.shelf.tally, user, np.ones((1, 1)),
            a_stream(binary=binary), 0.25, 0.0, estimate,
        )  # fmt: skip
        assert width == pytest.approx(expit(level) - 0.5 if binary else level)


def test_remember_drops_the_oldest_reward_of_a_full_memory() -> None:
    user, block = a_user({0: 1.0}), np.zeros((3, 1 + kernels.memory.REMEMBERED))
    for y in range(5):
        ledger.remember(user, block, np.array([10.0 * y]), float(y), -3.0 * y, 0.5, -1.0, 0.25)
        assert user[ledger.LENGTH] == min(y + 1, 3)
    np.testing.assert_array_equal(
        block, [[10.0 * y, y, -3.0 * y, 0.5, -1.0, 0.25] for y in (2.0, 3.0, 4.0)]
    )


@FEW
@given(
    SEEDS, DIMS, st.integers(0, 4),
    st.sampled_from([kernels.memory.REWARD, kernels.memory.RESPONSE]),
    st.sampled_from([kernels.memory.WEIGHT, kernels.memory.CREDIT, -1]),
)  # fmt: skip
def test_sum_memory_adds_the_weighted_values_from_a_point_on(
    seed: int, dim: int, first: int, value: int, weight: int
) -> None:
    rng = np.random.default_rng(seed)
    block = rng.uniform(0.1, 2.0, size=(8, dim + kernels.memory.REMEMBERED))
    gram, moment = np.eye(dim + 1), np.ones(dim + 1)
    energy = atlas.sum_memory(block, first, 5, value, weight, gram, moment)
    part = block[first:5]
    Z, y = np.column_stack((part[:, :dim], np.ones(len(part)))), part[:, dim + value]
    w = np.ones(len(part)) if weight == -1 else part[:, dim + weight]
    np.testing.assert_allclose(gram, np.eye(dim + 1) + Z.T @ (w[:, None] * Z), atol=1e-12)
    np.testing.assert_allclose(moment, 1.0 + Z.T @ (w * y), atol=1e-12)
    assert energy == pytest.approx(w @ (y * y))


# A reward of a user in doubt


def kept(chance: FloatArray) -> FloatArray:
    """Return a belief as it is stored: without tiny probabilities."""
    chance = np.where(chance < ledger.TINY_SHARE, 0.0, chance)
    return np.asarray(chance / chance.sum())


@FEW
@given(SEEDS, DIMS, st.integers(0, 6), st.sampled_from([-math.inf, -3.0]))
def test_learn_in_doubt_gives_bayes_belief_and_keeps_the_books(
    seed: int, dim: int, length: int, stray: float
) -> None:
    scene, stream = Scene(seed, dim, length), a_stream(stray=stray)
    x, y, block = scene.rng.normal(size=dim), float(scene.rng.normal()), empty_memory(dim)
    z, before, laws = np.append(x, 1.0), scene.chances(), scene.laws()
    surprised = scene.learn(x, y, stream, block)
    after, news = [law.given(scene.segment) for law in laws], Observed(z[None], np.array([y]), 0.4)
    density = np.logaddexp([law.log_marginal(news) for law in after], stray)
    chance = before * np.exp(density)
    belief = belief_of(scene.user, scene.room)
    np.testing.assert_allclose(
        belief[scene.shelf.rows], kept(chance / chance.sum()), rtol=1e-5, atol=1e-7
    )
    if stray == -math.inf:  # the posterior given all rewards at once
        data = scene.segment + news
        logs = np.array([law.log_marginal(data) for law in laws])
        np.testing.assert_allclose(
            belief[scene.shelf.rows], kept(np.exp(logs - logsumexp(logs))), rtol=1e-5, atol=1e-7
        )
    # Beyond 3 deviations of the mixture a reward has less weight.
    levels = np.array([z @ law.mean for law in after])
    variances = np.array([z @ law.covariance @ z for law in after])
    level = before @ levels
    square = 0.4 + before @ (variances + (levels - level) ** 2)
    weight = min(float(9.0 * square / (y - level) ** 2), 1.0)
    assert surprised == (weight < 1.0)
    scene.assert_sums_have_grown(z, y, weight)
    # Of the reward are stored the density that the mixture predicted, and its weight.
    assert block[0, dim + kernels.memory.DENSITY] == pytest.approx(
        logsumexp(density, b=before), rel=1e-5, abs=1e-5
    )
    assert block[0, dim + kernels.memory.REWARD] == y
    assert block[0, dim + kernels.memory.RESPONSE] == y
    assert block[0, dim + kernels.memory.WEIGHT] == pytest.approx(weight)
    assert block[0, dim + kernels.memory.CREDIT] == 0.0


@FEW
@given(SEEDS, DIMS, st.integers(0, 6), st.sampled_from([0.0, 1.0]))
def test_learn_in_doubt_from_a_click_gives_bayes_belief_with_bernoulli_densities(
    seed: int, dim: int, length: int, y: float
) -> None:
    scene, stream = Scene(seed, dim, length, noise=1.0), a_click_stream()
    x, block = scene.rng.normal(size=dim), empty_memory(dim)
    z, before = np.append(x, 1.0), scene.chances()
    after = [law.given(scene.segment) for law in scene.laws()]
    assert not scene.learn(x, y, stream, block)
    levels = np.array([z @ law.mean for law in after])
    variances = np.array([z @ law.covariance @ z for law in after])
    density = bernoulli.pmf(y, chance_of_click(levels, variances))
    chance = before * density
    belief = belief_of(scene.user, scene.room)
    np.testing.assert_allclose(
        belief[scene.shelf.rows], kept(chance / chance.sum()), rtol=1e-5, atol=1e-7
    )
    # The click is expanded around the mean of the mixture, with the mixture's variance.
    level = float(before @ levels)
    spread = float(before @ (variances + (levels - level) ** 2))
    weight, response = click(y, level, spread)
    scene.assert_sums_have_grown(z, response, weight)
    assert block[0, dim : dim + kernels.memory.REMEMBERED].tolist() == pytest.approx(
        [y, response, weight, math.log(before @ density), 0.0], rel=1e-5, abs=1e-9
    )
    assert not scene.user[[ledger.NOISE_SUM, ledger.NOISE_WEIGHT]].any()  # clicks have no own noise


def test_learn_in_doubt_gives_an_outlying_reward_less_weight() -> None:
    scene, stream = Scene(3, 2, 5), a_stream(stray=-5.0)
    gram, x = scene.gram.copy(), np.array([0.5, -1.0])
    block = empty_memory(2)
    assert scene.learn(x, 1e3, stream, block)
    weight = block[0, 2 + kernels.memory.WEIGHT]
    assert 0.0 < weight < 0.05
    z = np.append(x, 1.0)
    np.testing.assert_allclose(scene.gram, gram + weight * np.outer(z, z))
    assert scene.sums[ledger.ENERGY] == pytest.approx(
        scene.segment.y @ scene.segment.y + weight * 1e6
    )
    scene.assert_books(scene.noise, scene.gram, scene.moment, 6.0)


def test_learn_in_doubt_holds_the_segment_anew_when_the_noise_has_changed() -> None:
    """Models take the segment out with the noise they hold it with, and take it in with today's."""
    scene, stream = Scene(5, 3, 6), a_stream(noise=0.9)
    scene.learn(np.ones(3), 0.3, stream, empty_memory(3))
    assert scene.sums[ledger.SCALE] == pytest.approx(1.0 / 0.9)
    scene.assert_books(0.9, scene.gram, scene.moment, 7.0)


@FEW
@given(SEEDS, DIMS, st.integers(1, 6), st.sampled_from([-1, 4]))
def test_place_computes_the_belief_from_the_models_as_they_are(
    seed: int, dim: int, length: int, banned: int
) -> None:
    scene = Scene(seed, dim, length)
    shelf = scene.shelf
    evidence, misfits = scene.place(a_stream(), empty_memory(dim), banned)
    assert not misfits.any()
    logs = np.array([law.log_marginal(scene.segment) for law in scene.laws()])
    np.testing.assert_allclose(np.diff(evidence), np.diff(logs), rtol=1e-5, atol=1e-6)
    logs[shelf.rows == banned] = -np.inf
    belief = belief_of(scene.user, scene.room)
    np.testing.assert_allclose(
        belief[shelf.rows], kept(np.exp(logs - logsumexp(logs))), rtol=1e-5, atol=1e-7
    )
    scene.assert_books(scene.noise, scene.gram, scene.moment, length)


@FEW
@given(SEEDS, DIMS, st.integers(1, 6))
def test_place_counts_remembered_clicks_with_their_own_likelihood(
    seed: int, dim: int, length: int
) -> None:
    """Log Z of the expansions, and at each model's estimate what the likelihood has beyond them."""
    scene = Scene(seed, dim, length, noise=1.0)
    data, clicked = scene.segment, scene.segment.y > 0.0
    block = memory_of(data)
    block[:length, dim + kernels.memory.REWARD] = clicked
    scene.user[ledger.LENGTH] = length
    expanded, _ = scene.place(a_stream(1.0), block)
    scene = Scene(seed, dim, length, noise=1.0)
    scene.user[ledger.LENGTH] = length
    evidence, misfits = scene.place(a_click_stream(), block)
    np.testing.assert_allclose(evidence - expanded, misfits, rtol=1e-6, atol=1e-6)
    for misfit, law in zip(misfits, scene.laws(), strict=True):
        level = data.Z @ law.given(data).mean
        exact = clicked * level - np.logaddexp(0.0, level)
        assert misfit == pytest.approx(float((exact + 0.5 * (level - data.y) ** 2).sum()), rel=1e-6)


# A reward of a located user


def located(scene: Scene, belief: dict[int, float]) -> FloatArray:
    """Take the segment out of the models, refresh these, and return a user located on row 1."""
    scene.share_out(-1.0)
    scene.refresh()
    return a_user(belief, home=1)


def follow(
    scene: Scene, user: FloatArray, stream: FloatArray, x: FloatArray, y: float, block: FloatArray
) -> tuple[bool, bool]:
    shelf = scene.shelf
    return atlas.learn_located(
        shelf.precision, shelf.shift, scene.covariance, scene.theta, shelf.tally, shelf.rows,
        scene.prior.precision, scene.prior.shift, scene.contexts, user, block, stream, x, y,
    )  # fmt: skip


def filtered(belief: FloatArray, density: FloatArray, hazard: float) -> FloatArray:
    """Return p(model | y) ∝ ((1 − h) belief + h/K) · density."""
    chance = ((1.0 - hazard) * belief + hazard / len(belief)) * density
    return np.asarray(chance / chance.sum())


def assert_home_has_learnt(
    scene: Scene, user: FloatArray, stream: FloatArray, z: FloatArray, response: float,
    chance: FloatArray, credit: float,
) -> None:  # fmt: skip
    """Check that the home, row 1, holds one more observation, and that the belief is `chance`."""
    home, law, tally = scene.others[0], scene.laws()[1], scene.shelf.tally[1]
    np.testing.assert_allclose(
        scene.shelf.precision[1], home.precision + credit * np.outer(z, z), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        scene.shelf.shift[1], home.shift + credit * response * z, rtol=1e-6, atol=1e-8
    )
    # Covariance and estimate are those of the sums, without an inverse.
    after = law.given(Observed(z[None], np.array([response]), 1.0 / credit))
    np.testing.assert_allclose(scene.covariance[1], after.covariance, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(scene.theta[1], after.mean, rtol=1e-6, atol=1e-6)
    assert tally[COUNT] == pytest.approx(len(home.y) + chance[0])
    assert np.isnan(tally[EVIDENCE])
    assert tally[VISITED] == stream[ledger.CLOCK]
    assert stream[ledger.FOLLOWED] == 1.0
    if chance[0] > 1.0 - 2.0 * stream[ledger.HAZARD]:
        chance = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        belief_of(user, scene.room)[[1, 3, 4]], kept(chance), rtol=1e-5, atol=1e-7
    )


@FEW
@given(SEEDS, DIMS, st.floats(0.001, 0.2), st.sampled_from([-math.inf, -3.0]))
def test_learn_located_is_a_filter_step_and_a_rank_one_update(
    seed: int, dim: int, hazard: float, stray: float
) -> None:
    scene, stream = Scene(seed, dim, 4), a_stream(hazard=hazard, stray=stray)
    user = located(scene, {1: 0.9, 3: 0.1})
    x = scene.rng.normal(size=dim)
    z, block = np.append(x, 1.0), empty_memory(dim)
    means = scene.theta[[1, 3, 4]] @ z
    y = float(means[0] + 0.5 * scene.rng.normal())
    # Of other models only the mean variance is known.
    leverage = z @ scene.laws()[1].covariance @ z
    variance = np.array([leverage, *scene.shelf.tally[[3, 4], SLACK]]) + scene.noise
    logs = norm.logpdf(y, means, np.sqrt(variance))
    chance = filtered(np.array([0.9, 0.1, 0.0]), np.exp(logs) + math.exp(stray), hazard)
    error = y - means[0]
    surprised, suspicious = follow(scene, user, stream, x, y, block)
    assert not surprised
    assert suspicious == bool(error**2 > 4.0 * variance[0] or chance[0] < 0.5)
    credit = chance[0] / scene.noise
    assert_home_has_learnt(scene, user, stream, z, y, chance, credit)
    assert block[0, dim : dim + kernels.memory.REMEMBERED].tolist() == pytest.approx(
        [y, y, 1.0, np.logaddexp(logs[0], stray), credit]
    )


@FEW
@given(SEEDS, DIMS, st.floats(0.001, 0.2), st.sampled_from([0.0, 1.0]))
def test_learn_located_from_a_click_is_a_filter_step_with_bernoulli_densities(
    seed: int, dim: int, hazard: float, y: float
) -> None:
    scene, stream = Scene(seed, dim, 4, noise=1.0), a_click_stream(hazard)
    user = located(scene, {1: 0.9, 3: 0.1})
    x = scene.rng.normal(size=dim)
    z, block = np.append(x, 1.0), empty_memory(dim)
    means = scene.theta[[1, 3, 4]] @ z
    leverage = float(z @ scene.laws()[1].covariance @ z)
    variance = np.array([leverage, *scene.shelf.tally[[3, 4], SLACK]])
    density = bernoulli.pmf(y, chance_of_click(means, variance))
    chance = filtered(np.array([0.9, 0.1, 0.0]), density, hazard)
    assert follow(scene, user, stream, x, y, block) == (False, bool(chance[0] < 0.5))
    # The click is expanded around what the home expects.
    weight, response = click(y, float(means[0]), leverage)
    credit = weight * chance[0]
    assert_home_has_learnt(scene, user, stream, z, response, chance, credit)
    assert block[0, dim : dim + kernels.memory.REMEMBERED].tolist() == pytest.approx(
        [y, response, weight, math.log(density[0]), credit]
    )
    assert not user[[ledger.NOISE_SUM, ledger.NOISE_WEIGHT]].any()


def test_learn_located_refreshes_a_home_that_others_have_added_to() -> None:
    scene = Scene(2, 2, 4)
    user = located(scene, {1: 1.0})
    stale = scene.theta[1].copy()
    kernels.tastes.contribute(
        scene.shelf.precision, scene.shelf.shift, scene.shelf.tally, 1, 1.0, 1.0,
        0.01 * np.eye(3), np.array([0.1, 0.0, 0.0]), 0.01,
    )  # fmt: skip
    follow(scene, user, a_stream(), np.zeros(2), 0.0, empty_memory(2))
    expected = np.linalg.solve(
        scene.shelf.precision[1] + scene.prior.precision, scene.shelf.shift[1] + scene.prior.shift
    )
    np.testing.assert_allclose(scene.theta[1], expected, rtol=1e-9)
    assert np.abs(scene.theta[1] - stale).max() > 1e-3


def test_learn_located_gives_an_outlying_reward_less_weight() -> None:
    scene, stream = Scene(2, 2, 4), a_stream(stray=-5.0)
    user, block = located(scene, {1: 1.0}), empty_memory(2)
    before = scene.theta[1].copy()
    assert follow(scene, user, stream, np.ones(2), 1e6, block) == (True, True)
    assert block[0, 2 + kernels.memory.WEIGHT] < 1e-4
    assert np.abs(scene.theta[1] - before).max() < 10.0
    assert belief_of(user, scene.room)[1] == pytest.approx(1.0)  # a stray says nothing


def test_learn_located_asks_for_no_review_if_a_click_surprises_all_models_alike() -> None:
    """A click of chance 0.0003 is no outlier, and says nothing about which model is right."""
    scene = Scene(2, 1, 4)
    user, block = located(scene, {1: 1.0}), empty_memory(1)
    scene.theta[:], scene.covariance[:], scene.shelf.tally[:, SLACK] = (0.0, -8.0), 0.0, 0.0
    assert follow(scene, user, a_click_stream(), np.zeros(1), 1.0, block) == (False, False)
    assert belief_of(user, scene.room)[1] == 1.0


@pytest.mark.parametrize(("chance", "review"), [(0.45, True), (0.55, False)])
def test_learn_located_asks_for_a_review_when_the_home_is_not_likely(
    chance: float, review: bool
) -> None:
    """The reward is as expected, and its noise so large that it changes no belief."""
    scene, stream = Scene(11, 2, 4), a_stream(noise=1e6, hazard=1e-6)
    user = located(scene, {4: 1.0 - chance, 1: chance})
    x = np.array([0.5, -1.0])
    expected = float(np.append(x, 1.0) @ scene.theta[1])
    result = follow(scene, user, stream, x, expected, empty_memory(2))
    assert result == (False, review)


# The search for a change


def rest_under(law: Prior, data: Observed, weights: FloatArray, stray: float) -> FloatArray:
    """Return the log evidence of the rewards from each point on, absorbed from the last one back.

    A reward of weight `w` was far from expected; it is absorbed as one of noise variance ``σ²/w``.
    """
    n = len(data.y)
    out = np.zeros(n + 1)
    for t in range(n - 1, -1, -1):
        density = law.log_marginal(Observed(data.Z[[t]], data.y[[t]], data.noise))
        out[t] = out[t + 1] + np.logaddexp(density, stray)
        law = law.given(Observed(data.Z[[t]], data.y[[t]], data.noise / weights[t]))
    return out


def clicks_under(law: Prior, data: Observed) -> FloatArray:
    """Return the log probability of the clicks from each point on, absorbed from the last back."""
    n = len(data.y)
    out = np.zeros(n + 1)
    for t in range(n - 1, -1, -1):
        z, y = data.Z[t], float(data.y[t])
        level, variance = z @ law.mean, z @ law.covariance @ z
        out[t] = out[t + 1] + bernoulli.logpmf(y, chance_of_click(level, variance))
        weight, response = click(y, float(level), float(variance))
        law = law.given(Observed(z[None], np.array([response]), 1.0 / weight))
    return out


def rest_at(scene: Scene, row: int, stray: float, *, binary: bool = False) -> FloatArray:
    """Return the log density of the rewards from each point on, under one model."""
    data, slack = scene.segment, scene.shelf.tally[row, SLACK]
    levels = data.Z @ scene.theta[row]
    if binary:
        logs = bernoulli.logpmf(data.y, chance_of_click(levels, slack))
    else:
        logs = np.logaddexp(norm.logpdf(data.y, levels, np.sqrt(scene.noise + slack)), stray)
    return np.array([logs[t:].sum() for t in range(len(logs) + 1)])


def with_clicks(data: Observed) -> Observed:
    """Return observations of 0 and 1 instead: 1 where they were above 0."""
    return Observed(data.Z, np.asarray(data.y > 0.0, np.float64), data.noise)


@FEW
@given(SEEDS, DIMS, st.integers(1, 6))
def test_rest_as_new_is_the_log_marginal_likelihood_of_every_suffix(
    seed: int, dim: int, length: int
) -> None:
    rng = np.random.default_rng(seed)
    law, data, out = prior_of(rng, dim), observed(rng, dim, length, 0.3), np.empty(length + 1)
    atlas.rest_as_new(memory_of(data), length, law.covariance, law.mean, 0.3, -math.inf, False, out)
    direct = [law.log_marginal(Observed(data.Z[t:], data.y[t:], 0.3)) for t in range(length + 1)]
    np.testing.assert_allclose(out, direct, rtol=1e-7, atol=1e-7)


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.floats(-4.0, 0.0))
def test_rest_as_new_with_strays_and_weights(
    seed: int, dim: int, length: int, stray: float
) -> None:
    rng = np.random.default_rng(seed)
    law, data, out = prior_of(rng, dim), observed(rng, dim, length, 0.3), np.empty(length + 1)
    block, weights = memory_of(data), rng.uniform(0.1, 1.0, size=length)
    block[:length, dim + kernels.memory.WEIGHT] = weights
    atlas.rest_as_new(block, length, law.covariance, law.mean, 0.3, stray, False, out)
    np.testing.assert_allclose(out, rest_under(law, data, weights, stray), rtol=1e-6, atol=1e-6)


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5))
def test_rest_as_new_expands_every_click_around_what_later_ones_tell(
    seed: int, dim: int, length: int
) -> None:
    """Weights and responses in the memory do not count: they were given by another taste."""
    rng = np.random.default_rng(seed)
    law, data = prior_of(rng, dim), with_clicks(observed(rng, dim, length, 1.0))
    block, out = memory_of(data), np.empty(length + 1)
    block[:length, dim + kernels.memory.WEIGHT] = rng.uniform(0.1, 1.0, size=length)
    block[:length, dim + kernels.memory.RESPONSE] = rng.normal(size=length)
    atlas.rest_as_new(block, length, law.covariance, law.mean, 1.0, -1.0, True, out)
    np.testing.assert_allclose(out, clicks_under(law, data), rtol=1e-6, atol=1e-6)


@FEW
@given(SEEDS, st.integers(1, 3))
def test_probabilities_of_all_sequences_of_clicks_sum_to_one(seed: int, dim: int) -> None:
    """For a taste never met, and for a model."""
    scene = Scene(seed, dim, 4, noise=1.0)
    scene.refresh()
    as_new, as_known, out = 0.0, 0.0, np.empty(5)
    for clicks in itertools.product((0.0, 1.0), repeat=4):
        block = memory_of(Observed(scene.segment.Z, np.array(clicks), 1.0))
        prior, models = scene.prior, (scene.theta, scene.shelf.tally)
        atlas.rest_as_new(block, 4, prior.covariance, prior.mean, 1.0, -1.0, True, out)
        as_new += math.exp(out[0])
        atlas.rest_as_known(block, 4, *models, 3, 1.0, -1.0, True, out)
        as_known += math.exp(out[0])
    assert (as_new, as_known) == pytest.approx((1.0, 1.0))


@FEW
@given(SEEDS, DIMS, st.integers(1, 6), st.sampled_from([-math.inf, -2.0]), st.booleans())
def test_rest_as_known_is_the_log_density_of_every_suffix(
    seed: int, dim: int, length: int, stray: float, binary: bool
) -> None:
    scene = Scene(seed, dim, length)
    scene.refresh()
    if binary:
        scene.segment = with_clicks(scene.segment)
    out, block = np.empty(length + 1), memory_of(scene.segment)
    block[:length, dim + kernels.memory.WEIGHT] = scene.rng.uniform(0.1, 1.0, size=length)
    block[:length, dim + kernels.memory.RESPONSE] = scene.rng.normal(size=length)
    atlas.rest_as_known(
        block, length, scene.theta, scene.shelf.tally, 3, scene.noise, stray, binary, out
    )
    np.testing.assert_allclose(out, rest_at(scene, 3, stray, binary=binary), atol=1e-9)


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.booleans(), st.booleans(), st.data())
def test_review_is_the_posterior_over_change_points(
    seed: int, dim: int, length: int, is_located: bool, binary: bool, data: st.DataObject
) -> None:
    """Enumerate all hypotheses: no change, or a change at `i` to a model that is not the home."""
    stream = a_click_stream(0.1) if binary else a_stream(hazard=0.1, stray=-4.0)
    new = data.draw(st.sampled_from([1.0, 5.0]))
    stream[ledger.NEWNESS] = math.log(new)
    scene = Scene(seed, dim, length, noise=float(stream[ledger.NOISE]))
    scene.refresh()
    if binary:
        scene.segment = with_clicks(scene.segment)
    first = data.draw(st.integers(0, length - 1))
    density = norm.logpdf(scene.segment.y, scale=1.5)
    user = a_user({1: 1.0}, home=1 if is_located else None)
    user[ledger.LENGTH] = length
    unchanged, cut = atlas.review(
        scene.theta, scene.shelf.tally, scene.shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, memory_of(scene.segment, density=density), stream, first,
    )  # fmt: skip
    rest = scene.rests(-4.0, binary=binary)
    if is_located:
        del rest[1]
    joint = {
        (row, t): (1.0 if row else new) * 0.1 / (3 + new) * math.exp(density[:t].sum() + logs[t])
        for row, logs in rest.items()
        for t in range(first, length)
    }
    none = math.exp(density.sum())
    total = none + sum(joint.values())
    assert unchanged == pytest.approx(none / total, rel=1e-5)
    by_point = [sum(joint[row, t] for row in rest) for t in range(first, length)]
    assert by_point[cut - first] == pytest.approx(max(by_point), rel=1e-6)
    by_model = {row: sum(joint[row, t] for t in range(first, length)) for row in rest}
    assert user[ledger.SUSPICION] == pytest.approx(max(by_model.values()) / total, rel=1e-5)
    assert by_model[int(user[ledger.SUSPECT])] == pytest.approx(max(by_model.values()), rel=1e-6)


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5))
def test_review_in_doubt_is_a_review_by_models_without_the_own_share(
    seed: int, dim: int, length: int
) -> None:
    """The models of the second scene never held the segment."""
    stream = a_stream(hazard=0.1, stray=-4.0)
    scene, apart = Scene(seed, dim, length), Scene(seed, dim, length)
    apart.share_out(-1.0)
    scene.refresh()
    apart.refresh()
    density = norm.logpdf(scene.segment.y, scale=1.5)
    found = []
    for user in (scene.user, apart.user):
        user[ledger.LENGTH] = length
    found.append(
        atlas.review_in_doubt(
            scene.shelf.precision, scene.shelf.shift, scene.theta, scene.shelf.tally,
            scene.shelf.rows, scene.prior.precision, scene.prior.shift, scene.prior.covariance,
            scene.prior.mean, scene.gram, scene.moment, scene.sums, scene.user,
            memory_of(scene.segment, density=density), stream, 0,
        )
    )  # fmt: skip
    found.append(
        atlas.review(
            apart.theta, scene.shelf.tally, scene.shelf.rows, scene.prior.covariance,
            scene.prior.mean, apart.user, memory_of(scene.segment, density=density), stream, 0,
        )
    )  # fmt: skip
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert scene.user[ledger.SUSPICION] == pytest.approx(apart.user[ledger.SUSPICION], rel=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_the_panel_gets_the_last_reward_with_its_weight_and_a_click_as_it_is(binary: bool) -> None:
    data = Observed(np.array([[5.0, 1.0], [2.0, 1.0]]), np.array([7.0, 3.0]), 0.4)
    block, user = memory_of(data), a_user({1: 1.0})
    user[[ledger.LENGTH, ledger.SEAT]], user[[ledger.NOISE_SUM, ledger.NOISE_WEIGHT]] = (
        (2, 1),
        (6, 1),
    )
    block[1, 1 + kernels.memory.WEIGHT], block[1, 1 + kernels.memory.RESPONSE] = 0.5, 9.0
    stream = a_stream(binary=binary)
    stream[[ledger.RATIO_PRIOR, ledger.RATIO_MEAN]] = 1.0, 1.0  # ratio (1 + 6)/(1 + 1)
    gram, moment, sums = np.zeros((2, 2, 2)), np.zeros((2, 2)), np.zeros((2, 4))
    atlas.seat_reward(gram, moment, sums, user, block, stream)
    w = 1.0 if binary else 0.5
    assert (gram[1] / w).tolist() == [[4.0, 2.0], [2.0, 1.0]]
    assert (moment[1] / w).tolist() == [6.0, 3.0]
    assert sums[1].tolist() == [1.0, 9.0 * w, 0.0, 3.5]
    assert not gram[0].any()
    assert not sums[0].any()


def test_review_returns_a_number_where_a_change_is_beyond_doubt() -> None:
    scene, stream = Scene(0, 2, 5, noise=1e-6), a_stream(noise=1e-6, stray=-1e4)
    scene.refresh()
    user = a_user({1: 1.0}, home=1)
    user[ledger.LENGTH] = 5
    block = memory_of(scene.segment, density=np.array([0.0, 0.0, -1e4, -1e4, -1e4]))
    block[:5, 2 + kernels.memory.REWARD] = scene.segment.Z @ scene.prior.mean
    unchanged, cut = atlas.review(
        scene.theta, scene.shelf.tally, scene.shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, block, stream, 0,
    )  # fmt: skip
    assert 0.0 <= unchanged < 1e-100
    assert cut <= 2


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.booleans())
def test_restart_sets_the_densities_of_the_mixture_and_nothing_else(
    seed: int, dim: int, length: int, binary: bool
) -> None:
    stream = a_click_stream() if binary else a_stream(stray=-4.0)
    scene = Scene(seed, dim, length, noise=float(stream[ledger.NOISE]))
    scene.refresh()
    if binary:
        scene.segment = with_clicks(scene.segment)
    user, block = a_user(BELIEF), memory_of(scene.segment)
    user[ledger.LENGTH] = length
    block[:, dim + kernels.memory.CREDIT] = 3.0
    shelf, before = scene.shelf, block.copy()
    restarts.restart(
        shelf.precision, shelf.shift, scene.theta, shelf.tally, shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, block, stream,
    )  # fmt: skip
    rests = scene.rests(-4.0, binary=binary)
    logs = [rests[row][:-1] - rests[row][1:] for row in BELIEF]
    expected = logsumexp(logs, axis=0, b=np.array(list(BELIEF.values()))[:, None])
    np.testing.assert_allclose(block[:length, dim + kernels.memory.DENSITY], expected, atol=1e-6)
    before[:length, dim + kernels.memory.DENSITY] = block[:length, dim + kernels.memory.DENSITY]
    np.testing.assert_array_equal(block, before)


# Weights and responses by another taste


@FEW
@given(SEEDS, DIMS, st.integers(0, 4), st.booleans())
def test_reobserve_sets_weights_and_responses_as_a_taste_expects_the_rewards(
    seed: int, dim: int, first: int, binary: bool
) -> None:
    rng = np.random.default_rng(seed)
    law, data = prior_of(rng, dim), observed(rng, dim, 6, 1.0)
    data.y *= 10.0
    if binary:
        data = with_clicks(data)
    block = memory_of(data)
    block[:, dim + kernels.memory.WEIGHT], block[:, dim + kernels.memory.RESPONSE] = 7.0, 8.0
    before = block.copy()
    restarts.reobserve(block, first, 5, law.covariance, law.mean, 0.2, binary)
    for t in range(first, 5):
        z, y = data.Z[t], float(data.y[t])
        level, variance = float(z @ law.mean), float(z @ law.covariance @ z)
        expected = min(9.0 * (0.2 + variance) / (y - level) ** 2, 1.0), y
        before[t, [dim + kernels.memory.WEIGHT, dim + kernels.memory.RESPONSE]] = (
            click(y, level, variance) if binary else expected
        )
    np.testing.assert_allclose(block, before, rtol=1e-6, atol=1e-9)


@FEW
@given(SEEDS, st.integers(1, 4))
def test_sums_of_clicks_expanded_around_the_most_likely_taste_give_that_taste(
    seed: int, dim: int
) -> None:
    """The maximum of the posterior, found by a general optimiser, is a fixed point of Newton."""
    rng = np.random.default_rng(seed)
    law, data = prior_of(rng, dim), with_clicks(observed(rng, dim, 8, 1.0))

    def loss(theta: FloatArray) -> float:
        m, gap = data.Z @ theta, theta - law.mean
        return float(np.logaddexp(0.0, m).sum() - data.y @ m + 0.5 * gap @ law.precision @ gap)

    def slope(theta: FloatArray) -> FloatArray:
        gap = theta - law.mean
        return np.asarray(data.Z.T @ (expit(data.Z @ theta) - data.y) + law.precision @ gap)

    best = minimize(loss, law.mean, jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    block, p = memory_of(data), dim + 1
    restarts.reobserve(block, 0, 8, np.zeros((p, p)), best, 1.0, True)
    gram, moment = np.zeros((p, p)), np.zeros(p)
    atlas.sum_memory(block, 0, 8, kernels.memory.RESPONSE, kernels.memory.WEIGHT, gram, moment)
    found = np.linalg.solve(gram + law.precision, moment + law.shift)
    # The optimiser stops where the slope is about 1e-6; the least curvature of the prior is 0.05.
    np.testing.assert_allclose(found, best, atol=1e-4)
