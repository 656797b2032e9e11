"""Confidence intervals from sums per user: studentised bootstrap, and empirical Bernstein.

Derivations: docs/evaluation.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from dyclu.errors import OptionError
from dyclu.validation import FloatArray

REPLICATES = 1_000
"""Resamples of the bootstrap: the 2.5 % quantile is the 25th smallest of them."""

LEAST_BEYOND = 5
"""Resamples that must lie beyond a quantile; with fewer, its place is luck."""

MOST_REPLICATES = 10_000
"""Resamples up to which their number is raised for quantiles far out."""

ROUNDING = 1e-12
"""A standard error below this share of the estimate is a rounding error."""

LEAST_GROUPS = 10
"""With fewer groups the bootstrap gives no bounds."""

_BLOCK_NUMBERS = 1 << 21


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from `low` to `high`; infinite where the data set no bound.

    Examples
    --------
    >>> 0.3 in Interval(0.1, 0.4), Interval(-0.2, 2.0).within(0.0, 1.0)
    (True, Interval(low=0.0, high=1.0))
    """

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def bounded(self) -> bool:
        """Whether both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, low: float, high: float) -> Interval:
        """Return the part between `low` and `high`, in which the value is known to be."""
        return Interval(min(max(self.low, low), high), max(min(self.high, high), low))


def interval_text(interval: Interval) -> str:
    """Return an interval in words.

    >>> interval_text(Interval(0.031, 0.052)), interval_text(Interval(0.1, float("inf")))
    ('0.031 to 0.052', '0.1 to unknown')
    """
    low, high = (
        f"{end:.4g}" if math.isfinite(end) else "unknown" for end in (interval.low, interval.high)
    )
    return f"{low} to {high}"


UNBOUNDED = Interval(-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Ratios:
    """A weighted sum of ratios of totals: ``Σ_p c_p Σ_g num_gp / Σ_g den_gp``.

    Every estimator of this package is one ratio, and a difference of two policies is two of them.

    Attributes
    ----------
    num, den : arrays of shape (groups, P)
        Sums per group of users.
    contrast : array of shape (P,)
        The weights c.
    """

    num: FloatArray
    den: FloatArray
    contrast: FloatArray

    @classmethod
    def single(cls, num: FloatArray, den: FloatArray) -> Ratios:
        """Return one ratio of totals."""
        return cls(num[:, None], den[:, None], np.ones(1))

    @classmethod
    def difference(cls, first: Ratios, second: Ratios) -> Ratios:
        """Return the first minus the second, of the same groups."""
        return cls(
            np.hstack([first.num, second.num]),
            np.hstack([first.den, second.den]),
            np.concatenate([first.contrast, -second.contrast]),
        )

    @property
    def value(self) -> float:
        """The estimate."""
        return float((self.num.sum(axis=0) / self.den.sum(axis=0)) @ self.contrast)

    @property
    def error(self) -> float:
        """Its standard error, Eq. (E9): users are independent, their rows need not be."""
        _, errors = self._of(np.ones((1, len(self.num))))
        return float(errors[0])

    @property
    def constant(self) -> bool:
        """Whether all groups are alike, up to rounding: resamples say nothing then."""
        parts = np.abs(self.num.sum(axis=0) / self.den.sum(axis=0))
        return not self.error > ROUNDING * float(parts @ np.abs(self.contrast))

    def bootstrap(
        self, *, level: float = 0.95, replicates: int = REPLICATES, seed: int = 0
    ) -> Interval:
        """Return the studentised bootstrap interval over groups, Eq. (E10).

        It is unbounded with fewer than `LEAST_GROUPS` groups, and if too many resamples have no
        spread, or none of the rows that matter.

        >>> clicks, shown = np.array([1.0, 0.0, 2.0, 1.0] * 25), np.array([4.0, 3.0, 5.0, 4.0] * 25)
        >>> found = Ratios.single(clicks, shown).bootstrap()
        >>> 0.2 < found.low < 0.25 < found.high < 0.3
        True
        """
        value, error = self.value, self.error
        if len(self.num) < LEAST_GROUPS or self.constant:
            return UNBOUNDED
        tails = (1 - level) / 2, (1 + level) / 2
        drawn = np.concatenate([self._studentised(c) for c in _resamples(self, replicates, seed)])
        known = drawn[~np.isnan(drawn)]
        if len(drawn) - len(known) > tails[0] * len(drawn):
            return UNBOUNDED
        # Not interpolated, because inf − inf is not a number.
        low, high = np.quantile(known, tails, method="nearest")
        return Interval(float(value - high * error), float(value - low * error))

    def _studentised(self, copies: FloatArray) -> FloatArray:
        """Return (estimate − value) / error of resamples; not a number where one has no rows."""
        values, errors = self._of(copies)
        gaps = values - self.value
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(gaps == 0, 0.0, gaps / errors)

    def _of(self, copies: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return estimate and standard error of resamples (B, groups)."""
        groups, ratios = len(self.num), self.num.shape[1]
        # Without its mean, so that squares of large numbers do not cancel.
        left = self.num - self.den * (self.num.sum(axis=0) / self.den.sum(axis=0))
        sums = np.hstack([left, self.den])
        pairs = [*combinations_with_replacement(range(2 * ratios), 2)]
        products = copies @ np.stack([sums[:, i] * sums[:, j] for i, j in pairs], axis=1)
        total, size = np.split(copies @ sums, 2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved, share = total / size, self.contrast / size
            factors = np.hstack([share, -share * moved])
            squares = np.zeros(len(copies))
            for column, (i, j) in enumerate(pairs):
                twice = 1 if i == j else 2
                squares += twice * factors[:, i] * factors[:, j] * products[:, column]
        scale = groups / max(groups - 1, 1)
        return self.value + moved @ self.contrast, np.sqrt(np.maximum(squares, 0.0) * scale)


def of_weights(mean: Ratios, bootstrap: Callable[[Ratios], Interval]) -> Interval:
    """Return the interval of a mean weight; weights that are all alike are known exactly."""
    return Interval(mean.value, mean.value) if mean.constant else bootstrap(mean)


def replicates_needed(level: float) -> int:
    """Return how many resamples have `LEAST_BEYOND` beyond each end of an interval."""
    return math.ceil(round(2 * LEAST_BEYOND / (1 - level), 6))


def replicates_for(level: float, given: int) -> int | None:
    """Return how many resamples an interval needs, at least `given`; None if they are too many.

    >>> replicates_for(0.95, 1000), replicates_for(0.995, 1000), replicates_for(0.9999, 1000)
    (1000, 2000, None)
    """
    needed = replicates_needed(level)
    return max(needed, given) if needed <= max(MOST_REPLICATES, given) else None


def checked_replicates(level: float, given: int) -> int:
    """Return how many resamples an interval needs; refuse a level that needs too many."""
    found = replicates_for(level, given)
    if found is None:
        raise OptionError(
            f"level is {level}, with replicates={given:,} expected at most "
            f"{1 - 2 * LEAST_BEYOND / max(MOST_REPLICATES, given):.6g}; pass a smaller level, or "
            f"replicates={replicates_needed(level)}"
        )
    return found


def _resamples(ratios: Ratios, replicates: int, seed: int) -> Iterator[FloatArray]:
    """Yield how often each group is drawn, with replacement, in blocks of resamples."""
    groups, rng = len(ratios.num), np.random.default_rng(seed)
    block = max(1, _BLOCK_NUMBERS // groups)
    for start in range(0, replicates, block):
        rows = min(block, replicates - start)
        picked = rng.integers(groups, size=(rows, groups)) + groups * np.arange(rows)[:, None]
        counted = np.bincount(picked.ravel(), minlength=rows * groups)
        yield counted.reshape(rows, groups).astype(np.float64)


def empirical_bernstein(
    num: FloatArray, rows: FloatArray, *, width: float, level: float = 0.95
) -> Interval:
    """Return an interval for ``E Σ num / Σ rows`` that is valid for any number of users, (E11).

    Parameters
    ----------
    num, rows : arrays of shape (users,)
        Sums of the terms of each user, and their number.
    width : float
        Largest term minus smallest term that a row can have.

    Examples
    --------
    Terms of 0 or 1, one per user; Maurer and Pontil's bound can be computed by hand.

    >>> found = empirical_bernstein(np.array([0.0, 1.0] * 500), np.ones(1000), width=1.0)
    >>> round(found.low, 4), round(found.high, 4)
    (0.4429, 0.5571)
    """
    users, mean_rows = len(num), float(rows.mean())
    if users < 2:
        return UNBOUNDED
    terms = num / mean_rows
    span = width * float(rows.max()) / mean_rows
    log = math.log(4 / (1 - level))
    half = math.sqrt(2 * float(terms.var(ddof=1)) * log / users) + 7 * span * log / (
        3 * (users - 1)
    )
    mean = float(terms.mean())
    return Interval(mean - half, mean + half)
