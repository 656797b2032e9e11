"""From columns to vectors: requests with declared columns become requests with vectors.

The engine and the journal know vectors only. So what was learnt does not depend on the declaration
of a later day.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from dyclu.data import Features
from dyclu.errors import DycluError
from dyclu.service.engine.checks import check_reward, checked_features
from dyclu.service.engine.choosing.reasons import TOP, Reasons, contributions
from dyclu.service.http.edge.bodies import invalid
from dyclu.service.refusal import Refusal
from dyclu.service.schema import (
    Arm,
    DecisionRequest,
    FeatureWeight,
    Id,
    NamedDecisionRequest,
    NamedObservation,
    Observation,
)
from dyclu.service.settings import VECTOR, TenantSettings
from dyclu.validation import FloatArray

ID = "id"
AT_ONCE = 50
"""Observations that are turned into vectors, or checked, before other requests get a turn."""

_WHERE = re.compile(r"(?:row|arm|context) (\d+)(?:, column| has no column) '([^']*)'")
Row = Mapping[str, Any]


# --- decisions ----------------------------------------------------------------------------------


def as_vectors(
    asked: DecisionRequest | NamedDecisionRequest, rules: TenantSettings
) -> tuple[DecisionRequest, Reasons | None]:
    """Return a decision with vectors, and what names the features of its arms.

    Arms have columns, or all of them have vectors; both in one decision are refused.
    """
    if isinstance(asked, DecisionRequest):
        return asked, None
    features = rules.features
    if features is None:
        raise Refusal(422, "features", "this tenant declares no features; send vectors")
    with_vector = [VECTOR in arm for arm in asked.arms]
    if all(with_vector):
        if asked.context is not UNSET:
            raise _mixed("context", "context is for columns, but the arms have vectors")
        return _request(asked, _given_vectors(asked.arms)), _names_of(features.names, asked.arms)
    if any(with_vector):
        place = with_vector.index(True)
        raise _mixed(f"arms[{place}].{VECTOR}", "some arms have columns, and this one has a vector")
    context = None if asked.context is UNSET else asked.context
    vectors = _vectors(features, asked.arms, context)
    arms = [
        Arm(_id(arm, place), vector)
        for place, (arm, vector) in enumerate(zip(asked.arms, vectors.tolist(), strict=True))
    ]
    return _request(asked, arms), _reasons(features, asked.arms, context)


def _vectors(features: Features, arms: Sequence[Row], context: Row | None) -> FloatArray:
    known = {*features.arm, ID}
    for place, arm in enumerate(arms):
        if arm.keys() - known:
            raise _unknown(arm, features.arm, f"arms[{place}]", ID)
    if context is not None and context.keys() - features.context.keys():
        raise _unknown(context, features.context, "context")
    try:
        return features.vectors(list(arms), context)
    except DycluError as error:
        raise _refusal(error, features) from None


def _reasons(features: Features, arms: Sequence[Row], context: Row | None) -> Reasons:
    def reasons(theta: FloatArray, chosen: int) -> list[FeatureWeight]:
        others = [arm for place, arm in enumerate(arms) if place != chosen]
        found = features.reasons(theta, arms[chosen], context, others=others, top=TOP)
        return [FeatureWeight(one.name, one.weight) for one in found]

    return reasons


def _names_of(names: Sequence[str], arms: Sequence[Row]) -> Reasons:
    """Name features of given vectors; directions stay numbers, since columns are not known."""

    def reasons(theta: FloatArray, chosen: int) -> list[FeatureWeight]:
        vectors = np.array([arm[VECTOR] for arm in arms], dtype=np.float64)
        return contributions(theta, vectors, chosen, names)

    return reasons


def _request(asked: NamedDecisionRequest, arms: list[Arm]) -> DecisionRequest:
    return DecisionRequest(
        asked.user,
        arms,
        decision_id=asked.decision_id,
        active=asked.active,
        rank=asked.rank,
        chosen=asked.chosen,
        propensity=asked.propensity,
        at=asked.at,
        slots=asked.slots,
        explain=asked.explain,
    )


def _given_vectors(arms: Sequence[Row]) -> list[Arm]:
    try:
        return msgspec.convert(list(arms), list[Arm])
    except msgspec.ValidationError as error:
        refusal = invalid(str(error))
        raise Refusal(422, refusal.code, str(refusal), field=f"arms{refusal.field}") from None


def _id(arm: Row, place: int) -> str:
    try:
        return msgspec.convert(arm.get(ID), Id)
    except msgspec.ValidationError as error:
        said = str(invalid(str(error)))
        raise Refusal(422, "invalid", said, field=f"arms[{place}].{ID}") from None


# --- observations -------------------------------------------------------------------------------


async def checked_observations(
    told: Sequence[Observation | NamedObservation], rules: TenantSettings
) -> list[Observation]:
    """Return all observations of a batch with vectors; refuse all of them if one is invalid."""
    latest = 0.0
    found: list[Observation] = []
    for start in range(0, len(told), AT_ONCE):
        for one in _with_vectors(told[start : start + AT_ONCE], start, rules):
            _check(one, len(found), latest, rules)
            latest = latest if one.at is UNSET else one.at
            found.append(one)
        await asyncio.sleep(0)
    return found


def _check(one: Observation, place: int, latest: float, rules: TenantSettings) -> None:
    field = f"observations[{place}]"
    check_reward(one.reward, f"{field}.reward", rules.limits)
    checked_features([one.features], f"{field}.features", rules)
    if one.at is not UNSET and one.at < latest:
        raise Refusal(
            422,
            "order",
            f"{one.at:.16g} after {latest:.16g}, expected observations in order of time",
            field=f"{field}.at",
        )


def _with_vectors(
    told: Sequence[Observation | NamedObservation], start: int, rules: TenantSettings
) -> list[Observation]:
    named = {
        place: one
        for place, one in enumerate(told)
        if isinstance(one, NamedObservation) and one.features is UNSET
    }
    vectors = dict(zip(named, _rows(list(named.items()), start, rules), strict=True))
    return [
        one
        if isinstance(one, Observation)
        else _observation(one, vectors.get(place), start + place)
        for place, one in enumerate(told)
    ]


def _observation(one: NamedObservation, vector: list[float] | None, place: int) -> Observation:
    features = one.features
    if features is UNSET:
        assert vector is not None
        return Observation(one.user, vector, one.reward, one.event_id, one.at, one.propensity)
    for name, columns in (("arm", one.arm), ("context", one.context)):
        if columns is not UNSET:
            raise _mixed(f"observations[{place}].{name}", f"{name} is given beside a vector")
    return Observation(one.user, features, one.reward, one.event_id, one.at, one.propensity)


def _rows(
    named: Sequence[tuple[int, NamedObservation]], start: int, rules: TenantSettings
) -> list[list[float]]:
    """Return the vectors of observations, numbered from `start` on, that have columns."""
    features = rules.features
    if not named or features is None:
        return []
    rows: list[dict[str, Any]] = []
    for place, one in named:
        field = f"observations[{start + place}]"
        rows.append(
            {
                **_columns(one.arm, features.arm, f"{field}.arm", ID),
                **_columns(one.context, features.context, f"{field}.context"),
            }
        )
    if features.reduce is not None:
        # A product of matrices rounds a row differently beside other rows. A repetition must
        # have the same vector, whatever it is sent with.
        return [
            _matrix(features, [row], [start + place])[0]
            for row, (place, _) in zip(rows, named, strict=True)
        ]
    return _matrix(features, rows, [start + place for place, _ in named])


def _matrix(
    features: Features, rows: list[dict[str, Any]], places: Sequence[int]
) -> list[list[float]]:
    try:
        found: list[list[float]] = features.matrix(rows).tolist()
    except DycluError as error:
        said, where = str(error), _WHERE.match(str(error))
        if where is None:
            raise Refusal(422, "features", said, field="observations") from None
        place, column = places[int(where[1])], where[2]
        side = "context" if column in features.context else "arm"
        raise Refusal(
            422, "features", f"observation {place}, column {column!r}{said[where.end() :]}",
            field=f"observations[{place}].{side}.{column}",
        ) from None  # fmt: skip
    return found


def _columns(given: Row | UnsetType, declared: Mapping[str, Any], field: str, *beside: str) -> Row:
    """Return the declared columns, of which none is absent; `beside` them nothing else may be."""
    columns = {} if given is UNSET else given
    if columns.keys() - {*declared, *beside}:
        raise _unknown(columns, declared, field, *beside)
    for name in declared:
        if name not in columns:
            raise Refusal(
                422, "features", f"no column {name!r}; pass null if its value is missing",
                field=f"{field}.{name}",
            )  # fmt: skip
    return {name: columns[name] for name in declared}


# --- refusals -----------------------------------------------------------------------------------


def _unknown(columns: Row, declared: Mapping[str, Any], field: str, *beside: str) -> Refusal:
    name = min(columns.keys() - {*declared, *beside})
    known = ", ".join(map(repr, declared)) or "none"
    return Refusal(
        422, "features", f"column {name!r} is not declared, expected: {known}",
        field=f"{field}.{name}",
    )  # fmt: skip


def _mixed(field: str, what: str) -> Refusal:
    return Refusal(
        422, "features", f"{what}; give all arms as columns, or all as vectors without a context",
        field=field,
    )  # fmt: skip


def _refusal(error: DycluError, features: Features) -> Refusal:
    """Return the refusal of a decision's columns, with the field that the error names."""
    where = _WHERE.match(str(error))
    field = "arms"
    if where is not None:
        place, column = where.groups()
        in_context = column in features.context
        field = f"context.{column}" if in_context else f"arms[{place}].{column}"
    return Refusal(422, "features", _in_json(str(error)), field=field)


def _in_json(message: str) -> str:
    return message.replace("pass None", "pass null")
