"""`replay`: compare another policy with the one that served, on the same journal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dyclu.policy import Policy
from dyclu.service.disk.history import History
from dyclu.service.disk.journal import JournalReader
from dyclu.service.engine.lines import DecisionBody, EventBody, ExpiryBody, Line, RewardBody
from dyclu.service.spec import PolicySpec
from dyclu.validation import FloatArray


@dataclass(slots=True)
class ReplayedPolicy:
    """A policy that learns a journal's rewards, and its errors of prediction.

    Attributes
    ----------
    changes : Counter of str
        How many changes it noticed, by user.
    squares, predicted : float and int
        Sum of the squared errors, and their number. Predictions are made at the decision.
    predictions : dict of int to float
        Predictions whose reward has not come yet, by number of the decision.
    """

    policy: Policy
    changes: Counter[str] = field(default_factory=Counter)
    squares: float = 0.0
    predicted: int = 0
    predictions: dict[int, float] = field(default_factory=dict)

    def predict(self, seq: int, user: str, x: FloatArray) -> None:
        """Predict the reward of a decision that was made."""
        self.predictions[seq] = self.policy.decide(user, x[None, :]).mean

    def learn(self, user: str, x: FloatArray, value: float, of: int | None = None) -> None:
        """Learn a reward, and compare it with its prediction."""
        if of is not None and of in self.predictions:
            self.squares += (value - self.predictions.pop(of)) ** 2
            self.predicted += 1
        if self.policy.learn(user, x, value).changed:
            self.changes[user] += 1

    @property
    def error(self) -> float | None:
        """Root mean squared error of prediction."""
        return math.sqrt(self.squares / self.predicted) if self.predicted else None


@dataclass(slots=True)
class Report:
    """The result of a comparison.

    Attributes
    ----------
    served, other : ReplayedPolicy
        The policy that served, and the one it is compared with.
    asked, agreed : int
        Decisions whose arms are all in the journal, and those where the other policy chooses the
        same arm.
    weight, weighted : float
        Sum of the inverse propensities of the agreed and rewarded ones, and the same sum with each
        term multiplied by the reward.
    """

    served: ReplayedPolicy
    other: ReplayedPolicy
    decisions: int = 0
    rewards: int = 0
    events: int = 0
    total: float = 0.0
    asked: int = 0
    agreed: int = 0
    weight: float = 0.0
    weighted: float = 0.0

    @property
    def value(self) -> float | None:
        """Estimate of the mean reward of the other policy, from logged propensities.

        Decisions on which both agree are weighted by their inverse propensity (self-normalised
        inverse propensity scoring); None if there are none with a propensity.
        """
        return self.weighted / self.weight if self.weight else None

    def numbers(self) -> dict[str, object]:
        """Return the report as plain values."""
        only = set(self.served.changes) ^ set(self.other.changes)
        return {
            "decisions": self.decisions,
            "rewards": self.rewards,
            "events": self.events,
            "mean_reward": self.total / self.rewards if self.rewards else None,
            "served": _summary(self.served),
            "replayed": _summary(self.other),
            "users_changed_in_one_only": len(only),
            "decisions_with_arms": self.asked,
            "agreement": self.agreed / self.asked if self.asked else None,
            "estimated_mean_reward": self.value,
        }


def _summary(one: ReplayedPolicy) -> dict[str, object]:
    changes = sum(one.changes.values())
    return {"policy": repr(one.policy), "error": one.error, "changes": changes}


def replay(
    reader: JournalReader,
    served: PolicySpec,
    other: PolicySpec,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Replay a journal with the policy that served and with another one.

    Both learn the rewards of the arms that were chosen then: there are no other rewards. Both
    begin with the first line that is archived or kept.
    """
    report = Report(ReplayedPolicy(served.make()), ReplayedPolicy(other.make()))
    waiting: dict[int, tuple[str, FloatArray, float]] = {}
    for line in History(reader).lines():
        _replay_line(report, waiting, line)
        progress(line.seq)
    return report


def _replay_line(
    report: Report, waiting: dict[int, tuple[str, FloatArray, float]], line: Line
) -> None:
    both = (report.served, report.other)
    match line.body:
        case DecisionBody() as decision:
            user, x = line.user or "", np.array(decision.x)
            report.decisions += 1
            for one in both:
                one.predict(line.seq, user, x)
            waiting[line.seq] = (user, x, _agreement(report, user, decision))
        case RewardBody(value=value) if line.of is not None and line.of in waiting:
            user, x, weight = waiting.pop(line.of)
            report.rewards += 1
            report.total += value
            report.weight += weight
            report.weighted += weight * value
            for one in both:
                one.learn(user, x, value, line.of)
        case EventBody(x=features, value=value):
            report.events += 1
            for one in both:
                one.learn(line.user or "", np.array(features), value)
        case ExpiryBody(decisions=expired):
            for seq in expired:
                waiting.pop(seq, None)
                for one in both:
                    one.predictions.pop(seq, None)


def _agreement(report: Report, user: str, decision: DecisionBody) -> float:
    """Return the inverse propensity of a decision if the other policy chooses the same, else 0."""
    if decision.arms is None:
        return 0.0
    arms = np.array([arm.features for arm in decision.arms])
    choice = decision.arms[report.other.policy.decide(user, arms).arm].id
    report.asked += 1
    report.agreed += choice == decision.arm
    return 1 / decision.propensity if choice == decision.arm and decision.propensity else 0.0
