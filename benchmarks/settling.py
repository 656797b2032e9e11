"""``python -m benchmarks.settling``: clicks come early and zeros late; when should they be learnt?

Users decide at random times and click with a chance that depends on the arm. A click arrives soon,
a twentieth of `reward_wait` later on average; that there was none is known only when the wait is
over. *arrival*: each reward is learnt when it is known, so clicks overtake zeros. *settled*: all
are learnt when their wait is over, in the order of their decisions.

*Regret*: expected clicks lost. *False changes*: changes that were reported, per user, although
nobody changed. *Error*: root mean squared error of the expected reward of the arm that is shown, in
the second wait of the run. `per wait` is how many decisions a user has within one wait: the delay
in terms of what a user's model sees.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.tables import markdown
from dyclu import policies
from dyclu.sim.reports.document import Table
from dyclu.validation import FloatArray

Learning = Literal["arrival", "settled"]
LEARNINGS: tuple[Learning, Learning] = ("arrival", "settled")
POLICIES: dict[str, dict[str, Any]] = {"linucb": {"alpha": 0.3}, "dyclu": {}, "atlas": {}}
PER_WAIT = (1, 5, 25)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a run: regret, changes per user, and error of prediction."""

    regret: float
    changes: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """Users whose clicks come early and whose zeros come late.

    Attributes
    ----------
    users, tastes, arms, features, decisions : int
        Number of users, of tastes, of arms per decision, of features, and of decisions per user.
    per_wait : float
        Decisions of a user within one wait.
    moves : bool
        Whether all users take up another taste in the middle of the run.
    rate : float
        Mean chance of a click of a random arm.
    """

    users: int = 40
    tastes: int = 4
    arms: int = 8
    features: int = 4
    decisions: int = 120
    per_wait: float = 5.0
    moves: bool = False
    rate: float = 0.25

    def play(self, policy: Any, learning: Learning, *, seed: int) -> Found:
        """Play one run; times are in waits."""
        rng = np.random.default_rng(seed)
        tastes = rng.normal(size=(self.tastes, self.features))
        tastes *= 0.2 / np.linalg.norm(tastes, axis=1, keepdims=True)
        total = self.users * self.decisions
        end = self.decisions / self.per_wait
        known: list[tuple[float, int, int, FloatArray, float]] = []
        regret, changes, errors = 0.0, 0, list[float]()
        for turn, now in enumerate(np.sort(rng.uniform(0, end, total))):
            while known and known[0][0] <= now:
                _, _, user, x, value = heapq.heappop(known)
                changes += policy.learn(user, x, value).changed
            user = int(rng.integers(self.users))
            x = rng.normal(size=(self.arms, self.features))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            arms = np.column_stack([x, np.ones(self.arms)])
            moved = self.moves and now > end / 2
            chances = self.rate + x @ tastes[(user + moved) % self.tastes]
            made = policy.decide(user, arms)
            regret += float(chances.max() - chances[made.arm])
            if 1 <= now < 2:
                errors.append(float(made.mean - chances[made.arm]))
            delay = float(rng.exponential(0.05))
            clicked = bool(rng.random() < chances[made.arm]) and delay < 1
            when = delay if learning == "arrival" and clicked else 1.0
            heapq.heappush(known, (now + when, turn, user, arms[made.arm], float(clicked)))
        error = float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0
        return Found(regret, changes / self.users, error)


def runs(world: Delayed, name: str, learning: Learning, *, seeds: int) -> Iterator[Found]:
    """Play a world with several seeds."""
    for seed in range(seeds):
        policy = policies.make(name, world.features + 1, **POLICIES[name])
        yield world.play(policy, learning, seed=seed)


def table(*, seeds: int, decisions: int) -> Table:
    """Return regret, false changes and errors of both ways of learning."""
    rows = []
    for name in POLICIES:
        for per_wait in PER_WAIT:
            cells = []
            for moves in (False, True):
                world = Delayed(per_wait=per_wait, moves=moves, decisions=decisions)
                both = {one: list(runs(world, name, one, seeds=seeds)) for one in LEARNINGS}
                means = {w: [float(np.mean(c)) for c in _columns(f)] for w, f in both.items()}
                first, second = (np.array(_columns(both[one])[0]) for one in LEARNINGS)
                more = second - first
                doubt = more.std(ddof=1) / np.sqrt(seeds)
                regret = " / ".join(f"{means[one][0]:.0f}" for one in LEARNINGS)
                cells.append(f"{regret} ({more.mean():+.0f} ± {doubt:.0f})")
                if not moves:
                    cells.append(" / ".join(f"{means[one][1]:.2f}" for one in LEARNINGS))
                    cells.append(" / ".join(f"{means[one][2]:.2f}" for one in LEARNINGS))
            rows.append((name, str(per_wait), *cells))
    header = ("", "per wait", "regret", "false changes", "error", "regret, users change once")
    note = (
        f"arrival / settled (difference ± its standard error, over seeds); {Delayed().users} "
        f"users, {decisions} decisions each, {seeds} seeds, click rate {Delayed().rate}."
    )
    return Table(header=header, rows=tuple(rows), note=note)


def _columns(found: list[Found]) -> tuple[list[float], list[float], list[float]]:
    return (
        [one.regret for one in found],
        [one.changes for one in found],
        [one.error for one in found],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--decisions", type=int, default=Delayed().decisions)
    asked = parser.parse_args()
    print(markdown(table(seeds=asked.seeds, decisions=asked.decisions)))


if __name__ == "__main__":
    main()
