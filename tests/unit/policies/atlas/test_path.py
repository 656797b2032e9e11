"""The path of one reward: which files it passes, as `docs/architecture.md` describes it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import dyclu
from dyclu.kernels.compiling import COMPILED
from dyclu.policies.atlas.upkeep import IDLE

EVERY_POLICY = {"policies/common/base.py", "validation.py", "policy.py"}
KERNELS = {"kernels/atlas.py"}
OWN = KERNELS | {
    "policies/atlas/policy.py", "policies/atlas/inference.py", "policies/atlas/users.py",
    "policies/common/population.py",
}  # fmt: skip


def files_passed(policy: dyclu.Atlas, user: str, x: list[float]) -> set[str]:
    home, passed = Path(dyclu.__file__).parent, set[Path]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            passed.add(Path(frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        policy.learn(user, x, x[0])
    finally:
        sys.setprofile(before)
    return {path.relative_to(home).as_posix() for path in passed if path.is_relative_to(home)}


@pytest.mark.skipif(not COMPILED, reason="without a compiler the loops are files, too")
@pytest.mark.parametrize("user", ["ana", "new"])
def test_a_reward_passes_five_files_of_atlas(user: str) -> None:
    rng = np.random.default_rng(0)
    policy = dyclu.Atlas(3, noise=0.1)
    upkeep, population = policy._upkeep, policy._inference.population
    while population.clock < 60 or upkeep.phase != IDLE or population.clock + 3 > population.due:
        x = rng.normal(size=3)
        policy.learn("ana", x, float(x[0] + 0.1 * rng.normal()))
    policy.learn("new", [1.0, 0.0, 0.0], 1.0)
    assert policy.locate("ana").located
    assert not policy.locate("new").located
    # From Python 3.12 on, numba does not tell a profiler which compiled functions are called.
    assert files_passed(policy, user, [0.0, 1.0, 0.0]) | KERNELS == EVERY_POLICY | OWN
