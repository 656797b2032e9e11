"""Results as tables, for the terminal and for documents, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.results import Results, Row, Target
from dyclu.sim.reports.document import NOTHING, Table

Report = Mapping[str, Any]
"""Content of the JSON file."""

COLUMNS = 100
"""Width of notes in documents."""


def as_json(found: Mapping[str, Results], machine: Mapping[str, str], *, quick: bool) -> Report:
    """Return all measurements in the form of the JSON file."""
    groups = {name: _group(results) for name, results in found.items()}
    return {"quick": quick, "machine": dict(machine), "groups": groups}


def figures(results: Results) -> Table:
    """Return a group's figures as a table."""
    return Table(
        header=(results.title, "median (range)", results.against),
        rows=tuple(_figures(row) for row in results.rows),
        note="\n".join(results.notes),
    )


def targets(results: Results) -> Table:
    """Return a group's figures and their targets as a table."""
    return Table(
        header=("target", "wanted", "found", ""),
        rows=tuple(_judged(target) for target in results.targets),
    )


def markdown(table: Table) -> str:
    """Return a table as Markdown, with its note below, wrapped.

    >>> print(markdown(Table(header=("a", "b"), rows=(("1", "2"),), note="Done.")))
    | a | b |
    |---|--:|
    | 1 | 2 |
    <BLANKLINE>
    Done.
    """
    rule = "|---|" + "--:|" * (len(table.header) - 1)
    lines = [_line(table.header), rule, *map(_line, table.rows)]
    note = "\n".join(textwrap.fill(line, COLUMNS) for line in table.note.splitlines())
    return "\n".join(lines) + (f"\n\n{note}" if note else "")


def sections(found: Mapping[str, Results]) -> Iterator[str]:
    """Yield each group in Markdown, with its name as heading."""
    for name, results in found.items():
        parts = [f"### {name}", markdown(figures(results))]
        yield "\n\n".join(parts + [markdown(targets(results))] * bool(results.targets))


def _group(results: Results) -> dict[str, Any]:
    rows = [{**asdict(row), "median": row.median, "ratio": _ratio(row)} for row in results.rows]
    judged = [{**asdict(target), "met": target.met} for target in results.targets]
    return {**asdict(results), "rows": rows, "targets": judged}


def read_group(group: Mapping[str, Any]) -> Results:
    """Return the group that `as_json` wrote."""
    return Results(
        title=group["title"],
        against=group["against"],
        rows=tuple(Row(**_without(row, "median", "ratio")) for row in group["rows"]),
        targets=tuple(Target(**_without(target, "met")) for target in group["targets"]),
        notes=tuple(group["notes"]),
    )


def _without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _ratio(row: Row) -> float | None:
    return row.ratio if row.ratios else None


def _figures(row: Row) -> tuple[str, ...]:
    unit = f" {row.unit}" if row.unit else ""
    return row.name, f"{number(row.median)}{unit}{_spread(row.values)}", _ratios(row)


def _ratios(row: Row) -> str:
    # The reference's own ratio is 1 in every repetition.
    spread = "" if set(row.ratios) == {1.0} else _spread(row.ratios)
    return f"{number(row.ratio)}{spread}" if row.ratios else NOTHING


def _judged(target: Target) -> tuple[str, ...]:
    wanted = f"{target.sense} {number(target.limit)} {target.unit}"
    return target.name, wanted, number(target.value), "met" if target.met else "short"


def _spread(values: Sequence[float]) -> str:
    return f" ({number(min(values))}–{number(max(values))})" if len(values) > 1 else ""


def number(value: float) -> str:
    """Return a number with three significant digits.

    >>> number(0.12345), number(1.2345), number(12345.6)
    ('0.123', '1.23', '12,346')
    """
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
