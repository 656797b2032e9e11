"""Results whose numbers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dyclu.sim.runs.results import Result, Timing
from dyclu.sim.worlds import paper

FACTS = {"command": "dyclu simulate"}


def a_result(setting: str, policy: str, seed: int, regret: float, **other: Any) -> Result:
    result = Result(
        setting=setting,
        policy=policy,
        seed=seed,
        rounds=10,
        regret=regret,
        alarms_true=0,
        alarms_false=0,
        alarms_missed=2,
        median_delay=None,
        precision=None,
        recall=None,
        parameter_error=None,
        version="1",
        curve=tuple(np.linspace(regret / 10, regret, 10).tolist()),
        timing=Timing(seconds=2.0, rounds_per_second=100.0 * (seed + 1)),
    )
    return replace(result, **other)


ROW1 = [
    a_result("row1", "linucb", 0, 20_000.0),
    a_result("row1", "linucb", 1, 20_200.0),
    a_result("row1", "dyclu", 0, 880.0),
    a_result("row1", "dyclu", 1, 900.0),
]
PUBLISHED = {"row1": paper.PUBLISHED["row1"]}
