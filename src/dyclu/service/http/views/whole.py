"""Views of a whole tenant of a cluster: sums over its partitions.

Users never share partitions, so sums add up. Each owner adds up its own partitions (`here`); the
process that was asked adds up what the owners answer (`joined`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from dyclu.service.engine.activity import Ring
from dyclu.service.engine.choosing.lift import LiftSums
from dyclu.service.engine.lines import MICRO, ComparisonBody
from dyclu.service.http.views.lifts import lift_view
from dyclu.service.http.views.window import Window
from dyclu.service.schema import Activity, Bucket, LiftView, PolicyView
from dyclu.service.settings import TenantSettings
from dyclu.service.tenant.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Share:
    """A partition that this process owns."""

    partition: int
    tenant: Tenant
    window: Window


@dataclass(frozen=True, slots=True)
class Whole:
    """How a view adds up.

    Attributes
    ----------
    here : callable
        Returns the sum over partitions of this process.
    kind : type
        Type of these sums, as JSON.
    joined : callable
        Returns the view of the tenant, from the sums of all processes.
    """

    here: Callable[[Sequence[Share]], Any]
    kind: Any
    joined: Callable[[Sequence[Any], TenantSettings], Any]


# --- lift ----------------------------------------------------------------------------------------


class LiftSum(Struct, frozen=True):
    """A comparison over some partitions, as `LiftSums.dump` tells it."""

    state: dict[str, Any]
    arrays: dict[str, list[Any]]

    @classmethod
    def of(cls, sums: LiftSums) -> LiftSum:
        """Return sums as values for JSON."""
        state, arrays = sums.dump()
        return cls(state, {name: array.tolist() for name, array in arrays.items()})

    def sums(self) -> LiftSums:
        """Return the sums."""
        whole = {"lift_buckets": np.intp}
        arrays = {
            name: np.array(values, dtype=whole.get(name, np.float64))
            for name, values in self.arrays.items()
        }
        return LiftSums.restored(self.state, arrays)


def lift_here(shares: Sequence[Share]) -> list[LiftSum]:
    """Return the sums of each comparison: a partition without decisions since is at a former."""
    by = defaultdict[ComparisonBody | None, list[LiftSums]](list)
    for share in shares:
        sums = share.tenant.state.lift
        by[sums.terms].append(sums)
    return [LiftSum.of(LiftSums.joined(some)) for some in by.values()]


def lift_joined(told: Sequence[list[LiftSum]], rules: TenantSettings) -> LiftView:
    """Return the lift of the tenant: of the comparison that the settings say, or else the last."""
    all_sums = [one.sums() for some in told for one in some]
    terms = _latest_terms(all_sums)
    if rules.control:
        terms = ComparisonBody(rules.control, rules.baseline)
    return lift_view(LiftSums.joined(one for one in all_sums if one.terms in (None, terms)), rules)


def _latest_terms(all_sums: Sequence[LiftSums]) -> ComparisonBody | None:
    begun = [(one.since or 0, one.terms) for one in all_sums if one.terms is not None]
    return max(begun, key=lambda one: one[0])[1] if begun else None


# --- activity ------------------------------------------------------------------------------------


def activity_here(shares: Sequence[Share]) -> Activity:
    """Return the activity of these partitions."""
    now = max(share.tenant.clock() for share in shares)
    states, at = [share.tenant.state for share in shares], round(now * MICRO)
    seconds, minutes = (
        Ring.joined(rings).buckets(at)
        for rings in ([one.seconds for one in states], [one.minutes for one in states])
    )
    return Activity(now, seconds, minutes)


def activity_joined(told: Sequence[Activity], _: TenantSettings) -> Activity:
    """Return the activity of the tenant.

    >>> one, two = (Activity(9.0, [Bucket(at, 2, 1, 0.5, 0)], []) for at in (7.0, 7.0))
    >>> activity_joined([one, two], TenantSettings(2)).seconds
    [Bucket(at=7.0, decisions=4, rewards=2, reward_sum=1.0, changes=0)]
    """
    return Activity(
        max(one.now for one in told),
        _added([bucket for one in told for bucket in one.seconds]),
        _added([bucket for one in told for bucket in one.minutes]),
    )


def _added(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Return one bucket for each time, the oldest first."""
    found: dict[float, Bucket] = {}
    for one in buckets:
        so_far = found.get(one.at, Bucket(one.at, 0, 0, 0.0, 0))
        found[one.at] = Bucket(
            one.at,
            so_far.decisions + one.decisions,
            so_far.rewards + one.rewards,
            so_far.reward_sum + one.reward_sum,
            so_far.changes + one.changes,
        )
    return [found[at] for at in sorted(found)]


# --- policy --------------------------------------------------------------------------------------

COUNTS = ("version", "decisions", "rewards", "pending", "users", "changes")


class PolicySum(Struct, frozen=True):
    """The policy over some partitions: counts in `view`, and which partitions warn of what."""

    view: PolicyView
    shadowed: int
    agreed: int
    warnings: dict[str, list[int]]

    def __add__(self, other: PolicySum) -> PolicySum:
        one, two = self.view, other.view
        counts = {name: getattr(one, name) + getattr(two, name) for name in COUNTS}
        warnings = {
            said: [*self.warnings.get(said, ()), *other.warnings.get(said, ())]
            for said in self.warnings | other.warnings
        }
        return PolicySum(
            replace(
                one,
                rebuilding=one.rebuilding or two.rebuilding,
                healthy=one.healthy and two.healthy,
                **counts,
            ),
            self.shadowed + other.shadowed,
            self.agreed + other.agreed,
            warnings,
        )


def policy_here(shares: Sequence[Share]) -> PolicySum:
    """Return the counts of these partitions."""
    return _total([_policy_of(share) for share in shares])


def _policy_of(share: Share) -> PolicySum:
    view, total = share.window.policy(), share.tenant.state.total
    warnings = {said: [share.partition] for said in view.warnings}
    return PolicySum(view, total.shadowed, total.agreed, warnings)


def policy_joined(told: Sequence[PolicySum], _: TenantSettings) -> PolicyView:
    """Return the policy of the tenant; each warning says which partitions it is about."""
    total = _total(told)
    return replace(
        total.view,
        tenant=total.view.tenant.partition("/")[0],
        agreement=total.agreed / total.shadowed if total.shadowed else None,
        warnings=[
            f"{_numbered(sorted(numbers))}: {said}" for said, numbers in total.warnings.items()
        ],
    )


def _total(told: Sequence[PolicySum]) -> PolicySum:
    total, *others = told
    for one in others:
        total += one
    return total


def _numbered(partitions: Sequence[int]) -> str:
    """Return partitions in words.

    >>> _numbered([3]), _numbered([0, 1, 5])
    ('partition 3', 'partitions 0, 1, 5')
    """
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"


WHOLE: Mapping[str, Whole] = {
    "lift": Whole(lift_here, list[LiftSum], lift_joined),
    "activity": Whole(activity_here, Activity, activity_joined),
    "policy": Whole(policy_here, PolicySum, policy_joined),
}
"""Calls that are about the whole tenant, unless ``?partition=`` names a partition."""
