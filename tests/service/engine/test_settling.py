"""Rewards as they come: the first, their sum or the last, learnt in the order of the decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import dyclu
from dyclu.errors import OptionError
from dyclu.service.disk import bases, retention
from dyclu.service.engine.advice import missing_zeros
from dyclu.service.engine.checks import Given
from dyclu.service.engine.in_flight import MustWait
from dyclu.service.engine.lines import RewardBody
from dyclu.service.schema import RewardRequest
from dyclu.service.settings import settings
from tests.service.bench import Bench, bits
from tests.service.engine.test_engine import refused

LEARNT = {"learn": "settled", "reward_wait": 60.0, "default_reward": 0.0}


def learnt(bench: Bench) -> list[tuple[int, int, float, bool]]:
    """Decision, slot, value and whether it was the default, in the order of learning."""
    return [
        (line.of or 0, line.body.slot, line.body.value, line.body.default)
        for line in bench.reader.after(0)
        if isinstance(line.body, RewardBody)
    ]


def test_clicks_and_defaults_are_learnt_in_the_order_of_their_decisions(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT)
    for id in ("one", "two", "three"):
        bench.decide("ana", decision_id=id)
        bench.now += 1
    bench.reward("three", 1.0)
    bench.reward("two", 1.0)
    bench.expire()
    assert bench.state.total.version == 0
    assert len(bench.state.pending) == 3
    bench.now += 60
    bench.expire()
    assert learnt(bench) == [(1, 1, 0.0, True), (2, 1, 1.0, False), (3, 1, 1.0, False)]
    assert not bench.state.pending
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    model = dyclu.LinUCB(2, alpha=0.5)
    contexts = {line.seq: line.body.x for line in bench.reader.decisions([1, 2, 3]).values()}  # type: ignore[union-attr]
    for seq, value in ((1, 0.0), (2, 1.0), (3, 1.0)):
        model.learn("ana", contexts[seq], value)
    model.save(tmp_path / "model")
    assert bits(bench.state, tmp_path)[0] == (tmp_path / "model").read_bytes()


def test_the_first_value_stays_before_and_after_it_has_settled(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT)
    bench.decide("ana", decision_id="d", slots=2)
    for again in (False, True):
        assert bench.reward("d", 1.0, slot=2).repeated is again
        with refused(409, "value"):
            bench.reward("d", 2.0, slot=2)
        bench.restart()
    bench.now += 61
    with refused(410):
        bench.reward("d", 0.0, slot=1)
    bench.expire()
    assert bench.reward("d", 1.0, slot=2).repeated
    with refused(409, "value"):
        bench.reward("d", 2.0, slot=2)
    with refused(410):
        bench.reward("d", 0.0, slot=1)
    assert learnt(bench) == [(1, 1, 0.0, True), (1, 2, 1.0, False)]


@pytest.mark.parametrize(("how", "value"), [("sum", 3.5), ("last", 0.5), ("first", 1.0)])
def test_several_rewards_become_one(tmp_path: Path, how: str, value: float) -> None:
    bench = Bench(tmp_path, **LEARNT, reward=how)
    bench.decide("ana", decision_id="d")
    bench.reward("d", 1.0, reward_id="a")
    if how != "first":
        bench.reward("d", 2.0, reward_id="b")
        bench.restart()
        bench.reward("d", 0.5, reward_id="c")
        assert bench.reward("d", 2.0, reward_id="b").repeated
        with refused(409, "reward_id"):
            bench.reward("d", 9.0, reward_id="b")
    bench.now += 61
    bench.expire()
    assert learnt(bench) == [(1, 1, value, False)]
    assert bench.reward("d", 1.0, reward_id="a").repeated
    if how != "first":
        with refused(410):
            bench.reward("d", 1.0, reward_id="z")


def test_rewards_that_add_up_need_an_id_each(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT, reward="sum")
    bench.decide("ana", decision_id="d")
    bench.decide("ana", decision_id="e")
    with refused(422, "reward_id"):
        bench.reward("d", 1.0)
    bench.reward("d", 1.0, reward_id="a")
    with refused(409, "reward_id"):
        bench.reward("e", 1.0, reward_id="a")
    assert bench.reader.last() == 3


def test_an_id_that_is_in_flight_for_another_decision_holds_up_all_slots(tmp_path: Path) -> None:
    """Otherwise one slot's reward would be left out, and the other one's written."""
    bench = Bench(tmp_path, **LEARNT, reward="sum")
    bench.decide("ana", decision_id="a")
    bench.decide("ana", decision_id="b", slots=2)
    first = Given.of(RewardRequest(value=1.0, reward_id="order"))
    both = Given.of(RewardRequest(values={1: 1.0, 2: 1.0}, reward_id="order"))
    reply = bench.engine.reward("a", first)
    with pytest.raises(MustWait):
        bench.engine.reward("b", both)
    bench.write(reply.lines)
    with refused(409):
        bench.engine.reward("b", both)


def test_without_default_only_what_arrived_is_learnt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **(LEARNT | {"default_reward": None}))
    bench.decide("ana", decision_id="d", slots=3)
    bench.decide("ana", decision_id="e")
    bench.reward("d", 1.0, slot=2)
    bench.now += 61
    bench.expire()
    bench.expire()
    assert learnt(bench) == [(1, 2, 1.0, False)]
    assert not bench.state.pending
    assert bench.state.total.lost == 3
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)


def test_a_decision_keeps_the_way_of_learning_it_was_made_with(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT)
    bench.decide("ana", decision_id="settles")
    bench.reward("settles", 1.0)
    bench.engine.follow(replace(bench.rules, learn="arrival"))
    bench.decide("ana", decision_id="at-once")
    bench.reward("at-once", 0.5)
    assert bench.state.total.version == 1
    with refused(409, "value"):
        bench.reward("settles", 0.0)
    bench.now += 61
    bench.expire()
    assert learnt(bench) == [(3, 1, 0.5, False), (1, 1, 1.0, False)]


def test_a_decision_keeps_the_way_in_which_its_rewards_are_combined(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT, reward="sum")
    bench.decide("ana", decision_id="d")
    bench.reward("d", 1.0, reward_id="a")
    bench.engine.follow(replace(bench.rules, reward="first"))
    bench.decide("ana", decision_id="e")
    bench.reward("e", 0.5, reward_id="b")
    assert bench.reward("d", 1.0, reward_id="a").repeated
    bench.reward("d", 2.0, reward_id="c")
    bench.engine.follow(replace(bench.rules, reward="sum"))
    assert bench.reward("e", 0.5, reward_id="b").repeated
    bench.now += 61
    bench.expire()
    assert learnt(bench) == [(1, 1, 3.0, False), (3, 1, 0.5, False)]


def test_an_inactive_decision_settles_after_its_activation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT)
    bench.decide("ana", decision_id="d", active=False)
    with refused(409):
        bench.reward("d", 1.0)
    bench.now += 50
    bench.do(bench.engine.activate, "d")
    bench.reward("d", 1.0)
    bench.now += 50
    bench.expire()
    assert bench.state.total.version == 0
    bench.now += 11
    bench.expire()
    assert learnt(bench) == [(1, 1, 1.0, False)]


def test_what_has_arrived_is_kept_for_a_decision_that_is_pending_at_the_base(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, **LEARNT, reward="sum")
    bench.decide("ana", decision_id="done")
    bench.reward("done", 1.0, reward_id="gone")
    bench.now += 61
    bench.expire()
    bench.decide("ana", decision_id="d")
    bench.reward("d", 1.0, reward_id="a")
    bench.reward("d", 1.0, reward_id="b")
    upto = bench.reader.last()
    with bases.drafts(tmp_path) as folder:
        bases.make(bench.reader, tmp_path, bench.rules.spec(), upto=upto, into=folder)
        pending = retention.pending_at(folder)
        for write in bases.store(bench.journal, bench.reader, folder, line=upto):
            write()
    for write in retention.drop(bench.journal, bench.reader, pending):
        write()
    kept = [(line.kind, line.ref) for line in bench.reader.after(0)]
    assert kept == [("decision", "d"), ("arrival", "a/1"), ("arrival", "b/1")]
    bench.now += 61
    bench.expire()
    last = list(bench.reader.after(upto))
    assert [line.body for line in last] == [RewardBody(2.0)]


def test_erasing_a_user_removes_what_has_arrived(tmp_path: Path) -> None:
    bench = Bench(tmp_path, **LEARNT)
    bench.decide("ana", decision_id="d", slots=2)
    bench.reward("d", values={1: 1.0, 2: 0.0})
    assert bench.erase("ana") == 3
    assert [line.kind for line in bench.reader.after(0)] == ["erasure"]


@pytest.mark.parametrize("how", ["sum", "last"])
def test_what_is_learnt_at_once_cannot_be_changed_later(how: str) -> None:
    with pytest.raises(OptionError, match="settled"):
        settings({"dim": 2, "reward": how}, environment={})


def test_a_tenant_that_only_gets_clicks_is_warned(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reward_wait=60.0)
    for turn in range(130):
        id = bench.decide(f"u{turn % 7}").decision_id
        if turn % 10 == 0:
            bench.reward(id, 1.0)
    assert missing_zeros(bench.state.total, bench.rules) is None
    bench.now += 61
    bench.expire()
    warning: Any = missing_zeros(bench.state.total, bench.rules)
    assert warning.startswith("117 arms")
    bench.restart()
    assert missing_zeros(bench.state.total, bench.rules) == warning
    bench.reward(bench.decide("ana").decision_id, 0.0)
    assert missing_zeros(bench.state.total, bench.rules) is None
