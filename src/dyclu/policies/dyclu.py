"""DyClu: dynamic clustering of bandits, Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Hashable
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dyclu.alarm import Alarm
from dyclu.batches import OneByOne
from dyclu.homogeneity import critical_units
from dyclu.neighbours import neighbours
from dyclu.noise import Noise
from dyclu.policy import Decision, Outcome, described
from dyclu.ridge import choose, pooled_scores
from dyclu.segments import Change, Segment, Segments
from dyclu.storage import Saved, write
from dyclu.theory import exploration
from dyclu.validation import (
    User,
    as_arms,
    as_context,
    as_dim,
    as_positive,
    as_probability,
    as_reward,
    as_user,
    as_whole,
)

ALL: Literal["all"] = "all"


class DyClu(OneByOne):
    """Learns what each of many users likes while they resemble each other and change.

    Every user has an open *segment*: the observations since their last change. Two questions are
    asked of each reward, with the same test of homogeneity: does it contradict the user's segment
    (then the user may have changed), and which segments, of anybody, at any time, does the user's
    segment resemble (then their data serve this user too)?

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from errors of prediction.
    ridge : float
        Regularisation λ of the estimate that chooses arms.
    delta : float
        δ of Eq. (2): chance that a confidence interval misses.
    alpha : float or None
        A constant width factor instead of Eq. (2)'s, which grows with the data and the noise.
    window : int
        τ: how many of a user's latest rewards the alarm looks at.
    window_delta : float
        δₑ of Lemma 3: chance of a false alarm at any one time.
    change_level : float
        Chance, 1 − F(υᵉ), that a reward surprises although nothing has changed.
    neighbour_level : float
        Chance, 1 − F(υᶜ), of leaving out a segment that shares the user's parameter.
    archive : "all" or int
        How many closed segments to keep: all, as published, or at most so many. Then a segment that
        is closed is added to one it resembles; if it resembles none, whichever has the fewest
        observations is dropped. Time and memory stop growing with the number of changes.

    Examples
    --------
    >>> policy = DyClu(2, noise=0.1)
    >>> arms = [[1.0, 0.0], [0.0, 1.0]]
    >>> for _ in range(4):
    ...     outcome = policy.learn("ana", arms[0], 1.0)
    ...     outcome = policy.learn("ana", arms[1], 0.1)
    >>> policy.decide("bea", arms)  # nothing is known of bea, so everybody is a neighbour
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
        self._alarm = Alarm(
            self.change_level,
            as_whole(window, "window", least=1),
            as_probability(window_delta, "window_delta"),
        )
        self._book = Segments(self.dim, folding=self.archive != ALL)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose an arm for the user by the sum of their neighbours' data; changes nothing."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        gram, moment, _, count = self._book.pooled(user)
        alpha = self._alpha(count)
        return choose(user, pooled_scores(gram, moment, arms, ridge=self.ridge, alpha=alpha))

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Take in the reward of the chosen context."""
        user, x, y = as_user(user), as_context(context, self.dim), as_reward(reward)
        book = self._book
        mine = book.open[user] if user in book.open else book.start(user)

        deviation, df = book.surprise(mine, x, y)
        surprised = deviation > self._surprising(df)
        recent = self._alarm.remember(book.surprises[mine], surprised)
        # A window that did not ring before cannot ring for a reward that does not surprise.
        changed = surprised and self._alarm.rings(recent, count=int(book.count[mine]))

        book.clock += 1
        if self._known is None:
            book.residuals = book.residuals.after(y, deviation if df else None)
        if changed:
            mine = self._start_anew(user, mine)
        else:
            book.surprises[mine] = recent
            if not surprised:
                book.add(mine, x, y, spanned=df == 1)

        found = neighbours(book, mine, noise=self._noise(), level=self.neighbour_level)
        book.meet(mine, *found)
        return Outcome(user, surprised, changed, int(book.id[mine]), book.ids(found.rows))

    @property
    def noise(self) -> float:
        """The noise's standard deviation: as told, or as estimated so far."""
        return self._noise().deviation

    @property
    def window_delta(self) -> float:
        """Chance of a false alarm at any one time."""
        return self._alarm.delta

    @property
    def book(self) -> Segments:
        """All segments as they are kept, stacked in arrays; to be read, never to be written."""
        return self._book

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, open and closed, by id; of those folded into others the ids are missing."""
        return tuple(self._book[int(row)] for row in self._book.by_id())

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far."""
        return tuple(self._book.changes)

    def neighbours(self, user: Hashable) -> tuple[int, ...]:
        """Return the ids of the segments the user's next decision is made with."""
        return tuple(self._book.ids(self._book.around(as_user(user))).tolist())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        state, arrays = self._book.dump()
        write(path, Saved("DyClu", self._options(), state, arrays))

    @classmethod
    def restore(cls, saved: Saved) -> DyClu:
        """Return the policy that was saved."""
        policy = cls(**saved.options)
        policy._book = Segments.restored(
            policy.dim, saved.state, saved.arrays, folding=policy.archive != ALL
        )
        return policy

    def __repr__(self) -> str:
        return described("DyClu", self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "noise": None if self._known is None else self._known.deviation,
            "ridge": self.ridge,
            "delta": self.delta,
            "alpha": self.alpha,
            "window": self._alarm.window,
            "window_delta": self._alarm.delta,
            "change_level": self.change_level,
            "neighbour_level": self.neighbour_level,
            "archive": self.archive,
        }

    def _alpha(self, count: int) -> float:
        if self.alpha is not None:
            return self.alpha
        return exploration(count, self.dim, noise=self.noise, ridge=self.ridge, delta=self.delta)

    def _surprising(self, df: int) -> float:
        """Return what a deviation of so many degrees of freedom must exceed to surprise."""
        noise = self._noise()
        return float(critical_units(1, noise.df, self.change_level)[df]) * (noise.variance or 1.0)

    def _noise(self) -> Noise:
        return self._known or self._book.residuals.noise()

    def _start_anew(self, user: User, mine: int) -> int:
        """Close a segment and open the next; fold the closed one if the archive is full."""
        book, closed = self._book, self._book.archived()
        if self.archive == ALL or len(closed) < self.archive:
            return book.start(user)
        found = neighbours(book, mine, noise=self._noise(), level=self.neighbour_level)
        alike = [row for row in np.intersect1d(found.rows, closed) if book.comparable(mine, row)]
        if alike:
            return book.restart(user, into=max(alike, key=book.count.item), alike=True)
        return book.restart(user, into=min(closed, key=book.count.item), alike=False)


def _as_archive(value: Any) -> Any:
    return value if isinstance(value, str) and value == ALL else as_whole(value, "archive", least=1)
