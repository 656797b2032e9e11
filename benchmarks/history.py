"""A round must cost the same however long everybody has lived."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import dyclu
from benchmarks.results import Effort, Results, Row, Target, by_repetition
from benchmarks.timing import Step, interleaved
from benchmarks.turns import SLICES, Turn, steps, turn
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population, World

AGES = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Rounds lived, of all users together."""

WINDOW = 1_998
"""Rounds over which the cost at an age is taken, a multiple of the slices."""

USERS = 20
MOST = 1.10
"""The cost of a round at the oldest age, in units of that at the youngest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A policy at some age, on disk, and what happens next."""

    saved: Path
    segments: int
    turns: tuple[Turn, ...]


def run(effort: Effort) -> Results:
    """Let one policy grow old among users who never change, and measure it at several ages."""
    ages = AGES[:2] if effort.quick else AGES
    world = population(max(ages) + WINDOW).world(seed=0)
    with TemporaryDirectory() as folder:
        moments = _moments(world, ages, Path(folder))
        seconds = interleaved(
            {str(age): partial(_steps, moment) for age, moment in moments.items()},
            repetitions=effort.repetitions,
        )
    rows = tuple(_row(age, moments[age], ages[0], seconds) for age in ages)
    name = f"a round after {ages[-1]:,} rounds by one after {ages[0]:,}"
    return Results(
        title="Cost of a round as histories grow",
        against=f"× {ages[0]:,} rounds",
        rows=rows,
        targets=(Target(name=name, value=rows[-1].ratio, sense="at most", limit=MOST, unit="×"),),
        notes=(f"DyClu, {USERS} users who never change; each age over {WINDOW:,} rounds.",),
    )


def population(rounds: int) -> Population:
    """Return a population that lasts so many rounds and in which nobody changes."""
    each = math.ceil(rounds / USERS)
    never = paper.NEVER
    return Population(users=USERS, parameters=5, rounds=each, shortest=never, longest=never)


def _moments(world: World, ages: tuple[int, ...], folder: Path) -> Mapping[int, Moment]:
    policy = contestant("dyclu", world)
    rounds, lived, moments = iter(world), 0, {}
    ahead: list[Turn] = []
    for age in ages:
        ahead += map(turn, islice(rounds, age + WINDOW - lived - len(ahead)))
        for user, arms, rewards in ahead[: age - lived]:
            arm = policy.decide(user, arms).arm
            policy.learn(user, arms[arm], rewards[arm])
        ahead, lived = ahead[age - lived :], age
        policy.save(folder / str(age))
        moments[age] = _moment(folder / str(age), ahead)
    return moments


def _moment(saved: Path, ahead: list[Turn]) -> Moment:
    policy = dyclu.load(saved)
    assert isinstance(policy, dyclu.DyClu)
    return Moment(saved=saved, segments=len(policy.segments), turns=tuple(ahead[:WINDOW]))


def _steps(moment: Moment) -> list[Step]:
    return steps(dyclu.load(moment.saved), moment.turns)


def _row(age: int, moment: Moment, first: int, seconds: Mapping[str, tuple[float, ...]]) -> Row:
    spent = seconds[str(age)]
    served = len(moment.turns) // SLICES * SLICES
    return Row(
        name=f"after {age:,} rounds, {moment.segments} segments",
        unit="µs",
        values=tuple(1e6 * each / served for each in spent),
        ratios=by_repetition(spent, seconds[str(first)]),
        curve="rounds lived",
        at=age,
    )
