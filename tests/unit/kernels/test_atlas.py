"""Kernels of Atlas: one reward of a user in doubt, of a located user, and the search for a change.

Expected values come from raw rewards: marginal likelihoods of whole segments, and Bayes' rule.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm

from dyclu import kernels
from dyclu.kernels import atlas
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
    noise: float = 0.4, hazard: float = 0.01, stray: float = -math.inf, rate: float | None = None
) -> FloatArray:
    """Return a stream; with a `rate` rewards are 0/1, and with rate 0 they have the same noise."""
    stream = np.zeros(9)
    stream[atlas.NOISE], stream[atlas.HAZARD], stream[atlas.STRAY] = noise, hazard, stray
    stream[atlas.CLOCK] = 77.0
    if rate is not None:
        stream[atlas.BINARY], stream[atlas.RATE] = 1.0, rate
    return stream


def a_user(belief: dict[int, float], *, home: int | None = None) -> FloatArray:
    user = np.zeros(atlas.WIDTH)
    for place, (row, chance) in enumerate(belief.items()):
        user[atlas.LIKELY + place], user[atlas.CHANCE + place] = row, chance
    user[atlas.STATUS] = atlas.IN_DOUBT if home is None else atlas.LOCATED
    user[atlas.HOME] = -1 if home is None else home
    return user


def belief_of(user: FloatArray, room: int) -> FloatArray:
    belief = np.empty(room)
    atlas.load_belief(user, belief)
    return belief


def memory_of(data: Observed, *, room: int = 8, density: FloatArray | None = None) -> FloatArray:
    """Return a block of memory with these rewards, all of weight 1."""
    d, n = data.Z.shape[1] - 1, len(data.y)
    block = np.zeros((room, d + 4))
    block[:n, :d], block[:n, d + atlas.REWARD] = data.Z[:, :-1], data.y
    block[:n, d + atlas.WEIGHT] = 1.0
    if density is not None:
        block[:n, d + atlas.DENSITY] = density
    return block


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

    def laws(self) -> list[Prior]:
        """Return what is known of each taste from the others, in the order of `rows`."""
        return [self.prior, *(self.prior.given(data) for data in self.others)]

    def chances(self) -> FloatArray:
        """Return the chance of each model, given the others' data and the segment."""
        logs = np.array([law.log_marginal(self.segment) for law in self.laws()])
        return np.asarray(np.exp(logs - logsumexp(logs)))

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
    total = atlas.normalise(chance)
    assert total == pytest.approx(logsumexp(logs))
    np.testing.assert_allclose(chance, np.exp(logs - logsumexp(logs)), rtol=1e-9, atol=1e-300)


@given(st.floats(-700.0, 700.0), st.floats(-700.0, 700.0))
def test_log_add_is_the_log_of_a_sum(a: float, b: float) -> None:
    assert atlas.log_add(a, b) == pytest.approx(np.logaddexp(a, b), rel=1e-12, abs=1e-12)


@given(st.floats(-30.0, 30.0), st.floats(0.01, 100.0))
def test_log_normal_is_the_log_density(error: float, variance: float) -> None:
    assert atlas.log_normal(error, variance) == pytest.approx(
        norm.logpdf(error, scale=math.sqrt(variance)), rel=1e-9, abs=1e-9
    )


def test_extended_appends_the_feature_of_the_intercept() -> None:
    assert atlas.extended(np.array([3.0, -2.0])).tolist() == [3.0, -2.0, 1.0]


def test_ledger_parts_are_where_kernels_read_them() -> None:
    at = 0
    columns = (
        "STATUS", "HOME", "BEFORE", "UNIT", "POOL", "SLOT", "LENGTH", "SINCE", "REWARDS", "HOLDING",
        "NOISE_SUM", "NOISE_WEIGHT", "SUSPECT", "SUSPICION", "LIKELY", "CHANCE",
    )  # fmt: skip
    for name, (part, shape) in zip(columns, atlas.ledger_parts().items(), strict=True):
        assert name.lower() == part
        assert getattr(atlas, name) == at
        at += math.prod(shape)
    assert at == atlas.WIDTH


def test_user_variance_is_the_population_s_if_users_do_not_differ() -> None:
    user, stream = a_user({0: 1.0}), a_stream(noise=0.3)
    user[atlas.NOISE_SUM], user[atlas.NOISE_WEIGHT] = 500.0, 10.0
    assert atlas.user_variance(user, stream) == 0.3


def test_user_variance_shrinks_the_own_ratio_towards_one() -> None:
    """Ten rewards of ratio 6 by the mean 2 of all users, and five that the prior counts as."""
    user, stream = a_user({0: 1.0}), a_stream(noise=0.3)
    stream[atlas.RATIO_PRIOR], stream[atlas.RATIO_MEAN] = 5.0, 2.0
    assert atlas.user_variance(user, stream) == pytest.approx(0.3)
    user[atlas.NOISE_SUM], user[atlas.NOISE_WEIGHT] = 60.0, 10.0
    assert atlas.user_variance(user, stream) == pytest.approx(0.3 * (5 * 1.0 + 10 * 3.0) / 15)


@given(st.floats(0.1, 5.0), st.floats(0.0, 5.0), st.floats(0.1, 5.0))
def test_note_noise_measures_the_user_s_ratio_without_bias(
    variance: float, spread: float, noise: float
) -> None:
    """An error of exactly one deviation, ``σ_u² + q``, counts as the ratio ``σ_u²/σ²``."""
    user = a_user({0: 1.0})
    atlas.note_noise(user, math.sqrt(variance + spread), spread, variance, noise)
    assert user[atlas.NOISE_WEIGHT] == pytest.approx(variance / (variance + spread))
    assert user[atlas.NOISE_SUM] / user[atlas.NOISE_WEIGHT] == pytest.approx(variance / noise)


def test_note_noise_bounds_gross_errors() -> None:
    user = a_user({0: 1.0})
    atlas.note_noise(user, 1e9, 0.0, 1.0, 1.0)
    assert user[atlas.NOISE_SUM] == atlas.OUTLYING**2


def test_weighted_square_of_an_error_is_bounded_unless_rewards_are_binary() -> None:
    stream = a_stream()
    assert atlas.observation_weight(2.9 * 0.5, 0.25, stream) == 1.0
    # The weight times the squared error stays that of a reward at the limit, 3 deviations.
    assert atlas.observation_weight(-40.0, 0.25, stream) * 1600 == pytest.approx((3.0 * 0.5) ** 2)
    stream[atlas.BINARY] = 1.0
    assert atlas.observation_weight(-40.0, 0.25, stream) == 1.0


def test_relative_variance_is_that_of_a_click_by_the_mean_one() -> None:
    stream = a_stream(rate=0.1)
    assert atlas.relative_variance(0.5, stream) == pytest.approx(0.25 / 0.09)
    # Never below 1, also where the expected reward is no probability.
    assert [atlas.relative_variance(m, stream) for m in (0.05, -0.2, 1.3)] == [1.0, 1.0, 1.0]
    assert atlas.relative_variance(0.5, a_stream()) == 1.0
    assert atlas.relative_variance(0.5, a_stream(rate=0.0)) == 1.0


def test_store_belief_keeps_the_likeliest_models_and_sums_to_one() -> None:
    chance = np.array([0.05, 0.3, 0.0005, 0.02, 0.1, 0.04, 0.2, 0.01, 0.06, 0.2195])
    rows, user = np.arange(0, 20, 2, dtype=np.intp), a_user({0: 1.0})
    atlas.store_belief(user, rows, chance)
    belief = belief_of(user, 20)
    kept = np.argsort(-chance)[: atlas.PLACES]
    assert sorted(np.flatnonzero(belief).tolist()) == sorted((2 * kept).tolist())
    np.testing.assert_allclose(belief[2 * kept], chance[kept] / chance[kept].sum())
    assert user[atlas.LIKELY] == 2
    assert (np.diff(user[atlas.CHANCE : atlas.CHANCE + atlas.PLACES]) <= 0).all()
    atlas.store_belief(user, rows[:2], np.array([1.0 - 0.5 * atlas.TINY_SHARE, 0.0005]))
    assert belief_of(user, 20)[0] == 1.0


def test_load_belief_adds_up_places_that_name_the_same_model() -> None:
    """So it is after two models were merged."""
    user = a_user({1: 0.25, 0: 0.25})
    user[atlas.LIKELY + 2], user[atlas.CHANCE + 2] = 1, 0.5
    assert belief_of(user, 3).tolist() == [0.25, 0.75, 0.0]


def test_choose_prefers_an_arm_that_nobody_has_tried() -> None:
    """Its variance is that of the prior; it gets 2 deviations, and the other one a quarter."""
    mean, arms = np.array([1.0, 0.0]), np.eye(2)
    covariance = np.eye(3)  # the prior variance of an arm is 2, with the intercept's
    tried, untried = np.array([0.01, 1.79]), np.array([0.01, 1.81])
    for variance, doubtful, expected in (
        (tried, 0.0, (0, 1.0, 0.25 * 0.1)),
        (untried, 0.0, (1, 0.0, 2.0 * math.sqrt(1.81))),
        (untried, math.inf, (0, 1.0, 0.25 * 0.1)),
    ):
        found = atlas.choose(mean, variance, arms, covariance, 0.25, 2.0, doubtful, 1e-9)
        assert found == pytest.approx(expected)


def test_choose_returns_the_first_of_arms_that_tie() -> None:
    mean, zero = np.array([0.0, 1.0, 1.0 + 1e-12]), np.zeros(3)
    assert atlas.choose(mean, zero, np.eye(3), np.eye(4), 0.25, 2.0, math.inf, 1e-9)[0] == 1


def recorded(
    totals: FloatArray, contexts: FloatArray, x: list[float], y: float, *sizes: float
) -> FloatArray:
    """Record a reward; `sizes` are the most that a reward and a squared length count as."""
    context = np.array(x)
    most_reward, most = sizes or (0.0, 0.0)
    atlas.record(totals, contexts, context, y, 1e-40, 25.0, 20.0, most_reward, most)
    return context


def test_record_counts_rewards_and_contexts_up_to_a_given_size() -> None:
    totals, contexts = np.zeros(5), np.zeros((3, 3))
    recorded(totals, contexts, [3.0, 4.0], 1.0)
    recorded(totals, contexts, [30.0, 40.0], -7.0, 2.0, 25.0)
    assert totals.tolist() == [2.0, -1.0, 5.0, 50.0, 1.0]
    z = np.array([3.0, 4.0, 1.0])  # the second context is cut to the length of the first
    np.testing.assert_allclose(contexts, np.outer(z, z))


def test_record_bounds_squares_by_their_mean_once_that_is_settled() -> None:
    totals, contexts = np.array([20.0, 0.0, 80.0, 20.0, 20.0]), np.eye(2)
    recorded(totals, contexts, [100.0], -1e3)
    # At most 25 times the mean square of 4, and 25 times the mean squared length of 1.
    assert totals.tolist() == [21.0, -10.0, 180.0, 45.0, 21.0]


def test_record_sets_tiny_features_to_zero() -> None:
    assert recorded(np.zeros(5), np.zeros((3, 3)), [1e-41, -2.0], 1.0).tolist() == [0.0, -2.0]


def test_record_weights_contexts_equally_and_then_by_age() -> None:
    rng, totals, contexts = np.random.default_rng(0), np.zeros(5), np.zeros((2, 2))
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
@given(SEEDS, DIMS)
def test_decide_located_scores_by_the_belief_and_the_deviations_of_the_home(
    seed: int, dim: int
) -> None:
    scene = Scene(seed, dim, 3)
    user, arms = located(scene, {1: 0.8, 3: 0.2}), scene.rng.normal(size=(5, dim))
    estimate = np.empty(dim + 1)
    arm, mean, width = atlas.decide_located(
        scene.theta, scene.covariance, scene.shelf.tally, user, arms, 1e9 * np.eye(dim + 1), 0.25,
        2.0, 0.0, estimate,
    )  # fmt: skip
    expected = 0.8 * scene.theta[1] + 0.2 * scene.theta[3]
    np.testing.assert_allclose(estimate, expected)
    Z = np.column_stack((arms, np.ones(5)))
    means, widths = Z @ expected, 0.25 * np.sqrt(((Z @ scene.covariance[1]) * Z).sum(axis=1))
    assert arm == np.argmax(means + widths)
    assert (mean, width) == pytest.approx((means[arm], widths[arm]))


def test_decide_located_gives_an_untried_arm_a_bold_width() -> None:
    """Its variance is far above the mean over contexts, and what the prior gives it."""
    scene = Scene(0, 1, 3)
    user, estimate = located(scene, {1: 1.0}), np.empty(2)
    scene.theta[1], scene.covariance[1] = 0.0, np.diag([1.0, 0.0])
    scene.shelf.tally[1, SLACK] = 0.1
    prior = np.diag([1.05, 0.0])
    for slack, factor in ((0.1, 2.0), (1.0, 0.25)):
        scene.shelf.tally[1, SLACK] = slack
        _, _, width = atlas.decide_located(
            scene.theta, scene.covariance, scene.shelf.tally, user, np.ones((1, 1)), prior, 0.25,
            2.0, 0.0, estimate,
        )  # fmt: skip
        assert width == pytest.approx(factor)


def test_remember_drops_the_oldest_reward_of_a_full_memory() -> None:
    user, block = a_user({0: 1.0}), np.zeros((3, 5))
    for y in range(5):
        atlas.remember(user, block, np.array([10.0 * y]), float(y), 0.5, -1.0, 0.25)
        assert user[atlas.LENGTH] == min(y + 1, 3)
    np.testing.assert_array_equal(block, [[10.0 * y, y, 0.5, -1.0, 0.25] for y in (2.0, 3.0, 4.0)])


@FEW
@given(SEEDS, DIMS, st.integers(0, 4), st.sampled_from([atlas.WEIGHT, atlas.CREDIT]))
def test_sum_memory_adds_the_weighted_rewards_from_a_point_on(
    seed: int, dim: int, first: int, column: int
) -> None:
    rng = np.random.default_rng(seed)
    data, weights = observed(rng, dim, 6, 1.0), rng.uniform(size=6)
    block = memory_of(data)
    block[:6, dim + column] = weights
    gram, moment = np.zeros((dim + 1, dim + 1)), np.zeros(dim + 1)
    energy = atlas.sum_memory(block, first, 5, column, gram, moment)
    part = slice(first, 5)
    Z, y, w = data.Z[part], data.y[part], weights[part]
    np.testing.assert_allclose(gram, Z.T @ (w[:, None] * Z), atol=1e-12)
    np.testing.assert_allclose(moment, Z.T @ (w * y), atol=1e-12)
    assert energy == pytest.approx(w @ (y * y))


# A reward of a user in doubt


def kept(chance: FloatArray) -> FloatArray:
    """Return a belief as it is stored: without tiny probabilities."""
    chance = np.where(chance < atlas.TINY_SHARE, 0.0, chance)
    return np.asarray(chance / chance.sum())


@FEW
@given(
    SEEDS, DIMS, st.integers(0, 6), st.sampled_from([-math.inf, -3.0]), st.sampled_from([0.0, 0.1])
)
def test_learn_in_doubt_gives_bayes_belief_and_keeps_the_books(
    seed: int, dim: int, length: int, stray: float, rate: float
) -> None:
    scene, stream = Scene(seed, dim, length), a_stream(stray=stray, rate=rate)
    x, y, block = scene.rng.normal(size=dim), float(scene.rng.normal()), np.zeros((8, dim + 4))
    z, before, laws = np.append(x, 1.0), scene.chances(), scene.laws()
    surprised = scene.learn(x, y, stream, block)
    assert rate or not surprised
    after = [law.given(scene.segment) for law in laws]
    # The noise of the new reward is m(1 − m), if that is more than at the mean reward.
    m = float(before @ [z @ law.mean for law in after])
    relative = max(m * (1.0 - m) / (rate * (1.0 - rate)), 1.0) if rate else 1.0
    news = Observed(z[None], np.array([y]), relative * scene.noise)
    density = np.logaddexp([law.log_marginal(news) for law in after], stray)
    chance = before * np.exp(density)
    belief = belief_of(scene.user, scene.room)
    np.testing.assert_allclose(
        belief[scene.shelf.rows], kept(chance / chance.sum()), rtol=1e-5, atol=1e-7
    )
    if rate == 0.0 and stray == -math.inf:  # the posterior given all rewards at once
        data = scene.segment + news
        logs = np.array([law.log_marginal(data) for law in laws])
        np.testing.assert_allclose(
            belief[scene.shelf.rows], kept(np.exp(logs - logsumexp(logs))), rtol=1e-5, atol=1e-7
        )
    weight = 1.0 / relative
    gram = scene.segment.Z.T @ scene.segment.Z + weight * np.outer(z, z)
    np.testing.assert_allclose(scene.gram, gram, atol=1e-9)
    moment = scene.segment.Z.T @ scene.segment.y + weight * y * z
    np.testing.assert_allclose(scene.moment, moment, atol=1e-9)
    assert scene.sums.tolist() == pytest.approx(
        [
            length + 1, scene.segment.y @ scene.segment.y + weight * y * y, 1.0 / scene.noise, 1.0,
        ]
    )  # fmt: skip
    scene.assert_books(scene.noise, scene.gram, scene.moment, length + 1)
    # Of the reward are stored the density that the mixture predicted, and its weight.
    assert block[0, dim + atlas.DENSITY] == pytest.approx(
        logsumexp(density, b=before), rel=1e-5, abs=1e-5
    )
    assert block[0, dim + atlas.REWARD] == y
    assert block[0, dim + atlas.WEIGHT] == pytest.approx(weight)
    assert block[0, dim + atlas.CREDIT] == 0.0


def test_learn_in_doubt_gives_an_outlying_reward_less_weight() -> None:
    scene, stream = Scene(3, 2, 5), a_stream(stray=-5.0)
    gram, x = scene.gram.copy(), np.array([0.5, -1.0])
    block = np.zeros((4, 6))
    assert scene.learn(x, 1e3, stream, block)
    weight = block[0, 2 + atlas.WEIGHT]
    assert 0.0 < weight < 0.05
    z = np.append(x, 1.0)
    np.testing.assert_allclose(scene.gram, gram + weight * np.outer(z, z))
    assert scene.sums[atlas.ENERGY] == pytest.approx(
        scene.segment.y @ scene.segment.y + weight * 1e6
    )
    scene.assert_books(scene.noise, scene.gram, scene.moment, 6.0)


def test_learn_in_doubt_holds_the_segment_anew_when_the_noise_has_changed() -> None:
    """Models take the segment out with the noise they hold it with, and take it in with today's."""
    scene, stream = Scene(5, 3, 6), a_stream(noise=0.9, rate=0.0)
    scene.learn(np.ones(3), 0.3, stream, np.zeros((4, 7)))
    assert scene.sums[atlas.SCALE] == pytest.approx(1.0 / 0.9)
    scene.assert_books(0.9, scene.gram, scene.moment, 7.0)


@FEW
@given(SEEDS, DIMS, st.integers(1, 6), st.sampled_from([-1, 4]))
def test_place_computes_the_belief_from_the_models_as_they_are(
    seed: int, dim: int, length: int, banned: int
) -> None:
    scene = Scene(seed, dim, length)
    shelf, evidence = scene.shelf, np.empty(4)
    atlas.place(
        shelf.precision, shelf.shift, shelf.tally, shelf.rows, scene.prior.precision,
        scene.prior.shift, scene.gram, scene.moment, scene.sums, scene.user, banned, evidence,
    )  # fmt: skip
    logs = np.array([law.log_marginal(scene.segment) for law in scene.laws()])
    np.testing.assert_allclose(np.diff(evidence), np.diff(logs), rtol=1e-5, atol=1e-6)
    logs[shelf.rows == banned] = -np.inf
    belief = belief_of(scene.user, scene.room)
    np.testing.assert_allclose(
        belief[shelf.rows], kept(np.exp(logs - logsumexp(logs))), rtol=1e-5, atol=1e-7
    )
    scene.assert_books(scene.noise, scene.gram, scene.moment, length)


# A reward of a located user


def located(scene: Scene, belief: dict[int, float]) -> FloatArray:
    """Take the segment out of the models, refresh these, and return a user located on row 1."""
    scene.share_out(-1.0)
    scene.refresh()
    return a_user(belief, home=1)


def follow(
    scene: Scene, user: FloatArray, stream: FloatArray, x: FloatArray, y: float, block: FloatArray
) -> tuple[bool, bool, float]:
    shelf = scene.shelf
    return atlas.learn_located(
        shelf.precision, shelf.shift, scene.covariance, scene.theta, shelf.tally, shelf.rows,
        scene.prior.precision, scene.prior.shift, scene.contexts, user, block, stream, x, y,
    )  # fmt: skip


@FEW
@given(
    SEEDS, DIMS, st.floats(0.001, 0.2), st.sampled_from([-math.inf, -3.0]),
    st.sampled_from([0.0, 0.1]),
)  # fmt: skip
def test_learn_located_is_a_filter_step_and_a_rank_one_update(
    seed: int, dim: int, hazard: float, stray: float, rate: float
) -> None:
    scene, stream = Scene(seed, dim, 4), a_stream(hazard=hazard, stray=stray, rate=rate)
    user = located(scene, {1: 0.9, 3: 0.1})
    x = scene.rng.normal(size=dim)
    z, block = np.append(x, 1.0), np.zeros((4, dim + 4))
    means = scene.theta[[1, 3, 4]] @ z
    y = float(means[0] + 0.5 * scene.rng.normal())
    home, law = scene.others[0], scene.laws()[1]
    before = (1.0 - hazard) * np.array([0.9, 0.1, 0.0]) + hazard / 3
    m = float(before @ means)
    relative = max(m * (1.0 - m) / (rate * (1.0 - rate)), 1.0) if rate else 1.0
    noise = relative * scene.noise
    # p(model | y) ∝ ((1 − h) belief + h/K) · density; of other models only the mean variance.
    variance = np.array([z @ law.covariance @ z, *scene.shelf.tally[[3, 4], SLACK]]) + noise
    logs = norm.logpdf(y, means, np.sqrt(variance))
    chance = before * (np.exp(logs) + math.exp(stray))
    chance /= chance.sum()
    error = y - means[0]
    surprised, suspicious, weight = follow(scene, user, stream, x, y, block)
    credit = chance[0] / noise
    assert rate or not surprised
    assert suspicious == bool(error**2 > 4.0 * variance[0] or chance[0] < 0.5)
    assert weight == pytest.approx(1.0 / relative)
    np.testing.assert_allclose(
        scene.shelf.precision[1], home.precision + credit * np.outer(z, z), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        scene.shelf.shift[1], home.shift + credit * y * z, rtol=1e-6, atol=1e-8
    )
    # Covariance and estimate are those of the sums, without an inverse.
    after = law.given(Observed(z[None], np.array([y]), 1.0 / credit))
    np.testing.assert_allclose(scene.covariance[1], after.covariance, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(scene.theta[1], after.mean, rtol=1e-6, atol=1e-6)
    assert scene.shelf.tally[1, COUNT] == pytest.approx(len(home.y) + chance[0])
    assert np.isnan(scene.shelf.tally[1, EVIDENCE])
    assert scene.shelf.tally[1, VISITED] == stream[atlas.CLOCK]
    if chance[0] > 1.0 - 2.0 * hazard:
        chance = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(
        belief_of(user, scene.room)[[1, 3, 4]], kept(chance), rtol=1e-5, atol=1e-7
    )
    assert stream[atlas.FOLLOWED] == 1.0
    assert block[0, dim + atlas.CREDIT] == pytest.approx(credit)
    assert block[0, dim + atlas.WEIGHT] == weight
    assert block[0, dim + atlas.DENSITY] == pytest.approx(np.logaddexp(logs[0], stray))


def test_learn_located_refreshes_a_home_that_others_have_added_to() -> None:
    scene = Scene(2, 2, 4)
    user = located(scene, {1: 1.0})
    stale = scene.theta[1].copy()
    kernels.tastes.contribute(
        scene.shelf.precision, scene.shelf.shift, scene.shelf.tally, 1, 1.0, 1.0,
        0.01 * np.eye(3), np.array([0.1, 0.0, 0.0]), 0.01,
    )  # fmt: skip
    follow(scene, user, a_stream(), np.zeros(2), 0.0, np.zeros((4, 6)))
    expected = np.linalg.solve(
        scene.shelf.precision[1] + scene.prior.precision, scene.shelf.shift[1] + scene.prior.shift
    )
    np.testing.assert_allclose(scene.theta[1], expected, rtol=1e-9)
    assert np.abs(scene.theta[1] - stale).max() > 1e-3


def test_learn_located_gives_an_outlying_reward_less_weight() -> None:
    scene, stream = Scene(2, 2, 4), a_stream(stray=-5.0)
    user, block = located(scene, {1: 1.0}), np.zeros((4, 6))
    before = scene.theta[1].copy()
    surprised, suspicious, weight = follow(scene, user, stream, np.ones(2), 1e6, block)
    assert surprised
    assert suspicious
    assert weight < 1e-4
    assert np.abs(scene.theta[1] - before).max() < 10.0
    assert belief_of(user, scene.room)[1] == pytest.approx(1.0)  # a stray says nothing


def test_learn_located_is_never_surprised_by_clicks() -> None:
    """A weight below 1 only says that the click rate is nearer to a half than that of others."""
    scene = Scene(2, 1, 4)
    home = located(scene, {1: 1.0})
    scene.theta[1] = 0.0, 0.5
    for rate in np.linspace(0.01, 0.2, 40).tolist():
        user, stream = home.copy(), a_stream(rate=rate)
        assert not follow(scene, user, stream, np.zeros(1), 1.0, np.zeros((4, 5)))[0]


@pytest.mark.parametrize(("chance", "review"), [(0.45, True), (0.55, False)])
def test_learn_located_asks_for_a_review_when_the_home_is_not_likely(
    chance: float, review: bool
) -> None:
    """The reward is as expected, and its noise so large that it changes no belief."""
    scene, stream = Scene(11, 2, 4), a_stream(noise=1e6, hazard=1e-6)
    user = located(scene, {4: 1.0 - chance, 1: chance})
    x = np.array([0.5, -1.0])
    expected = float(np.append(x, 1.0) @ scene.theta[1])
    result = follow(scene, user, stream, x, expected, np.zeros((8, 6)))
    assert result == (False, review, 1.0)


# The search for a change


def rest_under(
    law: Prior, data: Observed, weights: FloatArray, stray: float, binary: bool = False
) -> FloatArray:
    """Return the log evidence of the rewards from each point on, absorbed from the last one back.

    A reward of weight `w` is absorbed as one of noise variance ``σ²/w``. If rewards are 0/1, that
    is its noise; if not, its noise is σ² and it was far from expected.
    """
    n = len(data.y)
    out = np.zeros(n + 1)
    for t in range(n - 1, -1, -1):
        known = law
        for later in range(t + 1, n):
            known = known.given(
                Observed(data.Z[[later]], data.y[[later]], data.noise / weights[later])
            )
        noise = data.noise / weights[t] if binary else data.noise
        density = known.log_marginal(Observed(data.Z[[t]], data.y[[t]], noise))
        out[t] = out[t + 1] + np.logaddexp(density, stray)
    return out


def rest_at(
    scene: Scene, row: int, weights: FloatArray, stray: float, binary: bool = False
) -> FloatArray:
    """Return the log density of the rewards from each point on, under one model."""
    noise = scene.noise / weights if binary else scene.noise
    scale, data = np.sqrt(noise + scene.shelf.tally[row, SLACK]), scene.segment
    logs = np.logaddexp(norm.logpdf(data.y, data.Z @ scene.theta[row], scale), stray)
    return np.array([logs[t:].sum() for t in range(len(logs) + 1)])


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
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.floats(-4.0, 0.0), st.booleans())
def test_rest_as_new_with_strays_and_weights(
    seed: int, dim: int, length: int, stray: float, binary: bool
) -> None:
    rng = np.random.default_rng(seed)
    law, data, out = prior_of(rng, dim), observed(rng, dim, length, 0.3), np.empty(length + 1)
    block, weights = memory_of(data), rng.uniform(0.1, 1.0, size=length)
    block[:length, dim + atlas.WEIGHT] = weights
    atlas.rest_as_new(block, length, law.covariance, law.mean, 0.3, stray, binary, out)
    np.testing.assert_allclose(
        out, rest_under(law, data, weights, stray, binary), rtol=1e-6, atol=1e-6
    )


@FEW
@given(SEEDS, DIMS, st.integers(1, 6), st.sampled_from([-math.inf, -2.0]), st.booleans())
def test_rest_as_known_is_the_log_density_of_every_suffix(
    seed: int, dim: int, length: int, stray: float, binary: bool
) -> None:
    scene = Scene(seed, dim, length)
    scene.refresh()
    out, weights = np.empty(length + 1), scene.rng.uniform(0.1, 1.0, size=length)
    block = memory_of(scene.segment)
    block[:length, dim + atlas.WEIGHT] = weights
    atlas.rest_as_known(
        block, length, scene.theta, scene.shelf.tally, 3, scene.noise, stray, binary, out
    )
    np.testing.assert_allclose(out, rest_at(scene, 3, weights, stray, binary), atol=1e-9)


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5), st.booleans(), st.data())
def test_review_is_the_posterior_over_change_points(
    seed: int, dim: int, length: int, is_located: bool, data: st.DataObject
) -> None:
    """Enumerate all hypotheses: no change, or a change at `i` to a model that is not the home."""
    scene, stream = Scene(seed, dim, length), a_stream(hazard=0.1, stray=-4.0)
    scene.refresh()
    first = data.draw(st.integers(0, length - 1))
    density = norm.logpdf(scene.segment.y, scale=1.5)
    user = a_user({1: 1.0}, home=1 if is_located else None)
    user[atlas.LENGTH] = length
    unchanged, cut = atlas.review(
        scene.theta, scene.shelf.tally, scene.shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, memory_of(scene.segment, density=density), stream, first,
    )  # fmt: skip
    weights = np.ones(length)
    rest = {row: rest_at(scene, row, weights, -4.0) for row in (1, 3, 4)}
    rest[0] = rest_under(scene.prior, scene.segment, weights, -4.0)
    if is_located:
        del rest[1]
    joint = {
        (row, t): 0.1 / 4 * math.exp(density[:t].sum() + logs[t])
        for row, logs in rest.items()
        for t in range(first, length)
    }
    none = math.exp(density.sum())
    total = none + sum(joint.values())
    assert unchanged == pytest.approx(none / total, rel=1e-5)
    by_point = [sum(joint[row, t] for row in rest) for t in range(first, length)]
    assert by_point[cut - first] == pytest.approx(max(by_point), rel=1e-6)
    by_model = {row: sum(joint[row, t] for t in range(first, length)) for row in rest}
    assert user[atlas.SUSPICION] == pytest.approx(max(by_model.values()) / total, rel=1e-5)
    assert by_model[int(user[atlas.SUSPECT])] == pytest.approx(max(by_model.values()), rel=1e-6)


def test_review_returns_a_number_where_a_change_is_beyond_doubt() -> None:
    scene, stream = Scene(0, 2, 5, noise=1e-6), a_stream(noise=1e-6, stray=-1e4)
    scene.refresh()
    user = a_user({1: 1.0}, home=1)
    user[atlas.LENGTH] = 5
    block = memory_of(scene.segment, density=np.array([0.0, 0.0, -1e4, -1e4, -1e4]))
    block[:5, 2 + atlas.REWARD] = scene.segment.Z @ scene.prior.mean
    unchanged, cut = atlas.review(
        scene.theta, scene.shelf.tally, scene.shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, block, stream, 0,
    )  # fmt: skip
    assert 0.0 <= unchanged < 1e-100
    assert cut <= 2


@FEW
@given(SEEDS, st.integers(1, 3), st.integers(1, 5))
def test_restart_sets_the_densities_of_the_mixture(seed: int, dim: int, length: int) -> None:
    scene, stream = Scene(seed, dim, length), a_stream(stray=-4.0)
    scene.refresh()
    user, block = a_user(BELIEF), memory_of(scene.segment)
    user[atlas.LENGTH] = length
    block[:, dim + atlas.CREDIT] = 3.0
    shelf = scene.shelf
    atlas.restart(
        shelf.precision, shelf.shift, scene.theta, shelf.tally, shelf.rows, scene.prior.covariance,
        scene.prior.mean, user, block, stream,
    )  # fmt: skip
    laws = [rest_under(scene.prior, scene.segment, np.ones(length), -4.0)]
    laws += [rest_at(scene, row, np.ones(length), -4.0) for row in (1, 4)]
    logs = [rest[:-1] - rest[1:] for rest in laws]
    expected = logsumexp(logs, axis=0, b=np.array(list(BELIEF.values()))[:, None])
    np.testing.assert_allclose(block[:length, dim + atlas.DENSITY], expected, atol=1e-6)
    assert not block[:length, dim + atlas.CREDIT].any()
