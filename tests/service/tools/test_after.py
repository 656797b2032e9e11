"""Replay, export and load test: what is made of a journal, and of a service, afterwards."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dyclu
from dyclu.cli import app
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.http.keys import digest
from dyclu.service.schema import Observation
from dyclu.service.spec import PolicySpec
from dyclu.service.tools.export.decisions import COLUMNS
from dyclu.service.tools.loadtest import Load, SimulatedUsers, load
from dyclu.service.tools.replay import replay
from dyclu.service.tools.sources import Source
from tests.service.bench import ARMS, Bench
from tests.service.running import running, told

TASTE = {"ana": [1.0, 0.0], "bea": [0.0, 1.0]}


def worth(user: str, arm: str) -> float:
    return float(np.dot(TASTE[user], ARMS[int(arm[1:])]))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half at random, all arms kept: two users with tastes of their own, one who left early."""
    folder = tmp_path_factory.mktemp("journal")
    bench = Bench(folder, epsilon=0.5, log_arms=True, reward_wait=1000.0, default_reward=None)
    bench.journal.note_served(json.dumps({"name": "linucb", "dim": 2, "options": {"alpha": 0.5}}))
    for i in range(400):
        user = ("ana", "bea")[i % 2]
        answer = bench.decide(user, decision_id=f"d{i}")
        bench.reward(answer.decision_id, worth(user, answer.arm))
    bench.do(bench.engine.observe, Observation("cleo", [1.0, 0.0], 0.25, event_id="e1"))
    bench.decide("ana", decision_id="waiting")
    bench.close()
    return folder / JOURNAL


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def test_replaying_the_same_policy_gives_the_same_errors_and_changes(journal: Path) -> None:
    result = run("replay", str(journal), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["served"] == found["replayed"]
    assert (found["decisions"], found["rewards"], found["events"]) == (401, 400, 1)
    assert (found["waiting"], found["without_reward"], found["counted"]) == (1, 0, 400)
    assert found["users_changed_in_one_only"] == 0


def test_a_better_policy_gets_a_higher_estimated_mean_reward(journal: Path) -> None:
    """LinUCB alone, without the half at random, chooses the best arm once it knows the tastes."""
    found = json.loads(run("replay", str(journal), "--options=alpha=0.1", "--json").stdout)
    assert found["decisions_with_arms"] == 401
    assert 0.4 < found["agreement"] < 0.9
    # Best arms are worth 1; a third of the explored half is spent on them.
    assert found["mean_reward"]["value"] < 0.9
    assert found["estimated_mean_reward"]["value"] == pytest.approx(1.0, abs=0.05)
    uniform = json.loads(run("replay", str(journal), "--policy=uniform", "--json").stdout)
    # Any arm: (1 + 0 + 0.6) / 3 for ana and (0 + 1 + 0.8) / 3 for bea.
    assert uniform["estimated_mean_reward"]["value"] == pytest.approx(0.57, abs=0.12)
    assert uniform["replayed"]["error"] > found["replayed"]["error"]


def shop(folder: Path, *, zeros: bool, users: int = 40) -> Bench:
    """Every decision is clicked with chance 0.08, at once; half at random, all arms kept."""
    bench = Bench(folder, epsilon=0.5, log_arms=True, reward_wait=20.0, default_reward=None)
    rng = np.random.default_rng(0)
    for i in range(1_200):
        answer = bench.decide(f"u{i % users}", decision_id=f"d{i}")
        click = float(rng.random() < 0.08)
        if click or zeros:
            bench.reward(answer.decision_id, click)
        bench.now += 0.1
        if i % 200 == 199:
            bench.expire()
    return bench


@pytest.mark.parametrize("zeros", [True, False])
def test_replay_never_takes_the_mean_of_clicks_alone(tmp_path: Path, zeros: bool) -> None:
    """Without zeros, the last 20 seconds still wait: their clicks came, the rest did not yet."""
    bench = shop(tmp_path, zeros=zeros)
    spec = PolicySpec("linucb", 2, {"alpha": 0.5})
    report = replay([Source(bench.reader)], spec, PolicySpec("uniform", 2, {}))
    found = report.evaluation()
    assert found.logged is not None
    assert found.estimate is not None
    assert 0.08 in found.logged.interval
    assert 0.08 in found.estimate.interval
    assert found.estimate.interval.high < 0.2
    if zeros:
        assert (found.counted, found.waiting, found.notes) == (1_200, 0, ())
    else:
        assert found.waiting > 150
        assert 900 < found.counted < 1_050
        assert "still wait" in found.notes[0]
        assert "count as 0" in found.notes[1]
    bench.close()


@pytest.mark.parametrize("default", [None, 0.0])
def test_overdue_decisions_that_were_not_yet_ended_count_as_over(
    tmp_path: Path, default: float | None
) -> None:
    """One in ten is clicked, and the service stops before it ends the other 90 decisions."""
    bench = Bench(tmp_path, reward_wait=20.0, default_reward=default)
    bench.decide("early")
    bench.now += 30
    bench.expire()
    for i in range(100):
        answer = bench.decide(f"u{i}")
        if i % 10 == 0:
            bench.reward(answer.decision_id, 1.0)
    bench.decide("ana", active=False)
    bench.now += 30
    bench.decide("ana")
    spec = PolicySpec("linucb", 2, {})
    report = replay([Source(bench.reader)], spec, spec)
    found = report.evaluation()
    # The last decision still waits; the inactive one was never shown.
    assert (found.waiting, found.counted) == (1, 101)
    assert found.unrewarded == (91 if default is None else 0)
    assert found.logged is not None
    assert found.logged.value == pytest.approx(10 / 101)
    assert len(report.other.predictions) == 2
    bench.close()


def test_the_printed_report_has_interval_and_verdict(journal: Path) -> None:
    lines = run("replay", str(journal), "--options=alpha=0.1").stdout.splitlines()
    told = {line[:26].strip(): line[26:].strip() for line in lines}
    assert re.fullmatch(r"value 0\.\d+, low None, high None", told["mean reward"])
    assert told["verdict"] == (
        "The log cannot say what LinUCB earns: only 2 users, at least 20 are needed."
    )


def test_decisions_that_were_never_activated_are_not_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reward_wait=1.0)
    bench.decide("ana", active=False, decision_id="kept")
    bench.decide("ana", active=False, decision_id="shown")
    bench.do(bench.engine.activate, "shown")
    bench.now += 2
    bench.expire()
    spec = PolicySpec("linucb", 2, {})
    found = replay([Source(bench.reader)], spec, spec).evaluation()
    assert (found.unrewarded, found.waiting) == (1, 0)
    bench.close()


def test_replay_saves_the_replayed_policy(journal: Path, tmp_path: Path) -> None:
    result = run("replay", str(journal), "--policy=dyclu", f"--save={tmp_path / 'policy'}")
    assert result.exit_code == 0, result.output
    assert "DyClu(" in result.stdout
    assert isinstance(dyclu.load(tmp_path / "policy"), dyclu.DyClu)


def test_replay_drops_predictions_of_expired_decisions(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reward_wait=1.0)
    bench.decide("ana")
    bench.now += 2
    bench.expire()
    spec = PolicySpec("linucb", 2, {})
    report = replay([Source(bench.reader)], spec, spec)
    assert (report.decisions, report.rewards) == (1, 0)
    assert not report.other.predictions


def test_export_writes_csv(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    result = run("export", str(journal), str(out))
    assert result.stdout == f"written: {out} (402 rows)\n"
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == [*(name for name, _ in COLUMNS), "x0", "x1"]
    assert [row["id"] for row in rows[:2]] == ["d0", "d1"]
    first = rows[0]
    assert float(first["reward"]) == worth(first["user"], first["arm"])
    assert [float(first["x0"]), float(first["x1"])] == ARMS[int(first["arm"][1:])]
    assert 0 < float(first["propensity"]) <= 1
    event, waiting = rows[-2], rows[-1]
    assert (event["kind"], event["id"], float(event["reward"])) == ("event", "e1", 0.25)
    assert (waiting["id"], waiting["reward"], waiting["reward_at"]) == ("waiting", "", "")
    assert first["at"].startswith("2023-11-14T22:13:20")
    assert list(tmp_path.iterdir()) == [out]


def test_export_writes_parquet(journal: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    out = tmp_path / "table.parquet"
    assert run("export", str(journal), str(out)).exit_code == 0
    rows = parquet.read_table(out).to_pylist()
    assert len(rows) == 402
    run("export", str(journal), str(tmp_path / "table.csv"))
    plain = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    for row, text in zip(rows, plain, strict=True):
        assert {name: "" if value is None else str(value) for name, value in row.items()} == text


def test_a_missing_journal_is_reported(tmp_path: Path) -> None:
    for words in (["replay", str(tmp_path / "x")], ["export", str(tmp_path / "x"), "y.csv"]):
        result = run(*words)
        assert result.exit_code == 2
        assert "there is no journal" in result.stderr


def test_a_load_test_measures_latency_and_falling_regret(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=5)) as made:
        wanted = Load(users=6, tastes=2, clients=8, seconds=1.5, noise=0.05)
        steps: list[float] = []
        found = asyncio.run(load(made.url, wanted, progress=steps.append)).numbers()
        policy = made.http.get("/v1/policy").json()
    assert steps
    assert found["errors"] == {}
    assert found["decisions_per_second"] * found["seconds"] == pytest.approx(
        policy["decisions"], rel=0.01
    )
    assert policy["rewards"] == policy["decisions"]
    assert 0 < found["decision_ms"]["p50"] <= found["decision_ms"]["p99"]
    # Six users learn five weights each: what is given away must shrink.
    assert found["regret_last_tenth"] < 0.5 * found["regret_first_tenth"]


def test_a_load_test_keeps_its_rate_and_can_send_no_rewards(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=3)) as made:
        wanted = Load(users=5, clients=4, seconds=1.0, rate=20.0, rewarded=0.0)
        found = asyncio.run(load(made.url, wanted)).numbers()
    assert 10 < found["decisions_per_second"] < 25
    assert found["rewards_per_second"] == 0


def test_a_load_test_ends_after_its_rounds_and_rewards_the_given_share(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=3)) as made:
        wanted = Load(users=5, clients=4, seconds=60.0, rounds=200, rewarded=0.5)
        served = asyncio.run(load(made.url, wanted))
    # No client stops in the middle of a round.
    assert 200 <= len(served.decisions) < 204
    # Five standard deviations of a binomial count.
    assert abs(len(served.rewards) - 100) < 5 * np.sqrt(200 / 4)


def test_another_turn_has_the_same_users_and_other_arms() -> None:
    first, again, other = (SimulatedUsers(Load(turn=turn), 3) for turn in (0, 0, 1))
    bodies = [
        [one.round(str)[3].partition(b"arms")[2] for _ in range(50)]
        for one in (first, again, other)
    ]
    assert bodies[0] == bodies[1]
    assert not set(bodies[0]) & set(bodies[2])
    assert np.array_equal(first.worth, other.worth)
    assert first.written == other.written


def test_a_load_test_without_a_service_is_reported() -> None:
    result = run("loadtest", "http://127.0.0.1:9", "--seconds=1")
    assert result.exit_code == 2
    assert "does not answer" in result.stderr
    assert run("loadtest", "ftp://x").exit_code == 2


def test_the_key_command_prints_a_key_and_its_digest() -> None:
    lines = run("key").stdout.splitlines()
    key = lines[0].removeprefix("key: ")
    assert lines[2] == f'digest = "{digest(key)}"'
    assert run("key").stdout != run("key").stdout
    assert 'role = "read-only"' in run("key", "--role=read-only").stdout


def test_a_key_with_an_unknown_role_is_refused() -> None:
    result = run("key", "--role=bogus")
    assert result.exit_code == 2
    assert "'bogus', expected read-only or read-write" in result.stderr
    assert "key:" not in result.stdout


def test_serving_without_a_tenant_is_refused() -> None:
    result = run("serve")
    assert result.exit_code == 2
    assert "no tenant is set up" in result.stderr
    result = run("serve", "--dim=2", "--host=0.0.0.0")
    assert result.exit_code == 2
    assert "without keys" in result.stderr


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dyclu.service.")]:
        if name != "dyclu.service.commands":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    result = run("serve", "--dim=2")
    assert result.exit_code == 2
    assert "pip install 'dyclu[service]'" in result.stderr


def test_a_load_test_at_a_fixed_rate_counts_the_time_rounds_waited(tmp_path: Path) -> None:
    """The service stands still for a second: all rounds due in it waited, not only those sent."""
    with running(told(tmp_path)) as service:
        loop = service.service.tenants["default"].committer._loop
        stall = threading.Timer(0.5, loop.call_soon_threadsafe, (time.sleep, 1.0))
        stall.start()
        wanted = Load(users=10, arms=3, clients=4, seconds=2.5, rate=80.0, rewarded=0.0)
        served = asyncio.run(load(service.url, wanted, dim=2))
        stall.join()
    late = sum(seconds > 0.25 for seconds in served.decisions)
    # 60 rounds are due in the first three quarters of the second; before, 4 were counted as late.
    assert late > 45
    assert len(served.decisions) + sum(served.errors.values()) == 200


def test_rounds_that_a_slow_service_never_got_are_counted(tmp_path: Path) -> None:
    with running(told(tmp_path)) as service:
        loop = service.service.tenants["default"].committer._loop
        loop.call_soon_threadsafe(time.sleep, 1.0)
        wanted = Load(users=10, arms=3, clients=2, seconds=0.5, rate=100.0, rewarded=0.0)
        served = asyncio.run(load(service.url, wanted, dim=2))
    assert len(served.decisions) + served.errors["not begun"] == 50
    assert served.errors["not begun"] > 40


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two slots of three arms, half at random; rewards settle, the second slot of some is lost."""
    folder = tmp_path_factory.mktemp("pages")
    bench = Bench(
        folder, epsilon=0.5, log_arms=True, reward_wait=10.0, default_reward=0.0, learn="settled",
        control=0.2,
    )  # fmt: skip
    bench.journal.note_served(json.dumps({"name": "linucb", "dim": 2, "options": {"alpha": 0.5}}))
    for i in range(300):
        user = ("ana", "bea")[i % 2]
        shown = bench.decide(user, decision_id=f"d{i}", slots=2).slots
        assert shown is not None
        bench.reward(f"d{i}", worth(user, shown[0].arm), slot=1)
        if i % 3:
            bench.reward(f"d{i}", worth(user, shown[1].arm), slot=2)
        bench.now += 1
        bench.expire()
    bench.close()
    return folder / JOURNAL


def test_the_exported_table_has_a_row_per_slot(pages: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.csv"
    assert run("export", str(pages), str(out)).exit_code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    for number, (first, second) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        assert (first["id"], first["slot"], second["slot"]) == (f"d{number}", "1", "2")
        assert first["arm"] != second["arm"]
        assert first["group"] in ("treated", "control")
        x = [float(second["x0"]), float(second["x1"])]
        assert x == ARMS[int(second["arm"][1:])]
        if second["reward"]:
            assert second["default"] == str(number % 3 == 0)
            expected = worth(second["user"], second["arm"]) if number % 3 else 0.0
            assert float(second["reward"]) == expected
        else:
            assert number >= 289, "only the last ten decisions still wait"


def test_a_replay_evaluates_slot_by_slot(pages: Path) -> None:
    found = json.loads(run("replay", str(pages), "--json").stdout)
    assert found["served"] == found["replayed"]
    assert found["decisions"] == 300
    assert found["decisions_with_arms"] == 600
    assert found["rewards"] + found["waiting"] == 600
    assert 0.3 < found["agreement"] < 1.0
    assert found["estimated_mean_reward"]["value"] is not None


def test_a_replay_compares_arms_with_the_position_of_the_slot(tmp_path: Path) -> None:
    """What the caller sends in that column counts for nothing, then as now."""
    bench = Bench(tmp_path, position=1, log_arms=True)
    spec = bench.rules.spec()
    for i in range(30):
        arms = [[1.0, 5.0 * (i % 2)], [0.9, 5.0 * (i % 3)], [0.2, 5.0]]
        bench.decide("ana", slots=2, decision_id=f"d{i}", arms=arms)
        bench.reward(f"d{i}", values={1: 1.0, 2: 0.5})
    report = replay([Source(bench.reader)], spec, spec)
    assert (report.asked, report.agreed) == (60, 60)


def test_shadow_decisions_with_propensities_are_evaluated(tmp_path: Path) -> None:
    """Any of three arms is chosen, and only the first earns 1: so would a policy that knows it."""
    bench = Bench(tmp_path, mode="shadow", log_arms=True, options={"alpha": 0.01})
    rng = np.random.default_rng(0)
    for i in range(300):
        arm, at = f"a{rng.integers(3)}", 1.5e9 + i
        bench.decide("ana", chosen=arm, propensity=1 / 3, at=at, decision_id=f"d{i}")
        bench.reward(f"d{i}", worth("ana", arm))
    spec = bench.rules.spec()
    report = replay([Source(bench.reader)], spec, spec)
    found = report.evaluation()
    assert found.estimate is not None
    assert found.logged is not None
    # (1 + 0 + 0.6) / 3, and 1 but for the first decisions.
    assert found.logged.value == pytest.approx(0.53, abs=0.07)
    assert found.estimate.value == pytest.approx(1.0, abs=0.02)
    out = tmp_path / "shadow.csv"
    assert run("export", str(tmp_path / JOURNAL), str(out)).exit_code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert {float(row["propensity"]) for row in rows} == {1 / 3}
    assert (rows[0]["at"], rows[1]["at"]) == (
        "2017-07-14T02:40:00.000000+00:00",
        "2017-07-14T02:40:01.000000+00:00",
    )


def test_a_load_test_fills_and_rewards_slots(tmp_path: Path) -> None:
    with running(told(tmp_path, dim=3)) as made:
        wanted = Load(users=5, clients=4, seconds=20.0, rounds=40, slots=3)
        found = asyncio.run(load(made.url, wanted)).numbers()
        policy = made.http.get("/v1/policy").json()
    assert found["errors"] == {}
    assert (policy["decisions"], policy["rewards"]) == (40, 120)


def test_journals_of_partitions_are_replayed_apart(tmp_path: Path) -> None:
    """Their lines have the same numbers, and neither policy may know what the other has learnt."""
    spec = PolicySpec("linucb", 2, {"alpha": 0.5, "shared": True})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    benches = [Bench(tmp_path / name, log_arms=True, epsilon=0.5) for name in ("one", "two")]
    for place, bench in enumerate(benches):
        for i in range(20):
            answer = bench.decide("ana", decision_id=f"d{i}")
            # The first ones wait: in both journals their numbers are the same.
            if i > 2 + place:
                bench.reward(f"d{i}", place + worth("ana", answer.arm))
    alone = [replay([Source(bench.reader)], spec, spec) for bench in benches]
    both = replay([Source(bench.reader, place) for place, bench in enumerate(benches)], spec, spec)
    assert both.served.squares == pytest.approx(sum(one.served.squares for one in alone))
    assert both.served.predicted == 33
    assert both.evaluation().waiting == 3 + 4
    for bench in benches:
        bench.close()
