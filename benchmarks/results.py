"""What a group of benchmarks finds, before it is a table, a file or a picture."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much work a run of the suite may be.

    Attributes
    ----------
    quick : bool
        Small sizes, to see that everything runs; the figures mean nothing.
    cache : Path
        Folder for what takes long to make and is the same every time.
    """

    quick: bool
    cache: Path

    @property
    def repetitions(self) -> int:
        """How often everything is measured."""
        return 1 if self.quick else 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, measured several times.

    Attributes
    ----------
    name, unit : str
        What was measured, and in what.
    values : tuple of float
        One per repetition.
    ratios : tuple of float
        Each value by that of the reference in the same repetition; empty if there is none.
    curve : str
        The growth curve this is a point of, if it is one.
    at : float or None
        Where on the curve.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    ratios: tuple[float, ...] = ()
    curve: str = ""
    at: float | None = None

    @property
    def median(self) -> float:
        """The figure."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float:
        """The median of the ratios, which is not the ratio of medians."""
        return statistics.median(self.ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure ought to be.

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
        """Whether it is."""
        return self.value >= self.limit if self.sense == "at least" else self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a group found.

    Attributes
    ----------
    title : str
        The question it answers.
    against : str
        What the ratios are taken to.
    rows : tuple of Row
        The figures.
    targets : tuple of Target
        What they ought to be.
    notes : tuple of str
        What a reader should know of them.
    """

    title: str
    against: str = "ratio"
    rows: tuple[Row, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()


def by_repetition(values: tuple[float, ...], reference: tuple[float, ...]) -> tuple[float, ...]:
    """Return the ratio of each repetition.

    >>> by_repetition((2.0, 3.0), (4.0, 3.0))
    (0.5, 1.0)
    """
    return tuple(value / other for value, other in zip(values, reference, strict=True))
