"""`made`: the HTTP server (granian) in front of an ASGI application.

granian parses HTTP, and speaks TLS, in a thread of its own; the application runs in our event loop.
Here are only its settings, and the two things about sockets that it does not set itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from dyclu.errors import DycluError, OptionError
from dyclu.service.settings import Settings

BACKLOG = 1024
"""Connections that wait in the system's queue while `max_connections` are open."""


class ServerEnded(DycluError):  # noqa: N818 - it says what happened
    """The HTTP server stopped although nobody told it to."""


_LOGGING = {
    "formatters": {},
    "handlers": {},
    # Its messages go where ours go; from "error" on, as it warns at each start.
    "loggers": {"_granian": {"level": "ERROR", "propagate": True}},
}


def made(app: Any, settings: Settings, host: str, port: int) -> Server:
    """Return the server of an application on this address; it reads its certificate now."""
    cert, key = settings.tls_cert, settings.tls_key
    try:
        return Server(
            app,
            address=host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=settings.max_connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=round(1000 * settings.idle_timeout),
                # What fits is refused by its exact size, however it is cut into packets.
                max_buffer_size=2 * settings.max_headers,
            ),
            log_level=LogLevels.error,
            log_dictconfig=_LOGGING,
            ssl_cert=Path(cert) if cert else None,
            ssl_key=Path(key) if key else None,
            ssl_protocol_min=SSLProtocols.tls12,
        )
    except OSError as error:  # ssl.SSLError is one, too
        raise OptionError(
            f"tls_cert {cert} and tls_key {key} cannot be used ({error.strerror or error}); "
            "name a certificate and its key, both in PEM format"
        ) from None


def reserved(host: str, port: int) -> socket.socket:
    """Return a socket that holds this address for us; port 0 means any free one.

    granian binds its own socket beside this one. Several sockets of one user may share a port, so
    another service on this port is looked for first.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        family, address = found[0], found[4]
        if port:
            socket.create_server(address[:2], family=family).close()
        place = socket.socket(family)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(address)
    except OSError as error:
        raise OptionError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); "
            "choose another --port, or stop what listens there"
        ) from None
    return place


def drop_unread(port: int, seconds: float) -> None:
    """Disconnect clients that read nothing of an answer for so long.

    The system does this (TCP_USER_TIMEOUT). Accepted connections inherit it from the socket that
    listens, which is granian's; so it is found among the open files of this process.
    """
    for one in _own_sockets():
        with one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and one.getsockname()[1] == port:
                milliseconds = round(1000 * seconds)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _own_sockets() -> Iterator[socket.socket]:
    """Yield a duplicate of each internet socket of this process; none where there is no /proc."""
    files = Path("/proc/self/fd")
    for file in list(files.iterdir()) if files.exists() else []:
        with suppress(OSError):
            if file.readlink().name.startswith("socket:"):
                one = socket.socket(fileno=os.dup(int(file.name)))
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    yield one
                else:
                    one.close()
