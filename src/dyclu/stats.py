"""`Stats`: all that is ever kept of a set of observations.

Least squares, its residual and the test of homogeneity need the observations ``(x, y)`` only
through four sums, ``Σxxᵀ``, ``Σxy``, ``Σy²`` and their number. Sums add up: the model of a group of
users is the sum of their models, however long each of them has lived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.errors import ShapeError
from dyclu.validation import FloatArray, as_dim, as_observations

RANK_TOLERANCE = 1e-10
"""A direction counts as seen if its share of the equilibrated gram's largest eigenvalue is larger.

A gram summed over a million contexts carries rounding of some 1e-13; below 1e-10 it has too few
true digits left to be used.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """Additive sufficient statistics of a set of observations.

    Attributes
    ----------
    gram : array of shape (dim, dim)
        ``A = Σ xxᵀ``.
    moment : array of shape (dim,)
        ``b = Σ x y``.
    energy : float
        ``Σ y²``.
    count : int
        How many observations.

    Examples
    --------
    Rewards 1 and 3 for the same context add up to an estimate of 2, in one direction of two:

    >>> stats = Stats.of([1, 0], 1) + Stats.of([1, 0], 3)
    >>> stats.theta
    array([2., 0.])
    >>> stats.rank, stats.count, stats.residual
    (1, 2, 2.0)
    """

    gram: FloatArray
    moment: FloatArray
    energy: float
    count: int

    def __post_init__(self) -> None:
        self.gram.flags.writeable = False
        self.moment.flags.writeable = False

    @classmethod
    def empty(cls, dim: int) -> Stats:
        """Return the statistics of no observations, the neutral element of addition."""
        dim = as_dim(dim)
        return cls(np.zeros((dim, dim)), np.zeros(dim), 0.0, 0)

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike) -> Stats:
        """Return the statistics of contexts ``(n, dim)`` and rewards ``(n,)``, or of one pair."""
        X, y = as_observations(X, y)
        return cls(X.T @ X, X.T @ y, float(y @ y), len(y))

    def __add__(self, other: Stats) -> Stats:
        if not isinstance(other, Stats):
            return NotImplemented
        if self.dim != other.dim:
            raise ShapeError(
                f"cannot add statistics of {self.dim} and {other.dim} features; "
                "both must be made from contexts of the same length"
            )
        return Stats(
            self.gram + other.gram,
            self.moment + other.moment,
            self.energy + other.energy,
            self.count + other.count,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stats):
            return NotImplemented
        return (
            (self.energy, self.count) == (other.energy, other.count)
            and np.array_equal(self.gram, other.gram)
            and np.array_equal(self.moment, other.moment)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def dim(self) -> int:
        """Number of features."""
        return len(self.moment)

    @property
    def theta(self) -> FloatArray:
        """Least-squares estimate ``ϑ = A⁻b``, of minimum norm where the contexts leave a choice."""
        return minimum_norm(self.gram, pseudo_inverse(self.gram) @ self.moment)

    @property
    def rank(self) -> int:
        """Number of linearly independent contexts."""
        return int(rank(self.gram))

    @property
    def residual(self) -> float:
        """Sum of squared residuals, ``Σ(y − xᵀϑ)² = Σy² − bᵀϑ``."""
        return max(0.0, self.energy - float(self.moment @ self.theta))


def overlap(a: Stats, b: Stats) -> tuple[int, int]:
    """Return in how many directions both were observed, and in how many either was.

    ``rank(A₁) + rank(A₂) − rank(A₁ + A₂)`` and ``rank(A₁ + A₂)``. Together they span what each of
    them spans; the second is at least that, also where different scales let rounding deny it.

    >>> overlap(Stats.of([[1, 0], [0, 1]], [1, 2]), Stats.of([1, 1], 3))
    (1, 2)
    """
    ranks = a.rank, b.rank
    either = max((a + b).rank, *ranks)
    return max(0, sum(ranks) - either), either


def rank(gram: FloatArray) -> NDArray[np.intp]:
    """Return the rank of one gram ``(d, d)``, or of each of a stack ``(..., d, d)``.

    The gram is first scaled to a unit diagonal, which leaves its rank alone and makes it
    independent of the units the features are measured in.

    >>> int(rank(np.diag([1e12, 1e-12, 0.0])))
    2
    """
    values = np.linalg.eigvalsh(_equilibrated(gram)[0])
    return np.asarray(np.count_nonzero(_seen(values), axis=-1))


def pseudo_inverse(gram: FloatArray, *, at_least: ArrayLike = 0) -> FloatArray:
    """Return a generalised inverse ``A⁻`` (``A A⁻ A = A``) of each gram of a stack ``(..., d, d)``.

    With ``A = S C S``, `S` the square roots of the diagonal and ``C = V Λ Vᵀ`` over the directions
    seen, it is ``S⁻¹ V Λ⁻¹ Vᵀ S⁻¹``: symmetric, and the inverse where there is one.

    Parameters
    ----------
    gram : array of shape (..., d, d)
        ``A``, symmetric and positive semi-definite.
    at_least : int or array of int
        A rank known from elsewhere: that many directions are used even where rounding hides them.
    """
    scaled, scale = _equilibrated(gram)
    values, vectors = np.linalg.eigh(scaled)
    order_from_top = np.arange(gram.shape[-1])[::-1]
    used = _seen(values) | (order_from_top < np.asarray(at_least)[..., None])
    floor = np.maximum(np.finfo(float).eps * values[..., -1:], np.finfo(float).tiny)
    inverse = np.where(used, 1.0 / np.maximum(values, floor), 0.0)
    half = vectors / scale[..., :, None]
    return (half * inverse[..., None, :]) @ np.swapaxes(half, -1, -2)


def minimum_norm(gram: FloatArray, solution: FloatArray) -> FloatArray:
    """Return the shortest of all vectors that solve what `solution` does: its part in range(A)."""
    scaled, scale = _equilibrated(gram)
    values, vectors = np.linalg.eigh(scaled)
    basis = np.linalg.qr(scale[:, None] * vectors[:, _seen(values)])[0]
    return basis @ (basis.T @ solution)


def _equilibrated(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    scale = np.sqrt(np.einsum("...ii->...i", gram))
    scale = np.where(scale > 0, scale, 1.0)
    return gram / scale[..., :, None] / scale[..., None, :], scale


def _seen(values: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    return np.asarray((values > RANK_TOLERANCE * values[..., -1:]) & (values > 0))
