"""`Engine`: which requests are accepted, and which lines they become.

The engine checks a request against the `State` and against the lines in flight, and returns the
answer with the line to be written. It applies a line to the state only when the line is on disk
(`committed`); if the disk fails (`failed`), the request has no effect. Clocks, new ids and the
lookup of old lines are passed in; there is no I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from msgspec import UNSET

from dyclu.service import schema
from dyclu.service.engine import checks
from dyclu.service.engine.choice import Draw, choose, ranking
from dyclu.service.engine.clock import SteadyWallClock
from dyclu.service.engine.deadlines import Deadlines
from dyclu.service.engine.in_flight import LinesInFlight, MustWait, decisions_changed_by
from dyclu.service.engine.inspect import model_of
from dyclu.service.engine.lines import (
    MICRO,
    About,
    ActivationBody,
    DecisionBody,
    ErasureBody,
    EventBody,
    EvictionBody,
    ExpiryBody,
    Line,
    RewardBody,
)
from dyclu.service.engine.reasons import Reasons, explained
from dyclu.service.engine.state import State
from dyclu.service.refusal import Refusal
from dyclu.service.schema import DecisionRequest, Observation
from dyclu.service.settings import TenantSettings
from dyclu.validation import FloatArray

__all__ = ["Engine", "MustWait", "OldLines", "Reply"]

EXPIRED_AT_ONCE = EVICTED_AT_ONCE = 1000
"""Decisions that one call of `expire` ends at most, and users that one call of `evict` forgets."""

A = TypeVar("A")


class OldLines(Protocol):
    """Finds lines of the journal that are no longer in memory."""

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event with this id."""
        ...

    def reward_of(self, seq: int) -> Line | None:
        """Return the reward of the decision with this number."""
        ...

    def decisions(self, seqs: Sequence[int]) -> dict[int, Line]:
        """Return the decisions with these numbers, by number."""
        ...

    def first_line(self, user: str) -> int | None:
        """Return the number of the first line about a user, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer, and the line that must be on disk before the answer is sent."""

    answer: A
    line: Line | None = None


class Engine:
    """Checks the requests of one tenant; raises `MustWait` if one depends on a line in flight.

    Attributes
    ----------
    state : State
        The state after all lines that are on disk.
    """

    def __init__(
        self,
        state: State,
        old_lines: OldLines,
        rules: TenantSettings,
        *,
        clock: Callable[[], float],
        steady: Callable[[], float],
        new_id: Callable[[int], str],
        secret: bytes,
    ) -> None:
        self.state = state
        self._old_lines, self._rules = old_lines, rules
        self._wall = SteadyWallClock(clock, steady).now
        self._new_id, self._secret = new_id, secret
        self._at = state.total.at
        self._in_flight = LinesInFlight(last=state.total.seq)
        self._deadlines = Deadlines(steady)
        self._deadlines.resume(state.pending, wall=self._wall(), longest=self._wait())

    # --- requests ----------------------------------------------------------------------------

    def decide(
        self,
        request: DecisionRequest,
        order: Sequence[int] | None = None,
        reasons: Reasons | None = None,
    ) -> Reply[schema.Decided]:
        """Choose an arm; a known `decision_id` gets its first answer again.

        If a ranking is wanted, it is computed here unless `order` already holds it. If an
        explanation is wanted, `reasons` name the features of the arms.
        """
        self._in_flight.check_user(request.user)
        if request.decision_id is not UNSET:
            known = self._find_taken(request.decision_id, "decision")
            if known is not None:
                return Reply(checks.repeated_decision(known, request.user))
        try:
            arms = checks.checked_arms(request, self._rules)
            chosen = checks.checked_choice(request, self._rules)
            self._check_room()
        except Refusal:
            # A repetition gets its first answer, even if a limit has been reached since then.
            if request.decision_id is UNSET:
                raise
            known = self._old_lines.find(request.decision_id, "decision")
            if known is None:
                raise
            return Reply(checks.repeated_decision(known, request.user))
        at = self._now()
        id = self._new_id(at) if request.decision_id is UNSET else request.decision_id
        body = self._decision(request, arms, chosen, id, order, reasons)
        line = self._in_flight.add(at, body, ref=id, user=request.user)
        return Reply(checks.decision_answer(line), line)

    def reward(self, id: str, value: float) -> Reply[schema.Rewarded]:
        """Accept a decision's reward once; the first value is kept."""
        checks.check_reward(value, "value", self._rules.limits)
        made = self._find_decision(id)
        if made.seq not in self.state.pending:
            return Reply(checks.repeated_reward(id, self._old_lines.reward_of(made.seq), value))
        at = self._check_in_time(id, made.seq)
        if not self.state.pending.get(made.seq, "active"):
            raise Refusal(
                409, "inactive", f"decision {id} is not active; activate it before its reward"
            )
        line = self._in_flight.add(at, RewardBody(value), of=made.seq, about=about(made))
        return Reply(schema.Rewarded(id, value, repeated=False), line)

    def activate(self, id: str) -> Reply[schema.Activated]:
        """Activate a decision that was made inactive; its time to be rewarded starts now."""
        seq, pending = self._find_decision(id).seq, self.state.pending
        if seq not in pending:
            reward = self._old_lines.reward_of(seq)
            if reward is None or checks.given_reward(reward) is None:
                raise checks.too_late(id)
            return Reply(schema.Activated(id, reward.at / MICRO))
        at = self._check_in_time(id, seq)
        if pending.get(seq, "active"):
            return Reply(schema.Activated(id, pending.get(seq, "until") / MICRO))
        until = self._wall() + self._wait()
        line = self._in_flight.add(at, ActivationBody(until), of=seq)
        return Reply(schema.Activated(id, until / MICRO), line)

    def observe(self, observation: Observation) -> Reply[schema.Observed]:
        """Accept an observation from another source, once per event id."""
        self._in_flight.check_user(observation.user)
        if observation.event_id is not UNSET:
            known = self._find_taken(observation.event_id, "event")
            if known is not None:
                return Reply(checks.repeated_observation(known, observation))
        checks.check_reward(observation.reward, "reward", self._rules.limits)
        x = checks.checked_features([observation.features], "features", self._rules).tolist()[0]
        at = self._now()
        id = self._new_id(at) if observation.event_id is UNSET else observation.event_id
        body = EventBody(
            x,
            observation.reward,
            None if observation.at is UNSET else observation.at,
            None if observation.propensity is UNSET else observation.propensity,
        )
        line = self._in_flight.add(at, body, ref=id, user=observation.user)
        return Reply(schema.Observed(id, repeated=False), line)

    def expire(self) -> list[Line]:
        """Return lines that end overdue decisions: with the default reward if there is one."""
        now, default = self._now(), self._rules.default_reward
        late = self._overdue()
        learns = [] if default is None else self._active(late)
        lines = [
            self._in_flight.add(
                now, RewardBody(default or 0.0, default=True), of=made.seq, about=about(made)
            )
            for made in learns
        ]
        if rest := sorted(set(late) - {made.seq for made in learns}):
            lines.append(self._in_flight.add(now, ExpiryBody(rest)))
        return lines

    def _overdue(self) -> list[int]:
        """Return overdue decisions; without those that a line in flight changes, or erases."""
        overdue = self._deadlines.overdue(most=EXPIRED_AT_ONCE)
        late = [seq for seq in overdue if not self._in_flight.changes_decision(seq)]
        if not self._in_flight.erases_anybody:
            return late
        made = self._old_lines.decisions(late)
        return [
            seq for seq in late if seq in made and not self._in_flight.erases(made[seq].user or "")
        ]

    def _active(self, seqs: Sequence[int]) -> list[Line]:
        """Return the lines of those decisions that are active."""
        made = self._old_lines.decisions([s for s in seqs if self.state.pending.get(s, "active")])
        return [made[seq] for seq in seqs if seq in made]

    def evict(self) -> list[Line]:
        """Return lines that push out users beyond `max_users`, those seen longest ago."""
        over = len(self.state.users) - self._rules.limits.max_users
        chosen = islice(self.state.users, min(max(over, 0), EVICTED_AT_ONCE))
        spared = self._in_flight.erases
        return [
            self._in_flight.add(self._now(), EvictionBody(), user=user)
            for user in list(chosen)
            if not spared(user)
        ]

    def erase(self, user: str, *, stored: bool = False) -> Line:
        """Return the line that records a user's erasure; they must wait until `forget`.

        `stored` says that the user is known to be in the archive, or in the base.
        """
        self._in_flight.check_user(user)
        known = stored or user in self.state.users
        if not known and self._old_lines.first_line(user) is None:
            raise Refusal(404, "unknown", "no such user", field="user")
        self._in_flight.begin_erasure(user)
        return self._in_flight.add(self._now(), ErasureBody())

    def erases(self, user: str) -> bool:
        """Return whether a user is being erased."""
        return self._in_flight.erases(user)

    # --- results of writing ------------------------------------------------------------------

    def committed(self, lines: Sequence[Line]) -> None:
        """Apply lines that are on disk."""
        for line in lines:
            self._apply(line)
            self._in_flight.remove(line)

    def found_on_disk(self, lines: Sequence[Line]) -> None:
        """Apply lines that are on disk although writing them reported an error."""
        for line in lines:
            self._apply(line)
            self._in_flight.skip(line)

    def _apply(self, line: Line) -> None:
        self.state.apply(line)
        match line.body:
            case DecisionBody():
                self._deadlines.grant(line.seq, self._wait())
            case ActivationBody():
                self._deadlines.grant(line.of or 0, self._wait())
            case RewardBody() | ExpiryBody():
                for seq in decisions_changed_by(line):
                    self._deadlines.drop(seq)

    def left_out(self, lines: Sequence[Line]) -> None:
        """Drop lines that the journal left out; when repeated, their ids are looked up."""
        for line in lines:
            self._in_flight.reject(line)

    def failed(self) -> None:
        """Drop all lines in flight; users whose erasure is under way must wait as before."""
        self._in_flight = self._in_flight.dropped(last=self.state.total.seq)

    def forget(self, user: str, decisions: Iterable[int]) -> None:
        """Remove a user, whose lines have been removed, and their decisions from the state."""
        gone = list(decisions)
        self.state.forget(user, gone)
        for seq in gone:
            self._deadlines.drop(seq)

    def resume_erasure(self, user: str) -> None:
        """Accept no lines about a user, whose erasure is not finished, until `end_erasure`."""
        if not self.erases(user):
            self._in_flight.begin_erasure(user)

    def end_erasure(self, user: str) -> None:
        """Accept lines about a user again, of whom nothing is left on the disk."""
        self._in_flight.end_erasure(user)

    def follow(self, rules: TenantSettings) -> None:
        """Continue with other settings of the tenant."""
        self._rules = rules

    def replace(self, state: State) -> None:
        """Continue with another state that has applied the same lines."""
        assert state.total.seq == self.state.total.seq
        self.state = state

    @property
    def wall(self) -> int:
        """The time in microseconds; a jump of the clock is believed only after a while."""
        return self._wall()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of memory that all pending decisions take."""
        return self.state.pending.nbytes + self._deadlines.nbytes

    # --- lookups and checks ------------------------------------------------------------------

    def _find_taken(self, id: str, kind: str) -> Line | None:
        """Return the line of an id that is known to be in use.

        A lookup for every id would cost as much as a decision. So an id that is not in memory is
        assumed to be new; if it is not, the journal leaves the line out and `left_out` is called.
        """
        self._in_flight.check_id(id, kind)
        if (id, kind) in self._in_flight.taken_ids:
            self._in_flight.taken_ids.discard((id, kind))
            return self._old_lines.find(id, kind)
        return None

    def _find_decision(self, id: str) -> Line:
        """Return the line of a decision, pending or not; refuse if there is none."""
        self._in_flight.check_id(id, "decision")
        found = self._old_lines.find(id, "decision") if re.fullmatch(schema.ID, id) else None
        if found is None:
            raise Refusal(404, "unknown", "no decision has this id", field="decision_id")
        self._in_flight.check_user(found.user or "")
        if self._in_flight.changes_decision(found.seq):
            raise MustWait
        return found

    def _check_in_time(self, id: str, seq: int) -> int:
        """Return the time, or refuse if the decision's time is over."""
        if self._deadlines.passed(seq):
            raise checks.too_late(id)
        return self._now()

    def _check_room(self) -> None:
        limits = self._rules.limits
        if len(self.state.pending) + self._in_flight.decisions >= limits.max_pending:
            raise Refusal(
                429,
                "limit",
                f"{limits.max_pending} decisions wait for their rewards (limit max_pending); "
                "send rewards, or shorten reward_wait",
                field="decision_id",
                retry_after=5,
            )

    # --- decisions and times -----------------------------------------------------------------

    def _decision(
        self,
        request: DecisionRequest,
        arms: FloatArray,
        chosen: int | None,
        id: str,
        order: Sequence[int] | None,
        reasons: Reasons | None,
    ) -> DecisionBody:
        policy, rules, user = self.state.policy, self._rules, request.user
        # In shadow mode no arm is drawn at random: the caller chose, with unknown propensity.
        draw = Draw.of(id, secret=self._secret) if chosen is None and rules.epsilon else None
        best = choose(policy, user, arms, epsilon=rules.epsilon, draw=draw)
        taken = best.arm if chosen is None else chosen
        counters = self.state.users.get(user)
        if request.rank is True:
            order = list(ranking(policy, user, arms)) if order is None else order
            # Rewards learnt since `order` was computed may have put another arm first.
            order = order if draw else [best.arm, *(i for i in order if i != best.arm)]
        why = None
        if request.explain is True:
            ids, epsilon = [arm.id for arm in request.arms], rules.epsilon if draw else 0.0
            why = explained(policy, user, arms, ids, best.arm, epsilon=epsilon, reasons=reasons)
        return DecisionBody(
            arm=request.arms[taken].id,
            x=arms[taken].tolist(),
            mean=best.mean,
            width=best.width,
            version=self.state.total.version,
            until=self._wall() + self._wait(),
            offered=len(arms),
            propensity=best.propensity if chosen is None else None,
            model=None if counters is None else model_of(policy, user, counters.segment),
            active=request.active is not False,
            rank=None if order is None else [request.arms[index].id for index in order],
            own=None if chosen is None else request.arms[best.arm].id,
            arms=request.arms if rules.log_arms else None,
            why=why,
        )

    def _wait(self) -> int:
        return round(self._rules.reward_wait * MICRO)

    def _now(self) -> int:
        # If the wall clock is set back, the journal's times must not decrease.
        self._at = max(self._at, self.state.total.at, self._wall())
        return self._at


def about(made: Line) -> About:
    """Return what rewards of a decision are about."""
    assert isinstance(made.body, DecisionBody)
    return About(made.user or "", made.body.x)
