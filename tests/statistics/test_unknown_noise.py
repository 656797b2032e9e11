"""Noise that must be estimated, on streams made to mislead the estimate.

Nobody changes in any of them: whatever DyClu calls a change is false.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dyclu import DyClu

Stream = Iterator[tuple[str, np.ndarray, float]]
THETA = np.array([0.5, -0.3, 0.8])


def honest(seed: int, rounds: int, *, user: str = "ana", noise: float = 0.3) -> Stream:
    rng = np.random.default_rng(seed)
    for x in rng.normal(size=(rounds, 3)):
        yield user, x, float(x @ THETA + noise * rng.normal())


def noiseless_first() -> Stream:
    yield from honest(1, 30, noise=0.0)
    yield from honest(2, 1500)


def zeros_first() -> Stream:
    for _, x, _ in honest(3, 30):
        yield "ana", x, 0.0
    yield from honest(4, 1500)


def somebody_elses_noiseless_rewards() -> Stream:
    yield from honest(5, 30, user="quiet", noise=0.0)
    yield from honest(6, 1500)


def gross_outliers() -> Stream:
    rng = np.random.default_rng(7)
    for user, x, reward in honest(8, 1500):
        yield user, x, reward * 100 if rng.random() < 0.01 else reward


@pytest.mark.parametrize(
    "stream", [noiseless_first, zeros_first, somebody_elses_noiseless_rewards, gross_outliers]
)
def test_an_estimate_gone_wrong_comes_right_again(stream: type) -> None:
    policy = DyClu(3)
    late = []
    for user, x, reward in stream():
        late.append(policy.learn(user, x, reward))
    # Some false alarms while the estimate recovers; none in the second half, where at level 0.01
    # some 8 of 750 rewards surprise by chance (or are outliers) and 5 in 20 never do.
    assert not any(outcome.changed for outcome in late[750:])
    assert sum(outcome.surprised for outcome in late[750:]) < 30
    assert len(policy.segments) < 40
    assert policy.noise == pytest.approx(0.3, rel=0.3)


def test_rewards_that_never_vary_are_no_news() -> None:
    policy = DyClu(3)
    rng = np.random.default_rng(9)
    for x in rng.normal(size=(200, 3)):
        outcome = policy.learn("ana", x, 0.0)
        assert not outcome.surprised
    assert policy.noise == 0
    assert policy.decide("ana", np.eye(3)).mean == 0


def test_changes_raise_the_estimate_only_a_little() -> None:
    # Every 200 rewards another parameter: 5 surprises or so, each counted as 9 σ² at most, make
    # the variance too large by 5·9/200 = 22 %, the deviation by 11 %.
    policy = DyClu(3)
    rng = np.random.default_rng(10)
    for _ in range(15):
        theta = rng.normal(size=3)
        for x in rng.normal(size=(200, 3)):
            policy.learn("ana", x, x @ theta + 0.3 * rng.normal())
    assert 0.29 < policy.noise < 0.3 * 1.2
    assert len(policy.changes) >= 13
