"""`State`: what follows from the journal, line by line.

The state after line n is a function of the first n lines and of the policy's options. It holds no
clock and no randomness, so that a start from any snapshot, a replay and a service that never
stopped all arrive at the same bits.
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
from dyclu.service.engine import inspect
from dyclu.service.engine.activity import CHANGES, DECISIONS, REWARD_SUM, REWARDS, Ring
from dyclu.service.engine.records import (
    MICRO,
    Activation,
    Decision,
    Erasure,
    Event,
    Expiry,
    Line,
    Reward,
)
from dyclu.validation import FloatArray

LOG = logging.getLogger("dyclu.service")

CHANGES_KEPT = 10_000
"""Latest changes that can be asked for."""

UNLEARNABLE = (DycluError, ArithmeticError, np.linalg.LinAlgError)
"""What a policy raises for a reward every time; all else may pass, as lack of memory does."""


class Pending(Struct, gc=False):
    """A decision whose reward is waited for, for `wait` and so until `until` as it was told."""

    id: str
    user: str
    x: FloatArray
    until: int
    wait: int
    active: bool


class Tally(Struct, gc=False):
    """What is counted of a user; `first` rewards of all users came before their own first."""

    decisions: int = 0
    rewards: int = 0
    total: float = 0.0
    last: int = 0
    first: int = 0
    segment: int | None = None


class Change(Struct, frozen=True, gc=False):
    """A change as the policy announced it.

    `version` rewards of all users had been learnt by then, `rewards` of this one.
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
    """What is counted of everybody."""

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
    """Everything a tenant has learnt.

    Attributes
    ----------
    policy : Policy
        Has learnt every reward of the journal so far, once, in order.
    pending : ordered dict of int to Pending
        Decisions without a reward by number of line, in the order they began to count.
    ids : dict of str to int
        Their numbers by id.
    users : dict of str to Tally
        Everybody who was ever seen.
    changes : deque of Change
        The latest changes.
    total : Counters
        What is counted of everybody.
    seconds, minutes : Ring
        What happened when.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.pending: OrderedDict[int, Pending] = OrderedDict()
        self.ids: dict[str, int] = {}
        self.users: dict[str, Tally] = {}
        self.changes: deque[Change] = deque(maxlen=CHANGES_KEPT)
        self.total = Counters()
        self.seconds = Ring(span=MICRO, length=600)
        self.minutes = Ring(span=60 * MICRO, length=1440)

    def apply_all(self, lines: Iterable[Line]) -> State:
        """Take in many lines and return itself."""
        for line in lines:
            self.apply(line)
        return self

    def apply(self, line: Line) -> None:
        """Take in the next line of the journal; one that comes too late is a fault of ours."""
        if line.seq <= self.total.seq:
            raise RuntimeError(f"line {line.seq} came after line {self.total.seq}")
        match line.body:
            case Decision() as decision:
                self._decided(line, decision)
            case Reward() as reward:
                self._rewarded(line, reward)
            case Event() as event:
                self._learn(line, line.user or "", np.array(event.x), event.value)
            case Activation() as activation:
                self._activated(line, activation)
            case Expiry(decisions=expired):
                for seq in expired:
                    self._drop(seq)
            case Erasure():
                pass
        self.total.seq, self.total.at = line.seq, line.at

    def forget(self, user: str) -> None:
        """Let go of a user as far as the policy can; what replaces this state follows soon."""
        inspect.forget(self.policy, user)
        self.users.pop(user, None)
        for seq in [seq for seq, one in self.pending.items() if one.user == user]:
            self._drop(seq)
        kept = [change for change in self.changes if change.user != user]
        self.changes.clear()
        self.changes.extend(kept)

    def tally(self, user: str) -> Tally:
        """Return the tally of a user, a new one if there is none yet."""
        tally = self.users.get(user)
        if tally is None:
            tally = self.users[user] = Tally()
        return tally

    def _decided(self, line: Line, decision: Decision) -> None:
        user, id = line.user or "", line.ref or ""
        until = decision.until
        self.pending[line.seq] = Pending(
            id, user, np.array(decision.x), until, until - line.at, decision.active
        )
        self.ids[id] = line.seq
        tally = self.tally(user)
        tally.decisions += 1
        tally.last = line.at
        self.total.decisions += 1
        if decision.own is not None:
            self.total.shadowed += 1
            self.total.agreed += decision.own == decision.arm
        self._count(line.at, DECISIONS, 1)

    def _rewarded(self, line: Line, reward: Reward) -> None:
        pending = self.pending.get(line.of or 0)
        if pending is None:
            return
        self.total.defaults += reward.default
        self._learn(line, pending.user, pending.x, reward.value)
        self._drop(line.of or 0)

    def _drop(self, seq: int) -> None:
        gone = self.pending.pop(seq, None)
        # The id of a decision that was erased may have been given to another since.
        if gone is not None and self.ids.get(gone.id) == seq:
            del self.ids[gone.id]

    def _activated(self, line: Line, activation: Activation) -> None:
        pending = self.pending.get(line.of or 0)
        if pending is not None:
            pending.active, pending.until = True, activation.until
            pending.wait = activation.until - line.at
            self.pending.move_to_end(line.of or 0)

    def _learn(self, line: Line, user: str, x: FloatArray, value: float) -> None:
        try:
            outcome = self.policy.learn(user, x, value)
        except UNLEARNABLE:
            # The line is in the journal for good. One reward that a policy cannot take must not
            # keep the service from starting ever again; replayed, it is left out again.
            LOG.exception("line %d of the journal could not be learnt; it is left out", line.seq)
            self.total.unlearnt += 1
            return
        tally = self.tally(user)
        if not tally.rewards:
            tally.first = self.total.version
        tally.rewards += 1
        tally.total += value
        tally.last = line.at
        self.total.version += 1
        self.total.rewards += 1
        self._count(line.at, REWARDS, 1)
        self._count(line.at, REWARD_SUM, value)
        self._follow(line.at, user, tally, outcome)

    def _follow(self, at: int, user: str, tally: Tally, outcome: Outcome) -> None:
        before, tally.segment = tally.segment, outcome.segment
        if outcome.changed:
            self.total.changes += 1
            told = inspect.announced(self.policy, outcome, before)
            self.changes.append(
                Change(
                    self.total.changes, at, user, told.before, told.after, told.certainty,
                    self.total.version, tally.rewards,
                )
            )  # fmt: skip
            self._count(at, CHANGES, 1)

    def _count(self, at: int, column: int, amount: float) -> None:
        self.seconds.add(at, column, amount)
        self.minutes.add(at, column, amount)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return all but the policy: what JSON can hold, and arrays."""
        waiting, people = list(self.pending.values()), list(self.users.values())
        state = {
            "total": {name: getattr(self.total, name) for name in Counters.__struct_fields__},
            "pending": [[one.id, one.user] for one in waiting],
            "users": list(self.users),
            "segments": [tally.segment for tally in people],
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
            "decisions": np.array([tally.decisions for tally in people], dtype=np.int64),
            "rewards": np.array([tally.rewards for tally in people], dtype=np.int64),
            "totals": np.array([tally.total for tally in people], dtype=np.float64),
            "last": np.array([tally.last for tally in people], dtype=np.int64),
            "first": np.array([tally.first for tally in people], dtype=np.int64),
            "seconds": self.seconds.stretch,
            "seconds_sums": self.seconds.sums,
            "minutes": self.minutes.stretch,
            "minutes_sums": self.minutes.sums,
        }
        return state, arrays

    @classmethod
    def restored(
        cls, policy: Policy, state: dict[str, Any], arrays: dict[str, NDArray[Any]]
    ) -> State:
        """Return the state that `dump` described."""
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
        counted = zip(
            *(arrays[name].tolist() for name in columns),
            state["segments"],
            strict=True,
        )
        self.users = {user: Tally(*one) for user, one in zip(state["users"], counted, strict=True)}
        self.changes.extend(Change(*one) for one in state["changes"])
        self.seconds.stretch, self.seconds.sums = arrays["seconds"], arrays["seconds_sums"]
        self.minutes.stretch, self.minutes.sums = arrays["minutes"], arrays["minutes_sums"]
        return self
