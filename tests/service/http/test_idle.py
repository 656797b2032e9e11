"""Idle connections: a tenant keeps no more of them open than its limit allows."""

from __future__ import annotations

from pathlib import Path

import httpx

from dyclu.service.http.edge.budgets import Budget
from dyclu.service.settings import Limits
from tests.service.running import running, told


def test_connections_beyond_the_limit_are_closed_after_their_answer(tmp_path: Path) -> None:
    with running(told(tmp_path)) as made:
        made.service.budgets["default"].limits = Limits(max_connections=2)
        clients = [httpx.Client(base_url=made.url) for _ in range(3)]
        said = [client.get("/v1/policy") for client in clients]
        assert [answer.status_code for answer in said] == [200, 200, 200]
        assert [answer.headers.get("connection") for answer in said] == [None, None, "close"]
        # Those that were kept stay.
        assert "connection" not in clients[0].get("/v1/policy").headers
        assert 'dyclu_connections{tenant="default"} 2' in clients[1].get("/metrics").text
        for client in clients:
            client.close()


def test_connections_that_the_server_has_closed_make_room() -> None:
    budget = Budget(Limits(max_connections=2))
    assert budget.keeps_open("a", now=0.0, idle=75.0)
    assert budget.keeps_open("b", now=10.0, idle=75.0)
    assert budget.keeps_open("a", now=70.0, idle=75.0)
    assert not budget.keeps_open("c", now=80.0, idle=75.0)
    assert budget.keeps_open("c", now=90.0, idle=75.0)
    assert budget.connections == 2
