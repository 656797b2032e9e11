"""What a line of the journal is answered with; the same whenever it is asked for."""

from __future__ import annotations

from dyclu.service import schema
from dyclu.service.engine.records import MICRO, Decision, Event, Line, Reward
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Observation


def decided(made: Line) -> schema.Decided:
    """Return the answer that a decision's line stands for."""
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


def decided_before(known: Line, user: str) -> schema.Decided:
    """Return the answer that was given before, unless it was to somebody else."""
    if known.user != user:
        raise Refusal(
            409, "conflict", "this decision_id was used for another user", field="decision_id"
        )
    return decided(known)


def observed_before(known: Line, told: Observation) -> schema.Observed:
    """Return that an event is known, unless it was another one."""
    assert isinstance(known.body, Event)
    was = (known.user, known.body.value, known.body.x)
    if was != (told.user, told.reward, told.features):
        raise Refusal(
            409, "conflict", "this event_id was used for another observation", field="event_id"
        )
    return schema.Observed(known.ref or "", repeated=True)


def rewarded_before(id: str, end: Line | None, value: float) -> schema.Rewarded:
    """Return that a decision has this reward, unless it has another or none."""
    known = rewarded(end)
    if known is None:
        raise expired(id)
    if known.value != value:
        raise Refusal(
            409,
            "conflict",
            f"decision {id} was rewarded with {known.value}, got {value}; the first value stays",
            field="value",
        )
    return schema.Rewarded(id, value, repeated=True)


def rewarded(end: Line | None) -> Reward | None:
    """Return the reward that somebody gave; a default is none."""
    body = None if end is None else end.body
    return body if isinstance(body, Reward) and not body.default else None


def expired(id: str) -> Refusal:
    """Return the refusal of what comes too late."""
    return Refusal(410, "expired", f"decision {id} has expired; its reward comes too late")
