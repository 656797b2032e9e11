"""Weights: numbers over features, with the features' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class Weight:
    """What one named feature adds to a reward.

    Attributes
    ----------
    name : str
        The feature, such as ``category=jazz``.
    weight : float
        How much the expected reward grows with it.
    """

    name: str
    weight: float


def ranked(names: Sequence[str], weights: FloatArray, top: int | None) -> tuple[Weight, ...]:
    """Return the weights with their names, the largest magnitude first; the `top` ones, or all.

    >>> ranked(("a", "b", "c"), np.array([1.0, -3.0, 2.0]), 2)
    (Weight(name='b', weight=-3.0), Weight(name='c', weight=2.0))
    """
    order = np.argsort(-np.abs(weights), kind="stable")[:top]
    return tuple(Weight(names[place], float(weights[place])) for place in order)
