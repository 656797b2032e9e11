"""`neighbours`: the segments that are homogeneous with one segment (line 17 of Algorithm 1).

The answer is exactly that of `core.homogeneity`, at a fraction of the cost. Let ``δ = ϑ₁ − ϑ₂`` be
the difference of the estimates of two segments, ``q₁ = δᵀA₁δ`` and ``q₂ = δᵀA₂δ``. Bounds on the
statistic need no factorisation:

- Lower: ``σ² s ≥ (vᵀδ)² / vᵀ(A₁⁻ + A₂⁻)v`` for any `v` in the range of both (Cauchy-Schwarz).
  With ``v = δ`` and bounds on the eigenvalues of the inverses this is
  ``‖δ‖² / (‖A₁⁻¹‖ + ‖A₂⁻¹‖)`` if both segments span the space. It costs O(d) and excludes nearly
  all segments that differ. With ``v = A₁δ`` it is ``q₁² / (q₁ + vᵀA₂⁻¹v)`` if the second segment
  spans the space; with ``v = A₂δ`` the same with exchanged roles.
- Upper: ``σ² s ≤ q₁ q₂ / (q₁ + q₂)``. The statistic is the minimum of
  ``‖ϑ − ϑ₁‖²_A₁ + ‖ϑ − ϑ₂‖²_A₂`` over all ϑ; this is the minimum on the line from ϑ₁ to ϑ₂.

A pair that was alike is not compared again for a while. Add an observation with leverage
``h = xᵀA₁⁻x`` and error ``e = y − xᵀϑ₁`` to the first segment. The new statistic is the minimum
over ϑ of the same sum plus ``(y − xᵀϑ)²``, minus ``e² / (1 + h)``. At the old minimum
``|y − xᵀϑ| ≤ |e| + √(h σ² s)``, again by Cauchy-Schwarz, and therefore

    ``√(σ² s') ≤ √(1 + h) √(σ² s) + |e| √(h / (1 + h))``.

`SegmentTable.growth` adds up the logarithms of the factors and the summands for every segment.
Together with their values at the last comparison they bound the statistic now, without matrices. A
third number counts how often a segment observed a new direction or was computed afresh; every such
event invalidates its bounds.

Only pairs that the bounds leave open are factorised. If neither segment spans the space, the same
elimination certifies the rank of their sum (`kernels.segments.narrow_squared_gap`). The very few
pairs that rounding leaves undecided go to the definition, `core.homogeneity`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dyclu import kernels
from dyclu.core.homogeneity import critical_units, homogeneity
from dyclu.core.noise import Noise
from dyclu.core.stats import ROUNDING
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.validation import FloatArray, Ids


class Neighbours(NamedTuple):
    """Rows of the segments that are alike, in ascending order, and a bound (n, 3) for each pair."""

    rows: Ids
    bounds: FloatArray


def neighbours(table: SegmentTable, mine: int, *, noise: Noise, level: float) -> Neighbours:
    """Return all segments, open and closed, that are homogeneous with the one in row `mine`.

    Parameters
    ----------
    table : SegmentTable
        All segments.
    mine : int
        Row of the segment to compare; it is always its own neighbour.
    noise : Noise
        Variance of the noise.
    level : float
        Chance of leaving out a segment that does share the parameter.
    """
    units = critical_units(table.dim, noise.df, level)
    (known, bounds), out = table.known(mine), table.work
    found, left = kernels.neighbours.compare(
        *table.arrays, len(table), mine, units, noise.variance or 1.0, ROUNDING,
        known, bounds, out.alike, out.bounds, out.undecided,
    )  # fmt: skip
    certain = Neighbours(out.alike[:found].copy(), out.bounds[:found].copy())
    if not left:
        return certain
    return _joined(certain, _by_definition(table, mine, out.undecided[:left], noise, level))


def _joined(certain: Neighbours, more: Ids) -> Neighbours:
    rows = np.append(certain.rows, more)
    bounds = np.append(certain.bounds, np.full((len(more), 3), -1.0), axis=0)
    order = np.argsort(rows)
    return Neighbours(rows[order], bounds[order])


def _by_definition(table: SegmentTable, mine: int, others: Ids, noise: Noise, level: float) -> Ids:
    my = table.stats(mine)
    alike = [homogeneity(my, table.stats(row), noise=noise).p_value >= level for row in others]
    return others[alike]
