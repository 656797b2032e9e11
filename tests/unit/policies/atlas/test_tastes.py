"""The atlas of shared models."""

from __future__ import annotations

import numpy as np
import pytest

from dyclu.core.evidence import Prior
from dyclu.policies.atlas.tastes import NEW, Tastes

DIM = 3


def models() -> Tastes:
    return Tastes(DIM, Prior(np.full(DIM, 0.1), 0.5, 0.04))


def filled(count: int = 12) -> tuple[Tastes, int]:
    shared, rng = models(), np.random.default_rng(3)
    row = shared.found(clock=0)
    X = rng.normal(size=(count, DIM))
    shared.add(row, X.T @ X, X.T @ (X @ [1.0, 0.0, -1.0]), count)
    return shared, row


def test_somebody_new_is_the_prior() -> None:
    shared = models()
    np.testing.assert_allclose(shared.theta[NEW], 0.1)
    np.testing.assert_allclose(shared.inverse[NEW], np.eye(DIM) / shared.prior.ridge)
    assert shared.live.tolist() == [NEW]


def test_crediting_by_rank_one_is_the_estimate_from_the_sums() -> None:
    shared, row = filled()
    rng, score = np.random.default_rng(4), np.zeros(DIM)
    for _ in range(30):
        x = rng.normal(size=DIM)
        y = float(x @ [1.0, 0.0, -1.0] + rng.normal(scale=0.2))
        shared.credit(row, x, y, score=score, floor=1e-30)
    theta, inverse = shared.theta[row].copy(), shared.inverse[row].copy()
    shared.refresh(row)
    np.testing.assert_allclose(theta, shared.theta[row], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(inverse, shared.inverse[row], rtol=1e-9, atol=1e-12)
    assert shared.count[row] == 42
    assert np.abs(score).max() > 0


def test_a_stray_counts_as_what_is_just_as_likely_and_no_more() -> None:
    x, floor = np.ones(DIM), 1e-6
    shifts = []
    for reward in (10.0, 1e3, 1e9):
        shared, row = filled()
        before, score = shared.theta[row].copy(), np.zeros(DIM)
        shared.credit(row, x, reward, score=score, floor=floor)
        assert shared.count[row] == 13
        assert (score > 0).all()
        shifts.append(shared.theta[row] - before)
        np.testing.assert_allclose(
            shared.gram[row] @ shared.theta[row] + shared.prior.ridge * shared.theta[row],
            shared.moment[row] + shared.prior.ridge * shared.prior.mean,
            atol=1e-9,
        )
    np.testing.assert_allclose(shifts[1], shifts[2], rtol=1e-6)
    np.testing.assert_allclose(shifts[0], shifts[2], rtol=1e-6)


def test_what_was_added_can_be_taken_out() -> None:
    shared, row = filled()
    theta = shared.theta[row].copy()
    gram, moment = np.eye(DIM), np.ones(DIM)
    shared.add(row, gram, moment, 3)
    assert np.abs(shared.theta[row] - theta).max() > 1e-3
    shared.add(row, gram, moment, -3)
    np.testing.assert_allclose(shared.theta[row], theta, rtol=1e-9)
    assert shared.count[row] == 12


def test_gains_are_the_evidence_of_the_newcomer_given_the_model() -> None:
    shared, row = filled()
    gram, moment = np.diag([1.0, 0.0, 0.0]), np.array([0.9, 0.0, 0.0])
    prior = shared.prior
    gains = shared.gains(np.array([NEW, row]), gram, moment)
    assert gains[0] == pytest.approx(prior.log_evidence(gram, moment))
    assert gains[1] == pytest.approx(
        prior.log_evidence(shared.gram[row] + gram, shared.moment[row] + moment)
        - prior.log_evidence(shared.gram[row], shared.moment[row])
    )
    assert gains[1] > gains[0]  # it fits the model: likelier there than as somebody new


def test_rows_are_used_again_and_ids_are_not() -> None:
    shared, row = filled()
    first = int(shared.id[row])
    shared.close(row)
    again = shared.found(clock=9)
    assert again == row
    assert shared.id[again] == first + 1
    assert shared.count[again] == 0
