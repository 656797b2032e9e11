from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dyclu
from dyclu import storage
from dyclu.data import Category, Features, Number, Text
from dyclu.errors import (
    DamagedFile,
    DycluError,
    ForeignFile,
    KindError,
    NumberError,
    OptionError,
    ShapeError,
)

SHOP: dict[str, Any] = {
    "arm": {
        "genre": {"kind": "category", "values": ["jazz", "rock"]},
        "price": {"kind": "number", "mean": 10, "scale": 5, "missing": True},
        "tags": {"kind": "text", "values": ["live", "loud"]},
    },
    "context": {
        "country": {"kind": "category", "values": ["de", "fr"], "other": False},
        "hour": {"kind": "number", "mean": 12, "scale": 6, "alone": False},
    },
    "cross": [["country", "genre"], ["hour", "price"]],
}
ARMS: list[dict[str, Any]] = [
    {"genre": "rock", "price": 20.0, "tags": "live|new"},
    {"genre": "folk", "price": None, "tags": ["loud"]},
]
CONTEXT = {"country": "fr", "hour": 18}


@pytest.fixture
def shop() -> Features:
    return Features.of(SHOP)


def test_a_vector_has_one_named_feature_per_value_number_and_product(shop: Features) -> None:
    vectors = shop.vectors(ARMS, CONTEXT)
    named = [
        {name: value for name, value in zip(shop.names, row, strict=True) if value}
        for row in vectors.tolist()
    ]
    common = {"intercept": 1.0, "country=fr": 1.0}
    assert named[0] == common | {
        "price": 2.0,
        "genre=rock": 1.0,
        "tags=live": 1.0,
        "tags=(other)": 1.0,
        "country=fr & genre=rock": 1.0,
        "hour & price": 2.0,
    }
    assert named[1] == common | {
        "price (missing)": 1.0,
        "genre=(other)": 1.0,
        "tags=loud": 1.0,
        "country=fr & genre=(other)": 1.0,
        "hour & price (missing)": 1.0,
    }


def test_a_column_that_is_only_crossed_has_no_feature_of_its_own(shop: Features) -> None:
    assert "hour" not in shop.names
    assert "hour & price" in shop.names


def test_missing_values_are_zeros_in_their_features(shop: Features) -> None:
    nothing = {"genre": None, "price": float("nan"), "tags": None}
    vector = shop.vectors([nothing], {"country": None, "hour": None})[0]
    assert [name for name, one in zip(shop.names, vector, strict=True) if one] == [
        "intercept",
        "price (missing)",
    ]


def test_without_other_unseen_values_count_as_missing(shop: Features) -> None:
    known = shop.vectors(ARMS, {"country": None, "hour": 18})
    np.testing.assert_array_equal(shop.vectors(ARMS, {"country": "it", "hour": 18}), known)


def test_numbers_beyond_the_clip_are_set_to_it() -> None:
    features = Features(arm={"n": Number(mean=0, scale=1, clip=3)}, intercept=False)
    arms: list[dict[str, float]] = [{"n": 1e30}, {"n": -4}, {"n": 2}]
    assert features.vectors(arms).tolist() == [[3.0], [-3.0], [2.0]]


def test_the_logarithm_is_taken_before_scaling() -> None:
    features = Features(arm={"n": Number(mean=1, scale=2, log=True)}, intercept=False)
    np.testing.assert_allclose(features.vectors([{"n": np.exp(5)}]), [[2.0]])
    with pytest.raises(NumberError, match=r"arm 1, column 'n': got 0, expected a number above 0"):
        features.vectors([{"n": 1.0}, {"n": 0.0}])


def test_equal_ids_of_categories_are_equal_whatever_their_type() -> None:
    features = Features(arm={"c": Category(values=("1", "0"))}, intercept=False)
    same: list[Any] = ["1", 1, 1.0, True, np.int64(1), np.float64(1), np.bool_(True)]
    for one in same:
        assert features.vectors([{"c": one}]).tolist() == [[1.0, 0.0, 0.0]]


def test_numbers_of_any_type_are_read_alike_from_dicts_and_tables() -> None:
    features = Features(arm={"n": Number(mean=0, scale=1)}, intercept=False)
    numbers: list[Any] = [2, 2.0, Decimal("2"), Fraction(2), np.float32(2), np.int8(2), np.array(2)]
    for number in numbers:
        assert features.vectors([{"n": number}]).tolist() == [[2.0]]
        assert features.matrix([{"n": number}]).tolist() == [[2.0]]
    others: list[Any] = ["2", np.str_("2"), b"2", 2j, [2], np.array([2, 3]), object()]
    for other in others:
        for read in (features.vectors, features.matrix):
            with pytest.raises(KindError, match="0, column 'n': got"):
                read([{"n": other}])


def test_hashed_values_have_one_of_a_given_number_of_features() -> None:
    features = Features(arm={"c": Category(hashed=7)}, intercept=False)
    values = [{"c": f"city {i}"} for i in range(200)]
    vectors = features.vectors(values)
    assert features.dim == 7
    assert (vectors.sum(axis=1) == 1).all()
    # 200 values in 7 features: a feature without any has probability (6/7)²⁰⁰ < 1e-13.
    assert vectors.sum(axis=0).all()
    np.testing.assert_array_equal(features.matrix(values), vectors)
    assert features.vectors([{"c": None}]).tolist() == [[0.0] * 7]


def test_vectors_of_arms_seen_before_are_the_same(shop: Features) -> None:
    arms = [arm | {"tags": "live"} for arm in ARMS]
    first = shop.vectors(arms, CONTEXT).copy()
    np.testing.assert_array_equal(shop.vectors(arms, CONTEXT), first)
    np.testing.assert_array_equal(shop.vectors(arms[::-1], CONTEXT), first[::-1])
    np.testing.assert_array_equal(
        shop.vectors(arms, {"country": "de", "hour": 12}),
        Features.of(SHOP).vectors(arms, {"country": "de", "hour": 12}),
    )


@pytest.mark.parametrize("column", [Number(mean=0, scale=1), Category(values=("1", "2"))])
def test_the_memo_of_arms_is_bounded(column: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyclu.data.vectors.memo.LARGEST_MEMO", 5)
    features = Features(arm={"n": column}, intercept=False)
    for n in range(9):
        expected = features.matrix([{"n": n}, {"n": -n}])
        np.testing.assert_array_equal(features.vectors([{"n": n}, {"n": -n}]), expected)
    vectors = features._ready()
    memos = [vectors._memo, vectors._layout.arm._marks._memo]
    assert max(len(one._known) for one in memos) in range(1, 6)


def test_the_memo_rests_while_arms_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyclu.data.vectors.memo.MISSES", 3)
    monkeypatch.setattr("dyclu.data.vectors.memo.REST", 2)
    features = Features(arm={"n": Number(mean=0, scale=1)}, intercept=False)
    known = features._ready()._memo._known
    sizes = []
    for n in range(8):
        assert features.vectors([{"n": n}]).tolist() == [[n]]
        sizes.append(len(known))
    assert sizes == [1, 2, 0, 0, 0, 1, 2, 0]


def test_categories_are_remembered_while_numbers_are_new() -> None:
    features = Features(arm={"n": Number(mean=0, scale=1), "c": Category(values=("a", "b"))})
    marks = features._ready()._layout.arm._marks._memo
    for n in range(5):
        for c in "abz":
            expected = [[1.0, n, c == "a", c == "b", c == "z"]]
            assert features.vectors([{"n": n, "c": c}]).tolist() == expected
    assert set(marks._known) == {("a",), ("b",), ("z",)}


def test_a_change_to_vectors_does_not_change_what_is_remembered(shop: Features) -> None:
    arms = [arm | {"tags": "live"} for arm in ARMS]
    for context in (CONTEXT, {"country": "de", "hour": 12}):
        for _ in range(2):
            vectors = shop.vectors(arms, context)
            expected = Features.of(SHOP).vectors(arms, context)
            np.testing.assert_array_equal(vectors, expected)
            vectors[:] = 7.0


def test_missing_numbers_and_negative_ones_under_a_logarithm() -> None:
    features = Features(arm={"n": Number(mean=0, scale=1, log=True, missing=True)}, intercept=False)
    assert features.vectors([{"n": None}, {"n": 1.0}]).tolist() == [[0.0, 1.0], [0.0, 0.0]]
    for missing in (None, math.nan):
        with pytest.raises(NumberError, match=r"arm 1, column 'n': got -1, expected a number ab"):
            features.vectors([{"n": missing}, {"n": -1.0}])


def test_a_crossed_column_without_features_of_its_own_keeps_the_intercept() -> None:
    features = Features(
        arm={"n": Number(mean=0, scale=1)}, context={"h": Number(mean=0, scale=1, alone=False)}
    )
    assert features.vectors([{"n": 2.0}], {"h": 5.0}).tolist() == [[1.0, 2.0]]


def test_no_arms_give_no_vectors(shop: Features) -> None:
    assert shop.vectors([], CONTEXT).shape == (0, shop.dim)


def test_a_catalogue_gives_the_vectors_of_its_items(shop: Features) -> None:
    items = shop.catalogue([{"id": i} | arm for i, arm in enumerate(ARMS)], id="id")
    np.testing.assert_array_equal(items.vectors([1, 0], CONTEXT), shop.vectors(ARMS[::-1], CONTEXT))
    assert len(items) == 2
    with pytest.raises(OptionError, match=r"arm 1, column 'ids': got '7', expected the id of"):
        items.vectors([0, 7], CONTEXT)


@pytest.mark.parametrize(
    ("arm", "error", "message"),
    [
        ({"genre": "jazz", "prise": 1, "tags": ""}, OptionError, "no column 'price'.* 'prise'"),
        ({"genre": "jazz", "price": 1}, OptionError, "arm 0 has no column 'tags'"),
        ({"genre": "jazz", "price": "1", "tags": ""}, KindError, "arm 0, column 'price': got '1'"),
        ({"genre": "a", "price": float("inf"), "tags": ""}, NumberError, "column 'price': got inf"),
        ({"genre": "a", "price": 10**400, "tags": ""}, NumberError, "column 'price'"),
        ({"genre": ["a"], "price": 1, "tags": ""}, KindError, r"column 'genre': got \['a'\]"),
        ({"genre": "a", "price": 1, "tags": 5}, KindError, "column 'tags': got 5"),
        ({"genre": "a", "price": 1, "tags": [["x"]]}, KindError, "column 'tags': got"),
        ("jazz", KindError, "arm 0 is 'jazz'"),
        (None, KindError, "arm 0 is None"),
    ],
)
def test_a_bad_arm_is_refused_with_its_column(
    shop: Features, arm: Any, error: type[DycluError], message: str
) -> None:
    with pytest.raises(error, match=message):
        shop.vectors([arm], CONTEXT)


def test_a_bad_context_is_refused_with_its_column(shop: Features) -> None:
    with pytest.raises(OptionError, match="context 0 has no column 'hour'"):
        shop.vectors(ARMS)
    with pytest.raises(KindError, match="context 0, column 'hour': got 'noon'"):
        shop.vectors(ARMS, {"country": "de", "hour": "noon"})
    with pytest.raises(KindError, match="arms are dict, expected a list"):
        shop.vectors({"genre": "jazz"}, CONTEXT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"arms": {}}, "no 'arms', expected 'arm'"),
        ({"arm": {"a": "numbre"}}, "kind 'numbre', expected 'number'"),
        ({"arm": {"a": 5}}, "column 'a' is 5"),
        ({"arm": {"a": {"kind": "number", "men": 1}}}, "option 'men', expected 'mean'"),
        ({"arm": {"a": {"kind": "number", "scale": 0}}}, "column 'a': scale is 0"),
        ({"arm": {"a": {"kind": "number", "mean": "x"}}}, "column 'a': mean is 'x'"),
        ({"arm": {"a": {"kind": "number", "clip": 1e9}}}, "column 'a': clip is 1e"),
        ({"arm": {"a": {"kind": "number", "log": 1}}}, "log is 1, expected true or false"),
        ({"arm": {"a": {"kind": "category", "values": "xy"}}}, "values are 'xy'"),
        ({"arm": {"a": {"kind": "category", "values": []}}}, "at least one value"),
        ({"arm": {"a": {"kind": "category", "values": [1, "1"]}}}, "none twice"),
        ({"arm": {"a": {"kind": "category", "values": ["x"], "hashed": 3}}}, "one of them"),
        ({"arm": {"a": {"kind": "category", "most": 0}}}, "most is 0"),
        ({"arm": {"a": {"kind": "text", "separator": ""}}}, "separator is ''"),
        ({"arm": {"a": "number"}, "context": {"a": "number"}}, "for arm and context"),
        ({"arm": {"a": "number"}, "cross": [["b", "a"]]}, "'b' is no column of the context"),
        ({"arm": {"a": "number"}, "cross": ["ab"]}, "cross holds 'ab'"),
        ({"arm": {"a": "number"}, "cross": "ab"}, "cross is 'ab'"),
        ({"arm": {"a": "number"}, "reduce": 0}, "reduce is 0"),
        ({"arm": {"a": "number"}, "intercept": "yes"}, "intercept is 'yes'"),
        ({"arm": ["a"]}, r"arm is \['a'\]"),
        ("arm", "the declaration is 'arm'"),
    ],
)
def test_a_bad_declaration_is_refused_with_its_place(declaration: Any, message: str) -> None:
    with pytest.raises(DycluError, match=message):
        Features.of(declaration)


def test_fitting_takes_mean_scale_and_the_most_frequent_values() -> None:
    rows = [
        {"n": 1.0, "c": "b", "t": "x|y"},
        {"n": 3.0, "c": "a", "t": "x"},
        {"n": None, "c": "a", "t": None},
        {"n": 2.0, "c": None, "t": "z|x"},
        {"n": 2.0, "c": "c", "t": "y"},
    ]
    features = Features(
        arm={"n": "number", "c": Category(most=2)}, context={"t": Text(most=2)}
    ).fit(rows)
    assert features.arm["n"] == Number(mean=2.0, scale=math.sqrt(0.5))
    assert features.arm["c"] == Category(values=("a", "b"), most=2)
    assert features.context["t"] == Text(values=("x", "y"), most=2)


def test_what_is_declared_is_not_fitted() -> None:
    declared = Number(mean=7.0)
    features = Features(arm={"n": declared}).fit([{"n": 1.0}, {"n": 3.0}])
    assert features.arm["n"] == Number(mean=7.0, scale=1.0)


def test_a_constant_number_gets_the_scale_1() -> None:
    features = Features(arm={"n": "number"}).fit([{"n": 0.1}] * 7)
    column = features.arm["n"]
    assert isinstance(column, Number)
    assert column.mean == pytest.approx(0.1)
    assert column.scale == 1.0


def test_fitting_in_batches_equals_fitting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"n": rng.normal(1e6, 1.0, 1000), "c": rng.choice(list("abc"), 1000)})
    declared = Features(arm={"n": "number", "c": "category"})
    at_once = declared.fit(frame)
    monkeypatch.setattr("dyclu.data.tables.table.BATCH", 7)
    fitted = declared.fit(frame)
    column, exact = fitted.arm["n"], frame["n"].std(ddof=0)
    assert isinstance(column, Number)
    # Deviations are near 1 and numbers near 1e6, so rounding leaves ten digits.
    assert column.scale == pytest.approx(exact, rel=1e-9)
    assert column.mean == pytest.approx(frame["n"].mean(), rel=1e-12)
    assert fitted.arm["c"] == at_once.arm["c"]


def test_features_that_are_not_fitted_say_which_columns() -> None:
    features = Features(arm={"a": "number", "b": Category(values=("x",))})
    assert not features.fitted
    with pytest.raises(OptionError, match="not fitted: columns 'a'; call fit"):
        features.vectors([{"a": 1, "b": "x"}])
    with pytest.raises(OptionError, match="column 'a' has no values"):
        features.fit([{"a": None, "b": "x"}])
    with pytest.raises(OptionError, match="not fitted: reduce"):
        _ = Features(arm={"b": Category(values=("x",))}, reduce=1).dim


@pytest.fixture
def reduced() -> tuple[Features, pd.DataFrame]:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "c": rng.choice(list("abcd"), 400),
            "n": rng.normal(size=400),
            "k": rng.choice(list("uv"), 400),
        }
    )
    features = Features(
        arm={"c": "category", "n": "number"},
        context={"k": "category"},
        cross=[("k", "c")],
        reduce=6,
    )
    return features.fit(frame), frame


def test_reducing_keeps_the_directions_that_lose_least(
    reduced: tuple[Features, pd.DataFrame],
) -> None:
    features, frame = reduced
    raw = features.replaced(reduce=None, loadings=None, intercept=False).matrix(frame)
    vectors = features.matrix(frame)
    assert vectors.shape == (400, 7)
    kept = np.square(vectors[:, 1:]).sum()
    # Eckart and Young: no 6 directions keep more than the 6 largest singular values.
    values = np.linalg.svd(raw, compute_uv=False)
    assert kept == pytest.approx(np.square(values[:6]).sum())


def test_weights_in_names_give_the_same_rewards(reduced: tuple[Features, pd.DataFrame]) -> None:
    features, frame = reduced
    theta = np.random.default_rng(6).normal(size=features.dim)
    weights = {one.name: one.weight for one in features.explain(theta)}
    raw = features.replaced(reduce=None, loadings=None)
    by_name = np.array([weights[name] for name in raw.names])
    np.testing.assert_allclose(raw.matrix(frame) @ by_name, features.matrix(frame) @ theta)


def test_reasons_add_up_to_the_expected_reward(reduced: tuple[Features, pd.DataFrame]) -> None:
    features, _ = reduced
    theta = np.random.default_rng(7).normal(size=features.dim)
    arm, context = {"c": "b", "n": 0.7}, {"k": "u"}
    reasons = features.reasons(theta, arm, context)
    expected = features.vectors([arm], context)[0] @ theta
    assert sum(one.weight for one in reasons) == pytest.approx(expected)
    assert [abs(one.weight) for one in reasons] == sorted(
        (abs(one.weight) for one in reasons), reverse=True
    )
    with pytest.raises(ShapeError, match=r"theta has shape \(2,\), expected \(7,\)"):
        features.explain([1.0, 2.0])


def test_reducing_to_more_features_than_there_are_is_refused() -> None:
    with pytest.raises(OptionError, match="reduce is 5, and the columns make 1 features"):
        Features(arm={"n": "number"}, reduce=5).fit([{"n": 1.0}, {"n": 2.0}])


def test_saved_features_make_the_same_vectors(
    reduced: tuple[Features, pd.DataFrame], tmp_path: Path
) -> None:
    features, frame = reduced
    features.save(tmp_path / "features")
    back = Features.load(tmp_path / "features")
    assert back == features
    assert back.version == features.version
    np.testing.assert_array_equal(back.matrix(frame), features.matrix(frame))


def test_a_policy_and_its_features_share_one_file(shop: Features, tmp_path: Path) -> None:
    policy = dyclu.LinUCB(shop.dim)
    policy.learn("ana", shop.vectors(ARMS, CONTEXT)[0], 1.0)
    policy.save(tmp_path / "shop", features=shop)
    back, features = dyclu.load(tmp_path / "shop"), Features.load(tmp_path / "shop")
    assert features == shop
    arms = features.vectors(ARMS, CONTEXT)
    assert back.decide("ana", arms) == policy.decide("ana", arms)
    back.save(tmp_path / "alone")
    with pytest.raises(ForeignFile, match="LinUCB without features"):
        Features.load(tmp_path / "alone")


def test_arrays_of_a_policy_and_of_its_features_are_kept_apart(
    reduced: tuple[Features, pd.DataFrame], tmp_path: Path
) -> None:
    features, frame = reduced
    policy = dyclu.LinUCB(features.dim)
    policy.learn("ana", features.matrix(frame)[0], 1.0)
    policy.save(tmp_path / "both", features=features)
    assert Features.load(tmp_path / "both") == features
    arms = features.matrix(frame)[:5]
    assert dyclu.load(tmp_path / "both").decide("ana", arms) == policy.decide("ana", arms)


def test_a_policy_is_not_saved_with_features_of_another_dim(shop: Features, tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match=f"vectors of {shop.dim} numbers"):
        dyclu.LinUCB(3).save(tmp_path / "shop", features=shop)
    assert not (tmp_path / "shop").exists()


def test_features_with_impossible_contents_are_damaged(tmp_path: Path) -> None:
    options = {"arm": {"n": {"kind": "number", "mean": 0, "scale": 1}}, "reduce": 1}
    arrays = {"loadings": np.ones((3, 1))}
    storage.write(tmp_path / "file", storage.Saved("Features", options, {}, arrays))
    with pytest.raises(DamagedFile, match="makes no sense"):
        Features.load(tmp_path / "file")


def test_a_changed_declaration_says_what_is_incompatible(shop: Features, tmp_path: Path) -> None:
    changed = Features.of(
        SHOP
        | {
            "arm": {
                "genre": {"kind": "category", "values": ["jazz", "folk"]},
                "price": {"kind": "number", "mean": 11, "scale": 5, "missing": True},
                "size": {"kind": "number", "mean": 0, "scale": 1},
            },
            "cross": [["country", "genre"]],
        }
    )
    assert changed.version != shop.version
    assert set(shop.differences(changed)) == {
        "column 'tags' of the arm was removed",
        "column 'size' of the arm was added",
        "column 'genre' no longer has the value 'rock'",
        "column 'genre' has the new value 'folk'",
        "column 'price': mean was 10.0 and is 11.0",
        "cross was [['country', 'genre'], ['hour', 'price']] and is [['country', 'genre']]",
    }
    shop.save(tmp_path / "shop")
    with pytest.raises(OptionError, match=r"version \w{12} .* 'tags' of the arm was removed"):
        Features.load(tmp_path / "shop", expected=changed)


def test_what_a_declaration_leaves_open_is_no_difference(
    reduced: tuple[Features, pd.DataFrame], tmp_path: Path
) -> None:
    features, frame = reduced
    declared = Features(
        arm={"c": "category", "n": "number"},
        context={"k": "category"},
        cross=[("k", "c")],
        reduce=6,
    )
    assert features.differences(declared) == ()
    features.save(tmp_path / "features")
    assert Features.load(tmp_path / "features", expected=declared) == features
    elsewhere = declared.replaced(arm=features.arm, context=features.context).fit(frame[:200])
    assert features.differences(elsewhere) == (
        "reduce was fitted on another log, so its directions differ",
    )


def test_another_kind_or_order_is_a_difference() -> None:
    one = Features(arm={"a": Number(mean=0, scale=1), "b": Category(values=("x", "y"))})
    two = Features(arm={"b": Category(values=("y", "x")), "a": Number(mean=0, scale=1)})
    assert set(one.differences(two)) == {
        "the values of column 'b' are in another order",
        "the columns of the arm are in another order",
    }
    three = Features(arm={"a": Category(values=("x",)), "b": Category(values=("x", "y"))})
    assert one.differences(three) == ("column 'a' was a number and is a category",)


def test_declarations_survive_json(shop: Features) -> None:
    import json

    assert Features.of(json.loads(json.dumps(shop.declaration))) == shop
    assert hash(Features.of(shop.declaration)) == hash(shop)
