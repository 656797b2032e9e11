"""Averages over seeds: a `Spread` is a mean and its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev

from scipy.special import stdtrit

from dyclu.sim.runs.results import Result

LEVEL = 0.05
"""Level of the test in `Spread.decided`."""

UNKNOWN_ERROR = "n/a"
"""Text for the standard error of a single run."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and its standard error, which is None for one seed.

    >>> print(Spread.of([880.0, 900.0]), Spread.of([8.5]))
    890 ± 10 8.50 ± n/a
    """

    mean: float
    error: float | None
    seeds: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the mean and standard error of values, one per seed."""
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), error, len(values))

    @property
    def decided(self) -> bool:
        """Whether the mean differs from 0 at level 5 % (Student's t); False for one seed.

        >>> Spread.of([1.0, 2.0]).decided, Spread.of([1.0, 2.0, 1.5]).decided
        (False, True)
        """
        if self.error is None:
            return False
        return abs(self.mean) > float(stdtrit(self.seeds - 1, 1 - LEVEL / 2)) * self.error

    def __str__(self) -> str:
        return self.text(sum(abs(self.mean) < limit for limit in (10, 100)))

    def text(self, digits: int) -> str:
        """Return mean ± error with this number of decimals."""
        error = UNKNOWN_ERROR if self.error is None else f"{self.error:,.{digits}f}"
        return f"{self.mean:,.{digits}f} ± {error}".replace("-", "−")


def grouped(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """Return the results by setting and policy."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.setting, result.policy), []).append(result)
    return groups


def by_setting(results: Iterable[Result]) -> dict[str, dict[str, list[Result]]]:
    """Return the results by setting, then by policy."""
    found: dict[str, dict[str, list[Result]]] = {}
    for (setting, policy), runs in grouped(results).items():
        found.setdefault(setting, {})[policy] = runs
    return found


def regrets(results: Iterable[Result]) -> dict[str, dict[str, Spread]]:
    """Return the regret by setting and policy."""
    return {
        setting: {policy: Spread.of([run.regret for run in runs]) for policy, runs in row.items()}
        for setting, row in by_setting(results).items()
    }


def paired(
    first: Sequence[Result],
    second: Sequence[Result],
    measure: Callable[[Result], float] = attrgetter("regret"),
) -> Spread | None:
    """Return the mean difference, first minus second, over the seeds that both have.

    Runs with the same seed play in the same world, so pairing removes the variance between worlds.
    Returns None if there is no common seed.
    """
    seconds = {run.seed: measure(run) for run in second}
    gaps = [measure(run) - seconds[run.seed] for run in first if run.seed in seconds]
    return Spread.of(gaps) if gaps else None


def policies_of(spreads: Mapping[str, Mapping[str, Spread]]) -> list[str]:
    """Return the policies of all settings, in order of first appearance."""
    return list(dict.fromkeys(policy for row in spreads.values() for policy in row))
