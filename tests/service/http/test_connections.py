"""`dyclu.service.http.connections`: nobody keeps others out, or fills the memory, for long."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from dyclu.service.http import connections
from tests.service.running import ARMS, Running, process, running, told, wait_until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /v1/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LAST = HEAD + b"Connection: close\r\n\r\n"
LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


DECIDE = b'{"user": "ana", "arms": [{"id": "a", "features": [1.0, 0.5]}]}'


def post(body: bytes, *headers: bytes) -> bytes:
    """A whole request."""
    return POST + b"".join(headers) + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def reach(url: str, *, room: int | None = None) -> socket.socket:
    """A connection; `room` for so many bytes that nobody has read."""
    host, port = url.removeprefix("http://").split(":")
    made = socket.socket()
    if room is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    made.settimeout(10)
    made.connect((host, int(port)))
    return made


def all_of(connection: socket.socket) -> bytes:
    """Everything there is to read, up to the end."""
    found = b""
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def problem(answer: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("connections")
    with running(told(folder, answer_timeout=1.0, body_timeout=1.0)) as made:
        yield made


@contextmanager
def deaf(service: Running) -> Iterator[socket.socket]:
    """Somebody who asks until their answers pile up in the service, and reads none of them."""
    with reach(service.url, room=4096) as connection:
        for _ in range(2000):
            connection.sendall(LARGE)
            time.sleep(0.003)
            if any(unread(one) for one in service.connections):
                break
        else:
            raise AssertionError("all of it was taken in")
        yield connection


def unread(one: Any) -> int:
    waiting: int = one.transport.get_write_buffer_size()
    return waiting


def test_a_client_that_does_not_read_is_disconnected(service: Running) -> None:
    with deaf(service) as connection:
        mine = connection.getsockname()
        wait_until(lambda: mine not in [one.client for one in service.connections], seconds=6)
    assert service.http.get("/healthz").status_code == 200


def test_a_client_that_reads_slowly_is_answered(tmp_path: Path) -> None:
    """Pauses of several looks, shorter than the limit; together they are longer."""
    with running(told(tmp_path, answer_timeout=3.5)) as service, deaf(service) as connection:
        for _ in range(3):
            connection.sendall(LARGE)
            time.sleep(2.3)
            assert [unread(one) > 0 for one in service.connections] == [True]
            assert connection.recv(20_000)
        connection.sendall(LAST)
        assert all_of(connection).endswith(b'"reason":null}')


def test_clients_with_most_unread_bytes_are_disconnected_beyond_a_limit(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the time is over, if it is more than there is room for."""
    with running(told(Path(service.service.settings.data) / "other")) as patient, deaf(patient):
        time.sleep(2.5)
        assert len(patient.connections) == 1
        monkeypatch.setattr(connections, "MOST_UNREAD", 10)
        wait_until(lambda: not patient.connections, seconds=4)


@pytest.mark.parametrize(
    ("told_at_once", "field"),
    [(b"", "headers"), (POST + b"Content-Length: 5000\r\n\r\n", "body")],
)
def test_headers_sent_byte_by_byte_are_refused_as_too_slow(
    service: Running, told_at_once: bytes, field: str
) -> None:
    """The time is for all of it, and does not begin anew with each byte."""
    with reach(service.url) as connection:
        connection.sendall(told_at_once)
        began = time.monotonic()
        connection.settimeout(0.05)
        answer = b""
        for byte in b"POST /v1/decisions HTTP/1.1\r\nX: " + b"y" * 1000:
            with suppress(ConnectionError):
                connection.sendall(bytes([byte]))
            with suppress(TimeoutError):
                answer = connection.recv(65536)
                break
    assert answer.startswith(b"HTTP/1.1 408")
    assert problem(answer)["field"] == field
    assert time.monotonic() - began < 5


def test_headers_that_are_too_long_are_refused(service: Running) -> None:
    """In one header, in many, in the address, and before anything is said at all."""
    many = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 50) for i in range(20_000))
    address = b"GET /%s HTTP/1.1\r\n" % (b"a" * 1_000_000)
    for flood in (HEAD + b"X: " + b"y" * 1_000_000, HEAD + many, address, b"\r\n" * 500_000):
        with reach(service.url) as connection:
            connection.sendall(flood)
            answer = all_of(connection)
        assert answer.startswith(b"HTTP/1.1 431"), answer[:100]
        assert problem(answer)["field"] == "headers"
        assert "max_headers" in problem(answer)["message"]
    assert service.http.get("/healthz", headers={"X": "y" * 16_000}).status_code == 200


def test_endless_headers_are_refused_and_not_kept_in_memory(tmp_path: Path) -> None:
    """Two hundred megabytes of them, on ten connections, leave the process as it was."""
    with process(tmp_path, "--dim=2", "--policy=linucb") as (child, url):
        before = resident(child.pid)
        flood = b"y" * 1_000_000
        for _ in range(10):
            with reach(url) as connection, suppress(ConnectionError):
                connection.sendall(HEAD + b"X: ")
                for _ in range(20):
                    connection.sendall(flood)
        assert resident(child.pid) - before < 20_000_000


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


NONSENSE = {
    "method": b"BLAH\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "header": HEAD + b"no colon\r\n\r\n",
    "path": b"GET # HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "length": POST + b"Content-Length: -1\r\n\r\n",
    "long": b"BLAH" * 10_000,
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_a_request_that_is_not_http_gets_a_json_refusal(service: Running, kind: str) -> None:
    for before in (b"", HEAD + b"\r\n"):
        with reach(service.url) as connection:
            connection.sendall(before)
            if before:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            connection.sendall(NONSENSE[kind])
            answer = all_of(connection)
        assert answer.startswith(b"HTTP/1.1 400"), answer[:100]
        assert answer.count(b"HTTP/1.1 ") == 1
        assert problem(answer)["field"] == "request"


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


def test_trailers_that_are_too_long_end_the_connection(tmp_path: Path) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: "
    with running(told(tmp_path, max_body=10_000)) as service, reach(service.url) as connection:
        connection.sendall(chunked + b"y" * 200_000)
        began = time.monotonic()
        all_of(connection)
        assert time.monotonic() - began < 5


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


def test_a_client_with_too_many_pipelined_requests_is_disconnected_after_its_answers(
    service: Running,
) -> None:
    asked = post(DECIDE)
    with reach(service.url) as connection:
        connection.sendall(asked * 1000)
        answer = all_of(connection)
    assert connections.PIPELINED < answer.count(b"HTTP/1.1 200") < 1000
    assert answer.count(b"connection: close") == 1
    with reach(service.url) as connection:
        connection.sendall(asked * 4 + asked.replace(b"Host", b"Connection: close\r\nHost"))
        assert all_of(connection).count(b"HTTP/1.1 200") == 5


@pytest.mark.parametrize("count", [1, 5])
def test_a_client_that_closed_its_sending_side_is_answered(service: Running, count: int) -> None:
    with reach(service.url) as connection:
        connection.sendall(post(DECIDE) * count)
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection).count(b"HTTP/1.1 200") == count


def test_a_client_that_disconnects_within_a_request_is_removed(service: Running) -> None:
    with reach(service.url) as connection:
        connection.sendall(post(DECIDE)[:-1])
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection) == b""


@pytest.mark.parametrize("padding", range(0, 160, 20))
def test_the_last_pipelined_request_is_answered(service: Running, padding: int) -> None:
    """Wherever it is cut in two: its body is waited for, or it was never asked."""
    asked = post(DECIDE + b" " * 80, b"X-Padding: %s\r\n" % (b"y" * padding))
    with reach(service.url) as connection:
        connection.sendall(asked * 300)
        answer = all_of(connection)
    assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1 ") < 300
    assert answer.count(b"connection: close") == 1


def test_too_many_connections_are_refused_with_retry_after(tmp_path: Path) -> None:
    given = told(tmp_path, max_connections=2, body_timeout=2.0)
    with running(given) as service:
        idle = [reach(service.url) for _ in range(4)]
        wait_until(lambda: len(service.connections) == 4)
        with reach(service.url) as late:
            late.sendall(HEAD + b"\r\n")
            answer = all_of(late)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nRetry-After: 1\r\n" in answer
        assert "max_connections" in problem(answer)["message"]
        # Those who never asked are gone before long, and there is room again.
        wait_until(lambda: not service.connections, seconds=8)
        assert service.http.get("/healthz").status_code == 200
        for one in idle:
            assert all_of(one).startswith(b"HTTP/1.1 408")
            one.close()


def test_many_connections_leave_file_descriptors_for_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is too many is told so, but not while they use up what the journal needs."""
    monkeypatch.setenv("DYCLU_MAX_CONNECTIONS", "1")
    flags = ("--dim=2", "--policy=linucb")
    with process(tmp_path, *flags) as (child, url), ExitStack() as crowd:
        assert httpx.get(f"{url}/readyz").status_code == 200
        before = files(child.pid)
        for _ in range(2 + 3 * connections.SURPLUS):
            crowd.enter_context(reach(url))
        time.sleep(connections.LINGER / 2)
        assert files(child.pid) <= before + 2 + connections.SURPLUS


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_refused_client_that_stays_connected_is_disconnected(tmp_path: Path) -> None:
    with running(told(tmp_path, max_connections=1)) as service:
        idle = [reach(service.url) for _ in range(2)]
        wait_until(lambda: len(service.connections) == 2)
        with reach(service.url) as late:
            late.sendall(b"x")
            assert all_of(late).startswith(b"HTTP/1.1 503")
            wait_until(lambda: not accepts(late), seconds=6)
        for one in idle:
            one.close()


def accepts(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
    except ConnectionError:
        return False
    return True
