"""`dyclu.sim.worlds.population`: the synthetic worlds of section 4.1."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu.errors import DycluError, OptionError
from dyclu.sim.worlds.population import CHUNK, Population, World

SMALL = Population(
    users=7, parameters=4, dim=5, arms=40, offered=6, rounds=100, shortest=8, longest=30
)


@st.composite
def populations(draw: st.DrawFn) -> Population:
    shortest, arms = draw(st.integers(1, 12)), draw(st.integers(1, 15))
    return Population(
        users=draw(st.integers(1, 6)),
        parameters=draw(st.none() | st.integers(1, 5)),
        dim=draw(st.integers(2, 6)),
        arms=arms,
        offered=draw(st.integers(1, arms)),
        rounds=draw(st.integers(1, 60)),
        shortest=shortest,
        longest=draw(st.integers(shortest, 20)),
        separation=1e-6,
    )


def same_rounds(one: World, other: World) -> bool:
    return all(
        (a.index, a.user, a.time, a.noise, a.parameter)
        == (b.index, b.user, b.time, b.noise, b.parameter)
        and np.array_equal(a.arms, b.arms)
        and np.array_equal(a.means, b.means)
        for a, b in zip(one, other, strict=True)
    )


# The draw


def test_the_defaults_are_row_1_of_table_1() -> None:
    setting = Population()
    assert (setting.users, setting.parameters, setting.rounds) == (100, 10, 2500)
    assert (setting.shortest, setting.longest, setting.noise) == (400, 2500, 0.09)
    assert (setting.dim, setting.arms, setting.offered, setting.separation) == (25, 1000, 10, 0.9)


def test_arms_and_parameters_have_unit_norm() -> None:
    world = Population(rounds=1).world(1)
    assert world.table.shape == (1000, 25)
    assert world.parameters.shape == (10, 25)
    for vectors in (world.table, world.parameters):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-14)


def test_arms_are_uniform_on_the_sphere() -> None:
    # A uniform unit vector has mean 0 and covariance I/d. Each mean of N coordinates has standard
    # error 1/√(dN) and each mean of squares less than √2/(d√N); six of them cover all 2d entries.
    table = Population(dim=4, arms=20_000, rounds=1).world(2).table
    assert np.abs(table.mean(axis=0)).max() < 6 / sqrt(4 * 20_000)
    assert np.abs((table**2).mean(axis=0) - 1 / 4).max() < 6 * sqrt(2) / (4 * sqrt(20_000))


@given(separation=st.floats(0.1, 0.8), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_parameters_keep_their_separation(separation: float, seed: int) -> None:
    # In three dimensions two random unit vectors are closer than s with probability s²/4. At 0.8
    # five of them leave a fifth of the sphere to the sixth, and unseparated draws of six would keep
    # their distance only once in fourteen.
    setting = replace(SMALL, parameters=6, dim=3, rounds=1, separation=separation)
    parameters = setting.world(seed).parameters
    gaps = np.linalg.norm(parameters[:, None] - parameters, axis=2)[np.triu_indices(6, 1)]
    assert gaps.min() >= separation


def test_an_unattainable_separation_is_refused() -> None:
    # On a circle six points are at most 1 apart: there is no room for a seventh.
    with pytest.raises(OptionError, match=r"separation is 1\.0, .* lower separation"):
        replace(SMALL, parameters=7, dim=2, separation=1.0).world(1)


# The changes


@given(populations(), st.integers(0, 2**32))
@settings(deadline=None)
def test_periods_are_within_bounds_and_every_change_is_to_another_parameter(
    setting: Population, seed: int
) -> None:
    world = setting.world(seed)
    assert world.truth.shape == (setting.users, setting.rounds)
    for user, truth in enumerate(world.truth):
        starts = [0, *world.changes(user).tolist()]
        assert all(setting.shortest <= b - a <= setting.longest for a, b in pairwise(starts))
        assert all(truth[b - 1] != truth[b] for b in starts[1:])
        # The last period is cut by the end; only a single parameter has nowhere to go.
        assert setting.rounds - starts[-1] <= setting.longest or setting.parameters == 1


def test_lengths_are_uniform_with_both_ends() -> None:
    setting = replace(SMALL, users=5000, rounds=20, shortest=3, longest=7)
    world = setting.world(3)
    first = Counter(int(world.changes(user)[0]) for user in range(5000))
    assert sorted(first) == [3, 4, 5, 6, 7]
    # χ² with 4 degrees of freedom exceeds 33.4 once in a million.
    assert sum((count - 1000) ** 2 / 1000 for count in first.values()) < 33.4


def test_every_other_parameter_is_equally_likely_after_a_change() -> None:
    world = replace(SMALL, users=6000, rounds=9, shortest=8, longest=8).world(4)
    pairs = Counter(map(tuple, world.truth[:, 7:9].tolist()))
    assert len(pairs) == 4 * 3
    # χ² with 11 degrees of freedom exceeds 48.6 once in a million.
    assert sum((count - 500) ** 2 / 500 for count in pairs.values()) < 48.6


def test_one_parameter_never_changes() -> None:
    world = replace(SMALL, parameters=1).world(5)
    assert not world.truth.any()
    assert [len(world.changes(user)) for user in range(7)] == [0] * 7


def test_periods_as_long_as_the_run_never_change() -> None:
    world = replace(SMALL, shortest=100, longest=100).world(5)
    assert (world.truth == world.truth[:, :1]).all()
    assert len(np.unique(world.truth)) > 1


def test_without_shared_parameters_every_period_has_its_own() -> None:
    world = replace(SMALL, parameters=None, separation=0.1).world(6)
    periods = sum(1 + len(world.changes(user)) for user in range(7))
    assert periods > 7
    assert len(world.parameters) == periods
    assert np.unique(world.truth).tolist() == list(range(periods))
    assert all(len(set(np.flatnonzero(world.truth == k) // 100)) == 1 for k in range(periods))


# The rounds


def test_users_are_served_in_turn() -> None:
    world = SMALL.world(7)
    served = [(turn.index, turn.user, turn.time) for turn in world]
    assert served == [(t * 7 + user, user, t) for t in range(100) for user in range(7)]
    assert len(world) == len(served) > CHUNK


def test_a_round_has_the_true_means_and_regrets_of_its_arms() -> None:
    world = SMALL.world(8)
    for turn in world:
        assert turn.parameter == world.truth[turn.user, turn.time]
        np.testing.assert_allclose(
            turn.means, turn.arms @ world.parameters[turn.parameter], atol=1e-14
        )
        assert turn.reward(2) == turn.means[2] + turn.noise
        assert turn.regret(2) == turn.means.max() - turn.means[2]


@given(populations(), st.integers(0, 2**32))
@settings(deadline=None)
def test_offered_arms_are_distinct_rows_of_the_table(setting: Population, seed: int) -> None:
    world = setting.world(seed)
    rows = {row.tobytes(): i for i, row in enumerate(world.table)}
    for turn in world:
        offered = [rows[arm.tobytes()] for arm in turn.arms]
        assert len(set(offered)) == len(offered) == setting.offered


def test_every_arrangement_of_arms_is_equally_likely() -> None:
    world = replace(SMALL, users=1, arms=4, offered=3, rounds=12_000).world(9)
    pools = Counter(turn.arms.tobytes() for turn in world)
    assert len(pools) == 4 * 3 * 2
    # χ² with 23 degrees of freedom exceeds 69.6 once in a million.
    assert sum((count - 500) ** 2 / 500 for count in pools.values()) < 69.6


def test_noise_is_centred_gaussian_of_the_asked_size() -> None:
    noise = np.array([turn.noise for turn in replace(SMALL, users=200, noise=0.5).world(10)])
    scaled, root = noise / 0.5, sqrt(len(noise))
    # Standard errors of the first, second and fourth moments of N(0, 1): 1, √2 and √96, over √T.
    assert abs(scaled.mean()) < 4 / root
    assert abs((scaled**2).mean() - 1) < 4 * sqrt(2) / root
    assert abs((scaled**4).mean() - 3) < 4 * sqrt(96) / root
    # Successive draws are independent: their product has mean 0 and variance 1.
    assert abs((scaled[1:] * scaled[:-1]).mean()) < 4 / root


def test_arrays_of_worlds_and_rounds_are_read_only() -> None:
    world = SMALL.world(11)
    turn = next(iter(world))
    for array in (world.table, world.parameters, world.truth, turn.arms, turn.means):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# The seed


@given(populations(), st.integers(0, 2**64))
@settings(deadline=None, max_examples=30)
def test_the_same_seed_gives_the_same_world(setting: Population, seed: int) -> None:
    world = setting.world(seed)
    assert same_rounds(world, world)
    assert same_rounds(world, setting.world(seed))
    assert same_rounds(world, setting.world(np.random.SeedSequence(seed)))


def test_other_seeds_give_other_worlds() -> None:
    assert not same_rounds(SMALL.world(1), SMALL.world(2))


def test_drawing_a_world_does_not_change_the_callers_seed_sequence() -> None:
    seed = np.random.SeedSequence(1)
    assert same_rounds(SMALL.world(seed), SMALL.world(seed))
    assert seed.n_children_spawned == 0


def test_a_generator_advances_with_every_world() -> None:
    rng = np.random.default_rng(1)
    first, second = SMALL.world(rng), SMALL.world(rng)
    assert not same_rounds(first, second)
    assert same_rounds(first, SMALL.world(np.random.default_rng(1)))


def test_more_noise_is_the_same_noise_scaled() -> None:
    quiet, loud = replace(SMALL, noise=0.1).world(12), replace(SMALL, noise=0.4).world(12)
    assert np.array_equal(quiet.truth, loud.truth)
    for a, b in zip(quiet, loud, strict=True):
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.means, b.means)
        assert b.noise == pytest.approx(4 * a.noise, rel=1e-12)


def test_other_periods_keep_arms_parameters_and_noise() -> None:
    one, other = SMALL.world(13), replace(SMALL, shortest=20).world(13)
    assert not np.array_equal(one.truth, other.truth)
    assert np.array_equal(one.parameters, other.parameters)
    for a, b in islice(zip(one, other, strict=True), 600):
        assert np.array_equal(a.arms, b.arms)
        assert a.noise == b.noise


def test_fewer_offered_arms_keep_the_noise() -> None:
    one, other = SMALL.world(13), replace(SMALL, offered=2).world(13)
    assert [turn.noise for turn in one] == [turn.noise for turn in other]


def test_no_two_random_streams_are_the_same() -> None:
    world = SMALL.world(13)
    gaps = np.linalg.norm(world.parameters[:, None] - world.table, axis=2)
    assert gaps.min() > 1e-6
    assert world.pools.generate_state(1) != world.noises.generate_state(1)


def test_more_parameters_keep_the_times_of_change() -> None:
    one, other = SMALL.world(14), replace(SMALL, parameters=9, separation=0.1).world(14)
    assert all(np.array_equal(one.changes(user), other.changes(user)) for user in range(7))


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": 0}, "users is 0, expected a whole number"),
        ({"parameters": 0}, "parameters is 0, expected"),
        ({"dim": 2.5}, r"dim is 2\.5 \(float\), expected a whole number"),
        ({"arms": -1}, "arms is -1, expected"),
        ({"rounds": 0}, "rounds is 0, expected"),
        ({"shortest": 0}, "shortest is 0, expected"),
        ({"noise": 0.0}, r"noise is 0\.0, expected a number above 0"),
        ({"noise": float("nan")}, "noise is nan, expected"),
        ({"separation": -1.0}, r"separation is -1\.0, expected"),
        ({"offered": 41}, "offered is 41 and arms is 40, .*lower offered to 40"),
        ({"shortest": 31}, "shortest is 31 and longest is 30, .*raise longest to 31"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DycluError, match=message):
        replace(SMALL, **options)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(OptionError, match="seed is -1, expected"):
        SMALL.world(-1)


def test_settings_are_kept_as_plain_numbers() -> None:
    options: dict[str, Any] = {"users": np.int64(3), "noise": np.float32(0.5)}
    setting = replace(SMALL, **options)
    assert (type(setting.users), type(setting.noise)) == (int, float)
