"""What is remembered of pairs and of neighbourhoods changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import DyClu, Noise, Stats, homogeneity, load
from dyclu.neighbours import Neighbours, neighbours
from dyclu.policies import dyclu as module
from dyclu.segments import Segments
from dyclu.sim.population import Population
from tests.properties.observations import SEEDS

SETTING = Population(
    users=12, parameters=3, dim=5, arms=80, offered=6, rounds=150, shortest=50, longest=90
)
UNIT = Noise.known(1.0)


@given(SEEDS, st.integers(1, 5))
def test_an_observation_raises_the_statistic_by_no_more_than_its_bound(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(dim + 3, dim)), rng.normal(size=(dim + 2, dim))
    a, b = Stats.of(X, rng.normal(size=len(X))), Stats.of(Y, rng.normal(size=len(Y)))
    x, y = rng.normal(size=dim), float(10 * rng.normal())
    h, e = float(x @ np.linalg.solve(a.gram, x)), abs(y - float(x @ a.theta))
    before = homogeneity(a, b, noise=UNIT).statistic
    after = homogeneity(a + Stats.of(x, y), b, noise=UNIT).statistic
    most = np.sqrt((1 + h) * before) + e * np.sqrt(h / (1 + h))
    assert np.sqrt(after) <= most * (1 + 1e-9) + 1e-6


def test_pairs_that_are_not_looked_at_again_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, skipped = 0, 0

    def watched(book: Segments, mine: int, *, noise: Noise, level: float) -> Neighbours:
        nonlocal pairs, skipped
        found = neighbours(book, mine, noise=noise, level=level)
        known, bounds = book.known(mine)
        before = dict(zip(known.tolist(), map(tuple, bounds.tolist()), strict=True))
        remembered = book.bounds.pop(mine, None)
        afresh = neighbours(book, mine, noise=noise, level=level)
        if remembered is not None:
            book.bounds[mine] = remembered
        assert found.rows.tolist() == afresh.rows.tolist()
        pairs += len(found.rows)
        skipped += sum(
            before.get(row) == tuple(bound)
            for row, bound in zip(found.rows.tolist(), found.bounds.tolist(), strict=True)
        )
        return found

    monkeypatch.setattr(module, "neighbours", watched)
    for noise in (SETTING.noise, None):
        for _ in rounds(DyClu(SETTING.dim, noise=noise)):
            pass
    assert skipped > 0.3 * pairs, "nothing was put to the test"


def test_what_is_kept_of_closed_neighbours_is_their_sum() -> None:
    policy, kept = DyClu(SETTING.dim, noise=SETTING.noise), 0
    for user in rounds(policy):
        book = policy.book
        gram, moment, energy, count = book.pooled(user)
        expected = book.total(book.around(user))
        np.testing.assert_allclose(gram, expected.gram, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moment, expected.moment, rtol=1e-10, atol=1e-12)
        assert energy == pytest.approx(expected.energy, rel=1e-10)
        assert count == expected.count
        kept += len(book.kept[book.open[user]].rows)
    assert kept, "nothing was put to the test"


def test_a_loaded_policy_sums_up_in_the_same_order(tmp_path: Path) -> None:
    policy = DyClu(SETTING.dim, noise=SETTING.noise)
    for step, user in enumerate(rounds(policy)):
        if step % 97 == 0:
            policy.save(tmp_path / "policy")
            loaded = load(tmp_path / "policy")
            assert isinstance(loaded, DyClu)
            for one, other in zip(policy.book.pooled(user), loaded.book.pooled(user), strict=True):
                np.testing.assert_array_equal(one, other)


def rounds(policy: DyClu) -> Iterator[int]:
    """Let a policy play a world, and say after each round who has come to have what neighbours."""
    for turn in SETTING.world(seed=3):
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
        yield turn.user
