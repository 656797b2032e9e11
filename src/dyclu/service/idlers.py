"""`Idlers`: connections that take too long over a request's headers are closed.

`Patience` is for bodies, uvicorn's own timer for connections that wait for their next request.
Between the two is whoever begins a request and never comes to the end of its headers; enough of
them would keep everybody else out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

LOOK = 1
"""Seconds between looks."""

_BODY = (
    b'{"error":{"code":"slow","message":"the headers took too long (limit body_timeout)",'
    b'"field":"headers"}}'
)
FAREWELL = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Idlers:
    """Gives connections so many seconds for the headers of a request."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self.connections: Iterable[Any] = ()

    async def look(self) -> None:
        """Close those who have been at it for too long."""
        now = self._clock()
        for connection in list(self.connections):
            if not _dawdles(connection):
                self._since.pop(connection, None)
            elif now - self._since.setdefault(connection, now) > self._seconds:
                connection.transport.write(FAREWELL)
                connection.transport.close()


def _dawdles(connection: Any) -> bool:
    """Tell whether a connection of uvicorn's is neither being answered nor timed by uvicorn."""
    answered = connection.cycle is None or connection.cycle.response_complete
    return answered and connection.timeout_keep_alive_task is None
