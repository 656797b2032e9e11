"""Types of answers to requests that write: decisions, rewards, observations, refusals."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


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
    chose, and `propensity` is about the latter, null if the caller did not tell it. If slots were
    asked for, `slots` are all of them, and the rest is about the first. `group` is that of the
    user, if there is a control group. `why` is there if `explain` was asked for.
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
