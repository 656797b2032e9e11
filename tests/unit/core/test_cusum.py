from __future__ import annotations

from itertools import permutations
from math import comb

import numpy as np
import pytest

from dyclu.core.cusum import change_point, p_value, sums
from dyclu.validation import FloatArray


def share_of_orders_as_wide(series: FloatArray) -> float:
    ranges = np.ptp(sums(np.array(list(permutations(series)))), axis=1)
    return float(np.mean(ranges >= np.ptp(sums(series)) - 1e-9))


def test_p_value_counts_orders_of_as_wide_sums() -> None:
    # Of the 6 orders of (0, 0, 1, 1) only 0101 and 1010 let the sums range over 1/2, the others
    # over 1: p = 2/3. Of 599 draws the share has standard error 1.9 %.
    found = p_value(np.array([0.0, 0, 1, 1]), shuffles=599, rng=np.random.default_rng(0))
    assert found == pytest.approx(2 / 3, abs=3 * 0.019)
    assert p_value(np.array([0.0, 1, 0, 1]), shuffles=9, rng=np.random.default_rng(0)) == 1
    # Of a step no other of 99 orders is as wide: 1/100, never 0.
    assert p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0)) == 0.01


@pytest.mark.parametrize("seed", range(4))
def test_p_value_is_the_share_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = rng.exponential(size=7)
    p = share_of_orders_as_wide(series)
    found = p_value(series, shuffles=1999, rng=rng)
    assert found == pytest.approx(p, abs=3 * np.sqrt(p * (1 - p) / 1999) + 1 / 2000)


@pytest.mark.parametrize("above", [1, 2, 3])
def test_no_range_is_rarer_than_a_single_run_above_the_mean(above: int) -> None:
    # Whatever the entries and wherever the run starts: here it goes around the end.
    rng = np.random.default_rng(above)
    series = np.concatenate([rng.normal(9, 0.1, size=above), rng.normal(0, 0.1, size=7 - above)])
    assert share_of_orders_as_wide(np.roll(series, -1)) == pytest.approx(7 / comb(7, above))
    # Rounding must not break such ties: without any, the p-value would be 1/200.
    assert p_value(series, shuffles=199, rng=rng) > 0.5 * 7 / comb(7, above)


def test_p_value_keeps_its_level_whatever_the_distribution() -> None:
    # Exactly 5 % for exchangeable entries; of 1,000 series with standard error 0.69 %.
    rng = np.random.default_rng(1)
    series = rng.exponential(size=(1000, 30)) ** 2
    alarms = np.mean([p_value(entries, shuffles=19, rng=rng) <= 0.05 for entries in series])
    assert alarms == pytest.approx(0.05, abs=3 * 0.0069)


def test_a_step_is_found() -> None:
    # In random order the range of 20 entries exceeds 1.43 √20 standard deviations in 5 % of cases
    # (simulated). With the later half 3 higher, the standard deviation is √(1 + 9/4) = 1.8 and the
    # sums reach 10 · 3/2 = 15 on average: 1.86 in the same unit. Found in 99 % of cases.
    rng = np.random.default_rng(2)
    series = rng.normal(size=(200, 20)) + np.repeat([0.0, 3.0], 10)
    found = np.mean([p_value(entries, shuffles=99, rng=rng) <= 0.05 for entries in series])
    assert found >= 0.97


def test_change_point_is_where_the_sums_turn() -> None:
    # Deviations -1, -1, 2, 2, -2 (mean 2) sum to -1, -2, 0, 2, 0: of equals the first.
    assert change_point(np.array([1.0, 1, 4, 4, 0])) == 2
    assert change_point(np.array([5.0, 0, 0, 0])) == 1


def test_change_point_of_a_noisy_step() -> None:
    # Next to a step of Δ in the middle, |S| falls by Δ/2 an entry, with deviation 1: j entries off
    # it is still higher with chance Φ(-√j Δ/2). For Δ = 4 that adds up to 2·0.0027 for j ≥ 2.
    rng = np.random.default_rng(3)
    series = rng.normal(size=(1000, 40)) + np.repeat([0.0, 4.0], 20)
    off = np.abs([change_point(entries) - 20 for entries in series])
    assert np.mean(off >= 2) <= 2 * 0.0027 + 3 * np.sqrt(2 * 0.0027 / 1000)
