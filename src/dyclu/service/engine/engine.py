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
from dyclu.service.engine.checks import Given
from dyclu.service.engine.choosing.deciding import Deciding
from dyclu.service.engine.choosing.reasons import Reasons
from dyclu.service.engine.clock import SteadyWallClock
from dyclu.service.engine.in_flight import LinesInFlight, MustWait, decisions_changed_by
from dyclu.service.engine.lines import (
    MICRO,
    OTHERS,
    About,
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
from dyclu.service.engine.state import State, open_slots
from dyclu.service.engine.waiting import settling
from dyclu.service.engine.waiting.deadlines import Deadlines
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Combination, DecisionRequest, Observation
from dyclu.service.settings import TenantSettings

__all__ = ["Engine", "MustWait", "OldLines", "Reply"]

EXPIRED_AT_ONCE = EVICTED_AT_ONCE = 1000
"""Decisions that one call of `expire` ends at most, and users that one call of `evict` forgets."""

A = TypeVar("A")


class OldLines(Protocol):
    """Finds lines of the journal that are no longer in memory."""

    def find(self, ref: str, kind: str) -> Line | None:
        """Return the decision or event with this id."""
        ...

    def rewards_of(self, seq: int) -> dict[int, Line]:
        """Return the rewards of the decision with this number, by slot."""
        ...

    def arrivals(self, seqs: Sequence[int]) -> dict[int, list[Line]]:
        """Return what has arrived for the decisions with these numbers, in order."""
        ...

    def decisions(self, seqs: Sequence[int]) -> dict[int, Line]:
        """Return the decisions with these numbers, by number."""
        ...

    def first_line(self, user: str) -> int | None:
        """Return the number of the first line about a user, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer, and the lines that must be on disk before the answer is sent."""

    answer: A
    lines: tuple[Line, ...] = ()


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
        self._compared = state.lift.terms
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
        until = self._wall() + self._wait()
        body = Deciding(self.state, self._rules, self._secret).body(
            request, arms, chosen, id, order, until, reasons
        )
        begun = self._compare(at)
        line = self._in_flight.add(at, body, ref=id, user=request.user)
        return Reply(checks.decision_answer(line), (*begun, line))

    def _compare(self, at: int) -> tuple[Line, ...]:
        """Return the line that begins a comparison if the settings say another one."""
        terms = ComparisonBody(self._rules.control, self._rules.baseline)
        if not terms.share or terms == self._compared:
            return ()
        self._compared = terms
        return (self._in_flight.add(at, terms),)

    def reward(self, id: str, given: Given) -> Reply[schema.Rewarded]:
        """Accept rewards of a decision, each once; all of them, or none."""
        made = self._find_decision(id)
        body = made.body
        assert isinstance(body, DecisionBody)
        given.check(id, body.count, self._rules.limits)
        # What is refused must leave nothing behind, so everything is checked before any line.
        how = body.combination(self._rules.reward)
        if how is None:
            new = self._unknown(made, given)
        else:
            new = self._unknown_arrivals(made, given, how)
        if not new:
            return Reply(given.answer(id, repeated=True))
        at = self._check_in_time(id, made.seq)
        if not self.state.pending.get(made.seq, "active"):
            raise Refusal(
                409, "inactive", f"decision {id} is not active; activate it before its reward"
            )
        lines = [self._reward_line(at, made, given, slot, how) for slot in new]
        return Reply(given.answer(id, repeated=False), tuple(lines))

    def _reward_line(
        self, at: int, made: Line, given: Given, slot: int, how: Combination | None
    ) -> Line:
        value = given.values[slot]
        if how is not None:
            ref = settling.name_of(made.seq, slot, _named(given, how))
            return self._in_flight.add(at, ArrivalBody(value, slot), ref=ref, of=made.seq)
        body = RewardBody(value, slot=slot)
        return self._in_flight.add(at, body, of=made.seq, about=about(made, slot))

    def _unknown(self, made: Line, given: Given) -> list[int]:
        """Return the slots whose reward is new; refuse another value than the one that is known."""
        row = self.state.pending.row(made.seq)
        waiting = set() if row is None else set(open_slots(row["open"]))
        ended = [slot for slot in given.values if slot not in waiting]
        known = self._old_lines.rewards_of(made.seq) if ended else {}
        for slot in ended:
            line, value = known.get(slot), given.values[slot]
            checks.check_repeated(made.ref or "", line, value, given.field(slot))
        return [slot for slot in given.values if slot in waiting]

    def _unknown_arrivals(self, made: Line, given: Given, how: Combination) -> list[int]:
        """Return the slots for which this is new, of a decision that settles later."""
        named, waits = _named(given, how), made.seq in self.state.pending
        known: dict[int, Line] = {}
        if named is None:
            arrived = self._old_lines.arrivals([made.seq]).get(made.seq, [])
            known = settling.first_by_slot(arrived) or (
                {} if waits else self._old_lines.rewards_of(made.seq)
            )
        new = []
        for slot, value in given.values.items():
            ref = settling.name_of(made.seq, slot, named)
            self._in_flight.check_id(ref, "arrival")
            line = known.get(slot) if named is None else self._old_lines.find(ref, "arrival")
            if line is None and waits:
                new.append(slot)
            elif named is None or line is None:
                checks.check_repeated(made.ref or "", line, value, given.field(slot))
            else:
                checks.check_same_arrival(line, made.seq, value)
        return new

    def activate(self, id: str) -> Reply[schema.Activated]:
        """Activate a decision that was made inactive; its time to be rewarded starts now."""
        seq, pending = self._find_decision(id).seq, self.state.pending
        if seq not in pending:
            rewards = self._old_lines.rewards_of(seq).values()
            given = [line for line in rewards if checks.given_reward(line) is not None]
            if not given:
                raise checks.too_late(id)
            return Reply(schema.Activated(id, given[0].at / MICRO))
        at = self._check_in_time(id, seq)
        if pending.get(seq, "active"):
            return Reply(schema.Activated(id, pending.get(seq, "until") / MICRO))
        until = self._wall() + self._wait()
        line = self._in_flight.add(at, ActivationBody(until), of=seq)
        return Reply(schema.Activated(id, until / MICRO), (line,))

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
        return Reply(schema.Observed(id, repeated=False), (line,))

    def absorb(self, body: AbsorbedBody) -> Line:
        """Return the line that absorbs what another shard has learnt."""
        self._in_flight.check_user(OTHERS)
        return self._in_flight.add(self._now(), body, user=OTHERS)

    def expire(self) -> list[Line]:
        """Return lines that end overdue decisions, in the order in which their times ended.

        Slots of a decision that settles get what has arrived for them, all others the default
        reward; without any, they expire.
        """
        now, default, pending = self._now(), self._rules.default_reward, self.state.pending
        late = self._overdue()
        rows = {seq: row for seq in late if (row := pending.row(seq)) is not None}
        learns = [
            seq
            for seq, row in rows.items()
            if row["active"] and (default is not None or row["settles"])
        ]
        arrived = self._old_lines.arrivals([seq for seq in learns if rows[seq]["settles"]])
        made = self._old_lines.decisions(learns)
        lines: list[Line] = []
        ended: set[int] = set()
        for seq in (seq for seq in learns if seq in made):
            decided = made[seq].body
            assert isinstance(decided, DecisionBody)
            how = decided.combination(self._rules.reward)
            values = {} if how is None else settling.settled(arrived.get(seq, []), how)
            waiting = open_slots(rows[seq]["open"])
            for slot in waiting:
                if (value := values.get(slot, default)) is not None:
                    body = RewardBody(value, default=slot not in values, slot=slot)
                    what = about(made[seq], slot)
                    lines.append(self._in_flight.add(now, body, of=seq, about=what))
            if default is not None or values.keys() >= set(waiting):
                ended.add(seq)
        if rest := sorted(set(late) - ended):
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
        self._compared = self.state.lift.terms

    def _apply(self, line: Line) -> None:
        self.state.apply(line)
        match line.body:
            case DecisionBody():
                self._deadlines.grant(line.seq, self._wait())
            case ActivationBody():
                self._deadlines.grant(line.of or 0, self._wait())
            case RewardBody() | ExpiryBody():
                for seq in decisions_changed_by(line):
                    if seq not in self.state.pending:
                        self._deadlines.drop(seq)

    def left_out(self, lines: Sequence[Line]) -> None:
        """Drop lines that the journal left out; when repeated, their ids are looked up."""
        for line in lines:
            self._in_flight.reject(line)

    def failed(self) -> None:
        """Drop all lines in flight; users whose erasure is under way must wait as before."""
        self._in_flight = self._in_flight.dropped(last=self.state.total.seq)
        self._compared = self.state.lift.terms

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

    # --- times -------------------------------------------------------------------------------

    def _wait(self) -> int:
        return round(self._rules.reward_wait * MICRO)

    def _now(self) -> int:
        # If the wall clock is set back, the journal's times must not decrease.
        self._at = max(self._at, self.state.total.at, self._wall())
        return self._at


def _named(given: Given, how: Combination) -> str | None:
    """Return the name of a reward if a slot may get several; None if the first counts."""
    if how == "first":
        return None
    if given.reward_id is None:
        raise Refusal(
            422,
            "missing",
            f'with reward = "{how}" each reward needs its own reward_id, so that it can be sent '
            "again without counting twice",
            field="reward_id",
        )
    return given.reward_id


def about(made: Line, slot: int) -> About:
    """Return what the reward of a slot of a decision is about."""
    assert isinstance(made.body, DecisionBody)
    return About(made.user or "", made.body.slot(slot).x)
