"""A PostgreSQL of our own: in a folder, on a free port of this machine, killed and started at will.

initdb refuses to run as root; then the database runs as the user postgres, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "unix_socket_directories": "",
    "autovacuum": "off",
    "log_min_messages": "fatal",
    # After a kill every file would be synced by itself: minutes, where the disk is busy.
    "recovery_init_sync_method": "syncfs",
}


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, None if there is none."""
    beside = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    places = [*([Path(beside).resolve()] if beside else []), *reversed(found)]
    return places[0].parent if places else None


needs_postgres = pytest.mark.skipif(
    programs() is None, reason="PostgreSQL is not installed (Debian: postgresql)"
)


class Postgres:
    """A database server in a folder."""

    def __init__(self, folder: Path) -> None:
        self._bin, self._data = programs(), folder / "pg"
        self._as: list[str] = []
        self.user = pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            known = {one.pw_name for one in pwd.getpwall()}
            self.user = user = "postgres" if "postgres" in known else "nobody"
            self._as = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}",
                        "--clear-groups"]  # fmt: skip
            shutil.chown(folder, user)
        self._log = folder / "pg.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", str(self._data), "-U", "dyclu", "-A", "trust", "-E", "UTF8",
                  "--no-sync", "--locale=C")  # fmt: skip
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://dyclu:not-shown@127.0.0.1:{self.port}/postgres"

    def fresh(self) -> str:
        """Return the address of a new, empty database."""
        import psycopg

        name = f"d{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://dyclu:not-shown@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *arguments: str) -> None:
        assert self._bin is not None
        subprocess.run(
            [*self._as, str(self._bin / program), *arguments], check=True, capture_output=True,
            cwd="/",
        )  # fmt: skip

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        assert self._bin is not None
        told = [f"-c{name}={value}" for name, value in (SETTINGS | settings).items()]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._as, str(self._bin / "postgres"), "-D", str(self._data),
                 f"-p{self.port}", *told],
                stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        import psycopg

        end = time.monotonic() + 180
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill all its processes at once, as a power cut of its machine would."""
        for child in self._children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        # A server with a pid file and a shared memory of its own refuses to start.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(one) for one in path.read_text().split()] if path.exists() else []

    def stop(self) -> None:
        """Stop it in order."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""A folder in memory, and how many bytes must be free there for the databases of all tests."""


def folder_in_memory() -> Path | None:
    """Return a folder in memory, None if there is none, or too little of it."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if usable and shutil.disk_usage(MEMORY).free > ROOM else None


@contextmanager
def postgres(*, inside: Path | None = None) -> Iterator[Postgres]:
    """Yield a server in a folder that is removed afterwards."""
    # Not below pytest's folders, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="dyclu-pg-", dir=inside))
    folder.chmod(0o755)
    try:
        made = Postgres(folder)
        try:
            yield made
        finally:
            made.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
