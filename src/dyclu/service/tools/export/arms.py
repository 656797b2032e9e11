"""`export_arms`: a table with one row per offered arm, which `dyclu evaluate` reads as it is.

Only decisions are in it whose reward is known and that can be evaluated: their offered arms and
their propensity are in the journal. Which rewards are known is decided as `dyclu replay` does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dyclu.errors import OptionError
from dyclu.evaluate import LateCounts
from dyclu.service.disk.history import History, Outcome
from dyclu.service.engine.lines import MICRO, DecisionBody, RewardBody
from dyclu.service.tools.export.decisions import names_of
from dyclu.service.tools.export.files import Column, with_features, write
from dyclu.service.tools.offers import offers_of
from dyclu.service.tools.sources import Progress, Source, in_turn, latest, length

COLUMNS: tuple[Column, ...] = (
    ("decision", str),
    ("slot", int),
    ("time", float),
    ("user", str),
    ("group", str),
    ("arm", str),
    ("shown", int),
    ("propensity", float),
    ("reward", float),
)
"""Columns before the features; propensity and reward are those of the shown arm, in its row."""

Fate = Literal["over", "lost", "young", "waiting", "no arms", "no propensity", "never shown"]
"""What became of a slot of a decision; the first four as in `LateCounts`."""

LEFT_OUT: dict[Fate, str] = {
    "no arms": "without their offered arms, since log_arms was off",
    "no propensity": "without a propensity",
    "never shown": "that were never activated",
}
"""Decisions that cannot be evaluated, in words."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and what was not.

    Attributes
    ----------
    rows, decisions : int
        Number of rows, and of the choices that they show: one per slot of a decision.
    notes : tuple of str
        Which decisions were left out, and what was counted how, in sentences.
    """

    rows: int
    decisions: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A slot of a decision, and its fate."""

    outcome: Outcome
    made: DecisionBody
    slot: int
    fate: Fate

    @property
    def reward(self) -> float | None:
        """Its reward, None if none came."""
        end = self.outcome.rewards.get(self.slot)
        return end.body.value if end is not None and isinstance(end.body, RewardBody) else None


def export_arms(
    journals: Sequence[Source], path: Path, *, progress: Progress = lambda _: None
) -> Exported:
    """Write the table; Parquet if `path` ends so, else CSV.

    Goes through the journals twice: whether zeros are sent is known at their end only.
    """
    fates, zeros = Counter[Fate](), False
    for one in _choices(journals, lambda done: progress(done // 2)):
        fates[one.fate] += 1
        zeros |= one.reward == 0
    counts = LateCounts(
        over=fates["over"], lost=fates["lost"], young=fates["young"], waiting=fates["waiting"],
        zeros=zeros,
    )  # fmt: skip
    wanted = _wanted(counts, fates)
    half = length(journals) // 2
    second = _choices(journals, lambda done: progress(half + done // 2))
    rows = (row for one in second if one.fate in wanted for row in _offered(one))
    columns = with_features(COLUMNS, names_of(journals[0].reader.facts()))
    left_out = [
        f"{fates[fate]:,} decisions {why} are left out."
        for fate, why in LEFT_OUT.items()
        if fates[fate]
    ]
    return Exported(
        rows=write(columns, rows, path),
        decisions=sum(fates[fate] for fate in wanted),
        notes=(*_notes(counts), *left_out),
    )


def _wanted(counts: LateCounts, fates: Counter[Fate]) -> set[Fate]:
    """Return the fates of the slots that are written; refuse if none can be evaluated."""
    if counts.unknown:
        raise OptionError(f"rewards are missing, so the table would mislead: {counts.unknown}")
    wanted: set[Fate] = {"over"}
    wanted |= {"young"} if counts.counts_young else set()
    wanted |= {"lost"} if counts.lost_are_zeros else set()
    if not any(fates[fate] for fate in wanted):
        told = ", ".join(f"{count:,} {fate}" for fate, count in fates.items()) or "none"
        raise OptionError(
            f"the decisions of this journal are: {told}; expected some with offered arms, "
            "propensity and reward. Serve with log_arms = true, and send rewards"
        )
    return wanted


def _notes(counts: LateCounts) -> tuple[str, ...]:
    few = counts.counts_young and counts.waiting
    waiting = (f"{counts.waiting:,} decisions still wait, and are left out.",) if few else ()
    return (*waiting, *counts.notes)


def _choices(journals: Sequence[Source], progress: Progress) -> Iterator[Choice]:
    """Yield the slots of all decisions, with their fates at the time of the last line."""
    now = latest(journals)
    for source, passed in in_turn(journals, progress):
        for outcome in History(source.reader).outcomes():
            passed(outcome.line.seq)
            made = outcome.line.body
            if isinstance(made, DecisionBody):
                for slot in range(1, made.count + 1):
                    yield Choice(outcome, made, slot, _fate(outcome, made, slot, now))


def _fate(outcome: Outcome, made: DecisionBody, slot: int, now: int) -> Fate:
    if made.arms is None:
        return "no arms"
    if made.slot(slot).propensity is None:
        return "no propensity"
    over = outcome.until is not None and outcome.until <= now
    if slot in outcome.rewards:
        return "over" if over else "young"
    if outcome.until is None:
        return "never shown"
    return "lost" if over else "waiting"


def _offered(one: Choice) -> Iterator[list[Any]]:
    """Yield a row per offered arm of a slot; a reward that is wanted and never came is 0."""
    line, made = one.outcome.line, one.made
    offer = next(offer for offer in offers_of(made) if offer.slot == one.slot)
    time = line.at / MICRO if made.at is None else made.at
    for arm, vector in zip(offer.ids, offer.vectors.tolist(), strict=True):
        shown = arm == offer.shown.arm
        told = [1, offer.shown.propensity, one.reward or 0.0] if shown else [0, None, None]
        yield [line.ref, one.slot, time, line.user, made.group, arm, *told, *vector]
