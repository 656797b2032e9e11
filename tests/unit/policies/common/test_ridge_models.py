from __future__ import annotations

import numpy as np
import pytest

from dyclu.policies.common.ridge_models import MAX_LEVERAGE, REFRESH, RidgeModels

pytestmark = pytest.mark.uncompiled


def test_a_wrong_inverse_is_corrected_at_the_next_refresh() -> None:
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


def test_a_context_too_long_for_a_rank_one_update_is_learnt_exactly() -> None:
    x, models = np.array([1e5, 1e5, 0.0]), RidgeModels(3, ridge=0.01)
    assert x @ x / 0.01 > MAX_LEVERAGE
    for _ in range(3):
        models.add(models.of("ana"), x, 2.0)
    # λ is at the twelfth digit of the gram, so about four digits of the result are correct.
    assert x @ models.theta[0] == pytest.approx(2.0, rel=1e-3)
    assert x @ models.inverse[0] @ x == pytest.approx(1 / 3, rel=1e-3)


def test_each_key_has_a_row_and_growth_keeps_all_rows() -> None:
    models = RidgeModels(2, ridge=1.0)
    for key in range(50):
        models.add(models.of(key), np.array([1.0, 0.0]), float(key))
    assert [models.theta[models.row[key], 0] for key in range(50)] == [key / 2 for key in range(50)]
    assert models.scores("unknown", np.eye(2), alpha=1.0).width == pytest.approx([1.0, 1.0])
