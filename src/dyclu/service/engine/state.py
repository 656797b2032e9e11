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
from dyclu.service.engine.activity import CHANGES, DECISIONS, REWARD_SUM, REWARDS, Ring
from dyclu.service.engine.inspect import announced
from dyclu.service.engine.lines import (
    MICRO,
    ActivationBody,
    DecisionBody,
    ErasureBody,
    EventBody,
    ExpiryBody,
    Line,
    RewardBody,
)
from dyclu.validation import FloatArray

LOG = logging.getLogger("dyclu.service")

CHANGES_KEPT = 10_000
"""Number of the latest changes that are kept."""

UNLEARNABLE = (DycluError, ArithmeticError, np.linalg.LinAlgError)
"""Errors that the same reward would raise again. Others, such as lack of memory, may not recur."""


class Pending(Struct, gc=False):
    """A decision that may be rewarded for `wait` after it was made, that is until `until`."""

    id: str
    user: str
    x: FloatArray
    until: int
    wait: int
    active: bool


class UserCounters(Struct, gc=False):
    """What is counted per user; before their first reward, `first` rewards of all users came."""

    decisions: int = 0
    rewards: int = 0
    total: float = 0.0
    last: int = 0
    first: int = 0
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
    """What is counted over all users; `seq` and `at` are those of the last line."""

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


class State:
    """Everything that follows from the lines of a tenant's journal.

    Attributes
    ----------
    policy : Policy
        Has learnt every reward of the journal so far, once and in order.
    pending : ordered dict of int to Pending
        Pending decisions by number of their line, in the order in which they became active.
    ids : dict of str to int
        Numbers of the pending decisions by id.
    users : dict of str to UserCounters
        Counters of every user that any line is about.
    changes : deque of ChangeEntry
        The latest changes.
    total : Counters
        Counters over all users.
    seconds, minutes : Ring
        Activity per second and per minute.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pending: OrderedDict[int, Pending] = OrderedDict()
        self.ids: dict[str, int] = {}
        self.users: dict[str, UserCounters] = {}
        self.changes: deque[ChangeEntry] = deque(maxlen=CHANGES_KEPT)
        self.total = Counters()
        self.seconds = Ring(span=MICRO, length=600)
        self.minutes = Ring(span=60 * MICRO, length=1440)

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
                    self._drop(seq)
            case ErasureBody():
                pass
        self.total.seq, self.total.at = line.seq, line.at

    def forget(self, user: str) -> None:
        """Remove a user as far as the policy can, until a state without them replaces this one."""
        self.policy.forget(user)
        self.users.pop(user, None)
        for seq in [seq for seq, one in self.pending.items() if one.user == user]:
            self._drop(seq)
        kept = [change for change in self.changes if change.user != user]
        self.changes.clear()
        self.changes.extend(kept)

    def _counters(self, user: str) -> UserCounters:
        """Return the counters of a user; creates them if there are none yet."""
        counters = self.users.get(user)
        if counters is None:
            counters = self.users[user] = UserCounters()
        return counters

    def _decided(self, line: Line, decision: DecisionBody) -> None:
        user, id = line.user or "", line.ref or ""
        until = decision.until
        self.pending[line.seq] = Pending(
            id, user, np.array(decision.x), until, until - line.at, decision.active
        )
        self.ids[id] = line.seq
        counters = self._counters(user)
        counters.decisions += 1
        counters.last = line.at
        self.total.decisions += 1
        if decision.own is not None:
            self.total.shadowed += 1
            self.total.agreed += decision.own == decision.arm
        self._count(line.at, DECISIONS, 1)

    def _rewarded(self, line: Line, reward: RewardBody) -> None:
        pending = self.pending.get(line.of or 0)
        if pending is None:
            return
        self.total.defaults += reward.default
        self._learn(line, pending.user, pending.x, reward.value)
        self._drop(line.of or 0)

    def _drop(self, seq: int) -> None:
        gone = self.pending.pop(seq, None)
        # The id of an erased decision may belong to a newer one by now.
        if gone is not None and self.ids.get(gone.id) == seq:
            del self.ids[gone.id]

    def _activated(self, line: Line, activation: ActivationBody) -> None:
        pending = self.pending.get(line.of or 0)
        if pending is not None:
            pending.active, pending.until = True, activation.until
            pending.wait = activation.until - line.at
            self.pending.move_to_end(line.of or 0)

    def _learn(self, line: Line, user: str, x: FloatArray, value: float) -> None:
        try:
            outcome = self.policy.learn(user, x, value)
        except UNLEARNABLE:
            # The line stays in the journal. One reward that a policy cannot learn must not prevent
            # every later start, so it is skipped; a replay skips it again.
            LOG.exception("line %d of the journal could not be learnt; it is left out", line.seq)
            self.total.unlearnt += 1
            return
        counters = self._counters(user)
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
        waiting, counted = list(self.pending.values()), list(self.users.values())
        state = {
            "total": {name: getattr(self.total, name) for name in Counters.__struct_fields__},
            "pending": [[one.id, one.user] for one in waiting],
            "users": list(self.users),
            "segments": [one.segment for one in counted],
            "changes": [astuple(one) for one in self.changes],
        }
        arrays = {
            "pending_seq": np.array(list(self.pending), dtype=np.int64),
            "pending_until": np.array([one.until for one in waiting], dtype=np.int64),
            "pending_wait": np.array([one.wait for one in waiting], dtype=np.int64),
            "pending_active": np.array([one.active for one in waiting], dtype=np.bool_),
            "pending_x": np.array([one.x for one in waiting]).reshape(
                len(waiting), self.policy.dim
            ),
            "decisions": np.array([one.decisions for one in counted], dtype=np.int64),
            "rewards": np.array([one.rewards for one in counted], dtype=np.int64),
            "totals": np.array([one.total for one in counted], dtype=np.float64),
            "last": np.array([one.last for one in counted], dtype=np.int64),
            "first": np.array([one.first for one in counted], dtype=np.int64),
            "seconds": self.seconds.period,
            "seconds_sums": self.seconds.sums,
            "minutes": self.minutes.period,
            "minutes_sums": self.minutes.sums,
        }
        return state, arrays

    @classmethod
    def restored(
        cls, policy: Policy, state: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> State:
        """Return the state that `dump` was called on."""
        self = cls(policy)
        self.total = Counters(**state["total"])
        for (id, user), seq, x, until, wait, active in zip(
            state["pending"],
            arrays["pending_seq"].tolist(),
            arrays["pending_x"],
            arrays["pending_until"].tolist(),
            arrays["pending_wait"].tolist(),
            arrays["pending_active"].tolist(),
            strict=True,
        ):
            self.pending[seq] = Pending(id, user, x.copy(), until, wait, active)
            self.ids[id] = seq
        columns = ("decisions", "rewards", "totals", "last", "first")
        counted = zip(*(arrays[name].tolist() for name in columns), state["segments"], strict=True)
        self.users = {
            user: UserCounters(*one) for user, one in zip(state["users"], counted, strict=True)
        }
        self.changes.extend(ChangeEntry(*one) for one in state["changes"])
        self.seconds.period, self.seconds.sums = arrays["seconds"], arrays["seconds_sums"]
        self.minutes.period, self.minutes.sums = arrays["minutes"], arrays["minutes_sums"]
        return self
