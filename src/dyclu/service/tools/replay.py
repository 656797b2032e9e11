"""`replay`: compare another policy with the one that served, on the same journal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dyclu.evaluate import Estimate, LateEvaluation, LateRewards
from dyclu.policy import Policy
from dyclu.service.disk.history import History
from dyclu.service.disk.journal import JournalReader
from dyclu.service.engine.lines import (
    ActivationBody,
    DecisionBody,
    EventBody,
    ExpiryBody,
    Line,
    RewardBody,
)
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
class Pending:
    """A decision whose reward has not come.

    Attributes
    ----------
    weight : float or None
        1 / propensity if the other policy chooses the same arm, else 0; None if arms or
        propensity are not in the journal.
    until : int
        When its time is over.
    active : bool
        Whether it counts; a decision that is made inactive may never be shown.
    """

    user: str
    x: FloatArray
    weight: float | None
    until: int
    active: bool


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
    pending : dict of int to Pending
        Decisions whose reward has not come, by number.
    late : LateRewards
        All others.
    default : float or None
        Reward that the service last gave to an overdue decision; None if it gave none.
    """

    served: ReplayedPolicy
    other: ReplayedPolicy
    decisions: int = 0
    rewards: int = 0
    events: int = 0
    asked: int = 0
    agreed: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)
    late: LateRewards = field(default_factory=LateRewards)
    default: float | None = None

    def evaluation(self) -> LateEvaluation:
        """Return what was earned, and what the other policy would have earned, per decision."""
        waiting = sum(one.active for one in self.pending.values())
        return self.late.result(waiting=waiting, name=type(self.other.policy).__name__)

    def numbers(self) -> dict[str, object]:
        """Return the report as plain values."""
        only = set(self.served.changes) ^ set(self.other.changes)
        found = self.evaluation()
        return {
            "decisions": self.decisions,
            "rewards": self.rewards,
            "waiting": found.waiting,
            "without_reward": found.unrewarded,
            "events": self.events,
            "counted": found.counted,
            "mean_reward": _plain(found.logged),
            "served": _summary(self.served),
            "replayed": _summary(self.other),
            "users_changed_in_one_only": len(only),
            "decisions_with_arms": self.asked,
            "agreement": self.agreed / self.asked if self.asked else None,
            "estimated_mean_reward": _plain(found.estimate),
            "effective_sample_size": found.overlap and found.overlap.effective,
            "warnings": " ".join(found.notes) or None,
            "verdict": found.verdict,
        }


def _summary(one: ReplayedPolicy) -> dict[str, object]:
    changes = sum(one.changes.values())
    return {"policy": repr(one.policy), "error": one.error, "changes": changes}


def _plain(estimate: Estimate | None) -> dict[str, float | None] | None:
    """Return value and interval; None stands for an end that is not known."""
    if estimate is None:
        return None
    ends = {"low": estimate.interval.low, "high": estimate.interval.high}
    known = {name: end if math.isfinite(end) else None for name, end in ends.items()}
    return {"value": estimate.value, **known}


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
    now = max((line.at for line in reader.after(reader.last() - 1)), default=0)
    for line in History(reader).lines():
        _replay_line(report, line, now)
        progress(line.seq)
    _end(report, now)
    return report


def _replay_line(report: Report, line: Line, now: int) -> None:
    """Follow one line; `now` is the time of the last one."""
    match line.body:
        case DecisionBody() as decision:
            _decide(report, line, decision)
        case ActivationBody(until=until) if line.of in report.pending:
            pending = report.pending[line.of]
            pending.active, pending.until = True, until
        case RewardBody() as reward if line.of is not None and line.of in report.pending:
            _reward(report, line.of, reward, now)
        case EventBody(x=features, value=value):
            report.events += 1
            for one in (report.served, report.other):
                one.learn(line.user or "", np.array(features), value)
        case ExpiryBody(decisions=expired):
            for seq in expired:
                _expire(report, seq)


def _reward(report: Report, of: int, reward: RewardBody, now: int) -> None:
    """Learn the reward of a decision."""
    pending, value = report.pending.pop(of), reward.value
    report.rewards += 1
    if reward.default:
        report.default = value
    over = pending.until <= now
    report.late.add(pending.user, over=over, reward=value, weight=pending.weight)
    for one in (report.served, report.other):
        one.learn(pending.user, pending.x, value, of)


def _decide(report: Report, line: Line, decision: DecisionBody) -> None:
    user, x = line.user or "", np.array(decision.x)
    report.decisions += 1
    for one in (report.served, report.other):
        one.predict(line.seq, user, x)
    weight = _weight(report, user, decision)
    report.pending[line.seq] = Pending(user, x, weight, decision.until, decision.active)


def _expire(report: Report, seq: int) -> None:
    """Note that a decision got no reward; one that was never active was never shown."""
    pending = report.pending.pop(seq, None)
    if pending is not None and pending.active:
        report.default = None
        report.late.add(pending.user, over=True, reward=None, weight=pending.weight)
    for one in (report.served, report.other):
        one.predictions.pop(seq, None)


def _end(report: Report, now: int) -> None:
    """Count overdue decisions as the service would: their rewarded siblings count as over too."""
    overdue = [seq for seq, one in report.pending.items() if one.active and one.until <= now]
    for seq in overdue:
        one = report.pending.pop(seq)
        report.late.add(one.user, over=True, reward=report.default, weight=one.weight)
        for policy in (report.served, report.other):
            policy.predictions.pop(seq, None)


def _weight(report: Report, user: str, decision: DecisionBody) -> float | None:
    """Return the weight of a decision: see `Pending`."""
    if decision.arms is None:
        return None
    arms = np.array([arm.features for arm in decision.arms])
    choice = decision.arms[report.other.policy.decide(user, arms).arm].id
    report.asked += 1
    report.agreed += choice == decision.arm
    if not decision.propensity:
        return None
    return 1 / decision.propensity if choice == decision.arm else 0.0
