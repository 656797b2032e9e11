"""Error rates of the test, counted: p-values are uniform, surprises have their level.

Tolerances: the Kolmogorov distance of n independent p-values to uniform exceeds 1.95/√n with
probability 0.001. A share with mean q has standard error √(q(1−q)/n); 4 of these are allowed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import bdtrc

from dyclu import DyClu, Noise, Stats, homogeneity
from dyclu.core.theory import alarm_threshold

NOISE = 0.4
REPEATS = 1500


def distance_to_uniform(p: NDArray[np.float64]) -> float:
    p, steps = np.sort(p), np.arange(1, len(p) + 1) / len(p)
    return float(max((steps - p).max(), (p - steps + 1 / len(p)).max()))


def p_values(
    seed: int, dim: int, sizes: tuple[int, int], noise: float | None
) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(REPEATS):
        theta = rng.normal(size=dim)
        sets = []
        for n in sizes:
            X = rng.normal(size=(n, dim))
            sets.append(Stats.of(X, X @ theta + NOISE * rng.normal(size=n)))
        found.append(homogeneity(sets[0], sets[1], noise=noise).p_value)
    return np.array(found)


CASES = [
    pytest.param(3, (10, 10), NOISE, id="both full, chi2"),
    pytest.param(3, (10, 10), None, id="both full, F"),
    pytest.param(5, (40, 4), NOISE, id="one deficient, chi2"),
    pytest.param(5, (40, 4), None, id="one deficient, F"),
    pytest.param(6, (4, 5), NOISE, id="both deficient, chi2"),
    pytest.param(2, (30, 1), NOISE, id="one sample, chi2"),
    pytest.param(2, (30, 1), None, id="one sample, F"),
]


@pytest.mark.parametrize(("dim", "sizes", "noise"), CASES)
def test_p_values_are_uniform_under_the_null(
    dim: int, sizes: tuple[int, int], noise: float | None
) -> None:
    p = p_values(1, dim, sizes, noise)
    assert distance_to_uniform(p) < 1.95 / math.sqrt(REPEATS)


def test_p_values_are_not_uniform_if_the_noise_is_wrong() -> None:
    p = p_values(1, 3, (10, 10), 0.9 * NOISE)
    assert distance_to_uniform(p) > 1.95 / math.sqrt(REPEATS)


def test_p_values_are_uniform_if_the_noise_is_pooled_over_all_segments() -> None:
    # The residuals of all segments, also of those compared, are independent of the statistic.
    rng = np.random.default_rng(2)
    found = []
    for _ in range(REPEATS):
        theta = rng.normal(size=3)
        X = rng.normal(size=(3, 6, 3))
        own = [theta, theta, rng.normal(size=3)]
        sets = [
            Stats.of(x, x @ t + NOISE * rng.normal(size=6)) for x, t in zip(X, own, strict=True)
        ]
        found.append(homogeneity(sets[0], sets[1], noise=Noise.within(*sets)).p_value)
    assert distance_to_uniform(np.array(found)) < 1.95 / math.sqrt(REPEATS)


@pytest.mark.parametrize(
    ("noise", "level"),
    [(NOISE, 0.01), (NOISE, 0.05), (None, 0.01), (None, 0.05)],
    ids=["known 1 %", "known 5 %", "estimated 1 %", "estimated 5 %"],
)
def test_rate_of_surprises_without_changes_is_the_change_level(
    noise: float | None, level: float
) -> None:
    # One user who never changes; `window_delta` is so small that the alarm never rings.
    rng = np.random.default_rng(3)
    policy = DyClu(4, noise=noise, change_level=level, window_delta=1e-12)
    theta = rng.normal(size=4)
    rounds = 8000
    surprised = 0
    for _ in range(rounds):
        x = rng.normal(size=4)
        surprised += policy.learn("ana", x, x @ theta + NOISE * rng.normal()).surprised
    tolerance = 4 * math.sqrt(level * (1 - level) / rounds)
    assert surprised / rounds == pytest.approx(level, abs=tolerance)
    assert not policy.changes
    if noise is None:
        # Errors above 3 σ are clipped, which makes the variance too small by 0.5 %.
        assert policy.noise == pytest.approx(NOISE, rel=0.003 + 4 / math.sqrt(2 * rounds))


def test_rate_of_missed_neighbours_is_the_neighbour_level() -> None:
    # All users share one parameter; every user is compared with all earlier ones. Tests that share
    # a segment are dependent, so the number of users counts as the number of independent tests.
    rng = np.random.default_rng(4)
    theta, level, users = rng.normal(size=3), 0.05, 400
    policy = DyClu(3, noise=NOISE, neighbour_level=level, change_level=1e-9)
    left_out = compared = 0
    for user in range(users):
        for _ in range(12):
            x = rng.normal(size=3)
            outcome = policy.learn(user, x, x @ theta + NOISE * rng.normal())
        left_out += user + 1 - len(outcome.neighbours)
        compared += user
    assert left_out / compared == pytest.approx(level, abs=4 * math.sqrt(level / users))


def test_rate_of_early_alarms_is_at_most_the_bound_of_lemma_three() -> None:
    # No user changes, but the level is large, so that there are alarms. In every round the
    # probability of an alarm is at most that of the worst window length, a binomial tail, which
    # Lemma 3 bounds by δₑ. Rounds of one user are dependent; users are independent.
    level, delta, users, rounds = 0.2, 0.05, 150, 60
    worst = max(
        float(bdtrc(math.floor(k * alarm_threshold(level, delta=delta, entries=k)), k, level))
        for k in range(1, 21)
        if alarm_threshold(level, delta=delta, entries=k) < 1
    )
    assert worst <= delta
    rng = np.random.default_rng(5)
    policy = DyClu(2, noise=NOISE, change_level=level, window_delta=delta)
    shares = []
    for user in range(users):
        theta = rng.normal(size=2)
        X = rng.normal(size=(rounds, 2))
        rewards = X @ theta + NOISE * rng.normal(size=rounds)
        shares.append(
            np.mean([policy.learn(user, x, y).changed for x, y in zip(X, rewards, strict=True)])
        )
    error = float(np.std(shares)) / math.sqrt(users)
    assert 0 < np.mean(shares) < worst + 4 * error
