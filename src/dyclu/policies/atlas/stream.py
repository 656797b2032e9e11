"""`StreamStatistics`: what a stream tells of its surroundings, so that nobody has to.

How loud the noise is, how far tastes lie apart, how often users change, how often a reward is a
stray that belongs to nobody's taste, how often a taste is one never met. Each is a count over a
count, begun with a stated guess of a stated weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

FIRST_NOISE, NOISE_WEIGHT = 0.25, 5.0
"""The noise's first share of the rewards' variance, and how many residuals that guess is worth."""

FIRST_HAZARD, FIRST_STRAYS, ROUNDS_WEIGHT = 1e-3, 1e-4, 1000.0
"""Changes and strays per reward at first, and how many rewards these guesses are worth."""

SPREAD_WEIGHT = 2.0
"""How many models the rewards' variance is worth as a witness of how far tastes lie apart."""

FOUNDED, JOINED, LEAST_NOVELTY = 2.0, 2.0, 5.0
"""New and known tastes that are taken to have been met before the first user, and how many known
models the chance of a new one is worth at least: joining is believed only on evidence."""

EXCEPTION = 0.01
"""How many models that hold everything the chance of a new one is worth where all seem alike."""

MANY = 100.0
"""Located segments after which that least is half of what it was: few tastes are left to be met."""

LOUDEST = 9.0
"""A squared residual counts as at most this many times the noise's variance: 3 σ."""

LARGEST = 25.0
"""A squared reward, or a context's squared length, counts as at most this many times their mean: 5
deviations; of the first ones, as this many times the median of those that are not 0."""

SETTLED = 20
"""Rewards after which their mean is trusted to tell one that is too large."""

QUIETEST = 1e-4
"""Share of the rewards' mean square below which the noise's variance is never taken to fall."""

RESOLUTION = 1e-12
"""Share of the rewards' mean square below which noise that was told is rounding; the rewards' share
of it below which they are."""

TIGHTEST = 0.05
"""Share of the rewards' variance that is left to tastes, however loud the noise."""


@dataclass(slots=True, kw_only=True)
class StreamStatistics:
    """Tallies of a stream.

    Attributes
    ----------
    told : float or None
        Variance of the noise, if it was told.
    heard : int
        Rewards.
    energy, length : float
        Sums of squares of the rewards and of the contexts, none of them too large.
    first : list of pairs of float
        The squares of the first of them, as they were.
    squares, tested : float and int
        Sum and number of squared residuals, in units in which each has mean σ².
    followed, changes, strays : int
        Rewards of users who were located; changes found; suspicions that came to nothing.
    settled, founded : int
        Segments that were located, and how many of them on a model of their own.
    alike : bool
        Whether all rewards are certainly likelier of one taste than of many.

    Examples
    --------
    >>> stream = StreamStatistics(followed=9_000, changes=9)
    >>> stream.hazard
    0.001
    """

    told: float | None = None
    heard: int = 0
    energy: float = 0.0
    length: float = 0.0
    first: list[tuple[float, float]] = field(default_factory=list)
    squares: float = 0.0
    tested: int = 0
    followed: int = 0
    changes: int = 0
    strays: int = 0
    settled: int = 0
    founded: int = 0
    alike: bool = False

    def record(self, reward: float, length: float) -> None:
        """Count a reward, and its context's squared length."""
        square = reward * reward
        if self.heard < SETTLED:
            self.first.append((square, length))
            self.energy, self.length = map(_moderate, zip(*self.first, strict=True))
        else:
            self.energy += min(square, LARGEST * self.scale) if self.energy else square
            self.length += min(length, LARGEST * self.size)
        self.heard += 1

    def test(self, square: float) -> None:
        """Count a squared residual; none is needed of noise that was told."""
        if self.told is not None:
            return
        self.squares += min(square, LOUDEST * self.noise)
        self.tested += 1

    @property
    def scale(self) -> float:
        """Mean square of the rewards; 1 as long as none differed from 0."""
        return self.energy / self.heard if self.energy else 1.0

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        if self.told is not None:
            return min(max(self.told, RESOLUTION * self.scale), self.scale / RESOLUTION)
        guess = NOISE_WEIGHT * FIRST_NOISE * self.scale
        return max((guess + self.squares) / (NOISE_WEIGHT + self.tested), QUIETEST * self.scale)

    def spread(self, squares: float, models: int) -> float:
        """Return the variance of a taste's coordinates, given the sum over `models` of theirs."""
        left = max(self.scale - self.noise, TIGHTEST * self.scale)
        spread = (SPREAD_WEIGHT * left / self.size + squares) / (SPREAD_WEIGHT + models)
        return min(spread, self.noise / (RESOLUTION * self.size))  # else rounding swallows λ₀

    @property
    def size(self) -> float:
        """Mean square of the contexts' length."""
        return self.length / self.heard if self.length else 1.0

    @property
    def hazard(self) -> float:
        """Chance that a user has changed since their last reward."""
        return (ROUNDS_WEIGHT * FIRST_HAZARD + self.changes) / (ROUNDS_WEIGHT + self.followed)

    @property
    def stray(self) -> float:
        """Chance that a reward has nothing to do with its user's taste."""
        return (ROUNDS_WEIGHT * FIRST_STRAYS + self.strays) / (ROUNDS_WEIGHT + self.followed)

    @property
    def floor(self) -> float:
        """Least density of a reward, whatever is believed: that of a stray, up to 1/√2π."""
        return self.stray / math.sqrt(self.scale)

    def novelty(self, models: int) -> float:
        """Return how many of so many established models the chance of a new one is worth."""
        if self.alike:
            return EXCEPTION
        new = (FOUNDED + self.founded) / (FOUNDED + JOINED + self.settled)
        least = LEAST_NOVELTY * MANY / (MANY + self.settled)
        return max(least, models * new / (1.0 - new))

    def dump(self) -> dict[str, Any]:
        """Return the tallies, as JSON holds them."""
        return asdict(self)


def _moderate(squares: Sequence[float]) -> float:
    """Return the sum of squares, each counting as at most `LARGEST` times their median.

    Those that are 0 have no say in it: of clicks most are.

    >>> _moderate([1.0, 0.0, 1e6])
    26.0
    """
    some = sorted(square for square in squares if square > 0.0)
    most = LARGEST * some[(len(some) - 1) // 2] if some else 0.0
    return sum(min(square, most) for square in squares)
