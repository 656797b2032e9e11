"""Features of items from tables of counts: TF-IDF, singular value decomposition, scaling.

An item is what an event offers: an artist or a film. A column is one of its attributes, such as a
tag.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from dyclu.errors import OptionError
from dyclu.validation import FloatArray, Ids

Scaling = Literal["largest", "unit", "none"]

DIGITS = 9
"""Decimals, relative to the largest feature, to which features are rounded before scaling.

The last digits depend on the number of threads of the linear algebra. Some items' features are
rounding errors only, and `scaling="unit"` would give them the length of all others.
"""


def tf_idf(counts: Any) -> Any:
    """Return each tag's TF-IDF for each item, ``count · log(items / items with the tag)``.

    Takes and returns a sparse array of shape (items, tags). A tag that every item has gets 0.

    >>> tf_idf(csr_array([[2.0, 1.0], [0.0, 3.0]])).toarray()
    array([[1.386..., 0. ], [0. , 0. ]])
    """
    items = counts.shape[0]
    return counts * np.log(items / (counts > 0).sum(axis=0))


def counts(item: Ids, tag: NDArray[Any], items: int) -> Any:
    """Return how often each item was given each tag: sparse, shape (items, tags)."""
    tags, tag = np.unique(tag, return_inverse=True)
    return csr_array((np.ones(len(item)), (item, tag)), shape=(items, len(tags)))


def reduced(table: Any, dim: int) -> FloatArray:
    """Return the coordinates of the rows along the first `dim` singular directions."""
    least = min(table.shape)
    if dim >= least:
        raise OptionError(
            f"dim is {dim}, and there are {table.shape[0]} items with {table.shape[1]} attributes, "
            f"expected fewer features than either; pass dim={least - 1} or lower"
        )
    start = np.random.default_rng(0).standard_normal(least)
    _, values, directions = svds(table, k=dim, v0=start)
    directions = directions[np.argsort(-values)]
    # The sign of a direction is arbitrary: its largest entry is made positive.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    coordinates: FloatArray = table @ (directions * np.sign(largest)).T
    return _rounded(coordinates)


def _rounded(features: FloatArray) -> FloatArray:
    """Return the features rounded to `DIGITS`, without the digits that are rounding errors.

    >>> _rounded(np.array([4.0, 1.0 + 4e-16, 3e-21]))
    array([4., 1., 0.])
    """
    # A power of two, not the largest feature, which has rounding errors itself.
    unit = 2.0 ** np.frexp(np.abs(features).max())[1]
    # + 0.0 turns −0.0 into 0.0: equal features get equal bits.
    rounded: FloatArray = unit * (features / unit).round(DIGITS) + 0.0
    return rounded


def scaled(features: FloatArray, scaling: Scaling) -> FloatArray:
    """Return the features divided by the largest norm, by each row's own norm, or unchanged."""
    if scaling == "none":
        return features
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    divisor = norms.max(keepdims=True) if scaling == "largest" else norms
    # An item without informative attributes keeps features of zero.
    scaled: FloatArray = features / np.where(divisor > 0, divisor, 1.0)
    return scaled
