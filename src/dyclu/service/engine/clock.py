"""`SteadyWallClock`: the wall clock, except while it has just jumped.

A wall clock can be set, and it can be wrong for a moment, for example while a machine finds its
time server. If it is a day ahead for a second, all lines of the next day would get the same time,
since times of lines never decrease. So a jump is believed only once it has lasted for a while;
until then, time goes on from before by the steady clock.
"""

from __future__ import annotations

from collections.abc import Callable

from dyclu.service.engine.lines import MICRO

JUMP = 5.0
"""Seconds by which the wall clock may be corrected at once."""

BELIEF = 600.0
"""Seconds after which a jump of the wall clock is believed."""


class SteadyWallClock:
    """Gives the time in whole microseconds.

    Examples
    --------
    >>> seconds, ahead = 0.0, 0.0
    >>> clock = SteadyWallClock(lambda: 1000.0 + seconds + ahead, lambda: seconds)
    >>> seconds, ahead = 10.0, 86400.0
    >>> clock.now() / MICRO
    1010.0
    >>> seconds = 700.0
    >>> clock.now() / MICRO
    88100.0
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall, self._steady = wall, steady
        self._ahead = wall() - steady()
        self._doubtful, self._since = self._ahead, steady()

    def now(self) -> int:
        """Return the wall clock's time, or the one it would show without its latest jump."""
        steady = self._steady()
        ahead = self._wall() - steady
        if abs(ahead - self._ahead) <= JUMP:
            self._ahead = self._doubtful = ahead
        elif abs(ahead - self._doubtful) > JUMP:
            self._doubtful, self._since = ahead, steady
        elif steady - self._since >= BELIEF:
            self._ahead = ahead
        return round((steady + self._ahead) * MICRO)
