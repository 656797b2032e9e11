"""Cached bounds of pairs and cached sums of neighbours do not change any result."""

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
def test_one_observation_increases_the_statistic_by_at_most_its_bound(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(dim + 3, dim)), rng.normal(size=(dim + 2, dim))
    a, b = Stats.of(X, rng.normal(size=len(X))), Stats.of(Y, rng.normal(size=len(Y)))
    x, y = rng.normal(size=dim), float(10 * rng.normal())
    h, e = float(x @ np.linalg.solve(a.gram, x)), abs(y - float(x @ a.theta))
    before = homogeneity(a, b, noise=UNIT).statistic
    after = homogeneity(a + Stats.of(x, y), b, noise=UNIT).statistic
    most = np.sqrt((1 + h) * before) + e * np.sqrt(h / (1 + h))
    assert np.sqrt(after) <= most * (1 + 1e-9) + 1e-6


def test_pairs_skipped_because_of_a_bound_are_still_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs, skipped = 0, 0

    def watched(table: SegmentTable, mine: int, *, noise: Noise, level: float) -> Neighbours:
        nonlocal pairs, skipped
        found = neighbours(table, mine, noise=noise, level=level)
        known, bounds = table.known(mine)
        before = dict(zip(known.tolist(), map(tuple, bounds.tolist()), strict=True))
        remembered = table.bounds.pop(mine, None)
        afresh = neighbours(table, mine, noise=noise, level=level)
        if remembered is not None:
            table.bounds[mine] = remembered
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
    assert skipped > 0.3 * pairs, "the case did not occur"


def test_bounds_are_dropped_when_an_inverse_is_recomputed() -> None:
    """With very different units, every observation recomputes the inverse without a bound."""
    rng, units = np.random.default_rng(0), np.array([1.0, 1e4])
    policy, apart = DyClu(2, noise=0.1), 0
    for user, taste, rounds in (("ana", 0.0, 60), ("ben", 0.09, 120)):
        for _ in range(rounds):
            x = rng.normal(size=2) * units
            outcome = policy.learn(user, x, float(taste * x[0] + 0.1 * rng.normal()))
        table = policy.table
    mine = table.open["ben"]
    for _ in range(60):
        x = rng.normal(size=2) * units
        outcome = policy.learn("ben", x, float(0.09 * x[0] + 0.1 * rng.normal()))
        p_value = homogeneity(table.stats(mine), table.stats(0), noise=Noise.known(0.1)).p_value
        assert (0 in outcome.neighbours) == (p_value >= 0.01)
        apart += p_value < 0.01
    assert apart, "the case did not occur"


def test_a_short_segment_is_compared_exactly_with_almost_no_noise() -> None:
    """The noise is 1e-7 of the signal, so the part of A δ that is not rounding decides."""
    rng, units = np.random.default_rng(1), np.array([1.0, 3.0, 10.0, 30.0, 1.0, 3.0])
    policy, taste = DyClu(6, noise=1e-7), rng.normal(size=6)
    for step in range(40):
        x = rng.normal(size=6) * units
        policy.learn("ana", x, float(x @ taste + 1e-7 * rng.normal()))
        if step >= 30:
            x = rng.normal(size=6) * units
            outcome = policy.learn("ben", x, float(x @ taste + 1e-7 * rng.normal()))
            assert outcome.neighbours.tolist() == [0, 1]


def test_cached_sums_of_closed_neighbours_equal_their_total() -> None:
    policy, kept = DyClu(SETTING.dim, noise=SETTING.noise), 0
    for user in rounds(policy):
        table = policy.table
        gram, moment, energy, count = table.pooled(user)
        expected = table.total(table.around(user))
        np.testing.assert_allclose(gram, expected.gram, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(moment, expected.moment, rtol=1e-10, atol=1e-12)
        assert energy == pytest.approx(expected.energy, rel=1e-10)
        assert count == expected.count
        kept += len(table.closed_parts[table.open[user]].rows)
    assert kept, "the case did not occur"


def test_a_loaded_policy_adds_in_the_same_order(tmp_path: Path) -> None:
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
    """Run a policy in a world, and yield the user after each round."""
    for turn in SETTING.world(seed=3):
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
        yield turn.user
