"""Users who do not change are suspected at most at the rate given in theory.md, section 10."""

from __future__ import annotations

import numpy as np
import pytest

from dyclu import kernels

ROUNDS, DIM, NOISE = 40_000, 4, 0.2


@pytest.mark.parametrize("models", [2, 10])
@pytest.mark.parametrize("hazard", [1e-3, 1e-2])
def test_rate_of_false_suspicions_is_at_most_twice_the_hazard(models: int, hazard: float) -> None:
    rng = np.random.default_rng(7)
    theta = 0.3 * rng.normal(size=(models + 1, DIM))
    theta[0] = 0.0
    count, entering = np.full(models + 1, 1e9), np.full(models + 1, 1 / (models + 1))
    exact, certain = np.zeros((DIM, DIM)), np.eye(models + 1)[1]
    belief, suspicions = certain.copy(), 0
    for x in rng.normal(size=(ROUNDS, DIM)) / 2:
        y = float(x @ theta[1] + NOISE * rng.normal())
        kernels.atlas.follow(
            theta, exact, count, entering, belief, 1, x, y, NOISE**2, 0.09, hazard, 0.0
        )
        if belief[1] < 0.5:
            suspicions, belief = suspicions + 1, certain.copy()
    # Upper bound of the mean number of suspicions, plus three standard deviations.
    most = 2 * hazard * ROUNDS / (1 - hazard)
    assert 0 < suspicions <= most + 3 * np.sqrt(most)
