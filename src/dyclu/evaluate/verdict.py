"""Verdicts: what a log can and cannot say about policies, in words.

The limits are conventions, not theorems; docs/evaluation.md, section 5, gives the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from dyclu.evaluate.intervals import interval_text
from dyclu.evaluate.results import Estimate, Evaluation, Overlap

LEAST_USERS = 20
"""With fewer users, resampling them says little about users who were not seen."""

LEAST_EFFECTIVE = 50.0
"""Least effective sample size."""

MOST_MISSING = 0.05
"""Largest share of a policy's choices that the log may never show."""

MOST_HEAVIEST = 0.1
"""Largest share that one row may have in all weights."""

MOST_WEIGHT = 1.05
"""Largest mean weight; it is 1 if propensities are right."""


def problems(overlap: Overlap, estimate: Estimate) -> tuple[str, ...]:
    """Return why a log cannot answer; empty if it can."""
    return tuple(_problems(overlap, estimate))


def weight_problems(mean: Estimate) -> Iterator[str]:
    """Yield what is wrong if the mean weight is not 1: no overlap, or wrong propensities."""
    if mean.value < 1 - MOST_MISSING and mean.interval.high < 1:
        yield f"the log never shows {1 - mean.value:.0%} of what the policy chooses"
    if mean.value > MOST_WEIGHT and mean.interval.low > 1:
        yield f"propensities contradict the log: the mean weight is {mean.value:.2f} instead of 1"


def _problems(overlap: Overlap, estimate: Estimate) -> Iterator[str]:
    if overlap.users < LEAST_USERS:
        yield f"only {overlap.users} users, at least {LEAST_USERS} are needed"
    yield from weight_problems(overlap.mean_weight)
    if overlap.effective < LEAST_EFFECTIVE:
        yield (
            f"{overlap.rows:,} rows count like {overlap.effective:.0f} rows of the policy itself, "
            f"at least {LEAST_EFFECTIVE:.0f} are needed"
        )
    elif overlap.heaviest > MOST_HEAVIEST:
        yield f"one row has {overlap.heaviest:.0%} of all weight"
    if overlap.users >= LEAST_USERS and not estimate.interval.bounded:
        yield "too few different rewards where the policy agrees with the log"


def verdict(name: str, estimate: Estimate, gain: Estimate, found: tuple[str, ...]) -> str:
    """Return whether a policy earns more than what was logged."""
    if found:
        return f"The log cannot say what {name} earns: {'; '.join(found)}."
    amount = f"{name} earns {estimate.value:.4g} per decision ({interval_text(estimate.interval)})"
    if gain.interval.low > 0:
        return f"{amount}: more than what was logged."
    if gain.interval.high < 0:
        return f"{amount}: less than what was logged."
    return f"{amount}. The log cannot tell it from what was logged."


def ranking(
    evaluations: Mapping[str, Evaluation], differences: Mapping[tuple[str, str], Estimate]
) -> str:
    """Return which policies can be ranked, and which cannot."""
    able = sorted(
        (name for name, one in evaluations.items() if not one.problems),
        key=lambda name: -evaluations[name].best.value,
    )
    unable = [name for name in evaluations if name not in able]
    sentences = [_pair(a, b, differences) for a, b in combinations(able, 2)]
    if unable:
        sentences.append(f"The log cannot rank {', '.join(unable)}.")
    return " ".join(sentences) or f"{able[0]} has nothing to be ranked with."


def _pair(first: str, second: str, differences: Mapping[tuple[str, str], Estimate]) -> str:
    forward = (first, second) in differences
    interval = differences[(first, second) if forward else (second, first)].interval
    surely = interval.low > 0 if forward else interval.high < 0
    if surely:
        return f"{first} earns more than {second}."
    return f"The log cannot rank {first} and {second}."
