"""Lift: the boundary against its formula, and its error rates when one looks every day."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lift import Trial, false_alarms, first_alarm
from dyclu.errors import ShapeError
from dyclu.evaluate import Interval, UserTotals, lift
from dyclu.evaluate.sequences import LEAST_USERS, _boundary, _rate


def test_the_boundary_is_that_of_waudby_smith_and_others() -> None:
    """Their Eq. (9): σ √(2(tρ² + 1) / (t²ρ²) · log(√(tρ² + 1) / α)), in standard errors."""
    for time in (10.0, 1e3, 1e5):
        rate, alpha = _rate(1_000, 0.05), 0.05
        theirs = math.sqrt(
            2 * (time * rate + 1) / (time**2 * rate) * math.log(math.sqrt(time * rate + 1) / alpha)
        )
        assert _boundary(time * rate, alpha) / math.sqrt(time) == pytest.approx(theirs)


def test_the_boundary_is_tightest_where_it_was_planned() -> None:
    def half(planned: float) -> float:
        return _boundary(1_000 * _rate(int(planned), 0.05), 0.05)

    # Their rate is nearly, not exactly, the best one.
    assert half(1_000) < min(half(300), half(3_000))
    assert 2.6 < half(1_000) < 3.1


def test_the_variance_is_that_of_a_mean_where_every_user_decides_once() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=400), rng.normal(size=100)
    found = lift((np.ones(400), first), (np.ones(100), second), tightest=80)
    error = math.sqrt(first.var(ddof=1) / 400 + second.var(ddof=1) / 100)
    half = error * _boundary(80 * _rate(80, 0.05), 0.05)
    # Leaving out one of n users divides by n − 1 and not by √(n(n − 1)).
    assert found.interval.high - found.value == pytest.approx(half, rel=0.01)
    assert found.value == pytest.approx(first.mean() - second.mean())


@given(st.floats(-3, 3), st.floats(0.1, 5))
def test_lift_ignores_a_common_shift_and_follows_a_scale(shift: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 6, 80).astype(float)
    totals = rng.normal(size=80)
    first, second = (counts[:40], totals[:40]), (counts[40:], totals[40:])
    plain = lift(first, second).interval
    moved = lift(*((n, scale * t + shift * n) for n, t in (first, second))).interval
    assert moved.low == pytest.approx(scale * plain.low, abs=1e-9)
    assert moved.high == pytest.approx(scale * plain.high, abs=1e-9)


def test_exchanging_the_groups_turns_the_interval_around() -> None:
    rng = np.random.default_rng(2)
    one, two = ((np.ones(50), rng.normal(size=50)) for _ in range(2))
    forth, back = lift(one, two).interval, lift(two, one).interval
    assert Interval(-forth.high, -forth.low) == back


def test_few_users_and_one_user_with_all_decisions_give_no_bounds() -> None:
    enough = (np.ones(100), np.arange(100.0))
    few = (np.ones(LEAST_USERS - 1), np.arange(LEAST_USERS - 1.0))
    assert not lift(enough, few).interval.bounded
    assert not lift(enough, (np.zeros(0), np.zeros(0))).decided
    assert lift(enough, (np.ones(LEAST_USERS), np.arange(float(LEAST_USERS)))).interval.bounded


def test_groups_without_any_spread_are_not_told_apart() -> None:
    """No click in either group is no evidence that rates are equal, or that they differ."""
    assert not lift((np.ones(50), np.zeros(50)), (np.ones(50), np.zeros(50))).interval.bounded


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="one entry per user"):
        lift((np.ones(3), np.ones(2)), (np.ones(3), np.ones(3)))
    with pytest.raises(ShapeError, match="counts ≥ 0"):
        lift((-np.ones(3), np.ones(3)), (np.ones(3), np.ones(3)))


def test_user_totals_add_up() -> None:
    group = UserTotals()
    group.add(["a", "b"], [1.0, 2.0])
    group.add(["b", "c"], [0.5, 0.0])
    assert group.counts.tolist() == [1.0, 2.0, 1.0]
    assert group.totals.tolist() == [1.0, 2.5, 0.0]


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_looking_every_day_raises_a_false_alarm_in_at_most_one_test_of_twenty(share: float) -> None:
    """1,000 A/A tests of 14 days; the bound is for any number of days, so alarms are fewer."""
    rate = false_alarms(Trial(users=600, days=14, control=share), tests=1_000, seed=0)
    assert rate <= 0.05


def test_a_fixed_interval_looked_at_every_day_raises_more_false_alarms() -> None:
    """The same tests by ±1.96 standard errors: what the confidence sequence is for."""
    trial = Trial(users=600, days=14, control=0.5)
    assert false_alarms(trial, tests=200, seed=0, errors=1.96) > 0.1


def test_a_lift_of_half_is_found() -> None:
    days = [first_alarm(Trial(users=2_000, days=60, effect=0.5), seed) for seed in range(40)]
    assert sum(day is not None for day in days) >= 30
