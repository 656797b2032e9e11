"""Atlas does not depend on units, axes and names.

Two policies learn the same stream, once as it is and once changed; then they must expect the same.
Both compute with numbers that differ by rounding, and a run is chaotic: in the long run a rounding
error may decide whether a user is located a reward earlier. So streams are short, and the tolerance
is far above rounding (1e-12 after some hundred updates) and far below what one reward changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu import Atlas
from dyclu.validation import FloatArray, User
from tests.properties.observations import SEEDS

FEW = settings(max_examples=8, derandomize=True)
"""The same examples every time: one stream in some hundred amplifies rounding beyond tolerance."""

TOLERANCE = 1e-6
"""Of expected rewards, by their size."""

NOISE = st.sampled_from([None, 0.2])


@dataclass
class Stream:
    """Logged rewards of users of three tastes, some of whom change, and arms to be asked for."""

    users: list[int]
    contexts: FloatArray
    rewards: FloatArray
    arms: FloatArray

    @classmethod
    def of(cls, seed: int, *, clicks: bool = False) -> Stream:
        rng = np.random.default_rng(seed)
        dim, count, users = int(rng.integers(1, 5)), int(rng.integers(60, 120)), 5
        tastes, names = rng.normal(size=(3, dim)), rng.integers(users, size=count)
        contexts = rng.normal(size=(count, dim))
        which = (names + (np.arange(count) > count // 2) * (names == 0)) % 3
        means = (contexts * tastes[which]).sum(axis=1) + 0.3
        rewards = means + 0.2 * rng.normal(size=count)
        if clicks:
            rewards = (rng.random(count) < 1.0 / (1.0 + np.exp(-2.0 * means))).astype(float)
        return cls(names.tolist(), contexts, rewards, rng.normal(size=(4, dim)))

    def taught(
        self,
        policy: Atlas,
        *,
        context: Callable[[FloatArray], FloatArray] = lambda x: x,
        reward: float = 1.0,
        name: Callable[[int], User] = lambda user: user,
    ) -> Atlas:
        """Return the policy after it has learnt the stream, changed in the given way."""
        for user, x, y in zip(self.users, self.contexts, self.rewards.tolist(), strict=True):
            policy.learn(name(user), context(x), reward * y)
        return policy


def answers(policy: Atlas, users: list[User], arms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means and widths of all arms, one row per user."""
    asked = [[policy.decide(user, arm[None]) for arm in arms] for user in users]
    return (
        np.array([[decision.mean for decision in row] for row in asked]),
        np.array([[decision.width for decision in row] for row in asked]),
    )


ASKED: list[User] = [0, 1, 2, 3, 4, "somebody never seen"]


def assert_same(
    one: Atlas,
    other: Atlas,
    arms: FloatArray,
    other_arms: FloatArray,
    *,
    reward: float = 1.0,
    name: Callable[[int], User] = lambda user: user,
) -> None:
    """Check that two policies expect the same rewards, up to a factor, and choose the same arms."""
    renamed = [name(user) if isinstance(user, int) else user for user in ASKED]
    mean, width = answers(one, ASKED, arms)
    other_mean, other_width = answers(other, renamed, other_arms)
    size = np.abs(mean).max() + np.abs(width).max()
    np.testing.assert_allclose(other_mean / reward, mean, atol=TOLERANCE * size)
    # A width is the root of a variance, so an error of its square counts.
    np.testing.assert_allclose(
        (other_width / reward) ** 2, width**2, atol=TOLERANCE * size**2, rtol=TOLERANCE
    )
    score = mean + width
    for number, (user, again) in enumerate(zip(ASKED, renamed, strict=True)):
        chosen, chosen_again = one.decide(user, arms).arm, other.decide(again, other_arms).arm
        assert score[number, chosen_again] >= score[number, chosen] - 3 * TOLERANCE * size
    assert len(one.models) == len(other.models)


@FEW
@given(SEEDS, NOISE, st.booleans())
def test_axes_of_the_features_do_not_matter(seed: int, noise: float | None, clicks: bool) -> None:
    stream = Stream.of(seed, clicks=clicks)
    dim = stream.contexts.shape[1]
    rotation = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(dim, dim)))[0]
    one = stream.taught(Atlas(dim, noise=noise))
    other = stream.taught(Atlas(dim, noise=noise), context=lambda x: x @ rotation)
    assert_same(one, other, stream.arms, stream.arms @ rotation)


@FEW
@given(SEEDS, NOISE, st.sampled_from([2.0**-12, 2.0**9, 0.037, 1e3]))
def test_unit_of_the_rewards_does_not_matter(seed: int, noise: float | None, unit: float) -> None:
    """Not for 0/1 rewards, which have another meaning in another unit.

    By a power of 2 all sums are scaled without rounding; logarithms of densities still round.
    """
    stream = Stream.of(seed)
    dim = stream.contexts.shape[1]
    one = stream.taught(Atlas(dim, noise=noise))
    other = stream.taught(Atlas(dim, noise=noise and unit * noise), reward=unit)
    assert_same(one, other, stream.arms, stream.arms, reward=unit)
    assert other.noise == pytest.approx(unit * one.noise, rel=TOLERANCE)


@FEW
@given(SEEDS, NOISE, st.booleans(), st.sampled_from([2.0**-20, 2.0**15, 1e-6, 1e4]))
def test_common_unit_of_the_features_does_not_matter(
    seed: int, noise: float | None, clicks: bool, unit: float
) -> None:
    stream = Stream.of(seed, clicks=clicks)
    dim = stream.contexts.shape[1]
    one = stream.taught(Atlas(dim, noise=noise))
    other = stream.taught(Atlas(dim, noise=noise), context=lambda x: unit * x)
    assert_same(one, other, stream.arms, unit * stream.arms)


@FEW
@given(SEEDS, st.booleans())
def test_names_of_the_users_do_not_matter(seed: int, clicks: bool) -> None:
    """Not in a single bit."""
    stream = Stream.of(seed, clicks=clicks)
    names: list[User] = ["zoë", 17, "a", -3, "4"]
    dim = stream.contexts.shape[1]
    one = stream.taught(Atlas(dim))
    other = stream.taught(Atlas(dim), name=lambda user: names[user])
    ours = answers(one, [0, 1, 2, 3, 4], stream.arms)
    theirs = answers(other, names, stream.arms)
    np.testing.assert_array_equal(ours, theirs)


@FEW
@given(SEEDS)
def test_order_of_questions_and_of_arms_does_not_matter(seed: int) -> None:
    stream = Stream.of(seed)
    policy = stream.taught(Atlas(stream.contexts.shape[1]))
    mean, width = answers(policy, ASKED, stream.arms)
    again = answers(policy, ASKED[::-1], stream.arms[::-1].copy())
    np.testing.assert_array_equal(again[0][::-1, ::-1], mean)
    np.testing.assert_array_equal(again[1][::-1, ::-1], width)
    for number, user in enumerate(ASKED):
        first = policy.decide(user, stream.arms)
        last = policy.decide(user, stream.arms[::-1].copy())
        score = mean[number] + width[number]
        if np.sort(score)[-1] - np.sort(score)[-2] > 1e-8:  # no tie
            assert first.arm == len(stream.arms) - 1 - last.arm
            assert first.mean == last.mean


@FEW
@given(SEEDS)
def test_a_user_who_was_forgotten_at_once_leaves_expectations_as_they_were(seed: int) -> None:
    """Models and beliefs do; prior and noise have learnt of the reward, which is allowed."""
    stream = Stream.of(seed)
    policy = stream.taught(Atlas(stream.contexts.shape[1], noise=0.2))
    tastes = policy._inference.tastes
    rows = tastes.rows.copy()
    precision, shift = tastes.precision[rows].copy(), tastes.shift[rows].copy()
    population = policy._inference.population
    population.due = 1e9  # no upkeep in between
    policy._upkeep.phase = 0
    policy.learn("guest", stream.contexts[0], float(stream.rewards[0]))
    policy.forget("guest")
    np.testing.assert_array_equal(tastes.rows, rows)
    size = np.abs(precision).max() + 1.0
    np.testing.assert_allclose(tastes.precision[rows], precision, atol=1e-9 * size)
    np.testing.assert_allclose(tastes.shift[rows], shift, atol=1e-9 * size)
