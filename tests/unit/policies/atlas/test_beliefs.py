"""Belief: one step of a hidden Markov model, readable and compiled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import kernels
from dyclu.policies.atlas.beliefs import followed, likelihood, turning_point, weighed
from dyclu.validation import FloatArray
from tests.properties.observations import SEEDS

pytestmark = pytest.mark.uncompiled


@given(SEEDS, st.integers(2, 6), st.integers(1, 5))
def test_the_kernel_does_what_the_definition_says(seed: int, models: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    theta, x, y = rng.normal(size=(models, dim)), rng.normal(size=dim), float(rng.normal())
    root = rng.normal(size=(dim, dim))
    inverse, count = root @ root.T, rng.integers(1, 50, models).astype(float)
    belief, entering = rng.dirichlet(np.ones(models)), rng.dirichlet(np.ones(models))
    home, noise, spread, hazard, floor = models - 1, 0.3, 0.8, 0.02, 0.01

    leverage = float(x @ inverse @ x)
    variances = noise * (1 + leverage * count[home] / count)
    variances[0] = noise + spread * float(x @ x)
    likely = likelihood(y - theta @ x, variances, floor)
    expected = followed(belief, entering, likely, hazard=hazard)

    found = belief.copy()
    error, lever = kernels.atlas.follow(
        theta, inverse, count, entering, found, home, x, y, noise, spread, hazard, floor
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert (error, lever) == pytest.approx((y - theta[home] @ x, leverage))


def test_a_reward_that_nobody_explains_moves_no_belief() -> None:
    belief = np.array([0.2, 0.3, 0.5])
    likely = likelihood(np.array([50.0, 80.0, 90.0]), np.ones(3), 1e-4)
    np.testing.assert_allclose(followed(belief, belief, likely, hazard=0.1), belief)


def test_evidence_of_any_size_is_weighed() -> None:
    np.testing.assert_allclose(weighed(np.array([-1e6, -1e6 - np.log(3)])), [0.75, 0.25])


def test_the_turning_point_is_where_the_other_model_takes_over() -> None:
    home, other = np.array([0.9, 0.8, 0.1, 0.2]), np.array([0.1, 0.1, 0.8, 0.7])
    assert turning_point(home, other) == 2
    assert turning_point(np.ones(4), np.full(4, 0.5)) == 3  # the last belongs to the rest anyhow


@given(SEEDS, st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_attending_is_following_and_crediting(seed: int, dim: int, lag: int, sure: bool) -> None:
    rng, models, home = np.random.default_rng(seed), 3, 2
    gram = np.array([np.eye(dim) * (k + 1.0) for k in range(models)])
    inverse, theta = np.linalg.inv(gram), rng.normal(size=(models, dim))
    moment = np.einsum("kij,kj->ki", gram, theta)
    tally = np.zeros((models, 6))
    tally[:, kernels.atlas.COUNT], tally[:, kernels.atlas.CHECKED] = 30.0, 1e9
    tally[:, kernels.atlas.ENTERING] = 1 / models
    parts = kernels.atlas.ledger(dim, lag + 1)
    ledger = np.zeros((2, sum(math.prod(shape) for shape in parts.values())))
    ledger[:, kernels.atlas.DUE] = 1e9
    told = np.array([0.3, 0.8, 0.02, 0.01, 7.0])
    start = np.eye(models)[home] if sure else np.array([0.01, 0.01, 0.98])

    expected = [array.copy() for array in (gram, moment, inverse, theta)]
    score, count, believed = np.zeros(dim), np.full(models, 30.0), start.copy()
    waiting: list[tuple[FloatArray, float]] = []
    for _ in range(lag + 3):
        x = rng.normal(size=dim)
        y = float(x @ theta[home]) + 0.1 * rng.normal()
        belief = believed.copy()
        _, _, actions = kernels.atlas.update_located(
            gram, moment, inverse, theta, tally, ledger, told, belief, x, y, 1, home, sure
        )
        followed_to = start.copy() if sure else believed
        kernels.atlas.follow(
            expected[3], expected[2][home], count, np.full(models, 1 / models), followed_to,
            home, x, y, 0.3, 0.8, 0.02, 0.01,
        )  # fmt: skip
        np.testing.assert_allclose(belief, followed_to, rtol=1e-9)
        assert not actions & kernels.atlas.SUSPECT
        waiting.append((x, y))
        if len(waiting) > lag:
            (then, said), (a, b, inverted, fitted) = waiting.pop(0), (e[home] for e in expected)
            kernels.atlas.credit(a, b, inverted, fitted, score, then, said, 0.3, 0.01)
            count[home] += 1
        believed = belief
    for found, array in zip((gram, moment, inverse, theta), expected, strict=True):
        np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(ledger[1, kernels.atlas.SCORE : kernels.atlas.SCORE + dim], score)
    assert ledger[1, kernels.atlas.WAITING] == lag
    assert ledger[1, kernels.atlas.CREDITED] == 3
    assert tally[home, kernels.atlas.COUNT] == 33
    assert tally[home, kernels.atlas.VISITED] == 7
    assert not ledger[0, : kernels.atlas.DUE].any()
