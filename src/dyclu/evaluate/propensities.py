"""`ChoiceModel`: propensities for a log that has none, by McFadden's conditional logit.

The probability of showing arm a is taken to be ``exp(x_aᵀβ) / Σ_b exp(x_bᵀβ)`` over the offered
arms. This is right only if the logging system chose by the features in the log, and at random; an
evaluation that uses it says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dyclu.data import Chunk, Log
from dyclu.evaluate.targets import offered
from dyclu.validation import FloatArray

RIDGE = 1.0
"""Prior precision of the weights β; it keeps them finite where a choice can be predicted."""

STEPS, GAIN = 50, 1e-6
"""Newton's method ends after so many steps, or once a step is expected to gain less than this."""


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceModel:
    """The estimated logging policy.

    Attributes
    ----------
    weights : array of shape (dim,)
        The estimate of β: the mode of its posterior.
    """

    weights: FloatArray

    @classmethod
    def fitted(cls, log: Log) -> ChoiceModel:
        """Fit by Newton's method; every step is one pass over the log."""
        beta = np.zeros(log.dim)
        for _ in range(STEPS):
            value, gradient, curvature = _moments(log, beta)
            step = scipy.linalg.solve(curvature, gradient, assume_a="pos")
            if gradient @ step < GAIN:
                break
            beta = _climbed(log, beta, step, value)
        return cls(beta)

    def chances(self, chunk: Chunk) -> FloatArray:
        """Return the estimated probability (rows, K) of every offered arm."""
        return _chances(chunk, self.weights)

    def propensity(self, chunk: Chunk) -> FloatArray:
        """Return the estimated probability of the arm that was shown, of shape (rows,)."""
        return self.chances(chunk)[np.arange(len(chunk)), chunk.chosen]


def _chances(chunk: Chunk, beta: FloatArray) -> FloatArray:
    levels = np.where(offered(chunk) > 0, chunk.arms @ beta, -np.inf)
    raised = np.exp(levels - levels.max(axis=1, keepdims=True))
    chances: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return chances


def _moments(log: Log, beta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return log posterior, its gradient and minus its Hessian."""
    value = -0.5 * RIDGE * float(beta @ beta)
    gradient, curvature = -RIDGE * beta, RIDGE * np.eye(len(beta))
    for chunk in log.chunks():
        chances = _chances(chunk, beta)
        mean = np.einsum("rk,rkd->rd", chances, chunk.arms)
        value += _log_chance(chances, chunk)
        gradient = gradient + (chunk.contexts - mean).sum(axis=0)
        flat = chunk.arms.reshape(-1, len(beta))
        curvature = curvature + (flat * chances.reshape(-1, 1)).T @ flat - mean.T @ mean
    return value, gradient, curvature


def _log_chance(chances: FloatArray, chunk: Chunk) -> float:
    shown = chances[np.arange(len(chunk)), chunk.chosen]
    return float(np.log(np.maximum(shown, np.finfo(float).tiny)).sum())


def _climbed(log: Log, beta: FloatArray, step: FloatArray, value: float) -> FloatArray:
    """Return a point uphill: the whole step, or half of it, or a quarter …"""
    for halving in range(STEPS):
        tried: FloatArray = beta + step * 0.5**halving
        reached = -0.5 * RIDGE * float(tried @ tried)
        reached += sum(_log_chance(_chances(chunk, tried), chunk) for chunk in log.chunks())
        if reached >= value:
            return tried
    return beta
