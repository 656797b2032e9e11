"""What notebooks show: tables that are well formed, name what counts, and escape what is given."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dyclu
from dyclu.evaluate import compare
from dyclu.policies import make, names

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


def test_a_comparison_is_shown_with_estimates_intervals_and_verdict() -> None:
    log = dyclu.Log.of_arrays(
        user=range(400),
        arms=np.tile(np.eye(2), (400, 1, 1)),
        chosen=[0, 0, 1, 1] * 100,
        reward=[0.0, 0.0, 0.0, 1.0] * 100,
        propensity=np.full(400, 0.5),
    )
    second = np.array([0.0, 1.0])
    found = compare(log, {HOSTILE: lambda chunk: np.tile(second, (len(chunk), 1))})
    shown = cells(found)
    assert list(shown) == ["the log", HOSTILE]
    assert shown[HOSTILE][0] == f"{found[HOSTILE].best.value:.4g}"
    assert " to " in shown[HOSTILE][1]
    assert "<p>" in found._repr_html_()
