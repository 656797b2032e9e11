"""The lines of the journal: what happened, in order, complete enough to live it again.

A `Line` is one row of the journal's table. Its `body` is JSON, in which numbers are written so that
they read back as the very same doubles.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from dyclu.service.schema import Arm

MICRO = 1_000_000
"""Times are whole microseconds since 1970: they add and compare exactly."""


class Decision(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="decision"):
    """An arm was chosen; `x` is its context, `until` when a reward is no longer waited for."""

    arm: str
    x: list[float]
    mean: float
    width: float
    version: int
    until: int
    offered: int
    propensity: float | None = None
    model: int | None = None
    active: bool = True
    rank: list[str] | None = None
    own: str | None = None
    arms: list[Arm] | None = None


class Reward(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="reward"):
    """A decision's reward; `default` if it is the one for decisions nobody rewarded in time."""

    value: float
    default: bool = False


class Activation(Struct, frozen=True, tag_field="kind", tag="activation"):
    """A decision that began inactive counts from now on."""

    until: int


class Expiry(Struct, frozen=True, tag_field="kind", tag="expiry"):
    """Rewards of these decisions are no longer waited for; nothing is learnt of them."""

    decisions: list[int]


class Event(Struct, frozen=True, tag_field="kind", tag="event"):
    """An observation from elsewhere."""

    x: list[float]
    value: float


class Erasure(Struct, frozen=True, tag_field="kind", tag="erasure"):
    """Somebody asked to be forgotten; their lines above are gone."""


Body: TypeAlias = Decision | Reward | Activation | Expiry | Event | Erasure


class Line(Struct, frozen=True, array_like=True):
    """One line of the journal.

    Attributes
    ----------
    seq : int
        Its number; lines count up and no number is ever used again.
    at : int
        When, in microseconds since 1970; never before the line above.
    kind : str
        Of its body.
    ref : str or None
        `decision_id` of a decision, `event_id` of an event.
    user : str or None
        Whose decision or event it is.
    of : int or None
        Number of the decision that a reward or an activation belongs to.
    body : Decision, Reward, Activation, Expiry, Event or Erasure
        What happened.

    Examples
    --------
    >>> line = Line(7, 0, "reward", None, None, 3, Reward(0.1))
    >>> encode(line)
    b'[7,0,"reward",null,null,3,{"kind":"reward","value":0.1}]'
    >>> decode_body('{"kind":"reward","value":0.1}')
    Reward(value=0.1, default=False)
    """

    seq: int
    at: int
    kind: str
    ref: str | None
    user: str | None
    of: int | None
    body: Body


def line(
    seq: int,
    at: int,
    body: Body,
    *,
    ref: str | None = None,
    user: str | None = None,
    of: int | None = None,
) -> Line:
    """Return a line whose kind is that of its body."""
    return Line(seq, at, str(body.__struct_config__.tag), ref, user, of, body)


encode = msgspec.json.Encoder().encode
decode_body = msgspec.json.Decoder(Body).decode
