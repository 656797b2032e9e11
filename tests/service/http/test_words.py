"""What models are said to like: only what differs from the average beyond its deviation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dyclu import Atlas
from dyclu.data import Features
from dyclu.policy import Model
from dyclu.service.http.views.words import Tastes, tastes_of

SHOP = Features(
    arm={"genre": {"kind": "category", "values": ["jazz", "rock"], "other": False}},
    context={"country": {"kind": "category", "values": ["de", "fr"], "other": False}},
    cross=[("country", "genre")],
)


def model(id: int, size: int, estimate: list[float], variance: float | None) -> Model:
    covariance = None if variance is None else variance * np.eye(len(estimate))
    return Model(id, size, np.array(estimate), 1, 0, 0, covariance)


def told(taste: Tastes) -> set[str]:
    return {one.feature for side in taste for one in side}


@pytest.mark.parametrize(("far", "expected"), [(0.99, set()), (1.01, {"x0"})])
def test_a_difference_is_told_once_it_is_beyond_its_deviation(
    far: float, expected: set[str]
) -> None:
    # Two models of equal size: a difference from their average is half of theirs, with the variance
    # 0.04 (1/4 + 1/4). There are two features, so each has the level 1 − 0.025/2 on one side.
    bound = norm.ppf(1 - 0.0125) * np.sqrt(0.04 * 0.5)
    first, second = model(1, 50, [2 * far * bound, 0.0], 0.04), model(2, 50, [0.0, 0.0], 0.04)
    assert [told(one) for one in tastes_of([first, second], None)] == [expected, expected]


def test_models_of_policies_without_deviations_are_told_as_they_are() -> None:
    models = [model(1, 50, [1e-6, 0.0], None), model(2, 50, [0.0, 0.0], None)]
    assert [told(one) for one in tastes_of(models, None)] == [{"x0"}, {"x0"}]


def test_weights_do_not_depend_on_what_is_sure() -> None:
    """Sure models have the weights of models without deviations, in declared names."""
    rng = np.random.default_rng(0)
    estimates = rng.normal(size=(3, SHOP.dim)).tolist()
    plain = [model(i, 10 + i, one, None) for i, one in enumerate(estimates)]
    sure = [model(i, 10 + i, one, 1e-12) for i, one in enumerate(estimates)]
    assert tastes_of(sure, SHOP) == tastes_of(plain, SHOP)


def test_the_deviation_of_a_category_is_that_beside_its_other_values() -> None:
    """`genre=jazz` is told as itself plus the mean of its crosses, and judged beside `genre=rock`.

    Half of the difference of two values, each of variance 1 + 1/4 + 1/4: variance 3/4.
    """
    jazz, rock = SHOP.names.index("genre=jazz"), SHOP.names.index("genre=rock")
    estimate = np.zeros(SHOP.dim)
    # All features but the intercept are told.
    bound = norm.ppf(1 - 0.025 / (SHOP.dim - 1)) * np.sqrt(0.01 * 0.75 * 0.5)
    for far, expected in ((0.99, set[str]()), (1.01, {"genre=jazz", "genre=rock"})):
        estimate[jazz], estimate[rock] = 2 * far * bound, -2 * far * bound
        models = [model(1, 5, estimate.tolist(), 0.01), model(2, 5, [0.0] * SHOP.dim, 0.01)]
        assert told(tastes_of(models, SHOP)[0]) == expected


def test_what_all_values_of_a_category_have_in_common_does_not_hide_a_taste() -> None:
    """The sum of the values is unknown, as it is beside an intercept; their difference is known."""
    shop = Features(arm={"genre": {"kind": "category", "values": ["jazz", "rock"], "other": False}})
    unknown = 100.0 * np.outer([0, 1, 1], [0, 1, 1]) + 1e-4 * np.eye(3)
    models = [
        Model(id, 5, np.array([0.0, liking, -liking]), 1, 0, 0, unknown)
        for id, liking in ((1, 0.5), (2, -0.5))
    ]
    likes, dislikes = tastes_of(models, shop)[0]
    assert [(one.feature, one.weight) for one in likes] == [("genre=jazz", 0.5)]
    assert [(one.feature, one.weight) for one in dislikes] == [("genre=rock", -0.5)]


def test_a_value_that_was_never_seen_does_not_hide_a_taste() -> None:
    """Nothing is known of *other*, so it is not among the values that jazz is compared with."""
    shop = Features(arm={"genre": {"kind": "category", "values": ["jazz", "rock"]}})
    unknown = np.diag([1e-4, 1e-4, 1e-4, 100.0])
    models = [
        Model(id, 5, np.array([0.0, liking, -liking, 0.0]), 1, 0, 0, unknown)
        for id, liking in ((1, 0.5), (2, -0.5))
    ]
    assert [told(one) for one in tastes_of(models, shop)] == [{"genre=jazz", "genre=rock"}] * 2


def test_a_model_that_earns_more_with_every_value_is_not_said_to_like_them_all() -> None:
    shop = Features(arm={"genre": {"kind": "category", "values": ["jazz", "rock"], "other": False}})
    estimates = [0.0, 3.0, 2.0], [0.0, 0.0, 0.0]
    models = [model(id, 5, list(one), 1e-6) for id, one in enumerate(estimates)]
    likes, dislikes = tastes_of(models, shop)[0]
    # Half of the difference to the other model. Beside jazz, rock is liked less.
    assert [(one.feature, one.weight) for one in likes] == [("genre=jazz", 1.5)]
    assert dislikes == []


def test_nothing_is_told_of_a_model_that_nobody_follows_for_certain() -> None:
    followed, other = model(1, 5, [5.0, 0.0], 1e-6), model(2, 5, [0.0, 0.0], 1e-6)
    doubtful = replace(other, users=0)
    assert [told(one) for one in tastes_of([followed, doubtful], None)] == [{"x0"}, set()]


def test_one_model_alone_is_the_average() -> None:
    assert tastes_of([model(1, 5, [3.0, 1.0], 0.1)], None) == [([], [])]
    assert tastes_of([], None) == []


def test_features_that_matter_to_nobody_are_seldom_told_of_atlas() -> None:
    """Two tastes differ in x0; x1 and x2 are noise. At most 5 % of models may name them."""
    noise = named = total = 0
    for seed in range(4):
        rng, policy = np.random.default_rng(seed), Atlas(3)
        for _ in range(40):
            for user in range(16):
                x = rng.normal(size=3)
                liking = 1.0 if user % 2 else -1.0
                policy.learn(user, x, float(liking * x[0] + 0.3 * rng.normal()))
        found = tastes_of(policy.models, None)
        total += len(found)
        named += sum("x0" in told(one) for one in found)
        noise += sum(bool(told(one) & {"x1", "x2"}) for one in found)
    assert named == total >= 8
    assert noise <= 1
