"""``python -m benchmarks.waiting``: how long a caller waits for one decision, and for one reward.

Users arrive during the first 80 % of 400,000 rounds. Their activity has a Pareto(1.5) distribution:
some come a thousand times, many once or twice. A user changes with probability 1/200 between two
visits. There are 1,000 or 100,000 users with 10 tastes, d = 25 and Gaussian rewards (σ = 0.1), or
1,000 users with 8 tastes, d = 15 and clicks (about 30 %).

Times are CPU time of the process, so that other programs do not count; without garbage collection,
after a warm-up that compiles all kernels. Every run has a process of its own, with one thread per
library: two threads would count twice, and memory that an earlier run left would be used again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.footprint import STATUS, resident
from benchmarks.judging import Asked, Record, Report, main, tell
from benchmarks.tables import number
from benchmarks.timing import no_collection
from benchmarks.turns import Turn
from dyclu.core.rewards import Law
from dyclu.policy import Policy
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.runs.stream.contestants import contestant
from dyclu.sim.runs.workers import ONE_THREAD
from dyclu.sim.worlds.named import WORLDS
from dyclu.sim.worlds.population import unit_vectors
from dyclu.storage import read
from dyclu.validation import FloatArray, Ids

POLICIES = ("atlas",)
SEEDS = 1
ROUNDS, QUICK_ROUNDS = 400_000, 300
QUICK_SHARE = 100
WARM_USERS, WARM_ROUNDS = 20, 4_000

ARMS, OFFERED = 1_000, 10
ARRIVING, HAZARD = 0.8, 1 / 200
CHUNK = 64
"""Rounds that are drawn at once: few, so that they do not count as memory of the policy."""

SLOWEST = 5
"""Number of the slowest calls in a record."""

MICRO = 1e6
NOTE = (
    "CPU time in µs; all seeds together. Wanted of atlas: 100,000 users at most 1.5 × the mean of "
    "1,000 per round; 99.9 % of calls below 2,000 and none above 20,000; clicks at most 300 for a "
    "reward on average."
)
MEMORY_NOTE = (
    "Bytes per user that came, in the first seed. Saved: all arrays that `save` writes. Resident: "
    "growth of the process, room to grow included. Located: of the users that came, at the end."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Users who arrive over time, come more or less often, and change.

    Attributes
    ----------
    users, tastes, dim, rounds : int
        Number of users, tastes, features, and rounds of all users.
    law : Law
        Law of the rewards.
    """

    users: int
    tastes: int
    dim: int
    rounds: int = ROUNDS
    law: Law

    def turns(self, seed: int) -> Iterator[Turn]:
        """Yield the rounds, with the reward of every arm."""
        rng = np.random.default_rng(seed)
        table = unit_vectors(rng, ARMS, self.dim)
        tastes = unit_vectors(rng, self.tastes, self.dim)
        following = rng.integers(self.tastes, size=self.users)
        activity = np.cumsum(1 + rng.pareto(1.5, self.users))
        for start in range(0, self.rounds, CHUNK):
            index = np.arange(start, min(start + CHUNK, self.rounds))
            user = np.searchsorted(
                activity, rng.random(len(index)) * self._present(index, activity)
            )
            step = rng.integers(1, max(self.tastes, 2), size=len(index))
            step *= rng.random(len(index)) < HAZARD
            taste = np.empty(len(index), dtype=np.intp)
            for i, (who, by) in enumerate(zip(user.tolist(), step.tolist(), strict=True)):
                taste[i] = following[who] = (following[who] + by) % self.tastes
            arms = table[rng.integers(ARMS, size=(len(index), OFFERED))]
            means = self.law.mean(np.einsum("nkd,nd->nk", arms, tastes[taste]))
            luck = self.law.draw(rng, len(index))[:, None]
            rewards = (luck < means).astype(float) if self.law.binary else means + luck
            yield from map(Turn, user.tolist(), arms, rewards)

    def _present(self, index: Ids, activity: FloatArray) -> FloatArray:
        """Return the total activity of the users who have arrived by each round."""
        arrived = np.ceil(self.users * (index + 1) / (ARRIVING * self.rounds)).astype(int)
        total: FloatArray = activity[np.clip(arrived, 1, self.users) - 1]
        return total


CLICKS = WORLDS["clicks"]
CROWDS = {
    "1,000 users": Crowd(users=1_000, tastes=10, dim=25, law=Law(noise=0.1)),
    "100,000 users": Crowd(users=100_000, tastes=10, dim=25, law=Law(noise=0.1)),
    "1,000 users, clicks": Crowd(users=1_000, tastes=8, dim=CLICKS.dim, law=CLICKS.law),
}
FEW, MANY = list(CROWDS)[:2]
"""Crowds whose mean costs are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Seconds of every decision and of every reward, in order."""

    decide: FloatArray
    learn: FloatArray

    @classmethod
    def empty(cls, rounds: int) -> Waits:
        """Return room for so many rounds; it is written to, so that its memory is in use."""
        return cls(np.full(rounds, np.nan), np.full(rounds, np.nan))


def run(asked: Asked) -> Report:
    """Let every policy serve every crowd, and time each call."""
    crowds = asked.picked(CROWDS)
    if asked.quick:
        crowds = {
            name: replace(crowd, users=crowd.users // QUICK_SHARE, rounds=QUICK_ROUNDS)
            for name, crowd in crowds.items()
        }
    serve = served if asked.quick else in_own_process
    records, rows, memory = [], [], []
    for policy in asked.policies:
        means: dict[str, float] = {}
        for world, crowd in crowds.items():
            found = []
            for seed in asked.seeds:
                waits, facts = serve(policy, crowd, seed)
                name = {"world": world, "policy": policy, "seed": seed}
                records.append(tell({**name, **_measured(waits), **facts}))
                found.append(waits)
            means[world] = float(np.mean([waits.decide + waits.learn for waits in found]))
            rows += _rows(world, policy, found, means)
            memory.append(_memory_row(records[-len(asked.seeds)]))
    header = ("users", "policy", "call", "mean", "median", "99.9 %", "longest", f"mean × {FEW}")
    facts_header = ("users", "policy", "came", "located, %", "models", "saved", "resident")
    return Report(
        tables=(
            Table(header=header, rows=tuple(rows), note=NOTE),
            Table(header=facts_header, rows=tuple(memory), note=MEMORY_NOTE),
        ),
        records=tuple(records),
    )


def timed(
    policy: Policy,
    turns: Iterator[Turn],
    waits: Waits,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """Let a policy serve turns, and write down the seconds of every call."""
    with no_collection():
        for i, (user, arms, rewards) in enumerate(turns):
            start = clock()
            arm = policy.decide(user, arms).arm
            waits.decide[i] = clock() - start
            context, reward = arms[arm], float(rewards[arm])
            start = clock()
            policy.learn(user, context, reward)
            waits.learn[i] = clock() - start


def in_own_process(name: str, crowd: Crowd, seed: int) -> tuple[Waits, Record]:
    """Return the same as `served`, from a new process in which libraries use one thread."""
    os.environ.update(ONE_THREAD)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(served, name, crowd, seed).result()


def served(name: str, crowd: Crowd, seed: int) -> tuple[Waits, Record]:
    """Return the times of a run, and the memory of the policy at its end."""
    _warm(name, replace(crowd, users=WARM_USERS, rounds=min(WARM_ROUNDS, crowd.rounds)))
    waits, turns = Waits.empty(crowd.rounds), crowd.turns(seed)
    first = next(turns)  # before it, the crowd draws all that it keeps
    before = resident() if STATUS.exists() else None
    policy = contestant(name, crowd.dim, seed=seed)
    timed(policy, chain([first], turns), waits)
    grown = None if before is None else resident() - before
    users = policy.users
    located = sum(policy.locate(user).located for user in users)
    return waits, {
        "came": len(users),
        "located": located / max(len(users), 1),
        "models": len(policy.models),
        "changes": len(policy.changes),
        "saved": _saved(policy),
        "resident": grown,
    }


def _warm(name: str, crowd: Crowd) -> None:
    """Compile kernels with a policy that is thrown away."""
    timed(contestant(name, crowd.dim), crowd.turns(seed=0), Waits.empty(crowd.rounds))


def _saved(policy: Policy) -> int:
    with TemporaryDirectory() as folder:
        policy.save(Path(folder, "policy"))
        return sum(array.nbytes for array in read(Path(folder, "policy")).arrays.values())


def _measured(waits: Waits) -> Record:
    found: dict[str, object] = {}
    for call, seconds in (("decide", waits.decide), ("learn", waits.learn)):
        found |= {
            f"{call}_{name}": value
            for name, value in zip(
                ("mean", "median", "999", "longest"), _figures(seconds), strict=True
            )
        }
    slowest = np.argsort(waits.learn)[::-1][:SLOWEST]
    found["slowest_rewards"] = slowest.tolist()
    return found


def _figures(seconds: FloatArray) -> tuple[float, ...]:
    """Return mean, median, 99.9 % and the longest, in microseconds."""
    spread = np.quantile(seconds, (0.5, 0.999, 1.0))
    return tuple(MICRO * float(value) for value in (seconds.mean(), *spread))


def _rows(
    world: str, policy: str, found: Sequence[Waits], means: dict[str, float]
) -> list[tuple[str, ...]]:
    decide = np.concatenate([waits.decide for waits in found])
    learn = np.concatenate([waits.learn for waits in found])
    calls = {"decide": decide, "learn": learn, "both": decide + learn}
    compared = number(means[world] / means[FEW]) if world == MANY and FEW in means else NOTHING
    return [
        (world, policy, call, *map(number, _figures(seconds)),
         compared if call == "both" else NOTHING)
        for call, seconds in calls.items()
    ]  # fmt: skip


def _memory_row(record: Record) -> tuple[str, ...]:
    came = max(record["came"], 1)
    return (
        record["world"],
        record["policy"],
        f"{record['came']:,}",
        f"{100 * record['located']:.0f}",
        str(record["models"]),
        f"{record['saved'] / came:,.0f}",
        NOTHING if record["resident"] is None else f"{record['resident'] / came:,.0f}",
    )


if __name__ == "__main__":
    main(run, about=__doc__, policies=POLICIES, seeds=SEEDS)
