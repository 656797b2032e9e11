"""Types of requests and answers: they validate JSON, and the OpenAPI document is made from them.

Requests with unknown fields are refused. `string_count` is the number of JSON strings, keys and
values, in a request; a body with more of them gives a field twice (`http.bodies.Reader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from dyclu.validation import ID as ID
from dyclu.validation import LONGEST_ID as LONGEST_ID

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
LONGEST_TEXT = 500
Label = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Columns = Annotated[
    dict[Label, Label | int | float | bool | list[Label | int | float | bool] | None],
    Meta(
        description="Values by the names of declared columns: numbers, categories, lists of tags.",
        examples=[{"category": "jazz", "price": 3.2}],
    ),
]
Instant = Annotated[
    float, Meta(ge=0, le=253_402_300_799, description="Seconds since 1970.", examples=[1.7e9])
]
Chance = Annotated[float, Meta(gt=0, le=1)]
TenantRole = Literal["read-only", "read-write"]
Role = Literal["read-only", "read-write", "operator"]
LogFormat = Literal["plain", "json"]
Mode = Literal["online", "shadow"]
Combination = Literal["first", "sum", "last"]
Learning = Literal["arrival", "settled"]
Baseline = Literal["uniform", "order", "caller"]

MOST_SLOTS = 32
"""Slots of one decision: a pending decision stores in so many bits which of them wait."""

Slot = Annotated[int, Meta(ge=1, le=MOST_SLOTS, description="Number of a slot, from 1.")]


class Arm(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm that may be chosen."""

    id: Id
    features: Features


class DecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Choose one of these arms for this user."""

    user: Id
    arms: Annotated[list[Arm], Meta(min_length=1)]
    decision_id: Id | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    rank: bool | UnsetType = UNSET
    chosen: Id | list[Id] | UnsetType = UNSET
    slots: Slot | UnsetType = UNSET
    explain: bool | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 3 + 3 * len(self.arms) + _optional_strings(self)


class NamedDecisionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Choose one of these arms, which are given by declared columns, or all of them as vectors."""

    user: Id
    arms: Annotated[list[Columns], Meta(min_length=1)]
    context: Columns | UnsetType = UNSET
    decision_id: Id | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    rank: bool | UnsetType = UNSET
    chosen: Id | list[Id] | UnsetType = UNSET
    slots: Slot | UnsetType = UNSET
    explain: bool | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        arms = sum(map(_strings_in, self.arms))
        return 3 + arms + _context_strings(self.context) + _optional_strings(self)


def _optional_strings(asked: DecisionRequest | NamedDecisionRequest) -> int:
    """Return the number of JSON strings in the fields of a decision that may be left out."""
    named = (asked.decision_id is not UNSET) + isinstance(asked.chosen, str)
    listed = 1 + len(asked.chosen) if isinstance(asked.chosen, list) else 0
    flags = (asked.active, asked.rank, asked.slots, asked.explain)
    return 2 * named + listed + sum(flag is not UNSET for flag in flags)


def _strings_in(columns: Mapping[str, Any]) -> int:
    """Return the number of JSON strings in columns, with their names."""
    count = len(columns)
    for value in columns.values():
        if isinstance(value, str):
            count += 1
        elif isinstance(value, list):
            count += sum(isinstance(one, str) for one in value)
    return count


def _context_strings(context: Mapping[str, Any] | UnsetType) -> int:
    return 0 if context is UNSET else 1 + _strings_in(context)


class RewardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reward of the chosen arm, of one slot (`slot`), or of several (`values`).

    If rewards of a decision are added up, or the last one counts, each needs its own `reward_id`.
    """

    value: float | UnsetType = UNSET
    slot: Slot | UnsetType = UNSET
    values: Annotated[dict[Slot, float], Meta(min_length=1)] | UnsetType = UNSET
    reward_id: Id | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return _strings_of_reward(self)


class NamedReward(Struct, frozen=True, forbid_unknown_fields=True):
    """A reward, as in `RewardRequest`, and the decision it belongs to."""

    decision_id: Id
    value: float | UnsetType = UNSET
    slot: Slot | UnsetType = UNSET
    values: Annotated[dict[Slot, float], Meta(min_length=1)] | UnsetType = UNSET
    reward_id: Id | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 2 + _strings_of_reward(self)


def _strings_of_reward(given: RewardRequest | NamedReward) -> int:
    keys = (given.value is not UNSET) + (given.slot is not UNSET)
    values = 0 if isinstance(given.values, UnsetType) else 1 + len(given.values)
    return keys + values + 2 * (given.reward_id is not UNSET)


class Observation(Struct, frozen=True, forbid_unknown_fields=True):
    """An observation that did not come from a decision of the service, such as a line of a log."""

    user: Id
    features: Features
    reward: float
    event_id: Id | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    propensity: Chance | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 4 + _optional_strings_of(self)


class NamedObservation(Struct, frozen=True, forbid_unknown_fields=True):
    """An observation whose arm is given by declared columns, or as a vector (`features`)."""

    user: Id
    reward: float
    arm: Columns | UnsetType = UNSET
    context: Columns | UnsetType = UNSET
    features: Features | UnsetType = UNSET
    event_id: Id | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    propensity: Chance | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        arm = 0 if self.arm is UNSET else 1 + _strings_in(self.arm)
        vector = self.features is not UNSET
        return 3 + arm + vector + _context_strings(self.context) + _optional_strings_of(self)


def _optional_strings_of(told: Observation | NamedObservation) -> int:
    """Return the number of JSON strings in the fields of an observation that may be left out."""
    numbers = (told.at is not UNSET) + (told.propensity is not UNSET)
    return 2 * (told.event_id is not UNSET) + numbers


class DecisionBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions in one call; each is answered separately."""

    decisions: Annotated[list[DecisionRequest], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 1 + sum(one.string_count() for one in self.decisions)


class NamedDecisionBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several decisions in one call, with arms by declared columns; each is answered separately."""

    decisions: Annotated[list[NamedDecisionRequest], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 1 + sum(one.string_count() for one in self.decisions)


class RewardBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards in one call; each is answered separately."""

    rewards: Annotated[list[NamedReward], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 1 + sum(one.string_count() for one in self.rewards)


class ObservationBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines of a log, learnt in this order; if one of them is invalid, none is learnt."""

    observations: Annotated[list[Observation], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 1 + sum(one.string_count() for one in self.observations)


class NamedObservationBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines of a log with arms by declared columns, learnt in this order, all or none."""

    observations: Annotated[list[NamedObservation], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 1 + sum(one.string_count() for one in self.observations)


Request = DecisionRequest | RewardRequest | DecisionBatch | RewardBatch | ObservationBatch


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused."""

    code: str
    message: str
    field: str | None = None


class Refused(Struct, frozen=True):
    """The answer to a request that was refused."""

    error: Problem


class ArmScore(Struct, frozen=True):
    """What the policy expects of an arm; `score` is mean + width.

    `chance` is the probability with which it would be chosen, null if the policy does not tell it.
    """

    id: str
    mean: float
    width: float
    score: float
    chance: float | None


class FeatureWeight(Struct, frozen=True):
    """A feature, and what it adds; of features without names, ``x0`` is the first."""

    feature: str
    weight: float


class Why(Struct, frozen=True, omit_defaults=True):
    """Why an arm was chosen.

    `reasons` are the features by which its expected reward differs most from the mean of the
    other arms. `at_random` is true if it was drawn to explore, and the policy preferred another.
    """

    arms: list[ArmScore]
    reasons: list[FeatureWeight]
    at_random: bool = False


class SlotDecided(Struct, frozen=True, omit_defaults=True):
    """The arm of one slot, as in `Decided`; `propensity` is given the arms of the slots before."""

    slot: int
    arm: str
    mean: float
    width: float
    propensity: float | None
    chosen: str | None = None


class Decided(Struct, frozen=True, omit_defaults=True, tag_field="status", tag="decided"):
    """The arm to offer. Ask again with the same `decision_id` and the answer is the same.

    `version` is the number of rewards that had been learnt. `model` is the id of the user's model
    or segment, if the policy has such ids. `propensity` is the probability with which this arm was
    chosen. In shadow mode `arm` is what the service would have chosen, `chosen` what the caller
    chose. If slots were asked for, `slots` are all of them, and the rest is about the first.
    `group` is that of the user, if there is a control group. `why` is there if `explain` was asked
    for.
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
    slots: list[SlotDecided] | None = None
    group: Literal["treated", "control"] | None = None
    why: Why | None = None


class Rewarded(Struct, frozen=True, tag_field="status", tag="rewarded"):
    """The reward is on disk, and learnt unless it settles later; `repeated` if it already was."""

    decision_id: str
    value: float | UnsetType
    repeated: bool
    slot: int | UnsetType = UNSET
    values: dict[int, float] | UnsetType = UNSET


class Activated(Struct, frozen=True, tag_field="status", tag="active"):
    """The decision is active; a reward is accepted until `expires`."""

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
    """A user has changed, from model or segment `before` to `after`.

    `at` is the time; `certainty` is a lower bound of the probability that the change is real, if
    the policy gives one.
    """

    number: int
    at: float
    user: str
    before: int | None
    after: int | None
    certainty: float | None


class Changes(Struct, frozen=True):
    """Changes in their order; ask again with ``since=next`` for those that follow.

    There are more as long as `next` is less than `latest`. Changes before `oldest` are no longer
    kept. Numbers are valid within one `epoch`; a new epoch begins when the policy is rebuilt.
    """

    epoch: int
    oldest: int
    latest: int
    next: int
    changes: list[ChangeView]


class SegmentView(Struct, frozen=True):
    """A user's observations between two changes; times are counted in rewards of all users.

    `id` is that of the segment, or of the model the user was on. `likes` and `dislikes` are those
    of the model, if it still exists.
    """

    id: int | None
    opened: int
    closed: int | None
    observations: int
    likes: list[str] = []
    dislikes: list[str] = []


class BeliefView(Struct, frozen=True):
    """The probability that a user follows a model; model null means a taste not seen before."""

    model: int | None
    probability: float


class UserView(Struct, frozen=True):
    """What the service knows about a user."""

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
    """The user's lines of the journal are removed; the policy is being rebuilt without them.

    `exact` is false if some of their lines were no longer kept, and the policy can only remove a
    share of what it learnt from them.
    """

    user: str
    erased_records: int
    rebuilding: bool
    exact: bool


class ModelView(Struct, frozen=True):
    """A model and its number of users; similar models have close positions `x`, `y` on the map.

    `likes` and `dislikes` are the features whose weights exceed, and fall below, the average of the
    models most; models count by their observations. `mean_reward` is that of its users among those
    seen last, null if the policy does not tell who they are.
    """

    id: int
    users: int
    observations: int
    growth: int
    x: float
    y: float
    likes: list[FeatureWeight] = []
    dislikes: list[FeatureWeight] = []
    mean_reward: float | None = None


class Models(Struct, frozen=True):
    """The largest models; `users_elsewhere` is the number of users on none of these.

    `named` says that features have declared names; otherwise they are called x0, x1 and so on.
    """

    version: int
    total: int
    users_elsewhere: int
    models: list[ModelView]
    named: bool = False


class FeaturesView(Struct, frozen=True):
    """The declared features: `dyclu.Features(**declaration, loadings=loadings)` are the same.

    `names` are those of the numbers of a vector; `version` is a digest of all the rest. Both it and
    the declaration are null if the tenant declares no features.
    """

    version: str | None
    names: list[str]
    declaration: dict[str, Any] | None
    loadings: list[list[float]] | None


class PolicyView(Struct, frozen=True):
    """The policy that serves, its settings and its counters.

    `warnings` are sentences about what seems wrong: first with the service's files and rewards,
    then what the policy itself found, such as too many surprises. It is empty if all is well.
    """

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


class LiftGroup(Struct, frozen=True):
    """Decisions of a group of users, the sum of their rewards, and the reward per decision."""

    decisions: int
    reward: float
    mean: float | None


class LiftDayView(Struct, frozen=True):
    """One day (UTC): both groups on that day.

    `lift`, `low` and `high` are about all days until the end of that day, as one could see them
    then.
    """

    day: str
    treated: LiftGroup
    control: LiftGroup
    lift: float | None
    low: float | None
    high: float | None


class LiftView(Struct, frozen=True):
    """Reward per decision of the users whom the policy serves, minus that of the control group.

    With probability 95 %, `low` and `high` hold the true difference at all times at once, so one
    may look at any time; they are null while there are too few users. `verdict` says it in words.
    """

    share: float
    baseline: Baseline
    treated: LiftGroup
    control: LiftGroup
    lift: float | None
    low: float | None
    high: float | None
    verdict: str
    days: list[LiftDayView]


class Bucket(Struct, frozen=True):
    """What happened in one second or minute, beginning at `at`."""

    at: float
    decisions: int
    rewards: int
    reward_sum: float
    changes: int


class Activity(Struct, frozen=True):
    """The last ten minutes by second and the last day by minute; without those that are empty."""

    now: float
    seconds: list[Bucket]
    minutes: list[Bucket]


class TenantHealth(Struct, frozen=True):
    """Whether a tenant can write; `line` is the number of its journal's last line.

    While it is `starting`, or if it is `stopped`, there is no `line`.
    """

    tenant: str
    status: Literal["ok", "starting", "stopped", "unavailable"]
    reason: str | None
    rebuilding: bool
    line: int | None


class TenantsHealth(Struct, frozen=True):
    """The health of all tenants, for operators."""

    tenants: list[TenantHealth]


class Health(Struct, frozen=True):
    """Whether the service is alive, or ready to take requests.

    It is `degraded` if a tenant cannot serve at all, and others can. While it is `starting`,
    `lines_done` of `lines_total` lines have been replayed, and about `seconds_left` remain.
    """

    status: Literal["ok", "degraded", "starting", "unavailable"]
    reason: str | None = None
    lines_done: int | UnsetType = UNSET
    lines_total: int | UnsetType = UNSET
    seconds_left: float | UnsetType | None = UNSET
