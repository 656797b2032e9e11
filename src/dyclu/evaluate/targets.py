"""Policies that do not learn, as probabilities of the offered arms.

A `Target` is a function from a `Chunk` of n rows to an array (n, K): the probability with which the
policy would show each offered arm. Rows sum to 1; arms beyond the offered ones have 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dyclu.data import Chunk
from dyclu.errors import OptionError, ShapeError
from dyclu.policies.common.batches import BatchPolicy
from dyclu.policy import Policy
from dyclu.validation import FloatArray, Ids, as_floats, as_within

Target = Callable[[Chunk], ArrayLike]

SUM_TOLERANCE = 1e-6
"""Probabilities of a row may miss 1 by this much: they may have been stored as 32-bit floats."""


def offered(chunk: Chunk) -> FloatArray:
    """Return 1 for every offered arm and 0 for padding, of shape (rows, K)."""
    most = chunk.arms.shape[1]
    return (np.arange(most) < chunk.counts[:, None]).astype(np.float64)


def uniform(chunk: Chunk) -> FloatArray:
    """Show every offered arm with the same probability.

    >>> from dyclu.data import Log
    >>> log = Log.of_arrays(user=["ana"], arms=[[[1.0], [2.0]]], chosen=[0], reward=[1.0])
    >>> uniform(next(log.chunks()))
    array([[0.5, 0.5]])
    """
    return offered(chunk) / chunk.counts[:, None]


def frozen(policy: Policy, *, epsilon: float = 0.0) -> Target:
    """Return a policy as it is now: its choice, and with probability `epsilon` any offered arm.

    It learns nothing while it is evaluated. A policy that chooses at random is refused: one draw
    of its choices is not its probabilities.

    >>> from dyclu import LinUCB
    >>> from dyclu.data import Log
    >>> log = Log.of_arrays(user=["ana"], arms=[[[1.0], [2.0]]], chosen=[0], reward=[1.0])
    >>> frozen(LinUCB(1, alpha=0.1), epsilon=0.1)(next(log.chunks()))
    array([[0.05, 0.95]])
    """
    share = as_within(epsilon, "epsilon", 0.0, 1.0)

    def chances(chunk: Chunk) -> FloatArray:
        _check_certain(policy, chunk)
        table = share * uniform(chunk)
        table[np.arange(len(chunk)), choices(policy, chunk)] += 1.0 - share
        return table

    return chances


def _check_certain(policy: Policy, chunk: Chunk) -> None:
    """Refuse a policy that chooses at random; asks for one row of a chunk."""
    if chunk.arms.shape[2] != policy.dim:
        return
    for row in np.flatnonzero(chunk.counts > 1)[:1]:
        made = policy.decide(chunk.user[row], chunk.arms[row, : chunk.counts[row]])
        if made.propensity is None or made.propensity < 1:
            known = "unknown" if made.propensity is None else f"{made.propensity:.3g}"
            raise OptionError(
                f"{type(policy).__name__} chooses at random (the probability of its choice is "
                f"{known}), expected a policy whose choice is certain; pass `uniform`, or a "
                "function that returns its probabilities, or use `replay`"
            )


def choices(policy: Policy, chunk: Chunk) -> Ids:
    """Return the index of the arm that a policy chooses in each row; changes nothing."""
    if chunk.arms.shape[2] != policy.dim:
        raise ShapeError(
            f"the log has {chunk.arms.shape[2]} features, this policy was built for {policy.dim}; "
            "evaluate it on a log with the features that it was built for"
        )
    chosen = np.empty(len(chunk), dtype=np.intp)
    for count in np.unique(chunk.counts):
        rows = np.flatnonzero(chunk.counts == count)
        chosen[rows] = _choices(policy, chunk.user[rows].tolist(), chunk.arms[rows, :count])
    return chosen


def _choices(policy: Policy, users: list[str | int], arms: FloatArray) -> Ids:
    if isinstance(policy, BatchPolicy):
        return policy.decide_many(users, arms).arm
    return np.array([policy.decide(user, one).arm for user, one in zip(users, arms, strict=True)])


def probabilities(target: Target, chunk: Chunk, name: str) -> FloatArray:
    """Return the checked probabilities (rows, K) of a target."""
    table = as_floats(target(chunk), f"probabilities of {name!r}")
    if table.shape != chunk.arms.shape[:2]:
        raise ShapeError(
            f"policy {name!r} gave probabilities of shape {table.shape}, expected "
            f"{chunk.arms.shape[:2]}; return one row per row of the chunk and one number per arm"
        )
    outside = np.abs(table * (1 - offered(chunk))).sum(axis=1)
    wrong = (table < 0).any(axis=1) | (np.abs(table.sum(axis=1) - 1) + outside > SUM_TOLERANCE)
    for row in np.flatnonzero(wrong)[:1]:
        raise OptionError(
            f"policy {name!r}, row {row} of a chunk: got the probabilities {table[row]}, expected "
            f"numbers ≥ 0 of {chunk.counts[row]} offered arms that sum to 1, and 0 for all others"
        )
    return table
