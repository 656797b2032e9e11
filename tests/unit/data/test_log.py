from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dyclu
from dyclu.data import Chunk, Features, Log, Number, Valid
from dyclu.errors import DycluError, KindError, NumberError, OptionError, ShapeError

FEATURES = Features(
    arm={"price": Number(mean=0, scale=1)},
    context={"hour": Number(mean=0, scale=1)},
    cross=[("hour", "price")],
)
ITEMS = [
    {"item": "a", "price": 1.0, "from": 0, "to": 25},
    {"item": "b", "price": 2.0, "from": 10, "to": None},
    {"item": "c", "price": 3.0, "from": None, "to": 20},
]
ROLES: dict[str, Any] = {
    "user": "who",
    "reward": "clicked",
    "arm": "item",
    "time": "at",
    "propensity": "chance",
    "decision": "id",
    "items": ITEMS,
    "offered": "candidates",
    "features": FEATURES,
}


NAMES = ("who", "clicked", "item", "at", "chance", "id", "candidates", "hour")


def rows() -> list[dict[str, Any]]:
    values: list[tuple[Any, ...]] = [
        ("ana", 1, "b", 5, 0.5, 1, ["a", "b"], 2),
        (7, 0, "c", 15, 1.0, 2, ["c"], 3),
        ("ana", 0, "a", 15, 0.2, 3, ["c", "b", "a"], 4),
    ]
    return [dict(zip(NAMES, row, strict=True)) for row in values]


def whole(log: Log) -> Chunk:
    (chunk,) = log.chunks()
    return chunk


def test_a_log_has_users_rewards_and_the_vectors_of_all_offered_arms() -> None:
    log = Log.read(rows(), **ROLES)
    assert (log.rows, log.dim, log.features) == (3, 4, FEATURES)
    chunk = whole(log)
    assert chunk.user.tolist() == ["ana", 7, "ana"]
    assert chunk.reward.tolist() == [1.0, 0.0, 0.0]
    assert chunk.time is not None
    assert chunk.time.tolist() == [5.0, 15.0, 15.0]
    assert chunk.propensity is not None
    assert chunk.propensity.tolist() == [0.5, 1.0, 0.2]
    assert chunk.decision is not None
    assert chunk.decision.tolist() == [1, 2, 3]
    assert chunk.counts.tolist() == [2, 1, 3]
    assert chunk.chosen.tolist() == [1, 0, 2]
    # intercept, price, hour, hour × price; zeros where nothing was offered
    assert chunk.arms[0].tolist() == [[1, 1, 2, 2], [1, 2, 2, 4], [0, 0, 0, 0]]
    assert chunk.arms[1].tolist() == [[1, 3, 3, 9], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert chunk.arms[2].tolist() == [[1, 3, 4, 12], [1, 2, 4, 8], [1, 1, 4, 4]]
    assert chunk.contexts.tolist() == [[1, 2, 2, 4], [1, 3, 3, 9], [1, 1, 4, 4]]
    types = [column.dtype.str for column in (chunk.arms, chunk.chosen, chunk.counts, chunk.user)]
    assert types == ["<f8", "<i8", "<i8", "|O"]


def test_items_are_offered_while_they_are_valid() -> None:
    log = Log.read(rows(), **ROLES | {"offered": Valid(since="from", until="to")})
    with pytest.raises(OptionError, match=r"row 0, column 'item': got 'b', expected one of"):
        list(log.chunks())
    later = [row | {"at": at} for row, at in zip(rows(), (10, 19, 20), strict=True)]
    chunk = whole(Log.read(later, **ROLES | {"offered": Valid(since="from", until="to")}))
    assert chunk.counts.tolist() == [3, 3, 2]
    assert chunk.chosen.tolist() == [1, 2, 0]
    assert chunk.arms[2, :, 1].tolist() == [1.0, 2.0, 0.0]


def test_without_columns_of_time_all_items_are_always_offered() -> None:
    chunk = whole(Log.read(rows(), **ROLES | {"offered": Valid(), "time": None}))
    assert chunk.counts.tolist() == [3, 3, 3]
    assert chunk.time is None


def test_without_offers_only_the_shown_arm_is_known() -> None:
    chunk = whole(Log.read(rows(), **ROLES | {"offered": None}))
    assert chunk.arms.shape == (3, 1, 4)
    assert chunk.contexts[:, 1].tolist() == [2.0, 3.0, 1.0]


def test_without_items_columns_of_arms_are_those_of_the_rows() -> None:
    table = [row | {"price": 4.0} for row in rows()]
    chunk = whole(Log.read(table, **ROLES | {"offered": None, "items": None, "arm": None}))
    assert chunk.contexts[:, 1].tolist() == [4.0, 4.0, 4.0]
    assert chunk.counts.tolist() == [1, 1, 1]


def test_ids_in_one_text_are_split() -> None:
    table = [row | {"candidates": " ; ".join(row["candidates"])} for row in rows()]
    chunk = whole(Log.read(table, **ROLES, separator=";"))
    np.testing.assert_array_equal(chunk.arms, whole(Log.read(rows(), **ROLES)).arms)


def test_ids_of_items_match_across_types() -> None:
    items = [{"item": number, "price": float(number)} for number in (1, 2)]
    table = [rows()[0] | {"item": "2", "candidates": [1.0, 2.0]}]
    chunk = whole(Log.read(table, **ROLES | {"items": items}))
    assert chunk.chosen.tolist() == [1]
    assert chunk.contexts[:, 1].tolist() == [2.0]


def test_open_features_are_fitted_on_items_and_rows() -> None:
    declared = Features(arm={"price": "number"}, context={"hour": "number"}, reduce=2)
    log = Log.read(rows(), **ROLES | {"features": declared})
    assert log.features.arm["price"].mean == pytest.approx(2.0)
    assert log.features.context["hour"].mean == pytest.approx(3.0)
    assert log.dim == 3
    raw = Log.read(
        rows(), **ROLES | {"features": log.features.replaced(reduce=None, loadings=None)}
    )
    chunk = whole(raw)
    offered = chunk.arms[np.arange(3) < chunk.counts[:, None]][:, 1:]
    # All offered arms count, and padding does not.
    _, _, directions = np.linalg.svd(offered)
    np.testing.assert_allclose(np.abs(log.features.loadings), np.abs(directions[:2].T), atol=1e-12)
    assert not declared.fitted


def test_long_logs_come_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = whole(Log.read(rows(), **ROLES))
    monkeypatch.setattr("dyclu.data.reading.CHUNK_NUMBERS", 30)
    chunks = list(Log.read(rows(), **ROLES).chunks())
    assert [len(chunk) for chunk in chunks] == [2, 1]
    np.testing.assert_array_equal(np.concatenate([one.arms for one in chunks]), at_once.arms)
    monkeypatch.setattr("dyclu.data.tables.table.BATCH", 1)
    chunks = list(Log.read(rows(), **ROLES).chunks())
    assert [one.arms.shape[1] for one in chunks] == [2, 1, 3]
    assert np.concatenate([one.contexts for one in chunks]).tolist() == at_once.contexts.tolist()


def test_a_log_can_be_read_again() -> None:
    log = Log.read(rows(), **ROLES)
    np.testing.assert_array_equal(whole(log).arms, whole(log).arms)


def test_dates_become_seconds() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    dates = [start + timedelta(seconds=0.5 * step) for step in range(3)]
    table = [row | {"at": date} for row, date in zip(rows(), dates, strict=True)]
    naive = [row | {"at": row["at"].replace(tzinfo=None)} for row in table]
    expected = [start.timestamp() + 0.5 * step for step in range(3)]
    for source in (table, naive, pd.DataFrame(table), pd.DataFrame(naive)):
        time = whole(Log.read(source, **ROLES)).time
        assert time is not None
        assert time.tolist() == expected


Spoil = Callable[[list[dict[str, Any]]], object]


def put(row: int, column: str, value: Any) -> Spoil:
    return lambda table: table[row].update({column: value})


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (put(2, "chance", 0.0), NumberError, "row 2, column 'chance': got 0, expected a prob"),
        (put(1, "chance", 1.5), NumberError, "row 1, column 'chance': got 1.5"),
        (put(1, "chance", -0.1), NumberError, "row 1, column 'chance': got -0.1"),
        (put(1, "chance", None), NumberError, "row 1, column 'chance': got no value"),
        (put(1, "at", 3), OptionError, "row 1, column 'at': got 3 after 5.*sort the log by 'at'"),
        (put(2, "at", None), NumberError, "row 2, column 'at': got no value"),
        (put(2, "at", "noon"), KindError, "column 'at': got 'noon'.*, expected seconds or a d"),
        (put(1, "who", 7.0), KindError, "row 1, column 'who': user is 7.0"),
        (put(1, "who", None), KindError, "row 1, column 'who': got no value"),
        (put(2, "id", 1), OptionError, "row 2, column 'id': got 1 once more"),
        (put(2, "id", None), KindError, "column 'id': got (no value|1.0)"),
        (put(0, "clicked", "yes"), KindError, r"row 0, column 'clicked': got 'yes' .*float\(\)$"),
        (put(0, "clicked", None), NumberError, "row 0, column 'clicked': got no value"),
        (put(0, "clicked", float("inf")), NumberError, "row 0, column 'clicked': got inf"),
        (put(1, "hour", "late"), KindError, "row 1, column 'hour': got 'late'.* as a category"),
        (put(1, "item", "z"), OptionError, "row 1, column 'item': got 'z', expected the id of an"),
        (put(1, "item", None), KindError, "row 1, column 'item': got no value"),
        (put(1, "item", "a"), OptionError, "row 1, column 'item': got 'a', expected one of the ar"),
        (put(1, "candidates", []), OptionError, "row 1, column 'candidates': got no items"),
        (put(1, "candidates", None), OptionError, "row 1, column 'candidates': got no items"),
        (put(1, "candidates", ["c", "y"]), OptionError, "row 1, column 'candidates': got 'y'"),
        (put(1, "candidates", ["c", None]), KindError, "row 1, column 'candidates': got no value"),
        (put(1, "candidates", ["c", ["c"]]), KindError, "row 1, column 'candidates': got"),
        (put(1, "candidates", "c|y"), OptionError, "row 1, column 'candidates': got 'y'"),
        (put(1, "candidates", 5), KindError, "row 1, column 'candidates': got 5"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_with_row_and_column_and_nothing_is_learnt(
    spoil: Spoil, error: type[DycluError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows()
    spoil(table)
    # One row per batch, so that rows before the bad one have been learnt when it is found.
    monkeypatch.setattr("dyclu.data.tables.table.BATCH", 1)
    for source in (table, pd.DataFrame(table)):
        if source is not table and "user is 7.0" in message:
            continue  # pandas would have made a float of the column anyway
        policy = dyclu.LinUCB(4)
        with pytest.raises(error, match=message):
            policy.fit(Log.read(source, **ROLES))
        assert policy.users == ()


def test_an_arm_that_was_not_offered_is_refused_beside_longer_offers() -> None:
    table = rows()
    # "a" is the first item, as which shorter offers are padded.
    table[1]["item"] = "a"
    with pytest.raises(OptionError, match="row 1, column 'item': got 'a', expected one of the ar"):
        list(Log.read(table, **ROLES).chunks())


def test_users_as_floats_are_refused_from_a_frame() -> None:
    frame = pd.DataFrame(
        [row | {"who": who} for row, who in zip(rows(), (1, 2, None), strict=True)]
    )
    with pytest.raises(KindError, match=r"row 0, column 'who': user is 1\.0"):
        list(Log.read(frame, **ROLES).chunks())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"user": "whoo"}, "the log has no column 'whoo', expected 'who'"),
        ({"offered": "candidate"}, "no column 'candidate', expected 'candidates'"),
        ({"arm": "iten"}, "the log has no column 'iten', expected 'item'"),
        ({"features": Features(arm={"prise": "number"})}, "table of items has no .* 'price'"),
        ({"features": Features(context={"hours": "number"})}, "log has no column 'hours'.* 'hour'"),
        ({"features": None}, "features are None, expected dyclu.Features"),
        ({"user": 5}, "the log has no column 5, expected one of 'who'"),
        ({"items": None}, "offered is given without items"),
        ({"arm": None}, "items are given without arm"),
        ({"offered": Valid(since="from"), "time": None}, "offered depends on time"),
        ({"items": [*ITEMS, ITEMS[0]]}, "item 3, column 'item': got 'a' once more"),
        ({"items": []}, "the table of items is empty, expected rows with a column 'item'"),
        ({"items": [{"item": "a", "price": "x"}]}, "item 0, column 'price': got 'x'"),
    ],
)
def test_a_misspelt_or_contradictory_role_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DycluError, match=message):
        list(Log.read(rows(), **ROLES | options).chunks())


def test_a_value_that_cannot_be_fitted_is_named_with_the_table_that_it_is_in() -> None:
    """Row 1 of the items is not row 1 of the log."""
    items = [ITEMS[0], ITEMS[1] | {"price": "cheap"}, ITEMS[2]]
    price = Features(arm={"price": "number"})
    for source in (items, pd.DataFrame(items)):
        with pytest.raises(KindError, match="item 1, column 'price': got 'cheap'"):
            Log.read(rows(), **ROLES | {"items": source, "features": price})
        with pytest.raises(KindError, match="item 1, column 'price': got 'cheap'"):
            price.fit(rows(), items=source)


def test_an_empty_log_is_refused() -> None:
    frame = pd.DataFrame(rows())
    with pytest.raises(OptionError, match="the log is empty"):
        Log.read(frame[:0], **ROLES)
    with pytest.raises(OptionError, match="the log is empty, expected rows with a column 'who'"):
        Log.read([], **ROLES)


@pytest.mark.parametrize(
    "table",
    [5, None, {"who": 3}, np.zeros(3), "log.txt", [1, 2], [{"who": 1}, {"whom": 2}], ["a"]],
)
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(DycluError, match=r"expected|differ|rename"):
        Log.read(table, **ROLES)


ARRAYS: dict[str, Any] = {
    "user": ["ana", "ben"],
    "arms": np.ones((2, 3, 2)),
    "chosen": [0, 1],
    "reward": [0.0, 1.0],
}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"user": ["ana"]}, ShapeError, "user has 1 rows, arms have 2"),
        ({"user": ["ana", 1.5]}, KindError, "row 1, column 'user': user is 1.5"),
        ({"arms": np.ones((2, 3))}, ShapeError, r"arms have shape \(2, 3\)"),
        ({"arms": np.ones((0, 3, 2))}, ShapeError, "none of them 0"),
        ({"arms": np.full((2, 3, 2), np.nan)}, NumberError, "arms holds nan"),
        ({"chosen": [0, 3]}, OptionError, "row 1, column 'chosen': got 3, expected 0 to 2"),
        ({"chosen": [0, -1]}, OptionError, "row 1, column 'chosen': got -1"),
        ({"chosen": [0.0, 1.0]}, KindError, "chosen is an array of float64"),
        ({"counts": [3, 1]}, OptionError, "row 1, column 'chosen': got 1, expected 0 to 0"),
        ({"counts": [4, 3]}, OptionError, "row 0, column 'counts': got 4, expected 1 to 3"),
        ({"counts": [0, 3]}, OptionError, "row 0, column 'counts': got 0"),
        ({"reward": [0.0, np.nan]}, NumberError, "row 1, column 'reward': got no value"),
        ({"reward": np.zeros((2, 1))}, ShapeError, r"reward has shape \(2, 1\)"),
        ({"propensity": [0.5, 0.0]}, NumberError, "row 1, column 'propensity': got 0"),
        ({"time": [2.0, 1.0]}, OptionError, "row 1, column 'time': got 1 after 2"),
        ({"decision": ["x", "x"]}, OptionError, "row 1, column 'decision': got 'x' once more"),
    ],
)
def test_bad_arrays_are_refused_with_row_and_column(
    options: dict[str, Any], error: type[DycluError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Log.of_arrays(**ARRAYS | options)


def test_a_log_of_arrays_comes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyclu.data.log.CHUNK_NUMBERS", 10)
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(5, 2, 2))
    log = Log.of_arrays(
        user=list("abcab"),
        arms=arms,
        chosen=[0, 1, 0, 1, 0],
        reward=np.arange(5.0),
        time=np.arange(5),
        counts=[2, 2, 1, 2, 1],
    )
    chunks = list(log.chunks())
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert [chunk.user.tolist() for chunk in chunks] == [["a", "b"], ["c", "a"], ["b"]]
    np.testing.assert_array_equal(np.concatenate([one.arms for one in chunks]), arms)
    assert chunks[0].propensity is None
    assert chunks[0].decision is None


@pytest.mark.parametrize("candidates", [["a", "c", "a", "c"], "a|c|a", ("c", "a", "a")])
def test_an_item_that_is_offered_twice_is_refused(candidates: Any) -> None:
    table = rows()
    table[1]["candidates"] = candidates
    message = "row 1, column 'candidates': got 'a' twice, expected every offered item once; remove"
    with pytest.raises(OptionError, match=message):
        list(Log.read(table, **ROLES).chunks())


def test_an_item_that_is_offered_twice_under_two_types_is_refused() -> None:
    items = [{"item": number, "price": float(number)} for number in (1, 2)]
    table = [rows()[0] | {"item": "2", "candidates": [2, 1, "2"]}]
    with pytest.raises(OptionError, match="row 0, column 'candidates': got '2' twice"):
        list(Log.read(table, **ROLES | {"items": items}).chunks())


@pytest.mark.parametrize(
    "time",
    [
        np.array(["2024-01-01", "NaT"], "datetime64[s]"),
        np.array(["2024-01-01", "NaT"], "datetime64[D]"),
        [pd.Timestamp("2024-01-01"), pd.NaT],
        [datetime(2024, 1, 1, tzinfo=UTC), None],
    ],
)
def test_a_date_that_is_missing_is_refused(time: Any) -> None:
    with pytest.raises(NumberError, match="row 1, column 'time': got no value"):
        Log.of_arrays(**ARRAYS, time=time)


def test_a_date_that_is_missing_in_the_first_row_is_refused() -> None:
    time = np.array(["NaT", "2024-01-01"], "datetime64[s]")
    with pytest.raises(NumberError, match="row 0, column 'time': got no value"):
        Log.of_arrays(**ARRAYS, time=time)


@pytest.mark.parametrize("role", ["reward", "propensity", "decision"])
@pytest.mark.parametrize("side", ["arm", "context"])
def test_a_feature_that_is_an_outcome_is_refused(role: str, side: str) -> None:
    column = ROLES[role]
    features = Features.of({side: {column: "number"}})
    options = {"features": features, "items": None, "offered": None, "arm": None}
    message = f"the feature '{column}' is the column of the {role}, expected what is known before"
    with pytest.raises(OptionError, match=message):
        Log.read(rows(), **ROLES | options)


def test_a_column_of_items_may_have_the_name_of_an_outcome() -> None:
    items = [item | {"id": number} for number, item in enumerate(ITEMS)]
    features = Features(arm={"id": Number(mean=0, scale=1)}, intercept=False)
    chunk = whole(Log.read(rows(), **ROLES | {"items": items, "features": features}))
    assert chunk.contexts[:, 0].tolist() == [1.0, 2.0, 0.0]


def test_a_chunk_of_arrays_cannot_change_the_log() -> None:
    more: dict[str, Any] = {"propensity": [0.5, 0.5], "time": [1, 2], "decision": [1, 2]}
    log = Log.of_arrays(**ARRAYS | more)
    chunk = whole(log)
    for name in ("user", "time", "chosen", "reward", "propensity", "arms", "counts", "decision"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(chunk, name)[0] = 0
    assert whole(log).arms.tolist() == ARRAYS["arms"].tolist()
    # The caller's own arrays stay writable.
    assert ARRAYS["arms"].flags.writeable
