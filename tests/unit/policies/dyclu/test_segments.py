from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dyclu import Noise, Stats, homogeneity
from dyclu.policies.dyclu.neighbours import neighbours
from dyclu.policies.dyclu.segments import REFRESH, SegmentTable
from tests.properties.observations import SEEDS, Array, contexts, well_separated

pytestmark = pytest.mark.uncompiled

KINDS = ["generic", "whole", "subspace", "repeated", "zeros"]
NOISE = Noise.known(0.3)


def table_of(*sets: tuple[Array, Array]) -> SegmentTable:
    table = SegmentTable(sets[0][0].shape[1])
    for user, (X, y) in enumerate(sets):
        id = table.start(user)
        for x, reward in zip(X, y, strict=True):
            table.add(id, x, float(reward), spanned=table.spans(id, x))
    return table


@st.composite
def tables(draw: st.DrawFn) -> SegmentTable:
    rng = np.random.default_rng(draw(SEEDS))
    dim = draw(st.integers(1, 5))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=5))
    sets = [(contexts(rng, kind, int(rng.integers(0, 13)), dim)) for kind in kinds]
    assume(well_separated(*sets, *(np.vstack((a, b)) for a in sets for b in sets)))
    return table_of(*((X, rng.normal(size=len(X))) for X in sets))


@given(tables())
def test_neighbours_agree_with_the_definition(table: SegmentTable) -> None:
    for mine in range(len(table)):
        expected = [
            homogeneity(table.stats(mine), table.stats(other), noise=NOISE).p_value
            for other in range(len(table))
        ]
        # The answers must change between a level just below and one just above a p-value.
        levels = [p * off for p in expected for off in (1 - 1e-5, 1 + 1e-5)]
        for level in (0.001, 0.03, 0.3, 0.97, *np.clip(levels, 1e-300, 1 - 1e-9)):
            found = neighbours(table, mine, noise=NOISE, level=level).rows
            for other, p_value in enumerate(expected):
                if abs(p_value - level) > 1e-6 * level and other != mine:
                    assert (other in found) == (p_value >= level)


@given(tables(), SEEDS)
def test_surprise_agrees_with_the_definition(table: SegmentTable, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = table.gram[0] @ rng.normal(size=table.dim)
    for x in (rng.normal(size=table.dim), known, np.zeros(table.dim)):
        reward = float(rng.normal())
        squared_gap, df = table.surprise(0, x, reward)
        slow = homogeneity(table.stats(0), Stats.of(x, reward), noise=NOISE)
        assert df == slow.df
        expected = slow.statistic * NOISE.variance
        assert squared_gap == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rank_one_updates_do_not_drift(scale: float) -> None:
    rng = np.random.default_rng(1)
    rounds = 10 * REFRESH + REFRESH // 2
    X = scale * rng.normal(size=(rounds, 8))
    y = X @ rng.normal(size=8) / scale + rng.normal(size=rounds)
    table = table_of((X, y))
    expected = np.linalg.lstsq(X, y)[0]
    np.testing.assert_allclose(table.theta[0], expected, rtol=1e-9)
    np.testing.assert_allclose(table.inverse[0], np.linalg.inv(X.T @ X), rtol=1e-9)


def test_estimate_is_exact_for_nearly_collinear_contexts() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 1)) * np.ones(3) + 1e-4 * rng.normal(size=(400, 3))
    y = X @ np.array([1.0, -2.0, 3.0])
    table = table_of((X, y))
    np.testing.assert_allclose(table.theta[0], [1.0, -2.0, 3.0], rtol=1e-5)


def test_a_wrong_inverse_is_corrected_at_the_next_refresh() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(REFRESH, 3))
    table = table_of((X[:-1], X[:-1].sum(axis=1)))
    table.inverse[0] *= 1.01
    table.add(0, X[-1], float(X[-1].sum()), spanned=True)
    np.testing.assert_allclose(table.inverse[0], np.linalg.inv(X.T @ X), rtol=1e-9)


def test_ids_are_never_reused_and_growth_keeps_all_rows() -> None:
    table = SegmentTable(2)
    for step in range(100):
        id = table.start(step % 3)
        assert id == step
        table.add(id, np.array([1.0, step]), 1.0, spanned=False)
    assert [int(table.count[id]) for id in range(100)] == [1] * 100
    assert [table.gram[id][1, 1] for id in range(100)] == [step**2 for step in range(100)]
    assert table.open == {0: 99, 1: 97, 2: 98}
    assert sorted(table.surprises) == sorted(table.neighbours) == [97, 98, 99]


def test_kernels_get_the_present_columns_at_every_number_of_segments() -> None:
    """Wide columns must not grow at other times than narrow ones: kernels do not check bounds."""
    table = SegmentTable(100)
    for user in range(300):
        table.start(user)
        present = (table.gram, table.moment, table.energy, table.count, table.inverse, table.theta)
        assert all(given is one for given, one in zip(table.arrays, present, strict=False))
        assert len({len(array) for array in (table.gram, table.theta, table.growth)}) == 1


def test_total_equals_the_sum_of_stats() -> None:
    rng = np.random.default_rng(3)
    whole = [(rng.integers(-5, 6, size=(4, 2)).astype(float), np.arange(4.0)) for _ in range(3)]
    table = table_of(*whole)
    assert table.total(np.array([0, 2])) == Stats.of(*whole[0]) + Stats.of(*whole[2])
    assert table.total(np.array([], dtype=np.intp)) == Stats.empty(2)


def test_segments_of_extreme_scales_raise_no_error() -> None:
    ones, huge = np.eye(3), 1e40 * np.ones((3, 3))
    table = table_of((ones, np.ones(3)), (huge, np.ones(3)), (1e-40 * ones, np.ones(3)))
    for mine in range(3):
        assert mine in neighbours(table, mine, noise=NOISE, level=0.01).rows
