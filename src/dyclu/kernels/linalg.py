"""Small dense linear algebra: products, factorisation, inverse, bounds on eigenvalues."""

from __future__ import annotations

import math

import numpy as np

from dyclu.kernels.compiling import compiled
from dyclu.validation import FloatArray


@compiled
def dot(a: FloatArray, b: FloatArray) -> float:
    """Return ``aᵀb``."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled
def two_dots(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> tuple[float, float]:
    """Return ``max(aᵀb, 0)`` and ``max(cᵀd, 0)``, computed in one loop."""
    first, second = 0.0, 0.0
    for i in range(len(a)):
        first += a[i] * b[i]
        second += c[i] * d[i]
    return max(first, 0.0), max(second, 0.0)


@compiled
def times(matrix: FloatArray, vector: FloatArray, out: FloatArray) -> None:
    """Set `out` to ``A v``, four rows at a time."""
    d = len(vector)
    out[:] = 0.0
    for i in range(0, d - 3, 4):
        a, b, c, e = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        p, q, r, s = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(d):
            out[j] += (a * p[j] + b * q[j]) + (c * r[j] + e * s[j])
    for i in range(d - d % 4, d):
        weight, row = vector[i], matrix[i]
        for j in range(d):
            out[j] += weight * row[j]


@compiled
def add_outer(matrix: FloatArray, vector: FloatArray, weight: float) -> None:
    """Add ``w v vᵀ`` to a matrix; the result is exactly symmetric if the matrix was.

    If the two sides of the diagonal were rounded differently, the asymmetric part of an inverse
    would stay while the rest shrinks, and would dominate in the end.
    """
    for i in range(len(vector)):
        part, row = vector[i], matrix[i]
        for j in range(len(vector)):
            row[j] += weight * (part * vector[j])


@compiled
def trace(matrix: FloatArray) -> float:
    """Return the sum of the diagonal."""
    total = 0.0
    for i in range(len(matrix)):
        total += matrix[i, i]
    return total


@compiled
def norm(matrix: FloatArray) -> float:
    """Return the Frobenius norm, an upper bound on the eigenvalues of a symmetric matrix."""
    squares, total = np.zeros(len(matrix)), 0.0
    for i in range(len(matrix)):
        row = matrix[i]
        for j in range(len(matrix)):
            squares[j] += row[j] * row[j]
    for j in range(len(matrix)):
        total += squares[j]
    return math.sqrt(total)


@compiled
def eigenvalue_bound(matrix: FloatArray) -> float:
    """Return an upper bound on the largest eigenvalue of a symmetric matrix.

    The bound is ``‖A⁴‖^¼ = (Σ λ⁸)^⅛`` (Frobenius norm), at most ``d^⅛`` times the eigenvalue.
    """
    d, scale = len(matrix), norm(matrix)
    if not (scale > 0.0 and math.isfinite(scale)):
        return scale
    power, product = matrix / scale, np.empty((d, d))
    for _ in range(2):
        for i in range(d):
            times(power, power[i], product[i])
        power, product = product, power
    return scale * math.sqrt(math.sqrt(norm(power)))


@compiled
def factorise(table: FloatArray) -> bool:
    """Overwrite ``(A | R)`` by ``(U | U⁻ᵀR)``, ``A = UᵀU``; return False if `A` is not positive.

    `A` is the leading square block of the table. Entries below the diagonal are not changed.
    """
    width = table.shape[1]
    for k in range(len(table)):
        row = table[k]
        for i in range(0, k - 3, 4):
            p, q, r, s = table[i], table[i + 1], table[i + 2], table[i + 3]
            a, b, c, e = p[k], q[k], r[k], s[k]
            for j in range(k, width):
                row[j] -= (a * p[j] + b * q[j]) + (c * r[j] + e * s[j])
        for i in range(k - k % 4, k):
            part, other = table[i, k], table[i]
            for j in range(k, width):
                row[j] -= part * other[j]
        if not row[k] > 0.0:
            return False
        pivot = 1.0 / math.sqrt(row[k])
        for j in range(k, width):
            row[j] *= pivot
    return True


@compiled
def invert(gram: FloatArray, ridge: float, out: FloatArray) -> bool:
    """Set `out` to ``(A + λI)⁻¹``; return False if that matrix is not positive.

    With ``A + λI = UᵀU``: first ``U⁻ᵀ``, which is lower triangular, then ``U⁻¹U⁻ᵀ``.
    """
    d = len(gram)
    factor = gram.copy()
    for i in range(d):
        factor[i, i] += ridge
    if not factorise(factor):
        return False
    out[:] = 0.0
    for k in range(d):
        row, pivot = out[k], 1.0 / factor[k, k]
        row[k] = 1.0
        for j in range(k + 1):
            row[j] *= pivot
        for i in range(k + 1, d):
            part, other = factor[k, i], out[i]
            for j in range(k + 1):
                other[j] -= part * row[j]
    for k in range(d - 1, -1, -1):
        row, pivot = out[k], 1.0 / factor[k, k]
        for i in range(k + 1, d):
            part, other = factor[k, i], out[i]
            for j in range(d):
                row[j] -= part * other[j]
        for j in range(d):
            row[j] *= pivot
    return True


@compiled
def exchange(matrix: FloatArray, a: FloatArray, b: FloatArray, i: int, j: int) -> None:
    """Swap features `i` and `j` of a matrix and of two vectors."""
    if i == j:
        return
    a[i], a[j] = a[j], a[i]
    b[i], b[j] = b[j], b[i]
    for k in range(len(a)):
        matrix[i, k], matrix[j, k] = matrix[j, k], matrix[i, k]
    for k in range(len(a)):
        matrix[k, i], matrix[k, j] = matrix[k, j], matrix[k, i]


@compiled
def inverse_trace(eliminated: FloatArray, rank: int) -> float:
    """Return trace(B⁻¹) of the leading block of `rank` rows, from its eliminated upper triangle.

    ``B = M D Mᵀ``, so the trace is the sum of the squares of ``M⁻¹``, each row over its pivot.
    """
    total, column = 0.0, np.empty(rank)
    for first in range(rank):
        column[first:] = 0.0
        column[first] = 1.0
        for i in range(first, rank):
            row = eliminated[i]
            share = column[i] / row[i]
            total += share * column[i]
            for j in range(i + 1, rank):
                column[j] -= share * row[j]
    return total


@compiled
def extended(x: FloatArray) -> FloatArray:
    """Return the context with a 1 appended, the feature of the intercept."""
    z = np.empty(len(x) + 1)
    z[:-1] = x
    z[-1] = 1.0
    return z
