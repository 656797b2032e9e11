"""`compare`: policies that do not learn, evaluated on one log, in chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from dyclu.data import Log
from dyclu.errors import OptionError
from dyclu.evaluate.estimators import METHODS, Sums
from dyclu.evaluate.gathering import Gathered, gathered, logging_policy
from dyclu.evaluate.intervals import (
    REPLICATES,
    UNBOUNDED,
    Interval,
    Ratios,
    checked_replicates,
    empirical_bernstein,
    of_weights,
    replicates_for,
    replicates_needed,
)
from dyclu.evaluate.results import PRIMARY, Comparison, Estimate, Evaluation, Overlap
from dyclu.evaluate.reward_model import Rewards
from dyclu.evaluate.targets import Target
from dyclu.evaluate.verdict import problems, ranking, verdict
from dyclu.validation import as_positive, as_probability, as_whole

BOUND_TOLERANCE = 1e-9
"""A weight may exceed its bound by this share: it is a rounded quotient."""


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
        Resamples of the bootstrap, and the seed of their draws. Up to 10,000 are drawn where many
        comparisons or a high level need more than `replicates`.
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
    level = as_probability(level, "level")
    options = _Options(
        level,
        checked_replicates(level, as_whole(replicates, "replicates", least=100)),
        as_whole(seed, "seed", least=0),
        None if bound is None else as_positive(bound, "bound"),
        # Every pair of policies, and every policy with the log.
        comparisons=len(policies) * (len(policies) + 1) // 2,
    )
    kind, propensity = logging_policy(log, propensities)
    found = gathered(log, policies, propensity, model)
    _check_bound(found, options.bound)
    evaluations = {
        name: _evaluation(name, sums, found, options) for name, sums in found.sums.items()
    }
    differences = _differences(found, options)
    return Comparison(
        logged=options.estimate(found.logged).cut(found.clicks),
        evaluations=evaluations,
        differences=differences,
        level=options.level,
        propensities=kind,
        verdict=options.too_many or ranking(evaluations, differences),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    level: float
    replicates: int
    seed: int
    bound: float | None
    comparisons: int

    @property
    def strict(self) -> float:
        """Level of each comparison, by Bonferroni: all of them hold together at `level`."""
        return 1 - (1 - self.level) / self.comparisons

    @property
    def too_many(self) -> str:
        """Why nothing is ranked; empty if resamples can give quantiles so far out."""
        if replicates_for(self.strict, self.replicates) is not None:
            return ""
        needed = replicates_needed(self.strict)
        return (
            f"Nothing is ranked: {self.comparisons} comparisons need {needed:,} resamples; compare "
            f"fewer policies, or pass replicates={needed}."
        )

    def interval(self, ratios: Ratios) -> Interval:
        return ratios.bootstrap(level=self.level, replicates=self.replicates, seed=self.seed)

    def estimate(self, ratios: Ratios) -> Estimate:
        return Estimate(value=ratios.value, interval=self.interval(ratios))

    def difference(self, first: Ratios, second: Ratios) -> Estimate:
        """Return one of the comparisons; without bounds if they are too many."""
        ratios, count = Ratios.difference(first, second), self.replicates
        enough, interval = replicates_for(self.strict, count), UNBOUNDED
        if enough is not None:
            interval = ratios.bootstrap(level=self.strict, replicates=enough, seed=self.seed)
        return Estimate(value=ratios.value, interval=interval)


def _check_bound(found: Gathered, bound: float | None) -> None:
    for name, sums in found.sums.items():
        if bound is not None and sums.largest > bound * (1 + BOUND_TOLERANCE):
            raise OptionError(
                f"bound is {bound:.6g}, but a row has the weight {sums.largest:.6g} with policy "
                f"{name!r}; expected a bound that no weight exceeds: pass 1 / the least propensity"
            )


def _evaluation(name: str, sums: Sums, found: Gathered, options: _Options) -> Evaluation:
    low, high = found.range
    threshold = sums.threshold(high - low)
    methods = [one for one in METHODS if one != "snips" or sums.weight.any()]
    uncut = {one: _estimate(one, sums, threshold, found, options) for one in methods}
    estimates = {one: estimate.cut(found.clicks) for one, estimate in uncut.items()}
    overlap = _overlap(sums, found, options)
    gain = options.difference(sums.ratios(PRIMARY), found.logged)
    # An interval without ends is a problem, also where clicks bound it by 0 and 1.
    reasons = problems(overlap, uncut[PRIMARY])
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
    return replace(options.estimate(ratios), bernstein=bernstein)


def _cap(method: str, threshold: float) -> float:
    return threshold if method == "switch" else math.inf


def _width(method: str, weight: float, found: Gathered) -> float | None:
    """Return the largest minus the smallest term of a row with weights up to `weight`.

    None if it is not known: the log has no weight, or rewards that are all alike.
    """
    low, high = found.range
    if not weight or low == high:
        return None
    match method:
        case "ips":
            return weight * (max(0.0, high) - min(0.0, low))
        case "dr" | "switch":
            return (1 + 2 * weight) * (high - low)
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
        mean_weight=Estimate(value=mean.value, interval=of_weights(mean, options.interval)),
    )


def _differences(found: Gathered, options: _Options) -> dict[tuple[str, str], Estimate]:
    """Return all differences of two policies."""
    ratios = {name: sums.ratios(PRIMARY) for name, sums in found.sums.items()}
    return {
        (first, second): options.difference(ratios[first], ratios[second])
        for first, second in combinations(ratios, 2)
    }
