"""Control group: who is in it, what they are shown, and what is summed for the lift."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import astuple, replace

from dyclu.errors import OptionError
from dyclu.evaluate import UserTotals, lift
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.engine.choosing.choice import in_control
from dyclu.service.engine.choosing.lift import BUCKETS, DAY, LiftSums, bucket_of
from dyclu.service.engine.lines import MICRO, ComparisonBody
from dyclu.service.http.views.lifts import lift_view
from dyclu.service.http.views.whole import LiftSum, lift_joined
from dyclu.service.settings import TenantSettings, settings
from tests.service.bench import ARMS, START, Bench, ask, bits
from tests.service.engine.test_engine import refused


def opened(folder: Path, **rules: Any) -> Bench:
    return Bench(folder, **({"reward_wait": 60.0, "control": 0.3} | rules))


def grouped(bench: Bench, count: int = 60) -> tuple[list[str], list[str]]:
    """Names of users of both groups."""
    secret = bench.reader.facts().secret
    names = [f"u{i}" for i in range(count)]
    theirs = [name for name in names if in_control(name, bench.rules.control, secret=secret)]
    return [name for name in names if name not in theirs], theirs


def test_a_share_of_the_users_is_in_the_group_and_stays_there(tmp_path: Path) -> None:
    secret = b"of this tenant"
    few = {i for i in range(20_000) if in_control(f"u{i}", 0.05, secret=secret)}
    more = {i for i in range(20_000) if in_control(f"u{i}", 0.10, secret=secret)}
    # 1,000 and 2,000 are expected; five standard deviations.
    assert abs(len(few) - 1000) < 5 * np.sqrt(1000)
    assert abs(len(more) - 2000) < 5 * np.sqrt(2000)
    assert few < more
    other = {i for i in range(20_000) if in_control(f"u{i}", 0.05, secret=b"of another")}
    assert abs(len(few & other) - 50) < 5 * np.sqrt(50)


def test_a_user_has_the_same_group_in_every_decision_and_after_a_restart(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    before = {f"u{i}": bench.decide(f"u{i}").group for i in range(30)}
    assert set(before.values()) == {"treated", "control"}
    bench.restart()
    assert {user: bench.decide(user).group for user in before} == before


def test_without_a_control_group_nobody_has_a_group(tmp_path: Path) -> None:
    bench = opened(tmp_path, control=0.0)
    assert bench.decide("ana").group is None
    assert bench.state.lift.empty
    assert lift_view(bench.state.lift, bench.rules).days == []


def test_the_uniform_baseline_draws_every_arm_with_its_propensity(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    user, seen = grouped(bench)[1][0], dict.fromkeys(("a0", "a1", "a2"), 0)
    for _ in range(300):
        answer = bench.decide(user, slots=2)
        assert [one.propensity for one in answer.slots or []] == [1 / 3, 1 / 2]
        seen[answer.arm] += 1
    assert all(abs(count - 100) < 5 * np.sqrt(300 * 2 / 9) for count in seen.values())


def test_a_control_decision_says_what_the_policy_expects_of_its_arm(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    user = grouped(bench)[1][0]
    bench.reward(bench.decide(user).decision_id, 1.0)
    answer = bench.decide(user)
    alone = bench.state.policy.decide(user, [ARMS[int(answer.arm[1:])]])
    assert (answer.mean, answer.width) == (alone.mean, alone.width)


def test_the_baseline_of_order_shows_the_arms_as_they_were_offered(tmp_path: Path) -> None:
    bench = opened(tmp_path, baseline="order", epsilon=0.5)
    answer = bench.decide(grouped(bench)[1][0], slots=2)
    assert [(one.arm, one.propensity) for one in answer.slots or []] == [("a0", 1.0), ("a1", 1.0)]


def test_the_callers_baseline_serves_only_the_control_group(tmp_path: Path) -> None:
    bench = opened(tmp_path, baseline="caller")
    treated, control = grouped(bench)
    for user in (treated[0], control[0]):
        with refused(422, "chosen"):
            bench.decide(user)
    answer = bench.decide(control[0], chosen="a1")
    assert (answer.arm, answer.propensity, answer.chosen) == ("a1", None, None)
    best = bench.state.policy.decide(treated[0], ARMS).arm
    other = f"a{(best + 1) % 3}"
    assert bench.decide(treated[0], chosen=other).arm == f"a{best}"


def test_the_policy_learns_from_the_control_group(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    user = grouped(bench)[1][0]
    bench.reward(bench.decide(user).decision_id, 1.0)
    assert bench.state.total.version == 1
    assert user in bench.state.policy.users


@pytest.mark.parametrize("learn", ["arrival", "settled"])
def test_sums_are_those_of_the_users(tmp_path: Path, learn: str) -> None:
    """Against `UserTotals`, which knows every user; few users, so that no two share a bucket."""
    bench = opened(tmp_path, learn=learn, default_reward=0.0, control=0.5)
    names = grouped(bench, 100)
    buckets = [bucket_of(user) for group in names for user in group]
    assert len(set(buckets)) == len(buckets)
    rng, totals = np.random.default_rng(0), (UserTotals(), UserTotals())
    for turn in range(300):
        group = turn % 2
        user = str(rng.choice(names[group]))
        asleep = rng.random() < 0.1
        id = bench.decide(user, slots=2, active=not asleep).decision_id
        if asleep:
            continue
        value = float(rng.random() < 0.3)
        if value:
            bench.reward(id, value, slot=int(rng.integers(1, 3)))
        totals[group].add([user], [value])
        bench.now += 1
    bench.now += 61
    bench.expire()
    assert not bench.state.pending
    expected = lift(*((one.counts, one.totals) for one in totals))
    found = bench.state.lift.result()
    assert (found.treated, found.control) == (expected.treated, expected.control)
    assert found.interval.low == pytest.approx(expected.interval.low)
    assert found.interval.high == pytest.approx(expected.interval.high)
    assert bits(bench.state, tmp_path) == bits(bench.replayed(), tmp_path)
    bench.save()
    kept = bits(bench.state, tmp_path)
    bench.restart()
    assert bench.snapshots.used
    assert bits(bench.state, tmp_path) == kept


def test_what_waits_is_not_counted_before_it_settles(tmp_path: Path) -> None:
    bench = opened(tmp_path, learn="settled", default_reward=0.0)
    user = grouped(bench)[0][0]
    bench.reward(bench.decide(user).decision_id, 1.0)
    assert bench.state.lift.totals()[0].tolist() == [0.0, 0.0]
    bench.now += 61
    bench.expire()
    assert bench.state.lift.totals()[0].tolist() == [1.0, 1.0]


def test_days_keep_what_could_be_seen_at_their_end(tmp_path: Path) -> None:
    sums, rng = LiftSums(), np.random.default_rng(3)
    seen = []
    for day in range(3):
        for user in range(200):
            reward = float(rng.random() < 0.5)
            sums.add(day * DAY + user, user % 2, user, decisions=1, reward=reward)
        seen.append(sums.result())
    days = sums.days()
    assert [one.day for one in days] == [0, 1, 2]
    assert [(one.value, one.low, one.high) for one in days] == [
        (one.value, one.interval.low, one.interval.high) for one in seen
    ]
    assert [one.treated_decisions for one in days] == [100.0] * 3
    state, arrays = sums.dump()
    again = LiftSums.restored(state, arrays)
    assert again.days() == days
    assert repr(again.dump()) == repr(sums.dump())


def test_users_who_share_a_bucket_leave_the_interval_about_as_long() -> None:
    """With 40 users per bucket the variance is estimated from 250 buckets: within 15 %."""
    rng = np.random.default_rng(4)
    users = 10_000
    counts = rng.poisson(5, users) + 1.0
    totals = rng.binomial(counts.astype(int), 0.1) * 1.0
    first = np.arange(users) % 2 == 0
    exact = lift((counts[first], totals[first]), (counts[~first], totals[~first]))
    sums = LiftSums()
    for user in range(users):
        sums.add(0, user % 2, (user // 2) % 250, decisions=int(counts[user]), reward=totals[user])
    found = sums.result()
    assert found.value == pytest.approx(exact.value)
    width, other = (one.interval.high - one.interval.low for one in (exact, found))
    assert other == pytest.approx(width, rel=0.15)


def test_buckets_are_used_evenly() -> None:
    filled = np.bincount([bucket_of(f"u{i}") for i in range(BUCKETS)], minlength=BUCKETS)
    assert filled.max() <= 10


def test_a_verdict_says_whether_the_policy_earns_more() -> None:
    rules = TenantSettings(2, control=0.5)
    sums = LiftSums()
    assert "since there is this control group" in lift_view(sums, rules).verdict
    at = round(START * MICRO)
    for user in range(4000):
        sums.add(at, user % 2, user, decisions=1, reward=float(user % 8 == 0))
        if user == 20:
            view = lift_view(sums, rules)
            assert "too few users" in view.verdict
            assert view.low is None
    view = lift_view(sums, rules)
    assert view.verdict.startswith("The policy earns more than the baseline: +0.25")
    assert view.days[0].day == "2023-11-14"
    assert (view.treated.decisions, view.control.mean) == (2000, 0.0)


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({"control": 1.0}, "control"),
        ({"control": 0.1, "mode": "shadow"}, "shadow"),
        ({"baseline": "best"}, "baseline"),
        ({"floor": 1.5}, "floor"),
        ({"position": 2}, "position"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(told: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        settings({"dim": 2} | told, environment={})


def chances(answer: Any) -> dict[str, float | None]:
    return {arm.id: arm.chance for arm in answer.why.arms}


def test_an_explanation_gives_the_chances_that_the_arms_really_had(tmp_path: Path) -> None:
    """Of the policy with a floor, and of each baseline; the shown arm's is its propensity."""
    for baseline in ("uniform", "order", "caller"):
        (tmp_path / baseline).mkdir()
        bench = opened(tmp_path / baseline, baseline=baseline, floor=0.1)
        more = {"chosen": ["a1", "a2"]} if baseline == "caller" else {}
        for user in (group[0] for group in grouped(bench)):
            answer = bench.decide(user, slots=2, explain=True, **more)
            found = chances(answer)
            assert found[answer.arm] == pytest.approx(answer.propensity)
            if answer.group == "treated":
                assert sorted(found.values(), key=float) == pytest.approx([0.1, 0.1, 0.8])  # type: ignore[arg-type]
            elif baseline == "order":
                assert found == {"a0": 1.0, "a1": 0.0, "a2": 0.0}
            elif baseline == "caller":
                assert set(found.values()) == {None}
            else:
                assert set(found.values()) == {1 / 3}
        bench.close()


def test_a_floor_too_large_for_the_arms_is_refused_only_if_it_applies(tmp_path: Path) -> None:
    """Nothing is drawn in shadow mode."""
    bench = opened(tmp_path, control=0.0, floor=0.4)
    with refused(422, "arms"):
        bench.decide("ana")
    bench.engine.follow(replace(bench.rules, mode="shadow"))
    assert bench.decide("ana", chosen="a1").chosen == "a1"


def serve(bench: Bench, count: int = 20) -> None:
    for i in range(count):
        bench.reward(bench.decide(f"u{i}").decision_id, 1.0)


def counted(bench: Bench) -> tuple[float, float]:
    """Decisions and rewards of the comparison, of both groups together."""
    decisions, reward = bench.state.lift.totals().sum(axis=0)
    return decisions, reward


@pytest.mark.parametrize("change", [{"baseline": "order"}, {"control": 0.6}])
def test_another_baseline_or_share_begins_a_new_comparison(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    bench = opened(tmp_path)
    serve(bench)
    bench.decide("waits", decision_id="waits")
    assert counted(bench) == (21, 20)
    first = lift_view(bench.state.lift, bench.rules)
    assert first.since == START
    bench.now += 5
    bench.rules = replace(bench.rules, **change)
    bench.engine.follow(bench.rules)
    # Nothing has been compared by these settings yet.
    assert lift_view(bench.state.lift, bench.rules).treated.decisions == 0
    serve(bench, 10)
    # The decision before had another baseline, so its reward belongs to no group.
    bench.reward("waits", 1.0)
    assert counted(bench) == (10, 10)
    assert lift_view(bench.state.lift, bench.rules).since == START + 5
    kinds = [line.kind for line in bench.reader.after(0)]
    assert kinds.count("comparison") == 2
    before = bits(bench.state, tmp_path)
    assert bits(bench.replayed(), tmp_path) == before
    bench.save()
    bench.restart()
    assert bench.snapshots.used > 0
    assert bits(bench.state, tmp_path) == before
    serve(bench, 1)
    assert counted(bench) == (11, 11)


def test_a_comparison_goes_on_after_a_restart_and_after_a_pause(tmp_path: Path) -> None:
    bench = opened(tmp_path)
    serve(bench, 5)
    bench.restart()
    serve(bench, 5)
    paused = bench.rules
    bench.engine.follow(replace(paused, control=0.0))
    serve(bench, 5)
    bench.engine.follow(paused)
    serve(bench, 5)
    assert counted(bench) == (15, 15)
    assert lift_view(bench.state.lift, paused).since == START


def test_a_comparison_whose_line_was_not_written_begins_with_the_next_decision(
    tmp_path: Path,
) -> None:
    bench = opened(tmp_path)
    bench.engine.decide(ask("ana"))
    bench.engine.failed()
    serve(bench, 3)
    assert next(line.kind for line in bench.reader.after(0)) == "comparison"
    # Decisions that are asked for at the same time begin one comparison.
    bench.engine.follow(replace(bench.rules, baseline="order"))
    asked = [bench.engine.decide(ask(user)) for user in ("ana", "ben")]
    assert [len(one.lines) for one in asked] == [2, 1]


def test_sums_of_a_journal_that_names_no_comparison_are_kept(tmp_path: Path) -> None:
    """Journals before format 4 have no such lines; an upgrade must not throw the sums away."""
    bench = opened(tmp_path)
    serve(bench, 5)
    bench.close()
    rows = sqlite3.connect(tmp_path / JOURNAL)
    assert rows.execute("DELETE FROM journal WHERE kind = 'comparison'").rowcount == 1
    rows.execute("UPDATE meta SET value = '3' WHERE name = 'format'")
    rows.commit()
    rows.close()
    bench.open()
    assert counted(bench) == (5, 5)
    serve(bench, 5)
    assert counted(bench) == (10, 10)
    view = lift_view(bench.state.lift, bench.rules)
    assert (view.since, view.treated.decisions + view.control.decisions) == (None, 10)


Event = tuple[int, int, int, int]
"""Partition, day, user, and the reward of a decision, a whole number, so that sums are exact."""

events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 200), st.integers(0, 3)),
    max_size=120,
)


def summed(rows: list[Event]) -> LiftSums:
    sums = LiftSums()
    for _, day, user, reward in sorted(rows, key=lambda row: row[1]):
        name = f"u{user}"
        sums.add(day * DAY, user % 2, bucket_of(name), decisions=1, reward=float(reward))
    return sums


def by_partition(rows: list[Event]) -> list[LiftSums]:
    """Sums of each partition; a user is in one of them only."""
    return [summed([row for row in rows if row[2] % 4 == number]) for number in range(4)]


@given(events)
def test_sums_of_partitions_joined_are_the_sums_of_all_users(rows: list[Event]) -> None:
    whole, joined = summed(rows), LiftSums.joined(by_partition(rows))
    assert (joined.empty, joined.result()) == (whole.empty, whole.result())
    assert (joined.totals() == whole.totals()).all()
    expected = whole.days()
    for one, other in zip(joined.days(), expected, strict=True):
        assert astuple(one)[:5] == astuple(other)[:5]
        assert one.value == pytest.approx(other.value)
        # The interval of a former day needs the buckets as they were then.
        if other.day < expected[-1].day:
            assert (one.low, one.high) == (-np.inf, np.inf)
    assert joined.days()[-1:] == expected[-1:]


@given(events, st.permutations(range(4)))
def test_the_order_in_which_partitions_are_joined_does_not_matter(
    rows: list[Event], order: list[int]
) -> None:
    parts = by_partition(rows)
    one, other = LiftSums.joined(parts), LiftSums.joined(parts[number] for number in order)
    nested = LiftSums.joined([LiftSums.joined(parts[:2]), LiftSums.joined(parts[2:])])
    rules = TenantSettings(2, control=0.5)
    assert lift_view(one, rules) == lift_view(other, rules) == lift_view(nested, rules)
    sent = [decode(encode([LiftSum.of(part)]), type=list[LiftSum]) for part in parts]
    assert lift_joined(sent, rules) == lift_view(one, rules)


def test_partitions_that_are_still_at_a_former_comparison_do_not_count() -> None:
    former, now = ComparisonBody(0.1, "uniform"), ComparisonBody(0.2, "uniform")
    parts = [LiftSums.begun(0, former), LiftSums.begun(5 * MICRO, now), LiftSums()]
    for one in parts[:2]:
        one.add(6 * MICRO, 0, bucket_of("ana"), decisions=1)
    sent = [[LiftSum.of(part)] for part in parts]
    for control, decisions, since in ((0.2, 1, 5.0), (0.1, 1, 0.0), (0.3, 0, None), (0.0, 1, 5.0)):
        found = lift_joined(sent, TenantSettings(2, control=control))
        assert (found.treated.decisions, found.since) == (decisions, since)


def test_a_comparison_began_when_it_began_in_the_first_partition() -> None:
    terms = ComparisonBody(0.1, "uniform")
    parts = [LiftSums.begun(at * MICRO, terms) for at in (7, 3)]
    assert LiftSums.joined(parts).since == 3 * MICRO
    # Nobody knows when: it was not written down in one of them.
    unknown = LiftSums()
    unknown.add(0, 0, 0, decisions=1)
    assert LiftSums.joined([*parts, unknown]).since is None
    assert LiftSums.joined([*parts, LiftSums()]).since == 3 * MICRO
