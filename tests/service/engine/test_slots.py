"""Several slots in one decision: one arm each, one reward each, learnt once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyclu
from dyclu.policy import position_of
from dyclu.service.disk.sqlite.writer import SqliteJournal
from dyclu.service.engine.checks import Given
from dyclu.service.engine.lines import DecisionBody, encode, make_line
from dyclu.service.refusal import Refusal
from dyclu.service.schema import RewardRequest
from tests.service.bench import ARMS, Bench, bits
from tests.service.engine.test_engine import refused


def opened(folder: Path, **rules: Any) -> Bench:
    return Bench(folder, **({"reward_wait": 60.0} | rules))


def arms_of(answer: Any) -> list[str]:
    return [one.arm for one in answer.slots]


def test_the_slots_are_those_of_the_policy(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    for value in (1.0, -1.0, 0.3):
        bench.reward(bench.decide("ana").decision_id, value)
    answer = bench.decide("ana", slots=3)
    policy: Any = bench.state.policy
    slate = policy.decide("ana", ARMS, slots=3)
    assert arms_of(answer) == [f"a{arm}" for arm in slate.arms]
    assert [(one.mean, one.width, one.propensity) for one in answer.slots or []] == [
        (one.mean, one.width, one.propensity) for one in slate
    ]
    assert (answer.arm, answer.mean) == (f"a{slate.arms[0]}", slate.decisions[0].mean)


def test_a_decision_without_slots_has_none_in_its_answer_and_its_line(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    assert bench.decide("ana", decision_id="d").slots is None
    line = bench.reader.find("d", "decision")
    assert line is not None
    assert isinstance(line.body, DecisionBody)
    assert line.body.slots is None
    row = next(bench.reader.rows(0, upto=9))
    assert "slots" not in row[-1]
    assert "settles" not in row[-1]


def test_each_slot_is_rewarded_once_and_learnt_with_its_own_context(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    model = dyclu.LinUCB(2, alpha=0.5)
    answer = bench.decide("ana", slots=3, decision_id="d")
    assert not bench.reward("d", 1.0, slot=2).repeated
    assert bench.reward("d", 1.0, slot=2).repeated
    with refused(409, "value"):
        bench.reward("d", 0.0, slot=2)
    bench.restart()
    assert bench.reward("d", values={1: 0.0, 2: 1.0}).values == {1: 0.0, 2: 1.0}
    assert bench.reward("d", values={1: 0.0, 2: 1.0}).repeated
    assert len(bench.state.pending) == 1
    bench.reward("d", 0.5, slot=3)
    assert not bench.state.pending
    x = dict(zip(("a0", "a1", "a2"), ARMS, strict=True))
    for arm, value in zip(
        [arms_of(answer)[1], arms_of(answer)[0], arms_of(answer)[2]], [1.0, 0.0, 0.5], strict=True
    ):
        model.learn("ana", x[arm], value)
    (tmp_path / "a").mkdir()
    model.save(tmp_path / "a" / "policy")
    assert bits(bench.state, tmp_path)[0] == (tmp_path / "a" / "policy").read_bytes()
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    assert bench.state.total.version == 3


def test_a_refused_slot_leaves_nothing_of_the_request(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    bench.decide("ana", slots=3, decision_id="d")
    bench.reward("d", 1.0, slot=3)
    before = bench.reader.last()
    with refused(409, "values[3]"):
        bench.reward("d", values={1: 0.0, 3: 0.5})
    with refused(422, "values[4]"):
        bench.reward("d", values={1: 0.0, 4: 0.5})
    with refused(422, "values[2]"):
        bench.reward("d", values={1: 0.0, 2: 1e9})
    with refused(422, "slot"):
        bench.reward("d", 1.0)
    with refused(422, "slot"):
        bench.reward("d", 1.0, slot=4)
    for wrong in ({}, {"value": 1.0, "values": {1: 1.0}}, {"values": {1: 1.0}, "slot": 1}):
        with pytest.raises(Refusal):
            bench.reward("d", **wrong)
    assert bench.reader.last() == before
    assert bench.state.total.version == 1


@pytest.mark.parametrize("default", [None, 0.25])
def test_slots_without_reward_get_the_default_or_expire(
    tmp_path: Path, default: float | None
) -> None:
    bench = opened(tmp_path, default_reward=default)
    bench.decide("ana", slots=3, decision_id="d")
    bench.reward("d", 1.0, slot=2)
    bench.now += 61
    with refused(410):
        bench.reward("d", 1.0, slot=1)
    assert bench.reward("d", 1.0, slot=2).repeated
    bench.expire()
    bench.expire()
    assert not bench.state.pending
    assert bench.state.total.version == (1 if default is None else 3)
    assert bench.state.total.defaults == (0 if default is None else 2)
    assert bench.state.total.lost == (2 if default is None else 0)
    with refused(410):
        bench.reward("d", 1.0, slot=1)
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)


def test_a_partly_rewarded_decision_survives_a_snapshot(tmp_path: Path) -> None:
    bench = opened(tmp_path, default_reward=0.0)
    bench.decide("ana", slots=2, decision_id="d")
    bench.reward("d", 1.0, slot=1)
    bench.save()
    bench.restart()
    assert bench.snapshots.used == 2
    assert bench.reward("d", 1.0, slot=1).repeated
    bench.now += 61
    bench.expire()
    assert (bench.state.total.version, bench.state.total.defaults) == (2, 1)


def test_the_journal_itself_refuses_a_second_reward_of_a_slot(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    bench.decide("ana", slots=2, decision_id="d")
    first = bench.engine.reward("d", _given(1.0, slot=1)).lines
    bench.engine.failed()
    again = bench.engine.reward("d", _given(0.0, slot=1)).lines
    bench.engine.failed()
    other = bench.engine.reward("d", _given(0.0, slot=2)).lines
    lines = (*first, *again, *other)
    numbered = [make_line(2 + i, one.at, one.body, of=one.of) for i, one in enumerate(lines)]
    assert bench.journal.append([encode(one) for one in numbered]) == {3}


def _given(value: float, slot: int) -> Any:
    return Given.of(RewardRequest(value, slot))


def test_the_feature_of_the_position_is_written_by_the_service(tmp_path: Path) -> None:
    bench = Bench(tmp_path, position=1)
    bench.decide("ana", slots=3, decision_id="d", arms=[[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]])
    line = bench.reader.find("d", "decision")
    assert line is not None
    assert isinstance(line.body, DecisionBody)
    assert [one.x for one in line.body.all_slots] == [[3.0, 0.0], [2.0, 0.5], [1.0, position_of(3)]]
    bench.reward("d", 1.0, slot=2)
    model = dyclu.LinUCB(2, alpha=0.5)
    model.learn("ana", [2.0, 0.5], 1.0)
    assert bench.state.policy.decide("ana", np.eye(2)) == model.decide("ana", np.eye(2))


def test_more_slots_than_arms_are_refused(tmp_path: Path) -> None:
    with refused(422, "slots"):
        opened(tmp_path).decide("ana", slots=4)


def test_slots_at_random_have_propensities_given_the_slots_before(tmp_path: Path) -> None:
    """Of 600 slates of two of three arms, each ordered pair is drawn as often as it says."""
    bench = opened(tmp_path, epsilon=0.6, log_arms=True)
    seen: dict[tuple[str, ...], int] = {}
    told: dict[tuple[str, ...], float] = {}
    for _ in range(600):
        answer = bench.decide("ana", slots=2)
        pair = tuple(arms_of(answer))
        first, second = (one.propensity for one in answer.slots or [])
        assert first is not None
        assert second is not None
        seen[pair] = seen.get(pair, 0) + 1
        told[pair] = first * second
    assert sum(told.values()) == pytest.approx(1.0)
    for pair, chance in told.items():
        # Five standard deviations.
        assert abs(seen[pair] - 600 * chance) < 5 * np.sqrt(600 * chance * (1 - chance))


def test_in_shadow_mode_the_caller_names_an_arm_for_each_slot(tmp_path: Path) -> None:
    bench = opened(tmp_path, mode="shadow")
    own = arms_of(bench.decide("ana", slots=2, chosen=["a1", "a0"]))
    (other,) = {"a0", "a1", "a2"} - set(own)
    answer = bench.decide("ana", slots=2, chosen=[own[0], other])
    assert answer.agrees is False
    assert arms_of(answer) == own
    assert [one.chosen for one in answer.slots or []] == [own[0], other]
    assert [one.propensity for one in answer.slots or []] == [None, None]
    agreed = sum(mine == theirs for mine, theirs in zip(own, ["a1", "a0"], strict=True))
    assert (bench.state.total.shadowed, bench.state.total.agreed) == (4, 1 + agreed)
    for chosen in ("a1", ["a1"], ["a1", "a1"], ["a1", "zz"], ["a0", "a1", "a2"]):
        with refused(422, "chosen"):
            bench.decide("ana", slots=2, chosen=chosen)


def test_each_arm_has_at_least_the_share_of_the_floor(tmp_path: Path) -> None:
    bench = opened(tmp_path, floor=0.2)
    chances = {one.arm: one.propensity for one in (bench.decide("ana") for _ in range(200))}
    assert sorted(p for p in chances.values() if p is not None) == pytest.approx([0.2, 0.2, 0.6])
    with refused(422, "arms"):
        bench.decide("ana", arms=[[float(i), 0.0] for i in range(6)])


def test_a_journal_from_before_slots_is_brought_up_to_date(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    bench.decide("ana", decision_id="old")
    bench.reward(bench.decide("ana").decision_id, 1.0)
    bench.close()
    rows = sqlite3.connect(tmp_path / "journal.db")
    rows.executescript(
        "DROP INDEX journal_learnt; DROP INDEX journal_arrived;"
        "CREATE UNIQUE INDEX journal_end ON journal (of) WHERE kind = 'reward';"
        "UPDATE meta SET value = 2 WHERE name = 'format';"
    )
    rows.close()
    bench.open()
    bench.reward("old", 0.5)
    bench.decide("ana", slots=2, decision_id="new")
    bench.reward("new", values={1: 0.0, 2: 1.0})
    assert bench.state.total.version == 4
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    bench.close()
    assert isinstance(SqliteJournal.open(tmp_path / "journal.db", dim=2), SqliteJournal)


def test_an_explanation_is_that_of_the_first_slot_where_it_is_shown(tmp_path: Path) -> None:
    bench = opened(tmp_path, position=1, floor=0.1)
    for value in (1.0, -1.0, 0.3):
        bench.reward(bench.decide("ana").decision_id, value)
    answer = bench.decide("ana", slots=2, explain=True)
    assert answer.why is not None
    shown = {one.id: one for one in answer.why.arms}[answer.arm]
    assert shown.mean == answer.mean
    assert shown.chance == pytest.approx(answer.propensity)
    assert sum(one.chance or 0.0 for one in answer.why.arms) == pytest.approx(1.0)
