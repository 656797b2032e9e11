"""`Deciding`: which arms a user is shown, by whom they are chosen, and what is written about it.

A user of the control group is served by the baseline; all others by the policy, with some arms
drawn at random. In shadow mode the caller serves everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from msgspec import UNSET, UnsetType, structs

from dyclu.policy import position_of
from dyclu.service.engine.choosing import choice
from dyclu.service.engine.choosing.choice import CallersChoice, Draw, Place, ranking
from dyclu.service.engine.choosing.reasons import Reasons, explained
from dyclu.service.engine.inspect import model_of
from dyclu.service.engine.lines import DecisionBody, Group, SlotBody
from dyclu.service.engine.state import State
from dyclu.service.schema import DecisionRequest, FeatureWeight, Why
from dyclu.service.settings import TenantSettings
from dyclu.validation import FloatArray


@dataclass(frozen=True, slots=True)
class Deciding:
    """Makes decisions with a state, by the settings; `secret` is the tenant's."""

    state: State
    rules: TenantSettings
    secret: bytes

    def body(
        self,
        request: DecisionRequest,
        arms: FloatArray,
        chosen: CallersChoice | None,
        id: str,
        order: Sequence[int] | None,
        until: int,
        reasons: Reasons | None = None,
    ) -> DecisionBody:
        """Return the decision.

        Parameters
        ----------
        request, arms : DecisionRequest and array of shape (K, dim)
            What is asked, checked.
        chosen : CallersChoice or None
            The arms that the caller chose, if they choose.
        id : str
            Id of the decision, which determines its random numbers.
        order : sequence of int or None
            Ranking of the arms, if it is known already.
        until : int
            Until when rewards are accepted.
        reasons : callable or None
            Names the features of the arms, for an explanation.
        """
        rules, user, group = self.rules, request.user, self.group(request.user)
        slots = 1 if isinstance(request.slots, UnsetType) else request.slots
        if group == "control":
            places = self._baseline(user, arms, chosen, id, slots)
        else:
            places = self._policys(user, arms, id, slots)
        bodies = self._slots(request, arms, places, chosen)
        counters, policy = self.state.users.get(user), self.state.policy
        if request.rank is True:
            order = self._ranked(user, arms, places, order, by_policy=group != "control")
        first = bodies[0]
        return DecisionBody(
            arm=first.arm,
            x=first.x,
            mean=first.mean,
            width=first.width,
            version=self.state.total.version,
            until=until,
            offered=len(arms),
            propensity=first.propensity,
            model=None if counters is None else model_of(policy, user, counters.segment),
            active=request.active is not False,
            rank=None if order is None else [request.arms[row].id for row in order],
            own=first.own,
            arms=request.arms if rules.log_arms else None,
            slots=None if request.slots is UNSET else bodies[1:],
            settles=rules.reward if rules.learn == "settled" else None,
            group=group,
            why=self._why(request, arms, places[0].row, group, reasons),
            at=None if isinstance(request.at, UnsetType) else request.at,
            position=rules.position,
        )

    def group(self, user: str) -> Group | None:
        """Return the group of a user; None if there is no control group."""
        share = self.rules.control
        if not share or self.rules.mode == "shadow":
            return None
        return "control" if choice.in_control(user, share, secret=self.secret) else "treated"

    @property
    def _explores(self) -> bool:
        """Whether the policy's users are shown arms at random now and then.

        In shadow mode none is drawn: the caller chose.
        """
        rules = self.rules
        return rules.mode == "online" and (rules.epsilon > 0 or rules.floor > 0)

    def _why(
        self,
        request: DecisionRequest,
        arms: FloatArray,
        row: int,
        group: Group | None,
        reasons: Reasons | None,
    ) -> Why | None:
        """Return why the arm of the first slot is shown, with the chances of all arms, if asked."""
        if request.explain is not True:
            return None
        rules, ids = self.rules, [arm.id for arm in request.arms]
        if rules.position is not None:
            arms = arms.copy()
            arms[:, rules.position] = position_of(1)
            reasons = reasons and _without(reasons, rules.position)
        epsilon = max(rules.epsilon, rules.floor * len(arms)) if self._explores else 0.0
        policy, user, count = self.state.policy, request.user, len(arms)
        why = explained(policy, user, arms, ids, row, epsilon=epsilon, reasons=reasons)
        if group != "control":
            return why
        # The policy has no part in it; nobody knows with which chance a caller chooses.
        known: dict[str, list[float | None]] = {
            "uniform": [1.0 / count] * count,
            "order": [1.0, *[0.0] * (count - 1)],
            "caller": [None] * count,
        }
        told = zip(why.arms, known[rules.baseline], strict=True)
        scores = [structs.replace(arm, chance=chance) for arm, chance in told]
        return structs.replace(why, arms=scores, at_random=rules.baseline == "uniform")

    def _policys(self, user: str, arms: FloatArray, id: str, slots: int) -> list[Place]:
        rules = self.rules
        draws = Draw.per_slot(id, secret=self.secret) if self._explores else repeat(None)
        chooser = choice.by_policy(
            self.state.policy, user, epsilon=rules.epsilon, floor=rules.floor, draws=draws
        )
        return choice.fill(chooser, arms, slots, rules.position)

    def _baseline(
        self, user: str, arms: FloatArray, chosen: CallersChoice | None, id: str, slots: int
    ) -> list[Place]:
        policy, position = self.state.policy, self.rules.position
        if chosen is not None:
            return choice.given(policy, user, arms, chosen, position)
        if self.rules.baseline == "order":
            return choice.fill(choice.in_order(policy, user), arms, slots, position)
        draws = Draw.per_slot(id, secret=self.secret)
        return choice.fill(choice.uniform(policy, user, draws), arms, slots, position)

    def _slots(
        self,
        request: DecisionRequest,
        arms: FloatArray,
        places: list[Place],
        chosen: CallersChoice | None,
    ) -> list[SlotBody]:
        """Return what is written about each slot."""
        if self.rules.mode == "online" or chosen is None:
            return [_slot(request, place, None) for place in places]
        # What is expected is of the policy's own arm; what will be learnt is of the caller's.
        theirs = choice.given(self.state.policy, request.user, arms, chosen, self.rules.position)
        return [
            _slot(
                request,
                Place(made.row, made.x, replace(mine.chosen, propensity=made.chosen.propensity)),
                request.arms[mine.row].id,
            )
            for made, mine in zip(theirs, places, strict=True)
        ]

    def _ranked(
        self,
        user: str,
        arms: FloatArray,
        places: list[Place],
        order: Sequence[int] | None,
        *,
        by_policy: bool,
    ) -> Sequence[int]:
        """Return all arms in the policy's order, beginning with those that it shows."""
        order = list(ranking(self.state.policy, user, arms)) if order is None else order
        if not by_policy or self._explores:
            return order
        # Rewards learnt since `order` was computed may have put other arms first.
        first = [place.row for place in places]
        return [*first, *(row for row in order if row not in first)]


def _without(reasons: Reasons, feature: int) -> Reasons:
    """Return reasons among which a feature does not count: all arms have the same value of it."""

    def others(theta: FloatArray, chosen: int) -> list[FeatureWeight]:
        kept = theta.copy()
        kept[feature] = 0.0
        return reasons(kept, chosen)

    return others


def _slot(request: DecisionRequest, place: Place, own: str | None) -> SlotBody:
    return SlotBody(
        arm=request.arms[place.row].id,
        x=place.x.tolist(),
        mean=place.chosen.mean,
        width=place.chosen.width,
        propensity=place.chosen.propensity,
        own=own,
    )
