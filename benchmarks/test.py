"""The test of one segment against all others: compared with its definition, and as tables grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from benchmarks.drawn_segments import NOISE, grown
from benchmarks.results import Effort, Results, Row, Target, by_repetition
from benchmarks.stage import row_one
from benchmarks.timing import Contestant, Step, interleaved
from dyclu.core.homogeneity import homogeneity
from dyclu.core.noise import Noise
from dyclu.policies.dyclu.neighbours import neighbours
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.validation import Ids

LEVEL = 0.01
SIGMA = Noise.known(NOISE)
ASKED = 12
"""Number of segments that are compared with all others in one repetition."""

YOUNG = 12
"""Observations of a segment that does not span the space."""

DIM = 25
SIZES = (100, 1_000, 10_000, 100_000)
DIMS = (5, 10, 25, 50, 100)
SEGMENTS = 1_000
"""Number of segments in the tables of different numbers of features."""

LARGE, MOST = 10_000, 15.0
"""Comparing one segment with so many others takes at most so many milliseconds."""

Test = Callable[[SegmentTable, int], Ids]


def run(effort: Effort) -> Results:
    """Compare the batched test with the definition, then measure larger tables."""
    sizes = SIZES[:2] if effort.quick else SIZES
    dims = DIMS[:2] if effort.quick else DIMS
    most = SIZES[1] if effort.quick else LARGE
    table = row_one(effort, ["dyclu"]).segments()
    growth = (
        *_curve("segments", {size: partial(grown, size, DIM) for size in sizes}, effort),
        *_curve("features", {dim: partial(grown, SEGMENTS, dim) for dim in dims}, effort),
    )
    large = [row for row in growth if row.curve == "segments" and row.at == LARGE]
    young = _young(most, effort)
    return Results(
        title="One segment against all",
        against="× batched",
        rows=(*_against_definition(table, effort), *growth, young),
        targets=tuple(map(_target, (*large, young))),
        notes=(
            f"Both ways found the same neighbours of every one of {ASKED} segments of row 1's end.",
            f"Growth in segments is at d = {DIM}, growth in features at {SEGMENTS:,} segments; "
            f"a young segment has {YOUNG} observations.",
        ),
    )


def batched(table: SegmentTable, mine: int) -> Ids:
    """Return the rows of the neighbours, as DyClu finds them."""
    return neighbours(table, mine, noise=SIGMA, level=LEVEL).rows


def defined(table: SegmentTable, mine: int) -> Ids:
    """Return the rows of the neighbours by the definition, pair by pair."""
    my = table.stats(mine)
    alike = [
        homogeneity(my, table.stats(id), noise=SIGMA).p_value >= LEVEL for id in range(len(table))
    ]
    return np.flatnonzero(alike)


def asked(table: SegmentTable) -> list[int]:
    """Return rows, spread over the table, of segments that span the space."""
    spanning = np.flatnonzero(table.rank[: len(table)] == table.dim)
    return [int(spanning[i]) for i in np.linspace(0, len(spanning) - 1, ASKED).astype(int)]


def _against_definition(table: SegmentTable, effort: Effort) -> tuple[Row, Row]:
    for mine in asked(table):
        if not np.array_equal(batched(table, mine), defined(table, mine)):
            raise AssertionError(f"segment {mine} has other neighbours than by the definition")
    tests = {"batched": batched, "pair by pair": defined}
    seconds = interleaved(
        {name: _asking(test, table, asked(table)) for name, test in tests.items()},
        repetitions=effort.repetitions,
    )
    first, second = (
        Row(
            name=f"{name}, {len(table)} segments",
            unit="ms",
            values=_milliseconds(seconds[name]),
            ratios=by_repetition(seconds[name], seconds["batched"]),
        )
        for name in tests
    )
    return first, second


def _curve(
    name: str, tables: dict[int, Callable[[], SegmentTable]], effort: Effort
) -> Iterable[Row]:
    for at, make in tables.items():
        # One table at a time, because the largest takes a gigabyte.
        table = make()
        values = _alone(table, asked(table), effort)
        yield Row(name=f"{at:,} {name}", unit="ms", values=values, curve=name, at=at)


def _young(segments: int, effort: Effort) -> Row:
    table, rng = grown(segments, DIM), np.random.default_rng(0)
    mine = table.start("young")
    for x in rng.standard_normal((YOUNG, DIM)) / np.sqrt(DIM):
        table.add(mine, x, float(x[0] + NOISE * rng.standard_normal()), spanned=False)
    values = _alone(table, [mine] * ASKED, effort)
    return Row(name=f"{segments:,} segments, mine young", unit="ms", values=values)


def _alone(table: SegmentTable, ids: Sequence[int], effort: Effort) -> tuple[float, ...]:
    asking = {"batched": _asking(batched, table, ids)}
    return _milliseconds(interleaved(asking, repetitions=effort.repetitions)["batched"])


def _asking(test: Test, table: SegmentTable, ids: Sequence[int]) -> Contestant:
    # One step for all, so that the table is in the cache, as it is in rounds of DyClu.
    step: Step = partial(_ask, test, table, ids)
    return lambda: [step]


def _ask(test: Test, table: SegmentTable, ids: Sequence[int]) -> None:
    for mine in ids:
        test(table, mine)


def _milliseconds(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1e3 * spent / ASKED for spent in seconds)


def _target(row: Row) -> Target:
    return Target(name=row.name, value=row.median, sense="at most", limit=MOST, unit="ms")
