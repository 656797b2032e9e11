"""`lift_view`: the policy compared with its control group, as an answer of the service."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from dyclu.evaluate import Lift
from dyclu.service.engine.choosing.lift import LiftDay, LiftSums
from dyclu.service.engine.lines import MICRO, ComparisonBody
from dyclu.service.schema import LiftDayView, LiftGroup, LiftView
from dyclu.service.settings import TenantSettings

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).date()


def lift_view(sums: LiftSums, rules: TenantSettings) -> LiftView:
    """Return what is known about the lift.

    >>> lift_view(LiftSums(), TenantSettings(2)).verdict
    'There is no control group; set control = 0.05, say.'
    """
    if rules.control and sums.terms not in (None, ComparisonBody(rules.control, rules.baseline)):
        sums = LiftSums()  # these settings are compared from the next decision on
    (treated, control), found = sums.totals().tolist(), sums.result()
    there = treated[0] > 0 and control[0] > 0
    return LiftView(
        share=rules.control,
        baseline=rules.baseline,
        since=None if sums.since is None else sums.since / MICRO,
        treated=_group(*treated),
        control=_group(*control),
        lift=found.value if there else None,
        low=_known(found.interval.low),
        high=_known(found.interval.high),
        verdict=_verdict(found, rules, empty=sums.empty),
        days=[_day(one) for one in sums.days()],
    )


def _group(decisions: float, reward: float) -> LiftGroup:
    return LiftGroup(int(decisions), reward, reward / decisions if decisions else None)


def _day(one: LiftDay) -> LiftDayView:
    treated = _group(one.treated_decisions, one.treated_reward)
    control = _group(one.control_decisions, one.control_reward)
    return LiftDayView(
        day=(EPOCH + timedelta(days=one.day)).isoformat(),
        treated=treated,
        control=control,
        lift=one.value,
        low=_known(one.low),
        high=_known(one.high),
    )


def _known(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _verdict(found: Lift, rules: TenantSettings, *, empty: bool) -> str:
    if empty:
        return (
            "Nobody has been served since there is this control group."
            if rules.control
            else "There is no control group; set control = 0.05, say."
        )
    if not found.interval.bounded:
        return "There are too few users in one of the groups to compare them."
    low, high = found.interval.low, found.interval.high
    between = f"{found.value:+.3g} per decision, between {low:+.3g} and {high:+.3g}"
    if not found.decided:
        return f"It cannot be said yet whether the policy earns more than the baseline: {between}."
    more = "more" if found.value > 0 else "less"
    return f"The policy earns {more} than the baseline: {between}."
