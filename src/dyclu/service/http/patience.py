"""`Patience`: bodies that take too long are given up.

`asyncio.timeout` would do, but sets up a timer for each of thousands of bodies that are all there
already. Here one look around, a few times per second, finds those that are not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from dyclu.service.refusal import Refusal

LOOK = 0.25
"""Seconds between looks."""

T = TypeVar("T")


class Patience:
    """Waits for anything for `seconds` and a moment, then refuses."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look around."""
        self._looking = asyncio.create_task(self._look())

    def stop(self) -> None:
        """Look no longer."""
        if self._looking is not None:
            self._looking.cancel()

    async def lend(self, awaited: Awaitable[T]) -> T:
        """Return what is awaited, or refuse with 408 if it does not come in time."""
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

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            for task, due in list(self._waiting.items()):
                if due < now and task not in self._overdue:
                    self._overdue.add(task)
                    task.cancel()
