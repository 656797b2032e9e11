"""A bandit so small that every possible log can be enumerated.

A visit is of one of two kinds (two contexts, with probabilities 1/4 and 3/4), offers three arms and
is answered by a click or not. A log of n visits of n users has ``(2 × 3 × 2)ⁿ`` possible values;
the expectation of any estimator is a sum over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from dyclu.data import Chunk, Log
from dyclu.validation import FloatArray, Ids

KINDS = np.array([0.25, 0.75])
CHANCES = np.array([[0.9, 0.2, 0.4], [0.1, 0.6, 0.3]])
"""Probability of a click, by kind and arm."""

LOGGED = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
"""Probability with which an arm is logged."""

POLICY = np.array([[0.1, 0.1, 0.8], [0.0, 0.7, 0.3]])
"""Probability with which the evaluated policy shows it."""

TRUTH = float(KINDS @ (POLICY * CHANCES).sum(axis=1))
"""Value of the policy."""

MODEL = np.array([[0.5, 0.1, 0.9], [0.3, 0.3, 0.3]])
"""A wrong model of the rewards."""

Visit = tuple[int, int, int]
"""Kind of the visit, arm that was shown, and click."""


def logs(visits: int) -> Iterator[tuple[float, list[Visit]]]:
    """Yield every possible log with its probability."""
    for rows in product(product(range(2), range(3), range(2)), repeat=visits):
        yield float(np.prod([_chance(*row) for row in rows])), list(rows)


def _chance(kind: int, arm: int, click: int) -> float:
    hit = CHANCES[kind, arm]
    return float(KINDS[kind] * LOGGED[kind, arm] * (hit if click else 1 - hit))


def expectation(visits: int, of: Callable[[list[Visit]], float]) -> float:
    """Return the exact expectation of a function of the log."""
    return sum(chance * of(rows) for chance, rows in logs(visits))


def log_of(rows: list[Visit]) -> Log:
    """Return a log with one user per visit; the first feature of every arm is the visit's kind."""
    kind, arm, click = (np.array(column) for column in zip(*rows, strict=True))
    arms = np.tile(np.column_stack([np.zeros(3), np.eye(3)]), (len(rows), 1, 1))
    arms[:, :, 0] = kind[:, None]
    return Log.of_arrays(
        user=range(len(rows)),
        arms=arms,
        chosen=arm,
        reward=click.astype(float),
        propensity=LOGGED[kind, arm],
    )


def kinds(chunk: Chunk) -> Ids:
    """Return the kind of every visit."""
    return chunk.arms[:, 0, 0].astype(np.intp)


def policy(chunk: Chunk) -> FloatArray:
    """The evaluated policy."""
    return np.asarray(POLICY[kinds(chunk)])


def model(chunk: Chunk) -> FloatArray:
    """The wrong model of the rewards."""
    return np.asarray(MODEL[kinds(chunk)])


def drawn(visits: int, seed: int) -> list[Visit]:
    """Draw a log."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(2, size=visits, p=KINDS)
    arm = (LOGGED[kind].cumsum(axis=1) < rng.random(visits)[:, None]).sum(axis=1)
    click = rng.random(visits) < CHANCES[kind, arm]
    return list(zip(kind.tolist(), arm.tolist(), click.astype(int).tolist(), strict=True))
