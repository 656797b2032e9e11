"""What users like: on average, and the features by which each model differs from the average."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.special import ndtri

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

LEVEL = 0.95
"""Probability that all features which are told of a model have the sign that is told."""

ASKED = 1000
"""Users, those seen last, whose rewards are averaged by model."""

Tastes = tuple[list[FeatureWeight], list[FeatureWeight]]
"""Liked and disliked features."""


def tastes_of(models: Sequence[Model], features: Features | None) -> list[Tastes]:
    """Return what each model likes and dislikes more than the average of models.

    Models count by their observations, and so by their users, also by those who are in doubt and
    follow none for certain. The intercept is no taste, and is left out. So are differences within
    their posterior deviations, if the policy tells these: a difference of F features is told if its
    sign has a posterior probability of at least ``1 − 0.025/F``. For a value of a category this is
    the difference beside that of the category's other values. A model that nobody follows for
    certain is told nothing of: its deviations do not contain the doubt about who follows it.

    >>> one, two = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    >>> models = [Model(1, 60, one, 3, 0, 0), Model(2, 20, two, 1, 0, 0)]
    >>> for likes, dislikes in tastes_of(models, None):
    ...     print(likes, dislikes)
    [FeatureWeight(feature='x0', weight=0.5)] [FeatureWeight(feature='x1', weight=-0.25)]
    [FeatureWeight(feature='x1', weight=0.75)] [FeatureWeight(feature='x0', weight=-1.5)]
    """
    if not models:
        return []
    average, (names, reading) = _average(models), _reading(len(models[0].estimate), features)
    contrasts, far = _contrasts(names, reading, features), _quantile(len(names))
    told: list[Tastes] = []
    for place, model in enumerate(models):
        if model.covariance is not None and not model.users:
            # The covariance is that of a model whose followers are known.
            told.append(([], []))
            continue
        difference = reading @ (model.estimate - average)
        beside = contrasts @ (model.estimate - average)
        sure = np.abs(beside) > far * _deviations(models, place, contrasts)
        # More than the average, and less beside the other values: that is no taste for this value.
        sure &= difference * beside > 0
        told.append(_taste(ranked(names, np.where(sure, difference, 0.0), None)))
    return told


def _quantile(features: int) -> float:
    """Return how many posterior deviations a difference must have, by Bonferroni.

    >>> round(_quantile(1), 2), round(_quantile(20), 2)
    (1.96, 3.02)
    """
    return float(ndtri(1 - (1 - LEVEL) / (2 * max(features, 1))))


def _deviations(models: Sequence[Model], place: int, reading: FloatArray) -> FloatArray:
    """Return posterior deviations of a model's differences from the average; 0 if not told.

    Posteriors of models are taken as independent. With shares w of the observations, the difference
    ``θ_k − Σ w_j θ_j`` has the covariance ``(1 − w_k)² C_k + Σ_{j≠k} w_j² C_j``.
    """
    factors = -_shares(models)
    factors[place] += 1.0
    variance = np.zeros(len(reading))
    for factor, model in zip(factors, models, strict=True):
        if model.covariance is not None:
            spread = np.einsum("ij,jk,ik->i", reading, model.covariance, reading)
            variance += factor**2 * np.maximum(spread, 0.0)
    return np.sqrt(variance)


def _reading(dim: int, features: Features | None) -> tuple[list[str], FloatArray]:
    """Return the names that differences are told in, and the matrix from estimates to them."""
    columns = [{one.name: one.weight for one in _named(unit, features)} for unit in np.eye(dim)]
    names = list(columns[0])
    return names, np.array([[column[name] for column in columns] for name in names])


def _contrasts(names: list[str], reading: FloatArray, features: Features | None) -> FloatArray:
    """Return the reading with values of a category beside their mean.

    Every arm has one value. What all values have in common cannot be told from an intercept, has a
    large posterior deviation, and is no taste. Values without a feature of their own (*other*) do
    not count in the mean: if they were never seen, nothing is known of it with them.
    """
    contrasts = reading.copy()
    for name, column in ({} if features is None else features.arm).items():
        if isinstance(column, Category):
            values = {one: names.index(one) for one in column.names(name) if one in names}
            seen = [place for one, place in values.items() if one != f"{name}={OTHER}"]
            contrasts[list(values.values())] -= reading[seen].mean(axis=0) if seen else 0.0
    return contrasts


def common_taste(models: Sequence[Model], features: Features) -> Tastes:
    """Return what users like and dislike on average; a value of a category beside the others.

    >>> shop = Features(
    ...     arm={"genre": {"kind": "category", "values": ["jazz", "rock"], "other": False}},
    ...     intercept=False,
    ... )
    >>> common_taste([Model(1, 60, np.array([0.5, 0.1]), 3, 0, 0)], shop)
    ([FeatureWeight(feature='genre=jazz', weight=0.2)], [FeatureWeight(feature='genre=rock', ...)])
    """
    if not models:
        return [], []
    weights = {one.name: one.weight for one in _named(_average(models), features)}
    for name, column in features.arm.items():
        if isinstance(column, Category) and column.values is not None:
            # Every arm has one of the values, so only differences between them are a taste. Values
            # without a feature of their own (*other*) may never have been seen.
            weights.pop(f"{name}={OTHER}", None)
            values = [value for value in column.names(name) if value in weights]
            common = sum(weights[value] for value in values) / max(len(values), 1)
            for value in values:
                weights[value] -= common
    return _taste(list(ranked(list(weights), np.array(list(weights.values())), None)))


def _average(models: Sequence[Model]) -> FloatArray:
    average: FloatArray = _shares(models) @ np.array([model.estimate for model in models])
    return average


def _shares(models: Sequence[Model]) -> FloatArray:
    """Return the share of each model in all observations; equal shares if there are none."""
    sizes = np.array([model.size for model in models], dtype=np.float64)
    return sizes / sizes.sum() if sizes.any() else np.full(len(models), 1 / len(models))


def _taste(weights: Sequence[Weight]) -> Tastes:
    """Return the largest positive and negative weights, of those that are ranked."""
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


@dataclass(slots=True)
class Followers:
    """Users whose likeliest model this is, for certain or not, and the sum of their rewards."""

    users: int = 0
    rewards: int = 0
    total: float = 0.0

    @property
    def mean_reward(self) -> float | None:
        """Their mean reward; None if there are none."""
        return self.total / self.rewards if self.rewards else None


def followers(state: State) -> dict[int, Followers]:
    """Return who follows each model, of the `ASKED` users seen last.

    Only policies whose outcomes name no segment are asked: others locate a user slowly.
    """
    found: dict[int, Followers] = {}
    for user, counters in islice(reversed(state.users.items()), ASKED):
        if counters.segment is not None or not counters.rewards:
            continue
        model = state.policy.locate(user).model
        if model is not None:
            one = found.setdefault(model, Followers())
            one.users += 1
            one.rewards += counters.rewards
            one.total += counters.total
    return found
