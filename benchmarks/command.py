"""``python -m benchmarks``: run groups of benchmarks and write their results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import crowd, history, machine, memory, peers, rounds, service, start, test
from benchmarks.picture import curves, growth
from benchmarks.results import Effort, Results
from benchmarks.tables import as_json, figures, sections, targets
from dyclu.errors import MissingExtra
from dyclu.plots.drawing import write_png
from dyclu.sim.reports.terminal import print_table
from dyclu.storage import check_writable, replace_file

GROUPS: Mapping[str, Callable[[Effort], Results]] = {
    "rounds": rounds.run,
    "test": test.run,
    "history": history.run,
    "memory": memory.run,
    "crowd": crowd.run,
    "start": start.run,
    "service": service.run,
    "million": crowd.run_million,
    "peers": peers.run,
}
"""The groups, by name."""

EXTRA = ("million", "peers")
"""Groups that run only if they are named."""

CACHE = Path(__file__).parent.parent / ".bench-cache"


def run(arguments: Sequence[str]) -> int:
    """Run the groups that the arguments name; return the exit status."""
    asked = _parser().parse_args(arguments)
    check_writable(asked.out)
    effort = Effort(quick=asked.quick, cache=asked.cache)
    found = {}
    for name in asked.groups or [name for name in GROUPS if name not in EXTRA]:
        found[name] = GROUPS[name](effort)
        _print(found[name])
        # After every group, so that an interrupted run keeps its results.
        write(found, asked.out, quick=asked.quick)
    print(f"\nEverything measured is in {asked.out}.")
    return 0


def write(found: Mapping[str, Results], folder: Path, *, quick: bool) -> None:
    """Write results to a folder: JSON, Markdown tables, and a picture if there are curves."""
    report = as_json(found, machine.describe(*peers.PACKAGES), quick=quick)
    replace_file(folder / "benchmarks.json", f"{json.dumps(report, indent=1)}\n".encode())
    replace_file(folder / "tables.md", ("\n\n".join(sections(found)) + "\n").encode())
    named = curves([row for results in found.values() for row in results.rows])
    if not named:
        return
    try:
        write_png(growth(named), folder / "benchmarks.png")
    except MissingExtra as error:
        print(f"No picture: {error}")


def _print(results: Results) -> None:
    print_table(figures(results))
    if results.targets:
        print_table(targets(results))


def _group(name: str) -> str:
    if name not in GROUPS:
        raise argparse.ArgumentTypeError(f"no group is called {name!r}; choose {', '.join(GROUPS)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "groups",
        nargs="*",
        type=_group,
        metavar="GROUP",
        help=f"{', '.join(GROUPS)}; all but {', '.join(EXTRA)} if none is named",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run?")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for results")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder for states that take minutes to reach"
    )
    return parser
