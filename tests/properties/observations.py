"""Strategies for sets of observations, also rank-deficient ones, and Eq. (1) from raw data."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]
Raw = tuple[Array, Array]

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def pairs(draw: st.DrawFn, *, most_dim: int = 6, most: int = 14) -> tuple[Raw, Raw]:
    """Draw two sets of observations: contexts generic, repeated, collinear, integer or zero."""
    rng = np.random.default_rng(draw(SEEDS))
    dim = draw(st.integers(1, most_dim))
    return tuple(_raw(draw, rng, dim, most) for _ in range(2))  # type: ignore[return-value]


def _raw(draw: st.DrawFn, rng: np.random.Generator, dim: int, most: int) -> Raw:
    n = draw(st.integers(0, most))
    kind = draw(st.sampled_from(["generic", "whole", "subspace", "repeated", "zeros"]))
    return contexts(rng, kind, n, dim), rng.normal(size=n)


def contexts(rng: np.random.Generator, kind: str, n: int, dim: int) -> Array:
    """Return n contexts whose rank is certain: singular values are exactly 0 or far from 0."""
    if kind == "generic":
        return rng.normal(size=(n, dim))
    if kind == "whole":
        return rng.integers(-2, 3, size=(n, dim)).astype(float)
    if kind == "subspace":
        inside = max(1, dim // 2)
        basis = rng.integers(-1, 2, size=(inside, dim)).astype(float)
        return np.asarray(rng.normal(size=(n, inside)) @ basis)
    if kind == "repeated":
        return rng.normal(size=(2, dim))[rng.integers(0, 2, size=n)]
    return np.zeros((n, dim))


def well_separated(*matrices: Array) -> bool:
    """Return whether no singular value is between zero and clearly positive, so rank is certain."""
    for X in matrices:
        values = np.linalg.svd(X, compute_uv=False) if X.size else np.zeros(0)
        top = values.max(initial=0.0)
        if ((values > 1e-13 * top) & (values < 1e-3 * top)).any():
            return False
    return True


def statistic_from_raw_data(one: Raw, two: Raw, noise: float) -> tuple[float, int]:
    """Return Eq. (1) and df, as printed: from design matrices and Moore-Penrose inverses."""
    (X1, y1), (X2, y2) = one, two
    X12, y12 = np.vstack((X1, X2)), np.concatenate((y1, y2))
    t1, t2, t12 = (np.linalg.pinv(X) @ y for X, y in ((X1, y1), (X2, y2), (X12, y12)))
    s = np.sum((X1 @ (t1 - t12)) ** 2) + np.sum((X2 @ (t2 - t12)) ** 2)
    df = rank_of(X1) + rank_of(X2) - rank_of(X12)
    return float(s / noise**2), df


def rank_of(X: Array) -> int:
    return int(np.linalg.matrix_rank(X)) if X.size else 0


def as_stats(raw: Raw) -> Any:
    from dyclu import Stats

    return Stats.of(*raw) if len(raw[1]) else Stats.empty(raw[0].shape[1])
