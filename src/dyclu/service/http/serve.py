"""`serve`: run the service as a process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from dyclu.errors import DycluError
from dyclu.service.http.app import Door, Service, create_app
from dyclu.service.http.edge.listener import Listener, listening
from dyclu.service.http.log import set_up
from dyclu.service.settings import Settings, is_loopback

COLLECT = (10_000, 10, 100)
"""Thresholds of the garbage collector: higher than the default, as we make few cycles."""

SWITCH = 0.0005
"""Seconds after which a computing thread yields to another (`sys.setswitchinterval`)."""

FILES = 100
"""Files that are open beside the connections."""

LOG = logging.getLogger("dyclu.service")


def serve(settings: Settings, *, say: Callable[[str], None], again: Callable[[], Settings]) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is under way, and take a snapshot.

    On SIGHUP the settings are read `again`, and so are certificate and key.
    """
    set_up(settings.log)
    keep_private(Path(settings.data))
    app = create_app(settings)
    app.service.on_ready = _settle
    make_room(settings)
    warn_if_in_the_clear(settings)
    try:
        uvloop.run(_until_told(app, settings, say, again))
    finally:
        # The interpreter's last collection frees msgspec's types in an order in which that may
        # crash (github.com/msgspec/msgspec/issues/717): status -11 instead of 0. A service that was
        # ready has frozen them.
        gc.freeze()


async def _until_told(
    app: Door, settings: Settings, say: Callable[[str], None], again: Callable[[], Settings]
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def listens(listener: Listener) -> None:
        loop.add_signal_handler(signal.SIGHUP, reload_all, listener)
        say(f"listening on {listener.url}")

    def reload_all(listener: Listener) -> None:
        reload(app.service, again)
        listener.renew()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload, app.service, again)
    await run(app, settings, ready=listens, stop=stop)
    LOG.info("stopped; what was acknowledged is on disk")


def reload(service: Service, again: Callable[[], Settings]) -> None:
    """Read the settings again; if they cannot be used, all stay as they are."""
    try:
        service.reload(again())
    except DycluError as error:
        LOG.error("the settings stay as they were: %s", error)
    else:
        LOG.info("the settings were read again")


async def run(
    app: Door, settings: Settings, *, ready: Callable[[Listener], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; then let requests under way finish, and close the journals."""
    await app.service.start()
    try:
        async with listening(app, settings, ended=stop.set) as listener:
            await app.service.listens(listener.url)
            ready(listener)
            await stop.wait()
    finally:
        await app.service.stop()


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
    wanted = settings.max_connections + FILES
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


def keep_private(data: Path) -> None:
    """Let only our own user read the data: files that are there, and all that will be made."""
    os.umask(0o077)
    for path in (data, *data.rglob("*")) if data.exists() else ():
        try:
            path.chmod(0o700 if path.is_dir() else 0o600)
        except OSError as error:
            LOG.warning(
                "%s can perhaps be read by others (%s); let it belong to the user of the service",
                path,
                error.strerror,
            )


def warn_if_in_the_clear(settings: Settings) -> None:
    """Say so if keys can be read on the way."""
    if not settings.tls_cert and not is_loopback(settings.host):
        LOG.warning(
            "host is %s and there is no TLS: keys and data travel in the clear beyond this "
            "machine; set tls_cert and tls_key, or put a proxy with TLS in front",
            settings.host,
        )
