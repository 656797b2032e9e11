"""The prior, the noise and the rates that are learnt from the whole stream."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu import kernels
from dyclu.policies.common import population as module
from dyclu.policies.common import rates
from dyclu.policies.common.population import FIRST_HAZARD_WEIGHT, LEAST_SPAN, MOST_SPAN, Population
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS

DIM = 3


def panel(
    seed: int, *, segments: int, rewards: int, noise: float, spread: FloatArray, mean: FloatArray
) -> tuple[Population, FloatArray, FloatArray, FloatArray]:
    """Return a population that has recorded rewards of tastes N(mean, spread), and their sums."""
    rng, population = np.random.default_rng(seed), Population(DIM, noise=None, rewards=None)
    grams, moments, sums = [], [], []
    half = np.linalg.cholesky(spread + 1e-12 * np.eye(DIM + 1))
    for _ in range(segments):
        theta = mean + half @ rng.normal(size=DIM + 1)
        Z = np.column_stack((rng.normal(size=(rewards, DIM)), np.ones(rewards)))
        y = Z @ theta + noise * rng.normal(size=rewards)
        for z, reward in zip(Z, y.tolist(), strict=True):
            population.record(z[:-1].copy(), reward)
            if population.clock == 1:
                population.begin()
        grams.append(Z.T @ Z)
        moments.append(Z.T @ y)
        sums.append([rewards, y @ y, 1.0, 1.0])
    return population, np.array(grams), np.array(moments), np.array(sums)


@pytest.mark.parametrize("noise", [0.05, 0.5, 3.0])
def test_noise_and_prior_are_learnt_from_the_panel(noise: float) -> None:
    """100 tastes: a variance is known to 14 %, a mean to a tenth of the spread."""
    spread, mean = np.diag([1.0, 0.2, 0.2, 0.5]), np.array([1.0, -1.0, 0.0, 2.0])
    population, *sums = panel(0, segments=100, rewards=12, noise=noise, spread=spread, mean=mean)
    for _ in range(30):
        population.learn(*sums)
    assert math.sqrt(population.line_noise) == pytest.approx(noise, rel=0.1)
    # With noise 3 and twelve rewards each, the mean is known to √(3²/1200 + 1/100).
    np.testing.assert_allclose(population.mean, mean, atol=0.4)
    if noise < 1.0:
        np.testing.assert_allclose(np.diag(population.line_tastes), np.diag(spread), rtol=0.5)
    np.testing.assert_allclose(
        population.precision @ population.covariance, np.eye(DIM + 1), atol=1e-8
    )
    np.testing.assert_allclose(population.shift, population.precision @ population.mean)


def test_tastes_that_are_all_alike_have_a_small_spread() -> None:
    alike = np.zeros((DIM + 1, DIM + 1))
    population, *sums = panel(
        1, segments=60, rewards=12, noise=0.5, spread=alike, mean=np.array([1.0, -1.0, 0.0, 2.0])
    )
    for _ in range(30):
        population.learn(*sums)
    # A thirtieth of the noise: what 60 tastes of 12 rewards each would show.
    assert np.sqrt(np.diag(population.line_tastes)).max() < 0.15
    assert math.sqrt(population.line_noise) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("ratio", [1e-3, 10.0, 1e3])
@pytest.mark.parametrize("own", [True, False])
def test_the_panel_tells_in_which_units_slopes_are_even(ratio: float, own: bool) -> None:
    """In the other units one feature explains a hundredth of what it does: 30 segments show it."""
    rng, scales = np.random.default_rng(4), np.array([1.0, 1.0, ratio])
    population = Population(DIM, noise=None, rewards=None)
    grams, moments, sums = [], [], []
    for _ in range(30):
        theta = rng.normal(size=DIM) / (scales if own else scales.max())
        X = rng.normal(size=(10, DIM)) * scales
        y = X @ theta + 0.05 * rng.normal(size=10)
        for x, reward in zip(X, y.tolist(), strict=True):
            population.record(x.copy(), reward)
            if population.clock == 1:
                population.begin()
        Z = np.column_stack([X, np.ones(10)])
        grams.append(Z.T @ Z)
        moments.append(Z.T @ y)
        sums.append([10.0, y @ y, 1.0, 1.0])
    for _ in range(10):
        population.learn(np.array(grams), np.array(moments), np.array(sums))
    assert population.own_units == own
    if own:
        levels = np.diag(population.line_tastes)[:-1] * scales**2
        np.testing.assert_allclose(levels, 1.0, rtol=0.6)


@pytest.mark.parametrize("scales", [(1.0, 1.0, 0.01), (1e-6, 1.0, 1e5)])
@pytest.mark.parametrize("common", [0.0, 2.0])
def test_units_are_chosen_once_also_where_most_users_like_the_same(
    scales: tuple[float, ...], common: float
) -> None:
    """A mean that was fitted in the other units would make each of the two look better in turn."""
    rng, population = np.random.default_rng(1), Population(DIM, noise=None, rewards=None)
    tastes = rng.normal(size=(40, DIM)) * [1.0, 1.0, 0.1] + [0.0, 0.0, common]
    grams, moments = np.zeros((40, DIM + 1, DIM + 1)), np.zeros((40, DIM + 1))
    sums = np.column_stack((np.zeros((40, 2)), np.ones((40, 2))))
    changes, before = 0, False
    for step in range(1, 1201):
        user, x = step % 40, rng.normal(size=DIM)
        y, z = float(x @ tastes[user] + 0.1 * rng.normal()), np.append(x * scales, 1.0)
        population.record(z[:-1].copy(), y)
        grams[user] += np.outer(z, z)
        moments[user] += y * z
        sums[user, :2] += 1.0, y * y
        if step == 1:
            population.begin()
        if step % 40 == 0:
            population.learn(grams, moments, sums)
            changes += population.own_units != before
            before = population.own_units
    assert population.own_units
    assert changes == 1


def test_features_of_one_size_are_in_the_callers_units_and_not_compared() -> None:
    population, *sums = panel(
        2, segments=40, rewards=12, noise=0.1, spread=np.diag([1.0, 1e-4, 1e-4, 1.0]),
        mean=np.zeros(DIM + 1),
    )  # fmt: skip
    for _ in range(10):
        population.learn(*sums)
    assert not population.own_units


def test_a_constant_feature_has_no_unit_of_its_own() -> None:
    population = Population(2, noise=None, rewards=None)
    for step in range(50):
        population.record(np.array([3.0, float(step % 5)]), 1.0)
    weights = population._weights(own=True)
    assert weights.tolist() == [1.0, 1.0]


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 6), st.integers(1, 5))
def test_covariances_are_positive_for_any_panel(seed: int, segments: int, rewards: int) -> None:
    population, *sums = panel(
        seed, segments=segments, rewards=rewards, noise=0.3, spread=np.eye(DIM + 1),
        mean=np.zeros(DIM + 1),
    )  # fmt: skip
    for _ in range(5):
        population.learn(*sums)
        for matrix in (population.line_tastes, population.covariance, population.precision):
            np.testing.assert_allclose(matrix, matrix.T)
            assert np.linalg.eigvalsh(matrix)[0] > 0.0
        assert population.line_noise > 0.0


def test_noise_that_is_told_stays() -> None:
    population = Population(DIM, noise=0.25, rewards=None)
    for y in (1.0, -1.0, 3.0):
        population.record(np.ones(DIM), y)
    population.begin()
    population.learn(np.ones((1, 4, 4)), np.ones((1, 4)), np.array([[3.0, 11.0, 1.0, 1.0]]))
    assert population.line_noise == 0.25


@pytest.mark.parametrize("rate", [0.2, 0.01])
def test_clicks_are_counted_fully(rate: float) -> None:
    population, rng = Population(1, noise=None, rewards=None), np.random.default_rng(0)
    clicks = (rng.random(2000) < rate).astype(float)
    for y in clicks.tolist():
        population.record(np.ones(1), y)
        if population.clock == 1:
            population.begin()
    assert population.binary
    assert population.totals[1] == pytest.approx(clicks.sum())
    assert population.variance == pytest.approx(clicks.var(), rel=0.1)


def test_gross_numbers_count_no_more_than_five_times_the_usual() -> None:
    population, rng = Population(2, noise=None, rewards=None), np.random.default_rng(0)
    for step in range(300):
        gross = 1e6 if step in (3, 200) else 1.0
        population.record(gross * rng.normal(size=2), gross * (1.0 + rng.normal()))
    assert population.variance < 3.0
    assert population.size < 6.0
    assert np.abs(population.contexts).max() < 6.0


def test_variance_is_one_as_long_as_no_reward_differs_from_zero() -> None:
    population = Population(2, noise=None, rewards="real")
    assert population.variance == 1.0
    population.record(np.ones(2), 0.0)
    assert population.variance == 1.0


def test_variance_of_constant_rewards_is_their_square() -> None:
    population = Population(2, noise=None, rewards="real")
    for _ in range(50):
        population.record(np.ones(2), 3.3)
    assert population.variance == pytest.approx(3.3**2)


def follow(population: Population, rewards: list[float]) -> list[tuple[float, float]]:
    """Record rewards; return the lines of all changes of law."""
    lines = []
    for y in rewards:
        population.record(np.ones(1), y)
        if population.clock == 1:
            population.begin()
        elif (line := population.change_law()) is not None:
            lines.append(line)
    return lines


def test_rewards_are_binary_until_one_in_twenty_is_not() -> None:
    population = Population(1, noise=None, rewards=None)
    assert follow(population, [0.0, 1.0] * 50 + [0.5] * 5) == []
    assert population.binary
    assert len(follow(population, [0.5])) == 1
    assert not population.binary


def test_the_law_of_clicks_returns_below_half_of_the_threshold_only() -> None:
    population = Population(1, noise=None, rewards=None)
    follow(population, [0.0, 1.0] * 50 + [0.5] * 6)
    # Six others are 5 % of 120 rewards and 2.5 % of 240.
    assert follow(population, [1.0] * 133) == []
    assert len(follow(population, [1.0])) == 1
    assert population.binary


def test_the_two_lines_between_chances_and_odds_are_inverse() -> None:
    population = Population(1, noise=None, rewards=None)
    follow(population, [0.0, 0.0, 0.0, 1.0] * 25)
    odds = population.odds
    ((factor, constant),) = follow(population, [0.5] * 6)
    assert factor * odds[0] == pytest.approx(1.0)
    assert factor * odds[1] + constant == pytest.approx(0.0)
    back = follow(population, [0.0, 0.0, 0.0, 1.0] * 60)
    assert len(back) == 1
    assert back[0][0] > 1.0


@pytest.mark.parametrize("intercept", [-2.0, 0.5])
def test_a_line_through_chances_becomes_the_taste_of_the_clicks(intercept: float) -> None:
    """Stein: a line through chances has E p(1 − p) times the slopes of the log odds.

    The line takes the variance that it explains for that of the chances, which is a few per cent
    more; the tangent at the mean rate would have slopes that are a fifth too small here.
    """
    rng, population = np.random.default_rng(0), Population(1, noise=None, rewards="binary")
    x = rng.normal(size=4000)
    clicks = rng.random(4000) < 1.0 / (1.0 + np.exp(-1.5 * x - intercept))
    for value, click in zip(x.tolist(), clicks.tolist(), strict=True):
        population.record(np.array([value]), float(click))
    slope, constant = np.polyfit(x, clicks, 1)
    population.line, population.line_tastes = np.array([slope, constant]), 1e-6 * np.eye(2)
    factor, moved = population._odds_line()
    # Over 4,000 clicks, slope and constant of the line are known to 4 %.
    assert factor * slope == pytest.approx(1.5, rel=0.1)
    assert factor * constant + moved == pytest.approx(intercept, abs=0.2)


@pytest.mark.parametrize("rewards", ["real", None])
def test_told_noise_or_told_law_keeps_rewards_real(rewards: Literal["real"] | None) -> None:
    population = Population(1, noise=None if rewards else 0.3, rewards=rewards)
    assert follow(population, [0.0, 1.0] * 50) == []
    assert not population.binary


def test_a_prior_of_clicks_is_that_of_the_rewards_in_log_odds() -> None:
    population = Population(1, noise=None, rewards=None)
    follow(population, [0.0, 1.0] * 50)
    population.line, population.line_tastes = np.array([0.1, 0.5]), np.diag([0.01, 0.02])
    population.line_doubt = np.zeros((2, 2))
    population._set_prior()
    # At a rate of a half, all chances have the variance 1/4; the line explains 0.01 + 0.02 of it.
    factor = 1.0 / (0.25 - 0.03)
    np.testing.assert_allclose(population.mean, [0.1 * factor, 0.0], atol=1e-9)
    np.testing.assert_allclose(population.covariance, factor**2 * population.line_tastes)
    population.line_tastes = np.diag([1.0, 2.0])
    population._set_prior()
    z = np.ones(2)
    assert z @ population.covariance @ z == pytest.approx(module.WIDEST_ODDS)


def test_the_prior_does_not_depend_on_a_shift_of_the_features() -> None:
    """The first guess has the same law of rewards, whatever is added to a feature."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, DIM)), rng.normal(size=400)
    spreads = []
    for shift in (0.0, 3.0):
        population = Population(DIM, noise=None, rewards=None)
        for x, reward in zip(X, y.tolist(), strict=True):
            population.record(x + shift, reward)
        prior = population._shifted(population._guess())
        Z = np.column_stack((X + shift, np.ones(400)))
        spreads.append(np.einsum("ti,ij,tj->t", Z, prior, Z))
    # The context of zeros that counts before any data moves the centre by 1/400.
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=0.1)


def test_hazard_is_the_share_of_changes_with_one_in_250_before() -> None:
    population = Population(1, noise=None, rewards=None)
    population.record(np.ones(1), 1.0)
    population.begin()
    assert population.stream[kernels.ledger.HAZARD] == pytest.approx(1.0 / FIRST_HAZARD_WEIGHT)
    population.stream[kernels.ledger.FOLLOWED] = 750.0
    for _ in range(9):
        population.note_change(1.0)
    assert population.stream[kernels.ledger.HAZARD] == pytest.approx(10.0 / 1000.0)
    population.stream[kernels.ledger.FOLLOWED] = 1e9
    population.note_change(1.0)
    assert population.stream[kernels.ledger.HAZARD] == module.LEAST_HAZARD


def test_span_is_short_where_one_reward_says_enough_and_long_where_it_does_not() -> None:
    population = Population(DIM, noise=None, rewards=None)
    population.contexts = np.eye(DIM + 1)
    population.stream[kernels.ledger.HAZARD] = 1.0 / 250.0
    spans = []
    for noise in (1e-4, 1.0, 30.0, 1e4):
        population.line_noise = noise
        population.set_span()
        spans.append(population.span)
    assert spans[0] == LEAST_SPAN
    assert spans == sorted(spans)
    # Two times log(250) nats, at log(1 + 4/σ²) per reward.
    assert spans[1] == math.ceil(module.SPAN_NATS * math.log(250) / math.log(5.0))
    assert spans[3] == MOST_SPAN


def test_noise_is_compared_between_users_only_where_it_differs() -> None:
    rng = np.random.default_rng(0)
    weights = np.full(40, 60.0)
    for scale, differs in ((np.ones(40), False), (np.repeat([1.0, 25.0], 20), True)):
        population = Population(1, noise=None, rewards="real")
        population.compare_users(scale * rng.chisquare(60, size=40), weights)
        prior = float(population.stream[kernels.ledger.RATIO_PRIOR])
        # Without differences, the prior counts as far more rewards than anybody has.
        assert (0.0 < prior < 20.0) == differs


def test_what_is_dumped_is_filled_again() -> None:
    population, *sums = panel(
        3, segments=4, rewards=6, noise=0.3, spread=np.eye(DIM + 1), mean=np.zeros(DIM + 1)
    )
    population.learn(*sums)
    state, arrays = population.dump()
    again = Population(DIM, noise=None, rewards=None)
    again.fill(state, arrays)
    for one in (population, again):
        one.record(np.ones(DIM), 2.0)
        one.learn(*sums)
    np.testing.assert_array_equal(again.line_tastes, population.line_tastes)
    np.testing.assert_array_equal(again.stream, population.stream)
    assert again.variance == population.variance


def newness(population: Population) -> float:
    return math.exp(population.stream[kernels.ledger.NEWNESS])


@settings(max_examples=50)
@given(
    st.lists(st.floats(-30.0, 30.0), max_size=20),
    st.integers(1, 50),
    st.integers(0, 50),
    st.floats(0.0, 1.0),
)
def test_the_share_of_new_tastes_has_the_largest_likelihood(
    odds: list[float], known: int, joined: int, part: float
) -> None:
    population, alone = Population(DIM, noise=None, rewards=None), part * joined
    population.learn_newness(odds, known, joined, alone)

    def log_likelihood(share: FloatArray) -> FloatArray:
        even = rates.FIRST_NEWNESS_WEIGHT / (known + 1.0)
        total = (alone + even) * np.log(share)
        total += (joined - alone + rates.FIRST_NEWNESS_WEIGHT - even) * np.log1p(-share)
        for one in odds:
            total += np.log(share + (1.0 - share) * np.exp(one))
        return np.asarray(total)

    found = newness(population) / (newness(population) + known)
    assert newness(population) >= 1.0
    if newness(population) > 1.0:
        grid = np.linspace(1e-4, 1.0 - 1e-4, 4000)
        assert log_likelihood(np.array([found]))[0] >= log_likelihood(grid).max() - 1e-6


def test_the_newness_is_the_number_of_missing_tastes() -> None:
    """100 users of 100 tastes: 63 tastes are there, and 37 users share theirs with nobody."""
    population = Population(DIM, noise=None, rewards=None)
    population.learn_newness([], 63, 100.0, 37.0)
    assert newness(population) == pytest.approx(37.0, rel=0.15)


def test_where_all_users_share_a_few_tastes_a_new_one_is_as_likely_as_any_other() -> None:
    population = Population(DIM, noise=None, rewards=None)
    population.learn_newness([5.0] * 100, 4, 1000.0, 0.0)
    assert newness(population) == 1.0


def test_the_newness_is_at_least_what_is_missing_to_the_tastes_counted() -> None:
    population = Population(DIM, noise=None, rewards=None)
    population.learn_newness([], 10, 0.0, 0.0, tastes=25.0)
    assert newness(population) == pytest.approx(15.0)


def counted(tastes: int, noise: float, seed: int) -> float:
    """Return the number of tastes counted among 48 segments of 10 rewards."""
    rng, n = np.random.default_rng(seed), 10
    population = Population(DIM, noise=noise**2, rewards=None)
    theta, grams, moments = rng.normal(size=(tastes, DIM)), [], []
    for user in range(module.PAIRED):
        X = rng.normal(size=(n, DIM))
        y = X @ theta[user % tastes] + noise * rng.normal(size=n)
        for x, reward in zip(X, y, strict=True):
            population.record(x, float(reward))
        Z = np.column_stack([X, np.ones(n)])
        grams.append(Z.T @ Z)
        moments.append(Z.T @ y)
    population.begin()
    return population.count_tastes(np.array(grams), np.array(moments), np.ones(module.PAIRED))


@pytest.mark.parametrize("seed", range(5))
def test_tastes_are_counted_by_pairs(seed: int) -> None:
    """Of 1,128 pairs of 48 segments, 5 tastes have 208 in common and 24 have 24.

    Two more count before any data, so 1128/210 and 1128/26 are expected where all pairs are clear.
    Of 24 tastes in 3 dimensions, a few are so near that a pair of segments leaves a doubt.
    """
    assert counted(5, 0.01, seed) == pytest.approx(1128 / 210, rel=0.02)
    assert counted(24, 0.01, seed) == pytest.approx(1128 / 26, rel=0.15)


def test_no_taste_is_counted_where_rewards_tell_little() -> None:
    assert counted(24, 10.0, 0) == 1.0
