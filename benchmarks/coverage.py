"""``python -m benchmarks.coverage``: does the interval of an evaluation hold the truth?

The shop of `benchmarks.shop`, logged by its earlier system: 80 % softmax(2 × quality), 20 %
uniformly, with propensities. In each repetition a new shop is drawn, and 30,000 visits of its first
30 days are logged. Two policies are evaluated, a *better* and a *worse* one than the log: a model
shared by all users (LinUCB) that learnt 10,000 other logged visits, and one that learnt their
clicks with the opposite sign; both show any item with probability 5 %. The truth is the mean click
probability of what a policy shows in 20,000 further visits of the same days.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.judging import Record, spread, tell, values
from benchmarks.shop import DIM, Shop
from benchmarks.tables import markdown
from dyclu import LinUCB, evaluate
from dyclu.data import Log
from dyclu.evaluate import Target
from dyclu.evaluate.estimators import METHODS
from dyclu.sim.reports.document import Table
from dyclu.validation import FloatArray

REPETITIONS, ROWS, LEARNT, FRESH = 100, 30_000, 10_000, 20_000
EPSILON = 0.05
NOTE = (
    "Share of repetitions in which the 95 % interval holds the truth; wanted: at least 90 %. Width "
    "and error: of the interval, and root mean squared error of the estimate, both in % of the "
    "truth. The interval of empirical Bernstein is in brackets."
)


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """Visits of a shop as arrays: a log, and the click probabilities (rows, K) of all items."""

    log: Log
    chances: FloatArray

    @classmethod
    def drawn(cls, shop: Shop, rng: np.random.Generator, rows: int, day: float = 0.0) -> Visits:
        """Draw visits of 30 days, logged by the earlier system."""
        users, arms, chances, logged, luck, draw = zip(*shop.visits(rng, rows, day), strict=True)
        table, clicks = np.stack(logged), np.stack(chances)
        chosen = (table.cumsum(axis=1) < np.array(draw)[:, None]).sum(axis=1)
        chosen = np.minimum(chosen, table.shape[1] - 1)
        each = np.arange(rows)
        log = Log.of_arrays(
            user=users,
            arms=np.stack(arms),
            chosen=chosen,
            reward=(np.array(luck) < clicks[each, chosen]).astype(float),
            propensity=table[each, chosen],
        )
        return cls(log, clicks)

    def value(self, target: Target) -> float:
        """Return the mean click probability of what a policy shows in these visits."""
        shown = np.concatenate([np.asarray(target(chunk)) for chunk in self.log.chunks()])
        return float((shown * self.chances).sum(axis=1).mean())


def policies(log: Log) -> dict[str, Target]:
    """Return the better and the worse policy, which have learnt a log, and how it was logged."""
    better, worse = (LinUCB(DIM, alpha=0.01, shared=True) for _ in range(2))
    for chunk in log.chunks():
        better.learn_many(chunk.user.tolist(), chunk.contexts, chunk.reward)
        worse.learn_many(chunk.user.tolist(), chunk.contexts, -chunk.reward)
    return {
        "better": evaluate.frozen(better, epsilon=EPSILON),
        "worse": evaluate.frozen(worse, epsilon=EPSILON),
    }


def judged(seed: int, rows: int, learnt: int, fresh: int) -> list[Record]:
    """Evaluate both policies in one shop; return a record for every estimator."""
    shop = Shop.drawn(np.random.default_rng([seed, 0]))
    first, log, later = (
        Visits.drawn(shop, np.random.default_rng([seed, 1 + i]), count)
        for i, count in enumerate((learnt, rows, fresh))
    )
    targets = policies(first.log)
    found = evaluate.compare(log.log, targets, seed=seed)
    truths = {name: later.value(target) for name, target in targets.items()}
    return [
        _record(seed, found[name], method, truth)
        for name, truth in truths.items()
        for method in found[name].estimates
    ]


def _record(seed: int, found: evaluate.Evaluation, method: str, truth: float) -> Record:
    estimate = found.estimates[method]
    return {
        "seed": seed,
        "policy": found.name,
        "method": method,
        "truth": truth,
        "estimate": estimate.value,
        "held": float(truth in estimate.interval),
        "width": (estimate.interval.high - estimate.interval.low) / truth,
        "bernstein": None if estimate.bernstein is None else float(truth in estimate.bernstein),
        "squared_error": (estimate.value / truth - 1) ** 2,
        "effective": found.overlap.effective,
        "refused": float(bool(found.problems)),
        "said": float((found.gain.interval.low > 0) - (found.gain.interval.high < 0)),
    }


def table(records: Sequence[Record]) -> Table:
    """Return how often intervals hold the truth, by policy and method."""
    rows = []
    for policy in dict.fromkeys(record["policy"] for record in records):
        for method, name in METHODS.items():
            one = {"policy": policy, "method": method}
            sure = values(records, "bernstein", **one)
            rows.append((
                policy,
                name,
                f"{np.mean(values(records, 'held', **one)):.0%}"
                + (f" ({np.mean(sure):.0%})" if sure else ""),
                f"{np.mean(values(records, 'width', **one)):.0%}",
                f"{np.sqrt(np.mean(values(records, 'squared_error', **one))):.0%}",
                spread(values(records, "truth", **one), 2, 100),
            ))  # fmt: skip
    header = ("policy", "estimator", "holds the truth", "width", "error", "true click rate, %")
    return Table(header=header, rows=tuple(rows), note=NOTE, words=("estimator",))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--first-seed", type=int, default=0)
    asked = parser.parse_args()
    records: list[Record] = []
    for seed in range(asked.first_seed, asked.first_seed + asked.repetitions):
        found = judged(seed, asked.rows, LEARNT, FRESH)
        tell(next(one for one in found if one["method"] == "dr"))
        records += found
    print(markdown(table(records)))


if __name__ == "__main__":
    main()
