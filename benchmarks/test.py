"""The test of one segment against all: against its definition, and as books grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from benchmarks.books import NOISE, grown
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
"""SegmentTable that are compared with all, in one repetition."""

YOUNG = 12
"""Observations of a segment that does not span the space."""

DIM = 25
SIZES = (100, 1_000, 10_000, 100_000)
DIMS = (5, 10, 25, 50, 100)
SEGMENTS = 1_000
"""SegmentTable of the books that differ in the number of features."""

LARGE, MOST = 10_000, 15.0
"""One segment against so many takes at most so many milliseconds."""

Test = Callable[[SegmentTable, int], Ids]


def run(effort: Effort) -> Results:
    """Compare the batched test with the definition, then let books grow."""
    sizes = SIZES[:2] if effort.quick else SIZES
    dims = DIMS[:2] if effort.quick else DIMS
    most = SIZES[1] if effort.quick else LARGE
    book = row_one(effort, ["dyclu"]).book()
    growth = (
        *_curve("segments", {size: partial(grown, size, DIM) for size in sizes}, effort),
        *_curve("features", {dim: partial(grown, SEGMENTS, dim) for dim in dims}, effort),
    )
    large = [row for row in growth if row.curve == "segments" and row.at == LARGE]
    young = _young(most, effort)
    return Results(
        title="One segment against all",
        against="× batched",
        rows=(*_against_definition(book, effort), *growth, young),
        targets=tuple(map(_target, (*large, young))),
        notes=(
            f"Both ways found the same neighbours of every one of {ASKED} segments of row 1's end.",
            f"Growth in segments is at d = {DIM}, growth in features at {SEGMENTS:,} segments; "
            f"a young segment has {YOUNG} observations.",
        ),
    )


def batched(book: SegmentTable, mine: int) -> Ids:
    """Return the neighbours as DyClu finds them."""
    return neighbours(book, mine, noise=SIGMA, level=LEVEL).rows


def defined(book: SegmentTable, mine: int) -> Ids:
    """Return the neighbours as the definition has them, pair by pair."""
    my = book.stats(mine)
    alike = [
        homogeneity(my, book.stats(id), noise=SIGMA).p_value >= LEVEL for id in range(len(book))
    ]
    return np.flatnonzero(alike)


def asked(book: SegmentTable) -> list[int]:
    """Return segments from all over the book that span the space."""
    spanning = np.flatnonzero(book.rank[: len(book)] == book.dim)
    return [int(spanning[i]) for i in np.linspace(0, len(spanning) - 1, ASKED).astype(int)]


def _against_definition(book: SegmentTable, effort: Effort) -> tuple[Row, Row]:
    for mine in asked(book):
        if not np.array_equal(batched(book, mine), defined(book, mine)):
            raise AssertionError(f"segment {mine} has other neighbours than the definition says")
    tests = {"batched": batched, "pair by pair": defined}
    seconds = interleaved(
        {name: _asking(test, book, asked(book)) for name, test in tests.items()},
        repetitions=effort.repetitions,
    )
    first, second = (
        Row(
            name=f"{name}, {len(book)} segments",
            unit="ms",
            values=_milliseconds(seconds[name]),
            ratios=by_repetition(seconds[name], seconds["batched"]),
        )
        for name in tests
    )
    return first, second


def _curve(
    name: str, books: dict[int, Callable[[], SegmentTable]], effort: Effort
) -> Iterable[Row]:
    for at, make in books.items():
        # One book at a time: the largest is a gigabyte.
        book = make()
        values = _alone(book, asked(book), effort)
        yield Row(name=f"{at:,} {name}", unit="ms", values=values, curve=name, at=at)


def _young(segments: int, effort: Effort) -> Row:
    book, rng = grown(segments, DIM), np.random.default_rng(0)
    mine = book.start("young")
    for x in rng.standard_normal((YOUNG, DIM)) / np.sqrt(DIM):
        book.add(mine, x, float(x[0] + NOISE * rng.standard_normal()), spanned=False)
    values = _alone(book, [mine] * ASKED, effort)
    return Row(name=f"{segments:,} segments, mine young", unit="ms", values=values)


def _alone(book: SegmentTable, ids: Sequence[int], effort: Effort) -> tuple[float, ...]:
    asking = {"batched": _asking(batched, book, ids)}
    return _milliseconds(interleaved(asking, repetitions=effort.repetitions)["batched"])


def _asking(test: Test, book: SegmentTable, ids: Sequence[int]) -> Contestant:
    # One step: in a round of DyClu, too, the book is where the last one left it in the cache.
    step: Step = partial(_ask, test, book, ids)
    return lambda: [step]


def _ask(test: Test, book: SegmentTable, ids: Sequence[int]) -> None:
    for mine in ids:
        test(book, mine)


def _milliseconds(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1e3 * spent / ASKED for spent in seconds)


def _target(row: Row) -> Target:
    return Target(name=row.name, value=row.median, sense="at most", limit=MOST, unit="ms")
