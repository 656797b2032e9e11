"""``python -m benchmarks.lift``: error rates of the interval of lift, looked at every day.

Users have unequal activity (a Pareto distribution) and unequal click rates around 5 %; they are
divided into two groups at random. *False alarms*: the share of A/A tests, in which both groups are
served alike, whose interval excludes 0 on any day. *Power*: the share of tests with a true lift
whose interval excludes 0 by the last day, and the median day on which it first does.

With ``--service`` the same trials go through the sums that the service keeps (`LiftSums`), decision
by decision, with users in its buckets; else `lift` gets the sums of every user.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import markdown
from dyclu.evaluate import lift
from dyclu.evaluate.sequences import _Group
from dyclu.service.engine.choosing.lift import DAY, LiftSums, bucket_of
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.validation import FloatArray

Flags = NDArray[np.bool_]
Alarm = Callable[["Trial", int], int | None]
"""The first day on which the groups of a trial with a seed are said to differ."""

TESTS, POWERED, USERS, DAYS = 1_000, 200, 2_000, 60
SHARES, EFFECTS = (0.5, 0.05), (0.1, 0.2, 0.3, 0.5)
NOTE = (
    f"{USERS:,} users, {DAYS} days, looked at every day; {TESTS:,} tests without a lift and "
    f"{POWERED} with each of the others."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Users with unequal activity and unequal click rates, divided at random into two groups.

    Attributes
    ----------
    users, days : int
        Size of the trial.
    control : float
        Share of users in the control group.
    effect : float
        Relative lift of the click rates of the others.
    rate, spread : float
        Mean click rate, and the standard deviation of its logarithm over users.
    """

    users: int
    days: int
    control: float = 0.5
    effect: float = 0.0
    rate: float = 0.05
    spread: float = 0.7

    def drawn(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, Flags]:
        """Return decisions and clicks (days, users) until each day, and who is treated."""
        activity = 0.2 * (1 + rng.pareto(2.5, self.users))
        rates = self.rate * np.exp(self.spread * rng.normal(size=self.users) - self.spread**2 / 2)
        treated = rng.random(self.users) >= self.control
        rates = np.minimum(rates * np.where(treated, 1 + self.effect, 1.0), 0.9)
        visits = rng.poisson(activity, (self.days, self.users))
        clicks = rng.binomial(visits, rates)
        return visits.cumsum(axis=0) * 1.0, clicks.cumsum(axis=0) * 1.0, treated


def first_alarm(trial: Trial, seed: int, errors: float | None = None) -> int | None:
    """Return the first day on which the groups are said to differ, if any.

    `errors` replaces the confidence sequence by so many standard errors.
    """
    counts, totals, treated = trial.drawn(np.random.default_rng([seed, trial.users]))
    for day in range(trial.days):
        groups = [(counts[day, one], totals[day, one]) for one in (treated, ~treated)]
        found = lift(*groups)
        if errors is None:
            decided = found.decided
        else:
            width = np.sqrt(sum(_Group.of(*one).variance for one in groups))
            decided = found.interval.bounded and abs(found.value) > errors * width
        if decided:
            return day
    return None


def first_service_alarm(trial: Trial, seed: int) -> int | None:
    """Return the first day on which the service's sums say that the groups differ, if any."""
    counts, totals, treated = trial.drawn(np.random.default_rng([seed, trial.users]))
    visits, clicks = (np.diff(one, axis=0, prepend=0.0) for one in (counts, totals))
    buckets = [bucket_of(f"user-{seed}-{user}") for user in range(trial.users)]
    sums = LiftSums()
    for day in range(trial.days):
        for user in np.flatnonzero(visits[day]).tolist():
            group = 0 if treated[user] else 1
            made, reward = int(visits[day, user]), float(clicks[day, user])
            sums.add(day * DAY, group, buckets[user], decisions=made, reward=reward)
        if sums.result().decided:
            return day
    return None


def false_alarms(trial: Trial, *, tests: int, seed: int, errors: float | None = None) -> float:
    """Return the share of tests in which equal groups are ever said to differ."""
    alarms = [first_alarm(trial, seed + one, errors) is not None for one in range(tests)]
    return sum(alarms) / tests


def table(tests: int, powered: int, trial: Trial, alarm: Alarm = first_alarm) -> Table:
    """Return false alarms and power, by share of the control group."""
    rows = []
    for share in SHARES:
        one = replace(trial, control=share)
        equal = [alarm(one, seed) for seed in range(tests)]
        rows.append((f"{share:.0%}", "none", *_cells(equal)))
        for effect in EFFECTS:
            lifted = replace(one, effect=effect)
            alarms = [alarm(lifted, seed) for seed in range(powered)]
            rows.append((f"{share:.0%}", f"{effect:.0%}", *_cells(alarms)))
    header = ("control group", "true lift", "said to differ", "median day")
    return Table(header=header, rows=tuple(rows), note=NOTE)


def _cells(alarms: Sequence[int | None]) -> tuple[str, str]:
    found = [day + 1 for day in alarms if day is not None]
    day = f"{np.median(found):.0f}" if found else NOTHING
    return f"{len(found) / len(alarms):.1%}", day


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=TESTS)
    parser.add_argument("--service", action="store_true", help="use the sums of the service")
    asked = parser.parse_args()
    powered = min(POWERED, asked.tests)
    alarm = first_service_alarm if asked.service else first_alarm
    print(markdown(table(asked.tests, powered, Trial(users=USERS, days=DAYS), alarm)))


if __name__ == "__main__":
    main()
