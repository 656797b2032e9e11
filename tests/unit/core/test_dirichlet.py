from __future__ import annotations

import numpy as np
import pytest
import scipy

from dyclu.core.dirichlet import draw, draw_concentration, memberships


def test_probabilities_are_those_of_bayes_rule() -> None:
    sizes, likelihoods = np.array([3, 1]), np.array([0.2, 0.7, 0.5])
    weights = np.array([3.0, 1.0, 2.5]) * likelihoods
    found = memberships(sizes, 2.5, np.log(likelihoods))
    assert found == pytest.approx(weights / weights.sum(), rel=1e-12)


def test_first_member_founds_a_group() -> None:
    assert memberships(np.array([], dtype=np.int64), 0.3, np.array([-7.0])).tolist() == [1.0]


def test_likelihoods_too_small_for_a_float_are_compared() -> None:
    found = memberships(np.array([1]), 1.0, np.array([-1e5, -1e5 - np.log(3)]))
    assert found == pytest.approx([0.75, 0.25], rel=1e-9)


def test_index_is_drawn_with_its_probability() -> None:
    # 10,000 draws: standard errors of at most 0.5 %.
    rng, chances = np.random.default_rng(0), np.array([0.2, 0.0, 0.5, 0.3])
    found = np.bincount([draw(chances, rng) for _ in range(10_000)], minlength=4) / 10_000
    assert found == pytest.approx(chances, abs=3 * 0.005)
    assert found[1] == 0


@pytest.mark.parametrize(("groups", "members"), [(1, 20), (5, 20), (12, 20)])
def test_drawn_concentrations_follow_their_posterior(groups: int, members: int) -> None:
    # p(α | K, n) ∝ Gamma(α; a, b) α^K Γ(α)/Γ(α + n), integrated on a grid. 20,000 draws of a chain
    # with little memory: the standard error of the mean is about 2 % of the deviation.
    shape, rate = 2.0, 0.5
    grid = np.linspace(1e-4, 120, 400_000)
    logs = (shape - 1 + groups) * np.log(grid) - rate * grid
    logs += scipy.special.gammaln(grid) - scipy.special.gammaln(grid + members)
    density = np.exp(logs - logs.max())
    mean = (grid * density).sum() / density.sum()
    deviation = np.sqrt(((grid - mean) ** 2 * density).sum() / density.sum())
    rng, alpha, drawn = np.random.default_rng(1), 1.0, []
    for _ in range(20_000):
        alpha = draw_concentration(
            alpha, groups=groups, members=members, shape=shape, rate=rate, rng=rng
        )
        drawn.append(alpha)
    assert np.mean(drawn) == pytest.approx(mean, abs=3 * 0.02 * deviation)
    assert np.std(drawn) == pytest.approx(deviation, rel=0.06)
