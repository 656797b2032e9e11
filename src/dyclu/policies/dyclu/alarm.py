"""`Alarm`: decides from a window of surprises whether the user has changed.

One surprise happens by chance, with probability `level`. Many surprises in a short time do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dyclu.core.theory import alarm_threshold


@dataclass(frozen=True, slots=True)
class Alarm:
    """Rings when surprises are more frequent than chance allows (lines 8-9, Lemma 3).

    Attributes
    ----------
    level : float
        Probability of a surprise while nothing has changed.
    window : int
        ``τ``: number of latest rewards that count.
    delta : float
        ``δₑ``: probability of ringing at a given time while nothing has changed.

    Examples
    --------
    The threshold is 0.01 + √(log 10 / 40) = 0.2499: 4 surprises in 20 rewards do not ring, 5 do.

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
        """Return the window after one more reward, oldest entry first."""
        return (*surprises, surprised)[-self.window :]

    def rings(self, surprises: tuple[bool, ...], *, count: int) -> bool:
        """Return whether the latest surprises mean a change.

        Only the last ``min(count, τ)`` entries count, where `count` is the number of observations
        that the user's segment held before the latest reward. An empty segment never rings.
        """
        entries = min(count, self.window)
        if entries == 0:
            return False
        return sum(surprises[-entries:]) / entries > _threshold(self.level, self.delta, entries)


@lru_cache(maxsize=1024)
def _threshold(level: float, delta: float, entries: int) -> float:
    return alarm_threshold(level, delta=delta, entries=entries)
