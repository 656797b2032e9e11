"""`compare`, end to end: estimates, overlap, verdicts, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyclu import LinUCB, Policy, Uniform
from dyclu.data import Chunk, Log
from dyclu.errors import NumberError, OptionError, ShapeError
from dyclu.evaluate import Interval, compare, frozen, uniform
from dyclu.evaluate.estimators import METHODS
from dyclu.evaluate.groups import UserGroups
from dyclu.evaluate.intervals import UNBOUNDED
from dyclu.evaluate.propensities import ChoiceModel
from dyclu.evaluate.reward_model import FOLDS, RewardModel
from dyclu.policies import make
from dyclu.validation import FloatArray
from tests.unit.evaluate import tiny
from tests.unit.evaluate.tiny import CHANCES, KINDS, LOGGED, POLICY, TRUTH

LOG = tiny.log_of(tiny.drawn(6_000, seed=11))
BEST = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
WORST = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def best(chunk: Chunk) -> FloatArray:
    return np.asarray(BEST[tiny.kinds(chunk)])


def worst(chunk: Chunk) -> FloatArray:
    return np.asarray(WORST[tiny.kinds(chunk)])


def changed(log: Log, **columns: Any) -> Log:
    """Return a log with other columns."""

    def read() -> Iterator[Chunk]:
        start = 0
        for chunk in log.chunks():
            stop = start + len(chunk)
            parts: dict[str, Any] = {name: it[start:stop] for name, it in columns.items()}
            yield replace(chunk, **parts)
            start = stop

    return Log(read, dim=log.dim, rows=log.rows)


def test_every_unbiased_estimator_holds_the_truth() -> None:
    found = compare(LOG, {"policy": tiny.policy})["policy"]
    for method in ("ips", "snips", "dr", "switch"):
        assert TRUTH in found.estimates[method].interval
    for method in ("ips", "dr", "switch"):
        assert TRUTH in (found.estimates[method].bernstein or ())
    assert found.estimates["dm"].bernstein is None
    assert list(found.estimates) == list(METHODS)


def test_with_a_given_model_the_estimate_is_the_formula() -> None:
    chunk = next(LOG.chunks())
    kind, rows = tiny.kinds(chunk), np.arange(len(chunk))
    weight = POLICY[kind, chunk.chosen] / LOGGED[kind, chunk.chosen]
    q = tiny.MODEL[kind]
    value = (POLICY[kind] * q).sum(axis=1) + weight * (chunk.reward - q[rows, chunk.chosen])
    found = compare(LOG, {"policy": tiny.policy}, model=tiny.model)["policy"]
    assert found.best.value == pytest.approx(value.mean())
    assert found.overlap.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert found.overlap.largest == weight.max()
    assert found.overlap.unused == pytest.approx((weight == 0).mean())
    assert found.overlap.mean_weight.value == pytest.approx(weight.mean())


def test_better_and_worse_than_the_log_are_told_and_ranked() -> None:
    found = compare(LOG, {"worst": worst, "best": best})
    assert found["best"].verdict.endswith("more than what was logged.")
    assert found["worst"].verdict.endswith("less than what was logged.")
    assert found.verdict == "best earns more than worst."
    assert found.propensities == "logged"
    difference = KINDS @ ((WORST - BEST) * CHANCES).sum(axis=1)
    assert difference in found.differences["worst", "best"].interval


def test_two_policies_of_equal_value_are_not_ranked() -> None:
    """Visits of the second kind: 0.3 for sure, or 0.1 with chance 60 % and 0.6 with chance 40 %."""
    first = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    second = np.array([[0.0, 0.0, 1.0], [0.6, 0.4, 0.0]])
    targets = {
        "first": lambda chunk: first[tiny.kinds(chunk)],
        "second": lambda chunk: second[tiny.kinds(chunk)],
    }
    found = compare(LOG, targets)
    assert not found["first"].problems
    assert not found["second"].problems
    assert "The log cannot rank" in found.verdict


def test_with_more_pairs_the_intervals_of_differences_are_longer() -> None:
    """Three pairs and three gains: each has the level 1 − 0.05/6, so that all hold together."""
    small = tiny.log_of(tiny.drawn(500, seed=22))
    one = compare(small, {"best": best, "worst": worst}).differences["best", "worst"]
    three = compare(small, {"best": best, "worst": worst, "any": uniform}).differences
    assert len(three) == 3
    assert three["best", "worst"].value == one.value
    assert three["best", "worst"].interval.low < one.interval.low
    assert three["best", "worst"].interval.high > one.interval.high


def test_evaluating_the_logging_policy_itself_finds_no_gain() -> None:
    found = compare(LOG, {"log": lambda chunk: LOGGED[tiny.kinds(chunk)]})
    assert found["log"].overlap.effective == pytest.approx(6_000)
    assert "cannot tell it from what was logged" in found["log"].verdict
    assert found["log"].estimates["ips"].value == pytest.approx(found.logged.value)


def test_a_log_without_exploration_is_refused_a_verdict() -> None:
    """The first arm always, with propensity 1: nothing is known of the others."""
    rows = [(kind, 0, click) for kind, _, click in tiny.drawn(1_000, 13)]
    log = changed(tiny.log_of(rows), propensity=np.ones(1_000))
    found = compare(log, {"best": best, "first": lambda chunk: np.eye(3)[[0] * len(chunk)]})
    assert found["best"].overlap.missing == pytest.approx(0.75, abs=0.05)
    assert found["best"].verdict.startswith("The log cannot say what best earns: the log never")
    assert not found["first"].problems
    assert found.verdict == "The log cannot rank best."


def test_a_policy_that_never_chooses_what_was_shown_has_no_snips() -> None:
    rows = [(kind, 0, click) for kind, _, click in tiny.drawn(200, 14)]
    log = changed(tiny.log_of(rows), propensity=np.ones(200))
    found = compare(log, {"second": lambda chunk: np.eye(3)[[1] * len(chunk)]})["second"]
    assert "snips" not in found.estimates
    assert found.overlap.effective == 0
    assert found.problems


def test_wrong_propensities_are_noticed() -> None:
    chunk = next(LOG.chunks())
    assert chunk.propensity is not None
    found = compare(changed(LOG, propensity=chunk.propensity / 2), {"policy": tiny.policy})
    assert "propensities contradict the log" in found["policy"].verdict


def test_few_users_and_few_effective_rows_are_refused_a_verdict() -> None:
    users = np.array([i % 5 for i in range(6_000)], dtype=object)
    found = compare(changed(LOG, user=users), {"best": best})["best"]
    assert found.problems[0] == "only 5 users, at least 20 are needed"
    small = compare(tiny.log_of(tiny.drawn(60, 15)), {"best": best})["best"]
    assert "count like" in small.verdict


def test_rows_of_one_user_do_not_count_as_independent() -> None:
    """Every visit ten times: the interval must not shrink."""
    rows = tiny.drawn(400, 16)
    users = np.array([i // 10 for i in range(4_000)], dtype=object)
    tenfold = changed(tiny.log_of([row for row in rows for _ in range(10)]), user=users)
    one, ten = (
        compare(log, {"p": tiny.policy}, model=tiny.model)["p"].best
        for log in (tiny.log_of(rows), tenfold)
    )
    assert ten.value == pytest.approx(one.value)
    assert ten.interval.high - ten.interval.low == pytest.approx(
        one.interval.high - one.interval.low, rel=1e-9
    )


def test_results_do_not_depend_on_chunks() -> None:
    whole = next(LOG.chunks())

    def read() -> Iterator[Chunk]:
        for start in range(0, len(whole), 700):
            yield whole.part(start, start + 700)

    parts = compare(Log(read, dim=LOG.dim, rows=None), {"p": tiny.policy})["p"]
    once = compare(LOG, {"p": tiny.policy})["p"]
    for method in METHODS:
        assert parts.estimates[method].value == pytest.approx(once.estimates[method].value)
        assert parts.estimates[method].interval.low == pytest.approx(
            once.estimates[method].interval.low
        )


def test_a_row_is_never_predicted_by_a_model_that_saw_its_user() -> None:
    """Changing one user's rewards changes no prediction of this user."""
    chunk, groups = next(LOG.chunks()), UserGroups()
    before = RewardModel.fitted(LOG, groups).rewards(chunk, groups.of(chunk.user))
    reward = chunk.reward.copy()
    reward[0] = 1 - reward[0]
    after = RewardModel.fitted(changed(LOG, reward=reward), groups)
    predicted = after.rewards(chunk, groups.of(chunk.user))
    same_fold = np.arange(len(chunk)) % FOLDS == 0
    assert np.array_equal(predicted[same_fold], before[same_fold])
    assert not np.array_equal(predicted[~same_fold], before[~same_fold])


def softmax_log(rows: int, weights: FloatArray, seed: int) -> tuple[Log, FloatArray]:
    rng = np.random.default_rng(seed)
    arms, counts = rng.normal(size=(rows, 5, 3)), rng.integers(2, 6, rows)
    levels = np.where(np.arange(5) < counts[:, None], arms @ weights, -np.inf)
    levels -= levels.max(axis=1, keepdims=True)
    chances = np.exp(levels) / np.exp(levels).sum(axis=1, keepdims=True)
    chosen = (chances.cumsum(axis=1) < rng.random(rows)[:, None]).sum(axis=1)
    arms[np.arange(5) >= counts[:, None]] = 0.0
    log = Log.of_arrays(
        user=range(rows), arms=arms, chosen=chosen, reward=rng.random(rows), counts=counts
    )
    return log, chances


def test_estimated_propensities_are_those_of_a_softmax() -> None:
    """20,000 choices: standard errors of the weights are near 0.01."""
    weights = np.array([1.0, -0.5, 0.0])
    log, chances = softmax_log(20_000, weights, 17)
    model = ChoiceModel.fitted(log)
    assert model.weights == pytest.approx(weights, abs=0.05)
    found = np.concatenate([model.chances(chunk) for chunk in log.chunks()])
    assert np.abs(found - chances).max() < 0.03


def test_choices_that_can_be_predicted_have_finite_weights() -> None:
    log, _ = softmax_log(300, np.array([300.0, 0.0, 0.0]), 18)
    assert np.isfinite(ChoiceModel.fitted(log).weights).all()


def test_a_log_without_propensities_gets_estimated_ones_and_says_so() -> None:
    log, _ = softmax_log(3_000, np.array([1.0, -0.5, 0.0]), 19)
    found = compare(log, {"uniform": uniform})
    assert found.propensities == "estimated"
    assert 1 in found["uniform"].overlap.mean_weight.interval
    assert 0.5 in found["uniform"].best.interval
    with pytest.raises(OptionError, match="the log has no propensities"):
        compare(log, {"uniform": uniform}, propensities="logged")
    with pytest.raises(OptionError, match="propensities is 'none'"):
        compare(log, {"uniform": uniform}, propensities="none")


def test_a_frozen_policy_chooses_as_it_does_and_learns_nothing() -> None:
    log, _ = softmax_log(200, np.zeros(3), 20)
    policy = LinUCB(3, alpha=0.3)
    policy.learn("ana", [1.0, 0.0, 0.0], 1.0)
    chunk = next(log.chunks())
    table = np.asarray(frozen(policy, epsilon=0.2)(chunk))
    for row in range(200):
        count = chunk.counts[row]
        expected = np.zeros(5)
        expected[:count] = 0.2 / count
        expected[policy.decide(chunk.user[row], chunk.arms[row, :count]).arm] += 0.8
        assert table[row] == pytest.approx(expected)
    assert policy.users == ("ana",)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.full((6_000, 3), 0.5), OptionError, "policy 'bad', row 0 of a chunk"),
        (np.tile([1.5, -0.5, 0.0], (6_000, 1)), OptionError, "numbers ≥ 0"),
        (np.full((6_000, 3), np.nan), NumberError, "probabilities of 'bad'"),
        (np.ones((6_000, 2)) / 2, ShapeError, "of shape"),
    ],
)
def test_wrong_probabilities_are_refused(
    table: FloatArray, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compare(LOG, {"bad": lambda chunk: table})


def test_probability_on_an_arm_that_is_not_offered_is_refused() -> None:
    log, _ = softmax_log(100, np.zeros(3), 21)
    with pytest.raises(OptionError, match="offered arms that sum to 1"):
        compare(log, {"padding": lambda chunk: np.full((100, 5), 0.2)})


def test_wrong_options_and_empty_logs_are_refused() -> None:
    with pytest.raises(OptionError, match="policies is empty"):
        compare(LOG, {})
    with pytest.raises(OptionError, match="level is 1"):
        compare(LOG, {"p": tiny.policy}, level=1.0)
    with pytest.raises(OptionError, match="replicates is 5"):
        compare(LOG, {"p": tiny.policy}, replicates=5)
    with pytest.raises(OptionError, match="the log is empty"):
        compare(Log(lambda: iter(()), dim=4, rows=0), {"p": tiny.policy})
    with pytest.raises(ShapeError, match="this policy was built for 2"):
        compare(LOG, {"p": frozen(LinUCB(2))})
    with pytest.raises(ShapeError, match="the model of rewards gave shape"):
        compare(LOG, {"p": tiny.policy}, model=lambda chunk: chunk.reward)


def test_with_more_policies_the_interval_of_a_gain_is_longer() -> None:
    small = tiny.log_of(tiny.drawn(500, seed=22))
    one = compare(small, {"best": best})["best"]
    three = compare(small, {"best": best, "worst": worst, "any": uniform})["best"]
    assert three.best.interval == one.best.interval
    assert three.gain.value == one.gain.value
    assert three.gain.interval.low < one.gain.interval.low
    assert three.gain.interval.high > one.gain.interval.high


def test_gains_and_differences_have_enough_resamples_for_their_level() -> None:
    """Six comparisons at 95 % need 5 / (0.025 / 6) = 1,200 resamples; the default is 1,000."""
    small = tiny.log_of(tiny.drawn(500, seed=22))
    policies = {"best": best, "worst": worst, "any": uniform}
    by_default, given = (compare(small, policies, replicates=count) for count in (1_000, 1_200))
    assert by_default["best"].gain == given["best"].gain
    assert by_default.differences == given.differences


def test_too_many_comparisons_are_not_ranked_and_the_verdict_says_why() -> None:
    """Ten policies are 55 comparisons, which need 5 / (0.025 / 55) = 11,000 resamples."""
    small = tiny.log_of(tiny.drawn(300, seed=22))
    found = compare(small, {**dict.fromkeys("abcde", best), **dict.fromkeys("fghij", worst)})
    assert found.verdict == (
        "Nothing is ranked: 55 comparisons need 11,000 resamples; compare fewer policies, or pass "
        "replicates=11000."
    )
    assert found.differences["a", "f"].interval == UNBOUNDED
    assert "cannot tell it from what was logged" in found["a"].verdict


def test_a_level_that_resamples_cannot_give_is_refused() -> None:
    with pytest.raises(OptionError, match=r"level is 0.9999, .* or replicates=100000"):
        compare(LOG, {"p": tiny.policy}, level=0.9999)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_log_with_equal_clicks_cannot_say_and_bernstein_keeps_its_width(reward: float) -> None:
    """Whether a click occurred in 1,000 rows does not make clicks impossible, or certain."""
    log = changed(tiny.log_of(tiny.drawn(1_000, 23)), reward=np.full(1_000, reward))
    found = compare(log, {"policy": tiny.policy, "any": uniform})
    assert found["policy"].problems == (
        "too few different rewards where the policy agrees with the log",
    )
    assert found["policy"].verdict.startswith("The log cannot say what policy earns")
    assert found.verdict == "The log cannot rank policy, any."
    assert found["policy"].best.interval == Interval(0.0, 1.0)
    for method in ("ips", "dr", "switch"):
        sure = found["policy"].estimates[method].bernstein
        assert sure is not None
        assert sure.high - sure.low > 0.01


def test_equal_rewards_that_are_no_clicks_have_no_bernstein_interval() -> None:
    log = changed(tiny.log_of(tiny.drawn(300, 23)), reward=np.full(300, 2.5))
    estimates = compare(log, {"policy": tiny.policy})["policy"].estimates
    assert [estimates[method].bernstein for method in ("ips", "dr", "switch")] == [None] * 3


def test_a_bound_below_an_observed_weight_is_refused() -> None:
    """The largest weight is 0.8 / 0.2."""
    with pytest.raises(OptionError, match=r"bound is 3\.9, but a row has the weight 4 with"):
        compare(LOG, {"policy": tiny.policy}, bound=3.9)
    found = compare(LOG, {"policy": tiny.policy}, bound=4.0)
    assert found["policy"] == compare(LOG, {"policy": tiny.policy})["policy"]


def test_a_log_of_shown_arms_alone_is_refused() -> None:
    log = Log.of_arrays(
        user=range(100), arms=np.ones((100, 1, 2)), chosen=np.zeros(100, int),
        reward=np.arange(100) % 2.0, propensity=np.full(100, 0.5),
    )  # fmt: skip
    with pytest.raises(OptionError, match="only the shown arm is known"):
        compare(log, {"uniform": uniform})


@pytest.mark.parametrize("policy", [Uniform(4), make("adts", 4)])
def test_a_policy_that_chooses_at_random_cannot_be_frozen(policy: Policy) -> None:
    with pytest.raises(OptionError, match=r"chooses at random .* `uniform`.* `replay`"):
        compare(LOG, {"random": frozen(policy)})
