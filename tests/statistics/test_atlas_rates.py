"""Atlas's errors in small worlds: false changes, missed ones, noise, and who shares a model.

Every world has a fixed seed. A bound on a rate leaves three standard deviations of the number of
users or worlds that it is measured on, unless a comment says otherwise.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from dyclu import Atlas, kernels
from dyclu.validation import FloatArray

DIM, USERS, TASTES = 5, 24, 3


class World:
    """Users of a few tastes, served by Atlas; rewards are real, or clicks of a logistic chance."""

    def __init__(
        self, seed: int, *, noise: float = 0.2, clicks: bool = False, tastes: int = TASTES
    ):
        self.rng, self.noise, self.clicks = np.random.default_rng(seed), noise, clicks
        self.tastes = self.rng.normal(size=(tastes, DIM))
        self.tastes /= np.linalg.norm(self.tastes, axis=1, keepdims=True)
        self.at = np.arange(USERS) % tastes
        self.policy = Atlas(DIM)

    def means(self, arms: FloatArray, user: int) -> FloatArray:
        means = arms @ self.tastes[self.at[user]]
        return np.asarray(1.0 / (1.0 + np.exp(-4.0 * means)) if self.clicks else means)

    def play(self, rounds: int) -> float:
        """Return the mean regret."""
        lost = 0.0
        for _ in range(rounds):
            for user in range(USERS):
                arms = self.rng.normal(size=(6, DIM)) / np.sqrt(DIM)
                means = self.means(arms, user)
                arm = self.policy.decide(user, arms).arm
                y = means[arm] + self.noise * self.rng.normal()
                if self.clicks:
                    y = float(self.rng.random() < means[arm])
                self.policy.learn(user, arms[arm], y)
                lost += means.max() - means[arm]
        return lost / (rounds * USERS)

    def changed(self) -> float:
        """Return the share of users of whom a change was told."""
        return len({change.user for change in self.policy.changes}) / USERS


@cache
def quiet(clicks: bool) -> tuple[World, ...]:
    """Return worlds after 100 rewards of every user; nobody has changed."""
    worlds = tuple(World(seed, clicks=clicks) for seed in range(3))
    for world in worlds:
        world.play(100)
    return worlds


@pytest.mark.parametrize("clicks", [False, True], ids=["Gaussian", "clicks"])
def test_changes_are_rarely_told_where_nobody_changes(clicks: bool) -> None:
    # 2 % of 72 users, and three standard deviations of their number.
    assert np.mean([world.changed() for world in quiet(clicks)]) <= 0.07


def test_noise_is_estimated_within_a_tenth_in_gaussian_worlds() -> None:
    for world in quiet(False):
        assert world.policy.noise == pytest.approx(world.noise, rel=0.1)


def test_users_of_one_taste_end_on_one_model() -> None:
    """Nine in ten at least; and users of two tastes are on two models."""
    for world in quiet(False):
        homes = [world.policy.locate(user).model for user in range(USERS)]
        main = [Counter(homes[taste::TASTES]).most_common(1)[0] for taste in range(TASTES)]
        assert len({home for home, _ in main}) == TASTES
        assert sum(count for _, count in main) >= 0.9 * USERS


@pytest.mark.parametrize("clicks", [False, True], ids=["Gaussian", "clicks"])
def test_regret_is_far_below_chance(clicks: bool) -> None:
    """Random choice loses 0.55 a round where rewards are Gaussian, and 0.4 with clicks."""
    world = World(11, clicks=clicks)
    world.play(60)
    assert world.play(40) < (0.03 if not clicks else 0.13)


@pytest.mark.parametrize(
    ("clicks", "rounds", "share"), [(False, 20, 0.9), (True, 80, 0.5)], ids=["Gaussian", "clicks"]
)
def test_users_who_change_follow_the_model_of_their_new_taste(
    clicks: bool, rounds: int, share: float
) -> None:
    """Half of the users change to a taste that others have; those who do not change stay.

    Three worlds together: in one of ten with clicks, a taste has two equal models for a while.
    """
    right = wrongly = 0
    for seed in (5, 6, 7):
        world = World(seed, clicks=clicks)
        world.play(60)
        world.at[::2] = (world.at[::2] + 1) % TASTES
        world.play(rounds)
        homes = np.array([world.policy.locate(user).model for user in range(USERS)])
        stayed = np.arange(USERS) % 2 == 1
        for taste in range(TASTES):
            main = Counter(homes[stayed & (world.at == taste)]).most_common(1)[0][0]
            right += int((homes[~stayed & (world.at == taste)] == main).sum())
        told = {change.user for change in world.policy.changes}
        wrongly += len(told & set(np.flatnonzero(stayed).tolist()))
    assert right >= share * 3 * USERS / 2
    assert wrongly <= 3


@pytest.mark.parametrize("clicks", [False, True], ids=["Gaussian", "clicks"])
def test_a_population_of_one_taste_is_served_as_one(clicks: bool) -> None:
    """Random choice loses 0.55 a round where rewards are Gaussian, and 0.4 with clicks.

    How many models there are does not matter then: the prior says what they share.
    """
    world = World(2, clicks=clicks, tastes=1)
    world.play(30)
    assert world.play(30) < (0.005 if not clicks else 0.05)
    assert world.changed() <= 0.07


def test_users_of_different_noise_are_told_apart_by_their_noise() -> None:
    """Half of the users have five times the noise of the others; all have the same taste."""
    rng, policy, taste = np.random.default_rng(0), Atlas(3), np.array([1.0, -1.0, 0.5])
    for _ in range(80):
        for user in range(16):
            x = rng.normal(size=3)
            sigma = 0.1 if user % 2 else 0.5
            policy.learn(user, x, float(x @ taste + sigma * rng.normal()))
    users, stream = policy._inference.users, policy._inference.population.stream
    variance = np.array([
        kernels.ledger.user_variance(users.ledger[users.row[user]], stream) for user in range(16)
    ])  # fmt: skip
    assert np.sqrt(variance[1::2]).mean() == pytest.approx(0.1, rel=0.3)
    assert np.sqrt(variance[::2]).mean() == pytest.approx(0.5, rel=0.3)


# Rare clicks: identical users, two arms with nothing in common


@cache
def rare(chances: tuple[float, float]) -> tuple[tuple[float, float, float, float], ...]:
    """Return noise over true noise, share of changed users, of the better arm, and models."""
    found, users, pulls = [], 200, 20_000
    for seed in range(2):
        rng, policy, arms, pulled = np.random.default_rng(seed), Atlas(2), np.eye(2), np.zeros(2)
        for step in range(pulls):
            arm = policy.decide(step % users, arms).arm
            pulled[arm] += 1.0
            policy.learn(step % users, arms[arm], float(rng.random() < chances[arm]))
        true = np.sqrt(sum(n * p * (1.0 - p) for n, p in zip(pulled, chances, strict=True)) / pulls)
        better = np.mean([policy.decide(user, arms).arm == 0 for user in range(users)])
        changed = len({change.user for change in policy.changes}) / users
        found.append((policy.noise / true, changed, float(better), float(len(policy.models))))
    return tuple(found)


@pytest.mark.parametrize(
    "chances", [pytest.param((0.05, 0.02), marks=pytest.mark.long), (0.02, 0.01)]
)
def test_rare_clicks_are_learnt_from(chances: tuple[float, float]) -> None:
    noise, changed, better, _ = np.array(rare(chances)).T
    # The click rate itself is known to 6 % after 20,000 pulls, its root to 3 %.
    assert np.abs(noise - 1.0).max() < 0.1
    assert changed.mean() <= 0.02
    # Over twenty seeds, 98.3 % of the users get the better arm, and in the worst seed 94 %.
    assert better.min() >= 0.95
