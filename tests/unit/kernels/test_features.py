"""Kernels of features: scaled numbers, marks and products, against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dyclu.kernels import features

pytestmark = pytest.mark.uncompiled

NAN = float("nan")


def filled(numbers: list[list[float]], *, constant: int = 1) -> np.ndarray | None:
    """Return a block of two numbers, of which the second has a mark where missing, and one mark."""
    block = np.full((len(numbers), constant + 4), 9.0)
    done = features.fill(
        np.array(numbers), np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([10.0, 3.0]),
        np.array([-1, 2]), np.full((len(numbers), 1), 0.5), 1e30, constant, block,
    )  # fmt: skip
    return block if done else None


def test_numbers_are_scaled_and_cut_and_missing_ones_marked() -> None:
    block = filled([[5.0, 2.0], [NAN, NAN], [-1e30, 7.0]])
    expected = [[1, 2, 2, 0, 0.5], [1, 0, 0, 1, 0.5], [1, -10, 3, 0, 0.5]]
    np.testing.assert_array_equal(block, expected)
    np.testing.assert_array_equal(filled([[5.0, 2.0]], constant=0), [[2, 2, 0, 0.5]])


@pytest.mark.parametrize("number", [1.1e30, -1.1e30, float("inf"), -float("inf")])
def test_numbers_beyond_the_largest_are_not_filled_in(number: float) -> None:
    assert filled([[0.0, 0.0], [0.0, number]]) is None


def test_marks_are_set_at_places_and_nowhere_is_skipped() -> None:
    marks = np.zeros((3, 4))
    features.mark(np.array([[0, -1, 1], [3, 3, -1]]), marks)
    np.testing.assert_array_equal(marks, [[1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 0, 0]])


@pytest.mark.parametrize("shared", [True, False])
def test_vectors_join_arms_contexts_and_their_products(shared: bool) -> None:
    arms, context = np.array([[2.0, 3.0], [4.0, 5.0]]), np.array([[7.0, 11.0], [7.0, 11.0]])
    vectors = np.zeros((2, 5))
    features.join(
        arms, context[:1] if shared else context, np.array([1]), np.array([0]),
        np.array([0, 1]), np.array([1, 0]), 1, vectors,
    )  # fmt: skip
    np.testing.assert_array_equal(vectors, [[1, 3, 7, 22, 21], [1, 5, 7, 44, 35]])
