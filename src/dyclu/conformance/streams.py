"""Simulated users with two opposite tastes who swap them halfway, and policies that serve them."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from dyclu.policy import Decision, Outcome, Policy
from dyclu.validation import FloatArray, User

ROUNDS = 160
"""Length of a simulated stream: 40 rounds for each of four users, 20 on either side of the swap."""
NAMES: tuple[User, ...] = ("ana", "ben", "cem", "dua")
RENAMED: tuple[tuple[User, ...], ...] = (
    ("dua", "cem", "ben", "ana"),
    (-1, -2, 0, 2**70),
    (1, "1", "", "0"),
    ("\u00e9", "e\u0301", "名", "a\x00"),
)
"""Names that are easily confused: in reversed order, with equal hashes, text or glyphs."""
STRANGER = "somebody never seen"


@dataclass(frozen=True, slots=True)
class Round:
    """A user, the arms offered to them, and the reward of each arm."""

    user: User
    arms: FloatArray
    rewards: FloatArray


def new_stream(
    dim: int,
    *,
    names: Sequence[User] = NAMES,
    sizes: Sequence[int] = (10,),
    swap: bool = True,
) -> list[Round]:
    """Return rounds of users who come in turn; users next to each other have opposite tastes."""
    rng = np.random.default_rng(20)
    taste = rng.normal(size=dim)
    taste /= np.linalg.norm(taste)
    stream = []
    for t, size in enumerate(islice(cycle(sizes), ROUNDS)):
        who = t % len(names)
        swapped = swap and t >= ROUNDS // 2
        arms = rng.normal(size=(size, dim))
        noise = 0.1 * rng.normal(size=size)
        stream.append(Round(names[who], arms, (-1) ** (who + swapped) * arms @ taste + noise))
    return stream


def blocks_of(stream: list[Round], *, size: int) -> Iterator[list[Round]]:
    """Return a stream in blocks of at most `size` rounds."""
    for start in range(0, len(stream), size):
        yield stream[start : start + size]


def halves_of(stream: list[Round]) -> tuple[list[Round], list[Round]]:
    """Return the rounds before and after users swap tastes."""
    return stream[: len(stream) // 2], stream[len(stream) // 2 :]


def growth_of(policy: Policy, first: list[Round], rest: list[Round]) -> float:
    """Return the bytes per round by which a policy grows in the second of two streams."""
    with traced_memory() as used:
        serve(policy, first)
        before = used()
        serve(policy, rest)
        return (used() - before) / len(rest)


Step = tuple[Decision, Outcome]
Give = Callable[[FloatArray], Any]


def play(policy: Policy, stream: list[Round], *, give: Give = np.copy) -> list[Step]:
    """Play the rounds with a policy; `give` turns an array into the argument that it gets."""
    steps = []
    for round_ in stream:
        decision = policy.decide(round_.user, give(round_.arms))
        reward = float(round_.rewards[decision.arm])
        steps.append((decision, policy.learn(round_.user, give(round_.arms[decision.arm]), reward)))
    return steps


def serve(policy: Policy, stream: list[Round]) -> None:
    """Play the rounds without keeping any answers in memory."""
    for round_ in stream:
        play(policy, [round_])


def means_of(policy: Policy, round_: Round) -> list[float]:
    """Return the expected reward of each arm, when it is offered alone."""
    return [policy.decide(round_.user, arm[None, :].copy()).mean for arm in round_.arms]


def pools_with_ties(arms: FloatArray) -> Iterator[FloatArray]:
    """Yield arms of which several are the same, in several places."""
    yield np.tile(arms[:1], (7, 1))
    yield np.tile(arms[:2], (5, 1))
    yield np.tile(arms[:3], (7, 1))[:19]
    yield np.concatenate([arms, arms[::-1]])


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Trace allocations; yield a function that returns the number of bytes in use."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()

    def used() -> int:
        gc.collect()
        _clear_attribute_cache()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield used
    finally:
        if not was_tracing:
            tracemalloc.stop()


def _clear_attribute_cache() -> None:
    """Empty the interpreter's cache of attributes.

    It grows to about 100 kB for every policy, more than the growth that is measured.
    """
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()
    else:
        sys._clear_type_cache()
