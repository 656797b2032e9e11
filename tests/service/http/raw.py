"""Requests as bytes on a socket, and what comes back."""

from __future__ import annotations

import json
import resource
import socket
from contextlib import suppress
from pathlib import Path

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /v1/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
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
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def files(pid: int) -> int:
    """How many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
