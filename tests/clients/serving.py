"""A service that can be started again at the same address."""

from __future__ import annotations

import socket
import sys
from pathlib import Path


def free_port() -> int:
    """Return a port of loopback at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def command(data: Path, port: int) -> list[str]:
    """Return the command that starts a service of two features at this port."""
    options = ["--dim=2", "--policy=linucb", "--options=alpha=0.5"]
    return [sys.executable, "-m", "dyclu", "serve", f"--port={port}", f"--data={data}", *options]
