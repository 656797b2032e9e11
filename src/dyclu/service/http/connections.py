"""`Connections`: limits per connection that uvicorn does not have.

A connection is closed if its headers are too long or too slow, if it sends many requests without
waiting for answers, or if it does not read its answers. So no client can block others or fill the
memory for longer than the settings say.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dyclu.service.http.calls import problem
from dyclu.service.refusal import Refusal
from dyclu.service.schema import Refused
from dyclu.service.settings import Settings

LOOK = 1
"""Seconds between two checks of all connections."""

LINGER = 2.0
"""Seconds in which a refused client may read the refusal."""

SURPLUS = 32
"""Connections beyond the limit that get a refusal; more are closed at once, as each is a file."""

PIPELINED = 64
"""Requests that may follow one that is not answered yet."""

SLICE = 16_384
"""Bytes that are passed on before the limits are checked."""

CRUMB = 32
"""Bytes that are too few for a request with a body: no crumb ends within a body it began."""

MOST_UNREAD = 64_000_000
"""Bytes of answers that wait to be read, of all connections together."""

# An offer of another protocol: the parser would take it for agreed, and drop the body.
# In a body this is no JSON, before or after, and of the same length.
_OFFER = re.compile(rb"\nupgrade:", re.IGNORECASE)
_NOT_TAKEN = b"\nIgnored:"

ACKNOWLEDGED = 120
"""Where `tcpi_bytes_acked` stands in Linux's `struct tcp_info`."""

_encode = msgspec.json.Encoder().encode


class Connections:
    """All connections there are; `connect` makes them, and `look` ends those that take too long."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        # A request is headers and body; chunks of a reasonable size are no longer than twice that.
        self.longest = settings.max_headers + 2 * settings.max_body
        self._clock = clock
        self._since: dict[Connection, tuple[tuple[str, int], float]] = {}
        self.open: set[Connection] = set()

    def connect(self, **made_with: Any) -> Connection:
        """Return the protocol of a new connection, made with what uvicorn gives its own."""
        return Connection(self, HttpToolsProtocol(**made_with))

    def leave(self, one: Connection) -> None:
        """Remove a connection that has ended."""
        self.open.discard(one)
        self._since.pop(one, None)

    async def look(self) -> None:
        """Close connections that take too long, and those with too many unread bytes.

        Time starts again for a client that has read a part of its answers since the last check.
        """
        now = self._clock()
        for one in list(self.open):
            if (doing := one.doing) is None:
                self._since.pop(one, None)
                continue
            at = doing, acknowledged(one.transport) if doing == "answer" else 0
            was, since = self._since.get(one, (at, now))
            since = since if was == at else now
            self._since[one] = at, since
            if now - since > self._patience(doing):
                one.overdue(doing)
        self._relieve()

    def _patience(self, doing: str) -> float:
        told = self.settings
        return {"headers": told.body_timeout, "answer": told.answer_timeout}.get(doing, LINGER)

    def _relieve(self) -> None:
        """Close the connections with most unread bytes, until the rest is within the limit."""
        by_unread = sorted(self.open, key=lambda one: one.unread)
        total = sum(one.unread for one in by_unread)
        while total > MOST_UNREAD:
            largest = by_unread.pop()
            total -= largest.unread
            largest.transport.abort()


class Connection(asyncio.Protocol):
    """One connection: uvicorn's protocol, with checks before data is passed on."""

    transport: asyncio.Transport

    def __init__(self, all: Connections, inner: HttpToolsProtocol) -> None:
        self._all, self._inner = all, inner
        # uvicorn would send its own text instead of our JSON.
        self._complaints: list[str] = []
        inner.send_400_response = self._complaints.append  # type: ignore[assignment]
        self._scope: Any = None
        self._taken = 0
        self._welcome = self._deaf = self._leaving = False

    @property
    def unread(self) -> int:
        """Bytes of answers that the other side has not taken."""
        return self.transport.get_write_buffer_size()

    @property
    def doing(self) -> str | None:
        """What the client is slow at; None if it is our turn, or if uvicorn's timeout applies."""
        if self._leaving or not self._welcome:
            return "leaving"
        if self.unread:
            return "answer"
        return "headers" if self._answered and self._inner.timeout_keep_alive_task is None else None

    @property
    def _answered(self) -> bool:
        return self._inner.cycle is None or self._inner.cycle.response_complete

    @property
    def _half_asked(self) -> bool:
        """Whether the only request that is unanswered is one whose body has not come."""
        cycle = self._inner.cycle
        return cycle.more_body and not (cycle.response_started or self._inner.pipeline)

    @property
    def _piled_up(self) -> bool:
        return len(self._inner.pipeline) > PIPELINED

    def overdue(self, doing: str) -> None:
        """End it."""
        if doing == "headers":
            slow = "the headers took too long (limit body_timeout)"
            self._send_away(Refusal(408, "slow", slow, field="headers"))
        else:
            self.transport.abort()

    # --- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless there are too many."""
        self.transport = cast(asyncio.Transport, transport)
        # Requests that are under way are refused first, politely; this is for all the others.
        most = 2 * self._all.settings.max_connections
        self._welcome = len(self._inner.connections) < most
        self._all.open.add(self)
        if self._welcome:
            self._inner.connection_made(self.transport)
        elif len(self._all.open) > len(self._inner.connections) + SURPLUS:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._all.leave(self)
        if self._welcome:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on to uvicorn as long as it is within the limits."""
        start = 0
        while start < len(data):
            size = CRUMB if self._piled_up else SLICE
            self._take(data[start : start + size])
            start += size

    def eof_received(self) -> bool:
        """Stay connected until all requests are answered, but read nothing more."""
        waits = not (self._answered or self._inner.cycle.more_body)
        if waits:
            self._hear_no_more()
        return waits

    def pause_writing(self) -> None:
        """Stop answering for now."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Go on answering."""
        self._inner.resume_writing()

    # --- what is reasonable ------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        if not self._welcome:
            full = "too many connections (limit max_connections)"
            self._send_away(Refusal(503, "busy", full, retry_after=1))
            return
        self._inner.data_received(_OFFER.sub(_NOT_TAKEN, data))
        if self._complaints:
            self._send_away(Refusal(400, "malformed", "this is not HTTP/1.1", field="request"))
        else:
            self._judge(len(data))

    def _judge(self, size: int) -> None:
        scope: Any = self._inner.scope
        if scope is not self._scope:
            self._scope, self._taken = scope, 0
        self._taken += size
        most = self._all.settings.max_headers
        if self._taken > most and (scope is None or "path" not in scope):
            much = f"the headers are longer than {most} bytes (limit max_headers)"
            self._send_away(Refusal(431, "limit", much, field="headers"))
        elif self._taken > self._all.longest:
            (self._part if self._answered else self.transport.abort)()
        elif self._piled_up and not self._inner.cycle.more_body:
            self._hear_no_more()

    def _hear_no_more(self) -> None:
        """Answer what was asked so far, then end it."""
        self._deaf, self._inner.cycle.keep_alive = True, False

    def _send_away(self, refusal: Refusal) -> None:
        """Send a refusal and close once it is read: closed at once, it might not arrive."""
        if self.transport.is_closing():
            return
        if not (self._answered or self._half_asked):
            self._hear_no_more()
            return
        if not self._answered:
            # The rest of its body never comes.
            self._inner.cycle.disconnected = True
            self._inner.cycle.message_event.set()
        self.transport.write(spoken(refusal))
        self._part()

    def _part(self) -> None:
        """Send nothing more, and give the client time to read the last answer."""
        self._deaf = self._leaving = True
        self.transport.write_eof()


def acknowledged(transport: asyncio.Transport) -> int:
    """Return how many bytes have arrived at the other side; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    # Our own buffer would not do: the system's takes from it only when a third of that is free.
    asked = transport.get_extra_info("socket")
    try:
        told = asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKNOWLEDGED + 8)
    except OSError:
        return 0
    arrived: int = struct.unpack_from("=Q", told, ACKNOWLEDGED)[0]
    return arrived


def spoken(refusal: Refusal) -> bytes:
    """Return a refusal as an HTTP response that closes the connection.

    >>> print(spoken(Refusal(503, "busy", "too many", retry_after=1)).decode().splitlines()[0])
    HTTP/1.1 503 Service Unavailable
    """
    body = _encode(Refused(problem(refusal)))
    again = "" if refusal.retry_after is None else f"Retry-After: {refusal.retry_after}\r\n"
    head = (
        f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n{again}"
        "Content-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
