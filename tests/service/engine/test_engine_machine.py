"""Decisions, rewards of every sort, expiry, restarts, in any order: a model and the engine.

Rewards are of single slots; they are learnt at once, or when the decision's time is over.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

import dyclu
from dyclu.service.engine.checks import Given
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Observation
from tests.service.bench import ARMS, Bench, ask, bits

WAIT = 60.0
MEMORY = Path("/dev/shm")
"""Thousands of commits: here their order is tested, not their disk."""

OPTIONS = {"linucb": {"alpha": 0.5}, "dyclu": {"noise": 0.1}, "atlas": {}}

users = st.sampled_from(["ana", "bea", "cleo"])
values = st.sampled_from([0.0, 0.1, -1.5, 1.0])


class EngineMachine(RuleBasedStateMachine):
    """The model: a dictionary of decisions, and a policy that is told every accepted reward."""

    ids: Bundle[str] = Bundle("ids")

    @initialize(
        default=st.sampled_from([None, 0.25]),
        policy=st.sampled_from(["linucb", "dyclu", "atlas"]),
        learn=st.sampled_from(["arrival", "settled"]),
    )
    def begin(self, default: float | None, policy: str, learn: str) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        options: dict[str, Any] = OPTIONS[policy]
        self.bench = Bench(
            self.folder, policy=policy, options=options, default_reward=default, reward_wait=WAIT,
            learn=learn,
        )  # fmt: skip
        self.default, self.settles = default, learn == "settled"
        self.model = dyclu.policies.make(policy, 2, **options)
        self.decisions: dict[str, dict[str, Any]] = {}
        self.events: dict[str, tuple[str, float]] = {}
        self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            shutil.rmtree(self.folder)

    @rule(target=ids, user=users, active=st.booleans(), slots=st.integers(1, 3))
    def decide(self, user: str, active: bool, slots: int) -> str:
        self.number += 1
        id = f"d{self.number}"
        policy: Any = self.model
        expected = policy.decide(user, ARMS, slots=slots)
        answer = self.bench.decide(user, decision_id=id, active=active, slots=slots)
        assert [one.arm for one in answer.slots or []] == [f"a{arm}" for arm in expected.arms]
        self.decisions[id] = {
            "user": user,
            "x": {slot: ARMS[arm] for slot, arm in enumerate(expected.arms, 1)},
            "values": {},
            "until": self.bench.now + WAIT,
            "active": active,
            "answer": answer,
            "state": "pending",
        }
        return id

    @rule(id=ids)
    def decide_again(self, id: str) -> None:
        known = self.decisions[id]
        if known["state"] == "erased":
            return
        assert self.bench.decide(known["user"], decision_id=id) == known["answer"]

    @rule(id=ids, value=values, slot=st.integers(1, 3))
    def reward(self, id: str, value: float, slot: int) -> None:
        known = self.decisions[id]
        expected = self.verdict(known, slot, value)
        try:
            answer = self.bench.reward(id, value, slot=slot)
            status = 208 if answer.repeated else 200
        except Refusal as refusal:
            status = refusal.status
        assert status == expected
        if status == 200:
            known["values"][slot] = value
            if not self.settles:
                self.model.learn(known["user"], known["x"][slot], value)
                if known["values"].keys() == known["x"].keys():
                    known["state"] = "rewarded"

    def verdict(self, known: dict[str, Any], slot: int, value: float) -> int:
        if known["state"] == "erased":
            return 404
        if slot not in known["x"]:
            return 422
        if slot in known["values"]:
            return 208 if known["values"][slot] == value else 409
        if known["state"] == "expired" or self.bench.now >= known["until"]:
            return 410
        return 200 if known["active"] else 409

    @rule(id=ids)
    def activate(self, id: str) -> None:
        known = self.decisions[id]
        late = known["state"] == "pending" and self.bench.now >= known["until"]
        expected = {"erased": 404, "expired": 410}.get(known["state"], 410 if late else 200)
        if known["state"] == "expired" and known["values"]:
            expected = 200  # it was active, and rewarded
        try:
            self.bench.do(self.bench.engine.activate, id)
            status = 200
        except Refusal as refusal:
            status = refusal.status
        assert status == expected
        if status == 200 and known["state"] == "pending" and not known["active"]:
            known["active"], known["until"] = True, self.bench.now + WAIT

    @rule(user=users, value=values, number=st.integers(0, 3))
    def observe(self, user: str, value: float, number: int) -> None:
        id = f"e{number}"
        told = Observation(user, ARMS[0], value, event_id=id)
        try:
            answer = self.bench.do(self.bench.engine.observe, told)
        except Refusal:
            assert self.events[id] != (user, value)
            return
        assert answer.repeated == (id in self.events)
        if not answer.repeated:
            self.events[id] = (user, value)
            self.model.learn(user, ARMS[0], value)

    @rule(seconds=st.sampled_from([1.0, 20.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.bench.now += seconds

    @rule()
    def sweep(self) -> None:
        """Deadlines are those of decision or activation, so that their order may differ."""
        self.bench.expire()
        assert all(self.decisions[id]["until"] > self.bench.now for id in self.bench.ids())
        over = [
            known
            for known in self.decisions.values()
            if known["state"] == "pending" and known["until"] <= self.bench.now
        ]
        active = [known for known in over if known["active"]]
        for known in sorted(active, key=lambda known: known["until"]):
            for slot, x in known["x"].items():
                if slot not in known["values"]:
                    value = self.default
                else:
                    value = known["values"][slot] if self.settles else None
                if value is not None:
                    self.model.learn(known["user"], x, value)
        for known in over:
            known["state"] = "expired"

    @rule(id=ids, value=values)
    def lose_a_reward_on_its_way(self, id: str, value: float) -> None:
        try:
            self.bench.engine.reward(id, Given({1: value}))
        except Refusal:
            return
        self.bench.engine.failed()

    @rule()
    def snapshot(self) -> None:
        self.bench.save()

    @rule()
    def restart(self) -> None:
        before = bits(self.bench.state, self.folder)
        self.bench.restart()
        assert bits(self.bench.state, self.folder) == before

    @rule(user=users)
    def lose_a_decision_on_its_way(self, user: str) -> None:
        self.bench.engine.decide(ask(user, decision_id="lost"))
        self.bench.engine.failed()
        assert "lost" not in self.bench.ids()

    @rule(user=users)
    def erase(self, user: str) -> None:
        if user not in self.bench.state.users:
            return
        self.bench.erase(user)
        # What is left is by definition what the rest of the journal gives.
        self.model = self.bench.replayed().policy
        for known in self.decisions.values():
            if known["user"] == user:
                known["state"] = "erased"
        self.events = {id: one for id, one in self.events.items() if one[0] != user}

    @invariant()
    def policies_agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.model.save(self.folder / "model.bits")
        self.bench.state.policy.save(self.folder / "state.bits")
        expected = (self.folder / "model.bits").read_bytes()
        assert (self.folder / "state.bits").read_bytes() == expected


EngineMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestEngineMachine = EngineMachine.TestCase
