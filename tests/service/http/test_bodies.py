"""Bodies under way at once: no more than there is room for, and room again once answered."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dyclu.service.http.bodies import BodyRoom
from tests.service.http.test_connections import reach
from tests.service.running import ARMS, Running, running, told, wait_until

BODY = json.dumps({"user": "ana", "arms": ARMS}).encode()
ROOM = 2 * len(BODY) - 1


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(told(tmp_path, max_bodies=ROOM, max_body=ROOM)) as made:
        yield made


def begin(connection: socket.socket, framing: bytes = b"Content-Length: %d" % len(BODY)) -> None:
    connection.sendall(
        b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n" + framing + b"\r\n\r\n"
    )


def answer(connection: socket.socket) -> bytes:
    connection.settimeout(5)
    return connection.recv(65536)


def held(service: Running) -> int:
    return service.service.bodies.held


def test_a_body_beyond_the_room_is_refused_before_it_is_sent(service: Running) -> None:
    with reach(service.url) as first, reach(service.url) as second:
        begin(first)
        wait_until(lambda: held(service) == len(BODY))
        begin(second)
        refused = answer(second)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in refused
        assert b"(limit max_bodies)" in refused
        assert held(service) == len(BODY)
        first.sendall(BODY)
        assert answer(first).startswith(b"HTTP/1.1 200 ")
        assert held(service) == 0
        # The rest of what was refused is passed over, and the connection goes on.
        second.sendall(BODY)
        begin(second)
        second.sendall(BODY)
        assert answer(second).startswith(b"HTTP/1.1 200 ")


def test_a_body_of_unknown_length_reserves_max_body(service: Running) -> None:
    with reach(service.url) as first:
        begin(first, b"Transfer-Encoding: chunked")
        wait_until(lambda: held(service) == ROOM)
        assert service.decide().status_code == 503
        first.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert answer(first).startswith(b"HTTP/1.1 200 ")
        assert service.decide().status_code == 200


def test_an_aborted_or_refused_request_frees_its_room(service: Running) -> None:
    with reach(service.url) as first:
        begin(first)
        wait_until(lambda: held(service) == len(BODY))
    wait_until(lambda: held(service) == 0)
    assert service.http.post("/v1/decisions", json={"user": "ana"}).status_code == 422
    assert held(service) == 0


def test_one_body_always_has_room(tmp_path: Path) -> None:
    with running(told(tmp_path, max_bodies=1)) as made:
        assert made.decide().status_code == 200


def test_a_body_shorter_than_reserved_frees_the_rest() -> None:
    bodies = BodyRoom(100)
    with bodies.room(90) as keep:
        keep(10)
        with bodies.room(90):
            assert bodies.held == 100
    assert bodies.held == 0
