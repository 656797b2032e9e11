"""Rounds per second: every policy at the end of row 1, compared with a bare NumPy LinUCB."""

from __future__ import annotations

from functools import partial
from typing import cast

from benchmarks.bare import Bare
from benchmarks.results import Effort, Results, Row, Target, by_repetition
from benchmarks.stage import Stage, row_one
from benchmarks.timing import Contestant, Step, interleaved
from benchmarks.turns import SLICES, block_steps, steps
from dyclu import policies
from dyclu.policies.common.batches import BatchPolicy

BARE = "bare NumPy LinUCB"
BLOCK = 100
BLOCKS = {name: f"{name}, blocks of {BLOCK}" for name in ("linucb", "atlas")}

LEAST = {"dyclu": 0.30, "atlas": 0.8, "linucb": 0.8, BLOCKS["linucb"]: 2.0}
"""Least speed, in units of the bare loop's speed."""


def run(effort: Effort) -> Results:
    """Let all policies serve the last rounds of row 1."""
    names = (*policies.names(), "oracle")
    stage = row_one(effort, names)
    contestants: dict[str, Contestant] = {
        BARE: partial(_bare, stage),
        **{name: partial(_policy, stage, name) for name in names},
        **{label: partial(_blocks, stage, name) for name, label in BLOCKS.items()},
    }
    seconds = interleaved(contestants, repetitions=effort.repetitions)
    served = len(stage.turns) // SLICES * SLICES
    rows = tuple(_row(name, served, seconds) for name in contestants)
    ratios = {row.name: row.ratio for row in rows}
    return Results(
        title="Rounds per CPU second",
        against="× bare loop",
        rows=rows,
        targets=tuple(_target(name, ratios[name], least) for name, least in LEAST.items()),
        notes=(_state(stage, served),),
    )


def _bare(stage: Stage) -> list[Step]:
    return Bare(stage.world.setting.dim).steps(stage.turns)


def _policy(stage: Stage, name: str) -> list[Step]:
    return steps(stage.policy(name), stage.turns)


def _blocks(stage: Stage, name: str) -> list[Step]:
    return block_steps(cast(BatchPolicy, stage.policy(name)), stage.turns, BLOCK)


def _row(name: str, served: int, seconds: dict[str, tuple[float, ...]]) -> Row:
    return Row(
        name=name,
        unit="/s",
        values=tuple(served / spent for spent in seconds[name]),
        ratios=by_repetition(seconds[BARE], seconds[name]),
    )


def _target(name: str, ratio: float, least: float) -> Target:
    return Target(name=name, value=ratio, sense="at least", limit=least, unit="× bare loop")


def _state(stage: Stage, served: int) -> str:
    setting, table = stage.world.setting, stage.segments()
    return (
        f"The last {served:,} of {len(stage.world):,} rounds of {setting.users} users, "
        f"d = {setting.dim}; DyClu holds {len(table)} segments."
    )
