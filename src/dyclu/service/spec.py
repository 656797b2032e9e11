"""`PolicySpec`: which policy a tenant runs; `warm_up` prepares it before the first request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dyclu import policies
from dyclu.policies.own import own_policy
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
        if self.own:
            return own_policy(self.name, self.dim, known=policies.names(), options=self.options)
        return policies.make(self.name, self.dim, **self.options)

    def load(self, path: Path) -> Policy:
        """Return the policy of this kind that a file holds."""
        return policies.load(path, own=self.name if self.own else ())

    @property
    def own(self) -> bool:
        """Whether the policy is the operator's own, named as ``"module:Class"``."""
        return ":" in self.name

    @property
    def forgets_exactly(self) -> bool:
        """Whether `forget` leaves a policy that never knew the user.

        >>> PolicySpec("linucb", 2, {}).forgets_exactly, PolicySpec("atlas", 2, {}).forgets_exactly
        (True, False)
        """
        return self.name in FORGETS_EXACTLY and not self.options.get("shared", False)


def warm_up(spec: PolicySpec) -> None:
    """Run 60 rounds on a small throwaway policy of this kind, once per process.

    This loads or compiles the kernels and imports the libraries that the policy needs. Otherwise
    the first request, and all requests behind it, would wait for that.

    Examples
    --------
    >>> warm_up(PolicySpec("linucb", 25, {"alpha": 0.5}))
    """
    _warm_up(spec.name, json.dumps(spec.options, sort_keys=True))


@cache
def _warm_up(name: str, options: str) -> None:
    policy = PolicySpec(name, DIM, json.loads(options)).make()
    chance = np.random.default_rng(0)
    for turn in range(ROUNDS):
        user = f"u{turn % 2}"
        arms = chance.standard_normal((2, DIM))
        arm = arms[policy.decide(user, arms).arm]
        policy.learn(user, arm, float(arm[turn // 30] + 0.1 * chance.standard_normal()))
    if policy.shares:
        policy.absorb(policy.contributions("a", threshold=0.0), shard="b")
        policy.learn("u0", np.ones(DIM), 1.0)
        policy.withdraw()
