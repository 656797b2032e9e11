"""What the service shows of a policy, from the answers that every policy gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dyclu.policy import Location, Model, Outcome, Policy
from dyclu.service.schema import BeliefView
from dyclu.validation import FloatArray

SHOWN = 60
"""Number of models on the map; the largest are taken."""

LISTED = 200
"""Number of neighbours that are listed for one user."""

FAINTEST = 0.001
"""Smallest probability of a model that is shown."""


def announced(
    policy: Policy, outcome: Outcome, before: int | None
) -> tuple[int | None, int | None, float | None]:
    """Return the ids before and after the change of an outcome, and its certainty.

    If the policy keeps no record of changes, these are the ids of the user's outcomes: `before` is
    the one of the previous outcome.
    """
    for change in policy.changes[-1:]:
        if change.user == outcome.user:
            return change.before, change.after, change.certainty
    return before, outcome.segment, None


def model_of(policy: Policy, user: str, segment: int | None) -> int | None:
    """Return the id shown as the user's model: their last outcome's `segment`, if it has one."""
    return policy.locate(user).model if segment is None else segment


def belief_of(location: Location) -> list[BeliefView]:
    """Return which models the user may follow, the most probable first."""
    chances: list[tuple[int | None, float]] = [*location.belief.items(), (None, location.new or 0)]
    shown = [BeliefView(model, chance) for model, chance in chances if chance >= FAINTEST]
    return sorted(shown, key=lambda view: -view.probability)


def largest(models: Sequence[Model]) -> list[Model]:
    """Return the models with most users, for the map."""
    return sorted(models, key=lambda model: -model.users)[:SHOWN]


def placed(thetas: FloatArray) -> FloatArray:
    """Return points (n, 2) whose distances are as close as possible to those of (n, dim) estimates.

    These are the first two principal components. Their signs are fixed, so that a map that is drawn
    again is not mirrored.

    >>> placed(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    points = np.zeros((len(thetas), 2))
    if len(thetas) > 1:
        centred = thetas - thetas.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        axes = axes[:2]
        largest = np.abs(axes).argmax(axis=1)
        axes = axes * np.where(axes[np.arange(len(axes)), largest] < 0, -1.0, 1.0)[:, None]
        points[:, : len(axes)] = np.round(centred @ axes.T, 9) + 0.0
    return points
