"""Decisions whose rewards come late or never: what is counted, and what is said."""

from __future__ import annotations

import numpy as np
import pytest

from dyclu.evaluate import LateRewards


def test_if_everything_is_answered_all_decisions_are_counted() -> None:
    late = LateRewards()
    for i in range(100):
        late.add(f"u{i % 30}", over=i < 50, reward=float(i % 4 == 0))
    found = late.result(waiting=2)
    assert (found.counted, found.waiting, found.unrewarded) == (100, 2, 0)
    assert found.logged is not None
    assert found.logged.value == 0.25
    assert found.notes == ()
    assert found.estimate is None
    assert "no counted decision has all its arms" in found.verdict


def test_if_only_clicks_are_sent_decisions_whose_time_is_over_count_as_zero() -> None:
    late = LateRewards()
    for i in range(1_000):
        late.add(i % 100, over=True, reward=1.0 if i % 12 == 0 else None)
    for i in range(40):
        late.add(i, over=False, reward=1.0)
    found = late.result(waiting=460)
    assert (found.counted, found.unrewarded) == (1_000, 916)
    assert found.logged is not None
    assert found.logged.value == pytest.approx(0.084)
    assert [note.split()[0] for note in found.notes] == ["460", "No"]


def test_if_zeros_are_sent_few_missing_rewards_are_left_out_and_said() -> None:
    late = LateRewards()
    for i in range(100):
        late.add(i, over=True, reward=None if i < 4 else float(i % 2))
    found = late.result(waiting=0)
    assert found.counted == 96
    assert found.logged is not None
    assert found.logged.value == 0.5
    assert found.notes == ("4 decisions never got a reward, and are not counted.",)


def test_one_zero_among_clicks_leaves_the_mean_unknown() -> None:
    """Before, the 900 decisions without reward were left out: a mean of clicks, 0.99."""
    late = LateRewards()
    for i in range(1_000):
        clicked = 1.0 if i < 100 else None
        late.add(i % 100, over=True, reward=0.0 if i == 0 else clicked, weight=2.0 * (i % 2))
    found = late.result(waiting=0, name="other")
    assert (found.counted, found.unrewarded) == (0, 900)
    assert (found.logged, found.estimate) == (None, None)
    assert found.verdict.startswith(
        "The log cannot say what other earns: 900 of 1,000 decisions have no reward"
    )


def test_a_journal_without_any_click_cannot_say() -> None:
    late = LateRewards()
    for i in range(1_000):
        late.add(i % 100, over=True, reward=0.0, weight=2.0 * (i // 100 % 2))
    found = late.result(waiting=0, name="other")
    assert "too few different rewards" in found.verdict


def test_if_all_decisions_are_young_clicks_alone_give_no_mean() -> None:
    late = LateRewards()
    for i in range(30):
        late.add(i, over=False, reward=1.0)
    found = late.result(waiting=300)
    assert (found.counted, found.logged, found.estimate) == (0, None, None)
    assert found.verdict.endswith("no decision can be counted.")


def test_an_empty_journal_has_no_mean() -> None:
    assert LateRewards().result(waiting=0).logged is None


def test_the_estimate_is_the_weighted_mean_and_has_a_verdict() -> None:
    """Half of the decisions at random: two arms, the other policy always takes the second."""
    rng = np.random.default_rng(1)
    late, num, den = LateRewards(), 0.0, 0.0
    for i in range(9_000):
        second = bool(rng.random() < 0.5)
        reward = float(rng.random() < (0.3 if second else 0.1))
        late.add(i % 500, over=True, reward=reward, weight=2.0 * second)
        num, den = num + 2 * second * reward, den + 2 * second
    found = late.result(waiting=0, name="second")
    assert found.estimate is not None
    assert found.overlap is not None
    assert found.estimate.value == pytest.approx(num / den)
    assert 0.3 in found.estimate.interval
    assert found.overlap.unused == pytest.approx(1 - den / 2 / 9_000)
    assert found.overlap.effective == pytest.approx(den / 2)
    assert found.verdict.endswith("more than what was logged.")


def test_a_journal_without_exploration_gets_no_verdict() -> None:
    late = LateRewards()
    for i in range(1_000):
        late.add(i % 50, over=True, reward=float(i % 3 == 0), weight=float(i % 2))
    found = late.result(waiting=0, name="other")
    assert found.verdict == (
        "The log cannot say what other earns: the log never shows 50% of what the policy chooses."
    )
