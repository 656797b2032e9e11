"""What is remembered of pairs and of neighbourhoods changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu import DyClu, Noise, Stats, homogeneity, load
from dyclu.policies.dyclu import policy as module
from dyclu.policies.dyclu.neighbours import Neighbours, neighbours
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.sim.worlds.population import Population
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

    def watched(book: SegmentTable, mine: int, *, noise: Noise, level: float) -> Neighbours:
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


def test_no_bound_outlasts_an_inverse_that_was_computed_afresh() -> None:
    """Units so different that every observation is: the pair grows apart without any strain."""
    rng, units = np.random.default_rng(0), np.array([1.0, 1e4])
    policy, apart = DyClu(2, noise=0.1), 0
    for user, taste, rounds in (("ana", 0.0, 60), ("ben", 0.09, 120)):
        for _ in range(rounds):
            x = rng.normal(size=2) * units
            outcome = policy.learn(user, x, float(taste * x[0] + 0.1 * rng.normal()))
        book = policy.table
    mine = book.open["ben"]
    for _ in range(60):
        x = rng.normal(size=2) * units
        outcome = policy.learn("ben", x, float(0.09 * x[0] + 0.1 * rng.normal()))
        p_value = homogeneity(book.stats(mine), book.stats(0), noise=Noise.known(0.1)).p_value
        assert (0 in outcome.neighbours) == (p_value >= 0.01)
        apart += p_value < 0.01
    assert apart, "nothing was put to the test"


def test_what_a_young_segment_saw_is_told_from_rounding() -> None:
    """Noise a hundred-millionth of the signal: what is left of A δ beside rounding decides."""
    rng, units = np.random.default_rng(1), np.array([1.0, 3.0, 10.0, 30.0, 1.0, 3.0])
    policy, taste = DyClu(6, noise=1e-7), rng.normal(size=6)
    for age in range(40):
        x = rng.normal(size=6) * units
        policy.learn("ana", x, float(x @ taste + 1e-7 * rng.normal()))
        if age >= 30:
            x = rng.normal(size=6) * units
            outcome = policy.learn("ben", x, float(x @ taste + 1e-7 * rng.normal()))
            assert outcome.neighbours.tolist() == [0, 1]


def test_what_is_kept_of_closed_neighbours_is_their_sum() -> None:
    policy, kept = DyClu(SETTING.dim, noise=SETTING.noise), 0
    for user in rounds(policy):
        book = policy.table
        gram, moment, energy, count = book.pooled(user)
        expected = book.total(book.around(user))
        np.testing.assert_allclose(gram, expected.gram, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moment, expected.moment, rtol=1e-10, atol=1e-12)
        assert energy == pytest.approx(expected.energy, rel=1e-10)
        assert count == expected.count
        kept += len(book.closed_parts[book.open[user]].rows)
    assert kept, "nothing was put to the test"


def test_a_loaded_policy_sums_up_in_the_same_order(tmp_path: Path) -> None:
    policy = DyClu(SETTING.dim, noise=SETTING.noise)
    for step, user in enumerate(rounds(policy)):
        if step % 97 == 0:
            policy.save(tmp_path / "policy")
            loaded = load(tmp_path / "policy")
            assert isinstance(loaded, DyClu)
            for one, other in zip(
                policy.table.pooled(user), loaded.table.pooled(user), strict=True
            ):
                np.testing.assert_array_equal(one, other)


def rounds(policy: DyClu) -> Iterator[int]:
    """Let a policy play a world, and say after each round who has come to have what neighbours."""
    for turn in SETTING.world(seed=3):
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
        yield turn.user
