"""The reference for speed: a simple LinUCB in NumPy, as one would write it in ten minutes.

One model per user, rank-one updates, constant exploration. It does not cluster, detect changes,
check input, break ties, or save anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.timing import Step
from benchmarks.turns import Turn, slices
from dyclu.validation import FloatArray

RIDGE = 0.1
ALPHA = 0.3


class Bare:
    """A bare LinUCB.

    >>> bare = Bare(2)
    >>> bare.serve([Turn(0, np.eye(2), np.array([0.0, 1.0]))] * 3)
    [0, 1, 1]
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.models: dict[int, tuple[FloatArray, FloatArray]] = {}

    def serve(self, turns: Sequence[Turn]) -> list[int]:
        """Choose and learn, turn by turn; return the chosen arms."""
        models, chosen = self.models, []
        for user, arms, rewards in turns:
            if user not in models:
                models[user] = np.eye(self.dim) / RIDGE, np.zeros(self.dim)
            inverse, moment = models[user]
            widths = np.sqrt(((arms @ inverse) * arms).sum(axis=1))
            arm = int(np.argmax(arms @ (inverse @ moment) + ALPHA * widths))
            x = arms[arm]
            column = inverse @ x
            inverse -= np.outer(column, column) / (1 + x @ column)
            moment += rewards[arm] * x
            chosen.append(arm)
        return chosen

    def steps(self, turns: Sequence[Turn]) -> list[Step]:
        """Return the steps that serve the turns, one per slice."""
        return [partial(self.serve, part) for part in slices(turns)]
