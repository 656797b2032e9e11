"""Bodies, requests and rates: each tenant has its own budget, and room again once answered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dyclu.service.http.edge.budgets import Budget
from dyclu.service.http.keys import digest, new_key
from dyclu.service.refusal import Refusal
from dyclu.service.settings import Limits, Settings
from tests.service.http.raw import reach
from tests.service.running import ARMS, Running, running, told, wait_until

BODY = json.dumps({"user": "ana", "arms": ARMS}).encode()
ROOM = 2 * len(BODY) - 1
KEYS = {"greedy": new_key(), "modest": new_key()}


def limited(data: Path, **limits: Any) -> Settings:
    given = told(data)
    tenant = msgspec.structs.replace(given.tenants["default"], limits=Limits(**limits))
    return msgspec.structs.replace(given, tenants={"default": tenant})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(limited(tmp_path, max_bodies=ROOM)) as made:
        yield made


def begin(
    connection: socket.socket,
    framing: bytes = b"Content-Length: %d" % len(BODY),
    *,
    key: str | None = None,
) -> None:
    bearer = b"" if key is None else b"Authorization: Bearer %s\r\n" % key.encode()
    connection.sendall(
        b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n" + bearer + framing + b"\r\n\r\n"
    )


def answer(connection: socket.socket) -> bytes:
    connection.settimeout(5)
    return connection.recv(65536)


def held(service: Running) -> int:
    return service.service.budgets["default"].held


def test_bytes_beyond_max_bodies_are_refused_until_others_are_answered(service: Running) -> None:
    with reach(service.url) as first, reach(service.url) as second:
        begin(first)
        first.sendall(BODY[:-1])
        wait_until(lambda: held(service) == len(BODY) - 1)
        begin(second)
        second.sendall(BODY + b"")
        assert answer(second).startswith(b"HTTP/1.1 200 ")
        begin(second, b"Content-Length: %d" % (len(BODY) + 1))
        second.sendall(BODY + b" ")
        refused = answer(second)
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in refused
        assert b"(limit max_bodies)" in refused
        first.sendall(BODY[-1:])
        assert answer(first).startswith(b"HTTP/1.1 200 ")
        assert held(service) == 0
        # What was refused has been read to its end, and the connection goes on.
        begin(second)
        second.sendall(BODY)
        assert answer(second).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_is_only_announced_takes_no_room(service: Running) -> None:
    """Sixteen connections that announce two megabytes and send one byte locked all others out."""
    with ExitStack() as crowd:
        for framing in (b"Content-Length: 2000000", b"Transfer-Encoding: chunked"):
            for _ in range(8):
                connection = crowd.enter_context(reach(service.url))
                begin(connection, framing)
                connection.sendall(b"{" if b"Length" in framing else b"1\r\n{\r\n")
        wait_until(lambda: held(service) == 16)
        assert service.decide().status_code == 200


def test_an_aborted_or_refused_request_frees_its_room(service: Running) -> None:
    with reach(service.url) as first:
        begin(first)
        first.sendall(BODY[:10])
        wait_until(lambda: held(service) == 10)
    wait_until(lambda: held(service) == 0)
    assert service.http.post("/v1/decisions", json={"user": "ana"}).status_code == 422
    assert held(service) == 0
    assert service.service.budgets["default"].active == 0


def test_one_body_always_has_room(tmp_path: Path) -> None:
    with running(limited(tmp_path, max_bodies=1)) as made:
        assert made.decide().status_code == 200


def two_tenants(data: Path, **limits: Any) -> Settings:
    tenant = {"dim": 2, "policy": "linucb", "options": {"alpha": 0.5}}
    tenants = {
        name: {**tenant, "keys": [{"digest": digest(key), "role": "read-write"}]}
        for name, key in KEYS.items()
    }
    tenants["greedy"]["limits"] = limits
    return msgspec.convert({"data": str(data), "port": 0, "tenants": tenants}, Settings)


def ask(service: Running, name: str) -> Any:
    told = {"Authorization": f"Bearer {KEYS[name]}"}
    return service.http.post("/v1/decisions", json={"user": "ana", "arms": ARMS}, headers=told)


def test_bodies_of_one_tenant_do_not_refuse_another_tenant(tmp_path: Path) -> None:
    """The attack that locked out all: many connections, each with most of a large body."""
    with running(two_tenants(tmp_path, max_bodies=1_000_000)) as service, ExitStack() as crowd:
        budget = service.service.budgets["greedy"]
        for _ in range(16):
            connection = crowd.enter_context(reach(service.url))
            begin(connection, b"Content-Length: 2000000", key=KEYS["greedy"])
            connection.sendall(b" " * 62_000)
        wait_until(lambda: budget.held == 16 * 62_000)
        with reach(service.url) as one_more:
            begin(one_more, b"Content-Length: 20000", key=KEYS["greedy"])
            one_more.sendall(b" " * 20_000)
            assert b"(limit max_bodies)" in answer(one_more)
        assert ask(service, "modest").status_code == 200


def test_requests_under_way_of_one_tenant_do_not_refuse_another_tenant(tmp_path: Path) -> None:
    with running(two_tenants(tmp_path, max_connections=3)) as service, ExitStack() as crowd:
        for _ in range(3):
            begin(crowd.enter_context(reach(service.url)), key=KEYS["greedy"])
        wait_until(lambda: service.service.budgets["greedy"].active == 3)
        refused = ask(service, "greedy")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "(limit max_connections)" in refused.json()["error"]["message"]
        assert ask(service, "modest").status_code == 200


def test_the_rate_of_one_tenant_does_not_refuse_another_tenant(tmp_path: Path) -> None:
    with running(two_tenants(tmp_path, max_rate=5.0)) as service:
        answers = [ask(service, "greedy") for _ in range(8)]
        refused = [one for one in answers if one.status_code == 429]
        assert refused
        assert "(limit max_rate)" in refused[0].json()["error"]["message"]
        assert ask(service, "modest").status_code == 200
        time.sleep(int(refused[0].headers["retry-after"]))
        assert ask(service, "greedy").status_code == 200


def test_the_queue_of_one_tenant_does_not_refuse_another_tenant(tmp_path: Path) -> None:
    given = two_tenants(tmp_path, max_queue=1)
    with running(given) as service, ThreadPoolExecutor(16) as pool:
        crowd = [pool.submit(ask, service, "greedy") for _ in range(100)]
        modest = [ask(service, "modest").status_code for _ in range(20)]
        statuses = {one.result().status_code for one in crowd}
        refused = next(one.result() for one in crowd if one.result().status_code == 429)
    assert statuses == {200, 429}
    assert "(limit max_queue)" in refused.json()["error"]["message"]
    assert set(modest) == {200}


def test_a_rate_is_allowed_again_as_time_passes() -> None:
    budget = Budget(Limits(max_rate=2.0))

    def accepted(now: float) -> bool:
        try:
            with budget.request(now=now):
                return True
        except Refusal:
            return False

    assert [accepted(10.0) for _ in range(3)] == [True, True, False]
    assert [accepted(10.5) for _ in range(2)] == [True, False]
    assert [accepted(1000.0) for _ in range(3)] == [True, True, False]
