"""`dyclu.service.engine.engine`: what is accepted, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import dyclu
from dyclu.service.engine.engine import MustWait
from dyclu.service.engine.lines import MICRO, DecisionBody, ExpiryBody, encode
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Observation
from dyclu.service.settings import Limits
from tests.service.bench import ARMS, START, Bench, ask, bits, one


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, reward_wait=60.0)
    yield made
    made.close()


def refused(status: int, field: str | None = None) -> pytest.RaisesExc[Refusal]:
    def check(refusal: Refusal) -> bool:
        return refusal.status == status and field in (None, refusal.field)

    return pytest.RaisesExc(Refusal, check=check)


def test_a_decision_is_what_the_policy_decides(bench: Bench) -> None:
    policy = dyclu.LinUCB(2, alpha=0.5)
    for value in (1.0, -1.0, 0.3):
        answer = bench.decide("ana")
        expected = policy.decide("ana", ARMS)
        assert (answer.arm, answer.mean, answer.width) == (
            f"a{expected.arm}",
            expected.mean,
            expected.width,
        )
        bench.reward(answer.decision_id, value)
        policy.learn("ana", ARMS[expected.arm], value)


def test_a_repeated_id_gets_the_same_answer_after_learning_and_restarts(bench: Bench) -> None:
    first = bench.decide("ana", decision_id="d1", rank=True)
    bench.do(bench.engine.observe, Observation("ana", [0.0, 1.0], 5.0))
    assert bench.decide("ana", decision_id="d1") == first
    bench.reward("d1", 1.0)
    bench.restart()
    assert bench.decide("ana", decision_id="d1") == first
    assert bench.state.total.decisions == 1


def test_a_decision_id_of_another_user_is_refused(bench: Bench) -> None:
    bench.decide("ana", decision_id="d1")
    with refused(409, "decision_id"):
        bench.decide("bea", decision_id="d1")


def test_the_first_reward_is_kept_and_another_value_refused(bench: Bench) -> None:
    id = bench.decide().decision_id
    assert not bench.reward(id, 0.5).repeated
    assert bench.reward(id, 0.5).repeated
    with refused(409, "value"):
        bench.reward(id, 0.6)
    bench.restart()
    assert bench.reward(id, 0.5).repeated
    assert bench.state.total.version == 1


def test_a_reward_for_an_unknown_decision_is_refused(bench: Bench) -> None:
    with refused(404):
        bench.reward("nobody", 1.0)
    with refused(404):
        bench.engine.activate("nobody")


def test_a_late_reward_is_refused_before_and_after_the_expiry_is_written(bench: Bench) -> None:
    id = bench.decide().decision_id
    bench.now += 59.9
    bench.expire()
    assert len(bench.state.pending) == 1
    bench.now += 0.1
    with refused(410):
        bench.reward(id, 1.0)
    bench.expire()
    assert not bench.state.pending
    with refused(410):
        bench.reward(id, 1.0)
    bench.now -= 100
    bench.restart()
    with refused(410):
        bench.reward(id, 1.0)
    assert bench.state.total.version == 0


def test_a_default_reward_is_learnt_once_at_expiry(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reward_wait=60.0, default_reward=-0.5)
    kept, lost = bench.decide("ana").decision_id, bench.decide("bea").decision_id
    asleep = bench.decide("cleo", active=False).decision_id
    bench.reward(kept, 1.0)
    bench.now += 61
    bench.expire()
    bench.expire()
    assert bench.state.total.defaults == 1
    assert bench.state.users["bea"].total == -0.5
    assert bench.state.users["cleo"].rewards == 0
    for id in (lost, asleep):
        with refused(410):
            bench.reward(id, -0.5)
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)


def test_an_inactive_decision_must_be_activated_and_then_has_its_full_time(bench: Bench) -> None:
    id = bench.decide(active=False).decision_id
    with refused(409):
        bench.reward(id, 1.0)
    bench.now += 50
    first = bench.do(bench.engine.activate, id)
    assert first.expires == bench.now + 60
    assert bench.do(bench.engine.activate, id) == first
    bench.now += 59
    bench.expire()
    bench.restart()
    bench.reward(id, 1.0)
    bench.do(bench.engine.activate, id)
    late = bench.decide(active=False).decision_id
    bench.now += 60
    with refused(410):
        bench.engine.activate(late)


def test_an_event_is_learnt_once(bench: Bench) -> None:
    event = Observation("ana", [1.0, -0.0], 0.7, event_id="e1")
    assert not bench.do(bench.engine.observe, event).repeated
    assert bench.do(bench.engine.observe, event).repeated
    with refused(409, "event_id"):
        bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 0.8, event_id="e1"))
    assert bench.state.total.version == 1


def test_a_decision_and_an_event_may_share_an_id(bench: Bench) -> None:
    bench.decide("ana", decision_id="same")
    bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 0.7, event_id="same"))
    assert bench.reward("same", 1.0).value == 1.0


def test_requests_about_lines_in_flight_must_wait(bench: Bench) -> None:
    reply = bench.engine.decide(ask(decision_id="d1"))
    with pytest.raises(MustWait):
        bench.engine.decide(ask(decision_id="d1"))
    with pytest.raises(MustWait):
        bench.engine.reward("d1", one(1.0))
    bench.write(reply.lines)
    bench.engine.reward("d1", one(1.0))
    for value in (1.0, 2.0):
        with pytest.raises(MustWait):
            bench.engine.reward("d1", one(value))


def test_lines_that_failed_to_be_written_have_no_effect(bench: Bench) -> None:
    id = bench.decide().decision_id
    bench.engine.reward(id, one(1.0))
    bench.engine.decide(ask("bea", decision_id="d2"))
    bench.engine.failed()
    with refused(404):
        bench.reward("d2", 1.0)
    assert bench.reward(id, 2.0).value == 2.0
    assert bits(bench.state, bench.folder) == bits(bench.replayed(), bench.folder)


def test_lines_on_disk_whose_write_reported_an_error_count_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(max_pending=2))
    made = bench.engine.decide(ask("ana", decision_id="d")).lines[0]
    assert made is not None
    bench.journal.append([encode(made)])
    bench.engine.failed()
    bench.engine.found_on_disk(list(bench.reader.after(0)))
    bench.decide("ana", decision_id="d")
    assert bench.state.total.decisions == 1
    following = bench.engine.decide(ask("ana")).lines[0]
    assert following is not None
    # The repetition was given number 2, and left out.
    assert following.seq == 3
    # One is pending and one in flight; a count below none would let in a third.
    with pytest.raises(Refusal, match="max_pending"):
        bench.engine.decide(ask("ana"))
    bench.write([following])
    bench.reward("d", 1.0)
    assert bench.state.total.rewards == 1
    bench.close()


def test_a_reward_is_learnt_only_when_its_line_is_on_disk(bench: Bench) -> None:
    id = bench.decide().decision_id
    reply = bench.engine.reward(id, one(1.0))
    assert bench.state.total.version == 0
    bench.write(reply.lines)
    assert bench.state.total.version == 1


def test_explored_arms_are_as_frequent_as_their_logged_propensity(tmp_path: Path) -> None:
    epsilon, rounds = 0.3, 3000
    bench = Bench(tmp_path, epsilon=epsilon)
    best = bench.state.policy.decide("ana", ARMS).arm
    seen = dict.fromkeys(range(3), 0)
    for i in range(rounds):
        reply = bench.engine.decide(ask(decision_id=f"d{i}"))
        arm = int(reply.answer.arm[1:])
        seen[arm] += 1
        expected = epsilon / 3 + (1 - epsilon) * (arm == best)
        assert reply.answer.propensity == pytest.approx(expected)
    for arm, count in seen.items():
        chance = epsilon / 3 + (1 - epsilon) * (arm == best)
        # Four standard deviations of a binomial count.
        slack = 4 * np.sqrt(rounds * chance * (1 - chance))
        assert abs(count - rounds * chance) < slack


def test_an_explored_arm_reports_its_own_mean(tmp_path: Path) -> None:
    bench = Bench(tmp_path, epsilon=1.0)
    bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 1.0))
    for i in range(20):
        answer = bench.decide("ana", decision_id=f"d{i}")
        arm = int(answer.arm[1:])
        assert answer.mean == bench.state.policy.decide("ana", [ARMS[arm]]).mean


def test_uniform_logs_the_same_propensity_for_all_arms(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy="uniform", options={}, epsilon=0.5)
    assert bench.decide().propensity == pytest.approx(1 / 3)


def test_a_ranking_is_the_order_in_which_arms_would_be_chosen(bench: Bench) -> None:
    bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 3.0))
    bench.do(bench.engine.observe, Observation("ana", [0.0, 1.0], 1.0))
    answer = bench.decide("ana", rank=True)
    assert answer.rank is not None
    assert answer.rank[0] == answer.arm
    rest = [int(name[1:]) for name in answer.rank[1:]]
    second = bench.state.policy.decide("ana", [ARMS[i] for i in sorted(rest)]).arm
    assert sorted(rest)[second] == rest[0]


def test_shadow_mode_learns_from_the_callers_choice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="shadow")
    bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 3.0))
    answer = bench.decide("ana", chosen="a2")
    assert (answer.chosen, answer.arm, answer.agrees) == ("a2", "a0", False)
    assert answer.propensity is None
    bench.reward(answer.decision_id, 0.25)
    assert bench.decide("ana", chosen=bench.decide("ana", chosen="a1").arm).agrees
    policy = dyclu.LinUCB(2, alpha=0.5)
    policy.learn("ana", ARMS[0], 3.0)
    policy.learn("ana", ARMS[2], 0.25)
    assert bench.state.policy.decide("ana", ARMS) == policy.decide("ana", ARMS)
    assert (bench.state.total.shadowed, bench.state.total.agreed) == (3, 1)
    with refused(422, "chosen"):
        bench.decide("ana")
    with refused(422, "chosen"):
        bench.decide("ana", chosen="elsewhere")


def test_a_caller_who_chooses_says_with_which_propensity_and_when(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="shadow")
    answer = bench.decide("ana", chosen="a2", propensity=0.25, at=1.5e9, decision_id="d")
    assert (answer.chosen, answer.propensity) == ("a2", 0.25)
    pair = bench.decide("ana", chosen=["a1", "a0"], propensity=[0.5, 0.125], slots=2)
    assert [one.propensity for one in pair.slots or []] == [0.5, 0.125]
    bench.restart()
    line = bench.reader.find("d", "decision")
    assert line is not None
    assert isinstance(line.body, DecisionBody)
    assert (line.body.propensity, line.body.at) == (0.25, 1.5e9)
    # Asked again without them: the first answer.
    assert bench.decide("ana", chosen="a2", decision_id="d") == answer
    for wrong in ([0.5], [0.5, 0.1, 0.1], 0.5):
        with refused(422, "propensity"):
            bench.decide("ana", chosen=["a1", "a0"], propensity=wrong, slots=2)


def test_propensity_and_time_of_a_decision_that_the_service_makes_are_refused(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    for field, value in (("propensity", 0.5), ("at", 1.5e9)):
        with refused(422, field):
            bench.decide("ana", **{field: value})
    (tmp_path / "control").mkdir()
    bench = Bench(tmp_path / "control", control=0.5, baseline="caller")
    for user in (f"u{i}" for i in range(20)):
        answer = bench.decide(user, chosen="a1", propensity=0.25)
        assert answer.propensity == (0.25 if answer.group == "control" else 1.0)
        with refused(422, "at"):
            bench.decide(user, chosen="a1", at=1.5e9)


def test_chosen_is_refused_online(bench: Bench) -> None:
    with refused(422, "chosen"):
        bench.decide(chosen="a0")


def test_a_refusal_names_the_limit(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_arms": 3, "max_ranked": 2, "max_pending": 2}
    bench = Bench(tmp_path, limits=Limits(**limits, max_norm=2.0, max_reward=5.0))
    with refused(422, "arms"):
        bench.decide(arms=[[1.0, 0.0]] * 4)
    with refused(422, "rank"):
        bench.decide(rank=True)
    with refused(422, "arms[1].features"):
        bench.decide(arms=[[1.0, 0.0], [1.0]])
    with refused(422, "arms[2].features"):
        bench.decide(arms=[[1.0, 0.0], [0.0, 0.0], [0.0, 1e200]])
    id = bench.decide("ana").decision_id
    for value in (5.1, -5.1, float("nan"), float("inf")):
        with refused(422, "value"):
            bench.reward(id, value)
        with refused(422, "reward"):
            bench.engine.observe(Observation("ana", [1.0, 0.0], value))
    bench.decide("bea")
    with refused(429):
        bench.decide("ana")
    assert bench.state.total.decisions == 2


def test_arms_are_in_the_journal_only_if_wanted(tmp_path: Path) -> None:
    for wanted in (False, True):
        (folder := tmp_path / str(wanted)).mkdir()
        bench = Bench(folder, log_arms=wanted)
        bench.decide()
        body = next(bench.reader.after(0)).body
        assert isinstance(body, DecisionBody)
        assert (body.arms is not None) == wanted


def test_times_in_the_journal_do_not_decrease_when_the_clock_is_set_back(bench: Bench) -> None:
    bench.decide()
    bench.now -= 1000
    bench.decide()
    times = [line.at for line in bench.reader.after(0)]
    assert times[0] == times[1]


def test_an_erasure_leaves_nothing_about_the_user_in_state_and_files(bench: Bench) -> None:
    for user in ("ana", "bea", "ana"):
        bench.reward(bench.decide(user).decision_id, 1.0)
    waiting = bench.decide("ana", decision_id="waiting").decision_id
    bench.do(bench.engine.observe, Observation("ana", [1.0, 0.0], 0.7))
    bench.save()
    assert bench.erase("ana") == 6
    policy = dyclu.LinUCB(2, alpha=0.5)
    policy.learn("bea", ARMS[policy.decide("bea", ARMS).arm], 1.0)
    policy.save(bench.folder / "expected")
    assert bits(bench.state, bench.folder)[0] == (bench.folder / "expected").read_bytes()
    with refused(404):
        bench.reward(waiting, 1.0)
    with refused(404):
        bench.engine.erase("ana")
    bench.close()
    for file in bench.folder.rglob("*"):
        assert file.is_dir() or b"ana" not in file.read_bytes(), file
    bench.open()
    assert list(bench.state.users) == ["bea"]


def test_atlas_forgets_a_user_at_once_and_exactly_after_a_rebuild(tmp_path: Path) -> None:
    """What is served meanwhile no longer knows them; what follows never did."""
    bench, rng = Bench(tmp_path, policy="atlas", options={}), np.random.default_rng(0)
    for turn in range(120):
        user, x = ("ana", "bea", "cleo")[turn % 3], rng.normal(size=2)
        told = Observation(user, x.tolist(), float(x[0] + 0.05 * rng.normal()))
        bench.do(bench.engine.observe, told)
    policy = bench.state.policy
    assert isinstance(policy, dyclu.Atlas)
    assert policy.locate("ana").located
    mark = bench.engine.erase("ana")
    gone = bench.journal.erase("ana", encode(mark))
    bench.engine.committed([mark])
    bench.engine.forget("ana", gone.decisions)
    assert policy.locate("ana").model is None
    assert policy.locate("bea").located
    assert sum(model.users for model in policy.models) == 2
    bench.engine.replace(bench.replayed())
    policy.save(tmp_path / "forgotten")
    assert (tmp_path / "forgotten").read_bytes() != bits(bench.state, tmp_path)[0]
    bench.restart()
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    assert list(bench.state.users) == ["bea", "cleo"]
    bench.close()


def test_requests_of_a_user_who_is_being_erased_must_wait(bench: Bench) -> None:
    id = bench.decide("ana").decision_id
    bench.engine.erase("ana")
    with pytest.raises(MustWait):
        bench.engine.decide(ask("ana"))
    with pytest.raises(MustWait):
        bench.engine.reward(id, one(1.0))
    bench.engine.decide(ask("bea"))


@pytest.mark.parametrize("default", [None, 0.5])
def test_a_decision_does_not_expire_while_its_user_is_being_erased(
    tmp_path: Path, default: float | None
) -> None:
    """Its line would come after those of the user were erased, and be about nothing."""
    bench = Bench(tmp_path, reward_wait=60.0, default_reward=default)
    bench.decide("ana", decision_id="d1")
    bench.decide("bea", decision_id="d2")
    mark = bench.engine.erase("ana")
    bench.now += 61
    (expired,) = bench.engine.expire()
    assert expired.of == 2 or expired.body == ExpiryBody([2])
    gone = bench.journal.erase("ana", encode(mark))
    bench.engine.committed([mark])
    bench.engine.forget("ana", gone.decisions)
    bench.write([expired])
    assert not bench.engine.expire()
    assert not bench.state.pending
    assert bits(bench.state, tmp_path)[0] == bits(bench.replayed(), tmp_path)[0]
    bench.close()


def test_the_database_leaves_out_a_second_reward(bench: Bench) -> None:
    id = bench.decide().decision_id
    line = bench.engine.reward(id, one(1.0)).lines[0]
    assert line is not None
    bench.write([line])
    again = msgspec.structs.replace(line, seq=line.seq + 1)
    assert bench.journal.append([encode(again)]) == {again.seq}
    assert bench.reader.last() == line.seq


def test_a_repeated_decision_is_answered_although_a_limit_is_reached(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(max_pending=1))
    first = bench.decide("ana", decision_id="d1")
    bench.reward("d1", 1.0)
    bench.decide("ana", decision_id="d2")
    with refused(429):
        bench.decide("ana", decision_id="d3")
    assert bench.decide("ana", decision_id="d1") == first


def test_a_shorter_reward_wait_ends_new_decisions_before_older_ones(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reward_wait=1000.0)
    bench.decide("ana", decision_id="old")
    bench.close()
    later = Bench(tmp_path, reward_wait=10.0)
    later.decide("ana", decision_id="new")
    later.now += 20
    later.expire()
    assert later.ids() == ["old"]
    later.now += 1000
    later.expire()
    assert not later.ids()
    later.close()


YEAR = 365 * 86400.0


def pending(bench: Bench) -> list[str]:
    bench.expire()
    return bench.ids()


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 30.0, -30.0])
def test_a_jump_of_the_wall_clock_does_not_change_a_deadline(bench: Bench, jump: float) -> None:
    bench.decide("ana", decision_id="before")
    bench.now += 30
    bench.wrong = jump
    bench.decide("ana", decision_id="during")
    assert pending(bench) == ["before", "during"]
    bench.now += 15
    bench.wrong = 0.0
    bench.decide("ana", decision_id="after")
    assert pending(bench) == ["before", "during", "after"]
    bench.now += 14.9
    bench.reward("before", 1.0) if jump > 0 else bench.expire()
    bench.now += 0.1
    assert pending(bench) == ["during", "after"]
    bench.now += 30
    with refused(410):
        bench.reward("during", 1.0)
    assert pending(bench) == ["after"]
    bench.now += 15
    assert pending(bench) == []


def test_a_decision_made_while_the_clock_was_ahead_gets_its_full_time_after_a_restart(
    bench: Bench,
) -> None:
    """Nothing made meanwhile waits for the year that never passed."""
    bench.wrong = YEAR
    bench.restart()
    bench.decide("ana", decision_id="ahead")
    bench.decide("ana", decision_id="asleep", active=False)
    bench.do(bench.engine.activate, "asleep")
    bench.now += 20
    bench.wrong = 0.0
    bench.restart()
    bench.decide("ana", decision_id="after")
    assert pending(bench) == ["ahead", "asleep", "after"]
    bench.now += 40
    assert pending(bench) == ["ahead", "asleep", "after"]
    bench.restart()
    bench.now += 20
    # Made when the journal's times were ahead already, it has its own time all the same.
    assert pending(bench) == ["ahead", "asleep"]
    bench.now += 40
    assert pending(bench) == []


def test_a_clock_that_is_ahead_for_a_moment_does_not_change_times_of_lines(bench: Bench) -> None:
    """All lines of the next day had the time of the last line before it was set back."""
    bench.decide("ana", decision_id="before")
    bench.wrong = 86400.0
    bench.now += 1
    bench.decide("ana", decision_id="during")
    bench.wrong = 0.0
    for number in range(3):
        bench.now += 1
        bench.decide("ana", decision_id=f"after{number}")
    times = [line.at / MICRO - START for line in bench.reader.after(0)]
    assert times == [0, 1, 2, 3, 4]
    assert bench.reward("during", 1.0).value == 1.0


def test_a_clock_that_stays_ahead_is_believed_after_a_while(bench: Bench) -> None:
    bench.wrong = 86400.0
    for _ in range(4):
        bench.now += 301
        bench.decide("ana")
    times = [line.at / MICRO - START for line in bench.reader.after(0) if line.kind == "decision"]
    assert times == [301, 602, 903 + 86400, 1204 + 86400]


def test_a_decision_gets_at_most_its_full_time_if_the_clock_is_set_back_before_a_restart(
    bench: Bench,
) -> None:
    bench.decide("ana", decision_id="d1")
    bench.now += 20
    bench.wrong = -YEAR
    bench.restart()
    bench.decide("ana", decision_id="d2")
    bench.now += 59.9
    assert pending(bench) == ["d1", "d2"]
    bench.now += 0.1
    assert pending(bench) == []


def test_time_down_counts_and_a_clock_ahead_at_a_start_counts_as_time_down(bench: Bench) -> None:
    bench.decide("ana", decision_id="d1")
    bench.decide("bea", decision_id="d2", active=False)
    bench.close()
    bench.now += 59
    bench.open()
    assert pending(bench) == ["d1", "d2"]
    bench.decide("cleo", decision_id="d3")
    bench.wrong = 10.0
    bench.restart()
    assert pending(bench) == ["d3"]
    bench.now += 50
    assert pending(bench) == []


def test_users_beyond_the_limit_push_out_the_one_seen_longest_ago(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(max_users=3), reward_wait=1e6)
    waiting = bench.decide("ana", decision_id="waiting").decision_id
    for user in ("bea", "cleo", "dan", "bea"):
        bench.do(bench.engine.observe, Observation(user, [1.0, 0.0], 1.0))
    assert len(bench.state.users) == 4
    bench.write(bench.engine.evict())
    assert list(bench.state.users) == ["cleo", "dan", "bea"]
    assert not bench.engine.evict()
    bench.do(bench.engine.observe, Observation("eve", [1.0, 0.0], 1.0))
    (line,) = bench.engine.evict()
    assert (line.kind, line.user) == ("eviction", "cleo")
    bench.write([line])
    assert "cleo" not in bench.state.policy.users
    assert bench.state.total.evicted == 2
    # Whoever comes back is a new user; what waited for a reward still does.
    bench.reward(waiting, 1.0)
    assert bench.state.users["ana"].rewards == 1
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    bench.save()
    bench.restart()
    assert list(bench.state.users) == ["dan", "bea", "eve", "ana"]
    bench.close()


def test_a_user_who_was_pushed_out_can_be_erased(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(max_users=1))
    for user in ("anastasia", "bea"):
        bench.do(bench.engine.observe, Observation(user, [1.0, 0.0], 1.0))
    bench.write(bench.engine.evict())
    assert list(bench.state.users) == ["bea"]
    assert bench.erase("anastasia") == 2
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    bench.close()
    assert b"anastasia" not in (tmp_path / "journal.db").read_bytes()
