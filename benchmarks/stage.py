"""`Stage`: a long run, stopped shortly before its end, so that the end can be timed repeatedly.

The cost of a round depends on what a policy has learnt: on the number of its segments, clusters or
models. So every policy is measured at the end of the same long run. The run takes minutes; the
saved policies are kept in a folder and reused until they are deleted or can no longer be loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.results import Effort
from benchmarks.turns import Turn, turn
from dyclu.errors import DycluError
from dyclu.policies import Oracle, load
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.policy import Policy
from dyclu.sim.reports.terminal import bar, progress_bars
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.runs.play import REPORT_EVERY
from dyclu.sim.worlds import paper
from dyclu.sim.worlds.population import Population, World
from dyclu.storage import make_folder, read
from dyclu.validation import User

SEED = 0
LAST = 6_000
"""Number of rounds at the end that are timed."""

QUICK = replace(paper.SETTINGS["row1"], users=20, rounds=80, shortest=40, longest=80)
QUICK_LAST = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Every policy shortly before the end of a run, and the remaining turns."""

    world: World
    turns: tuple[Turn, ...]
    folder: Path

    def policy(self, name: str) -> Policy:
        """Return a new copy of a policy."""
        return _restored(self.folder / name, self.world, name)

    def segments(self) -> SegmentTable:
        """Return the segments that DyClu holds."""
        saved = read(self.folder / "dyclu")
        return SegmentTable.restored(self.world.setting.dim, saved.state, saved.arrays)


def row_one(effort: Effort, names: Sequence[str]) -> Stage:
    """Return the end of row 1 of the paper's Table 1, n = 100 and d = 25, for these policies."""
    setting = QUICK if effort.quick else paper.SETTINGS["row1"]
    return stage(setting, QUICK_LAST if effort.quick else LAST, names, effort.cache)


def stage(setting: Population, last: int, names: Sequence[str], cache: Path) -> Stage:
    """Play the run with those policies that are not stored yet; return the stored stage."""
    digest = hashlib.sha256(f"{setting} {SEED} {last}".encode()).hexdigest()[:12]
    world, folder = setting.world(SEED), cache / digest
    make_folder(folder)
    missing = [name for name in names if not _is_stored(folder / name, world, name)]
    if missing or not (folder / "turns.npz").exists():
        _play(world, last, missing, folder)
    return Stage(world=world, turns=_turns(folder / "turns.npz"), folder=folder)


def _play(world: World, last: int, names: Sequence[str], folder: Path) -> None:
    cast = {name: contestant(name, world, seed=SEED) for name in names}
    rounds, first = iter(world), len(world) - last
    with progress_bars() as progress:
        tell = bar(progress, "playing row 1, once", first)
        for visit in islice(rounds, first):
            for policy in cast.values():
                arm = policy.decide(visit.user, visit.arms).arm
                policy.learn(visit.user, visit.arms[arm], visit.reward(arm))
            if visit.index % REPORT_EVERY == 0:
                tell(visit.index)
    users, arms, rewards = zip(*map(turn, rounds), strict=True)
    np.savez(folder / "turns.npz", users=users, arms=arms, rewards=rewards)
    for name, policy in cast.items():
        policy.save(folder / name)


def _turns(path: Path) -> tuple[Turn, ...]:
    with np.load(path) as kept:
        return tuple(map(Turn, kept["users"].tolist(), kept["arms"], kept["rewards"]))


def _is_stored(path: Path, world: World, name: str) -> bool:
    try:
        _restored(path, world, name)
    except DycluError:
        return False
    return True


def _restored(path: Path, world: World, name: str) -> Policy:
    if name != "oracle":
        return load(path)

    def truth(user: User, time: int) -> int:
        return int(world.truth[int(user), time])

    return Oracle.restore(read(path), truth=truth)
