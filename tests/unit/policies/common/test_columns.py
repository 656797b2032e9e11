"""`columns`: rows that grow, and that are the same after saving and loading."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu import storage
from dyclu.errors import OlderFile
from dyclu.policies.common import columns
from dyclu.policies.common.columns import FIRST_ROOM

ONE = ("number",)


class Owner:
    def __init__(self) -> None:
        self.name = "not a column"
        self.number = columns.new(np.float64, 2)
        assert columns.names(self) == ONE


@pytest.mark.parametrize("rows", [1, FIRST_ROOM, FIRST_ROOM + 1, 40, 3 * FIRST_ROOM, 200])
def test_restored_columns_have_the_size_of_columns_that_grew(rows: int) -> None:
    grown, restored = Owner(), Owner()
    for count in range(1, rows + 1):
        columns.make_room(grown, ONE, count)
        grown.number[count - 1] = count
    columns.fill(restored, ONE, rows, columns.dump(grown, ONE, rows))
    assert np.array_equal(restored.number, grown.number)


def test_an_atlas_that_was_often_reloaded_saves_the_same_bytes(tmp_path: Path) -> None:
    """Every user has a taste of their own, so that Atlas makes many models and columns grow."""
    rng = np.random.default_rng(0)
    tastes = rng.normal(size=(60, 3))
    kept: dyclu.Policy = dyclu.Atlas(3)
    reloaded: dyclu.Policy = dyclu.Atlas(3)
    for turn in range(1200):
        user, x = turn % 60, rng.normal(size=3)
        reward = float(x @ tastes[user] + 0.05 * rng.normal())
        assert kept.learn(user, x, reward) == reloaded.learn(user, x, reward)
        if turn % 37 == 0:
            reloaded.save(tmp_path / "reloaded")
            reloaded = dyclu.load(tmp_path / "reloaded")
    kept.save(tmp_path / "kept")
    reloaded.save(tmp_path / "reloaded")
    assert (tmp_path / "kept").read_bytes() == (tmp_path / "reloaded").read_bytes()


@pytest.mark.parametrize("array", ["tastes_tally", "population_stream"])
def test_a_file_with_fewer_columns_than_today_is_an_older_file(tmp_path: Path, array: str) -> None:
    policy, path = dyclu.Atlas(1), tmp_path / "atlas"
    policy.learn("ana", [1.0], 0.5)
    policy.save(path)
    saved = storage.read(path)
    saved.arrays[array] = saved.arrays[array][..., :-1]
    storage.write(path, saved)
    with pytest.raises(OlderFile, match=f"{array.split('_')[1]} has the shape .*learn anew"):
        dyclu.load(path)


def test_a_column_grows_where_it_is_unless_somebody_refers_to_it() -> None:
    owner = Owner()
    owner.number[:] = 1.0
    view, same = owner.number[3], id(owner.number)
    columns.make_room(owner, ONE, FIRST_ROOM + 1)
    assert id(owner.number) != same, "the view would refer to memory that is given back"
    assert view.tolist() == [1.0, 1.0]
    del view
    same = id(owner.number)
    columns.make_room(owner, ONE, 10 * FIRST_ROOM)
    assert id(owner.number) == same
    assert owner.number[:FIRST_ROOM].tolist() == [[1.0, 1.0]] * FIRST_ROOM
    assert not owner.number[FIRST_ROOM:].any()


def test_a_large_column_grows_by_a_few_megabytes() -> None:
    owner, rows = Owner(), 2_000_000
    columns.make_room(owner, ONE, rows)
    assert owner.number.nbytes - owner.number[:rows].nbytes <= columns.MOST_GROWTH
