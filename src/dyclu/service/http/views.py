"""What a tenant shows of itself: the answers to GET."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from dyclu.service.disk.provenance import made_by
from dyclu.service.engine import inspect
from dyclu.service.engine.records import MICRO
from dyclu.service.engine.state import CHANGES_KEPT, Change, Tally
from dyclu.service.refusal import Refusal
from dyclu.service.schema import (
    Activity,
    Changes,
    ChangeView,
    Models,
    ModelView,
    PolicyView,
    SegmentView,
    UserView,
)
from dyclu.service.tenant import Tenant

CHANGES_AT_ONCE = 500
"""Changes in one answer."""

FRESH = 2.0
"""Seconds for which a map of the models is shown again rather than drawn anew."""

GROWTH = 60.0
"""Seconds over which models are said to grow."""


class Window:
    """Looks at one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._map = Models(0, 0, 0, [])
        self._drawn = -FRESH
        self._sizes: deque[tuple[float, dict[int, int]]] = deque()

    def policy(self) -> PolicyView:
        """Return what serves, and how it is doing."""
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
        )

    def _warnings(self) -> list[str]:
        unlearnt = self._tenant.state.total.unlearnt
        said = [*self._tenant.snapshots.complaints]
        if unlearnt:
            said.append(f"{unlearnt} rewards could not be learnt; see the log")
        return said

    def user(self, user: str) -> UserView:
        """Return what is known of a user."""
        state = self._tenant.state
        tally = state.users.get(user)
        if tally is None:
            raise Refusal(404, "unknown", "no such user", field="user")
        neighbours, total = inspect.neighbours_of(state.policy, user)
        model = inspect.model_of(state.policy, user, tally.segment)
        changes = [change for change in state.changes if change.user == user]
        segments = inspect.segments_of(state.policy, user)
        return UserView(
            user=user,
            decisions=tally.decisions,
            rewards=tally.rewards,
            mean_reward=tally.total / tally.rewards if tally.rewards else None,
            last_seen=tally.last / MICRO if tally.last else None,
            model=model,
            segments=stretches(tally, changes, model) if segments is None else segments,
            neighbours=neighbours,
            neighbours_total=total,
            belief=inspect.belief_of(state.policy, user),
            changes=[_change(one) for one in changes],
        )

    def changes(self, since: int, epoch: int | None) -> Changes:
        """Return the first changes after number `since`; refuse an `epoch` that is over.

        Also if `since` was never told in it: the journal was restored from a copy made before.
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
        """Return what the numbers of changes hold for: this policy, this code, these users.

        When one of them is another, the journal is lived through anew, to other changes.
        """
        made_of = repr((self._tenant.built, self._tenant.rules.spec(), made_by()))
        return int.from_bytes(hashlib.blake2b(made_of.encode(), digest_size=6).digest(), "big")

    def activity(self) -> Activity:
        """Return what happened when."""
        state, now = self._tenant.state, time.time()
        at = round(now * MICRO)
        return Activity(now, state.seconds.buckets(at), state.minutes.buckets(at))

    def models(self) -> Models:
        """Return the map of the models; it may be a moment old."""
        now = time.monotonic()
        if now - self._drawn >= FRESH:
            self._drawn, self._map = now, self._draw(now)
        return self._map

    def _draw(self, now: float) -> Models:
        state = self._tenant.state
        tastes = inspect.tastes(state.policy)
        groups = tastes.groups
        before = self._sizes_before(now, {group.id: group.users for group in groups})
        points = inspect.placed(
            np.array([g.theta for g in groups]).reshape(len(groups), state.policy.dim)
        )
        shown = [
            ModelView(g.id, g.users, g.observations, g.users - before.get(g.id, g.users), x, y)
            for g, (x, y) in zip(groups, points.tolist(), strict=True)
        ]
        elsewhere = len(state.users) - sum(group.users for group in groups)
        return Models(state.total.version, tastes.total, max(0, elsewhere), shown)

    def _sizes_before(self, now: float, sizes: dict[int, int]) -> dict[int, int]:
        self._sizes.append((now, sizes))
        while self._sizes[0][0] < now - GROWTH:
            self._sizes.popleft()
        return self._sizes[0][1]


def _change(change: Change) -> ChangeView:
    return ChangeView(
        change.number,
        change.at / MICRO,
        change.user,
        change.before,
        change.after,
        change.certainty,
    )


def stretches(tally: Tally, changes: Sequence[Change], model: int | None) -> list[SegmentView]:
    """Return a user's life between the changes that were noticed, the last one on `model`.

    >>> tally = Tally(rewards=30, first=4)
    >>> change = Change(1, 0, "ana", 7, 9, 0.99, version=64, rewards=20)
    >>> for stretch in stretches(tally, [change], 9):
    ...     print(stretch)
    SegmentView(id=7, opened=4, closed=64, observations=20)
    SegmentView(id=9, opened=64, closed=None, observations=10)
    """
    if not tally.rewards:
        return []
    found, opened, counted = [], tally.first, 0
    for change in changes:
        held = change.rewards - counted
        found.append(SegmentView(change.before, opened, change.version, held))
        opened, counted = change.version, change.rewards
    return [*found, SegmentView(model, opened, None, tally.rewards - counted)]
