"""``python -m benchmarks.replaying``: replay of learning policies against simulation.

Worlds in which tastes drift, users change, or both (`sim.worlds.wild`): 100 users, 10,000 visits, 5
arms. A logging system shows arms half uniformly, half by a softmax of their first feature. A policy
is replayed on the log, whole and with halves of the users, which show how much its runs differ. The
truth is the mean expected reward of the same policy when it serves a
share of the same visits, as large as the acceptance constant, averaged over 40 simulations. Every
repetition draws the log and its rewards again; every tenth one draws a new world.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np

from benchmarks.judging import Record, tell, values
from benchmarks.tables import markdown
from dyclu.data import Log
from dyclu.evaluate import Interval, replay
from dyclu.evaluate.replays.halves import SPLITS
from dyclu.sim.reports.document import Table
from dyclu.sim.runs.stream.contestants import contestant
from dyclu.sim.worlds.wild import Wild
from dyclu.validation import FloatArray, Ids

_SIZE = {"users": 100, "rounds": 100, "dim": 8, "offered": 5, "arms": 200, "parameters": 4}
_STEADY, _CHANGING = {"shortest": 100, "longest": 100}, {"shortest": 25, "longest": 60}
_CLICKS = {"rewards": "logistic", "offset": -1.0, "slope": 3.0}
WORLDS = {
    "drift": Wild(drift=1.0, noise=0.3, **_STEADY, **_SIZE),  # type: ignore[arg-type]
    "change": Wild(noise=0.3, **_CHANGING, **_SIZE),  # type: ignore[arg-type]
    "drift and change, clicks": Wild(drift=1.0, **_CLICKS, **_CHANGING, **_SIZE),  # type: ignore[arg-type]
}
POLICIES = ("shared-linucb-0.3", "linucb-0.3", "atlas")
REPETITIONS, SIMULATIONS, SAME_WORLD = 100, 40, 10
NOTE = (
    "Holds: share of repetitions in which the 95 % interval holds the truth, for the mean of the "
    "accepted rewards, and for the weighted estimate from all rows on which policy and log agree. "
    "Truth, estimates and widths of the intervals are means over repetitions."
)


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The visits of a world: users, arms (n, K, dim), expected rewards and logging chances (n, K).

    `noise` is the standard deviation of a reward; None if rewards are clicks.
    """

    user: Ids
    arms: FloatArray
    means: FloatArray
    logged: FloatArray
    noise: float | None

    @classmethod
    def of(cls, world: Wild, seed: int) -> Visits:
        """Draw a world."""
        rounds = list(world.world(seed))
        arms = np.stack([one.arms for one in rounds])
        raised = np.exp(2 * arms[:, :, 0])
        share = raised / raised.sum(axis=1, keepdims=True)
        return cls(
            user=np.array([one.user for one in rounds]),
            arms=arms,
            means=np.stack([one.means for one in rounds]),
            logged=0.5 * share + 0.5 / arms.shape[1],
            noise=None if rounds[0].binary else world.noise,
        )

    def rewards(self, arms: Ids, rng: np.random.Generator) -> FloatArray:
        """Draw the rewards of one arm per visit."""
        means = self.means[np.arange(len(arms)), arms]
        if self.noise is None:
            return (rng.random(len(arms)) < means).astype(float)
        return means + self.noise * rng.normal(size=len(arms))

    def log(self, rng: np.random.Generator) -> Log:
        """Draw a log."""
        draw = rng.random(len(self.user))[:, None]
        shown = (self.logged.cumsum(axis=1) < draw).sum(axis=1)
        chosen = np.minimum(shown, self.logged.shape[1] - 1)
        return Log.of_arrays(
            user=self.user.tolist(),
            arms=self.arms,
            chosen=chosen,
            reward=self.rewards(chosen, rng),
            propensity=self.logged[np.arange(len(chosen)), chosen],
        )

    def served(self, name: str, share: float, rng: np.random.Generator) -> float:
        """Let a policy serve a share of the visits; return its mean expected reward."""
        policy = contestant(name, self.arms.shape[2], seed=int(rng.integers(2**31)))
        visits = np.flatnonzero(rng.random(len(self.user)) < share)
        earned = []
        for i in visits.tolist():
            user, arms = int(self.user[i]), self.arms[i]
            arm = policy.decide(user, arms).arm
            mean = float(self.means[i, arm])
            luck = rng.random() if self.noise is None else self.noise * rng.normal()
            reward = float(luck < mean) if self.noise is None else mean + luck
            policy.learn(user, arms[arm], reward)
            earned.append(mean)
        return fmean(earned)


def judged(
    world: str,
    name: str,
    repetitions: int,
    simulations: int = SIMULATIONS,
    splits: int = SPLITS,
) -> list[Record]:
    """Return one record per repetition; without splits, intervals are about one run."""
    records: list[Record] = []
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 5])
        if seed % SAME_WORLD == 0:
            visits = Visits.of(WORLDS[world], seed)
            share = float(visits.logged.min())
            truth = fmean(visits.served(name, share, rng) for _ in range(simulations))
        fresh = partial(contestant, name, visits.arms.shape[2], seed=seed)
        found = replay(
            visits.log(rng),
            fresh(),
            fresh=fresh if splits else None,
            splits=splits,
            acceptance=share,
            seed=seed,
        )
        records.append({
            "world": world,
            "policy": name,
            "seed": seed,
            "truth": truth,
            "accepted": found.accepted,
            **_measures("estimate", found.estimate.value, found.estimate.interval, truth),
            **_measures("weighted", found.weighted.value, found.weighted.interval, truth),
        })  # fmt: skip
    return records


def _measures(name: str, value: float, interval: Interval, truth: float) -> dict[str, float]:
    return {
        name: value,
        f"{name}_held": float(truth in interval),
        f"{name}_width": interval.high - interval.low,
    }


def table(records: Sequence[Record]) -> Table:
    """Return how often replay agrees with simulation."""
    rows = []
    for world, policy in dict.fromkeys((one["world"], one["policy"]) for one in records):
        here = {"world": world, "policy": policy}

        def mean(measure: str, here: dict[str, object] = here) -> float:
            return fmean(values(records, measure, **here))

        rows.append((
            world,
            policy,
            f"{mean('truth'):.3f}",
            f"{mean('estimate'):.3f} ({mean('estimate_width'):.3f})",
            f"{mean('estimate_held'):.0%}",
            f"{mean('weighted'):.3f} ({mean('weighted_width'):.3f})",
            f"{mean('weighted_held'):.0%}",
            f"{mean('accepted'):.0f}",
        ))  # fmt: skip
    header = (
        "world", "policy", "truth", "accepted rewards (width)", "holds", "weighted (width)",
        "holds", "rounds",
    )  # fmt: skip
    return Table(header=header, rows=tuple(rows), note=NOTE, words=("policy",))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--worlds", default=";".join(WORLDS), help="separated by ;")
    parser.add_argument("--splits", type=int, default=SPLITS, help="0: intervals of one run")
    asked = parser.parse_args()
    records: list[Record] = []
    for world in asked.worlds.split(";"):
        for name in asked.policies.split(","):
            records += judged(world, name, asked.repetitions, splits=asked.splits)
            tell(records[-1])
    print(markdown(table(records)))


if __name__ == "__main__":
    main()
