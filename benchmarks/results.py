"""Results of a group of benchmarks; other modules make tables, files and pictures of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Size of a run of the benchmarks.

    Attributes
    ----------
    quick : bool
        Small sizes, to check that everything runs; the figures mean nothing.
    cache : Path
        Folder for states that take long to compute and are the same every time.
    """

    quick: bool
    cache: Path

    @property
    def repetitions(self) -> int:
        """Number of measurements of each figure."""
        return 1 if self.quick else 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, measured several times.

    Attributes
    ----------
    name, unit : str
        What was measured, and its unit.
    values : tuple of float
        One per repetition.
    ratios : tuple of float
        Each value divided by the reference's in the same repetition; empty if there is none.
    curve : str
        Name of the growth curve to which the point belongs, if any.
    at : float or None
        Position on the curve.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    ratios: tuple[float, ...] = ()
    curve: str = ""
    at: float | None = None

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float:
        """The median of the ratios, which is not the ratio of medians."""
        return statistics.median(self.ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit that a figure should meet.

    >>> Target(name="quick enough", value=0.8, sense="at most", limit=1.0, unit="s").met
    True
    """

    name: str
    value: float
    sense: Literal["at least", "at most"]
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the value meets the limit."""
        return self.value >= self.limit if self.sense == "at least" else self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Results of one group.

    Attributes
    ----------
    title : str
        Heading of the table.
    against : str
        What the ratios refer to: heading of their column.
    rows : tuple of Row
        The figures.
    targets : tuple of Target
        The limits that figures should meet.
    notes : tuple of str
        Remarks for the reader.
    """

    title: str
    against: str = "ratio"
    rows: tuple[Row, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()


def by_repetition(values: tuple[float, ...], reference: tuple[float, ...]) -> tuple[float, ...]:
    """Return the ratios, one per repetition.

    >>> by_repetition((2.0, 3.0), (4.0, 3.0))
    (0.5, 1.0)
    """
    return tuple(value / other for value, other in zip(values, reference, strict=True))
