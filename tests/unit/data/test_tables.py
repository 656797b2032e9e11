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

from dyclu.data import Features, Log, Number, tables
from dyclu.data.tables import as_table
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
    monkeypatch.setattr("dyclu.data.tables.BATCH", batch)
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
        monkeypatch.setattr("dyclu.data.files.LIBRARIES", ("polars",))
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


def test_a_large_csv_file_is_read_in_chunks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("who,y,x\n" + "".join(f"u{i},0,{i}.5\n" for i in range(20_000)))
    monkeypatch.setattr("dyclu.data.files.BLOCK", 1 << 14)
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
    monkeypatch.setattr("dyclu.data.files.BLOCK", 1 << 14)
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


def test_frames_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[data\]'"):
        as_table(pd.DataFrame({"x": [1]}))
    table = as_table([{"x": 1}])
    assert [rows for rows, _ in table.batches(["x"])] == [1]


def test_batches_name_their_rows_from_the_start_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dyclu.data.tables.BATCH", 2)
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0, float("inf")]})
    batches = [columns["x"] for _, columns in tables.batches(frame, ["x"])]
    assert batches[0].floats().tolist() == [1.0, 2.0]
    with pytest.raises(NumberError, match="row 3, column 'x': got inf"):
        batches[1].floats()
