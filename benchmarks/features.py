"""Cost of features by name: one decision against the policy's own, and rows of a log per second.

    python -m benchmarks.features

A decision has 10 arms of 20 columns: 12 numbers and 8 categories of 5 values, in 61 features. They
come as dicts that a request would decode: new objects, with values that were seen before (items of
a shop) or never (distances, say). A log has 5 numbers and 3 categories, in 25 features.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

import dyclu
from benchmarks.timing import WARM_UPS, interleaved

ARMS, NUMBERS, CATEGORIES, VALUES = 10, 12, 8, 5
LETTERS = tuple("abcdefgh")
CALLS, SLICES, REPETITIONS = 50, 20, 5
TIMES = CALLS * SLICES * (REPETITIONS + WARM_UPS)
ROWS = 200_000


def product(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return arms as dicts; a sixth of the values of categories are unknown to the features."""
    return [
        {f"n{i}": float(rng.normal()) for i in range(NUMBERS)}
        | {f"c{i}": f"v{rng.integers(VALUES + 1)}" for i in range(CATEGORIES)}
        for _ in range(count)
    ]


def twenty_columns(intercept: bool = True) -> dyclu.Features:
    """Return features of 20 columns, declared by hand."""
    values = [f"v{i}" for i in range(VALUES)]
    numbers = {f"n{i}": {"kind": "number", "mean": 0, "scale": 1} for i in range(NUMBERS)}
    categories = {f"c{i}": {"kind": "category", "values": values} for i in range(CATEGORIES)}
    return dyclu.Features(arm=numbers | categories, intercept=intercept)


def decoded(arms: list[dict[str, Any]], times: int) -> list[list[dict[str, Any]]]:
    """Return the same arms, as new objects each time."""
    text = json.dumps(arms)
    return [json.loads(text) for _ in range(times)]


def decoded_anew(rng: np.random.Generator, times: int) -> list[list[dict[str, Any]]]:
    """Return arms of which one number is another one each time."""
    return [
        [arm | {"n0": float(rng.normal())} for arm in arms]
        for arms in decoded(product(rng, ARMS), times)
    ]


def taught(policy: Any, rng: np.random.Generator) -> Any:
    """Return a policy that knows ten users."""
    for _ in range(30):
        for user in range(10):
            policy.learn(user, rng.normal(size=policy.dim), float(rng.normal()))
    return policy


def decision_costs() -> dict[str, float]:
    """Return microseconds per call: features of one decision, and decisions with these vectors."""
    rng, features = np.random.default_rng(0), twenty_columns()
    arms = product(rng, ARMS)
    vectors = features.vectors(arms)
    items = features.catalogue([{"id": i} | arm for i, arm in enumerate(arms)], id="id")
    again, new = cycle(decoded(arms, CALLS)), iter(decoded_anew(rng, TIMES))
    calls: dict[str, Callable[[], object]] = {
        "features of arms seen before": lambda: features.vectors(next(again)),
        "features of arms never seen": lambda: features.vectors(next(new)),
        "features of a catalogue's ids": partial(items.vectors, list(range(ARMS))),
    }
    for policy in (dyclu.LinUCB(features.dim), dyclu.Atlas(features.dim)):
        name = f"decision of {type(policy).__name__}"
        calls[name] = partial(taught(policy, rng).decide, 3, vectors)

    def repeat(call: Callable[[], object]) -> None:
        for _ in range(CALLS):
            call()

    steps = {name: [partial(repeat, call)] * SLICES for name, call in calls.items()}
    spent = interleaved(
        {name: partial(list, some) for name, some in steps.items()}, repetitions=REPETITIONS
    )
    return {name: 1e6 * median(runs) / (CALLS * SLICES) for name, runs in spent.items()}


def table(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return a log's columns: 5 numbers and 3 categories."""
    numbers = {f"n{i}": rng.normal(size=rows) for i in range(5)}
    return numbers | {f"c{i}": rng.choice(LETTERS[: 5 + (i == 0)], size=rows) for i in range(3)}


def rows_per_second() -> dict[str, float]:
    """Return rows per second of CPU time into a matrix, by kind of data frame."""
    import pandas
    import polars
    import pyarrow

    rng = np.random.default_rng(1)
    columns = table(rng, ROWS)
    kinds = {name: "number" if name[0] == "n" else "category" for name in columns}
    frames = {
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "pyarrow": pyarrow.table(columns),
    }
    features = dyclu.Features(arm=kinds).fit(frames["polars"])
    assert features.dim == 25
    speeds = {}
    for name, frame in frames.items():
        features.matrix(frame[:1000])
        start = time.process_time()
        features.matrix(frame)
        speeds[name] = ROWS / (time.process_time() - start)
    return speeds


def main() -> None:
    costs = decision_costs()
    for name, cost in costs.items():
        ratios = ", ".join(
            f"{cost / costs[other]:.2f} × {other}" for other in costs if "decision" in other
        )
        print(f"{name}: {cost:.1f} µs ({ratios})")
    for name, speed in rows_per_second().items():
        print(f"{name}: {speed:,.0f} rows/s")


if __name__ == "__main__":
    main()
