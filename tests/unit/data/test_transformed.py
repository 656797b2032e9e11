from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dyclu.data import Features, Log, Transformed
from dyclu.errors import OptionError, ShapeError

ITEMS = pd.DataFrame(
    {"item": list("abcd"), "genre": ["x", "y", "x", "z"], "price": [1.0, 2.0, 4.0, 5.0]}
)
ROWS = [
    {"who": "ana", "y": 1, "item": "b", "offered": ["a", "b", "d"], "price": 0.0},
    {"who": "ben", "y": 0, "item": "c", "offered": ["c"], "price": 0.0},
]


def transformer(**options: Any) -> Any:
    made = make_column_transformer(
        (StandardScaler(), ["price"]), (OneHotEncoder(**options), ["genre"]), sparse_threshold=0
    )
    return made.fit(ITEMS)


def read(features: Any) -> Log:
    return Log.read(
        ROWS,
        user="who",
        reward="y",
        arm="item",
        offered="offered",
        items=ITEMS,
        features=features,
    )


def test_a_transformer_gives_the_log_that_features_give() -> None:
    stand_in = Transformed(transformer(), arm=["genre", "price"], frame=pd.DataFrame, dim=4)
    declared = {"kind": "category", "values": ["x", "y", "z"], "other": False}
    features = Features(arm={"price": "number", "genre": declared}, intercept=False)
    (ours,), (theirs,) = read(stand_in).chunks(), read(features).chunks()
    np.testing.assert_allclose(ours.arms, theirs.arms)
    assert ours.counts.tolist() == theirs.counts.tolist() == [3, 1]


def test_a_transformer_gives_the_vectors_of_a_decision() -> None:
    stand_in = Transformed(
        transformer(), arm=["genre"], context=["price"], frame=pd.DataFrame, dim=4
    )
    vectors = stand_in.vectors([{"genre": "z"}, {"genre": "x"}], {"price": 3.0})
    np.testing.assert_allclose(vectors, [[0, 0, 0, 1], [0, 1, 0, 0]], atol=1e-12)
    (chunk,) = read(stand_in).chunks()
    assert chunk.arms.shape == (2, 3, 4)
    assert chunk.arms[0, :, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_a_matrix_of_another_shape_or_kind_is_refused() -> None:
    wrong = Transformed(transformer(), arm=["genre", "price"], frame=pd.DataFrame, dim=5)
    with pytest.raises(ShapeError, match=r"matrix of shape \(1, 4\), expected \(rows, 5\)"):
        wrong.vectors([{"genre": "x", "price": 1.0}])
    sparse = OneHotEncoder().fit(ITEMS[["genre"]])
    stand_in = Transformed(sparse, arm=["genre"], frame=pd.DataFrame, dim=3)
    with pytest.raises(OptionError, match="expected an array; pass sparse_output=False"):
        stand_in.vectors([{"genre": "x"}])
