"""What the programs share that judge policies: options, records of runs, and output.

Each of them is run as ``python -m benchmarks.<name> [WORD ...] [--policies A,B] [--seeds N]
[--quick] [--json FILE]``. Words pick worlds by a part of their name. Policies are those of
`sim.runs.stream.contestants` (``atlas``, ``linucb-0.3``, …), or your own as ``module:Class``. The
tables are printed in Markdown; the file gets one record per run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.machine import describe
from benchmarks.tables import markdown
from dyclu.errors import OptionError
from dyclu.sim.reports.document import NOTHING, Table
from dyclu.sim.reports.spread import Spread
from dyclu.sim.studies.options import parse_policies, parse_seeds
from dyclu.storage import replace_file

_World = TypeVar("_World")

Record = Mapping[str, Any]
"""One run: its world, policy and seed, and what was measured; None where nothing could be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a program.

    Attributes
    ----------
    policies : tuple of str
        Names of policies; the first one is judged, the others are compared with it.
    seeds : tuple of int
        Seeds of the worlds, and of policies that choose at random.
    quick : bool
        Small sizes, to check that everything runs; the figures mean nothing.
    words : tuple of str
        Parts of the names of worlds; without any, all worlds are played.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    quick: bool = False
    words: tuple[str, ...] = ()

    def picked(self, worlds: Mapping[str, _World]) -> dict[str, _World]:
        """Return the worlds whose names contain one of the words."""
        found = {
            name: world
            for name, world in worlds.items()
            if not self.words or any(word in name for word in self.words)
        }
        if not found:
            raise OptionError(
                f"no world has {' or '.join(self.words)} in its name; "
                f"choose from {', '.join(worlds)}"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a program: tables for people, records for other programs."""

    tables: tuple[Table, ...]
    records: tuple[Record, ...]


def main(
    judge: Callable[[Asked], Report], *, about: str | None, policies: Sequence[str], seeds: int
) -> None:
    """Read the options of the command line, judge, print the tables and write the records."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="parts of names of worlds")
    parser.add_argument("--policies", default=",".join(policies), help="default: %(default)s")
    parser.add_argument("--seeds", help=f"a number of seeds, or a list; default: {seeds}")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the records")
    given = parser.parse_args()
    asked = Asked(
        policies=parse_policies(given.policies),
        seeds=parse_seeds(given.seeds or ("1" if given.quick else str(seeds)), quick=given.quick),
        quick=given.quick,
        words=tuple(given.words),
    )
    report = judge(asked)
    print("\n\n".join(map(markdown, report.tables)))
    if given.json:
        content = {"quick": asked.quick, "machine": describe(), "records": report.records}
        replace_file(given.json, f"{json.dumps(content, indent=1)}\n".encode())


def tell(record: Record) -> Record:
    """Print a record on the error stream, as a sign of progress, and return it."""
    shown = (f"{name} {_short(value)}" for name, value in record.items())
    print(", ".join(shown), file=sys.stderr, flush=True)
    return record


def values(records: Iterable[Record], measure: str, **where: object) -> list[float]:
    """Return a measure of the records that have these values; None is left out.

    >>> values([{"policy": "a", "clicks": 3}, {"policy": "b", "clicks": 4}], "clicks", policy="b")
    [4]
    """
    return [
        record[measure]
        for record in records
        if record[measure] is not None and all(record[key] == it for key, it in where.items())
    ]


def spread(found: Sequence[float], digits: int, scale: float = 1.0) -> str:
    """Return mean ± standard error, as text.

    >>> spread([0.5, 0.7], 1, scale=100), spread([], 1)
    ('60.0 ± 10.0', '-')
    """
    return Spread.of([scale * value for value in found]).text(digits) if found else NOTHING


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
