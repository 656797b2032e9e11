from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import Stats
from dyclu.core.ridge import root, scores
from dyclu.core.theory import exploration
from dyclu.policy import TIE, choose, first_best
from tests.properties.observations import SEEDS

pytestmark = pytest.mark.uncompiled


@given(SEEDS, st.integers(1, 6), st.integers(0, 9), st.integers(1, 7))
def test_scores_equal_ridge_regression_on_raw_data(seed: int, dim: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, arms = rng.normal(size=(n, dim)), rng.normal(size=n), rng.normal(size=(k, dim))
    stats = Stats.of(X, y) if n else Stats.empty(dim)
    inverse = np.linalg.inv(X.T @ X + 0.3 * np.eye(dim))
    answer = scores(stats, arms, ridge=0.3, alpha=1.7)
    np.testing.assert_allclose(answer.theta, inverse @ X.T @ y, atol=1e-9)
    np.testing.assert_allclose(answer.mean, arms @ inverse @ X.T @ y, atol=1e-9)
    expected = 1.7 * np.sqrt(np.einsum("kd,de,ke->k", arms, inverse, arms))
    np.testing.assert_allclose(answer.width, expected, rtol=1e-8)


def test_exploration_is_equation_two() -> None:
    expected = 0.09 * math.sqrt(25 * math.log(1 + 300 / 2.5) + 2 * math.log(10)) + math.sqrt(0.1)
    assert exploration(300, 25, noise=0.09, ridge=0.1, delta=0.1) == pytest.approx(expected)


def test_an_arm_in_a_new_direction_is_chosen_for_its_width() -> None:
    stats = Stats.of([[1.0, 0.0]] * 50, [0.1] * 50)
    assert choose("ana", scores(stats, np.eye(2), ridge=1.0, alpha=1.0)).arm == 1


def test_width_is_correct_if_the_ridge_is_lost_in_rounding() -> None:
    x = 1e12 * np.array([1.0, 1.0, 1.0])
    arms = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    answer = scores(Stats.of(x, 1.0), arms, ridge=0.1, alpha=1.0)
    # In directions orthogonal to the context, the width depends on λ only.
    assert answer.width == pytest.approx([0.0, np.sqrt(2 / 0.1)], rel=1e-3, abs=1e-3)
    assert np.isfinite(answer.theta).all()


def test_first_best_returns_the_first_of_tied_scores() -> None:
    assert first_best(np.array([1.0, 1.0 + TIE / 2, 0.0])) == 0
    assert first_best(np.array([1.0, 1.0 + 3 * TIE, 0.0])) == 1
    assert first_best(np.array([-5.0])) == 0


def test_root_of_a_matrix_that_rounding_left_indefinite() -> None:
    v = np.array([1.0, 1e-3, 1e3])
    broken = np.outer(v, v) - 1e-9 * np.eye(3)
    assert np.linalg.eigvalsh(broken)[0] < 0
    for matrix in (broken, np.array([[2.0, 1.0], [1.0, 3.0]])):
        half = root(matrix)
        assert half @ half.T == pytest.approx(matrix, abs=1e-8 * np.abs(matrix).max())
