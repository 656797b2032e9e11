"""Estimators against the enumeration of all logs of a tiny bandit: bias and variance are exact."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyclu.evaluate.estimators import THRESHOLDS, Sums, Terms
from dyclu.validation import FloatArray
from tests.unit.evaluate import tiny
from tests.unit.evaluate.tiny import CHANCES, KINDS, LOGGED, MODEL, POLICY, TRUTH, Visit

VISITS = 2
"""Rows of the enumerated logs: 12² = 144 of them."""


def sums_of(rows: list[Visit], model: FloatArray = MODEL, propensity: FloatArray = LOGGED) -> Sums:
    kind, arm, click = (np.array(column) for column in zip(*rows, strict=True))
    sums = Sums()
    terms = Terms(
        weight=POLICY[kind, arm] / propensity[kind, arm],
        reward=click.astype(float),
        expected=model[kind, arm],
        value=(POLICY * model).sum(axis=1)[kind],
    )
    sums.add(np.arange(len(rows)), terms)
    return sums


def value(
    rows: list[Visit], method: str, threshold: float = math.inf, model: FloatArray = MODEL
) -> float:
    return sums_of(rows, model).ratios(method, threshold).value


def variance(method: str, threshold: float = math.inf) -> float:
    mean = tiny.expectation(VISITS, lambda rows: value(rows, method, threshold))
    return tiny.expectation(VISITS, lambda rows: (value(rows, method, threshold) - mean) ** 2)


@pytest.mark.parametrize("method", ["ips", "dr"])
def test_ips_and_doubly_robust_have_no_bias_even_with_a_wrong_model(method: str) -> None:
    assert tiny.expectation(VISITS, lambda rows: value(rows, method)) == pytest.approx(TRUTH)


@pytest.mark.parametrize("method", ["dm", "dr", "switch"])
def test_with_the_right_model_there_is_no_bias_even_with_wrong_propensities(method: str) -> None:
    wrong = np.array([[0.2, 0.2, 0.6], [0.4, 0.3, 0.3]])

    def estimate(rows: list[Visit]) -> float:
        return sums_of(rows, CHANCES, wrong).ratios(method, THRESHOLDS[0]).value

    assert tiny.expectation(VISITS, estimate) == pytest.approx(TRUTH)


def test_the_bias_of_the_direct_method_is_that_of_its_model() -> None:
    bias = KINDS @ (POLICY * (MODEL - CHANCES)).sum(axis=1)
    assert abs(bias) > 0.01
    assert tiny.expectation(VISITS, lambda rows: value(rows, "dm")) == pytest.approx(TRUTH + bias)


def test_the_bias_of_switch_is_that_of_the_model_where_weights_are_heavy() -> None:
    heavy = THRESHOLDS[0] < POLICY / LOGGED
    assert heavy.any()
    bias = KINDS @ (POLICY * heavy * (MODEL - CHANCES)).sum(axis=1)
    mean = tiny.expectation(VISITS, lambda rows: value(rows, "switch", THRESHOLDS[0]))
    assert mean == pytest.approx(TRUTH + bias)


def test_switch_without_heavy_weights_is_doubly_robust() -> None:
    rows = tiny.drawn(50, seed=1)
    for threshold in (THRESHOLDS[-1], math.inf):
        assert value(rows, "switch", threshold) == pytest.approx(value(rows, "dr"))


def test_variances_are_those_of_the_formulas() -> None:
    """Of one row, by (E3) and (E5); a log of n rows has an n-th of it."""
    weight, spread = POLICY / LOGGED, CHANCES * (1 - CHANCES)
    shown = KINDS[:, None] * LOGGED
    second = (shown * weight**2 * CHANCES).sum()
    assert variance("ips") == pytest.approx((second - TRUTH**2) / VISITS)
    values = (POLICY * MODEL).sum(axis=1)[:, None] + weight * (CHANCES - MODEL)
    second = (shown * (values**2 + weight**2 * spread)).sum()
    assert variance("dr") == pytest.approx((second - TRUTH**2) / VISITS)


def test_the_bias_of_snips_is_of_order_one_over_n() -> None:
    """By (E4) it is −E[w²(r − V)] / n; 400,000 logs of 20 rows, within four standard errors."""
    weight, shown = POLICY / LOGGED, KINDS[:, None] * LOGGED
    expected = -float((shown * weight**2 * (CHANCES - TRUTH)).sum()) / 20
    rng = np.random.default_rng(3)
    cell = rng.choice(6, size=(400_000, 20), p=shown.ravel())
    click = rng.random(cell.shape) < CHANCES.ravel()[cell]
    w = weight.ravel()[cell]
    found = (w * click).sum(axis=1) / w.sum(axis=1)
    error = found.std() / math.sqrt(len(found))
    assert abs(expected) > 15 * error
    assert found.mean() - TRUTH == pytest.approx(expected, abs=4 * error)
    assert value([(0, 0, 1), (1, 1, 0)], "snips") == pytest.approx(0.2 / (0.2 + 3.5))


def test_estimators_of_a_log_of_the_policy_itself_are_its_mean() -> None:
    sums = Sums()
    reward = np.array([0.0, 1.0, 1.0, 5.0])
    sums.add(np.arange(4), Terms(np.ones(4), reward, np.full(4, 0.3), np.full(4, 0.3)))
    for method in ("ips", "snips", "dr", "switch"):
        assert sums.ratios(method).value == pytest.approx(reward.mean())
    assert (sums.largest, sums.squares, sums.unused) == (1.0, 4.0, 0)


def test_the_threshold_balances_variance_against_the_bound_of_the_bias() -> None:
    """One row in a thousand has weight 600 and an unexpected reward."""
    rng = np.random.default_rng(0)
    weight = np.where(np.arange(5000) % 1000 == 0, 600.0, rng.uniform(0.2, 0.6, 5000))
    reward = rng.normal(size=5000)
    sums = Sums()
    sums.add(np.arange(5000), Terms(weight, reward, np.zeros(5000), np.zeros(5000)))
    # Bias up to 0.6 times the span of rewards; the standard error without threshold is 0.27.
    assert sums.threshold(span=0.1) == THRESHOLDS[0]
    assert sums.threshold(span=10.0) == math.inf


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(-3, 3), st.floats(-3, 3)), min_size=1),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_sums_depend_neither_on_the_order_of_rows_nor_on_chunks(
    rows: list[tuple[float, float, float]], users: int, random: Random
) -> None:
    weight, reward, expected = np.array(rows).T
    terms = np.stack([weight, reward, expected, expected / 2])
    groups = np.arange(len(rows)) % users
    whole, parts = Sums(), Sums()
    whole.add(groups, Terms(*terms))
    order = list(range(len(rows)))
    random.shuffle(order)
    for part in np.array_split(np.array(order), 3):
        parts.add(groups[part], Terms(*terms[:, part]))
    for method in ("dm", "ips", "dr", "switch"):
        assert parts.numerator(method, 5.0) == pytest.approx(whole.numerator(method, 5.0))
    assert (parts.largest, parts.unused) == (whole.largest, whole.unused)


@given(st.floats(-5, 5), st.floats(0.1, 4))
def test_snips_and_doubly_robust_follow_a_shift_and_a_scale_of_rewards(
    shift: float, scale: float
) -> None:
    """IPS does not follow a shift: that is why it is not used for verdicts."""
    rows = tiny.drawn(40, seed=2)
    kind, arm, click = (np.array(column) for column in zip(*rows, strict=True))
    weight = POLICY[kind, arm] / LOGGED[kind, arm]
    plain, moved = Sums(), Sums()
    q, v = MODEL[kind, arm], (POLICY * MODEL).sum(axis=1)[kind]
    plain.add(np.arange(40), Terms(weight, click.astype(float), q, v))
    moved.add(
        np.arange(40),
        Terms(weight, scale * click + shift, scale * q + shift, scale * v + shift),
    )
    for method in ("snips", "dr"):
        expected = scale * plain.ratios(method).value + shift
        assert moved.ratios(method).value == pytest.approx(expected, abs=1e-9)
