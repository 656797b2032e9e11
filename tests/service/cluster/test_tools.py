"""`dyclu export` and `dyclu replay` on a cluster give what they give on one journal.

LinUCB learns from each user alone, so how users are divided into partitions changes nothing.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.client.partitions import partition_of
from dyclu.service.disk.postgres.database import Database
from dyclu.service.disk.snapshots import JOURNAL
from dyclu.service.tools.migration.migrate import Plan, migrate
from tests.service.bench import Bench
from tests.service.cluster.test_cluster import insist, member
from tests.service.postgres import Postgres, programs

DEPLOYMENT = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
PARTITIONS = 3


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def rows(path: Path, *without: str) -> list[dict[str, str]]:
    with path.open() as file:
        found = [dict(row) for row in csv.DictReader(file)]
    return [{name: row[name] for name in row if name not in without} for row in found]


@pytest.fixture
def moved(tmp_path: Path, store: str) -> Path:
    """A journal of 30 users that was moved to three partitions, and lies in a file too."""
    place = tmp_path / "data" / "default"
    place.mkdir(parents=True)
    bench = Bench(place, epsilon=0.5, log_arms=True, reward_wait=60.0)
    bench.journal.note_served(json.dumps({"name": "linucb", "dim": 2, "options": {"alpha": 0.5}}))
    for i in range(300):
        answer = bench.decide(f"u{i % 30}", decision_id=f"d{i}")
        bench.now += 0.5
        # The last ones wait in all partitions.
        if i < 285:
            bench.reward(f"d{i}", float(answer.arm == "a0"))
    bench.close()
    with closing(Database(store, most=1)) as database:
        database.begin()
        assert all(one.now for one in migrate(tmp_path / "data", database, Plan(PARTITIONS)))
    return place / JOURNAL


def test_a_replay_of_all_partitions_is_that_of_the_journal(moved: Path, store: str) -> None:
    one = json.loads(run("replay", str(moved), "--options=alpha=0.1", "--json").stdout)
    result = run("replay", f"--store={store}", "--options=alpha=0.1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (one["decisions"], one["rewards"], one["waiting"]) == (300, 285, 15)
    for policy in ("served", "replayed"):
        # Squares are added up in another order.
        assert found[policy].pop("error") == pytest.approx(one[policy].pop("error"))
    for interval in ("mean_reward", "estimated_mean_reward"):
        # Users are resampled in another order, so the ends differ by a little.
        assert found[interval]["value"] == pytest.approx(one[interval]["value"])
        del found[interval], one[interval]
    for name in ("verdict", "effective_sample_size"):
        del found[name], one[name]
    assert found == one


@pytest.mark.parametrize("arms", [False, True])
def test_an_export_of_all_partitions_has_the_rows_of_the_journal(
    moved: Path, store: str, tmp_path: Path, arms: bool
) -> None:
    file, cluster = tmp_path / "file.csv", tmp_path / "cluster.csv"
    more = ["--arms"] if arms else []
    assert run("export", str(moved), str(file), *more).exit_code == 0
    result = run("export", str(cluster), f"--store={store}", *more)
    assert result.exit_code == 0, result.output
    one, all_ = rows(file, "partition"), rows(cluster, "partition")
    # Of the last minute 15 wait; they and the other 105 of its decisions are not evaluated.
    assert len(one) == (3 * 180 if arms else 300)
    assert sorted(map(str, all_)) == sorted(map(str, one))
    if not arms:
        told = [(row["user"], int(row["partition"])) for row in rows(cluster)]
        assert [place for _, place in told] == sorted(place for _, place in told)
        assert all(partition_of(user, PARTITIONS) == place for user, place in told)


def test_a_cluster_that_serves_is_exported_without_a_pause(store: str, tmp_path: Path) -> None:
    out = tmp_path / "served.csv"
    with member(store, tmp_path / "data", name="a", epsilon=0.5, log_arms=True) as made:
        for i in range(20):
            insist(lambda i=i: made.decide(f"u{i}", decision_id=f"d{i}"))
            insist(lambda i=i: made.reward(f"d{i}", 0.25 * i))
        assert run("export", str(out), f"--store={store}").exit_code == 0
        assert insist(lambda: made.decide("later")).status_code == 200
    found = {row["id"]: float(row["reward"]) for row in rows(out)}
    assert found == {f"d{i}": 0.25 * i for i in range(20)}
    with psycopg.connect(store) as tables:
        (lines,) = tables.execute("SELECT count(*) FROM dyclu.journal").fetchone() or (0,)
        assert lines >= 41, "nothing was removed or changed"


def test_a_restored_dump_is_served_with_everything_up_to_it(
    moved: Path, store: str, server: Postgres, tmp_path: Path
) -> None:
    """As docs/deployment.md says: one dump of the schema, restored into an empty database."""
    (shown,) = re.findall(r"^```sh\n(pg_dump .*?)^```$", DEPLOYMENT, re.DOTALL | re.MULTILINE)
    dump, bin_ = tmp_path / "dyclu.dump", programs()
    told = {**os.environ, "DYCLU_STORE": store, "PATH": f"{bin_}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", shown], check=True, env=told, cwd=tmp_path)
    with member(store, tmp_path / "before", name="a", partitions=PARTITIONS) as made:
        assert insist(lambda: made.decide("later", decision_id="lost")).status_code == 200
    restored = server.fresh()
    words = ["--no-owner", f"--dbname={restored}", str(dump)]
    subprocess.run([f"{bin_}/pg_restore", *words], check=True)
    with member(restored, tmp_path / "after", name="a", partitions=PARTITIONS) as made:
        assert made.http.get("/v1/users/u0").json()["decisions"] == 10
        # What was written after the dump is unknown; what waited then is known, and its time over.
        assert insist(lambda: made.reward("lost", 1.0)).status_code == 404
        assert insist(lambda: made.reward("d299", 1.0)).status_code == 410
    one, other = tmp_path / "journal.csv", tmp_path / "restored.csv"
    assert run("export", str(moved), str(one)).exit_code == 0
    assert run("export", str(other), f"--store={restored}").exit_code == 0
    assert {row["id"] for row in rows(one)} == {row["id"] for row in rows(other)}


def test_what_cannot_be_read_is_refused_with_what_to_do(
    moved: Path, store: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out.csv")
    for words, said in (
        (["export", out, f"--store={store}", "--tenant=shop"], "expected one of: default"),
        (["export", str(moved), out, f"--store={store}"], "pass one of them"),
        (["replay"], "pass one of them"),
        (["export", str(moved)], "no file to write"),
        (["replay", f"--store={store}", f"--save={out}"], "3 partitions, each with a policy"),
    ):
        result = run(*words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), words
        assert said in result.stderr
        assert "not-shown" not in result.stderr, "a password"
    with psycopg.connect(store, autocommit=True) as tables:
        tables.execute("DROP SCHEMA dyclu CASCADE")
    assert "holds no journals" in run("export", out, f"--store={store}").stderr
