"""Judging what is asked for against a tenant's rules: what passes may go into the journal."""

from __future__ import annotations

from itertools import chain

import numpy as np
from msgspec import UNSET

from dyclu.service.refusal import Refusal, over_limit
from dyclu.service.schema import DecisionRequest
from dyclu.service.settings import Limits, TenantSettings
from dyclu.validation import FloatArray


def judged_arms(asked: DecisionRequest, rules: TenantSettings) -> FloatArray:
    """Return the features of all arms (K, dim), or refuse them."""
    limits = rules.limits
    if len(asked.arms) > limits.max_arms:
        raise over_limit("arms", "max_arms", f"{len(asked.arms)} long", limits.max_arms)
    if asked.rank is True and len(asked.arms) > limits.max_ranked:
        raise over_limit("rank", "max_ranked", f"of {len(asked.arms)}", limits.max_ranked)
    if len({arm.id for arm in asked.arms}) < len(asked.arms):
        raise Refusal(422, "repeated", "two arms have the same id", field="arms")
    return judged_features([arm.features for arm in asked.arms], "arms[{}].features", rules)


def judged_choice(asked: DecisionRequest, rules: TenantSettings) -> int | None:
    """Return which arm a caller in shadow mode chose themselves, None online."""
    if rules.mode == "online":
        if asked.chosen is not UNSET:
            raise Refusal(
                422, "mode", "chosen is for shadow mode; this tenant is online", field="chosen"
            )
        return None
    for index, arm in enumerate(asked.arms):
        if arm.id == asked.chosen:
            return index
    raise Refusal(
        422, "mode", "in shadow mode, say which of the arms you chose yourself", field="chosen"
    )


def judged_features(rows: list[list[float]], field: str, rules: TenantSettings) -> FloatArray:
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
    # Adding 0 turns -0.0 into the 0.0 that it equals.
    matrix += 0.0
    matrix = matrix.reshape(len(rows), rules.dim)
    most = rules.limits.max_norm
    # No row is longer than all of them together, which is quicker to tell.
    if not np.vdot(matrix, matrix) <= most * most:
        _check_norms(matrix, most, field)
    return matrix


def _check_norms(matrix: FloatArray, most: float, field: str) -> None:
    norms = np.sqrt(np.einsum("kd,kd->k", matrix, matrix))
    if not norms.max() <= most:
        index = int(np.argmax(~(norms <= most)))
        raise over_limit(field.format(index), "max_norm", f"of norm {norms[index]:g}", most)


def check_reward(value: float, field: str, limits: Limits) -> None:
    """Refuse a reward that is too large, or no number."""
    if not abs(value) <= limits.max_reward:
        raise over_limit(field, "max_reward", f"{value:g} in size", limits.max_reward)
