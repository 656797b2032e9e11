"""Request bodies: how much of them at once, how long they may take, and how they are decoded."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from dyclu.service.refusal import Refusal

CHECK_EVERY = 0.25
"""Seconds between two checks for bodies that take too long."""

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"(?:unknown|required) field `([^`]*)`")


class BodyRoom:
    """Limits the bytes of all request bodies that are in memory, to `most` or one body.

    Decoded, a body takes about ten times its length until it is answered. A thousand connections
    with two megabytes each would need more memory than a machine has.

    Examples
    --------
    >>> bodies = BodyRoom(100)
    >>> with bodies.room(60):
    ...     with bodies.room(60):
    ...         pass
    Traceback (most recent call last):
        ...
    dyclu.service.refusal.Refusal: bodies of 60 bytes are under way, expected at most 100 \
with this one (limit max_bodies); try again shortly
    >>> bodies.held
    0
    """

    def __init__(self, most: int) -> None:
        self._most, self.held = most, 0

    @contextmanager
    def room(self, length: int) -> Iterator[Callable[[int], None]]:
        """Reserve room for a body until it is answered, or refuse it.

        Call the function that this yields with the real length of the body once it is known.
        """
        if self.held and self.held + length > self._most:
            raise Refusal(
                503,
                "busy",
                f"bodies of {self.held} bytes are under way, expected at most {self._most} with "
                "this one (limit max_bodies); try again shortly",
                retry_after=1,
            )
        kept = length

        def keep(length: int) -> None:
            nonlocal kept
            self.held, kept = self.held + length - kept, length

        self.held += length
        try:
            yield keep
        finally:
            self.held -= kept


class BodyTimeout:
    """Refuses bodies that take longer than `seconds`.

    `asyncio.timeout` would set a timer for each of thousands of bodies, almost all of which have
    already arrived. Here one task checks all of them a few times per second.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
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
        self._waiting[task] = time.monotonic() + self._seconds
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
    >>> Reader(RewardRequest).read(b'{"value": 1}')
    RewardRequest(value=1.0)
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
            raise _invalid(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(
                400, "malformed", f"the body is not JSON: {error}", field="body"
            ) from None
        # No valid string contains a quotation mark, so each has exactly two.
        if body.count(b'"') != 2 * request.string_count():
            raise _repeated(body)
        return request


def _invalid(message: str) -> Refusal:
    place = _PLACE.search(message)
    path = place[1] if place else ""
    said = message[: place.start()] if place else message
    if named := _UNKNOWN.search(said):
        path = f"{path}.{named[1]}" if path else named[1]
    return Refusal(422, "invalid", said, field=path or "body")


def _repeated(body: bytes) -> Refusal:
    """Return the refusal of a body that gives a field twice; slow, but rarely needed."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise Refusal(422, "repeated", f"{name} is given twice", field=name)
        return dict(pairs)

    try:
        json.loads(body, object_pairs_hook=once)
    except Refusal as refusal:
        return refusal
    return Refusal(422, "repeated", "a field is given twice", field="body")
