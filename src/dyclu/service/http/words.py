"""What models like: the features by which each of them differs from the average of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from dyclu.data import Features
from dyclu.data.vectors.columns import OTHER, Category
from dyclu.data.vectors.layout import AND
from dyclu.data.vectors.vectors import INTERCEPT
from dyclu.data.vectors.weights import Weight, ranked
from dyclu.policy import Model
from dyclu.service.engine.state import State
from dyclu.service.schema import FeatureWeight
from dyclu.validation import FloatArray

MOST = 3
"""Features that a model is said to like, and to dislike."""

SLIGHT = 0.25
"""A feature whose difference is below this share of the model's largest one is left out."""

ASKED = 1000
"""Users, those seen last, whose rewards are averaged by model."""

Tastes = tuple[list[FeatureWeight], list[FeatureWeight]]
"""Liked and disliked features."""


def tastes_of(models: Sequence[Model], features: Features | None) -> list[Tastes]:
    """Return what each model likes and dislikes more than the average of models.

    Models count by their observations, and so by their users, also by those who are in doubt and
    follow none for certain. The intercept is no taste, and is left out.

    >>> one, two = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    >>> models = [Model(1, 60, one, 3, 0, 0), Model(2, 20, two, 1, 0, 0)]
    >>> for likes, dislikes in tastes_of(models, None):
    ...     print(likes, dislikes)
    [FeatureWeight(feature='x0', weight=0.5)] [FeatureWeight(feature='x1', weight=-0.25)]
    [FeatureWeight(feature='x1', weight=0.75)] [FeatureWeight(feature='x0', weight=-1.5)]
    """
    if not models:
        return []
    sizes = np.array([model.size for model in models], dtype=np.float64)
    estimates = np.array([model.estimate for model in models])
    average = np.average(estimates, axis=0, weights=sizes if sizes.any() else None)
    return [_taste(estimate - average, features) for estimate in estimates]


def _taste(difference: FloatArray, features: Features | None) -> Tastes:
    weights = _named(difference, features)
    least = SLIGHT * max((abs(one.weight) for one in weights), default=0.0)
    told = [
        FeatureWeight(one.name, one.weight)
        for one in weights
        if one.weight and abs(one.weight) >= least
    ]
    likes = [one for one in told if one.weight > 0]
    return likes[:MOST], [one for one in told if one.weight < 0][:MOST]


def _named(difference: FloatArray, features: Features | None) -> list[Weight]:
    """Return the weights of a difference of estimates, the largest first."""
    if features is None:
        return list(ranked([f"x{place}" for place in range(len(difference))], difference, None))
    weights = {one.name: one.weight for one in features.explain(difference)}
    weights.pop(INTERCEPT, None)
    for arm, crossed, unseen in _crosses(features):
        if arm in weights:
            common = sum(weights[name] for name in crossed) / len(crossed)
            weights[arm] += common
            for name in crossed:
                weights[name] -= common
            weights.pop(unseen, None)
    return list(ranked(list(weights), np.array(list(weights.values())), None))


def _crosses(features: Features) -> Iterator[tuple[str, list[str], str]]:
    """Yield features of arms with their crosses with the values of one category of the context.

    A context has one value of a category. So what all crosses of a feature have in common belongs
    to the feature: ``genre=jazz``, and not ``country=de & genre=jazz`` and so on for each country.
    Values without a feature of their own (*other*) may never have been seen, and are told apart.
    """
    for theirs, ours in features.declaration["cross"]:
        column = features.context[theirs]
        if isinstance(column, Category) and column.values is not None:
            for arm in features.arm[ours].names(ours):
                values = [f"{theirs}={value}{AND}{arm}" for value in column.values]
                yield arm, values, f"{theirs}={OTHER}{AND}{arm}"


def mean_rewards(state: State) -> dict[int, float]:
    """Return the mean reward of the users of each model, of the `ASKED` users seen last.

    Only policies whose outcomes name no segment are asked: others locate a user slowly.
    """
    sums: dict[int, tuple[int, float]] = {}
    for user, counters in islice(reversed(state.users.items()), ASKED):
        if counters.segment is not None or not counters.rewards:
            continue
        model = state.policy.locate(user).model
        if model is not None:
            count, total = sums.get(model, (0, 0.0))
            sums[model] = (count + counters.rewards, total + counters.total)
    return {model: total / count for model, (count, total) in sums.items()}
