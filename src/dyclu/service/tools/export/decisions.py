"""`export`: decisions and rewards as a table, one row per slot of a decision, or observation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dyclu.data.arms import unnamed
from dyclu.service.disk.history import History
from dyclu.service.disk.journal import Facts
from dyclu.service.disk.named import features_of
from dyclu.service.engine.lines import MICRO, DecisionBody, EventBody, Line, RewardBody
from dyclu.service.tools.export.files import Column, with_features, write
from dyclu.service.tools.sources import Progress, Source, in_turn

COLUMNS: tuple[Column, ...] = (
    ("line", int),
    ("at", str),
    ("kind", str),
    ("id", str),
    ("user", str),
    ("arm", str),
    ("offered", int),
    ("propensity", float),
    ("mean", float),
    ("width", float),
    ("model", int),
    ("version", int),
    ("would_choose", str),
    ("reward", float),
    ("reward_at", str),
    ("default", bool),
    ("slot", int),
    ("group", str),
    ("partition", int),
)
"""Columns before the features; empty where they do not apply."""


def export(journals: Sequence[Source], path: Path, *, progress: Progress = lambda _: None) -> int:
    """Write the table and return its number of rows; Parquet if `path` ends so, else CSV.

    In a cluster, the rows of a partition stand together; lines are numbered in each of them.
    """
    columns = with_features(COLUMNS, names_of(journals[0].reader.facts()))
    return write(columns, _all_rows(journals, progress), path)


def names_of(facts: Facts) -> list[str]:
    """Return the names of the features of a journal's vectors: x0, x1, … if none are declared."""
    declared = features_of(facts.features).names if facts.features else ()
    return list(declared) or unnamed(facts.dim)


def _all_rows(journals: Sequence[Source], progress: Progress) -> Iterator[list[Any]]:
    for source, passed in in_turn(journals, progress):
        yield from _rows(source, passed)


def _rows(source: Source, progress: Progress) -> Iterator[list[Any]]:
    for one in History(source.reader).outcomes():
        line = one.line
        progress(line.seq)
        head = [line.seq, _time(line.at), line.kind, line.ref, line.user]
        match line.body:
            case EventBody(x=x, value=value, at=at, propensity=chance):
                # An observation's time is that which its caller gave, if there is one.
                told = _time(line.at if at is None else round(at * MICRO))
                gap = [None] * 5
                tail = [value, told, False, None, None, source.partition]
                yield [*head, None, None, chance, *gap, *tail, *x]
            case DecisionBody() as made:
                if made.at is not None:
                    head[1] = _time(round(made.at * MICRO))
                for slot in range(1, made.count + 1):
                    row = [*head, *_slot(made, slot, one.rewards.get(slot)), source.partition]
                    yield [*row, *made.slot(slot).x]


def _slot(made: DecisionBody, slot: int, end: Line | None) -> list[Any]:
    """Return what a row says about a slot."""
    one, tail = made.slot(slot), [None, None, None]
    if end is not None and isinstance(end.body, RewardBody):
        tail = [end.body.value, _time(end.at), end.body.default]  # type: ignore[list-item]
    return [
        one.arm,
        made.offered,
        one.propensity,
        one.mean,
        one.width,
        made.model,
        made.version,
        one.own,
        *tail,
        slot,
        made.group,
    ]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / MICRO, UTC).isoformat(timespec="microseconds")
