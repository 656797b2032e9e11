"""`Wire`: one HTTP/1.1 connection and next to no cost per request, for the load test.

A general client takes longer over a request than the service does; with one, a load test on the
same machine would measure the client.
"""

from __future__ import annotations

import asyncio


class Wire:
    """A connection that is kept open; one request at a time."""

    def __init__(self, host: str, port: int, key: str | None) -> None:
        self._host, self._port = host, port
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = f"Host: {host}:{port}\r\nContent-Type: application/json\r\n{bearer}"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a body and return status and answer; raises OSError if the connection breaks."""
        return await self._ask("POST", path, body)

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and answer."""
        return await self._ask("GET", path, b"")

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        try:
            self._writer.write(head.encode() + body)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            length = answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            return int(answer[9:12]), await self._reader.readexactly(int(length))
        except (asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise ConnectionError(f"the answer broke off ({error})") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
