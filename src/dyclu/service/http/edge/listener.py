"""`listening`: one address on which an HTTP server answers; its certificate can be renewed.

The server reads certificate and key when it starts. To renew them, a second server is started on
the same port. Once a connection has got the new certificate, the first one takes no more
connections and ends those that it has: after the answer to a request, or at once if they are idle.

Certificate and key of a renewal are read once, into a folder that only this user can open; what is
tried there is what is served, also if the files are written again meanwhile. The folder stays until
this server has stopped: granian reads the files in a thread of its own, some time after the start.

If the first certificate is the one before and only its chain is another, the answers of both
servers look alike here. Then the new one is given a second; that it answers before the old one
stops is not proven, and the log says so.

granian ends the whole process if it cannot use a key (one of a kind that OpenSSL knows and it does
not). So a renewed pair is tried in a process of its own before: ``python -m`` this module.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from dyclu.errors import OptionError
from dyclu.service.http.edge.server import ServerEnded, drop_unread, made, reserved
from dyclu.service.settings import Settings, settings

LOG = logging.getLogger("dyclu.service")

GRACE = 10.0
"""Seconds that requests under way are given when a server is told to stop."""

RENEWAL, TRIAL = 10.0, 60.0
"""Seconds in which a new server must have answered with the new certificate, and a trial ended."""

SAID = 400
"""Letters of what a failed trial has said that the log repeats."""

HEAD_START = 1.0
"""Seconds that a new server gets where it cannot be seen whether it answers."""

HANDSHAKE = 2.0
"""Seconds that one connection may take to show the certificate."""

UNPROVEN = " (its first certificate is the same, so which server answered could not be seen)"
"""What the log adds if only the chain is another."""


@asynccontextmanager
async def listening(
    app: Any, settings: Settings, *, ended: Callable[[], None] = lambda: None
) -> AsyncIterator[Listener]:
    """Serve the application on its address; at the end, let requests under way finish.

    `ended` is called if the server stops by itself; then an error is raised at the end.
    """
    with reserved(settings.host, settings.port) as place:
        listener = Listener(app, settings, *place.getsockname()[:2], ended=ended)
        try:
            await listener.start()
            yield listener
            listener.check()
        finally:
            await listener.stop()


class Listener:
    """The HTTP server on one address, which a renewal replaces by another one.

    Attributes
    ----------
    url : str
        Where it answers.
    """

    def __init__(
        self, app: Any, settings: Settings, host: str, port: int, *, ended: Callable[[], None]
    ) -> None:
        self._app, self._settings, self._ended = app, settings, ended
        self._host, self._port = host, port
        scheme = "https" if settings.tls_cert else "http"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        self._turn, self._renewals = asyncio.Lock(), set[asyncio.Task[None]]()
        self._now: _Running | None = None
        self._before: _Running | None = None
        self._files = _pem_files(settings)

    async def start(self) -> None:
        """Start the server, and wait until connections are accepted."""
        self._now = self._running(self._settings)
        while not self._now.serving.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, self._port)
                writer.close()
                drop_unread(self._port, self._settings.answer_timeout)
                return
            await asyncio.sleep(0.01)
        await self._now.serving
        raise OptionError(
            f"the HTTP server did not start on {self._host} port {self._port}; see the log"
        )

    def check(self) -> None:
        """Raise an error if the server has stopped by itself."""
        if self._now is not None and self._now.serving.done():
            raise ServerEnded("the HTTP server ended by itself; start the service again")

    async def stop(self) -> None:
        """Let requests under way finish, and stop."""
        for one in self._renewals:
            one.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)
        # A renewal may have left the server before, which still answers.
        left = [one for one in (self._now, self._before) if one is not None]
        self._now = None
        await asyncio.gather(*(one.stop() for one in left))

    def renew(self) -> asyncio.Task[None]:
        """Begin a renewal; it may be awaited."""
        task = asyncio.create_task(self._renew())
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)
        return task

    async def _renew(self) -> None:
        """Give new connections the certificate that is in the files now, if it is another one.

        If it cannot be used, the log says why, and the present one stays.
        """
        async with self._turn:
            files = _pem_files(self._settings)
            if self._now is None or files == self._files:
                return
            alike = _first_certificate(files[0]) == _first_certificate(self._files[0])
            try:
                await self._replace(_Copies(self._settings, files), files, alike=alike)
            except (OptionError, OSError) as error:
                LOG.error("the certificate stays as it was: %s", error)
            else:
                LOG.info(
                    "the certificate was read again; new connections get the new one%s",
                    UNPROVEN if alike else "",
                )

    async def _replace(self, copies: _Copies, files: tuple[bytes, ...], *, alike: bool) -> None:
        """Start a server with copies of the files; stop the present one when it answers.

        Both certificates may be `alike`: the answers are then those of any of the two.
        """
        try:
            await _tried(copies.settings)
            new = self._running(copies.settings, copies)
        except OptionError as error:
            copies.remove()
            raise OptionError(copies.told(str(error))) from None
        except BaseException:
            copies.remove()
            raise
        old = self._now
        try:
            if alike:
                await asyncio.wait([new.serving], timeout=HEAD_START)
            await self._seen(new, _first_certificate(files[0]))
        except BaseException:
            await new.stop()
            raise
        self._files, self._now, self._before = files, new, old
        drop_unread(self._port, self._settings.answer_timeout)
        if old is not None:
            await old.stop()
            self._before = None

    async def _seen(self, new: _Running, certificate: bytes) -> None:
        """Wait until a connection gets this certificate: both servers take connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEWAL):
                while not new.serving.done():
                    if await asyncio.to_thread(self.shown) == certificate:
                        return
                    await asyncio.sleep(0.01)
        raise OptionError("no server answered with the new one; see the log")

    def shown(self) -> bytes | None:
        """Return the certificate that a new connection gets; None if there was no answer."""
        place = (self._host, self._port)
        with suppress(OSError):
            return _first_certificate(ssl.get_server_certificate(place, timeout=HANDSHAKE).encode())
        return None

    def _running(self, settings: Settings, copies: _Copies | None = None) -> _Running:
        running = _Running(self._app, settings, self._host, self._port, copies)
        running.serving.add_done_callback(self._check_ended)
        return running

    def _check_ended(self, serving: asyncio.Task[None]) -> None:
        if self._now is not None and self._now.serving is serving:
            self._ended()


class _Running:
    """One server, the task in which it serves, and the copies that it reads, if there are any."""

    def __init__(
        self, app: Any, settings: Settings, host: str, port: int, copies: _Copies | None
    ) -> None:
        self._copies = copies
        self._server = made(app, settings, host, port)
        self.serving = asyncio.create_task(self._server.serve())

    async def stop(self) -> None:
        """Take no more connections, let requests under way finish, and end."""
        self._server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait([self.serving], timeout=GRACE)
        self.serving.cancel()
        if self._copies is not None:
            self._copies.remove()


class _Copies:
    """Certificate and key in a folder that only this user can open.

    Attributes
    ----------
    settings : Settings
        Settings that name the copies.
    """

    def __init__(self, settings: Settings, files: tuple[bytes, ...]) -> None:
        origins = (settings.tls_cert or "", settings.tls_key or "")
        for origin, content in zip(origins, files, strict=True):
            if not content:
                raise OptionError(f"{origin} is empty or cannot be read")
        self._folder = tempfile.TemporaryDirectory(prefix="dyclu-")  # of mode 0700
        self._origins: dict[str, str] = {}
        for name, origin, content in zip(("cert.pem", "key.pem"), origins, files, strict=True):
            path = Path(self._folder.name, name)
            path.write_bytes(content)
            self._origins[str(path)] = origin
        cert, key = self._origins
        self.settings = structs.replace(settings, tls_cert=cert, tls_key=key)

    def told(self, text: str) -> str:
        """Return a text about the copies as one about the files that they are of."""
        for path, origin in self._origins.items():
            text = text.replace(path, origin)
        return text

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


async def _tried(settings: Settings) -> None:
    """Let a server of another process use certificate and key; raise an error if it cannot."""
    # First here, as OpenSSL says what is wrong.
    made(None, settings, "127.0.0.1", 0)
    command = [sys.executable, "-m", __name__, settings.tls_cert or "", settings.tls_key or ""]
    trial = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(TRIAL):
            _, said = await trial.communicate()
    except TimeoutError:
        said = b"it took too long"
    finally:
        if trial.returncode is None:
            trial.kill()
    if trial.returncode != 0:
        raise OptionError(
            f"granian cannot use tls_cert {settings.tls_cert} and tls_key {settings.tls_key} "
            f"({said.decode(errors='replace').strip()[:SAID]}); name a certificate and its key "
            "of a usual kind: RSA of 2048 bits or more, ECDSA, Ed25519"
        )


async def _try(cert: str, key: str) -> None:
    """Answer with this certificate once, and end the process with status 0."""
    told = {"dim": 1, "port": 0, "tls_cert": cert, "tls_key": key}
    async with listening(None, settings(told, environment={})) as one:
        if await asyncio.to_thread(one.shown) == _first_certificate(Path(cert).read_bytes()):
            # At once: an interpreter that ends beside granian's threads may be aborted.
            os._exit(0)
    raise OptionError(f"the server does not answer with the certificate of {cert}")


def _pem_files(settings: Settings) -> tuple[bytes, ...]:
    """Return what is in the files of certificate and key; nothing of one that cannot be read."""
    found = []
    for path in (settings.tls_cert, settings.tls_key):
        if path is not None:
            content = b""
            with suppress(OSError):  # who uses the file says why
                content = Path(path).read_bytes()
            found.append(content)
    return tuple(found)


def _first_certificate(pem: bytes) -> bytes:
    r"""Return the first certificate of a PEM file, that of the service, without its line breaks.

    >>> _first_certificate(b"-----BEGIN CERTIFICATE-----\nMII\nB\n-----END CERTIFICATE-----")
    b'MIIB'
    """
    found = re.search(rb"-----BEGIN CERTIFICATE-----(.*?)-----END", pem, re.DOTALL)
    return b"" if found is None else b"".join(found[1].split())


if __name__ == "__main__":
    asyncio.run(_try(*sys.argv[1:]))
