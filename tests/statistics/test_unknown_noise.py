"""DyClu with estimated noise, on streams that mislead the estimate at first.

No user changes in `STREAMS`: every change that DyClu detects there is false.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dyclu import DyClu

Stream = Iterator[tuple[str, np.ndarray, float]]
THETA = np.array([0.5, -0.3, 0.8])


def plain(seed: int, rounds: int, *, user: str = "ana", noise: float = 0.3) -> Stream:
    rng = np.random.default_rng(seed)
    for x in rng.normal(size=(rounds, 3)):
        yield user, x, float(x @ THETA + noise * rng.normal())


def noiseless_first() -> Stream:
    yield from plain(1, 30, noise=0.0)
    yield from plain(2, 1500)


def zeros_first() -> Stream:
    for _, x, _ in plain(3, 30):
        yield "ana", x, 0.0
    yield from plain(4, 1500)


def noiseless_rewards_of_another_user() -> Stream:
    yield from plain(5, 30, user="ben", noise=0.0)
    yield from plain(6, 1500)


def gross_outliers() -> Stream:
    rng = np.random.default_rng(7)
    for user, x, reward in plain(8, 1500):
        yield user, x, reward * 100 if rng.random() < 0.01 else reward


STREAMS = [noiseless_first, zeros_first, noiseless_rewards_of_another_user, gross_outliers]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_wrong_estimate_of_the_noise_recovers(stream: type) -> None:
    policy = DyClu(3)
    outcomes = []
    for user, x, reward in stream():
        outcomes.append(policy.learn(user, x, reward))
    # There are false alarms while the estimate recovers, but none in the second half. At level
    # 0.01 about 8 of 750 rewards surprise by chance (or are outliers), and never 5 of 20.
    assert not any(outcome.changed for outcome in outcomes[750:])
    assert sum(outcome.surprised for outcome in outcomes[750:]) < 30
    assert len(policy.segments) < 40
    assert policy.noise == pytest.approx(0.3, rel=0.3)


def test_constant_rewards_of_zero_cause_no_surprise() -> None:
    policy = DyClu(3)
    rng = np.random.default_rng(9)
    for x in rng.normal(size=(200, 3)):
        outcome = policy.learn("ana", x, 0.0)
        assert not outcome.surprised
    assert policy.noise == 0
    assert policy.decide("ana", np.eye(3)).mean == 0


def test_changes_increase_the_estimate_only_a_little() -> None:
    # A new parameter every 200 rewards: about 5 surprises, each counted as at most 9 σ², make the
    # variance too large by 5·9/200 = 22 %, the standard deviation by 11 %.
    policy = DyClu(3)
    rng = np.random.default_rng(10)
    for _ in range(15):
        theta = rng.normal(size=3)
        for x in rng.normal(size=(200, 3)):
            policy.learn("ana", x, x @ theta + 0.3 * rng.normal())
    assert 0.29 < policy.noise < 0.3 * 1.2
    assert len(policy.changes) >= 13
