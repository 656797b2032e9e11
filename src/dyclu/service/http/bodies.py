"""`Bodies`: how much of request bodies may be under way at once, whoever sends them.

Decoded, a body takes about ten times its length until it is answered. A thousand connections with
two megabytes each would be more than any machine has; so room is asked for before a body is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dyclu.service.refusal import Refusal


class Bodies:
    """Room for `most` bytes of bodies, and always for one.

    Examples
    --------
    >>> bodies = Bodies(100)
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
        """Keep room for a body until it is answered, or refuse it.

        Whoever turns out shorter gives back the rest, by what is yielded.
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
