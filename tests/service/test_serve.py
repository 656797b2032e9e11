"""`dyclu.service.serve`: what is ready before the first request comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dyclu
from dyclu.service.rehearsal import rehearse
from dyclu.service.state import PolicySpec

FIRST_ROUNDS = """
import sys, numba, numpy as np, dyclu
from dyclu.service.rehearsal import rehearse
from dyclu.service.state import PolicySpec

name = sys.argv[1]
rehearse(PolicySpec(name, 4, {}))
loaded = set(sys.modules)
dispatchers = [one for one in vars(dyclu.compute.kernels()).values() if hasattr(one, "signatures")]
compiled = sum(len(one.signatures) for one in dispatchers)
policy, rng = dyclu.policies.make(name, 4), np.random.default_rng(1)
for turn in range(400):
    arms = rng.standard_normal((3, 4))
    x = arms[policy.decide(f"u{turn % 5}", arms).arm]
    policy.learn(f"u{turn % 5}", x, float(x[turn // 200] + 0.1 * rng.standard_normal()))
assert sum(len(one.signatures) for one in dispatchers) == compiled, name
late = sorted(one for one in set(sys.modules) - loaded if not one.startswith("encodings"))
assert not late, late
"""


@pytest.mark.parametrize("name", dyclu.policies.names())
def test_a_rehearsal_suits_every_policy(name: str) -> None:
    rehearse(PolicySpec(name, 7, {}))


@pytest.mark.parametrize("name", ["linucb", "dyclu", "atlas"])
def test_after_a_rehearsal_nothing_is_left_to_load(name: str) -> None:
    """Not a module, not a kernel: the first rounds are as quick as any."""
    subprocess.run([sys.executable, "-c", FIRST_ROUNDS, name], check=True)
