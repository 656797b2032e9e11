"""Logs with one row per offered arm: the same chunks as from arrays, whatever holds the table."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dyclu import Log
from dyclu.data import Chunk
from dyclu.data.tables.table import BATCH
from dyclu.errors import DycluError, KindError, NumberError, OptionError

ARMS = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0]], [[9.0, 0.0], [1.0, 1.0]]]
SHOWN = [2, 0, 1]


def rows() -> list[dict[str, Any]]:
    """Return three decisions of two users, with three, one and two offered arms."""
    found = []
    for place, arms in enumerate(ARMS):
        for arm, (price, age) in enumerate(arms):
            shown = arm == SHOWN[place]
            row = {"decision": f"d{place}", "slot": 1, "time": 10.0 * place}
            row |= {"user": f"u{place % 2}", "group": None, "arm": f"a{arm}", "shown": int(shown)}
            row |= {"propensity": 0.5 if shown else None, "reward": float(place) if shown else None}
            found.append(row | {"price": price, "age": age})
    return found


def whole(log: Log) -> Chunk:
    (chunk,) = log.chunks()
    return chunk


def test_rows_of_one_decision_become_its_offered_arms() -> None:
    log = Log.read_arms(rows(), time="time")
    chunk = whole(log)
    assert (log.dim, log.rows, log.names) == (2, None, ("price", "age"))
    padded = np.zeros((3, 3, 2))
    for place, arms in enumerate(ARMS):
        padded[place, : len(arms)] = arms
    expected = whole(
        Log.of_arrays(
            user=["u0", "u1", "u0"], arms=padded, chosen=SHOWN, reward=[0.0, 1.0, 2.0],
            propensity=[0.5] * 3, time=[0.0, 10.0, 20.0], counts=[3, 1, 2],
        )
    )  # fmt: skip
    for name in ("user", "arms", "chosen", "counts", "reward", "propensity", "time"):
        np.testing.assert_array_equal(getattr(chunk, name), getattr(expected, name), name)
    assert chunk.decision is not None
    assert chunk.decision.tolist() == ["d0/1", "d1/1", "d2/1"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", "pandas", "polars"])
def test_files_and_frames_give_the_same_log(tmp_path: Path, suffix: str) -> None:
    table: Any = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(suffix, list)(rows())
    if suffix.startswith("."):
        table = tmp_path / f"log{suffix}"
        frame = pl.DataFrame(rows())
        frame.write_csv(table) if suffix == ".csv" else frame.write_parquet(table)
    chunk, expected = whole(Log.read_arms(table)), whole(Log.read_arms(rows()))
    assert chunk.user.tolist() == expected.user.tolist()
    np.testing.assert_array_equal(chunk.arms, expected.arms)
    np.testing.assert_array_equal(chunk.reward, expected.reward)


def test_columns_may_have_other_names() -> None:
    named = {"decision": "id", "user": "who", "shown": "was", "reward": "clicked",
             "propensity": "p"}  # fmt: skip
    table = [{named.get(name, name): value for name, value in row.items()} for row in rows()]
    chunk = whole(Log.read_arms(table, **named))
    assert chunk.reward.tolist() == [0.0, 1.0, 2.0]
    assert chunk.arms.shape == (3, 3, 2)


def test_slots_of_one_decision_are_choices_of_their_own() -> None:
    table = [row | {"decision": "d", "user": "ana"} for row in rows()]
    for row, slot in zip(table, (1, 1, 1, 2, 3, 3), strict=True):
        row["slot"] = slot
    chunk = whole(Log.read_arms(table))
    assert chunk.counts.tolist() == [3, 1, 2]
    assert chunk.decision is not None
    assert chunk.decision.tolist() == ["d/1", "d/2", "d/3"]


def test_a_decision_across_two_batches_stays_whole(tmp_path: Path) -> None:
    """Seven arms per decision: no batch ends where a decision does."""
    decisions = BATCH // 7 + 100
    with (tmp_path / "log.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["decision", "user", "shown", "propensity", "reward", "x"])
        for place in range(decisions):
            for arm in range(7):
                shown = int(arm == place % 7)
                out.writerow([place, f"u{place}", shown, 0.2, place, 10 * place + arm])
    chunks = list(Log.read_arms(tmp_path / "log.csv").chunks())
    assert len(chunks) == 2
    assert sum(map(len, chunks)) == decisions
    place = 0
    for chunk in chunks:
        assert set(chunk.counts.tolist()) == {7}
        for reward, shown, arms in zip(chunk.reward, chunk.chosen, chunk.arms, strict=True):
            assert (reward, shown) == (place, place % 7)
            assert arms[:, 0].tolist() == [10 * place + arm for arm in range(7)]
            place += 1


def test_chunks_are_bounded_if_one_decision_has_many_arms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dyclu.data.arms.CHUNK_NUMBERS", 12)
    chunks = list(Log.read_arms(rows()).chunks())
    # 3 arms × 2 features are six numbers per decision.
    assert [len(chunk) for chunk in chunks] == [2, 1]
    assert np.concatenate([chunk.reward for chunk in chunks]).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("row", "change", "error", "said"),
    [
        (0, {"shown": 1}, OptionError, "row 0, column 'shown': got 2 shown arms"),
        (2, {"shown": 0}, OptionError, "row 0, column 'shown': got 0 shown arms"),
        (1, {"shown": 0.5}, NumberError, "row 1, column 'shown': got 0.5, expected 0 or 1"),
        (1, {"user": "else"}, OptionError, "keep the rows of a decision together"),
        (3, {"reward": None}, NumberError, "decision 1, column 'reward': got no value"),
        (3, {"propensity": 0.0}, NumberError, "decision 1, column 'propensity': got 0"),
        (4, {"price": None}, NumberError, "row 4, column 'price': got no value"),
        (4, {"price": "dear"}, KindError, "every column beside decision, slot, time"),
        (4, {"price": 1e9}, NumberError, "row 4, column 'price': got 1e+09"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(
    row: int, change: dict[str, Any], error: type[DycluError], said: str
) -> None:
    table = rows()
    table[row] |= change
    with pytest.raises(error) as refused:
        list(Log.read_arms(table).chunks())
    assert said in str(refused.value)


def test_a_table_that_lacks_what_is_needed_is_refused() -> None:
    with pytest.raises(OptionError, match="has no column 'shown'"):
        Log.read_arms([{"decision": 1, "user": "ana", "reward": 1, "propensity": 1}])
    with pytest.raises(OptionError, match="no columns beside"):
        Log.read_arms([{"decision": 1, "user": "a", "reward": 1, "propensity": 1, "shown": 1}])
    repeated = [*rows(), *rows()[:3]]
    with pytest.raises(OptionError, match="decision 3, column 'decision': got 'd0/1' once more"):
        list(Log.read_arms(repeated).chunks())
