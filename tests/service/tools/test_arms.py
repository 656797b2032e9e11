"""`dyclu export --arms`: what a service decided, as a log that `dyclu evaluate` reads."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dyclu
from dyclu import Log
from dyclu.cli import app
from dyclu.client import Client
from dyclu.evaluate import compare, frozen
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.disk.sqlite.writer import SqliteJournal
from tests.service.bench import ARMS, SECRET, Bench
from tests.service.running import process

GENRES = ["jazz", "rock", "folk"]
SHOP = dyclu.Features(
    arm={
        "genre": {"kind": "category", "values": GENRES},
        "price": {"kind": "number", "mean": 10.0, "scale": 5.0},
    }
)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def table(out: Path) -> list[dict[str, str]]:
    with out.open() as file:
        return list(csv.DictReader(file))


def earned(arm: dict[str, Any]) -> float:
    """Return what an arm earns: exactly linear in its features, so estimates have no noise."""
    return GENRES.index(arm["genre"]) / 4 + 0.1 * (float(arm["price"]) - 10.0) / 5.0


def knowing(path: Path) -> Path:
    """Save a policy that has learnt what arms earn."""
    policy, rng = dyclu.LinUCB(SHOP.dim, alpha=0.01, shared=True), np.random.default_rng(0)
    for _ in range(300):
        arm = {"genre": GENRES[rng.integers(3)], "price": rng.uniform(5.0, 15.0)}
        policy.learn("anyone", SHOP.vectors([arm])[0], earned(arm))
    policy.save(path, features=SHOP)
    return path


def drawn_as_always(tenant: Path) -> None:
    """Begin a journal whose service draws the same random arms in every run of a test."""
    tenant.mkdir(parents=True)
    journal = SqliteJournal.open(tenant / JOURNAL, dim=SHOP.dim)
    journal.note("secret", SECRET)
    journal.close()


def test_what_a_service_decided_is_evaluated_as_it_is(tmp_path: Path) -> None:
    """Served at random by a service with named features; the truth is what the best arms earn."""
    features, rng, best, logged = tmp_path / "features", np.random.default_rng(1), [], []
    SHOP.save(features)
    drawn_as_always(tmp_path / "data" / "default")
    flags = [f"--features={features}", "--policy=linucb", "--epsilon=1", "--log-arms"]
    with process(tmp_path / "data", *flags) as (_, url), Client(url) as client:
        for turn in range(300):
            arms = {
                f"a{i}": {"genre": genre, "price": rng.uniform(5.0, 15.0)}
                for i, genre in enumerate(GENRES)
            }
            answer = client.decide(f"u{turn % 30}", arms, decision_id=f"d{turn}")
            logged.append(earned(arms[answer.arm]))
            best.append(max(map(earned, arms.values())))
            client.reward(answer.decision_id, logged[-1])
    log, policy = tmp_path / "log.csv", knowing(tmp_path / "knowing.dyclu")
    result = run("export", str(tmp_path / "data" / "default" / JOURNAL), str(log), "--arms")
    assert result.stdout == f"written: {log} (900 rows of 300 decisions)\n"
    assert Log.read_arms(log).names == SHOP.names
    plain = tmp_path / "plain.csv"
    run("export", str(tmp_path / "data" / "default" / JOURNAL), str(plain))
    assert tuple(table(plain)[0])[-SHOP.dim :] == SHOP.names
    result = run("evaluate", str(log), str(policy), "--no-report", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["propensities"] == "logged"
    assert found["logged"]["value"] == pytest.approx(np.mean(logged))
    estimates = found["policies"]["knowing"]["estimates"]
    # The model of the rewards is right, so only the ridge is between the estimate and the truth.
    assert estimates["dr"]["value"] == pytest.approx(np.mean(best), abs=0.02)
    # 100 of 300 decisions agree; rewards differ by about 0.1 where they do.
    assert estimates["snips"]["value"] == pytest.approx(np.mean(best), abs=0.05)
    assert found["verdict"] == "knowing earns more than uniform."


def test_rows_are_the_offered_arms_with_reward_and_propensity_of_the_shown_one(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, epsilon=0.5, log_arms=True)
    shown = []
    for i in range(20):
        shown.append(bench.decide("ana", decision_id=f"d{i}"))
        bench.reward(f"d{i}", float(i))
    bench.close()
    out = tmp_path / "log.csv"
    assert run("export", str(tmp_path / JOURNAL), str(out), "--arms").exit_code == 0
    rows = table(out)
    assert [row["arm"] for row in rows] == ["a0", "a1", "a2"] * 20
    for number, answer in enumerate(shown):
        mine = rows[3 * number : 3 * number + 3]
        assert {(row["decision"], row["user"], row["slot"]) for row in mine} == {
            (f"d{number}", "ana", "1")
        }
        assert [[float(row["x0"]), float(row["x1"])] for row in mine] == ARMS
        for row in mine:
            told = (row["shown"], row["propensity"], row["reward"])
            expected = ("1", str(answer.propensity), str(float(number)))
            assert told == (expected if row["arm"] == answer.arm else ("0", "", ""))


def test_csv_and_parquet_hold_the_same_log(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    bench = Bench(tmp_path, log_arms=True)
    for i in range(5):
        bench.decide("ana", decision_id=f"d{i}")
        bench.reward(f"d{i}", 0.1 * i)
    bench.close()
    chunks = []
    for suffix in ("csv", "parquet"):
        out = tmp_path / f"log.{suffix}"
        assert run("export", str(tmp_path / JOURNAL), str(out), "--arms").exit_code == 0
        chunks += list(Log.read_arms(out, time="time").chunks())
    text, binary = chunks
    assert text.time is not None
    for name in ("user", "decision", "time", "chosen", "reward", "propensity", "arms"):
        assert getattr(text, name).tolist() == getattr(binary, name).tolist(), name


def test_pages_have_a_choice_per_slot_without_the_arms_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, position=1, log_arms=True, epsilon=0.5)
    shown = [bench.decide("ana", decision_id=f"d{i}", slots=2).slots for i in range(10)]
    for i in range(10):
        bench.reward(f"d{i}", values={1: 1.0, 2: 0.5})
    bench.close()
    out = tmp_path / "log.csv"
    assert run("export", str(tmp_path / JOURNAL), str(out), "--arms").exit_code == 0
    (chunk,) = Log.read_arms(out).chunks()
    assert chunk.counts.tolist() == [3, 2] * 10
    assert chunk.reward.tolist() == [1.0, 0.5] * 10
    # The position is written into its column of all offered arms, as it was decided.
    (plain,) = {row["x1"] for row in table(out) if row["slot"] == "1"}
    (later,) = {row["x1"] for row in table(out) if row["slot"] == "2"}
    assert plain != later
    picked = [row["arm"] for row in table(out) if row["shown"] == "1"]
    assert picked == [one.arm for slots in shown if slots is not None for one in slots]


def exported(bench: Bench, tmp_path: Path) -> tuple[Any, list[dict[str, str]]]:
    out = tmp_path / "log.csv"
    result = run("export", str(tmp_path / JOURNAL), str(out), "--arms")
    bench.close()
    return result, table(out) if out.exists() else []


def test_decisions_that_wait_are_left_out_with_clicks_of_the_same_age(tmp_path: Path) -> None:
    """Only clicks are sent: of young decisions the clicked ones alone would be a biased log."""
    bench = Bench(tmp_path, log_arms=True, reward_wait=20.0)
    for i in range(10):
        bench.decide("ana", decision_id=f"old{i}")
    bench.reward("old0", 1.0)
    bench.now += 30
    bench.expire()
    for i in range(10):
        bench.decide("ana", decision_id=f"young{i}")
    bench.reward("young0", 1.0)
    result, rows = exported(bench, tmp_path)
    assert {row["decision"] for row in rows} == {f"old{i}" for i in range(10)}
    assert [row["reward"] for row in rows if row["shown"] == "1"] == ["1.0", *["0.0"] * 9]
    assert "9 decisions still wait for their rewards; they and 1 of the same age" in result.stdout
    assert "No reward of 0 ever came: 9 decisions without reward count as 0." in result.stdout


def test_a_few_that_wait_are_left_out_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, log_arms=True)
    for i in range(50):
        bench.decide("ana", decision_id=f"d{i}")
        bench.reward(f"d{i}", float(i % 2))
    bench.decide("ana", decision_id="waits")
    result, rows = exported(bench, tmp_path)
    assert "1 decisions still wait, and are left out." in result.stdout
    assert {row["decision"] for row in rows} == {f"d{i}" for i in range(50)}


def test_a_log_whose_missing_rewards_are_unknown_is_refused(tmp_path: Path) -> None:
    """Zeros were sent for some, so a missing reward is no zero, and half of them are missing."""
    bench = Bench(tmp_path, log_arms=True, reward_wait=20.0)
    for i in range(10):
        bench.decide("ana", decision_id=f"d{i}")
        if i % 2:
            bench.reward(f"d{i}", float(i % 3 == 0))
    bench.now += 30
    bench.expire()
    bench.decide("ana")
    result, rows = exported(bench, tmp_path)
    assert result.exit_code == 2
    assert "5 of 10 decisions have no reward although their time is over" in result.stderr
    assert not rows
    assert not list(tmp_path.glob(".log.csv*"))


def test_decisions_never_activated_are_left_out_and_activated_ones_are_not(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, log_arms=True, reward_wait=20.0)
    for name in ("kept", "shown"):
        bench.decide("ana", active=False, decision_id=name)
    bench.decide("ana", decision_id="plain")
    bench.do(bench.engine.activate, "shown")
    bench.now += 30
    bench.expire()
    bench.decide("ana", decision_id="last", active=False)
    result, rows = exported(bench, tmp_path)
    assert {row["decision"] for row in rows} == {"shown", "plain"}
    assert "2 decisions that were never activated are left out." in result.stdout


def test_decisions_without_arms_or_propensity_are_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mode="shadow", log_arms=True)
    bench.decide("ana", chosen="a1", decision_id="unknown")
    bench.decide("ana", chosen="a1", propensity=0.25, decision_id="known")
    for name in ("unknown", "known"):
        bench.reward(name, 1.0)
    result, rows = exported(bench, tmp_path)
    assert {row["decision"] for row in rows} == {"known"}
    assert "1 decisions without a propensity are left out." in result.stdout


def test_a_journal_without_arms_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.decide("ana", decision_id="d")
    bench.reward("d", 1.0)
    result, _ = exported(bench, tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert re.search("1 no arms.*log_arms = true", result.stderr)


def test_the_control_group_is_evaluated_together_with_the_treated(tmp_path: Path) -> None:
    """Users of both groups are served with known probabilities, so both belong to the log."""
    bench = Bench(tmp_path, log_arms=True, epsilon=0.3, control=0.5, baseline="uniform")
    for i in range(200):
        answer = bench.decide(f"u{i % 40}", decision_id=f"d{i}")
        bench.reward(f"d{i}", float(answer.arm == "a0"))
    _, rows = exported(bench, tmp_path)
    assert {row["group"] for row in rows} == {"treated", "control"}
    policy = dyclu.LinUCB(2, alpha=0.01, shared=True)
    policy.learn("anyone", ARMS[0], 1.0)
    found = compare(Log.read_arms(tmp_path / "log.csv"), {"a0": frozen(policy)})
    # It always shows the one arm that earns anything, whoever is asked.
    assert found["a0"].estimates["snips"].value == pytest.approx(1.0)


def test_a_policy_with_other_features_than_the_columns_is_refused(tmp_path: Path) -> None:
    rows = [
        {"decision": "d", "user": "ana", "shown": shown, "propensity": 0.5, "reward": 1.0,
         **dict.fromkeys(SHOP.names, 1.0)}
        for shown in (0, 1)
    ]  # fmt: skip
    log, other = tmp_path / "log.csv", tmp_path / "other.dyclu"
    with log.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    features = dyclu.Features(arm={"size": {"kind": "number", "mean": 0, "scale": 1}})
    dyclu.LinUCB(features.dim, alpha=0.1).save(other, features=features)
    result = run("evaluate", str(log), str(other), "--no-report")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "learnt with the features intercept, size; those of" in result.stderr
    result = run("evaluate", str(log), f"--features={tmp_path / 'x.toml'}", "--no-report")
    assert result.exit_code == 2
    assert "holds vectors, which need no --features" in result.stderr
