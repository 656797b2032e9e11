from __future__ import annotations

import math

import numpy as np
import pytest

from dyclu import Noise, Stats
from dyclu.errors import KindError, OptionError
from dyclu.noise import kept_variance


def test_within_pools_the_residuals_of_separate_fits() -> None:
    rng = np.random.default_rng(0)
    sets = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in (5, 9, 1)]
    residual = sum(float(np.sum((y - X @ np.linalg.pinv(X) @ y) ** 2)) for X, y in sets)
    noise = Noise.within(*(Stats.of(X, y) for X, y in sets))
    assert noise.df == (5 - 2) + (9 - 2) + (1 - 1)
    assert noise.variance == pytest.approx(residual / 10)


def test_without_residuals_the_rewards_bound_it() -> None:
    noise = Noise.within(Stats.of(np.eye(2), [3.0, 4.0]))
    assert noise == Noise(12.5, 0)
    assert Noise.within(Stats.empty(2)) == Noise(0.0, 0)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.1, 0.5])
def test_kept_variance_is_that_of_truncated_noise(level: float) -> None:
    # A million draws: the standard error of a mean of squares is at most √2/1000.
    z2 = np.sort(np.random.default_rng(1).normal(size=1_000_000) ** 2)
    kept = z2[: int(len(z2) * (1 - level))]
    assert kept_variance(level) == pytest.approx(kept.mean(), abs=0.006)


def test_correction_undoes_the_selection() -> None:
    assert Noise.estimated(9.0, 20.0, 13, 10, kept=0.9).variance == pytest.approx(1.0)


def test_known_noise_is_checked() -> None:
    assert Noise.known(0.5) == Noise(0.25, math.inf)
    assert Noise.known(0.5).deviation == 0.5
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(OptionError, match="noise is"):
            Noise.known(wrong)
    with pytest.raises(KindError, match="noise is"):
        Noise.known("0.1")  # type: ignore[arg-type]
