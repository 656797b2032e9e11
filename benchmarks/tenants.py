"""Create a tenant's folder with many users, as a stopped service leaves it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dyclu.service.disk.snapshots import JOURNAL, SNAPSHOTS, Snapshots
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.lines import EventBody, encode, make_line
from dyclu.service.engine.state import State
from dyclu.service.spec import PolicySpec
from dyclu.storage import make_folder

TASTES, NOISE = 10, 0.02
FIRST, FIRST_LIFE = 100, 60
"""Users who come first, and their number of rewards: enough to establish all tastes."""


def crowd(folder: Path, spec: PolicySpec, *, users: int, life: int) -> Path:
    """Return a data folder whose tenant has learnt `life` rewards of each user.

    The journal holds only the last line, because lines before a snapshot are not read again.
    """
    kept = folder / f"crowd-{spec.name}-{users}-{life}"
    if (kept / "complete").exists():
        return kept
    tenant = kept / "default"
    make_folder(tenant)
    state = _state_after(spec, users, life)
    journal = SqliteJournal.open(tenant / JOURNAL, dim=spec.dim)
    journal.note_served(json.dumps(asdict(spec)))
    last = make_line(
        state.total.seq, state.total.at, EventBody([0.0] * spec.dim, 0.0), ref="e", user="u0"
    )
    journal.append([encode(last)])
    id = journal.reader().facts().id
    journal.close()
    Snapshots(tenant / SNAPSHOTS, spec, id).write(state, epoch=0)
    (kept / "complete").touch()
    return kept


def _state_after(spec: PolicySpec, users: int, life: int) -> State:
    rng, state, seq = np.random.default_rng(0), State(spec.make()), 0
    tastes = _unit(rng.standard_normal((TASTES, spec.dim)))
    for user in range(users):
        for _ in range(FIRST_LIFE if user < FIRST < users else life):
            x, seq = _unit(rng.standard_normal((1, spec.dim)))[0], seq + 1
            reward = float(x @ tastes[user % TASTES] + NOISE * rng.standard_normal())
            state.apply(
                make_line(seq, seq, EventBody(x.tolist(), reward), ref=f"e{seq}", user=f"u{user}")
            )
    return state


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
