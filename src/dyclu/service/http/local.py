"""`serving`: a service in a thread of this process, for notebooks, tests and trials."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from os import PathLike
from typing import Any

import uvloop

from dyclu.service.http.app import Service, create_app
from dyclu.service.http.edge.listener import Listener
from dyclu.service.http.serve import run
from dyclu.service.settings import Settings, settings


@contextmanager
def serving(data: str | PathLike[str], **told: Any) -> Iterator[str]:
    """Serve one tenant on a free port of this machine until the end of the `with` block.

    Parameters
    ----------
    data : path
        Folder for journal and snapshots; a later service can continue with it.
    **told
        Settings of the service and of its tenant ``default``, such as `features` and `policy`.

    Yields
    ------
    str
        The address.

    Examples
    --------
    >>> from dyclu.client import Client
    >>> with serving("shop-data", dim=2, policy="linucb") as url, Client(url) as client:
    ...     client.decide("ana", {"red": [1.0, 0.0]}).arm
    'red'
    """
    flags = {"port": 0, **told, "data": str(data)}
    with in_thread(settings(flags, environment={})) as (url, service):
        while any(tenant.starting for tenant in service.tenants.values()):
            time.sleep(0.01)
        yield url


@contextmanager
def in_thread(given: Settings) -> Iterator[tuple[str, Service]]:
    """Serve in a thread; yields address and service as soon as it listens."""
    app, stop = create_app(given), asyncio.Event()
    started: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()

    def listens(listener: Listener) -> None:
        started.set_result((listener.url, asyncio.get_running_loop()))

    def serve() -> None:
        try:
            uvloop.run(run(app, given, ready=listens, stop=stop))
        except BaseException as error:
            started.set_exception(error)

    thread = threading.Thread(target=serve, name="dyclu-service")
    thread.start()
    url, loop = started.result()
    try:
        yield url, app.service
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
