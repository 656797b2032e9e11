"""Request bodies: how long they may be, how long they may take, and how they are decoded."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.types import Message, Receive

from dyclu.service.http.edge.budgets import BodyBytes
from dyclu.service.refusal import Refusal

CHECK_EVERY = 0.25
"""Seconds between two checks for bodies that take too long."""

LINGER = 2.0
"""Seconds for which the rest of a refused body is read and dropped."""

T = TypeVar("T")

_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`\Z", re.DOTALL)
_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(NaN|Infinity)")
_ID_EXPECTED = "Expected `str` matching regex"
ID_MEANING = "an id of 1 to 128 letters from a to z, digits or _.:@+=~-; hash names of people"
"""What the pattern of ids means; the first one is a letter, a digit or an underscore."""

_UNKNOWN = re.compile(r"(?:unknown|required) field `([^`]*)`")


class Body:
    """The body of one request: read within the limits, or read and dropped after a refusal.

    Attributes
    ----------
    ended : bool
        Whether all of it has been read.
    """

    __slots__ = ("_left", "_receive", "ended")

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes]) -> None:
        self._receive = receive
        told = headers.get(b"content-length")
        # The server reads no more than was announced, and refuses what is not a number.
        self._left = math.inf if told is None else int(told)
        self.ended = self._left == 0 or (told is None and b"transfer-encoding" not in headers)

    async def read(self, most: int, held: BodyBytes) -> bytes:
        """Return the body, or refuse it as soon as it is longer than `most`."""
        first = self._taken(await self._receive())
        held.add(len(first))
        if self.ended and len(first) <= most:
            return first
        chunks = [first]
        while not self.ended and held.count <= most:
            chunks.append(self._taken(await self._receive()))
            held.add(len(chunks[-1]))
        if held.count > most:
            raise too_large(most)
        return b"".join(chunks)

    def _taken(self, message: Message) -> bytes:
        """Return the bytes of a message; the last ones are known by the length, if it was told."""
        if message["type"] == "http.disconnect":
            self.ended = True
            raise Refusal(400, "gone", "the body ended early", field="body")
        chunk: bytes = message.get("body", b"")
        self._left -= len(chunk)
        self.ended = self._left <= 0 or not message.get("more_body", False)
        return chunk

    async def drop(self) -> None:
        """Read the rest of a refused body and drop it, for a few seconds at most.

        A client that sends all before it reads would otherwise be cut off, and not get the refusal.
        """
        with suppress(TimeoutError, Refusal):
            async with asyncio.timeout(LINGER):
                while not self.ended:
                    self._taken(await self._receive())


def checked_length(headers: Mapping[bytes, bytes], most: int) -> None:
    """Refuse a body because of its headers: another type than JSON, or too long.

    >>> checked_length({b"content-type": b"application/json", b"content-length": b"9"}, 8)
    Traceback (most recent call last):
        ...
    dyclu.service.refusal.Refusal: the body is longer than 8 bytes (limit max_body)
    """
    kind = headers.get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise Refusal(415, "type", "send Content-Type: application/json", field="content-type")
    told = headers.get(b"content-length", b"")
    if told.isdigit() and int(told) > most:
        raise too_large(most)


def too_large(most: int) -> Refusal:
    """Return the refusal of a body that is too long."""
    return Refusal(
        413, "limit", f"the body is longer than {most} bytes (limit max_body)", field="body"
    )


class BodyTimeout:
    """Refuses bodies that take longer than `seconds`.

    `asyncio.timeout` would set a timer for each of thousands of bodies, almost all of which have
    already arrived. Here one task checks all of them a few times per second.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._checking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that checks."""
        self._checking = asyncio.create_task(self._check())

    def stop(self) -> None:
        """Stop the task."""
        if self._checking is not None:
            self._checking.cancel()

    async def wait_for(self, awaited: Awaitable[T]) -> T:
        """Return the result of `awaited`, or refuse with 408 if it takes too long."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = time.monotonic() + self.seconds
        try:
            return await awaited
        except asyncio.CancelledError:
            if task not in self._overdue:
                raise
            task.uncancel()
            raise Refusal(
                408, "slow", "the body took too long (limit body_timeout)", field="body"
            ) from None
        finally:
            self._waiting.pop(task, None)
            self._overdue.discard(task)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY)
            now = time.monotonic()
            for task, due in list(self._waiting.items()):
                if due < now and task not in self._overdue:
                    self._overdue.add(task)
                    task.cancel()


class Reader:
    """Decodes the bodies of one type of request to that type of `schema`, or refuses them.

    Examples
    --------
    >>> from dyclu.service.schema import RewardRequest
    >>> Reader(RewardRequest).read(b'{"value": 1}').value
    1.0
    >>> try:
    ...     Reader(RewardRequest).read(b'{"value": "high"}')
    ... except Refusal as refusal:
    ...     print(refusal.field, refusal)
    value Expected `float`, got `str`
    """

    def __init__(self, kind: type[Any]) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def read(self, body: bytes) -> Any:
        """Return the request, or raise a `Refusal` that names the field at fault."""
        try:
            request = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            cure = "; JSON has no NaN and no Infinity: give a number, or leave it out"
            raise Refusal(
                400,
                "malformed",
                f"the body is not JSON: {error}{cure if _NO_NUMBER.search(body) else ''}",
                field="body",
            ) from None
        # Each string has two quotation marks. Only values of columns can contain more of them.
        if body.count(b'"') != 2 * request.string_count():
            check_once(body)
        return request


def invalid(message: str) -> Refusal:
    """Return the refusal of a request that msgspec found wrong, with the field at fault."""
    place = _PLACE.search(message)
    path = place[1] if place else ""
    said = message[: place.start()] if place else message
    if said.startswith(_ID_EXPECTED):
        said = f"Expected {ID_MEANING}"
    if named := _UNKNOWN.search(said):
        path = f"{path}.{named[1]}" if path else named[1]
    return Refusal(422, "invalid", said, field=path or "body")


def check_once(body: bytes) -> None:
    r"""Refuse a body that gives a field twice; slow, but rarely needed.

    >>> check_once(b'{"arm": {"title": "7\\" single"}}')
    >>> check_once(b'{"arm": {"title": "a", "title": "b"}}')
    Traceback (most recent call last):
        ...
    dyclu.service.refusal.Refusal: title is given twice
    """

    def once(pairs: list[tuple[str, Any]]) -> None:
        seen = set[str]()
        for name, _ in pairs:
            if name in seen:
                raise Refusal(422, "repeated", f"{name} is given twice", field=name)
            seen.add(name)

    # Numbers are not needed, and one of many digits would be refused for its length.
    json.loads(body, object_pairs_hook=once, parse_int=str, parse_float=str)
    if b'\\"' not in body:
        raise Refusal(422, "repeated", "a field is given twice", field="body")
