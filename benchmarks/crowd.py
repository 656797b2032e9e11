"""Atlas with many users: time per round, memory per user, time to save and load.

A thousand users are simulated, one hundred after the other. Larger crowds are copies of the located
users under other names, made in the saved file. The result is the same as simulating them, but
takes only seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dyclu
from benchmarks.footprint import STATUS
from benchmarks.location import population, waves
from benchmarks.results import Effort, Results, Row, Target, by_repetition
from benchmarks.timing import Step, interleaved
from benchmarks.turns import SLICES, Turn, steps
from dyclu import Atlas, kernels
from dyclu.policies.atlas.users import NONE
from dyclu.sim.worlds.population import World
from dyclu.storage import Saved, read, write
from dyclu.validation import Ids

ROOT = Path(__file__).parent.parent
FEW, MANY, MILLION = 1_000, 100_000, 1_000_000
STRANGERS = 20_000
QUICK_FEW, QUICK_MANY = 40, 400
ROUNDS = 60
"""Rounds per user, after which nearly all users are located."""

TOGETHER = 100
"""Users who are simulated at the same time."""

LAST = 6_000
MOST_COST, MOST_BYTES, MOST_SECONDS, MOST_GIB = 1.5, 2_048.0, 5.0, 3.0
GIB = 2.0**30


def run(effort: Effort) -> Results:
    """Compare a hundred thousand users with a thousand."""
    few, many = (QUICK_FEW, QUICK_MANY) if effort.quick else (FEW, MANY)
    world = population(few, ROUNDS).world(seed=0)
    with TemporaryDirectory() as folder:
        crowds = _crowds(world, (few, many), Path(folder))
        cost = tuple(_costs(world, crowds, effort))
        files = tuple(_files(crowds[many].path, many, effort))
        strangers = many if effort.quick else STRANGERS
        weight = tuple(_weights(crowds[many], strangers)) if STATUS.exists() else ()
    return Results(
        title="Atlas in a crowd",
        against=f"× {few:,} users",
        rows=(*cost, *weight, *files),
        targets=(
            _at_most(f"a round among {many:,} by one among {few:,}", cost[1].ratio, MOST_COST, "×"),
            *(_at_most(row.name, row.median, MOST_BYTES, row.unit) for row in weight),
            _at_most(files[1].name, files[1].median, MOST_SECONDS, files[1].unit),
        ),
        notes=(
            f"d = {world.setting.dim}. Resident: growth of a fresh process that loads the crowd, "
            "or that strangers come to, once each; room to grow included.",
        ),
    )


def run_million(effort: Effort) -> Results:
    """Measure the memory of a process that loads, serves and saves a million located users."""
    few, many = (QUICK_FEW, QUICK_MANY) if effort.quick else (FEW, MILLION)
    world = population(few, ROUNDS).world(seed=0)
    with TemporaryDirectory() as folder:
        crowd = _crowds(world, (many,), Path(folder))[many]
        found = _process("located", str(crowd.path))
    sizes = {"resident": found["grown"], "largest, loading and saving": found["peak"]}
    rows = tuple(
        Row(name=f"{many:,} located users, {name}", unit="GiB", values=(size / GIB,))
        for name, size in sizes.items()
    )
    return Results(
        title="Atlas and a million users",
        rows=rows,
        targets=tuple(_at_most(row.name, row.median, MOST_GIB, row.unit) for row in rows),
        notes=(
            f"d = {world.setting.dim}. Resident: growth of a fresh process that loads them. "
            "Largest: the whole process, libraries included.",
        ),
    )


NOBODY = -(10**9)
"""Owner of a segment on the panel that belongs to no user of the crowd."""


def grown(world: World) -> Atlas:
    """Return a policy that has learnt all rounds of a world."""
    policy = Atlas(world.setting.dim, noise=world.setting.noise)
    for turn in waves(world, TOGETHER):
        arm = policy.decide(turn.user, turn.arms).arm
        policy.learn(turn.user, turn.arms[arm], turn.reward(arm))
    return policy


def copied(saved: Saved, like: Ids) -> Saved:
    """Return a saved policy in which user `i` is a copy of the located user ``like[i]``.

    Nobody is in doubt, and the panel's segments are those of users of the past.
    """
    column, arrays, users = kernels.ledger, dict(saved.arrays), len(like)
    ledger = arrays["users_ledger"][arrays["users_row"][like]]
    pools = []
    for number in range(len(saved.state["users"]["pools"])):
        here = np.flatnonzero(ledger[:, column.POOL] == number)
        slots = ledger[here, column.SLOT].astype(np.intp)
        arrays[f"users_pool{number}"] = arrays[f"users_pool{number}"][slots]
        ledger[here, column.SLOT] = np.arange(len(here))
        pools.append({"rows": len(here), "free": []})
    ledger[:, column.UNIT] = NONE
    arrays["users_ledger"], arrays["users_row"] = ledger, np.arange(users)
    arrays["users_doubtful"] = arrays["users_doubtful"][:0]
    arrays["panel_owner"] = np.full_like(arrays["panel_owner"], NOBODY)
    ledger[:, column.SEAT] = NONE
    homes = ledger[:, column.HOME].astype(np.intp)
    tally = arrays["tastes_tally"].copy()
    tally[:, kernels.tastes.USERS] = np.bincount(homes, minlength=len(tally))
    arrays["tastes_tally"] = tally
    people = {
        **saved.state["users"],
        "users": list(range(users)),
        "rows": users,
        "free": [],
        "pools": pools,
    }
    return Saved(saved.kind, saved.options, {**saved.state, "users": people}, arrays)


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """A policy on disk, and the simulated user of which each of its users is a copy."""

    path: Path
    like: Ids


def _crowds(world: World, sizes: tuple[int, ...], folder: Path) -> Mapping[int, Crowd]:
    policy = grown(world)
    policy.save(folder / "grown")
    saved = read(folder / "grown")
    there = [user for user in range(world.setting.users) if policy.locate(user).located]
    crowds = {size: Crowd(folder / str(size), np.resize(there, size)) for size in sizes}
    for crowd in crowds.values():
        write(crowd.path, copied(saved, crowd.like))
    return crowds


def _costs(world: World, crowds: Mapping[int, Crowd], effort: Effort) -> Iterable[Row]:
    seconds = interleaved(
        {str(size): partial(_steps, world, crowd) for size, crowd in crowds.items()},
        repetitions=effort.repetitions,
    )
    served = LAST // SLICES * SLICES
    for size in crowds:
        spent = seconds[str(size)]
        yield Row(
            name=f"a round among {size:,} users",
            unit="µs",
            values=tuple(1e6 * each / served for each in spent),
            ratios=by_repetition(spent, seconds[str(min(crowds))]),
            curve="users",
            at=size,
        )


def _steps(world: World, crowd: Crowd) -> list[Step]:
    """Return visits of users in no order; a copy likes what the original likes."""
    rng, users = np.random.default_rng(0), len(crowd.like)
    who = rng.permutation(users)[np.arange(LAST) % users]
    arms = world.table[rng.integers(len(world.table), size=(LAST, world.setting.offered))]
    tastes = world.parameters[world.truth[crowd.like[who], 0]]
    noise = world.setting.noise * rng.standard_normal((LAST, 1))
    rewards = np.einsum("nkd,nd->nk", arms, tastes) + noise
    return steps(dyclu.load(crowd.path), list(map(Turn, who.tolist(), arms, rewards)))


def _weights(crowd: Crowd, strangers: int) -> Iterable[Row]:
    asked = {
        "located": (str(crowd.path), len(crowd.like)),
        "strangers": (str(strangers), strangers),
    }
    for kind, (what, users) in asked.items():
        name = f"resident, per user of {users:,} {kind}"
        yield Row(name=name, unit="bytes", values=(_process(kind, what)["grown"] / users,))


def _process(*arguments: str) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "benchmarks.weight", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _files(path: Path, users: int, effort: Effort) -> Iterable[Row]:
    policy = dyclu.load(path)
    seconds = interleaved(
        {
            "save": lambda: [partial(policy.save, path.with_name("again"))],
            "load": lambda: [partial(dyclu.load, path)],
        },
        repetitions=effort.repetitions,
    )
    for verb, spent in seconds.items():
        yield Row(name=f"{verb} {users:,} users", unit="s", values=spent)


def _at_most(name: str, value: float, limit: float, unit: str) -> Target:
    return Target(name=name, value=value, sense="at most", limit=limit, unit=unit)
