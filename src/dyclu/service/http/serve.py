"""`serve`: run the service as a process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import logging
import resource
import socket
import sys
from collections.abc import Callable

import uvicorn

from dyclu.errors import OptionError
from dyclu.service.http.app import create_app
from dyclu.service.http.connections import LOOK, Connections
from dyclu.service.settings import Settings

GRACE = 10
"""Seconds that requests under way are given when the service is told to stop."""

COLLECT = (10_000, 10, 100)
"""Thresholds of the garbage collector: higher than the default, as we make few cycles."""

SWITCH = 0.0005
"""Seconds after which a computing thread yields to another (`sys.setswitchinterval`)."""

FILES = 100
"""Files that are open beside the connections."""

LOG = logging.getLogger("dyclu.service")


def serve(settings: Settings, *, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is under way, and take a snapshot."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    listening = bound(settings.host, settings.port)
    app = create_app(settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _settle()
    make_room(settings)
    say(f"listening on http://{shown}:{port}")
    server_for(app, settings).run(sockets=[listening])


def _settle() -> None:
    """Arrange the interpreter for serving, now that everything is loaded."""
    # Loaded modules stay; scanning them twice per second would cost 30 ms each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    # The writing thread does little, but all requests wait for it.
    sys.setswitchinterval(SWITCH)


def make_room(settings: Settings) -> None:
    """Raise the limit of open files to what the connections may need, if that is allowed."""
    wanted = 2 * settings.max_connections + FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        LOG.warning(
            "at most %d files may be open, max_connections = %d may need %d; raise the limit "
            "(ulimit -n, LimitNOFILE=), or lower max_connections",
            hard, settings.max_connections, wanted,
        )  # fmt: skip
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def server_for(app: object, settings: Settings) -> uvicorn.Server:
    """Return a server for the application."""
    connections = Connections(settings)
    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http=connections.connect,  # type: ignore[arg-type]
            ws="none",
            interface="asgi3",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
            callback_notify=connections.look,
            timeout_notify=LOOK,
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
