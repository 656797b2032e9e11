"""`serve`: the service as a process that listens, until it is told to stop."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable

import uvicorn

from dyclu.errors import OptionError
from dyclu.service.app import create_app
from dyclu.service.settings import Settings

GRACE = 10
"""Seconds that requests under way are given when the service is told to stop."""


def serve(settings: Settings, *, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is under way, and take a snapshot."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    listening = bound(settings.host, settings.port)
    app = create_app(settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    # What has been loaded stays; looking through it again and again would cost milliseconds.
    gc.collect()
    gc.freeze()
    say(f"listening on http://{shown}:{port}")
    server_for(app, settings).run(sockets=[listening])


def server_for(app: object, settings: Settings) -> uvicorn.Server:
    """Return a server for the application."""
    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http="httptools",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
            # Ours refuse first, politely; this is for connections that never ask anything.
            limit_concurrency=2 * settings.max_connections,
        )
    )


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 means any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise OptionError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); "
            "choose another --port, or stop what listens there"
        ) from None
