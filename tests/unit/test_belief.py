"""Belief: one step of a hidden Markov model, readable and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import kernels
from dyclu.belief import followed, likelihood, turning_point, weighed
from tests.properties.observations import SEEDS


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
    error, lever = kernels.follow(
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
