"""Answers and refusals as ASGI applications that send JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from dyclu.service import schema
from dyclu.service.http.calls import problem
from dyclu.service.refusal import Refusal

LAST = frozenset({400, 401, 403, 408, 413, 415, 421, 431})
"""Refusals after which the connection is closed: what follows on it is not to be trusted."""

NOTHING: Mapping[str, str] = {}

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON as an ASGI application: a response of Starlette's, without all that it could be."""

    body: bytes
    status: int
    more: Mapping[str, str]

    def closing(self) -> Answer:
        """Return the same answer, after which the connection is closed."""
        return replace(self, more={**self.more, "connection": "close"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
            (b"x-content-type-options", b"nosniff"),
            *((name.encode(), value.encode()) for name, value in self.more.items()),
        ]
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def answered(answer: Any, status: int = 200) -> Answer:
    """Return an answer as JSON."""
    return Answer(encode(answer), status, NOTHING)


def refused(refusal: Refusal, more: Mapping[str, str] = NOTHING) -> Answer:
    """Return a refusal as JSON."""
    headers = dict(more)
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.status in LAST:
        headers["connection"] = "close"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Answer(encode(schema.Refused(problem(refusal))), refusal.status, headers)
