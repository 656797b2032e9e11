"""`dyclu.core.rewards`: means, densities and draws of every law agree."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import scipy

from dyclu.core.rewards import Kind, Law
from dyclu.errors import OptionError

SCORES = np.linspace(-2, 2, 9)


def test_means_are_those_of_the_table() -> None:
    z = 0.2 + 0.5 * SCORES
    for kind in ("gaussian", "student"):
        np.testing.assert_allclose(Law(kind=kind, offset=0.2, slope=0.5).mean(SCORES), z)
    clicks = Law(kind="logistic", offset=0.2, slope=0.5)
    np.testing.assert_allclose(clicks.mean(SCORES), 1 / (1 + np.exp(-z)))
    linear = Law(kind="linear", offset=0.2, slope=0.5)
    np.testing.assert_allclose(linear.mean(SCORES), np.clip(z, 0.001, 0.999))


@pytest.mark.parametrize("kind", ["gaussian", "student"])
def test_densities_integrate_to_one_and_have_mean_and_noise(kind: Kind) -> None:
    law, mean = Law(kind=kind, offset=0.5, noise=0.3, freedom=9.0), 0.5
    moments = [
        scipy.integrate.quad(
            lambda y, k=k: (y - mean) ** k * np.exp(law.log_density(y, np.zeros(1))[0]), -40, 41,
            points=[mean], limit=200,
        )[0]
        for k in (0, 1, 2)
    ]  # fmt: skip
    assert moments == pytest.approx([1, 0, 0.3**2], abs=1e-6)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_the_probability_of_1_is_the_mean(kind: Kind) -> None:
    law = Law(kind=kind, offset=0.4, slope=0.3)
    one, zero = (np.exp(law.log_density(y, SCORES)) for y in (1.0, 0.0))
    np.testing.assert_allclose(one, law.mean(SCORES))
    np.testing.assert_allclose(one + zero, 1)


def test_log_probabilities_of_certain_clicks_are_finite() -> None:
    law = Law(kind="logistic", slope=1000.0)
    assert law.log_density(0.0, np.ones(1))[0] == pytest.approx(-1000)


def test_draws_have_the_stated_noise() -> None:
    # The sample variance of N(0, σ²) has the standard error σ²√(2/n), that of t with ν = 9 degrees
    # of freedom σ²√((κ − 1)/n) with kurtosis κ = 3 + 6/(ν − 4) = 4.2; four of them.
    n = 40_000
    kurtoses: dict[Kind, float] = {"gaussian": 3.0, "student": 4.2}
    for kind, kurtosis in kurtoses.items():
        law = Law(kind=kind, noise=0.3, freedom=9.0)
        draws = law.draw(np.random.default_rng(1), n)
        assert abs(draws.mean()) < 4 * 0.3 / sqrt(n)
        assert abs(draws.var() / 0.09 - 1) < 4 * sqrt((kurtosis - 1) / n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "poisson"}, "kind is 'poisson', .*choose one of gaussian, student"),
        ({"freedom": 2.0}, "freedom is 2.0, expected more than 2"),
        ({"noise": 0.0}, "noise is 0.0"),
        ({"offset": float("nan")}, "offset is nan"),
    ],
)
def test_impossible_laws_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Law(**options)
