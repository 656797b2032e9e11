from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dyclu import Noise, Stats, homogeneity
from dyclu.policies.dyclu.neighbours import neighbours
from dyclu.policies.dyclu.segments import REFRESH, SegmentTable
from tests.properties.observations import SEEDS, Array, contexts, well_separated

KINDS = ["generic", "whole", "subspace", "repeated", "zeros"]
NOISE = Noise.known(0.3)


def book_of(*sets: tuple[Array, Array]) -> SegmentTable:
    book = SegmentTable(sets[0][0].shape[1])
    for user, (X, y) in enumerate(sets):
        id = book.start(user)
        for x, reward in zip(X, y, strict=True):
            book.add(id, x, float(reward), spanned=book.spans(id, x))
    return book


@st.composite
def books(draw: st.DrawFn) -> SegmentTable:
    rng = np.random.default_rng(draw(SEEDS))
    dim = draw(st.integers(1, 5))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=5))
    sets = [(contexts(rng, kind, int(rng.integers(0, 13)), dim)) for kind in kinds]
    assume(well_separated(*sets, *(np.vstack((a, b)) for a in sets for b in sets)))
    return book_of(*((X, rng.normal(size=len(X))) for X in sets))


@given(books())
def test_one_against_all_agrees_with_the_definition(book: SegmentTable) -> None:
    for mine in range(len(book)):
        expected = [
            homogeneity(book.stats(mine), book.stats(other), noise=NOISE).p_value
            for other in range(len(book))
        ]
        # Just off the p-values themselves the answers must turn.
        levels = [p * off for p in expected for off in (1 - 1e-5, 1 + 1e-5)]
        for level in (0.001, 0.03, 0.3, 0.97, *np.clip(levels, 1e-300, 1 - 1e-9)):
            found = neighbours(book, mine, noise=NOISE, level=level).rows
            for other, p_value in enumerate(expected):
                if abs(p_value - level) > 1e-6 * level and other != mine:
                    assert (other in found) == (p_value >= level)


@given(books(), SEEDS)
def test_one_observation_agrees_with_the_definition(book: SegmentTable, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = book.gram[0] @ rng.normal(size=book.dim)
    for x in (rng.normal(size=book.dim), known, np.zeros(book.dim)):
        reward = float(rng.normal())
        deviation, df = book.surprise(0, x, reward)
        slow = homogeneity(book.stats(0), Stats.of(x, reward), noise=NOISE)
        assert df == slow.df
        expected = slow.statistic * NOISE.variance
        assert deviation == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rank_one_updates_do_not_drift(scale: float) -> None:
    rng = np.random.default_rng(1)
    rounds = 10 * REFRESH + REFRESH // 2
    X = scale * rng.normal(size=(rounds, 8))
    y = X @ rng.normal(size=8) / scale + rng.normal(size=rounds)
    book = book_of((X, y))
    expected = np.linalg.lstsq(X, y)[0]
    np.testing.assert_allclose(book.theta[0], expected, rtol=1e-9)
    np.testing.assert_allclose(book.inverse[0], np.linalg.inv(X.T @ X), rtol=1e-9)


def test_nearly_collinear_contexts_are_factorised_afresh() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 1)) * np.ones(3) + 1e-4 * rng.normal(size=(400, 3))
    y = X @ np.array([1.0, -2.0, 3.0])
    book = book_of((X, y))
    np.testing.assert_allclose(book.theta[0], [1.0, -2.0, 3.0], rtol=1e-5)


def test_a_wrong_inverse_is_put_right_at_the_next_refresh() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(REFRESH, 3))
    book = book_of((X[:-1], X[:-1].sum(axis=1)))
    book.inverse[0] *= 1.01
    book.add(0, X[-1], float(X[-1].sum()), spanned=True)
    np.testing.assert_allclose(book.inverse[0], np.linalg.inv(X.T @ X), rtol=1e-9)


def test_ids_are_never_reused_and_rows_survive_growth() -> None:
    book = SegmentTable(2)
    for step in range(100):
        id = book.start(step % 3)
        assert id == step
        book.add(id, np.array([1.0, step]), 1.0, spanned=False)
    assert [int(book.count[id]) for id in range(100)] == [1] * 100
    assert [book.gram[id][1, 1] for id in range(100)] == [step**2 for step in range(100)]
    assert book.open == {0: 99, 1: 97, 2: 98}
    assert sorted(book.surprises) == sorted(book.neighbours) == [97, 98, 99]


def test_total_is_the_sum_of_stats() -> None:
    rng = np.random.default_rng(3)
    whole = [(rng.integers(-5, 6, size=(4, 2)).astype(float), np.arange(4.0)) for _ in range(3)]
    book = book_of(*whole)
    assert book.total(np.array([0, 2])) == Stats.of(*whole[0]) + Stats.of(*whole[2])
    assert book.total(np.array([], dtype=np.intp)) == Stats.empty(2)


def test_scales_that_rounding_cannot_hold_raise_nothing() -> None:
    ones, huge = np.eye(3), 1e40 * np.ones((3, 3))
    book = book_of((ones, np.ones(3)), (huge, np.ones(3)), (1e-40 * ones, np.ones(3)))
    for mine in range(3):
        assert mine in neighbours(book, mine, noise=NOISE, level=0.01).rows
