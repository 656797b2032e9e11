"""`dyclu.service.http.edge.server`: no client keeps others out, or fills the memory, for long."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from dyclu.errors import OptionError
from dyclu.service.http.app import create_app
from dyclu.service.http.edge.listener import Listener
from dyclu.service.http.edge.server import ServerEnded, reserved
from dyclu.service.http.serve import run
from tests.service.http.raw import (
    DECIDE,
    HEAD,
    POST,
    all_of,
    files,
    post,
    problem,
    reach,
    resident,
)
from tests.service.running import ARMS, Running, process, running, told, wait_until

LAST = HEAD + b"Connection: close\r\n\r\n"
LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
FLAGS = ("--dim=2", "--policy=linucb")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("edge")
    with running(told(folder, body_timeout=1.0, idle_timeout=2.0)) as made:
        yield made


def fill(connection: socket.socket) -> None:
    """Ask without reading, until the other side no longer takes it."""
    connection.settimeout(0.5)
    with suppress(TimeoutError):
        while True:
            connection.sendall(LARGE)
    connection.settimeout(10)


def test_a_client_that_reads_nothing_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYCLU_ANSWER_TIMEOUT", "1")
    with process(tmp_path, *FLAGS) as (child, url):
        assert httpx.get(f"{url}/healthz").status_code == 200
        before = files(child.pid)
        with reach(url, room=4096) as connection:
            fill(connection)
            wait_until(lambda: files(child.pid) == before, seconds=15)
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_client_that_reads_slowly_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses shorter than the limit; together they are longer."""
    # The system's timers back off, and a busy machine adds to a pause: so it is a quarter only.
    monkeypatch.setenv("DYCLU_ANSWER_TIMEOUT", "8")
    with process(tmp_path, *FLAGS) as (_, url), reach(url, room=100_000) as connection:
        fill(connection)
        for _ in range(6):
            time.sleep(2)
            for _ in range(10):
                assert len(connection.recv(30_000)) > 0
        assert b"HTTP/1.1 200" in connection.recv(1_000_000)


def test_a_slow_body_is_refused_however_many_bytes_come(service: Running) -> None:
    """The time is for all of it, and does not begin anew with each byte."""
    with reach(service.url) as connection:
        connection.sendall(POST + b"Content-Length: 5000\r\n\r\n")
        began = time.monotonic()
        connection.settimeout(0.05)
        answer = b""
        for _ in range(200):
            with suppress(ConnectionError):
                connection.sendall(b" ")
            with suppress(TimeoutError):
                answer = connection.recv(65536)
                break
    assert answer.startswith(b"HTTP/1.1 408")
    assert problem(answer)["field"] == "body"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("before", [b"", HEAD + b"\r\n"])
def test_slow_headers_end_the_connection(service: Running, before: bytes) -> None:
    """Also after a request that was answered; others are served meanwhile."""
    with reach(service.url) as connection:
        if before:
            connection.sendall(before)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        connection.settimeout(0.05)
        left = b"x"
        for byte in b"POST /v1/decisions HTTP/1.1\r\nX: " + b"y" * 500:
            with suppress(ConnectionError):
                connection.sendall(bytes([byte]))
            with suppress(TimeoutError, ConnectionError):
                left = connection.recv(65536)
                break
        assert left == b""
        assert time.monotonic() - began < 8
    assert service.http.get("/healthz").status_code == 200


def test_an_idle_connection_stays_open_for_idle_timeout(service: Running) -> None:
    with reach(service.url) as connection:
        for _ in range(3):
            connection.sendall(HEAD + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(1.2)
        time.sleep(1.5)
        assert all_of(connection) == b""


def test_headers_that_are_too_long_are_refused(service: Running) -> None:
    """In one header, in many, in the address."""
    many = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 50) for i in range(20_000))
    address = b"GET /%s HTTP/1.1\r\n" % (b"a" * 1_000_000)
    for flood in (HEAD + b"X: " + b"y" * 1_000_000, HEAD + many, address):
        with reach(service.url) as connection:
            with suppress(ConnectionError):
                connection.sendall(flood)
            answer = all_of(connection)
        # Cut off while it still sends, a client may not get to read the answer.
        assert answer == b"" or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 414")), answer[:99]
        assert answer.count(b"HTTP/1.1 ") <= 1
    for size in (33_000, 40_000, 60_000):
        with reach(service.url) as connection:
            connection.sendall(HEAD + b"X: " + b"y" * size + b"\r\n\r\n" + LAST)
            answer = all_of(connection)
        assert answer.startswith(b"HTTP/1.1 431")
        assert answer.count(b"HTTP/1.1 ") == 1
    assert service.http.get("/healthz", headers={"X": "y" * 16_000}).status_code == 200


def test_endless_headers_are_not_kept_in_memory(tmp_path: Path) -> None:
    """Two hundred megabytes of them, on ten connections, leave the process as it was."""
    with process(tmp_path, *FLAGS) as (child, url):
        before = resident(child.pid)
        flood = b"y" * 1_000_000
        for _ in range(10):
            with reach(url) as connection, suppress(ConnectionError):
                connection.sendall(HEAD + b"X: ")
                for _ in range(20):
                    connection.sendall(flood)
        assert resident(child.pid) - before < 20_000_000


def test_trailers_are_not_kept_in_memory(tmp_path: Path) -> None:
    """Ten connections with 3.8 MB of trailers each and no key; before, 870 MB were held."""
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    trailers = b"".join(b"X-%06d: %s\r\n" % (i, b"y" * 28) for i in range(95_000))
    assert len(trailers) == 3_800_000
    with process(tmp_path, *FLAGS) as (child, url), ExitStack() as crowd:
        assert httpx.get(f"{url}/healthz").status_code == 200
        before = resident(child.pid)
        for _ in range(10):
            connection = crowd.enter_context(reach(url))
            with suppress(ConnectionError, TimeoutError):
                connection.sendall(chunked + trailers)
        time.sleep(1)
        assert resident(child.pid) - before < 20_000_000


NONSENSE = {
    "method": b"BLAH\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version 0.9": b"GET /healthz HTTP/0.9\r\nHost: 127.0.0.1\r\n\r\n",
    "version 2.0": b"GET /healthz HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "header": HEAD + b"no colon\r\n\r\n",
    "path": b"GET # HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "length": POST + b"Content-Length: -1\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "folded": HEAD + b"X: a\r\n b\r\n\r\n",
    "long": b"BLAH" * 10_000,
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_a_request_that_is_not_http_is_refused(service: Running, kind: str) -> None:
    for before in (b"", HEAD + b"\r\n"):
        with reach(service.url) as connection:
            connection.sendall(before)
            if before:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(NONSENSE[kind] + LAST)
            answer = all_of(connection)
        # A preface of HTTP/2 is not answered at all.
        assert answer.startswith(b"HTTP/1.1 4") or kind == "http2", answer[:100]
        assert answer.count(b"HTTP/1.1 ") == (kind != "http2")


def test_a_valid_request_followed_by_garbage_is_answered(service: Running) -> None:
    with reach(service.url) as connection:
        connection.sendall(post(DECIDE) * 2 + b"BLAH\r\n\r\n")
        assert all_of(connection).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_far_too_large_gets_a_refusal(service: Running, chunked: bool) -> None:
    """To those who read only when they have sent all of it, too."""
    parts = [b"x" * 1_000_000] * 20
    host = service.url.removeprefix("http://")
    with closing(HTTPConnection(host, timeout=10)) as connection:
        connection.request(
            "POST", "/v1/decisions", iter(parts) if chunked else b"".join(parts),
            {"Content-Type": "application/json"}, encode_chunked=chunked,
        )  # fmt: skip
        answer = connection.getresponse()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["field"] == "body"


def test_an_endless_body_is_disconnected(service: Running) -> None:
    with reach(service.url) as connection:
        connection.sendall(POST + b"Content-Length: 1000000000000\r\n\r\n")
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - began < 8:
                connection.sendall(b"x" * 100_000)
                time.sleep(0.01)
        assert time.monotonic() - began < 6


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
@pytest.mark.parametrize("name", ["Upgrade", "upgrade"])
def test_an_offered_protocol_upgrade_is_ignored(service: Running, offer: str, name: str) -> None:
    """`curl --http2` offers one with each request; the request itself is served all the same."""
    offered = {"Connection": "Upgrade, HTTP2-Settings", name: offer, "HTTP2-Settings": "AAMAAABk"}
    for _ in range(2):
        answer = service.http.post(
            "/v1/decisions", json={"user": "ana", "arms": ARMS}, headers=offered
        )
        assert answer.status_code == 200, answer.text
    assert service.http.get("/healthz", headers=offered).status_code == 200


def test_pipelined_requests_are_answered_in_order(service: Running) -> None:
    ids = [f"p{i}".encode() for i in range(300)]
    asked = [post(DECIDE[:-1] + b', "decision_id": "%s"}' % id) for id in ids]
    with reach(service.url) as connection:
        connection.sendall(b"".join(asked) + LAST)
        answers = all_of(connection)
    found = [part.partition(b'"')[0] for part in answers.split(b'"decision_id":"')[1:]]
    assert found == ids


def test_a_client_that_disconnects_within_a_request_is_removed(service: Running) -> None:
    with reach(service.url) as connection:
        connection.sendall(post(DECIDE)[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert b"HTTP/1.1 200" not in all_of(connection)


def test_connections_beyond_the_limit_wait_until_others_end(tmp_path: Path) -> None:
    given = told(tmp_path, max_connections=2, idle_timeout=1.5)
    with running(given) as service, ExitStack() as crowd:
        for _ in range(2):
            crowd.enter_context(reach(service.url))
        time.sleep(0.2)
        began = time.monotonic()
        with reach(service.url) as late:
            late.sendall(LAST)
            assert all_of(late).startswith(b"HTTP/1.1 200")
        assert 0.5 < time.monotonic() - began < 6


def test_many_connections_leave_file_descriptors_for_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYCLU_MAX_CONNECTIONS", "3")
    with process(tmp_path, *FLAGS) as (child, url), ExitStack() as crowd:
        assert httpx.get(f"{url}/readyz").status_code == 200
        before = files(child.pid)
        for _ in range(100):
            crowd.enter_context(reach(url))
        time.sleep(0.5)
        assert files(child.pid) <= before + 4


def test_a_port_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with (
        running(told(tmp_path / "a")) as service,
        pytest.raises(OptionError, match="choose another --port"),
    ):
        reserved("127.0.0.1", int(service.url.rpartition(":")[2]))


def test_a_stop_lets_requests_under_way_finish(tmp_path: Path) -> None:
    """Also with idle connections, and with one that sends the rest of its body late."""
    with process(tmp_path, *FLAGS) as (child, url), reach(url) as slow, reach(url) as idle:
        idle.sendall(HEAD + b"\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        asked = post(DECIDE[:-1] + b', "decision_id": "last"}')
        slow.sendall(asked[:-5])
        time.sleep(0.3)
        child.terminate()
        time.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        assert all_of(idle) == b""
        slow.sendall(asked[-5:])
        assert all_of(slow).startswith(b"HTTP/1.1 200")
        assert child.wait(timeout=10) == 0
    with running(told(tmp_path)) as service:
        assert service.reward("last", 1.0).status_code == 200


def test_a_stop_does_not_wait_long_for_a_client_that_does_nothing(tmp_path: Path) -> None:
    with process(tmp_path, *FLAGS) as (child, url), reach(url) as slow, reach(url) as deaf:
        slow.sendall(post(DECIDE)[:-5])
        fill(deaf)
        began = time.monotonic()
        child.terminate()
        assert child.wait(timeout=25) == 0
        assert time.monotonic() - began < 20
    assert list((tmp_path / "default").glob("journal.db"))
    assert not (tmp_path / "default/journal.db-wal").exists()


def test_many_malformed_requests_leave_few_lines_in_the_log(tmp_path: Path) -> None:
    with process(tmp_path, *FLAGS) as (child, url):
        for _ in range(20):
            for nonsense in NONSENSE.values():
                with reach(url) as connection, suppress(ConnectionError):
                    connection.sendall(nonsense)
        twice = HEAD + b"Host: 127.0.0.1\r\n\r\n"
        for _ in range(50):
            with reach(url) as connection:
                connection.sendall(twice)
                assert all_of(connection).startswith(b"HTTP/1.1 400")
        child.terminate()
        log = child.communicate(timeout=20)[1]
    # Those that break off in a body, and those that say a header twice: one line, and a count.
    assert len([line for line in log.splitlines() if "refused" in line]) == 4
    assert len(log.splitlines()) < 10, log


def test_a_service_whose_http_server_ends_by_itself_stops_with_an_error(tmp_path: Path) -> None:
    """Otherwise it would live on without listening, and nobody would start it again."""
    given = told(tmp_path)
    app = create_app(given)

    def end_worker() -> None:
        (worker,) = (
            task
            for task in asyncio.all_tasks()
            if "_spawn_asgi_worker" in getattr(task.get_coro(), "__qualname__", "")
        )
        worker.cancel()

    async def live() -> None:
        def ready(_: Listener) -> None:
            asyncio.get_running_loop().call_soon(end_worker)

        await run(app, given, ready=ready, stop=asyncio.Event())

    with pytest.raises(ServerEnded):
        asyncio.run(live())
    with running(given) as again:
        assert again.decide().status_code == 200
