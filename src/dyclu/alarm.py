"""`Alarm`: a window of surprises -> has the user changed?

One surprise happens by chance, with probability `level`. Surprises in a row do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dyclu.theory import alarm_threshold


@dataclass(frozen=True, slots=True)
class Alarm:
    """Rings when surprises become more frequent than chance allows (lines 8-9, Lemma 3).

    Attributes
    ----------
    level : float
        Chance of a surprise while nothing has changed.
    window : int
        ``τ``: how many of the latest surprises count.
    delta : float
        ``δₑ``: chance of ringing while nothing has changed, at any one time.

    Examples
    --------
    Of the last 20 rewards 4 may surprise, 5 may not, as 0.01 + √(log 10 / 40) = 0.2499:

    >>> alarm = Alarm(level=0.01, window=20, delta=0.1)
    >>> alarm.rings((True,) * 4 + (False,) * 16, count=100)
    False
    >>> alarm.rings((True,) * 5 + (False,) * 15, count=100)
    True
    """

    level: float
    window: int
    delta: float

    def remember(self, surprises: tuple[bool, ...], surprised: bool) -> tuple[bool, ...]:
        """Return the window after one more reward, the oldest first."""
        return (*surprises, surprised)[-self.window :]

    def rings(self, surprises: tuple[bool, ...], *, count: int) -> bool:
        """Tell whether the latest surprises mean a change.

        The window has ``min(count, τ)`` entries, where `count` is the number of observations the
        user's segment held before the latest: a young segment has few, and none to judge by at
        first. Every observation in the segment was once tested, so there are always enough.
        """
        entries = min(count, self.window)
        if entries == 0:
            return False
        return sum(surprises[-entries:]) / entries > _threshold(self.level, self.delta, entries)


@lru_cache(maxsize=1024)
def _threshold(level: float, delta: float, entries: int) -> float:
    return alarm_threshold(level, delta=delta, entries=entries)
