"""`compare`: policies that do not learn, evaluated on one log, in chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from dyclu.data import Log
from dyclu.errors import OptionError
from dyclu.evaluate.estimators import METHODS, Sums
from dyclu.evaluate.gathering import Gathered, gathered, logging_policy
from dyclu.evaluate.intervals import REPLICATES, Interval, Ratios, empirical_bernstein
from dyclu.evaluate.results import PRIMARY, Comparison, Estimate, Evaluation, Overlap
from dyclu.evaluate.reward_model import Rewards
from dyclu.evaluate.targets import Target
from dyclu.evaluate.verdict import problems, ranking, verdict
from dyclu.validation import as_positive, as_probability, as_whole


def compare(
    log: Log,
    policies: Mapping[str, Target],
    *,
    propensities: str | None = None,
    model: Rewards | None = None,
    level: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = 0,
    bound: float | None = None,
) -> Comparison:
    """Return what policies would have earned per decision, had they served instead of the log.

    The log is read in chunks, at least twice.

    Parameters
    ----------
    log : Log
        The decisions that were made, with propensities if they are known.
    policies : mapping of str to Target
        Policies that do not learn, by name: see `frozen` and `uniform`.
    propensities : "logged", "estimated" or None
        None takes those of the log, and estimates them if it has none.
    model : callable, optional
        Expected rewards (rows, K) of a chunk, fitted on other data; by default ridge regression,
        cross-fitted by users.
    level : float
        Probability that an interval holds the truth.
    replicates, seed : int
        Resamples of the bootstrap, and the seed of their draws.
    bound : float, optional
        Largest weight that was possible, for the interval of empirical Bernstein; by default the
        largest one that occurred.

    Examples
    --------
    Half of 400 users were shown each arm; only the second is clicked, by every other user.

    >>> import numpy as np
    >>> log = Log.of_arrays(
    ...     user=range(400), arms=np.tile(np.eye(2), (400, 1, 1)), chosen=[0, 0, 1, 1] * 100,
    ...     reward=[0.0, 0.0, 0.0, 1.0] * 100, propensity=np.full(400, 0.5),
    ... )
    >>> second = lambda chunk: np.tile([0.0, 1.0], (len(chunk), 1))
    >>> found = compare(log, {"second": second})
    >>> round(found["second"].estimates["ips"].value, 3), round(found.logged.value, 3)
    (0.5, 0.25)
    >>> found["second"].verdict
    'second earns 0.5 per decision (0.4... to 0.5...): more than what was logged.'
    """
    if not policies:
        raise OptionError("policies is empty, expected at least one; pass {'name': policy}")
    options = _Options(
        as_probability(level, "level"),
        as_whole(replicates, "replicates", least=100),
        as_whole(seed, "seed", least=0),
        None if bound is None else as_positive(bound, "bound"),
    )
    kind, propensity = logging_policy(log, propensities)
    found = gathered(log, policies, propensity, model)
    evaluations = {
        name: _evaluation(name, sums, found, options) for name, sums in found.sums.items()
    }
    differences = _differences(found, options)
    return Comparison(
        logged=options.estimate(found.logged, found),
        evaluations=evaluations,
        differences=differences,
        level=options.level,
        propensities=kind,
        verdict=ranking(evaluations, differences),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    level: float
    replicates: int
    seed: int
    bound: float | None

    def interval(self, ratios: Ratios, level: float | None = None) -> Interval:
        wanted = self.level if level is None else level
        return ratios.bootstrap(level=wanted, replicates=self.replicates, seed=self.seed)

    def estimate(self, ratios: Ratios, found: Gathered) -> Estimate:
        """Return an estimated mean reward; that of clicks is between 0 and 1."""
        return Estimate(value=ratios.value, interval=self.interval(ratios)).cut(found.clicks)


def _evaluation(name: str, sums: Sums, found: Gathered, options: _Options) -> Evaluation:
    threshold = sums.threshold(found.high - found.low)
    methods = [one for one in METHODS if one != "snips" or sums.weight.any()]
    estimates = {one: _estimate(one, sums, threshold, found, options) for one in methods}
    overlap = _overlap(sums, found, options)
    difference = Ratios.difference(sums.ratios(PRIMARY), found.logged)
    gain = Estimate(value=difference.value, interval=options.interval(difference))
    reasons = problems(overlap, estimates[PRIMARY])
    return Evaluation(
        name=name,
        estimates=estimates,
        threshold=threshold,
        overlap=overlap,
        gain=gain,
        problems=reasons,
        verdict=verdict(name, estimates[PRIMARY], gain, reasons),
    )


def _estimate(
    method: str, sums: Sums, threshold: float, found: Gathered, options: _Options
) -> Estimate:
    ratios = sums.ratios(method, threshold)
    width = _width(method, min(options.bound or sums.largest, _cap(method, threshold)), found)
    bernstein = None
    if width is not None:
        terms = sums.numerator(method, threshold)
        bernstein = empirical_bernstein(terms, sums.rows, width=width, level=options.level)
    interval = options.interval(ratios)
    return Estimate(value=ratios.value, interval=interval, bernstein=bernstein).cut(found.clicks)


def _cap(method: str, threshold: float) -> float:
    return threshold if method == "switch" else math.inf


def _width(method: str, weight: float, found: Gathered) -> float | None:
    """Return the largest minus the smallest term of a row with weights up to `weight`."""
    match method:
        case "ips":
            return weight * (max(0.0, found.high) - min(0.0, found.low))
        case "dr" | "switch":
            return (1 + 2 * weight) * (found.high - found.low)
    return None


def _overlap(sums: Sums, found: Gathered, options: _Options) -> Overlap:
    rows, total = float(sums.rows.sum()), float(sums.weight.sum())
    mean = Ratios.single(sums.weight, sums.rows)
    return Overlap(
        rows=int(rows),
        users=len(found.groups),
        effective=total**2 / sums.squares if sums.squares else 0.0,
        largest=sums.largest,
        heaviest=sums.largest / total if total else 0.0,
        unused=sums.unused / rows,
        mean_weight=Estimate(value=mean.value, interval=_of_weights(mean, options)),
    )


def _of_weights(mean: Ratios, options: _Options) -> Interval:
    """Return the interval of the mean weight; weights that are all alike are known exactly."""
    return options.interval(mean) if mean.error > 0 else Interval(mean.value, mean.value)


def _differences(found: Gathered, options: _Options) -> dict[tuple[str, str], Estimate]:
    """Return all differences of two policies; by Bonferroni their intervals hold together."""
    pairs = list(combinations(found.sums, 2))
    level = 1 - (1 - options.level) / max(1, len(pairs))
    differences = {}
    for first, second in pairs:
        ratios = Ratios.difference(
            found.sums[first].ratios(PRIMARY), found.sums[second].ratios(PRIMARY)
        )
        interval = options.interval(ratios, level)
        differences[first, second] = Estimate(value=ratios.value, interval=interval)
    return differences
