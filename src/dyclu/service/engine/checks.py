"""Checks of requests, against the tenant's settings and against lines that the journal has.

A request that fails a check raises a `Refusal`. A repeated request gets its first answer again:
an answer is a function of its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from msgspec import UNSET, UnsetType

from dyclu.service.engine.choosing.choice import CallersChoice
from dyclu.service.engine.lines import (
    MICRO,
    ArrivalBody,
    DecisionBody,
    EventBody,
    Line,
    RewardBody,
)
from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.schema import (
    Decided,
    DecisionRequest,
    NamedReward,
    Observation,
    Observed,
    Rewarded,
    RewardRequest,
    SlotDecided,
)
from dyclu.service.settings import Limits, TenantSettings
from dyclu.validation import FloatArray

# --- against the settings -----------------------------------------------------------------------


def checked_arms(request: DecisionRequest, rules: TenantSettings) -> FloatArray:
    """Return the features of all arms (K, dim), or refuse them."""
    limits, count = rules.limits, len(request.arms)
    if count > limits.max_arms:
        raise over_limit("arms", "max_arms", f"{count} long", limits.max_arms)
    if request.rank is True and count > limits.max_ranked:
        raise over_limit("rank", "max_ranked", f"of {count}", limits.max_ranked)
    if request.explain is True and count > limits.max_ranked:
        raise over_limit("explain", "max_ranked", f"of {count}", limits.max_ranked)
    if len({arm.id for arm in request.arms}) < count:
        raise Refusal(422, "repeated", "two arms have the same id", field="arms")
    if request.slots is not UNSET and request.slots > count:
        raise Refusal(
            422,
            "invalid",
            f"{request.slots} slots, but {count} arms, and none is chosen twice",
            field="slots",
        )
    if rules.mode == "online" and rules.floor * count > 1:
        raise Refusal(
            422,
            "limit",
            f"{count} arms cannot each have a share of {rules.floor:g} (setting floor); offer at "
            f"most {int(1 / rules.floor)}",
            field="arms",
        )
    return checked_features([arm.features for arm in request.arms], "arms[{}].features", rules)


def checked_choice(request: DecisionRequest, rules: TenantSettings) -> CallersChoice | None:
    """Return the arms that the caller chose, one per slot; None if they do not choose.

    Callers choose in shadow mode, and for the control group if that is its baseline.
    """
    shadow = rules.mode == "shadow"
    if not shadow and request.at is not UNSET:
        raise _for_shadow_mode("at")
    if not shadow and not (rules.control and rules.baseline == "caller"):
        for name in ("chosen", "propensity"):
            if getattr(request, name) is not UNSET:
                raise _for_shadow_mode(name)
        return None
    when = "in shadow mode" if shadow else 'with baseline = "caller"'
    if isinstance(request.chosen, UnsetType):
        raise Refusal(
            422, "mode", f"{when}, say which of the arms you chose yourself", field="chosen"
        )
    chosen = [request.chosen] if isinstance(request.chosen, str) else request.chosen
    wanted = 1 if isinstance(request.slots, UnsetType) else request.slots
    rows = {arm.id: row for row, arm in enumerate(request.arms)}
    if len(chosen) != wanted or len(set(chosen)) < wanted or not rows.keys() >= set(chosen):
        raise Refusal(
            422,
            "mode",
            f"{when}, say which of the arms you chose yourself: {wanted} different ids of arms",
            field="chosen",
        )
    return CallersChoice([rows[id] for id in chosen], _propensities(request, wanted))


def _propensities(request: DecisionRequest, wanted: int) -> list[float | None]:
    """Return with which probability the caller chose the arm of each slot; None if not told."""
    if isinstance(request.propensity, UnsetType):
        return [None] * wanted
    told = request.propensity if isinstance(request.propensity, list) else [request.propensity]
    if len(told) != wanted:
        raise Refusal(
            422,
            "invalid",
            f"{len(told)} propensities, expected one for each of {wanted} chosen arms, in order",
            field="propensity",
        )
    return list(told)


def _for_shadow_mode(field: str) -> Refusal:
    return Refusal(422, "mode", f"{field} is for shadow mode; this tenant is online", field=field)


def checked_features(rows: list[list[float]], field: str, rules: TenantSettings) -> FloatArray:
    """Return rows of features as an array; `field` names row ``{}`` in a refusal."""
    for index, row in enumerate(rows):
        if len(row) != rules.dim:
            raise Refusal(
                422,
                "dimension",
                f"{len(row)} features, this tenant's contexts have {rules.dim}",
                field=field.format(index),
            )
    matrix = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * rules.dim)
    # Adding 0 turns -0.0 into 0.0, which equals it.
    matrix += 0.0
    matrix = matrix.reshape(len(rows), rules.dim)
    most = rules.limits.max_norm
    # If the norm of the whole matrix is within the limit, so is that of each row.
    if not np.vdot(matrix, matrix) <= most * most:
        _check_norms(matrix, most, field)
    return matrix


def _check_norms(matrix: FloatArray, most: float, field: str) -> None:
    norms = np.sqrt(np.einsum("kd,kd->k", matrix, matrix))
    if not norms.max() <= most:
        index = int(np.argmax(~(norms <= most)))
        raise over_limit(field.format(index), "max_norm", f"of norm {norms[index]:g}", most)


@dataclass(frozen=True, slots=True)
class Given:
    """Rewards that a caller sent for one decision.

    Attributes
    ----------
    values : dict of int to float
        By slot.
    unnamed : bool
        Whether the caller named no slot: then the decision must have only one.
    reward_id : str or None
        Name of this reward, if the caller gave one.
    """

    values: Mapping[int, float]
    unnamed: bool = False
    reward_id: str | None = None

    @classmethod
    def of(cls, request: RewardRequest | NamedReward) -> Given:
        """Return what a request says, or refuse it if it says nothing, or both."""
        id = None if isinstance(request.reward_id, UnsetType) else request.reward_id
        if isinstance(request.value, UnsetType) == isinstance(request.values, UnsetType):
            raise Refusal(422, "invalid", "expected value, or values by slot", field="value")
        if not isinstance(request.values, UnsetType):
            if request.slot is not UNSET:
                raise Refusal(422, "invalid", "slot goes with value, not with values", field="slot")
            return cls(request.values, reward_id=id)
        assert not isinstance(request.value, UnsetType)
        if isinstance(request.slot, UnsetType):
            return cls({1: request.value}, unnamed=True, reward_id=id)
        return cls({request.slot: request.value}, reward_id=id)

    def field(self, slot: int) -> str:
        """Return where the request gives the value of a slot."""
        return "value" if len(self.values) == 1 else f"values[{slot}]"

    def check(self, id: str, slots: int, limits: Limits) -> None:
        """Refuse rewards of slots that a decision does not have, or that are too large."""
        for slot, value in self.values.items():
            check_reward(value, self.field(slot), limits)
        if self.unnamed and slots > 1:
            raise Refusal(
                422, "slot", f"decision {id} has {slots} slots; say which one", field="slot"
            )
        if max(self.values) > slots:
            raise Refusal(
                422,
                "slot",
                f"decision {id} has {slots} slots, got slot {max(self.values)}",
                field="slot" if len(self.values) == 1 else f"values[{max(self.values)}]",
            )

    def answer(self, id: str, *, repeated: bool) -> Rewarded:
        """Return the answer to these rewards, in the shape of their request."""
        if self.unnamed:
            return Rewarded(id, self.values[1], repeated)
        if len(self.values) == 1:
            ((slot, value),) = self.values.items()
            return Rewarded(id, value, repeated, slot=slot)
        return Rewarded(id, UNSET, repeated, values=dict(self.values))


def check_reward(value: float, field: str, limits: Limits) -> None:
    """Refuse a reward that is too large, or not a number."""
    if not abs(value) <= limits.max_reward:
        raise over_limit(field, "max_reward", f"{value:g} in size", limits.max_reward)


# --- against earlier lines ----------------------------------------------------------------------


def decision_answer(line: Line) -> Decided:
    """Return the answer to the request that a decision's line records."""
    body = line.body
    assert isinstance(body, DecisionBody)
    shadow = body.own is not None
    slots = None
    if body.slots is not None:
        slots = [
            SlotDecided(
                slot=number,
                arm=one.arm if one.own is None else one.own,
                mean=one.mean,
                width=one.width,
                propensity=one.propensity,
                chosen=None if one.own is None else one.arm,
            )
            for number, one in enumerate(body.all_slots, 1)
        ]
    return Decided(
        decision_id=line.ref or "",
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
        agrees=all(one.own == one.arm for one in body.all_slots) if shadow else None,
        slots=slots,
        group=body.group,
        why=body.why,
    )


def repeated_decision(line: Line, user: str) -> Decided:
    """Return the first answer again, or refuse an id that was used for another user."""
    if line.user != user:
        raise Refusal(
            409, "conflict", "this decision_id was used for another user", field="decision_id"
        )
    return decision_answer(line)


def repeated_observation(line: Line, observation: Observation) -> Observed:
    """Return the answer to a repetition, or refuse an id that was used for something else."""
    assert isinstance(line.body, EventBody)
    first = (line.user, line.body.value, line.body.x)
    if first != (observation.user, observation.reward, observation.features):
        raise Refusal(
            409, "conflict", "this event_id was used for another observation", field="event_id"
        )
    return Observed(line.ref or "", repeated=True)


def check_repeated(id: str, line: Line | None, value: float, field: str) -> None:
    """Refuse another value than the first one, and one that comes too late."""
    known = given_reward(line)
    if known is None:
        raise too_late(id)
    if known != value:
        raise Refusal(
            409,
            "conflict",
            f"decision {id} was rewarded with {known}, got {value}; the first value stays",
            field=field,
        )


def check_same_arrival(line: Line, of: int, value: float) -> None:
    """Refuse a `reward_id` that was used for another decision, or for another value."""
    assert isinstance(line.body, ArrivalBody)
    if (line.of, line.body.value) != (of, value):
        raise Refusal(
            409, "conflict", "this reward_id was used for another reward", field="reward_id"
        )


def given_reward(line: Line | None) -> float | None:
    """Return the reward that a caller gave; None if there is none, or only a default reward."""
    match None if line is None else line.body:
        case RewardBody(value=value, default=False) | ArrivalBody(value=value):
            return value
        case _:
            return None


def too_late(id: str) -> Refusal:
    """Return the refusal of a reward for a decision that has expired."""
    return Refusal(410, "expired", f"decision {id} has expired; its reward comes too late")
