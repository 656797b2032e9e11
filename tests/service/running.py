"""Services that really listen: in a thread, or as a process of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dyclu.service.http.app import Service
from dyclu.service.http.local import in_thread
from dyclu.service.settings import Settings, settings


@dataclass
class Running:
    """A service in a thread of this process."""

    url: str
    http: httpx.Client
    service: Service

    def decide(self, user: str = "ana", **more: Any) -> httpx.Response:
        return self.http.post("/v1/decisions", json={"user": user, "arms": ARMS, **more})

    def reward(self, id: str, value: float) -> httpx.Response:
        return self.http.post(f"/v1/decisions/{id}/reward", json={"value": value})


PATIENCE = 90.0
"""Seconds to wait for what takes a moment; twenty are not enough on a machine that is busy."""

STARTED = 180.0
"""Seconds after which a start is taken for hung; kernels may have to be compiled first."""

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
def running(
    given: Settings, *, ready: bool = True, verify: Any = False, **client: Any
) -> Iterator[Running]:
    """A service in a thread; to `verify` needs certificates, which take longer than its start."""
    with in_thread(given) as (url, service):
        if ready:
            tenants = service.tenants.values()
            wait_until(lambda: not any(tenant.starting for tenant in tenants), seconds=STARTED)
        with httpx.Client(base_url=url, timeout=PATIENCE, verify=verify, **client) as http:
            yield Running(url, http, service)


def wait_until(
    true: Any, *, seconds: float = PATIENCE, told: Callable[[], str] = lambda: ""
) -> None:
    """Wait until something is true; `told` says how it is, if that takes too long."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {seconds:.0f} s. {told()}")
        time.sleep(0.01)


@contextmanager
def process(
    data: Path, *flags: str, before: Callable[[], None] | None = None, ready: bool = True
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service as `dyclu serve` starts it, and its address; `before` runs in its process.

    It is yielded once it has started, or, unless it must be `ready`, once it listens.
    """
    command = [sys.executable, "-c", "from dyclu.cli import main; main()", "serve", "--port=0"]
    child = subprocess.Popen(
        [*command, f"--data={data}", *flags],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )
    assert child.stdout is not None
    # A process that neither listens nor ends must not be waited for.
    late = threading.Timer(STARTED, child.kill)
    late.start()
    try:
        for line in child.stdout:
            if line.startswith("listening on "):
                late.cancel()
                if ready:
                    _await_start(child, line.split()[-1])
                yield child, line.split()[-1]
                return
        assert child.stderr is not None
        raise AssertionError(f"did not start: {child.stderr.read()}")
    finally:
        late.cancel()
        child.kill()
        child.communicate()


def _await_start(child: subprocess.Popen[str], url: str) -> None:
    # One client: each reads all certificates anew, and would take the time of the start.
    with httpx.Client(base_url=url, verify=False) as http:

        def up() -> bool:
            return child.poll() is not None or not _starting(http)

        wait_until(up, seconds=STARTED, told=lambda: readiness(url))


def _starting(http: httpx.Client) -> bool:
    """Tell whether a service does not answer yet, or says that it is starting."""
    try:
        return bool(http.get("/readyz").json()["status"] == "starting")
    except httpx.TransportError:
        return True


def readiness(url: str) -> str:
    """Return what a service says about itself, or that it says nothing."""
    try:
        return f"/readyz says {httpx.get(f'{url}/readyz').text}"
    except httpx.TransportError as error:
        return f"/readyz does not answer: {error!r}"
