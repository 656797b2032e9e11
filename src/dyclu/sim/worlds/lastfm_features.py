"""Artists by their tags: TF-IDF, the directions that explain most, and a scale."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from dyclu.errors import OptionError
from dyclu.validation import FloatArray, Ids

Scaling = Literal["largest", "unit", "none"]

DIGITS = 9
"""Decimals, of the largest one, that the features are rounded to before they are scaled.

Their last digits depend on how many threads the linear algebra had; some artists' features are
nothing but such digits, and would be made as long as anybody's by `scaling="unit"`.
"""


def tf_idf(counts: Any) -> Any:
    """Return how telling each tag is of each artist, ``count · log(artists / artists with it)``.

    Takes and returns a sparse array of shape (artists, tags). A tag that every artist has tells
    nothing of any.

    >>> tf_idf(csr_array([[2.0, 1.0], [0.0, 3.0]])).toarray()
    array([[1.386..., 0. ], [0. , 0. ]])
    """
    artists = counts.shape[0]
    return counts * np.log(artists / (counts > 0).sum(axis=0))


def counts(artist: Ids, tag: Ids) -> Any:
    """Return how many people gave each artist each tag, sparse, of shape (artists, tags)."""
    tags, tag = np.unique(tag, return_inverse=True)
    shape = (int(artist.max()) + 1, len(tags))
    return csr_array((np.ones(len(artist)), (artist, tag)), shape=shape)


def reduced(table: Any, dim: int) -> FloatArray:
    """Return the coordinates of the rows along the `dim` directions that explain most of them."""
    least = min(table.shape)
    if dim >= least:
        raise OptionError(
            f"dim is {dim}, and there are {table.shape[0]} artists with {table.shape[1]} tags, "
            f"expected fewer features than either; pass dim={least - 1} or lower"
        )
    start = np.random.default_rng(0).standard_normal(least)
    _, values, directions = svds(table, k=dim, v0=start)
    directions = directions[np.argsort(-values)]
    # A direction is known up to its sign: its largest entry is made positive.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    coordinates: FloatArray = table @ (directions * np.sign(largest)).T
    return _rounded(coordinates)


def _rounded(features: FloatArray) -> FloatArray:
    """Return the features without the digits that belong to nobody.

    >>> _rounded(np.array([4.0, 1.0 + 4e-16, 3e-21]))
    array([4., 1., 0.])
    """
    # A power of two: the largest feature itself has such digits too.
    unit = 2.0 ** np.frexp(np.abs(features).max())[1]
    # Minus zero would be another bit pattern for the same feature.
    rounded: FloatArray = unit * (features / unit).round(DIGITS) + 0.0
    return rounded


def scaled(features: FloatArray, scaling: Scaling) -> FloatArray:
    """Return the features divided by the longest one's norm, by each one's own, or as they are."""
    if scaling == "none":
        return features
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    divisor = norms.max(keepdims=True) if scaling == "largest" else norms
    # An artist whose tags say nothing stays at the origin.
    scaled: FloatArray = features / np.where(divisor > 0, divisor, 1.0)
    return scaled
