"""`replay`: compare another policy with the one that served, on the same journal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from dyclu.errors import DycluError
from dyclu.evaluate import Estimate, LateEvaluation, LateRewards
from dyclu.policy import Policy
from dyclu.service.disk.history import History
from dyclu.service.engine.absorbed import SHARD, decoded
from dyclu.service.engine.lines import (
    AbsorbedBody,
    ActivationBody,
    DecisionBody,
    EventBody,
    ExpiryBody,
    Line,
    RewardBody,
)
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.offers import offers_of
from dyclu.service.tools.sources import Progress, Source, in_turn, latest
from dyclu.validation import FloatArray

Place = tuple[int, int]
"""Number of a decision's line, and slot."""


@dataclass(slots=True)
class ReplayedPolicy:
    """A policy that learns a journal's rewards, and its errors of prediction.

    Attributes
    ----------
    policy : Policy
        The policy; in a cluster that of the last partition, each of which has its own.
    changes : Counter of str
        How many changes it noticed, by user.
    squares, predicted : float and int
        Sum of the squared errors, and their number. Predictions are made at the decision.
    predictions : dict of (int, int) to float
        Predictions whose reward has not come yet, by number of the decision and slot.
    """

    policy: Policy
    changes: Counter[str] = field(default_factory=Counter)
    squares: float = 0.0
    predicted: int = 0
    predictions: dict[Place, float] = field(default_factory=dict)

    def begin(self, spec: PolicySpec) -> None:
        """Begin with another journal, of which a new policy learns."""
        self.policy = spec.make()
        self.predictions.clear()

    def predict(self, place: Place, user: str, x: FloatArray) -> None:
        """Predict the reward of a decision that was made."""
        self.predictions[place] = self.policy.decide(user, x[None, :]).mean

    def absorb(self, body: AbsorbedBody) -> None:
        """Absorb what other partitions had learnt, if the policy has a use for it."""
        if self.policy.shares:
            for one in decoded(body.contributions):
                with suppress(DycluError):
                    self.policy.absorb([one], shard=SHARD)

    def learn(self, user: str, x: FloatArray, value: float, of: Place | None = None) -> None:
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
    """A slot of a decision whose reward has not come.

    Attributes
    ----------
    weight : float or None
        1 / propensity if the other policy chooses the same arm for this slot, given the arms of
        the slots before, else 0; None if arms or propensity are not in the journal.
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
        Slots of decisions whose arms are all in the journal, and those where the other policy
        chooses the same arm.
    pending : dict of (int, int) to Pending
        Slots whose reward has not come, by number of the decision and slot.
    slots : dict of int to int
        Number of slots, of decisions with more than one.
    late : LateRewards
        All others.
    waited : int
        Decisions of the journals before that still waited at their end.
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
    pending: dict[Place, Pending] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    late: LateRewards = field(default_factory=LateRewards)
    waited: int = 0
    default: float | None = None

    def begin(self, served: PolicySpec, other: PolicySpec) -> None:
        """Begin with another journal, whose lines have numbers of their own."""
        self.waited += self._waiting()
        self.pending.clear()
        self.slots.clear()
        self.served.begin(served)
        self.other.begin(other)

    def _waiting(self) -> int:
        return sum(one.active for one in self.pending.values())

    def places(self, seq: int) -> list[Place]:
        """Return the slots of a decision whose reward has not come."""
        slots = range(1, self.slots.get(seq, 1) + 1)
        return [(seq, slot) for slot in slots if (seq, slot) in self.pending]

    def evaluation(self) -> LateEvaluation:
        """Return what was earned, and what the other policy would have earned, per decision."""
        waiting = self.waited + self._waiting()
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
    journals: Sequence[Source],
    served: PolicySpec,
    other: PolicySpec,
    *,
    progress: Progress = lambda _: None,
) -> Report:
    """Replay journals with the policy that served and with another one.

    Both learn the rewards of the arms that were chosen then: there are no other rewards. Both
    absorb what the policy that served had absorbed of other partitions, if they can. Both begin
    with the first line that is archived or kept, and anew with each journal: the partitions of a
    cluster have policies of their own.
    """
    report = Report(ReplayedPolicy(served.make()), ReplayedPolicy(other.make()))
    now = latest(journals)
    for source, passed in in_turn(journals, progress):
        report.begin(served, other)
        for line in History(source.reader).lines():
            _replay_line(report, line, now)
            passed(line.seq)
        _end(report, now)
    return report


def _replay_line(report: Report, line: Line, now: int) -> None:
    """Follow one line; `now` is the time of the last one."""
    match line.body:
        case DecisionBody() as decision:
            _decide(report, line, decision)
        case ActivationBody(until=until):
            for place in report.places(line.of or 0):
                pending = report.pending[place]
                pending.active, pending.until = True, until
        case RewardBody() as reward if (line.of or 0, reward.slot) in report.pending:
            _reward(report, (line.of or 0, reward.slot), reward, now)
        case EventBody(x=features, value=value):
            report.events += 1
            for one in (report.served, report.other):
                one.learn(line.user or "", np.array(features), value)
        case AbsorbedBody() as absorbed:
            for one in (report.served, report.other):
                one.absorb(absorbed)
        case ExpiryBody(decisions=expired):
            for seq in expired:
                for place in report.places(seq):
                    _expire(report, place)


def _reward(report: Report, of: Place, reward: RewardBody, now: int) -> None:
    """Learn the reward of a slot of a decision."""
    pending, value = report.pending.pop(of), reward.value
    report.rewards += 1
    if reward.default:
        report.default = value
    over = pending.until <= now
    report.late.add(pending.user, over=over, reward=value, weight=pending.weight)
    for one in (report.served, report.other):
        one.learn(pending.user, pending.x, value, of)


def _decide(report: Report, line: Line, decision: DecisionBody) -> None:
    user = line.user or ""
    report.decisions += 1
    if decision.count > 1:
        report.slots[line.seq] = decision.count
    for slot, weight in enumerate(_weights(report, user, decision), 1):
        x = np.array(decision.slot(slot).x)
        for one in (report.served, report.other):
            one.predict((line.seq, slot), user, x)
        made = Pending(user, x, weight, decision.until, decision.active)
        report.pending[line.seq, slot] = made


def _expire(report: Report, place: Place) -> None:
    """Note that a slot got no reward; one that was never active was never shown."""
    pending = report.pending.pop(place)
    if pending.active:
        report.default = None
        report.late.add(pending.user, over=True, reward=None, weight=pending.weight)
    for one in (report.served, report.other):
        one.predictions.pop(place, None)


def _end(report: Report, now: int) -> None:
    """Count overdue decisions as the service would: their rewarded siblings count as over too."""
    overdue = [place for place, one in report.pending.items() if one.active and one.until <= now]
    for place in overdue:
        one = report.pending.pop(place)
        report.late.add(one.user, over=True, reward=report.default, weight=one.weight)
        for policy in (report.served, report.other):
            policy.predictions.pop(place, None)


def _weights(report: Report, user: str, decision: DecisionBody) -> list[float | None]:
    """Return the weight of each slot: see `Pending`."""
    if decision.arms is None:
        return [None] * decision.count
    weights = list[float | None]()
    for offer in offers_of(decision):
        chosen = offer.ids[report.other.policy.decide(user, offer.vectors).arm]
        chance, agrees = offer.shown.propensity, chosen == offer.shown.arm
        report.asked += 1
        report.agreed += agrees
        inverse = 1 / chance if chance else None
        weights.append(inverse if inverse is None or agrees else 0.0)
    return weights
