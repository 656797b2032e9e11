"""One segment against all: `homogeneity`, exactly, for a fraction of its cost.

With ``δ = ϑ₁ − ϑ₂`` for my segment and another, ``q₁ = δᵀA₁δ`` and ``q₂ = δᵀA₂δ``, the statistic
lies between bounds that need no factorisation:

- ``σ² s ≥ (vᵀδ)² / vᵀ(A₁⁻ + A₂⁻)v`` for any `v` that both have seen, by Cauchy-Schwarz. With
  ``v = δ`` and the norms of the inverses it is ``‖δ‖² / (‖A₁⁻¹‖ + ‖A₂⁻¹‖)`` where both span the
  space, which costs O(d) and rules out nearly all who differ. With ``v = A₁δ`` it is
  ``q₁² / (q₁ + vᵀA₂⁻¹v)``, where the other spans the space; with ``v = A₂δ`` the same with the
  roles exchanged;
- ``σ² s ≤ q₁ q₂ / (q₁ + q₂)``: the statistic is the minimum of ``‖ϑ − ϑ₁‖²_A₁ + ‖ϑ − ϑ₂‖²_A₂`` over
  all ϑ, and this the minimum over those on the line from ϑ₁ to ϑ₂.

Only pairs that the bounds leave open are factorised, and where neither segment spans the space the
same elimination certifies the rank of their sum: `kernels.compare`. The definition itself is asked
about the very few pairs where rounding denies a certificate.
"""

from __future__ import annotations

import numpy as np

from dyclu.compute import kernels
from dyclu.homogeneity import critical_values, homogeneity
from dyclu.noise import Noise
from dyclu.policy import Ids
from dyclu.segments import Segments
from dyclu.stats import ROUNDING


def neighbours(book: Segments, mine: int, *, noise: Noise, level: float) -> Ids:
    """Return the rows of all segments, open and closed, that are homogeneous with mine (line 17).

    Parameters
    ----------
    book : Segments
        The book of segments.
    mine : int
        Row of the segment compared; it is always its own neighbour.
    noise : Noise
        The noise to weigh deviations against.
    level : float
        Chance of leaving out a segment that does share my parameter.
    """
    size, cuts = len(book), critical_values(book.dim, noise, level)
    alike, undecided = np.empty(size, np.intp), np.empty(size, np.intp)
    found, left = kernels().compare(
        book.gram, book.inverse, book.theta, book.spread, book.rank, book.count,
        size, mine, cuts, ROUNDING, alike, undecided,
    )  # fmt: skip
    rows = alike[:found].copy()
    if left:
        rows = np.sort(np.append(rows, _defined(book, mine, undecided[:left], noise, level)))
    return rows


def _defined(book: Segments, mine: int, others: Ids, noise: Noise, level: float) -> Ids:
    my = book.stats(mine)
    alike = [homogeneity(my, book.stats(row), noise=noise).p_value >= level for row in others]
    return others[alike]
