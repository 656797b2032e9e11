"""`Stats`: the four sums that the library keeps of a set of observations.

Least squares, its residual and the test of homogeneity need only ``Σxxᵀ``, ``Σxy``, ``Σy²`` and the
number of the observations ``(x, y)``. Sums can be added: the model of a group of users is the sum
of the users' models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.errors import ShapeError
from dyclu.validation import FloatArray, as_dim, as_observations

ROUNDING = 4 * np.finfo(float).eps
"""Relative rounding error of one addition to a gram, with some margin.

A direction counts as observed if its eigenvalue (of the gram scaled to a unit diagonal) exceeds
``ROUNDING (dim + count)`` times the largest one. The rounding errors of `count` additions stay
below that, even if all have the same sign.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """Sufficient statistics of a set of observations; ``a + b`` are those of both sets together.

    Attributes
    ----------
    gram : array of shape (dim, dim)
        ``A = Σ xxᵀ``.
    moment : array of shape (dim,)
        ``b = Σ x y``.
    energy : float
        ``Σ y²``.
    count : int
        Number of observations.

    Examples
    --------
    Rewards 1 and 3 for the same context: the estimate is 2 in one direction, the rank is 1.

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
        for name in ("gram", "moment"):
            own = np.array(getattr(self, name), dtype=np.float64)
            own.flags.writeable = False
            object.__setattr__(self, name, own)

    def __reduce__(self) -> tuple[type[Stats], tuple[FloatArray, FloatArray, float, int]]:
        return Stats, (self.gram, self.moment, self.energy, self.count)

    @classmethod
    def empty(cls, dim: int) -> Stats:
        """Return the statistics of no observations: all zeros."""
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
        """Least-squares estimate ``ϑ = A⁻b``; the shortest one if there are several."""
        return minimum_norm(self.gram, self.moment, self.count)

    @property
    def rank(self) -> int:
        """Number of linearly independent contexts."""
        return int(rank(self.gram, self.count))

    @property
    def seen(self) -> FloatArray:
        """The gram without rounding errors in directions that were not observed."""
        return self.gram if self.rank == self.dim else seen_gram(self.gram, self.count)

    @property
    def residual(self) -> float:
        """Sum of squared residuals, ``Σ(y − xᵀϑ)² = Σy² − bᵀϑ``."""
        return max(0.0, self.energy - float(self.moment @ self.theta))


def overlap(a: Stats, b: Stats) -> tuple[int, int]:
    """Return the number of directions that both have observed, and that at least one has.

    ``rank(A₁) + rank(A₂) − rank(A₁ + A₂)`` and ``rank(A₁ + A₂)``. The latter is at least
    ``rank(A₁)`` and ``rank(A₂)``, also if the scales differ so much that rounding would hide it.

    >>> overlap(Stats.of([[1, 0], [0, 1]], [1, 2]), Stats.of([1, 1], 3))
    (1, 2)
    """
    ranks = a.rank, b.rank
    either = max((a + b).rank, *ranks)
    return max(0, sum(ranks) - either), either


def rank(gram: FloatArray, count: ArrayLike) -> NDArray[np.intp]:
    """Return the rank of a gram of `count` contexts, or of each gram of a stack ``(..., d, d)``.

    The gram is first scaled to a unit diagonal. That does not change the rank, and the result does
    not depend on the units of the features.

    >>> int(rank(np.diag([1e12, 1e-12, 0.0]), 2))
    2
    """
    values = np.linalg.eigvalsh(_equilibrated(gram)[0])
    return np.asarray(np.count_nonzero(_seen(values, count), axis=-1))


def pseudo_inverse(gram: FloatArray, count: ArrayLike) -> FloatArray:
    """Return a generalised inverse ``A⁻`` of each gram of a stack ``(..., d, d)``.

    With ``A = S C S``, `S` the square roots of the diagonal, and ``C = V Λ Vᵀ`` restricted to the
    observed directions, it is ``S⁻¹ V Λ⁻¹ Vᵀ S⁻¹``: symmetric, and the inverse if `A` has one.
    """
    values, vectors, scale = _spectrum(gram, count)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
    half = vectors / scale[..., :, None]
    return _sandwich(half, inverse)


def least_squares(
    gram: FloatArray, moment: FloatArray, count: int
) -> tuple[int, FloatArray, FloatArray]:
    """Return rank, generalised inverse and an estimate ``A⁻b``, from one decomposition.

    The estimate is not computed as inverse times `b`, which would lose digits if the gram is badly
    conditioned.

    >>> least_squares(np.diag([2.0, 0.0]), np.array([4.0, 0.0]), 2)
    (1, array([[0.5, 0. ],
           [0. , 0. ]]), array([2., 0.]))
    """
    values, vectors, scale = _spectrum(gram, count)
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
    theta = (vectors @ ((vectors.T @ (moment / scale)) * inverse)) / scale
    half = vectors / scale[:, None]
    return int(np.count_nonzero(values)), _sandwich(half, inverse), theta


def seen_gram(gram: FloatArray, count: ArrayLike) -> FloatArray:
    """Return each gram of a stack, restricted to the observed directions: ``S V Λ Vᵀ S``."""
    values, vectors, scale = _spectrum(gram, count)
    return _sandwich(vectors * scale[..., :, None], values)


def minimum_norm(gram: FloatArray, moment: FloatArray, count: int) -> FloatArray:
    """Return the shortest solution of ``A ϑ = b``: the projection of any solution on A's range.

    >>> minimum_norm(np.array([[2.0, 2.0], [2.0, 2.0]]), np.array([2.0, 2.0]), 2)
    array([0.5, 0.5])
    """
    values, vectors, scale = _spectrum(gram, count)
    vectors, values = vectors[:, values > 0], values[values > 0]
    theta = (vectors @ ((vectors.T @ (moment / scale)) / values)) / scale
    if len(values) < len(moment):
        basis = np.linalg.qr(vectors * scale[:, None])[0]
        theta = basis @ (basis.T @ theta)
    return np.asarray(theta)


def _spectrum(gram: FloatArray, count: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return eigenvalues (0 if not observed) and eigenvectors of the scaled gram, and the scale."""
    scaled, scale = _equilibrated(gram)
    values, vectors = np.linalg.eigh(scaled)
    return np.where(_seen(values, count), values, 0.0), vectors, scale


def _sandwich(half: FloatArray, values: FloatArray) -> FloatArray:
    return np.asarray((half * values[..., None, :]) @ np.swapaxes(half, -1, -2))


def _equilibrated(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    scale = np.sqrt(np.einsum("...ii->...i", gram))
    scale = np.where(scale > 0, scale, 1.0)
    return gram / scale[..., :, None] / scale[..., None, :], scale


def _seen(values: NDArray[np.floating[Any]], count: ArrayLike) -> NDArray[np.bool_]:
    tolerance = ROUNDING * (values.shape[-1] + np.asarray(count))
    return np.asarray(values > tolerance[..., None] * np.maximum(values[..., -1:], 0.0))
