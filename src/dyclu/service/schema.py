"""What goes over the wire: the types that validate, and that the OpenAPI document is made from.

Requests forbid fields nobody knows. `texts` counts the JSON strings, keys and values, that a
request must have been written with; a body with more of them said something twice (`reading`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

LONGEST_ID = 128
ID = r"^[A-Za-z0-9_][A-Za-z0-9_.:@+=~-]*(?!\n)$"
"""Ids are opaque: letters, digits and a little punctuation; no slash, no space, no markup.

A dollar alone would let a line's end through.
"""

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_ID,
        pattern=ID,
        description="Letters, digits and _.:@+=~- (beginning with a letter, a digit or _).",
        examples=["ana"],
    ),
]
Features = Annotated[list[float], Meta(min_length=1, description="One number per feature.")]
Role = Literal["read-only", "read-write"]
Mode = Literal["online", "shadow"]


class Arm(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that may be chosen."""

    id: Id
    features: Features


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Choose one of these arms for this user."""

    user: Id
    arms: Annotated[list[Arm], Meta(min_length=1)]
    decision_id: Id | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    rank: bool | UnsetType = UNSET
    chosen: Id | UnsetType = UNSET

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        named = (self.decision_id is not UNSET) + (self.chosen is not UNSET)
        flags = (self.active is not UNSET) + (self.rank is not UNSET)
        return 3 + 3 * len(self.arms) + 2 * named + flags


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What the chosen arm was worth."""

    value: float

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 1


class NamedReward(Struct, frozen=True, forbid_unknown_fields=True):
    """A reward, and the decision it belongs to."""

    decision_id: Id
    value: float

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 3


class Observation(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happened without being asked for here: a line of a log."""

    user: Id
    features: Features
    reward: float
    event_id: Id | UnsetType = UNSET

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 4 + 2 * (self.event_id is not UNSET)


class DecisionBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions in one call; each is answered for itself."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1)]

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 1 + sum(one.texts() for one in self.decisions)


class RewardBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards in one call; each is answered for itself."""

    rewards: Annotated[list[NamedReward], Meta(min_length=1)]

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 1 + sum(one.texts() for one in self.rewards)


class ObservationBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines of a log, learnt in this order; each is answered for itself."""

    observations: Annotated[list[Observation], Meta(min_length=1)]

    def texts(self) -> int:
        """Return how many JSON strings this takes."""
        return 1 + sum(one.texts() for one in self.observations)


Request = DecisionRequest | RewardRequest | DecisionBatch | RewardBatch | ObservationBatch


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused."""

    code: str
    message: str
    field: str | None = None


class Refused(Struct, frozen=True):
    """The answer to a request that was refused."""

    error: Problem


class Decided(Struct, frozen=True, omit_defaults=True, tag_field="status", tag="decided"):
    """The arm to offer. Ask again with the same `decision_id` and the answer is the same.

    `version` is the number of rewards that had been learnt; `model` is the model the user is on, or
    the data their own rewards go to, where the policy has such ids; `propensity` is the chance this
    arm had. In shadow mode `arm` is what the service would have chosen, `chosen` what the caller
    did.
    """

    decision_id: str
    arm: str
    mean: float
    width: float
    version: int
    model: int | None
    propensity: float | None
    active: bool
    expires: float
    rank: list[str] | None = None
    chosen: str | None = None
    agrees: bool | None = None


class Rewarded(Struct, frozen=True, tag_field="status", tag="rewarded"):
    """The reward is on disk and learnt; `repeated` if it already was."""

    decision_id: str
    value: float
    repeated: bool


class Activated(Struct, frozen=True, tag_field="status", tag="active"):
    """The decision counts from now on; a reward is waited for until `expires`."""

    decision_id: str
    expires: float


class Observed(Struct, frozen=True, tag_field="status", tag="observed"):
    """The observation is on disk and learnt; `repeated` if it already was."""

    event_id: str
    repeated: bool


class Failed(Struct, frozen=True, tag_field="status", tag="refused"):
    """One item of a batch that was refused; `http` is the status it would have had alone."""

    http: int
    error: Problem


class DecisionResults(Struct, frozen=True):
    """One answer per decision asked for, in their order."""

    results: list[Decided | Failed]


class RewardResults(Struct, frozen=True):
    """One answer per reward, in their order."""

    results: list[Rewarded | Failed]


class ObservationResults(Struct, frozen=True):
    """One answer per observation, in their order."""

    results: list[Observed | Failed]


class ChangeView(Struct, frozen=True):
    """A user has changed: they were on `before`, from then on they are on `after`.

    `at` is the time; `certainty` is at least the chance that it was no false alarm, where the
    policy can tell.
    """

    number: int
    at: float
    user: str
    before: int | None
    after: int | None
    certainty: float | None


class Changes(Struct, frozen=True):
    """Changes in their order; ask again with ``since=next`` for those that follow.

    There are more as long as `next` is less than `latest`. Those before `oldest` are no longer
    kept. Numbers mean the same within one `epoch`; when the policy is made anew, another begins.
    """

    epoch: int
    oldest: int
    latest: int
    next: int
    changes: list[ChangeView]


class SegmentView(Struct, frozen=True):
    """A user's observations between two changes; times count rewards of all users.

    `id` is the data these observations went to, or the model the user was on.
    """

    id: int | None
    opened: int
    closed: int | None
    observations: int


class BeliefView(Struct, frozen=True):
    """How likely it is that a user follows a model; null means none that is known yet."""

    model: int | None
    probability: float


class UserView(Struct, frozen=True):
    """What is known of a user."""

    user: str
    decisions: int
    rewards: int
    mean_reward: float | None
    last_seen: float | None
    model: int | None
    segments: list[SegmentView]
    neighbours: list[int]
    neighbours_total: int
    belief: list[BeliefView]
    changes: list[ChangeView]


class Erased(Struct, frozen=True):
    """The user's lines of the journal are gone; the policy is being made anew without them."""

    user: str
    erased_records: int
    rebuilding: bool


class ModelView(Struct, frozen=True):
    """Users with one taste; `x`, `y` place it on the map so that alike models are close."""

    id: int
    users: int
    observations: int
    growth: int
    x: float
    y: float


class Models(Struct, frozen=True):
    """The largest models; `users_elsewhere` follow none of these."""

    version: int
    total: int
    users_elsewhere: int
    models: list[ModelView]


class PolicyView(Struct, frozen=True):
    """What serves, and how it is doing."""

    tenant: str
    policy: str
    dim: int
    mode: Mode
    epsilon: float
    version: int
    decisions: int
    rewards: int
    pending: int
    users: int
    changes: int
    agreement: float | None
    rebuilding: bool
    healthy: bool
    warnings: list[str]


class Bucket(Struct, frozen=True):
    """What happened in one stretch of time, beginning at `at`."""

    at: float
    decisions: int
    rewards: int
    reward_sum: float
    changes: int


class Activity(Struct, frozen=True):
    """The last ten minutes by the second and the last day by the minute, as far as any came."""

    now: float
    seconds: list[Bucket]
    minutes: list[Bucket]


class Health(Struct, frozen=True):
    """Whether the service is alive, or ready to take requests."""

    status: Literal["ok", "unavailable"]
    reason: str | None = None
