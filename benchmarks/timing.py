"""Measure the CPU time of several contestants that take turns.

On a shared machine wall-clock time says little, and even CPU seconds drift with the state of caches
and clocks. So contestants are compared within a repetition, slice by slice: a disturbance that
lasts longer than a slice affects all of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

Step = Callable[[], object]
Contestant = Callable[[], Sequence[Step]]
"""Prepares a new contestant and returns the steps to be timed."""

WARM_UPS = 1
"""Repetitions that do not count: the first call of a kernel loads or compiles it."""


def interleaved(
    contestants: Mapping[str, Contestant],
    *,
    repetitions: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each contestant, one number per repetition.

    All contestants must have the same number of steps.

    >>> ticks = iter(range(100))
    >>> interleaved({"a": lambda: [int, int]}, repetitions=2, clock=lambda: next(ticks))
    {'a': (2.0, 2.0)}
    """
    runs = [_repetition(contestants, clock) for _ in range(WARM_UPS + repetitions)][WARM_UPS:]
    return {name: tuple(run[name] for run in runs) for name in contestants}


def _repetition(
    contestants: Mapping[str, Contestant], clock: Callable[[], float]
) -> dict[str, float]:
    steps = {name: prepare() for name, prepare in contestants.items()}
    spent = dict.fromkeys(steps, 0.0)
    with no_collection():
        for together in zip(*steps.values(), strict=True):
            for name, step in zip(steps, together, strict=True):
                start = clock()
                step()
                spent[name] += clock() - start
    return spent


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection, so that no contestant pays for objects of another."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
