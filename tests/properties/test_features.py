"""Features: the ways to a vector agree, and so do the ways back to names and to disk."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dyclu.data import Category, Features, Number, Text

GENRES = st.none() | st.sampled_from(["jazz", "rock", "folk", "", "ünï"])
YEARS = st.none() | st.integers(-3, 3)
PRICES = st.none() | st.floats(-1e30, 1e30) | st.integers(-5, 5)
TAGS = st.none() | st.lists(st.sampled_from(["live", "loud", "new", "old"]), max_size=3)
COUNTRIES = st.none() | st.sampled_from(["de", "fr", "it"])
HOURS = st.none() | st.floats(0, 24)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "genre": GENRES,
            "year": YEARS,
            "price": PRICES,
            "tags": TAGS,
            "country": COUNTRIES,
            "hour": HOURS,
        }
    ),
    min_size=1,
    max_size=8,
)
FLAGS = st.booleans()


@st.composite
def declarations(draw: st.DrawFn) -> Features:
    """Draw complete features of all kinds of columns and crosses."""
    pairs = st.sampled_from([("country", "genre"), ("hour", "price"), ("country", "tags")])
    positive = st.floats(0.1, 10)
    genre = Category(values=("jazz", "rock"), other=draw(FLAGS), alone=draw(FLAGS))
    return Features(
        arm={
            "price": Number(mean=draw(st.floats(-5, 5)), scale=draw(positive), missing=draw(FLAGS)),
            "genre": draw(st.sampled_from([genre, Category(hashed=3)])),
            "year": Category(values=("1", "-2"), other=draw(FLAGS)),
            "tags": Text(values=("live", "loud"), other=draw(FLAGS)),
        },
        context={
            "hour": Number(mean=12, scale=draw(positive), alone=draw(FLAGS)),
            "country": Category(values=("de", "fr"), other=draw(FLAGS)),
        },
        cross=draw(st.lists(pairs, unique=True)),
        intercept=draw(FLAGS),
    )


def one_by_one(features: Features, rows: list[dict[str, Any]]) -> Any:
    return np.concatenate([features.vectors([row], row) for row in rows])


@given(declarations(), ROWS)
def test_dicts_and_lists_of_dicts_give_the_same_vectors(
    features: Features, rows: list[dict[str, Any]]
) -> None:
    np.testing.assert_array_equal(features.matrix(rows), one_by_one(features, rows))


def cell_by_cell(features: Features, row: dict[str, Any]) -> list[float]:
    """Return the vector of a row as docs/guide/features.md describes it, one cell after another."""
    blocks: dict[str, list[float]] = {}
    for name, column in {**features.arm, **features.context}.items():
        value = row[name]
        if isinstance(column, Number):
            assert column.mean is not None
            assert column.scale is not None
            scaled = 0.0 if value is None else (value - column.mean) / column.scale
            marks = [float(value is None)] if column.missing else []
            blocks[name] = [max(min(scaled, column.clip), -column.clip), *marks]
        elif isinstance(column, Category) and column.hashed is not None:
            bucket = None if value is None else crc32(str(value).encode()) % column.hashed
            blocks[name] = [float(place == bucket) for place in range(column.hashed)]
        else:
            held = value if isinstance(column, Text) else [value]
            labels = [str(one) for one in held or [] if one is not None]
            values = column.values or ()
            blocks[name] = [float(one in labels) for one in values]
            blocks[name] += [float(not {*labels} <= {*values})] if column.other else []
    kinds: list[tuple[type, int | None]] = [(Number, 0), (Number, 1)]
    kinds += [(Category, None), (Text, None)]
    sides = [
        [
            number
            for kind, which in kinds
            for name, column in side.items()
            if isinstance(column, kind) and column.alone
            for number in (blocks[name] if which is None else blocks[name][which : which + 1])
        ]
        for side in (features.arm, features.context)
    ]
    products = [
        theirs * ours
        for one, other in features.declaration["cross"]
        for theirs in blocks[one]
        for ours in blocks[other]
    ]
    return [1.0] * features.declaration["intercept"] + sides[0] + sides[1] + products


@given(declarations(), ROWS)
def test_vectors_are_those_of_the_declaration_bit_for_bit(
    features: Features, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        expected = np.array([cell_by_cell(features, row)])
        # The second time, combinations of categories come from memory.
        for _ in range(2):
            np.testing.assert_array_equal(features.vectors([row], row), expected)


@given(declarations(), ROWS)
def test_frames_give_the_vectors_of_dicts(features: Features, rows: list[dict[str, Any]]) -> None:
    rows = [row | {"price": None if row["price"] is None else float(row["price"])} for row in rows]
    expected = one_by_one(features, rows)
    schema: dict[str, Any] = {
        "genre": pl.String,
        "year": pl.Int64,
        "price": pl.Float64,
        "tags": pl.List(pl.String),
        "country": pl.String,
        "hour": pl.Float64,
    }
    frame = pl.DataFrame(rows, schema=schema)
    tables: list[Any] = [frame, frame.to_arrow(), pd.DataFrame(rows), pa.Table.from_pylist(rows)]
    for table in tables:
        np.testing.assert_array_equal(features.matrix(table), expected)


@given(declarations(), ROWS)
def test_arms_of_one_decision_do_not_depend_on_each_other(
    features: Features, rows: list[dict[str, Any]]
) -> None:
    context = rows[0]
    together = features.vectors(rows, context)
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_array_equal(features.vectors([row], context)[0], vector)
    np.testing.assert_array_equal(features.vectors(rows, context), together)


@given(declarations(), ROWS)
def test_a_catalogue_gives_the_vectors_of_dicts(
    features: Features, rows: list[dict[str, Any]]
) -> None:
    catalogue = features.catalogue([row | {"id": i} for i, row in enumerate(rows)], id="id")
    ids = list(range(len(rows)))[::-1]
    expected = features.vectors(rows[::-1], rows[0])
    np.testing.assert_array_equal(catalogue.vectors(ids, rows[0]), expected)


@given(declarations(), ROWS)
def test_saved_features_are_the_same(features: Features, rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        features.save(Path(folder, "features"))
        back = Features.load(Path(folder, "features"), expected=features)
    assert back == features
    assert Features.of(json.loads(json.dumps(features.declaration))) == features
    np.testing.assert_array_equal(one_by_one(back, rows), one_by_one(features, rows))


@given(declarations(), ROWS, st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_weights_by_name_predict_what_vectors_predict(
    features: Features, rows: list[dict[str, Any]], seed: int, reduce: int
) -> None:
    rng = np.random.default_rng(seed)
    width = features.replaced(intercept=False).dim
    reduced = features.replaced(reduce=reduce, loadings=rng.normal(size=(width, reduce)))
    for one in (features, reduced):
        theta = rng.normal(size=one.dim)
        for row in rows:
            expected = float(one.vectors([row], row)[0] @ theta)
            reasons = one.reasons(theta, row, row)
            # Features are at most 100 (a product of two clipped ones), and there are some dozens.
            np.testing.assert_allclose(sum(r.weight for r in reasons), expected, atol=1e-9)
    assert sorted(w.name for w in reduced.explain(np.ones(reduced.dim))) == sorted(
        features.raw_names
    )


@given(ROWS)
def test_fitted_features_have_mean_zero_and_deviation_one(rows: list[dict[str, Any]]) -> None:
    hours = [row["hour"] for row in rows if row["hour"] is not None]
    if len(set(hours)) < 2 or np.std(hours) < 1e-3:
        return
    features = Features(arm={"hour": Number(clip=100.0)}, intercept=False).fit(rows)
    values = features.matrix([row for row in rows if row["hour"] is not None])
    np.testing.assert_allclose(values.mean(), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(), 1, rtol=1e-6)
