"""`PolicySpec`: which policy a tenant runs; `warm_up` prepares it before the first request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dyclu import policies
from dyclu.policy import Policy

FORGETS_EXACTLY = frozenset({"linucb", "discounted-linucb", "sliding-linucb"})
"""Policies that learn from one user nothing about others; after `forget` nothing is left."""

ROUNDS, DIM = 60, 3
"""Enough rounds for every policy to notice a change; compiled kernels serve every dimension."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """The name, dimension and options of a policy."""

    name: str
    dim: int
    options: dict[str, Any]

    def make(self) -> Policy:
        """Return a new policy that has learnt nothing."""
        return policies.make(self.name, self.dim, **self.options)

    @property
    def forgets_exactly(self) -> bool:
        """Whether `forget` leaves a policy that never knew the user.

        >>> PolicySpec("linucb", 2, {}).forgets_exactly, PolicySpec("atlas", 2, {}).forgets_exactly
        (True, False)
        """
        return self.name in FORGETS_EXACTLY and not self.options.get("shared", False)


def warm_up(spec: PolicySpec) -> None:
    """Run 60 rounds on a small throwaway policy of this kind.

    This loads or compiles the kernels and imports the libraries that the policy needs. Otherwise
    the first request, and all requests behind it, would wait for that.

    Examples
    --------
    >>> warm_up(PolicySpec("linucb", 25, {"alpha": 0.5}))
    """
    policy = PolicySpec(spec.name, DIM, spec.options).make()
    chance = np.random.default_rng(0)
    for turn in range(ROUNDS):
        user = f"u{turn % 2}"
        arms = chance.standard_normal((2, DIM))
        arm = arms[policy.decide(user, arms).arm]
        policy.learn(user, arm, float(arm[turn // 30] + 0.1 * chance.standard_normal()))
