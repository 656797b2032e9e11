"""Large tables of segments, drawn from the distribution that learning would give them.

Of `n` Gaussian contexts ``x ~ N(0, I/d)`` the gram is Wishart, and its Cholesky factor `L` has
independent entries (Bartlett): chi on the diagonal, normal below. A policy that chooses the best of
ten arms sees contexts that are longer in the direction of θ,
``Sx``, and a gram ``A = SLLᵀS``. Given the contexts, the moment is ``Aθ + σSLz`` with `z` standard
normal, and the rest of the noise's energy is χ² with ``n − d`` degrees of freedom. Drawing a
hundred thousand segments takes seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.sim.worlds.population import Population
from dyclu.validation import FloatArray

PARAMETERS = 10
NOISE = 0.09
SHORTEST, LONGEST = 100, 2_000
"""Observations of a segment."""

CHOSEN = 2.71
"""Mean square of the largest of ten standard normals: squared size of a chosen context along θ."""

SPANNING = 4
"""Least number of observations per feature in every segment."""

CHUNK = 4_096
"""Number of segments that are drawn at once."""

Arrays = dict[str, NDArray[Any]]


def grown(segments: int, dim: int, *, seed: int = 0) -> SegmentTable:
    """Return a table of closed segments, of users who share ten parameters.

    >>> len(grown(3, dim=5))
    3
    """
    rng = np.random.default_rng(seed)
    parameters = (
        Population(users=1, parameters=PARAMETERS, dim=dim, rounds=1).world(seed).parameters
    )
    sizes = [min(CHUNK, segments - start) for start in range(0, segments, CHUNK)]
    parts = [_chunk(rng, size, parameters) for size in sizes]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays["id"] = np.arange(segments)
    owners = list(range(segments))
    state = {"clock": 0, "given": segments, "owner": owners, "residuals": {}, "changes": []}
    return SegmentTable.restored(dim, state, arrays | _no_open_segments())


def _chunk(rng: np.random.Generator, size: int, parameters: FloatArray) -> Arrays:
    dim = parameters.shape[1]
    least = max(SHORTEST, SPANNING * dim)
    count = rng.integers(least, max(LONGEST, least), size=size, endpoint=True)
    truth = parameters[rng.integers(len(parameters), size=size)]
    factor = _stretched_along(truth) @ _bartlett(rng, count, dim)
    gram = factor @ np.swapaxes(factor, 1, 2)
    inside = rng.standard_normal((size, dim))
    shift = NOISE * np.einsum("nij,nj->ni", factor, inside)
    explained = np.einsum("nij,nj->ni", gram, truth)
    left = (inside**2).sum(axis=1) + rng.chisquare(count - dim)
    energy = (truth * (explained + 2 * shift)).sum(axis=1) + NOISE**2 * left
    sums = {"gram": gram, "moment": explained + shift, "energy": energy, "count": count}
    return sums | _derived(gram, explained + shift) | _times(size)


def _bartlett(rng: np.random.Generator, count: NDArray[np.int64], dim: int) -> FloatArray:
    factor = np.tril(rng.standard_normal((len(count), dim, dim)), k=-1)
    diagonal = np.sqrt(rng.chisquare(count[:, None] - np.arange(dim)))
    factor[:, np.arange(dim), np.arange(dim)] = diagonal
    return np.asarray(factor / np.sqrt(dim))


def _stretched_along(truth: FloatArray) -> FloatArray:
    along = truth[:, :, None] * truth[:, None, :]
    return np.asarray(np.eye(truth.shape[1]) + (np.sqrt(CHOSEN) - 1) * along)


def _derived(gram: FloatArray, moment: FloatArray) -> Arrays:
    inverse = np.linalg.inv(gram)
    return {
        "inverse": inverse,
        "theta": np.einsum("nij,nj->ni", inverse, moment),
        "spread": np.array([kernels.linalg.eigenvalue_bound(matrix) for matrix in inverse]),
        "rank": np.full(len(gram), gram.shape[1]),
    }


def _times(size: int) -> Arrays:
    return {name: np.zeros(size, np.int64) for name in ("opened", "closed", "met", "used")}


def _no_open_segments() -> Arrays:
    lists = ("surprises", "surprises_held", "neighbours", "neighbours_held")
    return {name: np.zeros(0, np.int64) for name in lists}
