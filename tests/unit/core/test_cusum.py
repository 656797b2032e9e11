from __future__ import annotations

from itertools import permutations
from math import comb

import numpy as np
import pytest

from dyclu.core.cusum import change_point, cumulative_sums, p_value
from dyclu.validation import FloatArray


def share_of_orders_as_wide(series: FloatArray) -> float:
    ranges = np.ptp(cumulative_sums(np.array(list(permutations(series)))), axis=1)
    return float(np.mean(ranges >= np.ptp(cumulative_sums(series)) - 1e-9))


def test_p_value_is_the_share_of_orders_with_as_large_a_range() -> None:
    # Of the 6 orders of (0, 0, 1, 1), the sums have range 1/2 for 0101 and 1010 and range 1 for
    # the others: p = 2/3. The standard error of the share of 599 draws is 1.9 %.
    found = p_value(np.array([0.0, 0, 1, 1]), shuffles=599, rng=np.random.default_rng(0))
    assert found == pytest.approx(2 / 3, abs=3 * 0.019)
    assert p_value(np.array([0.0, 1, 0, 1]), shuffles=9, rng=np.random.default_rng(0)) == 1
    # None of 99 random orders has the range of the step: p = 1/100, never 0.
    assert p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0)) == 0.01


@pytest.mark.parametrize("seed", range(4))
def test_p_value_estimates_the_share_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = rng.exponential(size=7)
    p = share_of_orders_as_wide(series)
    found = p_value(series, shuffles=1999, rng=rng)
    assert found == pytest.approx(p, abs=3 * np.sqrt(p * (1 - p) / 1999) + 1 / 2000)


@pytest.mark.parametrize("above", [1, 2, 3])
def test_the_largest_range_occurs_if_entries_above_the_mean_are_adjacent(above: int) -> None:
    # Also if the adjacent entries are split between the end and the beginning, as here.
    rng = np.random.default_rng(above)
    series = np.concatenate([rng.normal(9, 0.1, size=above), rng.normal(0, 0.1, size=7 - above)])
    assert share_of_orders_as_wide(np.roll(series, -1)) == pytest.approx(7 / comb(7, above))
    # Ranges that are equal up to rounding must count as ties: otherwise p would be 1/200.
    assert p_value(series, shuffles=199, rng=rng) > 0.5 * 7 / comb(7, above)


def test_p_value_has_its_level_for_a_skewed_distribution() -> None:
    # Exactly 5 % for exchangeable entries; the standard error over 1,000 series is 0.69 %.
    rng = np.random.default_rng(1)
    series = rng.exponential(size=(1000, 30)) ** 2
    alarms = np.mean([p_value(entries, shuffles=19, rng=rng) <= 0.05 for entries in series])
    assert alarms == pytest.approx(0.05, abs=3 * 0.0069)


def test_a_step_gives_a_small_p_value() -> None:
    # In random order the range of 20 entries exceeds 1.43 √20 standard deviations in 5 % of cases
    # (simulated). If the second half is larger by 3, the standard deviation is √(1 + 9/4) = 1.8 and
    # the sums reach 10 · 3/2 = 15 on average: 1.86 in the same unit. Found in 99 % of cases.
    rng = np.random.default_rng(2)
    series = rng.normal(size=(200, 20)) + np.repeat([0.0, 3.0], 10)
    found = np.mean([p_value(entries, shuffles=99, rng=rng) <= 0.05 for entries in series])
    assert found >= 0.97


def test_change_point_is_the_largest_absolute_sum() -> None:
    # Differences -1, -1, 2, 2, -2 from the mean 2 have the sums -1, -2, 0, 2, 0; of two equal
    # absolute sums, the first counts.
    assert change_point(np.array([1.0, 1, 4, 4, 0])) == 2
    assert change_point(np.array([5.0, 0, 0, 0])) == 1


def test_change_point_of_a_noisy_step_is_at_most_one_entry_off() -> None:
    # Next to a step of Δ in the middle, |S| decreases by Δ/2 per entry, with standard deviation 1.
    # At j entries from the step it is still larger with probability Φ(-√j Δ/2). For Δ = 4 these add
    # up to 2·0.0027 for j ≥ 2.
    rng = np.random.default_rng(3)
    series = rng.normal(size=(1000, 40)) + np.repeat([0.0, 4.0], 20)
    off = np.abs([change_point(entries) - 20 for entries in series])
    assert np.mean(off >= 2) <= 2 * 0.0027 + 3 * np.sqrt(2 * 0.0027 / 1000)
