"""The cost of a round must not grow with the number of rounds learnt."""

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
"""Rounds learnt before a measurement, of all users together."""

WINDOW = 1_998
"""Rounds that are timed at each age: a multiple of the number of slices."""

USERS = 20
MOST = 1.10
"""Largest allowed ratio of the cost of a round at the last age to that at the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A policy at some age, on disk, and the turns that follow."""

    saved: Path
    segments: int
    turns: tuple[Turn, ...]


def run(effort: Effort) -> Results:
    """Measure one policy after several numbers of rounds; its users never change."""
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
    """Return a population of so many rounds in which no user changes."""
    each = math.ceil(rounds / USERS)
    never = paper.NEVER
    return Population(users=USERS, parameters=5, rounds=each, shortest=never, longest=never)


def _moments(world: World, ages: tuple[int, ...], folder: Path) -> Mapping[int, Moment]:
    policy = contestant("dyclu", world)
    rounds, learnt, moments = iter(world), 0, {}
    ahead: list[Turn] = []
    for age in ages:
        ahead += map(turn, islice(rounds, age + WINDOW - learnt - len(ahead)))
        for user, arms, rewards in ahead[: age - learnt]:
            arm = policy.decide(user, arms).arm
            policy.learn(user, arms[arm], rewards[arm])
        ahead, learnt = ahead[age - learnt :], age
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
