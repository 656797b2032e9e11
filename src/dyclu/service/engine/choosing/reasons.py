"""Why an arm: expectations and chances of all arms, and the features that made the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dyclu.policy import Decision, Policy
from dyclu.service.schema import ArmScore, FeatureWeight, Why
from dyclu.validation import FloatArray

TOP = 5
"""Number of features that are given as reasons."""

Reasons = Callable[[FloatArray, int], list[FeatureWeight]]
"""Takes an estimate and the index of the chosen arm; returns the features that count most."""


def explained(
    policy: Policy,
    user: str,
    arms: FloatArray,
    ids: Sequence[str],
    chosen: int,
    *,
    epsilon: float,
    reasons: Reasons | None,
) -> Why:
    """Return why an arm was chosen; costs as much as one decision per arm.

    >>> from dyclu import LinUCB
    >>> policy = LinUCB(2, alpha=0.1)
    >>> _ = policy.learn("ana", [1.0, 0.0], 2.0)
    >>> why = explained(policy, "ana", np.eye(2), ["a", "b"], 0, epsilon=0.1, reasons=None)
    >>> [(arm.id, round(arm.mean, 2), round(arm.chance, 2)) for arm in why.arms]
    [('a', 1.82, 0.95), ('b', 0.0, 0.05)]
    >>> why.reasons
    [FeatureWeight(feature='x0', weight=1.81...)]
    """
    best = policy.decide(user, arms)
    alone = [policy.decide(user, arms[place : place + 1]) for place in range(len(arms))]
    scores = [
        ArmScore(id, one.mean, one.width, one.mean + one.width, chance)
        for id, one, chance in zip(ids, alone, chances(best, len(arms), epsilon), strict=True)
    ]
    if best.theta is None:
        return Why(scores, [], chosen != best.arm)
    named = reasons or (lambda theta, taken: contributions(theta, arms, taken, None))
    return Why(scores, named(best.theta, chosen), chosen != best.arm)


def chances(best: Decision, count: int, epsilon: float) -> list[float | None]:
    """Return the probability with which each arm is chosen; None where the policy tells none.

    >>> chances(Decision("ana", 1, 0.0, 0.0), 4, epsilon=0.2)
    [0.05, 0.8500000000000001, 0.05, 0.05]
    """
    if best.propensity is None:
        return [None] * count
    # A policy that itself chooses at random gives every arm the same chance.
    rest = best.propensity if best.propensity < 1 else 0.0
    own = [best.propensity if place == best.arm else rest for place in range(count)]
    return [epsilon / count + (1 - epsilon) * chance for chance in own]


def contributions(
    theta: FloatArray, arms: FloatArray, chosen: int, names: Sequence[str] | None
) -> list[FeatureWeight]:
    """Return what features add to the chosen arm beyond the mean of the others, largest first.

    That is ``θᵢ (xᵢ − mean of the others' xᵢ)``; without names, features are x0, x1 and so on.
    """
    others = np.delete(arms, chosen, axis=0)
    lead = arms[chosen] - others.mean(axis=0) if len(others) else arms[chosen]
    parts = theta * lead
    order = np.argsort(-np.abs(parts), kind="stable")[:TOP]
    return [
        FeatureWeight(names[place] if names else f"x{place}", float(parts[place]))
        for place in order.tolist()
        if parts[place]
    ]
