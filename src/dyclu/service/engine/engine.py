"""`Engine`: what is accepted, and what it becomes in the journal.

The engine judges a request against the `State` and against what is on its way to the disk, and
answers with a line to be written. It changes the state only when it is told that the line is safe
(`committed`); if the disk refuses (`failed`), it is as if nobody had asked. Time, ids and the
looking up of old lines are passed in; there is no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec import UNSET

from dyclu.service import schema
from dyclu.service.engine.answers import (
    decided,
    decided_before,
    expired,
    observed_before,
    rewarded,
    rewarded_before,
)
from dyclu.service.engine.choosing import Coin, choose, ranking
from dyclu.service.engine.deadlines import Deadlines
from dyclu.service.engine.flights import Flights, InFlight
from dyclu.service.engine.inspect import model_of
from dyclu.service.engine.judging import check_reward, judged_arms, judged_choice, judged_features
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
from dyclu.service.engine.state import Pending, State
from dyclu.service.refusal import Refusal
from dyclu.service.schema import DecisionRequest, Observation
from dyclu.service.settings import TenantSettings
from dyclu.validation import FloatArray

__all__ = ["Archive", "Engine", "InFlight", "Reply"]

EXPIRED_AT_ONCE = 1000
"""Decisions that one call of `expire` gives up."""

A = TypeVar("A")


class Archive(Protocol):
    """Finds lines of the journal that are no longer in memory."""

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event of this id."""
        ...

    def end_of(self, seq: int) -> Line | None:
        """Return the reward of the decision with this number."""
        ...


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer, and the line that must be on the disk before it is given."""

    answer: A
    line: Line | None = None


class Engine:
    """Judges requests of one tenant; what is in flight must be waited for (`InFlight`).

    Attributes
    ----------
    state : State
        What follows from the lines that are safe.
    """

    def __init__(
        self,
        state: State,
        archive: Archive,
        rules: TenantSettings,
        *,
        clock: Callable[[], float],
        steady: Callable[[], float],
        new_id: Callable[[int], str],
        secret: bytes,
    ) -> None:
        self.state = state
        self._archive, self._rules = archive, rules
        self._clock, self._new_id, self._secret = clock, new_id, secret
        self._at = state.total.at
        self._flights = Flights(last=state.total.seq)
        self._deadlines = Deadlines(steady)
        self._deadlines.resume(state.pending, wall=self._wall(), longest=self._wait())

    # --- what may be asked -------------------------------------------------------------------

    def decide(
        self, asked: DecisionRequest, order: Sequence[int] | None = None
    ) -> Reply[schema.Decided]:
        """Choose an arm, or repeat what was chosen under this id.

        Arms are ranked here and now unless their `order` was found before, a little at a time.
        """
        self._flights.check_stays(asked.user)
        if asked.decision_id is not UNSET:
            known = self._known(asked.decision_id, "decision")
            if known is not None:
                return Reply(decided_before(known, asked.user))
        try:
            arms = judged_arms(asked, self._rules)
            chosen = judged_choice(asked, self._rules)
            self._check_room(asked.user, decision=True)
        except Refusal:
            # What was once answered is answered again, whatever has filled up since.
            if asked.decision_id is UNSET:
                raise
            known = self._archive.find(asked.decision_id, "decision")
            if known is None:
                raise
            return Reply(decided_before(known, asked.user))
        at = self._now()
        id = self._new_id(at) if asked.decision_id is UNSET else asked.decision_id
        body = self._decision(asked, arms, chosen, id, order)
        made = self._flights.take_off(at, body, ref=id, user=asked.user)
        return Reply(decided(made), made)

    def reward(self, id: str, value: float) -> Reply[schema.Rewarded]:
        """Take in a decision's reward, once: the first value wins."""
        check_reward(value, "value", self._rules.limits)
        seq = self._pending(id)
        if seq is None:
            return Reply(rewarded_before(id, self._end(id), value))
        pending, at = self._in_time(seq)
        if not pending.active:
            raise Refusal(
                409, "inactive", f"decision {id} is not active; activate it before its reward"
            )
        made = self._flights.take_off(at, Reward(value), of=seq)
        return Reply(schema.Rewarded(id, value, repeated=False), made)

    def activate(self, id: str) -> Reply[schema.Activated]:
        """Let a decision that began inactive count from now on."""
        seq = self._pending(id)
        if seq is None:
            end = self._end(id)
            if end is None or rewarded(end) is None:
                raise expired(id)
            return Reply(schema.Activated(id, end.at / MICRO))
        pending, at = self._in_time(seq)
        if pending.active:
            return Reply(schema.Activated(id, pending.until / MICRO))
        until = self._wall() + self._wait()
        made = self._flights.take_off(at, Activation(until), of=seq)
        return Reply(schema.Activated(id, until / MICRO), made)

    def observe(self, told: Observation) -> Reply[schema.Observed]:
        """Take in an observation from elsewhere, once per event id."""
        self._flights.check_stays(told.user)
        if told.event_id is not UNSET:
            known = self._known(told.event_id, "event")
            if known is not None:
                return Reply(observed_before(known, told))
        check_reward(told.reward, "reward", self._rules.limits)
        x = judged_features([told.features], "features", self._rules).tolist()[0]
        self._check_room(told.user, decision=False)
        at = self._now()
        id = self._new_id(at) if told.event_id is UNSET else told.event_id
        made = self._flights.take_off(at, Event(x, told.reward), ref=id, user=told.user)
        return Reply(schema.Observed(id, repeated=False), made)

    def expire(self) -> list[Line]:
        """Return lines that end decisions whose time is over, with the default reward if any."""
        now, default = self._now(), self._rules.default_reward
        waiting = self.state.pending
        over = self._deadlines.overdue(waiting, most=EXPIRED_AT_ONCE)
        late = [seq for seq in over if not self._ends_otherwise(seq)]
        learns = [] if default is None else [seq for seq in late if waiting[seq].active]
        lines = [
            self._flights.take_off(now, Reward(default or 0.0, default=True), of=seq)
            for seq in learns
        ]
        if rest := sorted(set(late) - set(learns)):
            lines.append(self._flights.take_off(now, Expiry(rest)))
        return lines

    def erase(self, user: str) -> Line:
        """Return the line that stands for a user's erasure; until `forget`, they are left alone."""
        if user not in self.state.users:
            raise Refusal(404, "unknown", "no such user", field="user")
        self._flights.erase(user)
        return self._flights.take_off(self._now(), Erasure())

    # --- what became of it -------------------------------------------------------------------

    def committed(self, lines: Sequence[Line]) -> None:
        """Take in lines that are on the disk."""
        for one in lines:
            self._take_in(one)
            self._flights.land(one)

    def found(self, lines: Sequence[Line]) -> None:
        """Take in lines that are on the disk although they had `failed`."""
        for one in lines:
            self._take_in(one)
            self._flights.skip(one)

    def _take_in(self, one: Line) -> None:
        self.state.apply(one)
        match one.body:
            case Decision():
                self._deadlines.grant(one.seq, self._wait())
            case Activation():
                self._deadlines.grant(one.of or 0, self._wait())

    def taken(self, lines: Sequence[Line]) -> None:
        """Let go of lines that the journal left out; asked again, their ids are looked up."""
        for one in lines:
            self._flights.turn_back(one)

    def failed(self) -> None:
        """Forget everything that was on its way to the disk."""
        self._flights = Flights(last=self.state.total.seq)

    def forget(self, user: str) -> None:
        """Let go of what is remembered of a user whose lines are gone."""
        self.state.forget(user)
        self._flights.forgotten(user)

    def replace(self, state: State) -> None:
        """Go on with another state that has taken in the same lines."""
        assert state.total.seq == self.state.total.seq
        self.state = state

    # --- looking up --------------------------------------------------------------------------

    def _known(self, id: str, kind: str) -> Line | None:
        """Return the line of an id that is known to be taken.

        Looking every id up would cost as much as deciding. An id that is not in memory is taken
        for a new one; if it is not, the journal leaves the line out, and `taken` says so.
        """
        self._flights.check_id(id, kind)
        if id in self.state.ids or (id, kind) in self._flights.suspects:
            self._flights.suspects.discard((id, kind))
            return self._archive.find(id, kind)
        return None

    def _pending(self, id: str) -> int | None:
        """Return the number of a decision that waits for its reward, None if it does not."""
        self._flights.check_id(id, "decision")
        seq = self.state.ids.get(id)
        if seq is not None:
            self._flights.check_stays(self.state.pending[seq].user)
            if self._flights.ending(seq):
                raise InFlight
        return seq

    def _ends_otherwise(self, seq: int) -> bool:
        """Tell whether a decision is about to be rewarded or activated, or to go with its user."""
        user = self.state.pending[seq].user
        return self._flights.ending(seq) or self._flights.leaving(user)

    def _in_time(self, seq: int) -> tuple[Pending, int]:
        """Return a decision that waits for its reward, and the time; refuse if it is too late."""
        pending = self.state.pending[seq]
        if self._deadlines.passed(seq):
            raise expired(pending.id)
        return pending, self._now()

    def _end(self, id: str) -> Line | None:
        """Return the reward of a decision that no longer waits for one."""
        found = self._archive.find(id, "decision") if re.fullmatch(schema.ID, id) else None
        if found is None:
            raise Refusal(404, "unknown", "no decision has this id", field="decision_id")
        return self._archive.end_of(found.seq)

    def _check_room(self, user: str, *, decision: bool) -> None:
        limits, newcomers = self._rules.limits, self._flights.newcomers
        if decision and len(self.state.pending) + self._flights.decisions >= limits.max_pending:
            raise Refusal(
                429,
                "limit",
                f"{limits.max_pending} decisions wait for their rewards (limit max_pending); "
                "send rewards, or shorten reward_wait",
                field="decision_id",
                retry_after=5,
            )
        if user in self.state.users or user in newcomers:
            return
        if len(self.state.users) + len(newcomers) >= limits.max_users:
            message = f"there are {limits.max_users} users (limit max_users)"
            raise Refusal(429, "limit", message, field="user", retry_after=60)
        newcomers.add(user)

    # --- making ------------------------------------------------------------------------------

    def _decision(
        self,
        asked: DecisionRequest,
        arms: FloatArray,
        chosen: int | None,
        id: str,
        order: Sequence[int] | None,
    ) -> Decision:
        policy, rules, user = self.state.policy, self._rules, asked.user
        # In the shadow nothing is explored: the choice, and its chance, are the caller's.
        coin = Coin.of(id, secret=self._secret) if chosen is None and rules.epsilon else None
        choice = choose(policy, user, arms, epsilon=rules.epsilon, coin=coin)
        taken = choice.arm if chosen is None else chosen
        tally = self.state.users.get(user)
        if asked.rank is True:
            order = list(ranking(policy, user, arms)) if order is None else order
            # What was learnt since it was found may have put another arm first.
            order = order if coin else [choice.arm, *(i for i in order if i != choice.arm)]
        return Decision(
            arm=asked.arms[taken].id,
            x=arms[taken].tolist(),
            mean=choice.mean,
            width=choice.width,
            version=self.state.total.version,
            until=self._wall() + self._wait(),
            offered=len(arms),
            propensity=choice.propensity if chosen is None else None,
            model=model_of(policy, user, None if tally is None else tally.segment),
            active=asked.active is not False,
            rank=None if order is None else [asked.arms[index].id for index in order],
            own=None if chosen is None else asked.arms[choice.arm].id,
            arms=asked.arms if rules.log_arms else None,
        )

    def _wait(self) -> int:
        return round(self._rules.reward_wait * MICRO)

    def _now(self) -> int:
        # A clock that is set back must not make the journal's times run backwards.
        self._at = max(self._at, self.state.total.at, self._wall())
        return self._at

    def _wall(self) -> int:
        return round(self._clock() * MICRO)
