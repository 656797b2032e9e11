from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from dyclu import conformance
from dyclu.core.cusum import p_value
from dyclu.core.homogeneity import homogeneity
from dyclu.core.stats import Stats
from dyclu.errors import KindError, OptionError
from dyclu.policies.adts import AdTS, distance
from dyclu.policies.common.ridge_models import REFRESH
from dyclu.storage import read
from dyclu.validation import FloatArray


def ridge(X: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(X.T @ X + 0.1 * np.eye(X.shape[1]), X.T @ y))


def taught(policy: AdTS, X: FloatArray, y: FloatArray) -> list[bool]:
    return [policy.learn("ana", x, reward).changed for x, reward in zip(X, y, strict=True)]


# The second one tests for changes, and finds them, within the few rounds of a check.
QUICK: dict[str, Any] = {"window": 4, "interval": 1, "level": 0.1, "shuffles": 39}


@pytest.mark.parametrize("options", [{}, {"noise": 0.1, **QUICK}])
def test_contract(options: dict[str, Any]) -> None:
    conformance.check_policy(lambda: AdTS(5, **options), load=lambda path: AdTS.restore(read(path)))


def test_distance_is_the_mahalanobis_distance() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9))
    older, newer = (Stats.of(*window) for window in zip(X, y, strict=True))
    covariances = np.linalg.inv(X.transpose(0, 2, 1) @ X + 0.1 * np.eye(4))
    gap = ridge(X[0], y[0]) - ridge(X[1], y[1])
    expected = np.sqrt(gap @ np.linalg.solve(covariances.mean(axis=0), gap))
    assert distance(older, newer, ridge=0.1) == pytest.approx(expected, rel=1e-9)
    assert distance(newer, older, ridge=0.1) == pytest.approx(expected, rel=1e-9)
    assert distance(older, older, ridge=0.1) == 0


def test_squared_distance_is_twice_the_statistic_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    a, b = (Stats.of(rng.normal(size=(20, 3)), rng.normal(size=20)) for _ in range(2))
    statistic = homogeneity(a, b, noise=1.0).statistic
    assert distance(a, b, ridge=1e-12) ** 2 == pytest.approx(2 * statistic, rel=1e-9)


def test_distances_are_measured_between_adjacent_windows_at_every_interval() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    policy = AdTS(3, window=12, interval=4, series=5, level=1e-9)
    assert not any(taught(policy, X, y))
    expected = [
        distance(
            Stats.of(X[t - 24 : t - 12], y[t - 24 : t - 12]),
            Stats.of(X[t - 12 : t], y[t - 12 : t]),
            ridge=0.1,
        )
        for t in range(44, 61, 4)
    ]
    # There were ten, from the 24th observation on; the latest five are kept.
    assert policy._recent.distances[0] == pytest.approx(expected, rel=1e-9)


def test_false_alarm_rate_is_the_level_if_windows_do_not_overlap() -> None:
    # Twelve distances of pairs of their own are exchangeable. Of the 924 sets of entries above the
    # mean hardly any p is exactly 5 %, so 20 % is tried too. Standard errors of 1,000: 0.7, 1.3 %.
    rng = np.random.default_rng(3)
    p = np.empty(1000)
    for i in range(len(p)):
        X = rng.normal(size=(24, 8, 2))
        y = X @ rng.normal(size=2) + rng.normal(size=(24, 8))
        windows = [Stats.of(*window) for window in zip(X, y, strict=True)]
        pairs = zip(windows[::2], windows[1::2], strict=True)
        series = np.array([distance(*pair, ridge=0.1) for pair in pairs])
        p[i] = p_value(series, shuffles=99, rng=rng)
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=3 * 0.007)
    assert np.mean(p <= 0.2) == pytest.approx(0.2, abs=3 * 0.013)


def test_false_alarm_rate_is_higher_if_windows_overlap() -> None:
    # The published test takes distances for exchangeable that share most of their observations.
    # Of series of 40 at four intervals a window some 40 % pass for changed, not 5 %: this is what
    # the DyClu paper means by its many false detections. 100 series: standard error 5 %.
    rng = np.random.default_rng(4)
    policy, rounds = AdTS(3, window=20, interval=5, level=1e-9, shuffles=1), 40 + 39 * 5
    for user in range(100):
        X, theta = rng.normal(size=(rounds, 3)), rng.normal(size=3)
        for x in X:
            policy.learn(user, x, x @ theta + rng.normal())
    found = [
        p_value(policy._recent.distances[row, -40:], shuffles=99, rng=rng) for row in range(100)
    ]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.4, abs=3 * 0.05)


def test_a_change_is_found_and_located() -> None:
    # Tastes turn round after 150 of 210 rounds: distances rise until the newer window is of the new
    # taste alone, at round 170, and fall until the older one is, at round 190. Three high ones in a
    # row of 25 have p ≈ 25/C(25, 3) = 1 %: found at the third, and located at the rise but for low
    # beginnings that pass for the level before. Whoever had a false alarm just before has too few
    # distances; such changes are found late or never, and located at the fall.
    rng = np.random.default_rng(5)
    found, start = np.zeros(40, dtype=int), np.zeros(40, dtype=int)
    policy = AdTS(3, noise=0.1, window=20, interval=5, level=0.02)
    for user in range(40):
        X, theta = rng.normal(size=(210, 3)), rng.normal(size=3)
        theta /= np.linalg.norm(theta)
        y = X @ theta * np.where(np.arange(210) < 150, 1, -1) + 0.1 * rng.normal(size=210)
        for t in range(210):
            if policy.learn(user, X[t], y[t]).changed and t >= 150 and not found[user]:
                found[user] = t + 1
                start[user] = t + 1 - policy._models.count[policy._models.row[user]]
    assert np.median(found) == 165
    assert np.mean(found > 0) >= 0.9
    assert np.mean((start >= 145) & (start <= 160)) >= 0.8
    assert start[found > 0].max() <= 190


def test_after_a_change_the_model_holds_only_later_observations() -> None:
    rng = np.random.default_rng(6)
    X, theta = rng.normal(size=(165, 3)), np.array([1.0, -0.5, 0.5])
    y = X @ theta * np.where(np.arange(165) < 150, 1, -1) + 0.01 * rng.normal(size=165)
    policy, fresh = (AdTS(3, window=20, interval=5, level=0.02) for _ in range(2))
    assert np.flatnonzero(taught(policy, X, y)).tolist() == [164]
    taught(fresh, X[-15:], y[-15:])
    assert policy._models.count[0] == 15
    for arm in np.eye(3):
        found, expected = policy.decide("ana", [arm]), fresh.decide("ana", [arm])
        assert found.mean == pytest.approx(expected.mean, rel=1e-9)
        assert found.width == pytest.approx(expected.width, rel=1e-9)


def test_after_a_late_detection_the_two_latest_windows_stay() -> None:
    # Ten times the noise makes distances ten times as large for good. Three large ones among some
    # twenty are no change yet at a level of 0.1 %, and two windows are only two blocks here.
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 2))
    y = rng.normal(size=400) * np.where(np.arange(400) < 200, 0.1, 1.0)
    policy = AdTS(2, noise=1.0, window=10, interval=10, level=0.001)
    for t in range(1, 401):
        if policy.learn("ana", X[t - 1], y[t - 1]).changed:
            break
    assert 230 < t < 400
    assert policy._models.count[0] == 20
    means = [policy.decide("ana", arm[None, :]).mean for arm in np.eye(2)]
    assert means == pytest.approx(ridge(X[t - 20 : t], y[t - 20 : t]), rel=1e-9)


def test_a_change_starts_a_new_series_of_distances() -> None:
    # Otherwise those across the change would ring the alarm at every test.
    rng = np.random.default_rng(8)
    X, theta = rng.normal(size=(250, 3)), np.array([1.0, -0.5, 0.5])
    y = X @ theta * np.where(np.arange(250) < 150, 1, -1) + 0.1 * rng.normal(size=250)
    policy = AdTS(3, noise=0.1, window=20, interval=5, level=0.001)
    changes = np.flatnonzero(taught(policy, X, y))
    assert len(changes) == 1
    # Two windows since the change lead to the first new distance, and every interval to another.
    assert policy._recent.measured[0] == (policy._models.count[0] - 40) // 5 + 1


def test_no_change_is_found_before_there_are_ten_distances() -> None:
    # At 5 %; five times the noise every 20 rounds is change enough.
    rng = np.random.default_rng(9)
    for seed in range(20):
        policy = AdTS(2, noise=1.0, window=20, interval=5, seed=seed)
        rewards = rng.normal(size=84) * np.tile(np.repeat([1.0, 5.0], 21), 2)
        assert not any(taught(policy, rng.normal(size=(84, 2)), rewards))


def test_the_unit_of_rewards_does_not_matter() -> None:
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    # Tests so coarse that another draw of the shuffle would show.
    options: dict[str, Any] = {"window": 4, "interval": 1, "level": 0.5, "shuffles": 1}
    found = [taught(AdTS(2, **options), X, unit * y) for unit in (1, 2.0**30)]
    assert sum(found[0]) >= 5
    assert found[0] == found[1]


def test_without_a_change_the_model_holds_all_observations() -> None:
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    policy = AdTS(3, noise=1.0, window=20, interval=5, level=1e-9)
    assert not any(taught(policy, X, y))
    means = [policy.decide("ana", arm[None, :]).mean for arm in np.eye(3)]
    assert means == pytest.approx(ridge(X, y), rel=1e-9)


def test_the_bootstrap_depends_on_the_seed() -> None:
    # A single shuffle is at least as wide with any chance between 0 and 1.
    rng = np.random.default_rng(12)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)

    def alarms(seed: int) -> list[bool]:
        return taught(AdTS(2, window=4, interval=1, level=0.5, shuffles=1, seed=seed), X, y)

    assert alarms(1) == alarms(1) != alarms(2)


@pytest.mark.parametrize(
    "pair",
    [
        ([1.0, 0.0], [0.0, 0.0]),
        ([1.0, 0.0], [0.0, 1.0]),
        ([1.0, 1.0], [1.0, 0.9]),
        ([1.0, -1.0], [-1.0, 0.5]),
    ],
)
def test_samples_follow_the_posterior(pair: list[list[float]]) -> None:
    # θ̃ ~ N(θ̂, v² A_λ⁻¹), so that x wins over z with chance Φ(gᵀθ̂ / v √(gᵀA_λ⁻¹g)), g = x - z.
    # Scaling both is another question with the same chance.
    rng = np.random.default_rng(7)
    X = rng.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    y = X @ [0.1, 0.2] + 0.5 * rng.normal(size=6)
    policy = AdTS(2, noise=0.5)
    taught(policy, X, y)
    arms = np.array(pair)
    gap = arms[0] - arms[1]
    deviation = 0.5 * np.sqrt(gap @ np.linalg.solve(X.T @ X + 0.1 * np.eye(2), gap))
    chance = ndtr(gap @ ridge(X, y) / deviation)
    assert 0.05 < chance < 0.95
    wins = [policy.decide("ana", scale * arms).arm == 0 for scale in np.linspace(1, 2, 4000)]
    assert np.mean(wins) == pytest.approx(chance, abs=3 * np.sqrt(chance * (1 - chance) / 4000))


def test_samples_for_an_unknown_user_follow_the_prior() -> None:
    # N(0, v²/λ I): every arm of one norm wins equally often; of 2,000, standard error 1.0 %.
    policy = AdTS(4, noise=0.5)
    arms = np.eye(4)
    wins = [policy.decide("ana", scale * arms).arm for scale in np.linspace(1, 2, 2000)]
    assert np.bincount(wins, minlength=4) / 2000 == pytest.approx(np.full(4, 0.25), abs=0.03)
    assert policy.decide("ana", arms).width == pytest.approx(0.5 / np.sqrt(0.1))


def test_samples_differ_between_rounds_and_seeds() -> None:
    def answers(seed: int) -> list[int]:
        policy, arms = AdTS(4, noise=0.5, seed=seed), []
        for _ in range(30):
            arms.append(policy.decide("ana", np.eye(4)).arm)
            policy.learn("bea", np.ones(4), 0.0)
        return arms

    assert set(answers(1)) == {0, 1, 2, 3}
    assert answers(1) == answers(1) != answers(2)


def test_mean_and_width_are_those_of_the_posterior() -> None:
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    policy = AdTS(3, noise=0.3)
    taught(policy, X, y)
    arm = rng.normal(size=3)
    decision = policy.decide("ana", [arm])
    A = X.T @ X + 0.1 * np.eye(3)
    assert decision.mean == pytest.approx(arm @ ridge(X, y))
    assert decision.width == pytest.approx(0.3 * np.sqrt(arm @ np.linalg.solve(A, arm)))


def test_noise_is_estimated_from_prediction_errors() -> None:
    # 2,000 errors: relative standard error 1/√4000 = 1.6 %; the prior's misfit adds λ‖θ‖²/n.
    rng = np.random.default_rng(9)
    X = rng.normal(size=(2000, 3))
    y = X @ [0.3, -0.2, 0.5] + 0.2 * rng.normal(size=2000)
    told, estimated = AdTS(3, noise=0.2, level=1e-9), AdTS(3, level=1e-9)
    widths = []
    for policy in (told, estimated):
        taught(policy, X, y)
        widths.append(policy.decide("ana", np.eye(3)[:1]).width)
    assert widths[1] == pytest.approx(widths[0], rel=3 * 0.016)


def test_the_reward_of_a_context_of_zeros_causes_no_change() -> None:
    policy = AdTS(2, noise=0.1, window=8, interval=2)
    for t in range(61):
        policy.learn("ana", np.eye(2)[t % 2], 0.5 + 0.1 * (-1) ** (t // 2))
    before, blocks = policy.decide("ana", [[1.0, 0.0]]).mean, policy._recent.block_energy.copy()
    assert not any(policy.learn("ana", [0.0, 0.0], 100.0).changed for _ in range(30))
    assert policy.decide("ana", [[1.0, 0.0]]).mean == before
    assert (policy._recent.block_energy == blocks).all()


@pytest.mark.parametrize("noise", [None, 0.1])
def test_numbers_of_any_size_give_finite_results_in_long_runs(noise: float | None) -> None:
    rng = np.random.default_rng(0)
    policy = AdTS(3, noise=noise, window=20, interval=10, shuffles=19)
    for _ in range(2 * REFRESH):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


def test_options_are_checked_and_survive_saving(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"window is 25 and interval is 10.* pass window=30"):
        AdTS(2, window=25, interval=10)
    with pytest.raises(OptionError, match="interval is 0"):
        AdTS(2, interval=0)
    with pytest.raises(OptionError, match="level is 1"):
        AdTS(2, level=1.0)
    seedless: Any = None
    with pytest.raises(KindError, match="seed is None"):
        AdTS(2, seed=seedless)
    given: dict[str, Any] = {"window": 9, "interval": 3, "level": 0.1, "shuffles": 29, "series": 7}
    policy = AdTS(2, noise=0.2, ridge=0.5, seed=5, **given)
    policy.save(tmp_path / "policy")
    loaded = AdTS.restore(read(tmp_path / "policy"))
    assert repr(loaded) == repr(policy)
    told = ", ".join(f"{name}={value}" for name, value in given.items())
    assert repr(policy) == f"AdTS(dim=2, noise=0.2, ridge=0.5, {told})"
    arms = np.random.default_rng(0).normal(size=(50, 2))
    assert loaded.decide("ana", arms) == policy.decide("ana", arms)
