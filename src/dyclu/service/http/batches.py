"""`all_settled`: a batch is many requests, and others have their turn between any two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from dyclu.service.refusal import Refusal

A = TypeVar("A")


async def all_settled(jobs: Iterable[Coroutine[Any, Any, A]]) -> list[A | Refusal]:
    """Return the answers to several requests, refusals among them, in their order.

    >>> async def half(number: int) -> int:
    ...     if number % 2:
    ...         raise Refusal(422, "odd", f"{number} is odd")
    ...     return number // 2
    >>> asyncio.run(all_settled(half(number) for number in (4, 5)))
    [2, Refusal('5 is odd')]
    """
    begun = []
    for job in jobs:
        begun.append(asyncio.create_task(_settled(job)))
        # It begins now; the disk is waited for by all of them together.
        await asyncio.sleep(0)
    return list(await asyncio.gather(*begun))


async def _settled(job: Coroutine[Any, Any, A]) -> A | Refusal:
    try:
        return await job
    except Refusal as refusal:
        return refusal
