"""`Engine`: what is accepted, and what it becomes in the journal.

The engine judges a request against the `State` and against what is on its way to the disk, and
answers with a line to be written. It changes the state only when it is told that the line is safe
(`committed`); if the disk refuses (`failed`), it is as if nobody had asked. Time, ids and the
looking up of old lines are passed in; there is no I/O here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from msgspec import UNSET, UnsetType

from dyclu.service import schema
from dyclu.service.inspect import propensity_of_best
from dyclu.service.records import (
    MICRO,
    Activation,
    Decision,
    Erasure,
    Event,
    Expiry,
    Line,
    Reward,
    line,
)
from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.schema import Arm, DecisionRequest, Observation
from dyclu.service.settings import TenantSettings
from dyclu.service.state import State
from dyclu.validation import FloatArray

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


class InFlight(Exception):  # noqa: N818 - not an error
    """The id is on its way to the disk; ask again when it has arrived."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer, and the line that must be on the disk before it is given."""

    answer: A
    line: Line | None = None


class Engine:
    """Judges requests of one tenant.

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
        new_id: Callable[[int], str],
        secret: bytes,
    ) -> None:
        self.state = state
        self._archive, self._rules = archive, rules
        self._clock, self._new_id, self._secret = clock, new_id, secret
        self._forget_flights()

    def _forget_flights(self) -> None:
        self._next = self.state.total.seq + 1
        self._flying_ids: set[tuple[str, str]] = set()
        self._suspects: set[tuple[str, str]] = set()
        self._flying_ends: set[int] = set()
        self._newcomers: set[str] = set()
        self._erasing: set[str] = set()
        self._arriving = 0
        self._at = self.state.total.at

    # --- what may be asked -------------------------------------------------------------------

    def decide(self, asked: DecisionRequest) -> Reply[schema.Decided]:
        """Choose an arm, or repeat what was chosen under this id."""
        self._check_stays(asked.user)
        if asked.decision_id is not UNSET:
            known = self._known(asked.decision_id, "decision")
            if known is not None:
                return Reply(_same_user(known, asked.user))
        try:
            arms = self._judged_arms(asked)
            chosen = self._judged_choice(asked)
            self._check_room(asked.user)
        except Refusal:
            # What was once answered is answered again, whatever has filled up since.
            known = self._answered(asked.decision_id)
            if known is None:
                raise
            return Reply(_same_user(known, asked.user))
        at = self._now()
        id = self._new_id(at) if asked.decision_id is UNSET else asked.decision_id
        body = self._decision(asked, arms, chosen, id, at)
        made = line(self._next, at, body, ref=id, user=asked.user)
        self._arriving += 1
        self._fly(made)
        return Reply(decided(made), made)

    def reward(self, id: str, value: float) -> Reply[schema.Rewarded]:
        """Take in a decision's reward, once: the first value wins."""
        self._check_reward(value, "value")
        seq = self._pending(id)
        if seq is None:
            return Reply(self._rewarded_before(id, value))
        pending = self.state.pending[seq]
        at = self._now()
        if at >= pending.until:
            raise _expired(id)
        if not pending.active:
            raise Refusal(
                409, "inactive", f"decision {id} is not active; activate it before its reward"
            )
        made = line(self._next, at, Reward(value), of=seq)
        self._flying_ends.add(seq)
        self._fly(made)
        return Reply(schema.Rewarded(id, value, repeated=False), made)

    def activate(self, id: str) -> Reply[schema.Activated]:
        """Let a decision that began inactive count from now on."""
        seq = self._pending(id)
        if seq is None:
            _, end = self._decision_and_end(id)
            if end is None or (isinstance(end.body, Reward) and end.body.default):
                raise _expired(id)
            return Reply(schema.Activated(id, end.at / MICRO))
        pending, at = self.state.pending[seq], self._now()
        if at >= pending.until:
            raise _expired(id)
        if pending.active:
            return Reply(schema.Activated(id, pending.until / MICRO))
        until = at + self._wait()
        made = line(self._next, at, Activation(until), of=seq)
        self._flying_ends.add(seq)
        self._fly(made)
        return Reply(schema.Activated(id, until / MICRO), made)

    def observe(self, told: Observation) -> Reply[schema.Observed]:
        """Take in an observation from elsewhere, once per event id."""
        self._check_stays(told.user)
        if told.event_id is not UNSET:
            known = self._known(told.event_id, "event")
            if known is not None:
                return Reply(_same_event(known, told))
        self._check_reward(told.reward, "reward")
        x = self._matrix([told.features], "features").tolist()[0]
        self._check_room(told.user, decision=False)
        at = self._now()
        id = self._new_id(at) if told.event_id is UNSET else told.event_id
        made = line(self._next, at, Event(x, told.reward + 0.0), ref=id, user=told.user)
        self._fly(made)
        return Reply(schema.Observed(id, repeated=False), made)

    def expire(self) -> list[Line]:
        """Return lines that end decisions whose time is over, with the default reward if any."""
        now = self._now()
        over: list[int] = []
        for seq, pending in self.state.pending.items():
            if pending.until > now or len(over) == EXPIRED_AT_ONCE:
                break
            if seq not in self._flying_ends:
                over.append(seq)
        default = self._rules.default_reward
        learns = [seq for seq in over if default is not None and self.state.pending[seq].active]
        lines = []
        for seq in learns:
            assert default is not None
            lines.append(line(self._next, now, Reward(default, default=True), of=seq))
            self._fly(lines[-1])
        if rest := sorted(set(over) - set(learns)):
            lines.append(line(self._next, now, Expiry(rest)))
            self._fly(lines[-1])
        self._flying_ends.update(over)
        return lines

    def erase(self, user: str) -> Line:
        """Return the line that stands for a user's erasure; until `forget`, they are left alone."""
        if user in self._erasing:
            raise InFlight
        if user not in self.state.users:
            raise Refusal(404, "unknown", "no such user", field="user")
        self._erasing.add(user)
        made = line(self._next, self._now(), Erasure())
        self._fly(made)
        return made

    # --- what became of it -------------------------------------------------------------------

    def committed(self, lines: Sequence[Line]) -> None:
        """Take in lines that are on the disk."""
        for one in lines:
            self.state.apply(one)
            self._land(one)

    def taken(self, lines: Sequence[Line]) -> None:
        """Let go of lines that the journal left out, as their id or decision's end is taken."""
        for one in lines:
            self._land(one)
            if one.ref is not None:
                self._suspects.add((one.ref, one.kind))

    def failed(self) -> None:
        """Forget everything that was on its way to the disk."""
        self._forget_flights()

    def forget(self, user: str) -> None:
        """Let go of what is remembered of a user whose lines are gone, but for the policy."""
        state = self.state
        state.users.pop(user, None)
        for seq in [seq for seq, one in state.pending.items() if one.user == user]:
            del state.ids[state.pending.pop(seq).id]
        kept = [change for change in state.changes if change.user != user]
        state.changes.clear()
        state.changes.extend(kept)
        self._erasing.discard(user)

    def replace(self, state: State) -> None:
        """Go on with another state that has taken in the same lines."""
        assert state.total.seq == self.state.total.seq
        self.state = state

    # --- judging -----------------------------------------------------------------------------

    def _known(self, id: str, kind: str) -> Line | None:
        """Return the line of an id that is known to be taken.

        Looking every id up would cost as much as deciding. An id that is not in memory is taken
        for a new one; if it is not, the journal leaves the line out, and `taken` says so.
        """
        if (id, kind) in self._flying_ids:
            raise InFlight
        if id in self.state.ids or (id, kind) in self._suspects:
            self._suspects.discard((id, kind))
            return self._archive.find(id, kind)
        return None

    def _answered(self, id: str | UnsetType) -> Line | None:
        return None if id is UNSET else self._archive.find(id, "decision")

    def _pending(self, id: str) -> int | None:
        """Return the number of a decision that waits for its reward, None if it does not."""
        if (id, "decision") in self._flying_ids:
            raise InFlight
        seq = self.state.ids.get(id)
        if seq in self._flying_ends:
            raise InFlight
        if seq is not None:
            self._check_stays(self.state.pending[seq].user)
        return seq

    def _check_stays(self, user: str) -> None:
        if user in self._erasing:
            raise InFlight

    def _rewarded_before(self, id: str, value: float) -> schema.Rewarded:
        _, end = self._decision_and_end(id)
        if end is None or not isinstance(end.body, Reward) or end.body.default:
            raise _expired(id)
        if end.body.value != value:
            raise Refusal(
                409,
                "conflict",
                f"decision {id} was rewarded with {end.body.value}, got {value}; "
                "the first value stays",
                field="value",
            )
        return schema.Rewarded(id, value, repeated=True)

    def _decision_and_end(self, id: str) -> tuple[Line, Line | None]:
        found = self._archive.find(id, "decision") if re.fullmatch(schema.ID, id) else None
        if found is None:
            raise Refusal(404, "unknown", "no decision has this id", field="decision_id")
        return found, self._archive.end_of(found.seq)

    def _judged_arms(self, asked: DecisionRequest) -> FloatArray:
        limits = self._rules.limits
        if len(asked.arms) > limits.max_arms:
            raise over_limit("arms", "max_arms", f"{len(asked.arms)} long", limits.max_arms)
        if asked.rank is True and len(asked.arms) > limits.max_ranked:
            raise over_limit("rank", "max_ranked", f"of {len(asked.arms)}", limits.max_ranked)
        names = {arm.id for arm in asked.arms}
        if len(names) < len(asked.arms):
            raise Refusal(422, "repeated", "two arms have the same id", field="arms")
        return self._matrix([arm.features for arm in asked.arms], "arms[{}].features")

    def _judged_choice(self, asked: DecisionRequest) -> int | None:
        if self._rules.mode == "online":
            if asked.chosen is not UNSET:
                raise Refusal(
                    422, "mode", "chosen is for shadow mode; this tenant is online", field="chosen"
                )
            return None
        for index, arm in enumerate(asked.arms):
            if arm.id == asked.chosen:
                return index
        raise Refusal(
            422, "mode", "in shadow mode, say which of the arms you chose yourself", field="chosen"
        )

    def _matrix(self, rows: list[list[float]], field: str) -> FloatArray:
        dim, most = self._rules.dim, self._rules.limits.max_norm
        for index, row in enumerate(rows):
            if len(row) != dim:
                raise Refusal(
                    422,
                    "dimension",
                    f"{len(row)} features, this tenant's contexts have {dim}",
                    field=field.format(index),
                )
        # Adding 0 turns -0.0 into the 0.0 that it equals.
        matrix = np.array(rows) + 0.0
        # No row is longer than all of them together, which is quicker to tell.
        if not np.vdot(matrix, matrix) <= most * most:
            _check_norms(matrix, most, field)
        return matrix

    def _check_reward(self, value: float, field: str) -> None:
        most = self._rules.limits.max_reward
        if not abs(value) <= most:
            raise over_limit(field, "max_reward", f"{value:g} in size", most)

    def _check_room(self, user: str, *, decision: bool = True) -> None:
        limits = self._rules.limits
        if decision and len(self.state.pending) + self._arriving >= limits.max_pending:
            raise Refusal(
                429,
                "limit",
                f"{limits.max_pending} decisions wait for their rewards (limit max_pending); "
                "send rewards, or shorten reward_wait",
                field="decision_id",
                retry_after=5,
            )
        if user not in self.state.users and user not in self._newcomers:
            if len(self.state.users) + len(self._newcomers) >= limits.max_users:
                raise Refusal(
                    429, "limit", f"there are {limits.max_users} users (limit max_users)",
                    field="user", retry_after=60,
                )  # fmt: skip
            self._newcomers.add(user)

    # --- making ------------------------------------------------------------------------------

    def _decision(
        self, asked: DecisionRequest, arms: FloatArray, chosen: int | None, id: str, at: int
    ) -> Decision:
        policy, rules = self.state.policy, self._rules
        best = policy.decide(asked.user, arms)
        own, chance = best.arm, propensity_of_best(policy, len(arms))
        if chosen is not None:
            chance = None
        elif rules.epsilon > 0:
            own, chance = self._explored(id, best.arm, chance, len(arms))
            if own != best.arm:
                best = policy.decide(asked.user, arms[own : own + 1])
        taken = own if chosen is None else chosen
        tally = self.state.users.get(asked.user)
        return Decision(
            arm=asked.arms[taken].id,
            x=arms[taken].tolist(),
            mean=best.mean,
            width=best.width,
            version=self.state.total.version,
            until=at + self._wait(),
            offered=len(arms),
            propensity=chance,
            model=None if tally is None else tally.segment,
            active=asked.active is not False,
            rank=self._ranked(asked, arms) if asked.rank is True else None,
            own=None if chosen is None else asked.arms[own].id,
            arms=asked.arms if rules.log_arms else None,
        )

    def _explored(
        self, id: str, best: int, chance: float | None, arms: int
    ) -> tuple[int, float | None]:
        """Return an arm, any with probability epsilon, and the chance it had.

        The draw is a keyed digest of the decision's id: no caller can foresee it, and no
        generator has to be kept.
        """
        epsilon = self._rules.epsilon
        drawn = hashlib.blake2b(id.encode(), key=self._secret, digest_size=16).digest()
        coin = int.from_bytes(drawn[:8], "little") / 2**64
        any_arm = int.from_bytes(drawn[8:], "little") * arms >> 64
        taken = any_arm if coin < epsilon else best
        if chance is None:
            return taken, None
        # For a policy that is uniform itself every arm has the same chance.
        exploit = chance if taken == best or chance < 1 else 0.0
        return taken, epsilon / arms + (1 - epsilon) * exploit

    def _ranked(self, asked: DecisionRequest, arms: FloatArray) -> list[str]:
        """Return all arms in the order in which the policy would choose them."""
        left: list[Arm] = list(asked.arms)
        order = []
        while left:
            best = self.state.policy.decide(asked.user, arms).arm
            order.append(left.pop(best).id)
            arms = np.delete(arms, best, axis=0)
        return order

    def _wait(self) -> int:
        return round(self._rules.reward_wait * MICRO)

    def _now(self) -> int:
        # A clock that is set back must not make the journal's times run backwards.
        self._at = max(self._at, round(self._clock() * MICRO))
        return self._at

    def _fly(self, made: Line) -> None:
        self._next = made.seq + 1
        if made.ref is not None:
            self._flying_ids.add((made.ref, made.kind))

    def _land(self, made: Line) -> None:
        if made.ref is not None:
            self._flying_ids.discard((made.ref, made.kind))
        if made.of is not None:
            self._flying_ends.discard(made.of)
        if made.user is not None:
            self._newcomers.discard(made.user)
        if isinstance(made.body, Decision):
            self._arriving -= 1
        if isinstance(made.body, Expiry):
            self._flying_ends.difference_update(made.body.decisions)
        self._next = max(self._next, made.seq + 1)


def decided(made: Line) -> schema.Decided:
    """Return the answer that a decision's line stands for; the same whenever it is asked for."""
    assert isinstance(made.body, Decision)
    body = made.body
    shadow = body.own is not None
    return schema.Decided(
        decision_id=made.ref or "",
        arm=body.own if body.own is not None else body.arm,
        mean=body.mean,
        width=body.width,
        version=body.version,
        model=body.model,
        propensity=body.propensity,
        active=body.active,
        expires=body.until / MICRO,
        rank=body.rank,
        chosen=body.arm if shadow else None,
        agrees=body.own == body.arm if shadow else None,
    )


def _same_user(known: Line, user: str) -> schema.Decided:
    if known.user != user:
        raise Refusal(
            409, "conflict", "this decision_id was used for another user", field="decision_id"
        )
    return decided(known)


def _same_event(known: Line, told: Observation) -> schema.Observed:
    assert isinstance(known.body, Event)
    same = (known.user, known.body.value, known.body.x) == (told.user, told.reward, told.features)
    if not same:
        raise Refusal(
            409, "conflict", "this event_id was used for another observation", field="event_id"
        )
    return schema.Observed(known.ref or "", repeated=True)


def _check_norms(matrix: FloatArray, most: float, field: str) -> None:
    norms = np.sqrt(np.einsum("kd,kd->k", matrix, matrix))
    if not norms.max() <= most:
        index = int(np.argmax(~(norms <= most)))
        raise over_limit(field.format(index), "max_norm", f"of norm {norms[index]:g}", most)


def _expired(id: str) -> Refusal:
    return Refusal(410, "expired", f"decision {id} has expired; its reward comes too late")
