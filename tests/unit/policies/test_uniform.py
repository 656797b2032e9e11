from __future__ import annotations

import numpy as np
import pytest

from dyclu import Uniform
from dyclu.core.randomness import Seed
from dyclu.errors import KindError, OptionError


def arms_of(round: int) -> np.ndarray:
    return np.random.default_rng(round).normal(size=(4, 2))


def test_all_arms_are_equally_likely_before_any_reward() -> None:
    # 4,000 questions, 4 arms: the counts' χ²₃ exceeds 16.3 once in 1,000 times.
    policy = Uniform(2, seed=3)
    chosen = [policy.decide("ana", arms_of(round)).arm for round in range(4000)]
    counts = np.bincount(chosen, minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.3


def test_all_arms_are_equally_likely_for_one_pool_over_time() -> None:
    policy = Uniform(2, seed=4)
    chosen = []
    for _ in range(4000):
        chosen.append(policy.decide("ana", arms_of(0)).arm)
        policy.learn("ana", [0.0, 0.0], 0.0)
    counts = np.bincount(chosen, minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.3


def test_seeds_may_be_ints_sequences_or_generators() -> None:
    def choices(seed: Seed) -> list[int]:
        policy = Uniform(2, seed=seed)
        return [policy.decide("ana", arms_of(round)).arm for round in range(40)]

    assert choices(5) == choices(5) == choices(np.random.SeedSequence(5))
    assert choices(5) != choices(6)
    assert choices(np.random.default_rng(5)) == choices(np.random.default_rng(5))


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, OptionError), (1.5, KindError), (None, KindError)]
)
def test_wrong_seeds_are_refused(seed: Seed, error: type[Exception]) -> None:
    with pytest.raises(error, match="seed is"):
        Uniform(2, seed=seed)
