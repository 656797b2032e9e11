"""Belief: where on the atlas a user may be, followed from reward to reward.

A weight for each model. Between two rewards a user changes with a small chance, the hazard, and
then enters any model as often as newcomers do; a reward is as likely under a model as its Gaussian
says, but never less likely than a stray. Both together are one step of a hidden Markov model.
"""

from __future__ import annotations

import numpy as np

from dyclu.validation import FloatArray


def likelihood(errors: FloatArray, variances: FloatArray, floor: float) -> FloatArray:
    """Return how likely errors of prediction are, up to 1/√2π; never less than `floor`.

    >>> likelihood(np.array([0.0, 100.0]), np.array([4.0, 4.0]), 0.01)
    array([0.51, 0.01])
    """
    density: FloatArray = np.exp(-0.5 * errors * errors / variances) / np.sqrt(variances)
    return density + floor


def followed(
    weight: FloatArray, entering: FloatArray, likely: FloatArray, *, hazard: float
) -> FloatArray:
    """Return the weights after a reward: a change with chance `hazard`, then Bayes' rule.

    >>> weight, entering = np.array([1.0, 0.0]), np.array([0.5, 0.5])
    >>> followed(weight, entering, np.array([1.0, 199.0]), hazard=0.01)
    array([0.5, 0.5])
    """
    after = ((1.0 - hazard) * weight + hazard * entering) * likely
    normal: FloatArray = after / after.sum()
    return normal


def weighed(log_weight: FloatArray) -> FloatArray:
    """Return weights that add up to 1 from their logarithms, which may be large.

    >>> weighed(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    weight = np.exp(log_weight - log_weight.max())
    normal: FloatArray = weight / weight.sum()
    return normal


def turning_point(home: FloatArray, elsewhere: FloatArray) -> int:
    """Return from which observation on `elsewhere` explains the rest best.

    Both are likelihoods, one per observation, oldest first. The last always belongs to the rest.

    >>> turning_point(np.array([0.5, 0.5, 0.1]), np.array([0.1, 0.4, 0.9]))
    2
    """
    gain = np.log(elsewhere / home)
    rest = np.cumsum(gain[::-1])[::-1]
    return int(np.argmax(rest))
