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

A pair that was alike need not be looked at again for a while. An observation added to the first
segment, of leverage ``h = xᵀA₁⁻x`` and error ``e = y − xᵀϑ₁``, turns the statistic into the minimum
over ϑ of the same sum and ``(y − xᵀϑ)²``, less ``e² / (1 + h)``. At the old minimum,
``|y − xᵀϑ| ≤ |e| + √(h σ² s)``, again by Cauchy-Schwarz, and so

    ``√(σ² s') ≤ √(1 + h) √(σ² s) + |e| √(h / (1 + h))``.

The book sums up the logarithms of the factors and the summands of every segment (`strain`); with
what they were when the pair was last looked at, they bound the statistic now, without its matrices.

Only pairs that the bounds leave open are factorised, and where neither segment spans the space the
same elimination certifies the rank of their sum: `kernels.compare`. The definition itself is asked
about the very few pairs where rounding denies a certificate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dyclu.compute import kernels
from dyclu.homogeneity import critical_units, homogeneity
from dyclu.noise import Noise
from dyclu.policy import Ids
from dyclu.segments import Segments
from dyclu.stats import ROUNDING
from dyclu.validation import FloatArray


class Neighbours(NamedTuple):
    """The rows of all segments like one, in order, and bounds on how far each is from it."""

    rows: Ids
    bounds: FloatArray


def neighbours(book: Segments, mine: int, *, noise: Noise, level: float) -> Neighbours:
    """Return all segments, open and closed, that are homogeneous with mine (line 17).

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
    size, units = len(book), critical_units(book.dim, noise.df, level)
    (known, bounds), (alike, fresh, undecided) = book.known(mine), book.space
    found, left = kernels().compare(
        book.gram, book.inverse, book.theta, book.glimpse, book.spread, book.strain, book.rank,
        book.count, size, mine, units, noise.variance or 1.0, ROUNDING,
        known, bounds, alike, fresh, undecided,
    )  # fmt: skip
    same = Neighbours(alike[:found].copy(), fresh[:found].copy())
    return _joined(same, _defined(book, mine, undecided[:left], noise, level)) if left else same


def _joined(same: Neighbours, more: Ids) -> Neighbours:
    rows = np.append(same.rows, more)
    bounds = np.append(same.bounds, np.full((len(more), 2), np.inf), axis=0)
    order = np.argsort(rows)
    return Neighbours(rows[order], bounds[order])


def _defined(book: Segments, mine: int, others: Ids, noise: Noise, level: float) -> Ids:
    my = book.stats(mine)
    alike = [homogeneity(my, book.stats(row), noise=noise).p_value >= level for row in others]
    return others[alike]
