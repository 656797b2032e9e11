"""One segment against all: `homogeneity`, batched, without a loop over pairs.

With ``δ = ϑ₁ − ϑ₂`` for my segment and another, ``q₁ = δᵀA₁δ`` and ``q₂ = δᵀA₂δ``, the statistic
lies between bounds that need no factorisation:

- ``σ² s ≤ q₁ q₂ / (q₁ + q₂)``: the statistic is the minimum of ``‖ϑ − ϑ₁‖²_A₁ + ‖ϑ − ϑ₂‖²_A₂`` over
  all ϑ, and this the minimum over those on the line from ϑ₁ to ϑ₂;
- ``σ² s ≥ (vᵀδ)² / vᵀ(A₁⁻ + A₂⁻)v`` for any `v` that both have seen, by Cauchy-Schwarz. With
  ``v = A₁δ`` it is ``q₁² / (q₁ + vᵀA₂⁻v)``, where the other spans the space; with ``v = A₂δ`` the
  same with the roles exchanged, where both do.

Only pairs that the bounds leave open are solved, ``σ² s = (A₂δ)ᵀ z`` with ``(A₁ + A₂) z = A₁δ``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dyclu.homogeneity import critical
from dyclu.noise import Noise
from dyclu.policy import Ids
from dyclu.segments import Segments
from dyclu.stats import pseudo_inverse, rank
from dyclu.validation import FloatArray

SLACK = 1e-6
"""Relative distance a bound must keep from the critical value: more than its rounding."""


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
    ranks = _pooled_ranks(book, mine)
    cut = critical(_common(book, mine, ranks), noise, level)
    alike = _settled(book, mine, cut)
    unsettled = np.flatnonzero(np.isnan(alike))
    alike[unsettled] = _deviations(book, mine, unsettled, ranks) <= cut[unsettled]
    alike[mine] = True
    found = np.flatnonzero(alike)
    found.flags.writeable = False
    return found


def deviations(book: Segments, mine: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return ``σ² s`` of Eq. (1) and its degrees of freedom, my segment against every one."""
    ranks = _pooled_ranks(book, mine)
    df = _common(book, mine, ranks)
    deviation = np.zeros(len(book))
    told = np.flatnonzero(df)
    deviation[told] = _deviations(book, mine, told, ranks)
    return deviation, df


def _pooled_ranks(book: Segments, mine: int) -> NDArray[np.int64]:
    # Where either spans the space both do; elsewhere the rank must be found.
    ranks = np.maximum(book.rank[: len(book)], book.rank[mine])
    narrow = np.flatnonzero(ranks < book.dim)
    if len(narrow):
        pooled, count = book.gram[narrow] + book.gram[mine], book.count[narrow] + book.count[mine]
        ranks[narrow] = np.maximum(ranks[narrow], rank(pooled, count))
    return np.asarray(ranks)


def _common(book: Segments, mine: int, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(np.maximum(book.rank[: len(book)] + book.rank[mine] - ranks, 0))


def _settled(book: Segments, mine: int, cut: FloatArray) -> FloatArray:
    """Return 1 and 0 for alike and not alike, nan where the bounds leave it open."""
    n, full = len(book), book.rank[: len(book)] == book.dim
    gap = book.theta[mine] - book.theta[:n]
    ours, theirs = _ours(book, mine, gap), _times(book.gram[:n], gap)
    q1, q2 = _dots(gap, ours), _dots(gap, theirs)
    answer = np.full(n, np.nan)
    answer[_ratio(q1 * q2, q1 + q2) * (1 + SLACK) <= cut] = 1.0
    if full[mine]:
        spread = _dots(theirs @ book.inverse[mine], theirs)
        answer[full & (_ratio(q2**2, q2 + spread) * (1 - SLACK) > cut)] = 0.0
    wide = np.flatnonzero(np.isnan(answer) & full)
    spread = _dots(_times(book.inverse[wide], ours[wide]), ours[wide])
    answer[wide[_ratio(q1[wide] ** 2, q1[wide] + spread) * (1 - SLACK) > cut[wide]]] = 0.0
    return answer


def _deviations(book: Segments, mine: int, others: Ids, ranks: NDArray[np.int64]) -> FloatArray:
    gap = book.theta[mine] - book.theta[others]
    ours, theirs = _ours(book, mine, gap), _theirs(book, others, gap)
    pooled, count = book.gram[others] + book.gram[mine], book.count[others] + book.count[mine]
    solved = _solve(pooled, count, ours, ranks[others] == book.dim)
    return np.maximum(_dots(theirs, solved), 0.0)


def _ours(book: Segments, mine: int, gap: FloatArray) -> FloatArray:
    """Return ``A₁δ``; below, the same for the others.

    Where a segment does not span the space, ``A A⁻ A`` stands for `A`: the gram without what
    rounding left in directions never observed, which must not count as an observation of them.
    """
    product = gap @ book.gram[mine]
    narrow = book.rank[mine] < book.dim
    return np.asarray(product @ book.inverse[mine] @ book.gram[mine] if narrow else product)


def _theirs(book: Segments, others: Ids, gap: FloatArray) -> FloatArray:
    product = _times(book.gram[others], gap)
    narrow = book.rank[others] < book.dim
    if narrow.any():
        ids = others[narrow]
        product[narrow] = _times(book.gram[ids], _times(book.inverse[ids], product[narrow]))
    return product


def _solve(
    pooled: FloatArray, count: NDArray[np.int64], right: FloatArray, regular: NDArray[np.bool_]
) -> FloatArray:
    solved = np.empty_like(right)
    try:
        solved[regular] = np.linalg.solve(pooled[regular], right[regular, :, None])[..., 0]
    except np.linalg.LinAlgError:
        # Scales so far apart that rounding makes an invertible sum singular.
        regular = np.zeros_like(regular)
    if not regular.all():
        inverse = pseudo_inverse(pooled[~regular], count[~regular])
        solved[~regular] = _times(inverse, right[~regular])
    return solved


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    # (n, d, d) times (n, d), row by row.
    return np.asarray((matrices @ vectors[:, :, None])[..., 0])


def _dots(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("nd,nd->n", a, b))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    # 0/0 is 0: estimates that do not differ in any direction seen.
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
