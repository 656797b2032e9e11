"""`LateRewards`: mean rewards of decisions whose rewards come late, or never.

Where clicks are sent at once and everything else by a timeout, or not at all, the rewards that are
there are clicks above all: their mean says nothing. Two rules decide which decisions are counted
(docs/evaluation.md, section 8):

1. If more than `MOST_WAITING` of the decisions whose time is not over still wait, only decisions
   whose time is over are counted.
2. A decision whose time is over without a reward counts as 0 if no reward of 0 ever came. If zeros
   came, it is missing and left out; if more than `MOST_LOST` of them are missing, nobody knows
   whether they are zeros, and there is no value.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from dyclu.evaluate.groups import GroupSums, UserGroups
from dyclu.evaluate.intervals import Ratios, of_weights
from dyclu.evaluate.results import Estimate, Overlap
from dyclu.evaluate.verdict import problems, verdict
from dyclu.validation import FloatArray, User

MOST_WAITING = 0.05
"""Share of young decisions that may wait while the others of the same age are counted."""

MOST_LOST = 0.05
"""Share of decisions whose time is over that may have no reward, where zeros are sent."""

COLUMNS = ("rows", "reward", "asked", "asked_reward", "agreed", "weight", "weighted", "squares")
_BUFFER = 4096

Kind = tuple[bool, bool]
"""Whether a decision's time is over, and whether it has a reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEvaluation:
    """What was earned, and what another policy would have earned, per decision.

    Attributes
    ----------
    counted, waiting, unrewarded : int
        Decisions that are counted, those whose reward may still come, and those whose time is over
        without a reward.
    logged : Estimate or None
        Mean reward of the counted decisions; None if none is counted, or too many rewards are
        missing.
    estimate : Estimate or None
        Of the other policy, by self-normalised inverse propensity scoring; None without decisions
        whose arms and propensity are known and on which both agree.
    overlap : Overlap or None
        How much these decisions say about the other policy.
    notes : tuple of str
        What was counted how, and what is doubtful.
    verdict : str
        The answer in words.
    """

    counted: int
    waiting: int
    unrewarded: int
    logged: Estimate | None
    estimate: Estimate | None
    overlap: Overlap | None
    notes: tuple[str, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class LateCounts:
    """How many decisions have which fate; the two rules say which of them are counted.

    Attributes
    ----------
    over, lost : int
        Decisions whose time is over, with a reward and without one.
    young, waiting : int
        Decisions whose time is not over, with a reward and without one.
    zeros : bool
        Whether a reward of 0 ever came.

    Examples
    --------
    >>> clicks = LateCounts(over=10, lost=90, young=5, waiting=45, zeros=False)
    >>> clicks.counts_young, clicks.lost_are_zeros, clicks.unknown
    (False, True, None)
    """

    over: int
    lost: int
    young: int
    waiting: int
    zeros: bool

    @property
    def counts_young(self) -> bool:
        """Whether decisions are counted that have a reward before their time is over (rule 1)."""
        return self.waiting <= MOST_WAITING * (self.waiting + self.young)

    @property
    def lost_are_zeros(self) -> bool:
        """Whether a decision without a reward counts as 0 (rule 2)."""
        return not self.zeros

    @property
    def unknown(self) -> str | None:
        """Why missing rewards leave the mean unknown; None if they do not (rule 2)."""
        due = self.lost + self.over
        if self.lost_are_zeros or self.lost <= MOST_LOST * due:
            return None
        return (
            f"{self.lost:,} of {due:,} decisions have no reward although their time is over, and "
            "other decisions got a reward of 0; send a reward for every decision, or never send 0"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is counted how, in sentences."""
        notes = []
        if not self.counts_young:
            notes.append(
                f"{self.waiting:,} decisions still wait for their rewards; they and "
                f"{self.young:,} of the same age that have one are not counted."
            )
        if self.lost and self.lost_are_zeros:
            notes.append(
                f"No reward of 0 ever came: {self.lost:,} decisions without reward count as 0."
            )
        elif self.lost:
            notes.append(f"{self.lost:,} decisions never got a reward, and are not counted.")
        return tuple(notes)


class LateRewards:
    """Collects decisions with their rewards, in any order.

    Examples
    --------
    Only clicks are sent. Of 100 decisions whose time is over, 10 were clicked; one hour later 5
    young ones are clicked, and 45 still wait.

    >>> late = LateRewards()
    >>> for i in range(100):
    ...     late.add(f"u{i}", over=True, reward=1.0 if i < 10 else None)
    >>> for i in range(5):
    ...     late.add(f"v{i}", over=False, reward=1.0)
    >>> found = late.result(waiting=45)
    >>> found.counted, found.logged.value
    (100, 0.1)
    """

    def __init__(self) -> None:
        self._groups = UserGroups()
        self._sums: dict[Kind, GroupSums] = defaultdict(lambda: GroupSums(*COLUMNS))
        self._rows: dict[Kind, list[tuple[User, float | None, float]]] = defaultdict(list)
        self._largest: dict[Kind, float] = defaultdict(float)
        self._zeros = False
        self._clicks = True

    def add(
        self, user: User, *, over: bool, reward: float | None, weight: float | None = None
    ) -> None:
        """Add a decision that has a reward, or whose time is over without one (None).

        `weight` is 1 / propensity where the other policy chooses the same arm, and 0 where it
        does not; None if that is not known.
        """
        kind = (over, reward is not None)
        self._zeros |= reward == 0
        self._clicks &= reward in (None, 0.0, 1.0)
        self._largest[kind] = max(self._largest[kind], weight or 0.0)
        self._rows[kind].append((user, weight, reward or 0.0))
        if len(self._rows[kind]) >= _BUFFER:
            self._flush(kind)

    def result(self, *, waiting: int, name: str = "the other policy") -> LateEvaluation:
        """Return the estimates; `waiting` decisions have no reward yet."""
        for kind in list(self._rows):
            self._flush(kind)
        counts = self._counts(waiting)
        kinds, notes = _counted(counts)
        sums = {column: self._total(kinds, column) for column in COLUMNS}
        unrewarded = self._count((True, False)) + self._count((False, False))
        logged = estimate = overlap = None
        why = counts.unknown or "no decision can be counted"
        said = f"The log cannot say what {name} earns: {why}."
        if sums["rows"].any():
            logged = _estimate(sums["reward"], sums["rows"]).cut(self._clicks)
        if sums["weight"].any():
            uncut = _estimate(sums["weighted"], sums["weight"])
            estimate, overlap = uncut.cut(self._clicks), self._overlap(sums, kinds)
            # An interval without ends is a problem, also where clicks bound it by 0 and 1.
            said = verdict(name, estimate, _gain(sums), problems(overlap, uncut))
        elif sums["rows"].any():
            said = (
                f"The log cannot say what {name} earns: no counted decision has all its arms, a "
                "propensity, and the arm that it would choose."
            )
        return LateEvaluation(
            counted=int(sums["rows"].sum()),
            waiting=waiting,
            unrewarded=unrewarded,
            logged=logged,
            estimate=estimate,
            overlap=overlap,
            notes=notes,
            verdict=said,
        )

    def _counts(self, waiting: int) -> LateCounts:
        return LateCounts(
            over=self._count((True, True)),
            lost=self._count((True, False)),
            young=self._count((False, True)),
            waiting=waiting,
            zeros=self._zeros,
        )

    def _overlap(self, sums: dict[str, FloatArray], kinds: list[Kind]) -> Overlap:
        weight, squares = float(sums["weight"].sum()), float(sums["squares"].sum())
        largest = max(self._largest[kind] for kind in kinds)
        mean = Ratios.single(sums["weight"], sums["asked"])
        return Overlap(
            rows=int(sums["asked"].sum()),
            users=int(np.count_nonzero(sums["asked"])),
            effective=weight**2 / squares,
            largest=largest,
            heaviest=largest / weight,
            unused=1 - float(sums["agreed"].sum() / sums["asked"].sum()),
            mean_weight=Estimate(value=mean.value, interval=of_weights(mean, Ratios.bootstrap)),
        )

    def _count(self, kind: Kind) -> int:
        return int(self._sums[kind].total("rows")) if kind in self._sums else 0

    def _total(self, kinds: list[Kind], column: str) -> FloatArray:
        total = np.zeros(len(self._groups))
        for kind in kinds:
            if kind in self._sums:
                found = self._sums[kind][column]
                total[: len(found)] += found
        return total

    def _flush(self, kind: Kind) -> None:
        users, weights, rewards = zip(*self._rows.pop(kind), strict=True)
        asked = np.array([weight is not None for weight in weights], dtype=float)
        weight, reward = np.array([one or 0.0 for one in weights]), np.array(rewards)
        self._sums[kind].add(
            self._groups.of(users),
            rows=np.ones(len(users)),
            reward=reward,
            asked=asked,
            asked_reward=asked * reward,
            agreed=(weight > 0).astype(float),
            weight=weight,
            weighted=weight * reward,
            squares=weight**2,
        )


def _counted(counts: LateCounts) -> tuple[list[Kind], tuple[str, ...]]:
    """Return the kinds of decisions that are counted, and what to say about it."""
    if counts.unknown:
        return [], ()
    kinds = [(True, True)]
    kinds += [(False, True)] if counts.counts_young else []
    kinds += [(True, False)] if counts.lost and counts.lost_are_zeros else []
    return kinds, counts.notes


def _estimate(num: FloatArray, den: FloatArray) -> Estimate:
    ratios = Ratios.single(num, den)
    return Estimate(value=ratios.value, interval=ratios.bootstrap())


def _gain(sums: dict[str, FloatArray]) -> Estimate:
    """Return the reward of the other policy minus that of the decisions it was asked about."""
    difference = Ratios.difference(
        Ratios.single(sums["weighted"], sums["weight"]),
        Ratios.single(sums["asked_reward"], sums["asked"]),
    )
    return Estimate(value=difference.value, interval=difference.bootstrap())
