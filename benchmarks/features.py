"""Cost of features by name: one decision against the policy's own, and rows of a log per second.

    python -m benchmarks.features

A decision has 10 arms of 20 columns: 12 numbers and 8 categories of 5 values, in 61 features. They
come as dicts that a request would decode: new objects, with values that were seen before (items of
a shop), with a number that was never seen (a distance, say), with one of them missing besides, or
with all values drawn anew. A log has 5 numbers and 3 categories, in 25 features.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import dyclu
from benchmarks.timing import no_collection

ARMS, NUMBERS, CATEGORIES, VALUES = 10, 12, 8, 5
LETTERS = tuple("abcdefgh")
CALLS = 3000
ROWS = 200_000

Prepare = Callable[[], Any]
"""Makes the argument of a call, outside of its time."""


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


def decoded(arms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the same arms as new objects, as a request brings them."""
    made: list[dict[str, Any]] = json.loads(json.dumps(arms))
    return made


def anew(arms: list[dict[str, Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return arms of which one number is another one than ever before."""
    return decoded([arm | {"n0": float(rng.normal())} for arm in arms])


def with_gaps(arms: list[dict[str, Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return arms like those of `anew`, each with a missing number."""
    return [arm | {"n1": None} for arm in anew(arms, rng)]


def redrawn(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return arms of which all values are drawn anew."""
    return decoded(product(rng, ARMS))


def taught(policy: Any, rng: np.random.Generator) -> Any:
    """Return a policy that knows ten users."""
    for _ in range(30):
        for user in range(10):
            policy.learn(user, rng.normal(size=policy.dim), float(rng.normal()))
    return policy


def decision_costs() -> dict[str, float]:
    """Return microseconds per call: features of one decision, and decisions with these vectors."""
    rng, features = np.random.default_rng(0), twenty_columns()
    arms, ids = product(rng, ARMS), list(range(ARMS))
    catalogue = features.catalogue(
        [arm | {"id": i} for i, arm in zip(ids, arms, strict=True)], id="id"
    )
    # Features of their own: arms that never come back would make the other memo rest.
    new, gaps, drawn = (twenty_columns().vectors for _ in range(3))
    vectors = features.vectors(arms)
    calls: dict[str, tuple[Prepare, Callable[[Any], object]]] = {
        "features of arms seen before": (partial(decoded, arms), features.vectors),
        "features of arms with a new number": (partial(anew, arms, rng), new),
        "features of arms with a missing number": (partial(with_gaps, arms, rng), gaps),
        "features of arms with new values only": (partial(redrawn, rng), drawn),
        "features of a catalogue's ids": (ids.copy, catalogue.vectors),
    }
    for policy in (dyclu.LinUCB(features.dim), dyclu.Atlas(features.dim)):
        decide = partial(taught(policy, rng).decide, 3)
        calls[f"decision of {type(policy).__name__}"] = (vectors.copy, decide)
    return medians(calls)


def medians(calls: Mapping[str, tuple[Prepare, Callable[[Any], object]]]) -> dict[str, float]:
    """Return the median time of each call in microseconds; the calls take turns."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    with no_collection():
        for _ in range(CALLS):
            for name, (prepare, call) in calls.items():
                argument = prepare()
                start = time.perf_counter()
                call(argument)
                spent[name].append(time.perf_counter() - start)
    return {name: 1e6 * median(times) for name, times in spent.items()}


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
