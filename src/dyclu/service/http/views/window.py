"""`Window`: the answers to GET requests, computed from a tenant's state."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec
import numpy as np

from dyclu.policy import SegmentSummary
from dyclu.service.engine import inspect
from dyclu.service.engine.advice import missing_zeros
from dyclu.service.engine.lines import MICRO
from dyclu.service.engine.state import CHANGES_KEPT, ChangeEntry, UserCounters
from dyclu.service.http.views.lifts import lift_view
from dyclu.service.http.views.words import Followers, common_taste, followers, tastes_of
from dyclu.service.refusal import Refusal
from dyclu.service.schema import (
    Activity,
    Changes,
    ChangeView,
    FeaturesView,
    LiftView,
    Models,
    ModelView,
    PolicyView,
    SegmentView,
    UserView,
)
from dyclu.service.tenant.tenant import Tenant

CHANGES_AT_ONCE = 500
"""Changes in one answer."""

FRESH = 2.0
"""Seconds for which the map of the models is reused."""

GROWTH = 60.0
"""Seconds over which the growth of a model is measured."""


class Window:
    """Answers GET requests for one tenant, or for one of its `partitions` in a cluster."""

    def __init__(self, tenant: Tenant, *, partitions: int | None = None) -> None:
        self._tenant, self._partitions = tenant, partitions
        self._map = Models(0, 0, 0, [])
        self._drawn = -FRESH
        self._sizes: deque[tuple[float, dict[int, int]]] = deque()

    def policy(self) -> PolicyView:
        """Return the policy that serves, its settings, its counters and all warnings."""
        tenant, state = self._tenant, self._tenant.state
        total = state.total
        return PolicyView(
            tenant=tenant.name,
            policy=repr(state.policy),
            dim=state.policy.dim,
            mode=tenant.rules.mode,
            epsilon=tenant.rules.epsilon,
            version=total.version,
            decisions=total.decisions,
            rewards=total.rewards,
            pending=len(state.pending),
            users=len(state.users),
            changes=total.changes,
            agreement=total.agreed / total.shadowed if total.shadowed else None,
            rebuilding=tenant.rebuilding,
            healthy=tenant.trouble is None,
            warnings=self._warnings(),
            partitions=self._partitions,
        )

    def _warnings(self) -> list[str]:
        """Return what seems wrong with the snapshots, with rewards, and with the policy."""
        state = self._tenant.state
        said = [*self._tenant.snapshots.complaints]
        if self._tenant.starting:
            said.append(f"the service starts; this is the state of line {state.total.seq}")
        if state.total.unlearnt:
            said.append(f"{state.total.unlearnt} rewards could not be learnt; see the log")
        if (missing := missing_zeros(state.total, self._tenant.rules)) is not None:
            said.append(missing)
        return [*said, *state.policy.warnings]

    def user(self, user: str) -> UserView:
        """Return what the service knows about a user."""
        state = self._tenant.state
        counters = state.users.get(user)
        if counters is None:
            raise Refusal(404, "unknown", "no such user", field="user")
        location = state.policy.locate(user)
        model = inspect.model_of(state.policy, user, counters.segment)
        changes = [change for change in state.changes if change.user == user]
        return UserView(
            user=user,
            decisions=counters.decisions,
            rewards=counters.rewards,
            mean_reward=counters.total / counters.rewards if counters.rewards else None,
            last_seen=counters.last / MICRO if counters.last else None,
            model=model,
            segments=self._told(segments_between(changes, counters, model))
            if location.segments is None
            else [_segment(one) for one in location.segments],
            neighbours=list(location.neighbours[: inspect.LISTED]),
            neighbours_total=len(location.neighbours),
            belief=inspect.belief_of(location),
            changes=[_change(one) for one in changes],
        )

    def _told(self, segments: list[SegmentView]) -> list[SegmentView]:
        """Return segments with what their models like, as far as these are on the map."""
        known = {model.id: model for model in self.models().models}
        return [
            one
            if one.id is None or (model := known.get(one.id)) is None
            else msgspec.structs.replace(
                one,
                likes=[liked.feature for liked in model.likes],
                dislikes=[disliked.feature for disliked in model.dislikes],
            )
            for one in segments
        ]

    def features(self) -> FeaturesView:
        """Return the declared features; without them, names of the numbers of vectors."""
        features, dim = self._tenant.rules.features, self._tenant.rules.dim
        if features is None:
            return FeaturesView(None, [f"x{place}" for place in range(dim)], None, None)
        return FeaturesView(
            features.version,
            list(features.names),
            features.declaration,
            None if features.loadings is None else features.loadings.tolist(),
        )

    def changes(self, since: int, epoch: int | None) -> Changes:
        """Return the first changes after number `since`; refuse an `epoch` that is over.

        Also refuse a `since` beyond the latest change: the journal was restored from an older copy.
        """
        now, latest = self.epoch(), self._tenant.state.total.changes
        if epoch not in (None, now):
            raise Refusal(
                409,
                "epoch",
                "changes are numbered anew, as the policy was made anew; begin with since=0",
                field="epoch",
            )
        if epoch is not None and since > latest:
            # While it starts, it may show an earlier state.
            self._tenant.check_serving()
            raise Refusal(
                409,
                "epoch",
                f"the latest change is {latest}, as an earlier journal was restored; "
                "begin with since=0",
                field="since",
            )
        later = (one for one in self._tenant.state.changes if one.number > since)
        found = [_change(one) for one in islice(later, CHANGES_AT_ONCE)]
        last = found[-1].number if len(found) == CHANGES_AT_ONCE else latest
        return Changes(now, max(1, latest - CHANGES_KEPT + 1), latest, last, found)

    def epoch(self) -> int:
        """Return the epoch of the numbers of changes: a digest of policy, code and erasures.

        When one of these differs, the journal was replayed and may have given other changes.
        """
        built, made_by = self._tenant.origin
        made_of = repr((built, self._tenant.rules.spec(), made_by))
        return int.from_bytes(hashlib.blake2b(made_of.encode(), digest_size=6).digest(), "big")

    def activity(self) -> Activity:
        """Return the activity by second and by minute."""
        state, now = self._tenant.state, self._tenant.clock()
        at = round(now * MICRO)
        return Activity(now, state.seconds.buckets(at), state.minutes.buckets(at))

    def lift(self) -> LiftView:
        """Return the comparison with the control group."""
        return lift_view(self._tenant.state.lift, self._tenant.rules)

    def models(self) -> Models:
        """Return the map of the models, at most `FRESH` seconds old."""
        now = time.monotonic()
        if now - self._drawn >= FRESH:
            self._drawn, self._map = now, self._draw(now)
        return self._map

    def _draw(self, now: float) -> Models:
        state, features = self._tenant.state, self._tenant.rules.features
        models = state.policy.models
        largest = inspect.largest(models)
        before = self._sizes_before(now, {one.id: one.users for one in largest})
        estimates = np.array([one.estimate for one in largest])
        points = inspect.placed(estimates.reshape(len(largest), state.policy.dim))
        tastes, theirs = tastes_of(largest, features), followers(state) if models else {}
        shown = [
            ModelView(
                m.id, m.users, m.size, m.users - before.get(m.id, m.users), x, y, likes, dislikes,
                (who := theirs.get(m.id, Followers())).mean_reward, who.users,
            )
            for m, (x, y), (likes, dislikes) in zip(largest, points.tolist(), tastes, strict=True)
        ]  # fmt: skip
        elsewhere = len(state.users) - sum(one.users for one in largest)
        named = features is not None
        common = common_taste(largest, features) if features is not None else ([], [])
        return Models(state.total.version, len(models), max(0, elsewhere), shown, named, *common)

    def _sizes_before(self, now: float, sizes: dict[int, int]) -> dict[int, int]:
        self._sizes.append((now, sizes))
        while self._sizes[0][0] < now - GROWTH:
            self._sizes.popleft()
        return self._sizes[0][1]


def _segment(one: SegmentSummary) -> SegmentView:
    return SegmentView(one.id, one.opened, one.closed, one.observations)


def _change(change: ChangeEntry) -> ChangeView:
    return ChangeView(
        change.number,
        change.at / MICRO,
        change.user,
        change.before,
        change.after,
        change.certainty,
    )


def segments_between(
    changes: Sequence[ChangeEntry], counters: UserCounters, model: int | None
) -> list[SegmentView]:
    """Return a user's segments between the changes that were noticed, the last one on `model`.

    >>> counters = UserCounters(rewards=30, first=4)
    >>> change = ChangeEntry(1, 0, "ana", 7, 9, 0.99, version=64, rewards=20)
    >>> for segment in segments_between([change], counters, 9):
    ...     print(segment)
    SegmentView(id=7, opened=4, closed=64, observations=20, likes=[], dislikes=[])
    SegmentView(id=9, opened=64, closed=None, observations=10, likes=[], dislikes=[])
    """
    if not counters.rewards:
        return []
    found, opened, counted = [], counters.first, 0
    for change in changes:
        held = change.rewards - counted
        found.append(SegmentView(change.before, opened, change.version, held))
        opened, counted = change.version, change.rewards
    return [*found, SegmentView(model, opened, None, counters.rewards - counted)]
