"""Create a tenant's folder with many users, as a stopped service leaves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np

from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.lines import EventBody, Line, encode, make_line
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import make_folder

BLOCK = 10_000
"""Lines that are written at a time."""

TASTES, NOISE = 10, 0.02
FIRST, FIRST_LIFE = 100, 60
"""Users who come first, and their number of rewards: enough to establish all tastes."""


def crowd(folder: Path, spec: PolicySpec, *, users: int, life: int, whole: bool = False) -> Path:
    """Return a data folder whose tenant has learnt `life` rewards of each user.

    The journal holds only the last line, because lines before a snapshot are not read again; or
    all lines, if it is to be `whole`.
    """
    kept = folder / f"crowd-{spec.name}-{users}-{life}{'-whole' * whole}"
    if (kept / "complete").exists():
        return kept
    tenant = kept / "default"
    make_folder(tenant)
    journal, state = SqliteJournal.open(tenant / JOURNAL, dim=spec.dim), State(spec.make())
    journal.note_served(json.dumps(asdict(spec)))
    for block in _blocks(_lines(spec.dim, users, life)):
        state.apply_all(block)
        if whole:
            journal.append([encode(line) for line in block])
    if not whole:
        journal.append([encode(block[-1])])
    id = journal.reader().facts().id
    journal.close()
    Snapshots(tenant / SNAPSHOTS, spec, id).write(state, epoch=0)
    (kept / "complete").touch()
    return kept


def _lines(dim: int, users: int, life: int) -> Iterator[Line]:
    rng, seq = np.random.default_rng(0), 0
    tastes = _unit(rng.standard_normal((TASTES, dim)))
    for user in range(users):
        for _ in range(FIRST_LIFE if user < FIRST < users else life):
            x, seq = _unit(rng.standard_normal((1, dim)))[0], seq + 1
            reward = float(x @ tastes[user % TASTES] + NOISE * rng.standard_normal())
            yield make_line(seq, seq, EventBody(x.tolist(), reward), ref=f"e{seq}", user=f"u{user}")


def _blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while block := list(islice(lines, BLOCK)):
        yield block


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
