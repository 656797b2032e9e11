"""`replay`: what another policy would have made of the same journal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dyclu.policy import Policy
from dyclu.service.disk.journal import JournalReader
from dyclu.service.engine.records import Decision, Event, Expiry, Line, Reward
from dyclu.service.spec import PolicySpec
from dyclu.validation import FloatArray


@dataclass(slots=True)
class Hindsight:
    """One policy that lives through a journal, and how well it foresaw the rewards.

    Attributes
    ----------
    changes : Counter of str
        How many changes it noticed, by user.
    squares, predicted : float and int
        Sum of squares and count of its errors of prediction, each made at decision time.
    waiting : dict of int to float
        Predictions whose reward has not come yet.
    """

    policy: Policy
    changes: Counter[str] = field(default_factory=Counter)
    squares: float = 0.0
    predicted: int = 0
    waiting: dict[int, float] = field(default_factory=dict)

    def foresee(self, seq: int, user: str, x: FloatArray) -> None:
        """Predict the reward of a decision that was made."""
        self.waiting[seq] = self.policy.decide(user, x[None, :]).mean

    def learn(self, user: str, x: FloatArray, value: float, of: int | None = None) -> None:
        """Take in a reward, and compare it with what was predicted."""
        if of is not None and of in self.waiting:
            self.squares += (value - self.waiting.pop(of)) ** 2
            self.predicted += 1
        if self.policy.learn(user, x, value).changed:
            self.changes[user] += 1

    @property
    def error(self) -> float | None:
        """Root of the mean squared error of prediction."""
        return math.sqrt(self.squares / self.predicted) if self.predicted else None


@dataclass(slots=True)
class Report:
    """What was found.

    Attributes
    ----------
    served, other : Hindsight
        The policy that the journal was served by, and the one it is compared with.
    asked, agreed : int
        Decisions whose arms are all in the journal, and those the other policy would have made the
        same way.
    weight, weighted : float
        Sums of the inverse chances of the agreed and rewarded ones, without and with the rewards.
    """

    served: Hindsight
    other: Hindsight
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
        """The mean reward the other policy would have had, estimated from logged chances.

        Decisions it would have made the same way count by the inverse of the chance they had
        (self-normalised inverse propensity scoring); None if there were none, or none had one.
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
            "served": _told(self.served),
            "replayed": _told(self.other),
            "users_changed_in_one_only": len(only),
            "decisions_with_arms": self.asked,
            "agreement": self.agreed / self.asked if self.asked else None,
            "estimated_mean_reward": self.value,
        }


def _told(one: Hindsight) -> dict[str, object]:
    changes = sum(one.changes.values())
    return {"policy": repr(one.policy), "error": one.error, "changes": changes}


def replay(
    reader: JournalReader,
    served: PolicySpec,
    other: PolicySpec,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Let two policies live through a journal, the one that served and another one.

    Both learn the rewards of the arms that were really chosen, as that is all there is.
    """
    report = Report(Hindsight(served.make()), Hindsight(other.make()))
    waiting: dict[int, tuple[str, FloatArray, float]] = {}
    for line in reader.after(0):
        _live(report, waiting, line)
        progress(line.seq)
    return report


def _live(report: Report, waiting: dict[int, tuple[str, FloatArray, float]], line: Line) -> None:
    both = (report.served, report.other)
    match line.body:
        case Decision() as decision:
            user, x = line.user or "", np.array(decision.x)
            report.decisions += 1
            for one in both:
                one.foresee(line.seq, user, x)
            waiting[line.seq] = (user, x, _agreement(report, user, decision))
        case Reward(value=value) if line.of in waiting:
            user, x, weight = waiting.pop(line.of)
            report.rewards += 1
            report.total += value
            report.weight += weight
            report.weighted += weight * value
            for one in both:
                one.learn(user, x, value, line.of)
        case Event(x=features, value=value):
            report.events += 1
            for one in both:
                one.learn(line.user or "", np.array(features), value)
        case Expiry(decisions=expired):
            for seq in expired:
                waiting.pop(seq, None)
                for one in both:
                    one.waiting.pop(seq, None)


def _agreement(report: Report, user: str, decision: Decision) -> float:
    """Return the inverse of the chance of a decision the other policy would have made, else 0."""
    if decision.arms is None:
        return 0.0
    arms = np.array([arm.features for arm in decision.arms])
    choice = decision.arms[report.other.policy.decide(user, arms).arm].id
    report.asked += 1
    report.agreed += choice == decision.arm
    return 1 / decision.propensity if choice == decision.arm and decision.propensity else 0.0
