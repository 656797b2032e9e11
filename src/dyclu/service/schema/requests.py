"""Types of requests: they validate JSON. Unknown fields are refused.

`string_count` is the number of JSON strings, keys and values, in a request; a body with more of
them gives a field twice (`http.bodies.Reader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from dyclu.service.schema.fields import Chance, Columns, Features, Id, Instant, Slot


class Arm(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm that may be chosen."""

    id: Id
    features: Features


class _Asked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a request for a decision may say beside its user and arms.

    Callers who choose themselves name the arms they took (`chosen`), one per slot, the
    probability with which they took each (`propensity`), and in shadow mode the time (`at`).
    """

    decision_id: Id | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    rank: bool | UnsetType = UNSET
    chosen: Id | list[Id] | UnsetType = UNSET
    propensity: Chance | list[Chance] | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    slots: Slot | UnsetType = UNSET
    explain: bool | UnsetType = UNSET

    def _optional_strings(self) -> int:
        named = (self.decision_id is not UNSET) + isinstance(self.chosen, str)
        listed = 1 + len(self.chosen) if isinstance(self.chosen, list) else 0
        plain = (self.active, self.rank, self.propensity, self.at, self.slots, self.explain)
        return 2 * named + listed + sum(value is not UNSET for value in plain)


class DecisionRequest(_Asked, frozen=True):
    """Choose one of these arms for this user."""

    user: Id
    arms: Annotated[list[Arm], Meta(min_length=1)]

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        return 3 + 3 * len(self.arms) + self._optional_strings()


class NamedDecisionRequest(_Asked, frozen=True):
    """Choose one of these arms, which are given by declared columns, or all of them as vectors."""

    user: Id
    arms: Annotated[list[Columns], Meta(min_length=1)]
    context: Columns | UnsetType = UNSET

    def string_count(self) -> int:
        """Return the number of JSON strings in this request."""
        arms = sum(map(_strings_in, self.arms))
        return 3 + arms + _context_strings(self.context) + self._optional_strings()


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
