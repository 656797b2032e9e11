"""`serve`: the service as a process that listens, until it is told to stop."""

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
"""How many new objects there are before rubbish is looked for; most of ours goes by itself."""

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one go on."""

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
    # What has been loaded stays; looking through it twice a second would cost 30 ms each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    # The writing thread has little to do, and everybody waits for it.
    sys.setswitchinterval(SWITCH)


def make_room(settings: Settings) -> None:
    """Let the process open as many files as there may be connections, if it may."""
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
