"""Bases in PostgreSQL: they replace old lines, and the next owner goes on from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.service.bench import bits
from tests.service.cluster.test_cluster import PATIENCE, insist, member
from tests.service.running import Running, wait_until

USERS = [f"user-{n}" for n in range(4)]


def learn(made: Running, user: str, values: list[float]) -> None:
    rows = [{"user": user, "features": [1.0, 0.1 * value], "reward": value} for value in values]
    answer = insist(lambda: made.http.post("/v1/observations", json={"observations": rows}))
    assert answer.status_code == 200, answer.text


def asked(store: str, statement: str) -> Any:
    with psycopg.connect(store) as tables:
        return tables.execute(statement).fetchone()[0]  # type: ignore[index]


def state_of(made: Running, folder: Path) -> Any:
    (one,) = made.service.keeper.serving.values()  # type: ignore[union-attr]
    return bits(one.tenant.state, folder)


@pytest.mark.parametrize("policy", ["linucb", pytest.param("atlas", marks=pytest.mark.long)])
def test_a_base_replaces_lines_and_the_next_owner_goes_on_from_it(
    store: str, tmp_path: Path, policy: str
) -> None:
    rules = {"policy": policy, "options": {}, "keep": "20 lines", "partitions": 1, "lease": 1.0}
    with member(store, tmp_path, name="a", **rules) as a:
        for turn in range(15):
            for user in USERS:
                learn(a, user, [turn / 15])
        insist(lambda: a.decide("ana", decision_id="early"))
        wait_until(
            lambda: asked(store, "SELECT count(*) FROM dyclu.journal") < 30, seconds=PATIENCE
        )
        base = int(asked(store, "SELECT value FROM dyclu.fact WHERE name = 'base'"))
        assert base >= 35
        generations = "SELECT count(DISTINCT generation) FROM dyclu.base"
        wait_until(lambda: asked(store, generations) == 1, seconds=PATIENCE)
        dropped = "SELECT value FROM dyclu.fact WHERE name = 'dropped'"
        wait_until(lambda: int(asked(store, dropped)) == base, seconds=PATIENCE)
        expected = state_of(a, tmp_path)
    # Without a snapshot it begins with the base.
    with psycopg.connect(store) as tables:
        tables.execute("DELETE FROM dyclu.snapshot")
        tables.execute("DELETE FROM dyclu.fact WHERE name = 'snapshot'")
    with member(store, tmp_path, name="b", **rules) as b:
        assert insist(lambda: b.http.get("/v1/users/user-1")).json()["rewards"] == 15
        assert state_of(b, tmp_path) == expected
        assert insist(lambda: b.reward("early", 1.0)).status_code == 200
        assert b.http.delete("/v1/users/user-1").status_code == 202
        wait_until(lambda: not b.http.get("/v1/policy").json()["rebuilding"], seconds=PATIENCE)
        assert b.http.get("/v1/users/user-1").status_code == 404
        parts = "SELECT string_agg(bytes, '' ORDER BY file, part) FROM dyclu.base"
        assert b"user-2" in asked(store, parts)
        assert b"user-1" not in asked(store, parts)
        expected = state_of(b, tmp_path)
    with member(store, tmp_path, name="c", **rules) as c:
        assert insist(lambda: c.http.get("/v1/users/user-1")).status_code == 404
        assert state_of(c, tmp_path) == expected
