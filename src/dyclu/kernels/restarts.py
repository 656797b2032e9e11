"""Atlas: the memory of a user whose segment begins anew (docs/theory.md §10.5)."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.atlas import rest_as_known, rest_as_new
from dyclu.kernels.compiling import compiled
from dyclu.kernels.laws import log_add, observe
from dyclu.kernels.ledger import (
    BINARY,
    LENGTH,
    STRAY,
    load_belief,
    user_variance,
)
from dyclu.kernels.linalg import dot, extended, times
from dyclu.kernels.memory import DENSITY, RESPONSE, REWARD, WEIGHT
from dyclu.validation import FloatArray, Ids


@compiled
def restart(
    precision: FloatArray,
    shift: FloatArray,
    theta: FloatArray,
    tally: FloatArray,
    rows: Ids,
    prior_covariance: FloatArray,
    prior_mean: FloatArray,
    user: FloatArray,
    block: FloatArray,
    stream: FloatArray,
) -> None:
    """Set the predicted densities in the memory of a user whose segment begins with it.

    They are those of the mixture that the user is in doubt about.
    """
    d, length = theta.shape[1] - 1, int(user[LENGTH])
    noise, stray = user_variance(user, stream), stream[STRAY]
    binary = stream[BINARY] == 1.0
    belief, rest = np.empty(rows[-1] + 1), np.empty(length + 1)
    load_belief(user, belief)
    density = np.full(length, -math.inf)
    for k in rows:
        if belief[k] > 0.0:
            if k == 0:
                rest_as_new(block, length, prior_covariance, prior_mean, noise, stray, binary, rest)
            else:
                rest_as_known(block, length, theta, tally, k, noise, stray, binary, rest)
            for t in range(length):
                density[t] = log_add(math.log(belief[k]) + rest[t] - rest[t + 1], density[t])
    block[:length, d + DENSITY] = density


@compiled
def reobserve(
    block: FloatArray,
    first: int,
    length: int,
    covariance: FloatArray,
    mean: FloatArray,
    noise: float,
    binary: bool,
) -> None:
    """Set weights and responses of the memory's rewards from `first` on, as one taste expects them.

    The taste has this mean and covariance; a covariance of zeros takes the mean as the truth.
    """
    d, column = len(mean) - 1, np.empty(len(mean))
    for t in range(first, length):
        z = extended(block[t, :d])
        times(covariance, z, column)
        w, response = observe(
            block[t, d + REWARD], dot(z, mean), max(dot(z, column), 0.0), noise, binary
        )
        block[t, d + WEIGHT], block[t, d + RESPONSE] = w, response
