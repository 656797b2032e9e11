"""`rehearse`: what a policy needs at its first rounds is there before the first request."""

from __future__ import annotations

import numpy as np

from dyclu.service.spec import PolicySpec

ROUNDS, DIM = 60, 3
"""Enough for every policy to have settled and noticed a change; kernels do not mind the size."""


def rehearse(spec: PolicySpec) -> None:
    """Let a small policy of this kind live through something and be forgotten.

    Kernels are loaded, or compiled where this installation never ran before, and libraries
    imported. Otherwise whoever asks first would wait for that, and with them everybody else.

    Examples
    --------
    >>> rehearse(PolicySpec("linucb", 25, {"alpha": 0.5}))
    """
    policy = PolicySpec(spec.name, DIM, spec.options).make()
    chance = np.random.default_rng(0)
    for turn in range(ROUNDS):
        user = f"u{turn % 2}"
        arms = chance.standard_normal((2, DIM))
        arm = arms[policy.decide(user, arms).arm]
        policy.learn(user, arm, float(arm[turn // 30] + 0.1 * chance.standard_normal()))
