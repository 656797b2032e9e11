"""Bytes per segment and per user; time to save and load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import dyclu
from benchmarks.drawn_segments import NOISE, grown
from benchmarks.footprint import STATUS
from benchmarks.results import Effort, Results, Row, Target
from benchmarks.stage import Stage, row_one
from benchmarks.timing import interleaved
from benchmarks.turns import serve
from dyclu import DyClu
from dyclu.policies.dyclu.segments import SegmentTable
from dyclu.storage import Saved, read, write

ROOT = Path(__file__).parent.parent
DOUBLE = 8
MOST = 3.0
"""Largest allowed memory of a segment, in units of a gram's d² doubles."""

ROOMS = (500, 550)
"""Numbers of segments that fill the spare rows of the arrays to different degrees."""

QUICK_ROOMS = (15,)
LARGE = 10_000
"""Number of segments in the table that is saved and loaded, besides that of row 1."""


def run(effort: Effort) -> Results:
    """Measure the size of policies: in arrays, in the process and on disk."""
    stage = row_one(effort, ["dyclu", "linucb"])
    held = (
        _in_arrays(stage, "dyclu", "segment"),
        _remembering(stage),
        _in_arrays(stage, "linucb", "user"),
    )
    rooms = QUICK_ROOMS if effort.quick else ROOMS
    resident = tuple(map(_resident, rooms)) if STATUS.exists() else ()
    return Results(
        title="Memory and files",
        against="× d² doubles",
        rows=(*held, *resident, *_files(stage, effort)),
        targets=tuple(map(_target, (*held[:2], *resident))),
        notes=(
            "In arrays: everything `save` writes down, for the rows in use. Remembering: with the "
            "bounds on pairs and the sums of closed neighbours, after the last rounds. Resident: "
            "growth of the process while it learns of that many users, room to grow included.",
            "Saving and loading is CPU time; waiting for the disk is not in it.",
        ),
    )


def _in_arrays(stage: Stage, name: str, noun: str) -> Row:
    saved = read(stage.folder / name)
    count = len(saved.arrays["gram"])
    held = sum(array.nbytes for array in saved.arrays.values()) / count
    return _bytes(f"{name}, in arrays, per {noun} of {count}", held, stage.world.setting.dim)


def _remembering(stage: Stage) -> Row:
    policy = stage.policy("dyclu")
    serve(policy, stage.turns)
    table = cast(DyClu, policy).table
    columns = sum(array.nbytes for array in table.dump()[1].values())
    memories = sum(array.nbytes for array in table.bounds.values())
    sums = sum(
        kept.sums.gram.nbytes + kept.rows.nbytes
        for kept in table.closed_parts.values()
        if len(kept.rows)
    )
    name = f"dyclu, remembering, per segment of {len(table)}"
    return _bytes(name, (columns + memories + sums) / len(table), table.dim)


def _resident(segments: int) -> Row:
    command = [sys.executable, "-m", "benchmarks.footprint", str(segments)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    name = f"dyclu, resident, per segment of {found['segments']:,}"
    return _bytes(name, found["grown"] / found["segments"], found["dim"])


def _bytes(name: str, held: float, dim: int) -> Row:
    return Row(name=name, unit="bytes", values=(held,), ratios=(held / (DOUBLE * dim * dim),))


def _files(stage: Stage, effort: Effort) -> Iterable[Row]:
    size = QUICK_ROOMS[0] if effort.quick else LARGE
    with TemporaryDirectory() as folder:
        large = Path(folder, "large")
        _write(large, grown(size, stage.world.setting.dim))
        for path in (stage.folder / "dyclu", large):
            yield from _file(path, Path(folder, "copy"), effort)


def _file(path: Path, copy: Path, effort: Effort) -> Iterable[Row]:
    policy = dyclu.load(path)
    count = len(read(path).arrays["gram"])
    seconds = interleaved(
        {
            "save": lambda: [partial(policy.save, copy)],
            "load": lambda: [partial(dyclu.load, path)],
        },
        repetitions=effort.repetitions,
    )
    for verb, spent in seconds.items():
        name = f"{verb} {count:,} segments"
        yield Row(name=name, unit="ms", values=tuple(1e3 * each for each in spent))
    dim = policy.dim
    yield _bytes(f"file, per segment of {count:,}", path.stat().st_size / count, dim)


def _write(path: Path, table: SegmentTable) -> None:
    write(path, Saved("DyClu", {"dim": table.dim, "noise": NOISE}, *table.dump()))


def _target(row: Row) -> Target:
    return Target(name=row.name, value=row.ratio, sense="at most", limit=MOST, unit="× d² doubles")
