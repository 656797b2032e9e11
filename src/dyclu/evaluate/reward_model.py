"""`RewardModel`: expected rewards of all arms, for the direct method and its corrections.

Ridge regression of the reward on the features of the shown arm and a constant. It is cross-fitted:
the expected rewards of a user come from a model that was fitted on other users, so that a row's own
reward is not part of its prediction (docs/evaluation.md, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dyclu.core.ridge import solve
from dyclu.core.stats import Stats
from dyclu.data import Chunk, Log
from dyclu.errors import ShapeError
from dyclu.evaluate.groups import UserGroups
from dyclu.validation import FloatArray, Ids, as_floats

Rewards = Callable[[Chunk], ArrayLike]
"""Expected rewards (rows, K) of all arms of a chunk, by a model of your own."""

FOLDS = 5
RIDGE = 1.0
"""Weight of the prior; small against the thousands of rows that an evaluation needs."""


@dataclass(frozen=True, slots=True, eq=False)
class RewardModel:
    """One linear model per fold of users, fitted on the other folds.

    Attributes
    ----------
    thetas : array of shape (FOLDS, dim + 1)
        Weights of the features, and the constant.
    low, high : float
        Smallest and largest reward of the log; predictions are cut to them.
    """

    thetas: FloatArray
    low: float
    high: float

    @classmethod
    def fitted(cls, log: Log, groups: UserGroups) -> RewardModel:
        """Fit the models in one pass over the log."""
        sums = [Stats.empty(log.dim + 1) for _ in range(FOLDS)]
        low, high = np.inf, -np.inf
        for chunk in log.chunks():
            folds = groups.of(chunk.user) % FOLDS
            low, high = min(low, chunk.reward.min()), max(high, chunk.reward.max())
            contexts = np.column_stack([chunk.contexts, np.ones(len(chunk))])
            for fold in range(FOLDS):
                mine = folds == fold
                if mine.any():
                    sums[fold] += Stats.of(contexts[mine], chunk.reward[mine])
        return cls(np.stack([_fit(sums, fold) for fold in range(FOLDS)]), float(low), float(high))

    def rewards(self, chunk: Chunk, groups: Ids) -> FloatArray:
        """Return the expected rewards (rows, K) of all arms; those of padding mean nothing."""
        theta = self.thetas[groups % FOLDS]
        expected: FloatArray = np.einsum("rkd,rd->rk", chunk.arms, theta[:, :-1])
        return np.clip(expected + theta[:, -1:], self.low, self.high)


def _fit(sums: list[Stats], fold: int) -> FloatArray:
    others = sum((one for i, one in enumerate(sums) if i != fold), Stats.empty(sums[0].dim))
    if others.count == 0:
        others = sums[fold]
    # The constant is shrunk too: by one row in thousands.
    return solve(others.gram, others.moment[:, None], ridge=RIDGE)[:, 0]


def given_rewards(model: Rewards, chunk: Chunk) -> FloatArray:
    """Return the checked answer of a caller's own model."""
    table = as_floats(model(chunk), "expected rewards")
    if table.shape != chunk.arms.shape[:2]:
        raise ShapeError(
            f"the model of rewards gave shape {table.shape}, expected {chunk.arms.shape[:2]}; "
            "return one row per row of the chunk and one number per arm"
        )
    return table
