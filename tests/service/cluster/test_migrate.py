"""`dyclu migrate`: what was in files is in PostgreSQL, verified; or nothing is, and it says why."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.client import Client
from dyclu.client.partitions import partition_of
from dyclu.errors import FileError, OptionError
from dyclu.service.disk.locks import locked
from dyclu.service.disk.postgres.database import Database
from dyclu.service.tools.migration import migrate as migration
from dyclu.service.tools.migration import verify
from dyclu.service.tools.migration.migrate import Moved, Plan, migrate
from tests.service.cluster.test_cluster import insist, member
from tests.service.crash import saved, serial
from tests.service.running import Running, running, told

USERS = [f"user-{number}" for number in range(12)]
PARTITIONS = 3
RULES: dict[str, Any] = {"control": 0.3, "baseline": "uniform", "epsilon": 0.1}


def live(made: Running, *, rounds: int = 6) -> None:
    """Make lines of every kind: slots, arrivals, activations, expiries, erasures, observations."""
    rng = random.Random(0)
    for turn in range(rounds):
        for user in USERS:
            more = {"slots": 2} if turn % 2 else {"active": turn != 2}
            id = made.decide(user, decision_id=f"d-{user}-{turn}", **more).json()["decision_id"]
            if turn == 2:
                made.http.post(f"/v1/decisions/{id}/activate")
            if turn % 3:
                given = {"value": rng.gauss(0.0, 1.0), "slot": 1}
                assert made.http.post(f"/v1/decisions/{id}/reward", json=given).status_code == 200
            seen = {"user": user, "features": [rng.random(), 1.0], "reward": rng.random()}
            made.http.post("/v1/observations", json={"observations": [seen]})
    assert made.http.delete(f"/v1/users/{USERS[-1]}").status_code == 202


@pytest.fixture(scope="module", params=["linucb", pytest.param("atlas", marks=pytest.mark.long)])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a journal of every kind of lines."""
    data = tmp_path_factory.mktemp("source") / "data"
    options = {"alpha": 0.5} if request.param == "linucb" else {}
    given = told(data, policy=request.param, options=options, reward_wait=1.0, **RULES)
    with running(given) as made:
        live(made)
        # What nobody rewards has to expire.
        import time

        time.sleep(1.7)
        assert made.decide("late").status_code == 200
    return data


def moved(data: Path, store: str, plan: Plan | None = None) -> list[Moved]:
    with closing(Database(store, most=1)) as database:
        return list(migrate(data, database, plan or Plan(PARTITIONS)))


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def lines_of(data: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(data / "default" / "journal.db")) as rows:
        return rows.execute(
            "SELECT seq, at, kind, ref, user, of, body FROM journal ORDER BY seq"
        ).fetchall()


def test_lines_of_a_user_are_in_their_partition_and_say_the_same(
    source: Path, store: str, tmp_path: Path
) -> None:
    before = digests(source)
    (one,) = moved(source, store)
    assert digests(source) == before
    old = lines_of(source)
    kinds = {line[2] for line in old}
    assert {"decision", "reward", "expiry", "event", "activation", "erasure", "comparison"} <= kinds
    whose = {line[0]: line[4] for line in old if line[2] == "decision"}
    with psycopg.connect(store) as tables:
        for place in range(PARTITIONS):
            new = tables.execute(
                'SELECT seq, at, kind, ref, "user", of, body FROM dyclu.journal '
                "WHERE partition = %s ORDER BY seq",
                (place,),
            ).fetchall()
            assert [line for line in new if line[2] != "expiry"] == [
                line
                for line in old
                if line[2] == "comparison"
                or ((user := line[4] or whose.get(line[5])) and partition_of(user, 3) == place)
            ]
            # The same policy as one that learns these users' rewards from the old journal.
            mine = [line for line in old if _in(line, place, whose)]
            assert _learnt(mine, source, tmp_path) == _learnt(new, source, tmp_path)
    assert (one.tenant, one.lines, one.now) == ("default", old[-1][0], True)


def _in(line: tuple[Any, ...], place: int, whose: dict[int, str]) -> bool:
    user = line[4] or whose.get(line[5])
    return user is not None and partition_of(user, PARTITIONS) == place


def _learnt(lines: list[tuple[Any, ...]], source: Path, scratch: Path) -> bytes:
    """Learn lines with nothing but a policy (`tests.service.crash.serial`)."""
    from dyclu.service.spec import PolicySpec

    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE TABLE journal (seq PRIMARY KEY, at, kind, ref, user, of, body)")
    rows.execute("CREATE TABLE meta (name, value)")
    rows.execute("INSERT INTO meta VALUES ('base', 0)")
    rows.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
    with closing(sqlite3.connect(source / "default" / "journal.db")) as journal:
        (served,) = journal.execute("SELECT value FROM meta WHERE name = 'served'").fetchone()
    with closing(rows):
        return saved(serial(rows, PolicySpec(**json.loads(served)), scratch), scratch)


def test_a_cluster_serves_what_was_moved(source: Path, store: str, tmp_path: Path) -> None:
    policy = "atlas" if b'"atlas"' in (source / "default" / "journal.db").read_bytes() else "linucb"
    options = {"alpha": 0.5} if policy == "linucb" else {}
    rules = {"policy": policy, "options": options, "reward_wait": 1.0, **RULES}
    with running(told(source, **rules)) as old:
        expected = {user: old.http.get(f"/v1/users/{user}").json() for user in USERS[:-1]}
        group = {user: old.decide(user).json().get("group") for user in USERS[:-1]}
    moved(source, store)
    with member(store, tmp_path, name="a", partitions=PARTITIONS, **rules) as made:
        for user, told_before in expected.items():
            found = insist(lambda u=user: made.http.get(f"/v1/users/{u}")).json()
            for what in ("rewards", "reward_sum", "last_seen"):
                assert found.get(what) == pytest.approx(told_before.get(what)), (user, what)
            assert made.decide(user).json().get("group") == group[user]
        assert made.http.get(f"/v1/users/{USERS[-1]}").status_code == 404
        # What was answered before is repeated, not done again.
        count = made.http.get(f"/v1/users/{USERS[0]}").json()["decisions"]
        repeated = insist(lambda: made.decide(USERS[0], decision_id=f"d-{USERS[0]}-0"))
        assert repeated.status_code == 200
        assert made.http.get(f"/v1/users/{USERS[0]}").json()["decisions"] == count
        with Client(made.url) as client:
            client.reward(client.decide(USERS[0], {"a0": [1, 0]}).decision_id, 1.0)
    (again,) = moved(source, store)
    assert (again.now, again.users) == (False, None)


def test_a_second_run_moves_nothing_and_verifies_again(source: Path, store: str) -> None:
    moved(source, store)
    assert not moved(source, store)[0].now
    with psycopg.connect(store) as tables:
        tables.execute(
            "DELETE FROM dyclu.journal WHERE ctid IN "
            "(SELECT ctid FROM dyclu.journal WHERE kind = 'event' LIMIT 1)"
        )
    with pytest.raises(FileError, match="× event"):
        moved(source, store)


def test_after_an_interruption_nothing_is_there_and_it_begins_again(
    source: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        broken.setattr(migration, "check_histories", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moved(source, store)
    with psycopg.connect(store) as tables:
        for table in ("journal", "fact", "partition", "tenant"):
            assert tables.execute(f"SELECT count(*) FROM dyclu.{table}").fetchone() == (0,)
    assert moved(source, store)[0].now


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE dyclu.journal SET ref = 'x' WHERE kind = 'event' AND seq = (SELECT min(seq) "
         "FROM dyclu.journal WHERE kind = 'event')", "histories of 1 users"),
        ("UPDATE dyclu.journal SET at = at + 1 WHERE kind = 'reward'", "histories of"),
        ("UPDATE dyclu.journal SET body = replace(body, '\"value\":-', '\"value\":') "
         "WHERE kind = 'reward'", "histories of"),
        ("DELETE FROM dyclu.journal WHERE kind = 'expiry'", "× expiry"),
    ],
)  # fmt: skip
def test_lines_that_differ_are_not_put_in_force(
    source: Path, store: str, monkeypatch: pytest.MonkeyPatch, change: str, said: str
) -> None:
    write = migration.Move._write

    def wrongly(self: migration.Move, connection: Any) -> None:
        write(self, connection)
        connection.execute(change)

    monkeypatch.setattr(migration.Move, "_write", wrongly)
    with pytest.raises(FileError, match=said):
        moved(source, store)
    with psycopg.connect(store) as tables:
        assert tables.execute("SELECT count(*) FROM dyclu.journal").fetchone() == (0,)


def test_a_policy_that_learns_in_another_order_is_found(
    source: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = verify.Serial._learn

    def twice(self: verify.Serial, user: str, x: list[float], value: float) -> None:
        learn(self, user, x, value)
        monkeypatch.setattr(verify.Serial, "_learn", learn)
        learn(self, user, x, value)

    monkeypatch.setattr(verify.Serial, "_learn", twice)
    with pytest.raises(FileError, match="differs from a serial learning"):
        moved(source, store)


def test_a_tenant_that_is_served_by_another_path_is_refused(source: Path, store: str) -> None:
    folder = source / "default"
    unlock = locked(folder, of=folder)
    try:
        with pytest.raises(FileError, match="stop it first"):
            moved(source, store)
    finally:
        unlock()


def test_it_is_refused_where_it_would_do_harm(source: Path, store: str, tmp_path: Path) -> None:
    with (
        running(told(tmp_path / "used")),
        pytest.raises(FileError, match="a service writes to"),
    ):
        moved(tmp_path / "used", store)
    with pytest.raises(OptionError, match="no journal"):
        moved(tmp_path, store)
    with member(store, tmp_path, name="a", partitions=PARTITIONS) as made:
        with pytest.raises(FileError, match="is served on this database by a"):
            moved(source, store)
        assert insist(made.decide).status_code == 200
    with pytest.raises(FileError, match="not of"):
        moved(source, store)
    with pytest.raises(OptionError, match="set partitions = 3"):
        moved(source, store, Plan(5))


def test_a_base_moves_as_a_whole_or_is_left_out(tmp_path: Path, store: str, server: Any) -> None:
    data = tmp_path / "data"
    given = told(data, keep="1s", reward_wait=0.5)
    with running(given) as made:
        live(made, rounds=4)
        tenant = made.service.tenants["default"]
        from tests.service.running import wait_until

        wait_until(lambda: tenant.base > 0, seconds=60)
        live_again = made.http.get(f"/v1/users/{USERS[0]}").json()["rewards"]
    with pytest.raises(OptionError, match="--partitions 1"):
        moved(data, store)
    moved(data, store, Plan(1))
    with member(store, tmp_path / "c", name="a", partitions=1) as made:
        found = insist(lambda: made.http.get(f"/v1/users/{USERS[0]}")).json()
        assert found["rewards"] == live_again
    other = server.fresh()
    assert moved(data, other, Plan(PARTITIONS, forget_base=True))[0].now


def test_the_command_tells_what_it_did(source: Path, store: str) -> None:
    words = ["migrate", str(source), f"--store={store}", f"--partitions={PARTITIONS}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "default: moved and verified: " in done.stdout
    assert "not-shown" not in done.output
    assert "was moved before" in CliRunner().invoke(app, words).stdout
