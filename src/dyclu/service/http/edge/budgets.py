"""`Budget`: what one tenant may use at once, so that no tenant keeps another one out.

A request beyond a limit gets 429 with Retry-After, and the message names the limit. A connection
beyond `max_connections` is closed after its answer.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from dyclu.service.refusal import Refusal
from dyclu.service.settings import Limits


class Budget:
    """The requests of one tenant: how many at once, how many per second, bytes of their bodies.

    Attributes
    ----------
    limits : Limits
        May be replaced while requests are under way.
    active, held : int
        Requests under way, and bytes of their bodies.

    Examples
    --------
    >>> budget = Budget(Limits(max_connections=1, max_rate=2.0))
    >>> with budget.request(now=0.0), budget.request(now=0.0):
    ...     pass
    Traceback (most recent call last):
        ...
    dyclu.service.refusal.Refusal: 1 requests are under way (limit max_connections); try again \
shortly
    >>> budget.active
    0
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.active = self.held = 0
        self._allowance, self._since = 1.0, -math.inf
        self._connections: OrderedDict[object, float] = OrderedDict()

    @contextmanager
    def request(self, *, now: float) -> Iterator[None]:
        """Count a request until it is answered, or refuse it; `now` is a steady clock's time."""
        if self.active >= self.limits.max_connections:
            raise _over("max_connections", f"{self.active} requests are under way")
        if self.limits.max_rate is not None:
            self._take_turn(self.limits.max_rate, now)
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    def keeps_open(self, client: object, *, now: float, idle: float) -> bool:
        """Return whether this connection may stay open, idle, after its answer.

        The server does not say when a connection is closed, except that it closes each that was
        idle for `idle` seconds. So those count on which a request came since then.
        """
        seen = self._connections
        while seen and next(iter(seen.values())) < now - idle:
            seen.popitem(last=False)
        if client not in seen and len(seen) >= self.limits.max_connections:
            return False
        seen[client] = now
        seen.move_to_end(client)
        return True

    @property
    def connections(self) -> int:
        """Connections that may be open."""
        return len(self._connections)

    def _take_turn(self, rate: float, now: float) -> None:
        # A token bucket that holds the requests of one second.
        self._allowance = min(max(rate, 1.0), self._allowance + (now - self._since) * rate)
        self._since = now
        if self._allowance < 1.0:
            wait = math.ceil((1.0 - self._allowance) / rate)
            raise _over("max_rate", f"more than {rate:g} requests per second", wait)
        self._allowance -= 1.0

    @contextmanager
    def body(self) -> Iterator[BodyBytes]:
        """Count the bytes of a body until it is answered."""
        held = BodyBytes(self)
        try:
            yield held
        finally:
            self.held -= held.count


class BodyBytes:
    """The bytes of one body that have arrived."""

    __slots__ = ("_budget", "count")

    def __init__(self, budget: Budget) -> None:
        self._budget, self.count = budget, 0

    def add(self, size: int) -> None:
        """Count bytes that have arrived, or refuse them; one body alone always has room.

        Decoded, a body takes about ten times its length until it is answered.
        """
        budget = self._budget
        if budget.held > self.count and budget.held + size > budget.limits.max_bodies:
            raise _over("max_bodies", f"bodies of {budget.held} bytes are under way")
        self.count += size
        budget.held += size


def _over(limit: str, got: str, wait: int = 1) -> Refusal:
    message = f"{got} (limit {limit}); try again shortly"
    return Refusal(429, "limit", message, retry_after=wait)
