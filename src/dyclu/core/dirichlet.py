"""Groups under a Dirichlet process: which group a member belongs to, and how many groups to expect.

The prior of the groups: the next member joins a group of ``n_k`` members with a probability
proportional to ``n_k``, and starts a new group with one proportional to the concentration ``α``.
The number of groups grows like ``α log n``. With a likelihood for every group, this is one step of
collapsed Gibbs sampling: Neal (2000), *Markov chain sampling methods for Dirichlet process mixture
models*, algorithm 3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dyclu.validation import FloatArray


def memberships(
    sizes: NDArray[np.int64], concentration: float, log_likelihoods: FloatArray
) -> FloatArray:
    """Return the probabilities that a member belongs to each group, and to a new group (last).

    Parameters
    ----------
    sizes : int array of shape (K,)
        Number of other members of each group, at least 1.
    concentration : float
        ``α``: weight of a new group.
    log_likelihoods : array of shape (K + 1,)
        Log probability of the member's data, given the data of each group; last, of a new group.

    Examples
    --------
    Without data only the sizes count. Data that fit a group twice as well double its weight:

    >>> memberships(np.array([1, 2]), 1.0, np.zeros(3))
    array([0.25, 0.5 , 0.25])
    >>> memberships(np.array([1, 2]), 1.0, np.log([2.0, 1.0, 1.0]))
    array([0.4, 0.4, 0.2])
    """
    logs = np.log(np.append(sizes, concentration)) + log_likelihoods
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def draw(probabilities: FloatArray, rng: np.random.Generator) -> int:
    """Return an index, drawn with these probabilities.

    >>> draw(np.array([0.0, 1.0, 0.0]), np.random.default_rng(0))
    1
    """
    cumulated = probabilities.cumsum()
    return int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))


def draw_concentration(
    concentration: float,
    *,
    groups: int,
    members: int,
    shape: float,
    rate: float,
    rng: np.random.Generator,
) -> float:
    """Return a concentration, drawn given the number of groups.

    One step of Escobar and West (1995), *Bayesian density estimation and inference using mixtures*,
    section 6, under a prior Gamma(`shape`, `rate`). With ``η ~ Beta(α + 1, n)``, the new ``α`` is
    Gamma(a + K, b − log η) with odds ``(a + K − 1) : n (b − log η)``, else Gamma(a + K − 1, …).

    >>> rng, concentration, total = np.random.default_rng(0), 1.0, 0.0
    >>> for _ in range(4000):
    ...     concentration = draw_concentration(
    ...         concentration, groups=1, members=1, shape=3.0, rate=1.0, rng=rng)
    ...     total += concentration
    >>> round(total / 4000, 1)  # one member is always in one group, so the prior's mean stays: a/b
    3.0
    """
    steeper = rate - math.log(rng.beta(concentration + 1.0, members))
    more = shape + groups - 1.0
    odds = more / (members * steeper)
    if rng.random() * (1.0 + odds) < odds:
        more += 1.0
    return float(rng.gamma(more) / steeper)
