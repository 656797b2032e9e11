"""Servers in separate processes, measured from outside: CPU time and memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
SERVE = ("-c", "from dyclu.cli import main; main()", "serve")
ENDPOINT = ("-m", "benchmarks.endpoint")


@dataclass(frozen=True, slots=True)
class Server:
    """A server process."""

    child: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu(self) -> float:
        """CPU seconds that the process has used, in all threads."""
        words = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def resident(self) -> int:
        """Resident memory of the process, in bytes."""
        pages = int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(data: Path, dim: int, *words: str) -> Iterator[Server]:
    """Run ``dyclu serve`` for the length of the block; wait until it answers."""
    port = free_port()
    flags = (f"--port={port}", f"--data={data}", f"--dim={dim}", *words)
    with _running(port, *SERVE, *flags) as server:
        yield server


@contextmanager
def bare(dim: int, *, on: str = "granian") -> Iterator[Server]:
    """Run the minimal endpoint, on one of the servers of `benchmarks.endpoint`."""
    port = free_port()
    with _running(port, *ENDPOINT, str(port), str(dim), on) as server:
        yield server


@contextmanager
def _running(port: int, *words: str) -> Iterator[Server]:
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen([sys.executable, *words], stdout=nowhere, stderr=nowhere)
    try:
        _wait_for(child, port)
        yield Server(child, port)
    finally:
        child.kill()
        child.wait()


def _wait_for(child: subprocess.Popen[bytes], port: int) -> None:
    while child.poll() is None:
        # It answers 503 while it is starting; the minimal endpoint does not know this path.
        asking = HTTPConnection("127.0.0.1", port)
        try:
            asking.request("GET", "/readyz")
            if asking.getresponse().status != 503:
                return
        except OSError:
            pass
        finally:
            asking.close()
        time.sleep(0.01)
    raise SystemExit("a server did not start")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def busy() -> float:
    """CPU seconds that all processes have used since the machine started."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, words[:7])
    return (user + nice + system + irq + soft) / TICKS
