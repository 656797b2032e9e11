"""Two processes on one database: any of them answers everything; ownership follows who is alive."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dyclu.errors import OptionError
from dyclu.service.cluster.places import partition_of, told_by
from dyclu.service.disk.postgres.appends import Appends
from dyclu.service.http.routing import KEY, PARTITION
from dyclu.service.settings import described, without_password
from tests.service.postgres import Postgres
from tests.service.running import ARMS, Running, running, told, wait_until

USERS = ("ana", "bea", "cid", "dan", "eve", "fay")
PATIENCE = 90.0


@contextmanager
def member(store: str, data: Path, **more: Any) -> Iterator[Running]:
    flags = {"partitions": 2, "lease": 2.0, "store": store} | more
    with running(told(data, **flags), trust_env=False) as made:
        wait_until(lambda: made.http.get("/readyz").json()["status"] == "ok", seconds=PATIENCE)
        yield made


def partitions(made: Running) -> dict[str, int]:
    processes = made.http.get("/v1/cluster").json()["processes"]
    return {one["name"]: one["partitions"] for one in processes if one["lease"] > 0}


def insist(ask: Any) -> Any:
    """Ask until the answer is not that somebody else has to be asked later."""
    end = time.monotonic() + PATIENCE
    while (answer := ask()).status_code == 503 and time.monotonic() < end:
        assert answer.headers["retry-after"]
        time.sleep(0.05)
    return answer


def test_two_processes_share_partitions_and_answer_for_each_other(
    store: str, tmp_path: Path
) -> None:
    with member(store, tmp_path, name="a") as a:
        made = {user: insist(lambda u=user: a.decide(u, decision_id=f"d-{u}")) for user in USERS}
        assert {one.status_code for one in made.values()} == {200}
        with member(store, tmp_path, name="b") as b:
            wait_until(lambda: partitions(b) == {"a": 1, "b": 1}, seconds=PATIENCE)
            for user in USERS:
                # Decided by one process, which owned all of them; rewarded by another.
                assert insist(lambda u=user: b.reward(f"d-{u}", 0.5)).json()["repeated"] is False
                assert insist(lambda u=user: a.reward(f"d-{u}", 0.5)).json()["repeated"] is True
                for one, other in ((a, b), (b, a)):
                    id = insist(lambda o=one, u=user: o.decide(u)).json()["decision_id"]
                    assert told_by(id) == partition_of(user, 2)
                    assert insist(lambda o=other, i=id: o.reward(i, 1.0)).status_code == 200
                assert a.http.get(f"/v1/users/{user}").json()["rewards"] == 3
                assert b.http.get(f"/v1/users/{user}").json()["rewards"] == 3
            _batches(a)
            _refusals(a, b)
            assert b.http.delete("/v1/users/ana").status_code == 202
            assert a.http.get("/v1/users/ana").status_code == 404
        # It has left in order: nothing has to lapse, and its snapshots are used.
        wait_until(lambda: partitions(a) == {"a": 2}, seconds=PATIENCE)
        assert insist(lambda: a.http.get("/v1/users/bea")).json()["rewards"] == 4
        assert insist(lambda: a.http.get("/v1/users/fay")).json()["rewards"] == 4


def _batches(a: Running) -> None:
    asked = [{"user": user, "arms": ARMS} for user in USERS]
    made = a.http.post("/v1/decisions:batch", json={"decisions": asked}).json()["results"]
    assert [told_by(one["decision_id"]) for one in made] == [partition_of(u, 2) for u in USERS]
    rows = [{"decision_id": one["decision_id"], "value": 0.5} for one in made]
    rows.insert(1, {"decision_id": "unheard-of", "value": 0.5})
    given = a.http.post("/v1/rewards:batch", json={"rewards": rows}).json()["results"]
    assert [one.get("http", 200) for one in given] == [200, 404, 200, 200, 200, 200, 200]
    seen = [{"user": user, "features": [1.0, 0.0], "reward": 1.0} for user in USERS]
    seen[3] = {"user": "dan", "features": [1.0], "reward": 1.0}
    before = a.http.get("/v1/users/ana").json()["rewards"]
    assert a.http.post("/v1/observations", json={"observations": seen}).status_code == 422
    assert a.http.get("/v1/users/ana").json()["rewards"] == before
    for user in USERS:
        assert a.http.get(f"/v1/users/{user}").json()["rewards"] == 4


def _refusals(a: Running, b: Running) -> None:
    apart = [user for user in USERS if partition_of(user, 2) != partition_of("ana", 2)]
    answer = b.decide(apart[0], decision_id="d-ana")
    assert (answer.status_code, answer.json()["error"]["field"]) == (409, "decision_id")
    id = a.decide("ana").json()["decision_id"]
    assert a.decide(apart[0], decision_id=id).status_code == 422
    for unknown in ("unheard-of", "%00", "%ED%A0%80", "a%0A", "x" * 129):
        path = f"/v1/decisions/{unknown}/reward"
        assert {one.http.post(path, json={"value": 1.0}).status_code for one in (a, b)} == {404}
    assert a.http.get("/v1/policy?partition=2").status_code == 422
    assert a.http.get("/v1/policy?partition=1").json()["tenant"] == "default/1"
    assert a.http.get("/v1/cluster", headers={KEY: "guessed"}).status_code == 200
    forged = {KEY: "guessed", PARTITION: "0"}
    assert a.http.get("/v1/users/ana", headers=forged).status_code == 403
    # What was passed on to one that does not own it is not passed on again.
    theirs = 1 - next(number for _, number in a.service.keeper.serving)  # type: ignore[union-attr]
    passed = {KEY: a.service.keeper.key, PARTITION: str(theirs)}  # type: ignore[union-attr]
    answer = a.http.get("/v1/policy", headers=passed)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "moved")


def test_rewards_of_several_slots_are_written_by_one_statement(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two would leave a part of them, and the rest would be too late."""
    statements: list[list[int]] = []
    write = Appends._write

    def counted(made: Appends, group: Any, statement: str) -> Any:
        statements.append([len(json.loads(b"[%b]" % one.lines)) for one in group])
        return write(made, group, statement)

    arms = [{"id": id, "features": [float(id == "a"), 1.0]} for id in "abc"]
    with member(store, tmp_path, name="a", partitions=1) as a:
        asked = {"user": "ana", "arms": arms, "slots": 3}
        id = insist(lambda: a.http.post("/v1/decisions", json=asked)).json()["decision_id"]
        monkeypatch.setattr(Appends, "_write", counted)
        values = {"values": {"1": 1.0, "2": 0.0, "3": 0.5}}
        assert a.http.post(f"/v1/decisions/{id}/reward", json=values).status_code == 200
        assert statements == [[3]]


def test_requests_are_refused_while_the_database_is_away_and_nothing_is_lost(
    server: Postgres, tmp_path: Path
) -> None:
    with member(server.fresh(), tmp_path, name="a", partitions=1) as a:
        id = insist(lambda: a.decide("ana")).json()["decision_id"]
        server.kill()
        try:
            answer = a.reward(id, 1.0)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "not-shown" not in answer.text
            wait_until(lambda: a.http.get("/readyz").status_code == 503, seconds=PATIENCE)
            assert a.http.get("/healthz").status_code == 200
        finally:
            server.start()
        assert insist(lambda: a.reward(id, 1.0)).json()["value"] == 1.0
        assert insist(lambda: a.http.get("/v1/users/ana")).json()["rewards"] == 1
        wait_until(lambda: a.http.get("/readyz").status_code == 200, seconds=PATIENCE)


def test_a_second_process_of_the_same_name_does_not_join(store: str, tmp_path: Path) -> None:
    with (
        member(store, tmp_path / "a", name="a", partitions=1, lease=1.0),
        pytest.raises(OptionError, match="another process called a is in this cluster"),
        running(told(tmp_path / "b", name="a", partitions=1, lease=1.0, store=store)),
    ):
        pass


def test_settings_of_a_cluster_are_checked_and_hide_the_password(tmp_path: Path) -> None:
    shown = "\n".join(described(told(tmp_path, store="postgresql://ann:secret@db/shop")))
    assert "store = postgresql://ann@db/shop" in shown
    assert "secret" not in shown
    for flags, message in (
        ({"store": "mysql://ann:secret@db"}, "not an address of PostgreSQL"),
        ({"store": "postgresql://db", "archive": True, "keep": "1d"}, "archive = false"),
        ({"store": "postgresql://db", "host": "0.0.0.0", "keys": KEYS}, "advertise"),
    ):
        with pytest.raises(OptionError, match=message) as refused:
            told(tmp_path, **flags)
        assert "secret" not in str(refused.value)


KEYS = [{"digest": "sha256:" + 64 * "1", "role": "read-write"}]


def test_a_password_that_is_not_escaped_is_refused_and_not_shown(tmp_path: Path) -> None:
    for password in ("aB3/xyz+Q", "aB3?xyz", "aB3#xyz", "a@b/xyz"):
        store = f"postgresql://dyclu:{password}@localhost/dyclu"
        with pytest.raises(OptionError, match="PGPASSWORD") as refused:
            told(tmp_path, store=store)
        shown = without_password(store)
        assert shown.startswith("postgresql://dyclu@")
        assert not {"aB3", "xyz"} & set(re.split(r"\W", f"{refused.value!r} {shown}"))
    for store in (
        "postgresql://dyclu:aB3%2Fxyz@h1:1,h2:2/dyclu?sslmode=require",
        "postgresql:///d",
    ):
        assert "aB3" not in "".join(described(told(tmp_path, store=store)))
    assert without_password("postgresql://h/d?password=aB3@xyz") == "postgresql://h@xyz"
