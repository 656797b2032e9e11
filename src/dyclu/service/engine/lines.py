"""The lines of the journal: everything that happened, in order; replaying them gives the state.

A `Line` is one row of the journal's table. Its `body` is JSON, in which floats are written so that
they are read back as exactly the same doubles.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from dyclu.service.schema import Arm, Baseline, Combination, Why

MICRO = 1_000_000
"""Microseconds per second. Times are whole microseconds since 1970, so that sums are exact."""


Group = Literal["treated", "control"]
"""Groups of users: served by the policy, or by the baseline that it is compared with."""


class SlotBody(Struct, frozen=True, omit_defaults=True):
    """The arm of another slot than the first; fields as in `DecisionBody`."""

    arm: str
    x: list[float]
    mean: float
    width: float
    propensity: float | None = None
    own: str | None = None


class DecisionBody(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="decision"):
    """An arm was chosen; `x` is its context, and a reward is accepted until time `until`.

    `version` rewards had been learnt, and `offered` arms could be chosen. In shadow mode `arm` is
    the caller's choice, `own` is the policy's, and `propensity` and `at` (seconds since 1970) are
    what the caller said about it. `position` is the feature of the position, if there is one: `x`
    has the slot's value there, `arms` have what the caller sent.

    All this is about the first slot; `slots` are the others, None if the caller asked for an arm
    alone. `settles` is None if a reward is learnt when it arrives; otherwise rewards are learnt
    when the decision's time is over, and it says how several of them become one (`combination`).
    `group` is that of the user, None if nothing is compared.
    """

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
    slots: list[SlotBody] | None = None
    settles: Combination | bool | None = None
    group: Group | None = None
    why: Why | None = None
    at: float | None = None
    position: int | None = None

    @property
    def count(self) -> int:
        """Number of slots."""
        return 1 + len(self.slots or ())

    @property
    def all_slots(self) -> list[SlotBody]:
        """Arms and contexts of all slots, the first included."""
        first = SlotBody(self.arm, self.x, self.mean, self.width, self.propensity, self.own)
        return [first, *(self.slots or ())]

    def combination(self, setting: Combination) -> Combination | None:
        """Return how several rewards become one; None if a reward is learnt when it arrives.

        Journals before format 4 wrote only true; for these lines the present `setting` counts.
        """
        if isinstance(self.settles, bool):
            return setting if self.settles else None
        return self.settles

    def slot(self, number: int) -> SlotBody:
        """Return arm and context of a slot, from 1."""
        return self.all_slots[number - 1]


class RewardBody(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="reward"):
    """The reward of a slot of a decision, which is learnt now, once.

    `default` if none came in time and the default reward was learnt.
    """

    value: float
    default: bool = False
    slot: int = 1


class ArrivalBody(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="arrival"):
    """A reward has arrived; it is learnt, in a line of its own, when the decision settles."""

    value: float
    slot: int = 1


class ActivationBody(Struct, frozen=True, tag_field="kind", tag="activation"):
    """A decision that was made inactive counts from now on."""

    until: int


class ExpiryBody(Struct, frozen=True, tag_field="kind", tag="expiry"):
    """The time of these decisions is over; nothing is learnt from them."""

    decisions: list[int]


class EventBody(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="event"):
    """An observation that did not come from a decision of this service.

    `at`, in seconds since 1970, and `propensity` are what the caller said about it.
    """

    x: list[float]
    value: float
    at: float | None = None
    propensity: float | None = None


class ErasureBody(Struct, frozen=True, tag_field="kind", tag="erasure"):
    """A user was erased; their earlier lines have been removed."""


class EvictionBody(Struct, frozen=True, tag_field="kind", tag="eviction"):
    """There were more than `max_users` users; this one, seen longest ago, is forgotten."""


class ComparisonBody(Struct, frozen=True, tag_field="kind", tag="comparison"):
    """From now on, a `share` of the users is served by this baseline; earlier sums have ended."""

    share: float
    baseline: Baseline


class AbsorbedBody(Struct, frozen=True, tag_field="kind", tag="absorbed"):
    """What another shard has learnt is absorbed now: `Contribution.to_bytes` of some models.

    `built` is the last erasure of a user of that shard whose rewards are surely not in them. The
    line's user is `OTHERS`.
    """

    shard: str
    built: int
    contributions: list[bytes]


OTHERS = "other shards"
"""Stands for a user in lines about what was absorbed: they are erased together, like a user's. No
user can be called so."""


Body: TypeAlias = (
    DecisionBody
    | RewardBody
    | ArrivalBody
    | ActivationBody
    | ExpiryBody
    | EventBody
    | ErasureBody
    | EvictionBody
    | ComparisonBody
    | AbsorbedBody
)


class About(Struct, frozen=True):
    """What a reward is about: user and context of its slot of the decision."""

    user: str
    x: list[float]


class Line(Struct, frozen=True, array_like=True):
    """One line of the journal.

    Attributes
    ----------
    seq : int
        Its number; numbers increase, and none is used twice.
    at : int
        Time in microseconds since 1970; never less than that of the line before.
    kind : str
        Kind of its body.
    ref : str or None
        `decision_id` of a decision, `event_id` of an event; of an arrival, a name of it.
    user : str or None
        User of the decision, event or eviction.
    of : int or None
        Number of the decision that a reward, arrival or activation belongs to.
    body : Body
        What happened.
    about : About or None
        Of a reward. It is not written: the decision's line has it.

    Examples
    --------
    >>> line = Line(7, 0, "reward", None, None, 3, RewardBody(0.1))
    >>> encode(line)
    b'[7,0,"reward",null,null,3,{"kind":"reward","value":0.1}]'
    >>> decode_body('{"kind":"reward","value":0.1}')
    RewardBody(value=0.1, default=False, slot=1)
    """

    seq: int
    at: int
    kind: str
    ref: str | None
    user: str | None
    of: int | None
    body: Body
    about: About | None = None


def make_line(
    seq: int,
    at: int,
    body: Body,
    *,
    ref: str | None = None,
    user: str | None = None,
    of: int | None = None,
    about: About | None = None,
) -> Line:
    """Return a line whose kind is that of its body."""
    return Line(seq, at, str(body.__struct_config__.tag), ref, user, of, body, about)


class _Context(Struct):
    """The part of a decision's body, or of one of its slots, that a reward needs."""

    x: list[float]
    slots: list[_Context] | None = None


_encode = msgspec.json.Encoder().encode
_decode_context = msgspec.json.Decoder(_Context).decode
decode_body = msgspec.json.Decoder(Body).decode


def encode(line: Line) -> bytes:
    """Return a line as it is written."""
    return _encode((line.seq, line.at, line.kind, line.ref, line.user, line.of, line.body))


def contexts_of(body: str) -> list[list[float]]:
    """Return the context of each slot, from the body of a decision's line."""
    found = _decode_context(body)
    return [found.x, *(one.x for one in found.slots or ())]
