from __future__ import annotations

import numpy as np
import pytest

from dyclu.policies.common.ridge_models import REFRESH, MAX_LEVERAGE, RidgeModels


def test_a_wrong_inverse_is_put_right_at_the_next_refresh() -> None:
    rng = np.random.default_rng(0)
    models = RidgeModels(3, ridge=0.1)
    X = rng.normal(size=(REFRESH, 3))
    for t, x in enumerate(X):
        if t == REFRESH - 1:
            models.inverse[0] *= 1.01
        models.add(models.of("ana"), x, 1.0)
    np.testing.assert_allclose(
        models.inverse[0], np.linalg.inv(X.T @ X + 0.1 * np.eye(3)), rtol=1e-9
    )


def test_a_context_too_long_for_a_rank_one_update_is_solved_for() -> None:
    x, models = np.array([1e5, 1e5, 0.0]), RidgeModels(3, ridge=0.01)
    assert x @ x / 0.01 > MAX_LEVERAGE
    for _ in range(3):
        models.add(models.of("ana"), x, 2.0)
    # λ lies at the twelfth digit of the gram: four are left.
    assert x @ models.theta[0] == pytest.approx(2.0, rel=1e-3)
    assert x @ models.inverse[0] @ x == pytest.approx(1 / 3, rel=1e-3)


def test_keys_have_rows_of_their_own_that_survive_growth() -> None:
    models = RidgeModels(2, ridge=1.0)
    for key in range(50):
        models.add(models.of(key), np.array([1.0, 0.0]), float(key))
    assert [models.theta[models.row[key], 0] for key in range(50)] == [key / 2 for key in range(50)]
    assert models.scores("stranger", np.eye(2), alpha=1.0).width == pytest.approx([1.0, 1.0])
