"""The results of an evaluation: `Estimate`, `Overlap`, `Evaluation`, `Comparison`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dyclu.display import html_table
from dyclu.evaluate.intervals import Interval, interval_text

PRIMARY = "dr"
"""The estimator that verdicts use: right if the propensities are, whatever the model of rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated mean reward per decision.

    Attributes
    ----------
    value : float
        The estimate.
    interval : Interval
        By the bootstrap over users.
    bernstein : Interval or None
        By empirical Bernstein, valid for any number of users; None if the method has none.
    """

    value: float
    interval: Interval
    bernstein: Interval | None = None

    def cut(self, clicks: bool) -> Estimate:
        """Return the estimate of a mean reward; the mean of clicks must be from 0 to 1.

        Only the intervals are cut: an estimate outside shows how uncertain it is.
        """
        if not clicks:
            return self
        sure = None if self.bernstein is None else self.bernstein.within(0.0, 1.0)
        return replace(self, interval=self.interval.within(0.0, 1.0), bernstein=sure)

    def __str__(self) -> str:
        return f"{self.value:.4g} ({interval_text(self.interval)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How much a log says about a policy.

    Attributes
    ----------
    rows, users : int
        Size of the log. `users` are at most those counted apart (`MOST_GROUPS`).
    effective : float
        Effective sample size ``(Σw)² / Σw²``: as many rows of the policy itself would be worth.
    largest : float
        Largest weight of a row.
    heaviest : float
        Share of the largest weight in all weights.
    unused : float
        Share of rows whose shown arm the policy would never choose.
    mean_weight : Estimate
        Mean weight. It is 1 if propensities are right and the log shows all that the policy
        chooses.
    """

    rows: int
    users: int
    effective: float
    largest: float
    heaviest: float
    unused: float
    mean_weight: Estimate

    @property
    def missing(self) -> float:
        """Share of the policy's choices that the log never shows, estimated."""
        return max(0.0, 1.0 - self.mean_weight.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one policy would have earned per decision.

    Attributes
    ----------
    name : str
        Name of the policy.
    estimates : mapping of str to Estimate
        By method (`METHODS`); "snips" is left out if the policy never chooses what was shown.
    threshold : float
        Weight from which SWITCH trusts the model of rewards; infinite if never.
    overlap : Overlap
        How much the log says about the policy.
    gain : Estimate
        Its reward minus that of the log, by the doubly robust method; its interval holds together
        with those of all other comparisons.
    problems : tuple of str
        Why the log cannot answer; empty if it can.
    verdict : str
        The answer in words.
    """

    name: str
    estimates: Mapping[str, Estimate]
    threshold: float
    overlap: Overlap
    gain: Estimate
    problems: tuple[str, ...]
    verdict: str

    @property
    def best(self) -> Estimate:
        """The doubly robust estimate."""
        return self.estimates[PRIMARY]

    def _repr_html_(self) -> str:
        """Return the evaluation as notebooks show it: estimates by method, overlap and verdict."""
        estimates = {**self.estimates, "gain over the log": self.gain}
        rows: list[tuple[str, float, str]]
        rows = [(how, one.value, interval_text(one.interval)) for how, one in estimates.items()]
        rows.append(("effective rows", self.overlap.effective, f"of {self.overlap.rows}"))
        return html_table(f"{self.name}: reward per decision", rows, note=self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several policies, evaluated on one log.

    Attributes
    ----------
    logged : Estimate
        Mean reward of the log itself.
    evaluations : mapping of str to Evaluation
        By name of the policy.
    differences : mapping of (str, str) to Estimate
        First minus second policy. Their intervals and those of all gains hold together.
    level : float
        Level of the intervals.
    propensities : str
        "logged" or "estimated".
    verdict : str
        Which policies can be ranked, in words.
    """

    logged: Estimate
    evaluations: Mapping[str, Evaluation]
    differences: Mapping[tuple[str, str], Estimate]
    level: float
    propensities: str
    verdict: str

    def __getitem__(self, name: str) -> Evaluation:
        return self.evaluations[name]

    def _repr_html_(self) -> str:
        """Return the comparison as notebooks show it: estimates, intervals and the verdict."""
        values = {"the log": self.logged} | {
            name: found.best for name, found in self.evaluations.items()
        }
        rows = [(name, one.value, interval_text(one.interval)) for name, one in values.items()]
        title = f"Reward per decision, with intervals of {self.level:.0%}"
        return html_table(title, rows, note=self.verdict)
