"""`columns`: rows that grow, and that are the same after saving and loading."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dyclu
from dyclu import storage
from dyclu.errors import OlderFile
from dyclu.policies.common import columns
from dyclu.policies.common.columns import FIRST_ROOM
from dyclu.validation import FloatArray

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


@pytest.fixture
def untraced() -> Iterator[None]:
    """Switch off the tracer of coverage: it refers to local variables, so columns are copied."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


@pytest.mark.usefixtures("untraced")
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
    full = len(owner.number)
    columns.make_room(owner, ONE, full + 1)
    assert full * 16 > 4 * columns.MOST_GROWTH, "a quarter more would be more than is allowed"
    assert 0 < (len(owner.number) - full) * 16 <= columns.MOST_GROWTH


class Pair:
    """A wide and a narrow column, and a view of the narrow one."""

    def __init__(self) -> None:
        self.wide = columns.new(np.float64, 100, 100)
        self.narrow = columns.new(np.float64)
        self._columns = columns.names(self)
        self.half: FloatArray | None = self.narrow[:8]


@pytest.mark.parametrize("rows", [17, 219, 271, 400])
def test_columns_of_one_owner_have_equally_many_rows_however_wide_they_are(rows: int) -> None:
    grown, restored = Pair(), Pair()
    for count in range(1, rows + 1):
        columns.make_room(grown, grown._columns, count)
    columns.make_room(restored, restored._columns, rows)
    lengths = {len(getattr(pair, name)) for pair in (grown, restored) for name in pair._columns}
    assert len(lengths) == 1


@pytest.mark.usefixtures("untraced")
def test_views_that_are_attributes_are_none_after_growth_and_the_column_did_not_move() -> None:
    pair = Pair()
    same = id(pair.narrow)
    columns.make_room(pair, pair._columns, FIRST_ROOM + 1)
    assert pair.half is None
    assert id(pair.narrow) == same


def test_without_memory_for_more_rows_a_policy_goes_on_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = dyclu.Atlas(1)
    for user in range(FIRST_ROOM):
        policy.learn(user, [1.0], 0.5)
    before = policy.decide(3, [[1.0], [2.0]])

    monkeypatch.setattr(columns, "GROWTH", 1e12)
    monkeypatch.setattr(columns, "MOST_GROWTH", 10**18)
    with pytest.raises(MemoryError):
        policy.learn("one more", [1.0], 0.5)
    monkeypatch.undo()
    assert policy.decide(3, [[1.0], [2.0]]) == before
    policy.learn("one more", [1.0], 0.5)
