"""One segment against all: `homogeneity`, batched, without a loop over pairs.

With ``δ = ϑ₁ − ϑ₂`` for my segment and another, ``σ² s = (A₂δ)ᵀ z`` where ``(A₁ + A₂) z = A₁δ``:
one solve per pair. Where either segment spans the space the pooled gram is invertible and its rank
is known; elsewhere the rank is found first, and pairs with no direction in common are not solved.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyclu.homogeneity import p_value
from dyclu.noise import Noise
from dyclu.policy import Ids
from dyclu.segments import Segments
from dyclu.stats import pseudo_inverse, rank
from dyclu.validation import FloatArray


def neighbours(book: Segments, mine: int, *, noise: Noise, level: float) -> Ids:
    """Return the ids of all segments, open and closed, that are homogeneous with mine (line 17).

    Parameters
    ----------
    book : Segments
        The book of segments.
    mine : int
        Id of the segment compared; it is always its own neighbour.
    noise : Noise
        The noise to weigh deviations against.
    level : float
        Chance of leaving out a segment that does share my parameter.
    """
    deviation, df = deviations(book, mine)
    alike = p_value(deviation, df, noise) >= level
    alike[mine] = True
    found = np.flatnonzero(alike)
    found.flags.writeable = False
    return found


def deviations(book: Segments, mine: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return ``σ² s`` of Eq. (1) and its degrees of freedom, my segment against every one."""
    n = len(book)
    pooled = book.gram[:n] + book.gram[mine]
    ranks = _pooled_ranks(book, mine, pooled)
    df = np.maximum(book.rank[:n] + book.rank[mine] - ranks, 0)
    gap = book.theta[mine] - book.theta[:n]
    ours, theirs = gap @ book.gram[mine], _times(book.gram[:n], gap)
    solved = _solve(pooled, ours, ranks, df > 0)
    return np.maximum((theirs * solved).sum(axis=1), 0.0), df


def _pooled_ranks(book: Segments, mine: int, gram: FloatArray) -> NDArray[np.int64]:
    ranks = np.maximum(book.rank[: len(book)], book.rank[mine])
    narrow = np.flatnonzero(ranks < book.dim)
    if len(narrow):
        ranks[narrow] = np.maximum(ranks[narrow], rank(gram[narrow]))
    return np.asarray(ranks)


def _solve(
    pooled: FloatArray, right: FloatArray, ranks: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> FloatArray:
    solved = np.zeros_like(right)
    regular = wanted & (ranks == right.shape[1])
    singular = wanted & ~regular
    if regular.any():
        try:
            solved[regular] = np.linalg.solve(pooled[regular], right[regular, :, None])[..., 0]
        except np.linalg.LinAlgError:
            # Scales so far apart that rounding makes an invertible sum singular.
            singular |= regular
    if singular.any():
        inverse = pseudo_inverse(pooled[singular], at_least=ranks[singular])
        solved[singular] = _times(inverse, right[singular])
    return solved


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    # (n, d, d) times (n, d), row by row.
    return np.asarray((matrices @ vectors[:, :, None])[..., 0])
