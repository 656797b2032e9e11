"""`State`: the policy, pending decisions and counters, computed from the journal line by line.

The state after line n is a function of the first n lines and of the policy's options. It uses no
clock and no randomness, so a start from any snapshot, a replay and a service that never stopped
all reach the same state, bit for bit.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from dyclu.errors import DycluError
from dyclu.policy import Outcome, Policy
from dyclu.service.engine.absorbed import SHARD, Absorbed, decoded
from dyclu.service.engine.activity import CHANGES, DECISIONS, REWARD_SUM, REWARDS, Ring
from dyclu.service.engine.choosing.lift import NO_GROUP, LiftSums, bucket_of, group_number
from dyclu.service.engine.inspect import announced
from dyclu.service.engine.lines import (
    MICRO,
    OTHERS,
    AbsorbedBody,
    ActivationBody,
    ArrivalBody,
    ComparisonBody,
    DecisionBody,
    ErasureBody,
    EventBody,
    EvictionBody,
    ExpiryBody,
    Line,
    RewardBody,
)
from dyclu.service.engine.waiting.table import WaitingTable
from dyclu.validation import FloatArray

LOG = logging.getLogger("dyclu.service")

CHANGES_KEPT = 10_000
"""Number of the latest changes that are kept."""

PENDING = ("seq", "until", "wait", "active")
"""Columns of the table of pending decisions."""

LATER = {"open": 1, "settles": 0, "group": NO_GROUP, "bucket": 0}
"""More columns, with their values for decisions of states that were written without them."""

UNLEARNABLE = (DycluError, ArithmeticError, np.linalg.LinAlgError)
"""Errors that the same reward would raise again. Others, such as lack of memory, may not recur."""


def pending_table() -> WaitingTable:
    """Return a table of decisions that may be rewarded for `wait` from now, that is `until` then.

    Id, user and context of a decision are in its line. Bit s - 1 of `open` says that slot s has no
    reward yet. `group` and `bucket` are those of the user, for the lift (`lift`).
    """
    return WaitingTable(
        "until",
        until=np.int64,
        wait=np.int64,
        active=np.bool_,
        open=np.uint32,
        settles=np.bool_,
        group=np.uint8,
        bucket=np.uint16,
    )


def open_slots(mask: int) -> list[int]:
    """Return the slots, from 1, that have no reward yet.

    >>> open_slots(0b101)
    [1, 3]
    """
    return [slot + 1 for slot in range(mask.bit_length()) if mask >> slot & 1]


class UserCounters(Struct, gc=False):
    """What is counted per user; before their first reward, `first` rewards of all users came.

    `since` is the number of the first line about the user.
    """

    decisions: int = 0
    rewards: int = 0
    total: float = 0.0
    last: int = 0
    first: int = 0
    since: int = 0
    segment: int | None = None


class ChangeEntry(Struct, frozen=True, gc=False):
    """A change that the policy noticed, with its number and time.

    By then `version` rewards of all users had been learnt, `rewards` of them of this user.
    """

    number: int
    at: int
    user: str
    before: int | None
    after: int | None
    certainty: float | None
    version: int
    rewards: int


class Counters(Struct):
    """What is counted over all users; `seq` and `at` are those of the last line.

    `zeros` are rewards of 0 that callers sent, `lost` slots whose time ended without any reward.
    """

    seq: int = 0
    at: int = 0
    version: int = 0
    decisions: int = 0
    rewards: int = 0
    defaults: int = 0
    changes: int = 0
    shadowed: int = 0
    agreed: int = 0
    unlearnt: int = 0
    evicted: int = 0
    zeros: int = 0
    lost: int = 0


class State:
    """Everything that follows from the lines of a tenant's journal.

    Attributes
    ----------
    policy : Policy
        Has learnt every reward of the journal so far, once and in order.
    pending : WaitingTable
        Pending decisions by number of their line.
    users : ordered dict of str to UserCounters
        Counters of every user that any line is about, the one seen longest ago first.
    changes : deque of ChangeEntry
        The latest changes.
    total : Counters
        Counters over all users.
    seconds, minutes : Ring
        Activity per second and per minute.
    lift : LiftSums
        Rewards of the users whom the policy serves, and of the control group.
    absorbed : Absorbed
        What was absorbed from other shards.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pending = pending_table()
        self.users: OrderedDict[str, UserCounters] = OrderedDict()
        self.changes: deque[ChangeEntry] = deque(maxlen=CHANGES_KEPT)
        self.total = Counters()
        self.seconds = Ring(span=MICRO, length=600)
        self.minutes = Ring(span=60 * MICRO, length=1440)
        self.lift = LiftSums()
        self.absorbed = Absorbed()

    def apply_all(self, lines: Iterable[Line]) -> State:
        """Apply lines in order; return self."""
        for line in lines:
            self.apply(line)
        return self

    def apply(self, line: Line) -> None:
        """Apply the next line of the journal."""
        if line.seq <= self.total.seq:
            raise RuntimeError(f"line {line.seq} came after line {self.total.seq}")
        match line.body:
            case DecisionBody() as decision:
                self._decided(line, decision)
            case RewardBody() as reward:
                self._rewarded(line, reward)
            case EventBody() as event:
                self._learn(line, line.user or "", np.array(event.x), event.value)
            case ActivationBody() as activation:
                self._activated(line, activation)
            case ExpiryBody(decisions=expired):
                for seq in expired:
                    self._expired(line.at, seq)
            case ComparisonBody() as terms:
                self._compare(line.at, terms)
            case EvictionBody():
                self._evict(line.user or "")
            case AbsorbedBody() as body:
                self._absorb(line, body)
            case ErasureBody() | ArrivalBody():
                # What has arrived stays on the disk until the decision settles.
                pass
        self.total.seq, self.total.at = line.seq, line.at

    def forget(self, user: str, decisions: Iterable[int]) -> None:
        """Remove a user as far as the policy can; `decisions` are the numbers of their decisions.

        `OTHERS` stands for all that was absorbed.

        Sums over all users and periods of time keep their share, except the counters of decisions
        and rewards.
        """
        if user == OTHERS:
            self.policy.withdraw()
            self.absorbed = Absorbed()
            return
        self.policy.forget(user)
        counted = self.users.pop(user, None) or UserCounters()
        self.total.decisions -= counted.decisions
        self.total.rewards -= counted.rewards
        self.total.version -= counted.rewards
        for seq in decisions:
            self.pending.remove(seq)
        kept = [change for change in self.changes if change.user != user]
        self.changes.clear()
        self.changes.extend(kept)

    def knows(self, user: str) -> bool:
        """Return whether anything is kept about a user, or, for `OTHERS`, was absorbed."""
        return (bool(self.absorbed.shards) if user == OTHERS else user in self.users) or any(
            change.user == user for change in self.changes
        )

    def _absorb(self, line: Line, body: AbsorbedBody) -> None:
        """Absorb contributions; a policy that has no use for them goes on without."""
        for one in decoded(body.contributions):
            self.absorbed.add(one, built=body.built, at=line.at)
            if not self.policy.shares:
                continue
            try:
                self.policy.absorb([one], shard=SHARD)
            except UNLEARNABLE:
                # Of another policy, that served before. A replay skips it again.
                LOG.exception("line %d of the journal could not be absorbed", line.seq)

    def _compare(self, at: int, terms: ComparisonBody) -> None:
        """Begin a comparison; rewards of decisions from before it are not part of it."""
        if self.lift.terms is None and not self.lift.empty:
            # Journals before format 4 do not say what they compare: the same, as far as known.
            self.lift.terms = terms
            return
        self.lift = LiftSums.begun(at, terms)
        self.pending.put_all("group", NO_GROUP)

    def _evict(self, user: str) -> None:
        if self.users.pop(user, None) is not None:
            self.policy.forget(user)
            self.total.evicted += 1

    def _counters(self, user: str, seq: int) -> UserCounters:
        """Return the counters of a user, who is seen now; creates them if there are none yet."""
        counters = self.users.get(user)
        if counters is None:
            counters = self.users[user] = UserCounters(since=seq)
        else:
            self.users.move_to_end(user)
        return counters

    def _decided(self, line: Line, decision: DecisionBody) -> None:
        until, user = decision.until, line.user or ""
        group, bucket = group_number(decision.group), bucket_of(user)
        self.pending.add(
            line.seq,
            until=until,
            wait=until - line.at,
            active=decision.active,
            open=(1 << decision.count) - 1,
            settles=bool(decision.settles),
            group=group,
            bucket=bucket,
        )
        if decision.active and not decision.settles:
            self.lift.add(line.at, group, bucket, decisions=1)
        counters = self._counters(user, line.seq)
        counters.decisions += 1
        counters.last = line.at
        self.total.decisions += 1
        if decision.own is not None:
            self.total.shadowed += decision.count
            self.total.agreed += sum(one.own == one.arm for one in decision.all_slots)
        self._count(line.at, DECISIONS, 1)

    def _rewarded(self, line: Line, reward: RewardBody) -> None:
        seq, bit = line.of or 0, 1 << reward.slot - 1
        row = self.pending.row(seq)
        if row is None or not row["open"] & bit:
            return
        if line.about is None:
            raise RuntimeError(f"line {line.seq} rewards a pending decision that has no line")
        left = row["open"] & ~bit
        if left:
            self.pending.put(seq, open=left)
        else:
            self.pending.remove(seq)
        self.total.defaults += reward.default
        self.total.zeros += reward.value == 0 and not reward.default
        # A decision that settles is counted when it ends, with all that it earned.
        ended = 1 if row["settles"] and not left else 0
        self.lift.add(line.at, row["group"], row["bucket"], decisions=ended, reward=reward.value)
        self._learn(line, line.about.user, np.array(line.about.x), reward.value)

    def _activated(self, line: Line, activation: ActivationBody) -> None:
        row = self.pending.row(seq := line.of or 0)
        if row is not None:
            until = activation.until
            self.pending.put(seq, active=True, until=until, wait=until - line.at)
            if not row["settles"]:
                self.lift.add(line.at, row["group"], row["bucket"], decisions=1)

    def _expired(self, at: int, seq: int) -> None:
        row = self.pending.row(seq)
        if row is None:
            return
        self.pending.remove(seq)
        if row["active"]:
            self.total.lost += row["open"].bit_count()
            self.lift.add(at, row["group"], row["bucket"], decisions=row["settles"])

    def _learn(self, line: Line, user: str, x: FloatArray, value: float) -> None:
        try:
            outcome = self.policy.learn(user, x, value)
        except UNLEARNABLE:
            # The line stays in the journal. One reward that a policy cannot learn must not prevent
            # every later start, so it is skipped; a replay skips it again.
            LOG.exception("line %d of the journal could not be learnt; it is left out", line.seq)
            self.total.unlearnt += 1
            return
        counters = self._counters(user, line.seq)
        if not counters.rewards:
            counters.first = self.total.version
        counters.rewards += 1
        counters.total += value
        counters.last = line.at
        self.total.version += 1
        self.total.rewards += 1
        self._count(line.at, REWARDS, 1)
        self._count(line.at, REWARD_SUM, value)
        self._follow(line.at, user, counters, outcome)

    def _follow(self, at: int, user: str, counters: UserCounters, outcome: Outcome) -> None:
        before, counters.segment = counters.segment, outcome.segment
        if outcome.changed:
            self.total.changes += 1
            ids_and_certainty = announced(self.policy, outcome, before)
            self.changes.append(
                ChangeEntry(
                    self.total.changes, at, user, *ids_and_certainty,
                    self.total.version, counters.rewards,
                )
            )  # fmt: skip
            self._count(at, CHANGES, 1)

    def _count(self, at: int, column: int, amount: float) -> None:
        self.seconds.add(at, column, amount)
        self.minutes.add(at, column, amount)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything but the policy: values for JSON, and arrays."""
        counted = list(self.users.values())
        state = {
            "total": {name: getattr(self.total, name) for name in Counters.__struct_fields__},
            "users": list(self.users),
            "segments": [one.segment for one in counted],
            "changes": [astuple(one) for one in self.changes],
        }
        if self.absorbed.shards:
            state["absorbed"] = self.absorbed.dump()
        compared, sums = self.lift.dump()
        state |= compared
        arrays = {
            **{f"pending_{name}": self.pending.column(name) for name in (*PENDING, *LATER)},
            "decisions": np.array([one.decisions for one in counted], dtype=np.int64),
            "rewards": np.array([one.rewards for one in counted], dtype=np.int64),
            "totals": np.array([one.total for one in counted], dtype=np.float64),
            "last": np.array([one.last for one in counted], dtype=np.int64),
            "first": np.array([one.first for one in counted], dtype=np.int64),
            "since": np.array([one.since for one in counted], dtype=np.int64),
            "seconds": self.seconds.period,
            "seconds_sums": self.seconds.sums,
            "minutes": self.minutes.period,
            "minutes_sums": self.minutes.sums,
            **sums,
        }
        return state, arrays

    @classmethod
    def restored(
        cls, policy: Policy, state: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> State:
        """Return the state that `dump` was called on."""
        self = cls(policy)
        self.total = Counters(**state["total"])
        pending = {name: arrays[f"pending_{name}"] for name in PENDING}
        for name, value in LATER.items():
            column = arrays.get(f"pending_{name}")
            pending[name] = np.full(len(pending["seq"]), value) if column is None else column
        self.pending.fill(**pending)
        columns = ("decisions", "rewards", "totals", "last", "first", "since")
        counted = zip(*(arrays[name].tolist() for name in columns), state["segments"], strict=True)
        self.users.update(
            (user, UserCounters(*one)) for user, one in zip(state["users"], counted, strict=True)
        )
        self.changes.extend(ChangeEntry(*one) for one in state["changes"])
        self.seconds.period, self.seconds.sums = arrays["seconds"], arrays["seconds_sums"]
        self.minutes.period, self.minutes.sums = arrays["minutes"], arrays["minutes_sums"]
        self.lift = LiftSums.restored(state, arrays)
        if "absorbed" in state:
            self.absorbed = Absorbed.restored(state["absorbed"])
        return self
