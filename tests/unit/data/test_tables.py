"""One table, read from every kind of frame and file, gives one log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dyclu.data import Features, Log, Number
from dyclu.data.tables.table import as_table, batches
from dyclu.errors import FileError, KindError, MissingExtra, NumberError, OptionError

COLUMNS: dict[str, list[Any]] = {
    "who": ["ana", "béa", "ana", "7"],
    "clicked": [True, False, False, True],
    "price": [1.5, None, 2.5, 3.0],
    "size": [1, None, 3, 4],
    "genre": ["jazz", None, "rock", "folk"],
    "year": [1990, None, 1990, 2001],
    "candidates": [["a", "b"], ["b"], ["a"], ["b", "a"]],
    "item": ["a", "b", "a", "b"],
}
FEATURES = Features(
    context={
        "price": Number(mean=0, scale=1, missing=True),
        "size": Number(mean=0, scale=1, missing=True),
        "genre": "category",
        "year": "category",
    },
    arm={"quality": Number(mean=0, scale=1)},
)
ITEMS = [{"item": "a", "quality": 0.5}, {"item": "b", "quality": -0.5}]


def as_dicts(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def relation(columns: dict[str, list[Any]]) -> Any:
    frame = pa.table(columns)
    return duckdb.connect().from_arrow(frame)


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": relation,
}


def read(source: Any) -> Log:
    return Log.read(
        source,
        user="who",
        reward="clicked",
        arm="item",
        offered="candidates",
        items=ITEMS,
        features=FEATURES,
    )


def expect_same(log: Log, expected: Log) -> None:
    assert log.features == expected.features
    ours, theirs = list(log.chunks()), list(expected.chunks())
    for name in ("user", "reward", "chosen", "contexts"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(one, name) for one in ours]),
            np.concatenate([getattr(one, name) for one in theirs]),
        )


@pytest.mark.parametrize("batch", [1, 3, 8192])
@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_gives_the_same_log(
    kind: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read(as_dicts(COLUMNS))
    monkeypatch.setattr("dyclu.data.tables.table.BATCH", batch)
    expect_same(read(FRAMES[kind](COLUMNS)), expected)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_give_the_same_log(
    suffix: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = COLUMNS | {"candidates": ["|".join(one) for one in COLUMNS["candidates"]]}
    expected = read(as_dicts(plain))
    path = tmp_path / f"log.{suffix}"
    frame = pl.DataFrame(plain)
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    if library == "polars":
        monkeypatch.setattr("dyclu.data.tables.files.LIBRARIES", ("polars",))
    log = read(path)
    expect_same(log, expected)
    expect_same(read(str(path)), expected)


def test_ids_in_a_csv_file_are_text(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,y,x\n007,1,2.0\n7,0,NA\n")
    features = Features(arm={"x": "category"})
    log = Log.read(tmp_path / "log.csv", user="who", reward="y", features=features)
    assert next(log.chunks()).user.tolist() == ["007", "7"]
    # Only an empty cell is missing: NA is a value like others.
    assert log.features.arm["x"].values == ("2.0", "NA")


@pytest.fixture(params=["pyarrow", "polars"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read files by one library, of which a small beginning decides types that are guessed."""
    monkeypatch.setattr("dyclu.data.tables.files.LIBRARIES", (request.param,))
    monkeypatch.setattr("dyclu.data.tables.files.BLOCK", 1 << 10)
    return str(request.param)


@pytest.mark.usefixtures("library")
def test_categories_and_tags_in_a_csv_file_are_text(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("who,y,zip,member,years\nana,1,01067,true,2020\nben,0,1067,false,2021\n")
    columns = {"zip": "category", "member": "category", "years": "text"}
    expected = {
        "zip": ("01067", "1067"),
        "member": ("false", "true"),
        "years": ("2020", "2021"),
    }
    log = Log.read(path, user="who", reward="y", features=Features(context=columns))
    assert {name: one.values for name, one in log.features.context.items()} == expected
    row = {"zip": "01067", "member": "true", "years": "2020"}
    served = log.features.vectors([{}], row)
    np.testing.assert_array_equal(next(log.chunks()).contexts[:1], served)
    for fitted in (Features(context=columns).fit(path), Features(arm=columns).fit(path)):
        both: dict[str, Any] = {**fitted.arm, **fitted.context}
        assert {name: one.values for name, one in both.items()} == expected
        np.testing.assert_array_equal(fitted.matrix(path)[:1], served)


@pytest.mark.usefixtures("library")
def test_items_in_a_csv_file_have_text_as_categories(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,zip\n7,01067\n8,1067\n")
    (tmp_path / "log.csv").write_text("who,y,item,candidates\nana,1,7,7\nben,0,8,8\n")
    log = Log.read(
        tmp_path / "log.csv",
        user="who",
        reward="y",
        arm="item",
        offered="candidates",
        items=tmp_path / "items.csv",
        features=Features(arm={"zip": "category"}),
    )
    assert log.features.arm["zip"].values == ("01067", "1067")
    chunk = next(log.chunks())
    assert chunk.contexts[:, 1:3].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    catalogue = log.features.catalogue(tmp_path / "items.csv", id="item")
    np.testing.assert_array_equal(catalogue.vectors(["7", "8"]), chunk.contexts)


@pytest.mark.usefixtures("library")
def test_later_rows_of_a_csv_file_may_hold_what_its_first_rows_do_not(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = ["ana,1,1,3,,1,7\n"] * 500 + ["ben,0.5,0.5,3.5,2.5,1.5,x\n"]
    path.write_text("who,y,chance,price,size,at,zip\n" + "".join(lines))
    features = Features(
        arm={
            "price": Number(mean=0, scale=1),
            "size": Number(mean=0, scale=1, missing=True),
            "zip": "category",
        },
        intercept=False,
    )
    log = Log.read(path, user="who", reward="y", propensity="chance", time="at", features=features)
    assert log.features.arm["zip"].values == ("7", "x")
    *_, last = log.chunks()
    assert last.reward[-1] == 0.5
    assert last.propensity is not None
    assert last.propensity[-1] == 0.5
    assert last.time is not None
    assert last.time[-1] == 1.5
    assert dict(zip(log.features.names, last.contexts[-1].tolist(), strict=True)) == {
        "price": 3.5, "size": 2.5, "size (missing)": 0.0, "zip=7": 0.0, "zip=x": 1.0,
        "zip=(other)": 0.0,
    }  # fmt: skip


@pytest.mark.usefixtures("library")
def test_rewards_and_numbers_in_a_csv_file_may_be_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,y,x\nana,true,false\nben,false,true\n")
    features = Features(arm={"x": Number(mean=0, scale=1)}, intercept=False)
    log = Log.read(tmp_path / "log.csv", user="who", reward="y", features=features)
    chunk = next(log.chunks())
    assert chunk.reward.tolist() == [1.0, 0.0]
    assert chunk.contexts[:, 0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("row", [0, 2])
def test_a_text_in_the_first_rows_of_a_column_of_numbers_is_refused(
    row: int, tmp_path: Path
) -> None:
    lines = ["ana,0, 1.5\n"] * 4
    lines[row] = "ana,0,cheap\n"
    (tmp_path / "log.csv").write_text("who,y,x\n" + "".join(lines))
    features = Features(arm={"x": Number(mean=0, scale=1)})
    log = Log.read(tmp_path / "log.csv", user="who", reward="y", features=features)
    with pytest.raises(KindError, match=f"row {row}, column 'x': got 'cheap', expected a number"):
        list(log.chunks())


def test_a_large_csv_file_is_read_in_chunks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("who,y,x\n" + "".join(f"u{i},0,{i}.5\n" for i in range(20_000)))
    monkeypatch.setattr("dyclu.data.tables.files.BLOCK", 1 << 14)
    features = Features(arm={"x": Number(mean=0, scale=1e4)}, intercept=False)
    log = Log.read(path, user="who", reward="y", features=features)
    chunks = list(log.chunks())
    assert log.rows is None
    assert max(map(len, chunks)) < 2500
    np.testing.assert_allclose(
        np.concatenate([one.contexts for one in chunks])[:, 0], (np.arange(20_000) + 0.5) / 1e4
    )


def test_a_text_late_in_a_column_of_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    lines = [f"u{i},0,{i}.5\n" for i in range(20_000)]
    lines[15_000] = "u15000,0,cheap\n"
    path.write_text("who,y,x\n" + "".join(lines))
    monkeypatch.setattr("dyclu.data.tables.files.BLOCK", 1 << 14)
    features = Features(arm={"x": Number(mean=0, scale=1)})
    log = Log.read(path, user="who", reward="y", features=features)
    with pytest.raises(KindError, match="row 15000, column 'x': got 'cheap'"):
        list(log.chunks())


def test_damaged_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"PAR1 nonsense")
    (tmp_path / "empty.csv").write_bytes(b"")
    for name in ("log.parquet", "empty.csv", "nowhere.csv"):
        with pytest.raises(FileError, match="cannot read"):
            as_table(tmp_path / name)
    with pytest.raises(OptionError, match=r"no \.csv or \.parquet file"):
        as_table(tmp_path / "log.xlsx")


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"x": np.arange(100_000.0)}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileError, match="cannot read"):
        as_table(path)


def test_a_csv_file_without_rows_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("who,y,x\n")
    features = Features(arm={"x": Number(mean=0, scale=1)})
    log = Log.read(tmp_path / "log.csv", user="who", reward="y", features=features)
    with pytest.raises(OptionError, match="is empty, expected at least one row"):
        list(log.chunks())


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    with pytest.raises(OptionError, match="the log has two columns of one name"):
        as_table(frame, what="the log")


def test_columns_whose_names_are_numbers_are_listed_in_messages() -> None:
    with pytest.raises(OptionError, match="has no column 'x', expected one of '0', '1'"):
        list(batches(pd.DataFrame([[1, 2]]), ["x"]))


def test_frames_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[data\]'"):
        as_table(pd.DataFrame({"x": [1]}))
    table = as_table([{"x": 1}])
    assert [rows for rows, _ in table.batches(["x"])] == [1]


def test_batches_name_their_rows_from_the_start_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dyclu.data.tables.table.BATCH", 2)
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, float("inf")]})
    parts = [columns["x"] for _, columns in batches(frame, ["x"])]
    assert parts[0].floats().tolist() == [1.0, 2.0]
    with pytest.raises(NumberError, match="row 3, column 'x': got inf"):
        parts[1].floats()
