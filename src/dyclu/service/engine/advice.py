"""`missing_zeros`: a sentence for tenants whose policy learns from clicks alone."""

from __future__ import annotations

from dyclu.service.engine.state import Counters
from dyclu.service.settings import TenantSettings

LEAST_LOST = 100
"""Slots without reward from which on this is worth a word."""

MOST_LOST = 0.05
"""Share of slots that may stay without reward, as where some answers get lost."""


def missing_zeros(total: Counters, rules: TenantSettings) -> str | None:
    """Return a warning if neither a default reward nor rewards of 0 ever come.

    Then all that is learnt are the rewards of those who clicked: every arm looks equally good.

    >>> missing_zeros(Counters(rewards=20, lost=980), TenantSettings(2))
    '980 arms that were shown got no reward in time, no reward of 0 ever came, and default_reward is
    not set: ...; if no reward means 0, set default_reward = 0'
    """
    if rules.default_reward is not None or total.zeros or total.defaults:
        return None
    if total.lost < LEAST_LOST or total.lost < MOST_LOST * (total.lost + total.rewards):
        return None
    return (
        f"{total.lost} arms that were shown got no reward in time, no reward of 0 ever came, and "
        "default_reward is not set: the policy learns from clicks alone, and cannot tell good arms "
        "from bad ones; if no reward means 0, set default_reward = 0"
    )
