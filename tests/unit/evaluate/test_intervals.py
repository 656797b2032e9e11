"""Intervals: exact cases, invariances, and how often they hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu.evaluate.groups import GroupSums, UserGroups
from dyclu.evaluate.intervals import UNBOUNDED, Interval, Ratios, empirical_bernstein
from dyclu.validation import FloatArray

Draw = Callable[[np.random.Generator], tuple[FloatArray, FloatArray]]


def test_the_standard_error_of_a_mean_is_the_textbooks() -> None:
    values = np.random.default_rng(0).normal(size=30)
    ratios = Ratios.single(values, np.ones(30))
    assert ratios.value == pytest.approx(values.mean())
    assert ratios.error == pytest.approx(values.std(ddof=1) / math.sqrt(30))


def test_the_standard_error_respects_users() -> None:
    """Ten rows of each user that are all the same say as much as one row."""
    values = np.random.default_rng(1).normal(size=40)
    single = Ratios.single(values, np.ones(40))
    tenfold = Ratios.single(10 * values, np.full(40, 10.0))
    assert tenfold.error == pytest.approx(single.error)


def test_a_difference_of_equal_policies_is_exactly_nothing() -> None:
    rng = np.random.default_rng(2)
    one = Ratios.single(rng.normal(size=50), rng.integers(1, 5, 50).astype(float))
    difference = Ratios.difference(one, one)
    assert difference.value == 0
    assert difference.bootstrap() == UNBOUNDED or 0 in difference.bootstrap()


def test_a_difference_of_paired_policies_has_a_smaller_error_than_either() -> None:
    rng = np.random.default_rng(3)
    shared, own = rng.normal(size=200), 0.1 * rng.normal(size=200)
    a, b = (Ratios.single(shared + sign * own, np.ones(200)) for sign in (1, -1))
    difference = Ratios.difference(a, b)
    assert difference.error == pytest.approx((2 * own).std(ddof=1) / math.sqrt(200))
    assert difference.error < 0.3 * a.error


@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(-5, 5))
def test_intervals_follow_shift_and_scale(seed: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    num, den = rng.exponential(size=25), rng.integers(1, 4, 25).astype(float)
    plain = Ratios.single(num, den).bootstrap(replicates=200)
    moved = Ratios.single(scale * num + shift * den, den).bootstrap(replicates=200)
    assert moved.low == pytest.approx(scale * plain.low + shift, abs=1e-6)
    assert moved.high == pytest.approx(scale * plain.high + shift, abs=1e-6)


def test_rewards_that_are_all_alike_give_no_bounds() -> None:
    """No click in 50 visits does not mean that clicks are impossible."""
    assert Ratios.single(np.zeros(50), np.ones(50)).bootstrap() == UNBOUNDED


def test_one_click_gives_no_bound_that_resamples_without_it_cannot_give() -> None:
    """A resample misses the only click with chance (1 − 1/50)⁵⁰ = 36 %."""
    clicks = np.zeros(50)
    clicks[0] = 1.0
    assert Ratios.single(clicks, np.ones(50)).bootstrap().high == math.inf


def test_users_without_any_weight_leave_the_ratio_unknown() -> None:
    weight = np.zeros(30)
    weight[0] = 2.0
    assert Ratios.single(weight * 3, weight).bootstrap() == UNBOUNDED


def coverage(draw: Draw, truth: float, repetitions: int) -> float:
    """Return the share of bootstrap intervals that hold the truth."""
    held = 0
    for seed in range(repetitions):
        num, den = draw(np.random.default_rng(seed))
        held += truth in Ratios.single(num, den).bootstrap(replicates=400, seed=seed)
    return held / repetitions


def test_the_interval_of_a_skewed_mean_holds_the_truth() -> None:
    """100 users with exponential rewards; four standard errors of a share of 400 are 4.4 %."""
    held = coverage(lambda rng: (rng.exponential(size=100), np.ones(100)), 1.0, 400)
    assert 0.95 - 0.044 < held < 1


def test_the_interval_of_rare_clicks_of_unequal_users_holds_the_truth() -> None:
    """150 users with 1 to 40 visits and click rates around 4 % that differ fivefold."""

    def draw(rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        visits = 1 + np.minimum(rng.pareto(1.5, 150) * 5, 39).astype(int)
        clicks = rng.binomial(visits, rng.choice([0.01, 0.07], 150))
        return clicks.astype(float), visits.astype(float)

    assert coverage(draw, 0.04, 400) > 0.95 - 0.044


def test_empirical_bernstein_is_never_shorter_than_the_bootstrap_here_and_holds_the_truth() -> None:
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = rng.integers(1, 5, 300).astype(float)
        num = rng.binomial(rows.astype(int), 0.3).astype(float)
        sure = empirical_bernstein(num, rows, width=1.0)
        held += 0.3 in sure
        assert sure.high - sure.low > 2 * 1.96 * Ratios.single(num, rows).error
    assert held == 200


@given(st.floats(0.5, 20))
def test_empirical_bernstein_grows_by_its_width(width: float) -> None:
    num, rows = np.array([0.0, 1.0] * 20), np.ones(40)
    one, more = (empirical_bernstein(num, rows, width=w) for w in (width, width + 1))
    # 7 log(4 / 0.05) / (3 × 39), on either side.
    assert one.low - more.low == pytest.approx(7 * math.log(80) / 117)
    assert more.high - one.high == pytest.approx(7 * math.log(80) / 117)


def test_one_user_gives_no_bounds() -> None:
    assert empirical_bernstein(np.ones(1), np.ones(1), width=1.0) == UNBOUNDED
    assert Ratios.single(np.ones(1), np.ones(1)).bootstrap() == UNBOUNDED


def test_an_interval_is_cut_to_where_the_value_must_be() -> None:
    assert UNBOUNDED.within(0.0, 1.0) == Interval(0.0, 1.0)
    assert Interval(1.2, 3.0).within(0.0, 1.0) == Interval(1.0, 1.0)


def test_beyond_the_most_groups_users_share_them_and_keep_them() -> None:
    groups = UserGroups(most=3)
    first = groups.of(["a", "b", "c", "d", 5])
    assert first[:3].tolist() == [0, 1, 2]
    assert set(first) <= {0, 1, 2}
    assert groups.full
    assert groups.of([5, "d", "c", "b", "a"]).tolist() == first[::-1].tolist()


def test_one_and_the_text_one_are_two_users() -> None:
    assert UserGroups().of([1, "1", 1]).tolist() == [0, 1, 0]


def test_sums_grow_with_new_groups() -> None:
    sums = GroupSums("x")
    sums.add(np.array([0]), x=np.array([2.0]))
    sums.add(np.array([3, 0]), x=np.array([1.0, 5.0]))
    sums.add(np.array([], dtype=np.intp), x=np.array([]))
    assert sums["x"].tolist() == [7.0, 0.0, 0.0, 1.0]
