"""Atlas's counters, sums and beliefs agree with each other after every reward and `forget`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dyclu
from dyclu import Atlas
from dyclu.policies.atlas import tracker as tracker
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.tracker import Tracker
from dyclu.policies.atlas.users import NONE
from dyclu.validation import FloatArray

NAMES = "abcdefghij"


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change constants so that rare events are frequent in short runs."""
    for name, value in {"FIRM": 4, "UNUSED": 2, "YOUNG": 3}.items():
        monkeypatch.setattr(tracker, name, value)


def check(policy: Atlas) -> None:
    """Check that the state of users and the state of models agree."""
    books = policy._tracker
    models, users = books.models, books.users
    rows = list(users.row.values())
    live = set(models.live.tolist()) - {NEW}
    located = Counter(int(users.model[row]) for row in rows if users.seat[row] == NONE)
    guests = Counter(int(users.model[row]) for row in rows if users.placed[row])
    mentioned = {int(column[row]) for column in (users.model, users.home) for row in rows}
    assert mentioned - {NONE} <= live
    assert set(models._row_of.values()) - {NEW} == live
    for model in live:
        assert (models.users[model], models.guests[model]) == (located[model], guests[model])
        assert models.count[model] >= held_at_least(books, model) - 1e-6
        values = np.linalg.eigvalsh(models.gram[model])
        assert values[0] > -1e-9 * max(values[-1], 1.0)
    for row in users.doubts:
        assert users.belief(row).sum() <= 1.0 + 1e-9
        assert set(np.flatnonzero(users.belief(row)).tolist()) <= {NEW, *live}
    seats = [int(users.seat[row]) for row in rows if users.seat[row] >= 0]
    assert sorted(seats + users.seats.free) == list(range(users.seats.rows))


def held_at_least(books: Tracker, model: int) -> float:
    """Return the number of observations that the model's present users added to it."""
    users = books.users
    guests = [row for row in users.row.values() if users.placed[row] and users.model[row] == model]
    brought = sum(users.segment(row).size for row in guests)
    return float(brought + users.credited[books._tenants(model)].sum())


def context(rng: np.random.Generator, kind: int, dim: int) -> FloatArray:
    """Return a context of one of three kinds: random, one-hot, or nearly constant."""
    if kind == 1:
        return np.asarray(np.eye(dim)[rng.integers(dim)])
    jitter = rng.normal(size=dim)
    return np.ones(dim) + 1e-3 * jitter if kind == 2 else jitter


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.usefixtures("busy")
def test_counters_sums_and_beliefs_agree_after_every_step(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    dim, kind = int(rng.integers(1, 6)), seed % 3
    policy = Atlas(dim, noise=None if seed % 2 else 0.1, lag=int(rng.integers(0, 6)))
    tastes, at = rng.normal(size=(6, dim)), dict.fromkeys(NAMES, 0)
    for step in range(300):
        user = NAMES[rng.integers(len(NAMES))]
        if rng.random() < 0.05:
            at[user] = int(rng.integers(6))
        x = context(rng, kind, dim)
        policy.learn(user, x, float(x @ tastes[at[user]] + 0.1 * rng.normal()))
        if rng.random() < 0.04:
            policy.forget(NAMES[rng.integers(len(NAMES))])
        check(policy)
        if step % 60 == 59:
            policy.save(tmp_path / "kept")
            kept = (tmp_path / "kept").read_bytes()
            policy = cast(Atlas, dyclu.load(tmp_path / "kept"))
            policy.save(tmp_path / "kept")
            assert (tmp_path / "kept").read_bytes() == kept


@pytest.mark.usefixtures("busy")
def test_models_that_a_changing_user_leaves_are_retired() -> None:
    """The oldest unused models are retired, but never one that a user may have to return to."""
    rng, dim = np.random.default_rng(1), 4
    policy = Atlas(dim, noise=0.1)
    for taste in 3.0 * rng.normal(size=(12, dim)):
        for _ in range(20):
            x = rng.normal(size=dim)
            policy.learn("wanderer", x, float(x @ taste + 0.1 * rng.normal()))
            check(policy)
    assert len(policy.changes) >= 10
    assert sum(model.users == 0 for model in policy.models) <= tracker.UNUSED + 1
