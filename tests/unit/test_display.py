"""What notebooks show: tables that are well formed, name what counts, and escape what is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dyclu
from dyclu.data import Features, Transformed
from dyclu.evaluate import Comparison, UserTotals, compare, lift, replay
from dyclu.policies import make, names
from dyclu.sim import Population, play, summary

HOSTILE = "<script>alert('x')</script>&"


def cells(shown: Any) -> dict[str, list[str]]:
    """Return the cells of a shown value, by the head of their row; it must be well formed."""
    table = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
    return {row[0].text or "": [cell.text or "" for cell in row[1:]] for row in table.iter("tr")}


@pytest.mark.parametrize("name", names())
def test_every_policy_is_shown_with_its_options_and_what_it_has_learnt(name: str) -> None:
    policy = make(name, 2)
    before = repr(policy)
    policy.learn(HOSTILE, [1.0, 0.0], 1.0)
    found = cells(policy)
    assert found["dim"] == ["2"]
    assert found["users"] == [str(len(policy.users))]
    assert found["changes"] == ["0"]
    assert repr(policy) == before


def test_a_decision_is_shown_with_its_user_escaped() -> None:
    decision = dyclu.LinUCB(2).decide(HOSTILE, np.eye(2))
    assert "<script>" not in decision._repr_html_()
    assert cells(decision)["user"] == [HOSTILE]
    assert cells(decision)["arm"] == ["0"]


def test_an_outcome_is_shown_with_its_user_escaped() -> None:
    outcome = dyclu.DyClu(2).learn(HOSTILE, [1.0, 0.0], 0.5)
    assert "<script>" not in outcome._repr_html_()
    assert cells(outcome) == {
        "user": [HOSTILE], "surprised": ["False"], "changed": ["False"], "segment": ["0"]
    }  # fmt: skip


def test_a_slate_is_shown_with_one_row_per_slot() -> None:
    slate = dyclu.LinUCB(2).decide(HOSTILE, np.eye(2), slots=2)
    assert "<script>" not in slate._repr_html_()
    shown = cells(slate)
    assert shown["slot"] == ["arm", "mean", "width", "propensity"]
    assert [shown["1"][0], shown["2"][0]] == [str(arm) for arm in slate.arms]


def test_warnings_of_a_policy_are_shown_below_its_table() -> None:
    policy = dyclu.DyClu(1)
    rng = np.random.default_rng(0)
    for i in range(4_000):
        policy.learn(i % 20, [1.0], float(rng.random() < 0.05))
    assert policy.warnings
    assert all(warning[:40] in policy._repr_html_() for warning in policy.warnings)


def log() -> dyclu.Log:
    return dyclu.Log.of_arrays(
        user=range(400),
        arms=np.tile(np.eye(2), (400, 1, 1)),
        chosen=[0, 0, 1, 1] * 100,
        reward=[0.0, 0.0, 0.0, 1.0] * 100,
        propensity=np.full(400, 0.5),
    )


def compared() -> Comparison:
    second = np.array([0.0, 1.0])
    return compare(log(), {HOSTILE: lambda chunk: np.tile(second, (len(chunk), 1))})


def test_a_comparison_is_shown_with_estimates_intervals_and_verdict() -> None:
    found = compared()
    shown = cells(found)
    assert list(shown) == ["the log", HOSTILE]
    assert shown[HOSTILE][0] == f"{found[HOSTILE].best.value:.4g}"
    assert " to " in shown[HOSTILE][1]
    assert "<p>" in found._repr_html_()


def test_an_evaluation_is_shown_with_all_estimates_and_its_verdict() -> None:
    found = compared()[HOSTILE]
    assert "<script>" not in found._repr_html_()
    shown = cells(found)
    assert list(shown) == [*found.estimates, "gain over the log", "effective rows"]
    assert shown["dr"][0] == f"{found.best.value:.4g}"
    assert shown["effective rows"] == [f"{found.overlap.effective:.4g}", "of 400"]


def test_a_replay_is_shown_with_its_rounds_and_verdict() -> None:
    found = replay(log(), dyclu.LinUCB(2, shared=True))
    shown = cells(found)
    assert shown["rounds"] == [str(found.accepted), "of 400 rows"]
    assert shown["accepted rounds"][0] == f"{found.estimate.value:.4g}"
    assert found.verdict[:40] in found._repr_html_()


def test_a_lift_is_shown_with_its_interval_and_whether_the_groups_differ() -> None:
    def of(chance: float) -> tuple[Any, Any]:
        group = UserTotals()
        group.add([f"u{i % 500}" for i in range(20_000)], np.arange(20_000) % 100 < 100 * chance)
        return group.counts, group.totals

    shown = lift(of(0.5), of(0.25))
    assert cells(shown)["difference"] == ["0.25"]
    assert "The groups differ." in shown._repr_html_()
    few = lift((np.ones(2), np.ones(2)), (np.ones(2), np.zeros(2)))
    assert cells(few)["its interval"] == ["unknown to unknown"]
    assert "cannot be told apart yet" in few._repr_html_()


def test_features_are_shown_with_their_columns_escaped() -> None:
    features = Features(
        arm={HOSTILE: {"kind": "category", "values": ["<b>", "c"]}},
        context={"hour": {"kind": "number", "mean": 0, "scale": 1}},
        cross=[("hour", HOSTILE)],
    )
    assert "<script>" not in features._repr_html_()
    assert "<b>" not in features._repr_html_()
    shown = cells(features)
    assert shown[HOSTILE][0] == "arm"
    assert "'<b>'" in shown[HOSTILE][1]
    assert shown["hour"][0] == "context"
    assert f"hour × {HOSTILE}" in shown
    assert f"{features.dim} features" in features._repr_html_()
    assert "Not fitted yet" in Features(arm={"price": "number"})._repr_html_()


def test_a_log_is_shown_without_being_read() -> None:
    assert cells(log()) == {"decisions": ["400"], "features": ["2"], "names": ["–"]}
    rows = [{"who": "ana", "clicked": 1, HOSTILE: 3.0}]
    features = Features(arm={HOSTILE: {"kind": "number", "mean": 0, "scale": 1}})
    named = dyclu.Log.read(rows, user="who", reward="clicked", features=features)
    assert "<script>" not in named._repr_html_()
    assert cells(named)["names"] == [f"intercept, {HOSTILE}"]
    other = Transformed(None, arm=[HOSTILE], frame=dict, dim=2)
    made = dyclu.Log.read(rows, user="who", reward="clicked", features=other)
    assert cells(made)["features"] == ["2"]
    told = {"decision": 1, "user": "ana", "shown": 1, "propensity": 1, "reward": 1, "price": 2.0}
    assert cells(dyclu.Log.read_arms([told])) == {
        "decisions": ["known after reading"], "features": ["1"], "names": ["price"]
    }  # fmt: skip


def test_a_summary_is_shown_with_its_measures_and_warnings() -> None:
    setting = Population(users=2, parameters=2, dim=2, arms=5, offered=3, rounds=20, shortest=20)
    found = summary(play(dyclu.LinUCB(2, alpha=0.5), setting.world(seed=0)))
    shown = cells(found)
    assert shown["regret"] == [f"{found.regret:.4g}"]
    assert shown["alarms true"] == [str(found.alarms_true)]
    assert HOSTILE not in replace(found, warnings=(HOSTILE,))._repr_html_()
    assert "&lt;script&gt;" in replace(found, warnings=(HOSTILE,))._repr_html_()
