from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from dyclu import conformance
from dyclu.errors import KindError, OptionError
from dyclu.models import REFRESH
from dyclu.policies.adts import AdTS, _root, change_point, p_value
from dyclu.storage import read
from dyclu.validation import FloatArray


def ridge(X: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(X.T @ X + 0.1 * np.eye(X.shape[1]), X.T @ y))


def taught(policy: AdTS, X: FloatArray, y: FloatArray) -> list[bool]:
    return [policy.learn("ana", x, reward).changed for x, reward in zip(X, y, strict=True)]


# The second one tests for changes, and finds them, within the few rounds of a check.
@pytest.mark.parametrize("options", [{}, {"noise": 0.1, "interval": 5, "window": 12}])
def test_contract(options: dict[str, Any]) -> None:
    conformance.check_policy(lambda: AdTS(5, **options), load=lambda path: AdTS.restore(read(path)))


def test_p_value_counts_orders_of_as_wide_sums() -> None:
    # Of the 6 orders of (0, 0, 1, 1) only 0101 and 1010 let the sums range over 1/2, the others
    # over 1: p = 2/3. Of 599 draws the share has standard error 1.9 %.
    found = p_value(np.array([0.0, 0, 1, 1]), shuffles=599, rng=np.random.default_rng(0))
    assert found == pytest.approx(2 / 3, abs=3 * 0.019)
    assert p_value(np.array([0.0, 1, 0, 1]), shuffles=9, rng=np.random.default_rng(0)) == 1
    # Of a step no other of 99 orders is as wide: 1/100, never 0.
    assert p_value(np.repeat([0.0, 1.0], 20), shuffles=99, rng=np.random.default_rng(0)) == 0.01


def test_p_value_keeps_its_level_whatever_the_distribution() -> None:
    # Exactly 5 % for exchangeable entries; of 1,000 series with standard error 0.69 %.
    rng = np.random.default_rng(1)
    series = rng.exponential(size=(1000, 30)) ** 2
    alarms = np.mean([p_value(entries, shuffles=19, rng=rng) <= 0.05 for entries in series])
    assert alarms == pytest.approx(0.05, abs=3 * 0.0069)


def test_change_point_is_where_the_sums_turn() -> None:
    # Deviations -1, -1, 2, 2, -2 (mean 2) sum to -1, -2, 0, 2, 0: of equals the first.
    assert change_point(np.array([1.0, 1, 4, 4, 0])) == 2
    assert change_point(np.array([5.0, 0, 0, 0])) == 1


def test_false_alarms_come_at_the_level() -> None:
    # Windows as long as the interval share no observation: 30 users with 20 tests each are 600
    # nearly independent ones, standard error 0.89 %.
    rng = np.random.default_rng(2)
    policy, alarms = AdTS(3, noise=0.2, window=25, interval=25, shuffles=39), 0
    for user in range(30):
        theta = rng.normal(size=3) / 2
        for x in rng.normal(size=(500, 3)):
            alarms += policy.learn(user, x, x @ theta + 0.2 * rng.normal()).changed
    assert alarms / 600 == pytest.approx(0.05, abs=3 * 0.0089)


@pytest.mark.parametrize("rounds", [250, 50])
def test_a_large_change_is_found_at_the_next_test_and_what_was_before_forgotten(
    rounds: int,
) -> None:
    # In the last 25 rounds tastes are flipped, and errors 10 to 20 times as large from the first
    # one on. At a level of 1/1000 a false alarm before has a chance of 4 in 1,000.
    X = np.eye(3)[np.arange(rounds) % 3]
    y = X @ [1.0, -0.5, 0.5] + 0.1 * np.random.default_rng(3).normal(size=rounds)
    y[-25:] *= -1
    policy = AdTS(3, noise=0.1, level=0.001, shuffles=999)
    assert np.flatnonzero(taught(policy, X, y)).tolist() == [rounds - 1]
    assert policy._models.count[0] == 25
    means = [policy.decide("ana", arm[None, :]).mean for arm in np.eye(3)]
    assert means == pytest.approx(ridge(X[-25:], y[-25:]), rel=1e-9)


def test_errors_are_measured_anew_by_the_model_that_stays() -> None:
    # Otherwise the large errors of the forgotten model would ring the alarm at every test.
    rng = np.random.default_rng(4)
    X, theta = rng.normal(size=(400, 3)), np.array([1.0, -0.5, 0.5])
    y = X @ theta * np.where(np.arange(400) < 225, 1, -1) + 0.1 * rng.normal(size=400)
    policy = AdTS(3, noise=0.1, level=0.001, shuffles=999)
    assert np.flatnonzero(taught(policy, X, y)).tolist() == [249]
    k = int(policy._models.count[0])
    X, y = X[-k:], y[-k:]
    for n in range(k):
        A = X[:n].T @ X[:n] + 0.1 * np.eye(3)
        error = abs(y[n] - X[n] @ ridge(X[:n], y[:n]))
        error /= np.sqrt(1 + X[n] @ np.linalg.solve(A, X[n]))
        assert policy._windows.errors[0, n] == pytest.approx(error, rel=1e-8)


def test_the_model_is_of_all_observations_since_the_change_not_of_the_window() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    policy = AdTS(3, noise=1.0, window=20, level=1e-9)
    assert not any(taught(policy, X, y))
    means = [policy.decide("ana", arm[None, :]).mean for arm in np.eye(3)]
    assert means == pytest.approx(ridge(X, y), rel=1e-9)
    places = policy._windows.places(300)
    assert (policy._windows.contexts[0, places] == X[-20:]).all()
    assert (policy._windows.rewards[0, places] == y[-20:]).all()


def test_errors_of_a_model_with_too_few_observations_are_not_tested() -> None:
    # A taste far beyond the prior's: the first 20 errors are about 6 times as large as the others,
    # which would pass for a change. A false alarm has a chance of 1 %.
    rng = np.random.default_rng(6)
    X = rng.normal(size=(50, 20))
    policy = AdTS(20, noise=1.0, level=0.01)
    assert not any(taught(policy, X, 10 * X @ rng.normal(size=20) + rng.normal(size=50)))


@pytest.mark.parametrize(
    "pair",
    [
        ([1.0, 0.0], [0.0, 0.0]),
        ([1.0, 0.0], [0.0, 1.0]),
        ([1.0, 1.0], [1.0, 0.9]),
        ([1.0, -1.0], [-1.0, 0.5]),
    ],
)
def test_samples_have_the_posteriors_distribution(pair: list[list[float]]) -> None:
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


def test_a_stranger_is_sampled_from_the_prior() -> None:
    # N(0, v²/λ I): every arm of one norm wins equally often; of 2,000, standard error 1.0 %.
    policy = AdTS(4, noise=0.5)
    arms = np.eye(4)
    wins = [policy.decide("ana", scale * arms).arm for scale in np.linspace(1, 2, 2000)]
    assert np.bincount(wins, minlength=4) / 2000 == pytest.approx(np.full(4, 0.25), abs=0.03)
    assert policy.decide("ana", arms).width == pytest.approx(0.5 / np.sqrt(0.1))


def test_later_questions_have_other_answers_and_the_seed_decides() -> None:
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


def test_the_reward_of_a_context_of_zeros_tells_of_no_change() -> None:
    policy = AdTS(2, noise=0.1, interval=10)
    for t in range(60):
        policy.learn("ana", np.eye(2)[t % 2], 0.5 + 0.1 * (-1) ** (t // 2))
    before = policy.decide("ana", [[1.0, 0.0]]).mean
    assert not any(policy.learn("ana", [0.0, 0.0], 100.0).changed for _ in range(30))
    assert policy.decide("ana", [[1.0, 0.0]]).mean == before


def test_root_of_a_matrix_that_rounding_left_indefinite() -> None:
    v = np.array([1.0, 1e-3, 1e3])
    broken = np.outer(v, v) - 1e-9 * np.eye(3)
    assert np.linalg.eigvalsh(broken)[0] < 0
    for matrix in (broken, np.array([[2.0, 1.0], [1.0, 3.0]])):
        root = _root(matrix)
        assert root @ root.T == pytest.approx(matrix, abs=1e-8 * np.abs(matrix).max())


@pytest.mark.parametrize("noise", [None, 0.1])
def test_numbers_of_any_size_do_no_harm_however_long(noise: float | None) -> None:
    rng = np.random.default_rng(0)
    policy = AdTS(3, noise=noise, interval=10, shuffles=19)
    for _ in range(2 * REFRESH):
        arms = rng.normal(size=(4, 3)) * 10.0 ** rng.integers(-49, 6, size=(4, 1))
        decision = policy.decide("ana", arms)
        assert np.isfinite([decision.mean, decision.width]).all()
        policy.learn("ana", arms[decision.arm], rng.normal() * 10.0 ** rng.integers(-49, 6))


def test_options_are_checked_and_survive_saving(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="window is 1"):
        AdTS(2, window=1)
    with pytest.raises(OptionError, match="level is 1"):
        AdTS(2, level=1.0)
    seedless: Any = None
    with pytest.raises(KindError, match="seed is None"):
        AdTS(2, seed=seedless)
    policy = AdTS(2, noise=0.2, ridge=0.5, window=9, interval=3, level=0.1, shuffles=29, seed=5)
    policy.save(tmp_path / "policy")
    loaded = AdTS.restore(read(tmp_path / "policy"))
    assert repr(loaded) == repr(policy)
    assert repr(policy).startswith("AdTS(dim=2, noise=0.2, ridge=0.5, window=9, interval=3")
    arms = np.random.default_rng(0).normal(size=(50, 2))
    assert loaded.decide("ana", arms) == policy.decide("ana", arms)
