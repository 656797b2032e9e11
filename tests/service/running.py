"""Services that really listen: in a thread, or as a process of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dyclu.service.http.app import Service, create_app
from dyclu.service.http.serve import bound, server_for
from dyclu.service.settings import Settings, settings


@dataclass
class Running:
    """A service in a thread of this process."""

    url: str
    http: httpx.Client
    service: Service
    connections: Collection[Any] = ()

    def decide(self, user: str = "ana", **more: Any) -> httpx.Response:
        return self.http.post("/v1/decisions", json={"user": user, "arms": ARMS, **more})

    def reward(self, id: str, value: float) -> httpx.Response:
        return self.http.post(f"/v1/decisions/{id}/reward", json={"value": value})


ARMS = [
    {"id": "a0", "features": [1.0, 0.0]},
    {"id": "a1", "features": [0.0, 1.0]},
    {"id": "a2", "features": [0.6, 0.8]},
]


def told(data: Path, **flags: Any) -> Settings:
    linucb = {"policy": "linucb", "options": {"alpha": 0.5}}
    chosen = {"dim": 2, "data": str(data), "port": 0} | linucb | flags
    return settings(chosen, environment={})


@contextmanager
def running(given: Settings, **client: Any) -> Iterator[Running]:
    app = create_app(given)
    listening = bound(given.host, given.port)
    server = server_for(app, given)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        wait_until(lambda: server.started or not thread.is_alive())
        with httpx.Client(base_url=url, timeout=10, **client) as http:
            yield Running(url, http, app.service, server.server_state.connections)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def wait_until(true: Any, *, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.01)


@contextmanager
def process(
    data: Path, *flags: str, before: Callable[[], None] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service as `dyclu serve` starts it, and its address; `before` runs in its process."""
    command = [sys.executable, "-c", "from dyclu.cli import main; main()", "serve", "--port=0"]
    child = subprocess.Popen(
        [*command, f"--data={data}", *flags],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith("listening on "):
                yield child, line.split()[-1]
                return
        assert child.stderr is not None
        raise AssertionError(f"did not start: {child.stderr.read()}")
    finally:
        child.kill()
        child.communicate()
