"""`dyclu.columns`: rows that grow, and come back as if they had never been away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu.policies.common import columns
from dyclu.policies.common.columns import FIRST_ROOM, Columns

ONE: Columns = {"number": ((2,), np.float64)}


class Owner:
    number: np.ndarray

    def __init__(self) -> None:
        columns.create(self, ONE)


@pytest.mark.parametrize("rows", [1, FIRST_ROOM, FIRST_ROOM + 1, 40, 3 * FIRST_ROOM, 200])
def test_rows_read_back_have_the_room_of_rows_that_grew(rows: int) -> None:
    grown, restored = Owner(), Owner()
    for count in range(1, rows + 1):
        columns.make_room(grown, ONE, count)
        grown.number[count - 1] = count
    columns.fill(restored, ONE, rows, columns.dump(grown, ONE, rows))
    assert np.array_equal(restored.number, grown.number)


def test_an_atlas_that_was_stopped_often_saves_the_same_bytes(tmp_path: Path) -> None:
    """As many tastes as users, so that there are many young models, and room for them."""
    rng = np.random.default_rng(0)
    tastes = rng.normal(size=(60, 3))
    steady: dyclu.Policy = dyclu.Atlas(3)
    stopped: dyclu.Policy = dyclu.Atlas(3)
    for turn in range(1200):
        user, x = turn % 60, rng.normal(size=3)
        reward = float(x @ tastes[user] + 0.05 * rng.normal())
        assert steady.learn(user, x, reward) == stopped.learn(user, x, reward)
        if turn % 37 == 0:
            stopped.save(tmp_path / "stopped")
            stopped = dyclu.load(tmp_path / "stopped")
    steady.save(tmp_path / "steady")
    stopped.save(tmp_path / "stopped")
    assert (tmp_path / "steady").read_bytes() == (tmp_path / "stopped").read_bytes()
