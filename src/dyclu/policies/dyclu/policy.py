"""DyClu: dynamic clustering of bandits, Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from dyclu.core.homogeneity import critical_units
from dyclu.core.noise import Noise
from dyclu.core.ridge import pooled_scores
from dyclu.core.theory import exploration
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.self_checks import (
    SetAside,
    comparable,
    floor_warnings,
    sharing_warnings,
)
from dyclu.policies.dyclu.alarm import Alarm
from dyclu.policies.dyclu.neighbours import neighbours
from dyclu.policies.dyclu.segments import Segment, SegmentTable
from dyclu.policy import Change, Decision, Location, Model, Outcome, SegmentSummary, choose
from dyclu.validation import (
    FloatArray,
    Ids,
    User,
    as_dim,
    as_positive,
    as_probability,
    as_user,
    as_whole,
)

ALL: Literal["all"] = "all"


class DyClu(OneByOne):
    """Learns what each of many users likes while they resemble each other and change.

    Every user has an open *segment*: the observations since their last change. The same test of
    homogeneity answers two questions at every reward. Does the reward contradict the user's
    segment? Then the user may have changed. Which segments, of any user at any time, are like the
    user's segment? Then their data are used for this user too.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors.
    ridge : float
        Regularisation λ of the estimate that chooses arms.
    delta : float
        δ of Eq. (2): probability that a confidence interval misses.
    alpha : float or None
        A constant width factor instead of Eq. (2)'s, which grows with the data and the noise.
    window : int
        τ: number of a user's latest rewards that the alarm looks at.
    window_delta : float
        δₑ of Lemma 3: probability of a false alarm at a given time.
    change_level : float
        1 − F(υᵉ): probability that a reward surprises although nothing has changed.
    neighbour_level : float
        1 − F(υᶜ): probability of leaving out a segment that shares the user's parameter.
    archive : "all" or int
        How many closed segments to keep: all, as published, or at most this number. If the archive
        is full, a segment to be closed is added to a closed one that it resembles. If it resembles
        none, the closed segment with the fewest observations is dropped. Time and memory then do
        not grow with the number of changes.

    Examples
    --------
    >>> policy = DyClu(2, noise=0.1)
    >>> arms = [[1.0, 0.0], [0.0, 1.0]]
    >>> for _ in range(4):
    ...     outcome = policy.learn("ana", arms[0], 1.0)
    ...     outcome = policy.learn("ana", arms[1], 0.1)
    >>> policy.decide("bea", arms)  # nothing is known of bea, so all segments are neighbours
    Decision(user='bea', arm=0, mean=0.975..., width=0.327...)
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        ridge: float = 0.1,
        delta: float = 0.1,
        alpha: float | None = None,
        window: int = 20,
        window_delta: float = 0.1,
        change_level: float = 0.01,
        neighbour_level: float = 0.01,
        archive: Literal["all"] | int = ALL,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.delta = as_probability(delta, "delta")
        self.alpha = None if alpha is None else as_positive(alpha, "alpha")
        self.change_level = as_probability(change_level, "change_level")
        self.neighbour_level = as_probability(neighbour_level, "neighbour_level")
        self.archive = _as_archive(archive)
        self._known = None if noise is None else Noise.known(noise)
        self.window = as_whole(window, "window", least=1)
        self.window_delta = as_probability(window_delta, "window_delta")
        self._alarm = Alarm(self.change_level, self.window, self.window_delta)
        self._table = SegmentTable(self.dim, **self._table_options())
        self._set_aside = SetAside()

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose an arm for the user from the sum of their neighbours' data; changes nothing."""
        gram, moment, _, count = self._table.pooled(user)
        alpha = self._alpha(count)
        return choose(user, pooled_scores(gram, moment, arms, ridge=self.ridge, alpha=alpha))

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Learn from the reward of the chosen context."""
        table = self._table
        mine = table.open[user] if user in table.open else table.start(user)

        # Lines 7-9: does the reward contradict my segment, and how often has that happened lately?
        squared_gap, df = table.surprise(mine, x, y)
        surprised = squared_gap > self._critical_squared_gap(df)
        recent = self._alarm.remember(table.surprises[mine], surprised)
        # An alarm that did not ring at the last reward cannot ring at one that does not surprise.
        changed = surprised and self._alarm.rings(recent, count=int(table.count[mine]))

        # Lines 10-16: a new segment after an alarm; otherwise keep what did not surprise.
        table.clock += 1
        if df:
            self._set_aside.add(y, surprised=surprised)
        if self._known is None:
            table.residuals = table.residuals.after(y, squared_gap if df else None)
        if changed:
            self._set_aside.ring(sum(recent))
            mine = self._start_anew(user, mine)
        else:
            table.surprises[mine] = recent
            if not surprised:
                table.add(mine, x, y, spanned=df == 1)

        # Line 17: the segments that are like mine now.
        found = neighbours(table, mine, noise=self._noise(), level=self.neighbour_level)
        table.set_neighbours(mine, *found)
        return Outcome(user, surprised, changed, int(table.id[mine]), table.ids(found.rows))

    @property
    def noise(self) -> float:
        """Standard deviation of the noise: as given, or as estimated so far."""
        return self._noise().deviation

    @property
    def table(self) -> SegmentTable:
        """All segments as they are stored, stacked in arrays; read it, never write to it."""
        return self._table

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, open and closed, by id; segments that were folded away are missing."""
        return tuple(self._table[int(row)] for row in self._table.by_id())

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._table.open

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first."""
        return tuple(self._table.changes)

    @property
    def models(self) -> tuple[Model, ...]:
        """Groups of open segments, each a segment and its neighbours; most data first.

        The open segment with most observations takes all its neighbours into its group, then the
        next one that is left, and so on. A group has the id and the estimate of its first segment.
        """
        return tuple(self._model(rows) for rows in self._table.groups())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What seems wrong: too many surprises, noise at its floor, or users who share nothing."""
        aside = self._set_aside.warnings(
            level=self.change_level, noise=self.noise, users=len(self._table.open)
        )
        return (*aside, *floor_warnings(self._table.residuals), *self._sharing_warnings())

    def locate(self, user: Hashable) -> Location:
        """Return the user's group, segments and neighbours."""
        user, table = as_user(user), self._table
        near, row = self.neighbours(user), table.open.get(user)
        if row is None:
            return Location(user, since=table.clock, segments=(), neighbours=near)
        mine = (table[index] for index, owner in enumerate(table.owner) if owner == user)
        segments = tuple(SegmentSummary(s.id, s.opened, s.closed, s.stats.count) for s in mine)
        first = next(rows[0] for rows in table.groups() if row in rows)
        return Location(
            user,
            model=int(table.id[first]),
            located=True,
            since=int(table.opened[row]),
            segments=segments,
            neighbours=near,
        )

    def _forget(self, user: User) -> None:
        """Remove the user's segments and changes; the estimate of the noise keeps their errors.

        If closed segments are folded (`archive`), observations stay or go with the segment to which
        they were added, whichever user it belongs to.
        """
        self._table = self._table.without(user)

    def neighbours(self, user: Hashable) -> tuple[int, ...]:
        """Return the ids of the segments from which the user's next decision is made."""
        return tuple(self._table.ids(self._table.around(as_user(user))).tolist())

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._table.dump()
        return state | {"set_aside": asdict(self._set_aside)}, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._table = SegmentTable.restored(self.dim, state, arrays, **self._table_options())
        # Files of earlier versions do not have it; counting then begins anew.
        self._set_aside = SetAside(**state.get("set_aside", {}))

    def _model(self, rows: Ids) -> Model:
        table, first = self._table, int(rows[0])
        return Model(
            id=int(table.id[first]),
            size=int(table.count[rows].sum()),
            estimate=table.theta[first].copy(),
            users=len(rows),
            founded=int(table.opened[first]),
            visited=int(table.compared[rows].max()),
        )

    def _sharing_warnings(self) -> tuple[str, ...]:
        table = self._table
        rows = np.fromiter(table.open.values(), dtype=np.intp, count=len(table.open))
        rows = rows[table.count[rows] >= comparable(self.dim)]
        shared = table.shares(rows, least=comparable(self.dim))
        remedy = "pass a larger noise or a smaller neighbour_level"
        return sharing_warnings(table.count[rows], shared=shared, remedy=remedy)

    def _table_options(self) -> dict[str, Any]:
        return {"folding": self.archive != ALL, "certainty": 1.0 - self.window_delta}

    def _alpha(self, count: int) -> float:
        if self.alpha is not None:
            return self.alpha
        return exploration(count, self.dim, noise=self.noise, ridge=self.ridge, delta=self.delta)

    def _critical_squared_gap(self, df: int) -> float:
        """Return the squared gap ``σ² s`` above which a reward surprises, given its df (0 or 1)."""
        noise = self._noise()
        return float(critical_units(1, noise.df, self.change_level)[df]) * (noise.variance or 1.0)

    def _noise(self) -> Noise:
        return self._known or self._table.residuals.noise()

    def _start_anew(self, user: User, mine: int) -> int:
        """Close a segment and open the next one; fold the closed one if the archive is full."""
        table, closed = self._table, self._table.archived()
        if self.archive == ALL or len(closed) < self.archive:
            return table.start(user)
        found = neighbours(table, mine, noise=self._noise(), level=self.neighbour_level)
        alike = [row for row in np.intersect1d(found.rows, closed) if table.comparable(mine, row)]
        if alike:
            return table.restart(user, into=max(alike, key=table.count.item), alike=True)
        return table.restart(user, into=min(closed, key=table.count.item), alike=False)


def _as_archive(value: Any) -> Any:
    return value if isinstance(value, str) and value == ALL else as_whole(value, "archive", least=1)
