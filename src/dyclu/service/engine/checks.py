"""Checks of requests, against the tenant's settings and against lines that the journal has.

A request that fails a check raises a `Refusal`. A repeated request gets its first answer again:
an answer is a function of its line.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from msgspec import UNSET

from dyclu.service.engine.lines import MICRO, DecisionBody, EventBody, Line, RewardBody
from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.schema import Decided, DecisionRequest, Observation, Observed, Rewarded
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
    return checked_features([arm.features for arm in request.arms], "arms[{}].features", rules)


def checked_choice(request: DecisionRequest, rules: TenantSettings) -> int | None:
    """Return the index of the arm that the caller chose in shadow mode; None online."""
    if rules.mode == "online":
        if request.chosen is not UNSET:
            raise Refusal(
                422, "mode", "chosen is for shadow mode; this tenant is online", field="chosen"
            )
        return None
    for index, arm in enumerate(request.arms):
        if arm.id == request.chosen:
            return index
    raise Refusal(
        422, "mode", "in shadow mode, say which of the arms you chose yourself", field="chosen"
    )


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
        agrees=body.own == body.arm if shadow else None,
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


def repeated_reward(id: str, line: Line | None, value: float) -> Rewarded:
    """Return the answer to a repetition, or refuse another value, or one that comes too late."""
    known = given_reward(line)
    if known is None:
        raise too_late(id)
    if known.value != value:
        raise Refusal(
            409,
            "conflict",
            f"decision {id} was rewarded with {known.value}, got {value}; the first value stays",
            field="value",
        )
    return Rewarded(id, value, repeated=True)


def given_reward(line: Line | None) -> RewardBody | None:
    """Return the reward that a caller gave; None if there is none, or only a default reward."""
    body = None if line is None else line.body
    return body if isinstance(body, RewardBody) and not body.default else None


def too_late(id: str) -> Refusal:
    """Return the refusal of a reward for a decision that has expired."""
    return Refusal(410, "expired", f"decision {id} has expired; its reward comes too late")
