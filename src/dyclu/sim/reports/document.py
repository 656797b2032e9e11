"""What a report says, before it is a page: a `Document` of tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "-"
"""A cell where there was nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text in rows under a header; the first cell of a row names it.

    Attributes
    ----------
    header : tuple of str
        What the cells are.
    rows : tuple of tuples of str
        The cells; one of two lines may be shown in one where there is no room for two.
    note : str
        What a reader should know of them.
    words : tuple of str
        The columns that hold words instead of numbers: aligned as words are.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: tuple[str, ...] = ()

    def is_words(self, column: int) -> bool:
        """Return whether a column, of which the first names the rows, holds words."""
        return column == 0 or self.header[column] in self.words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A figure in a document.

    Attributes
    ----------
    name : str
        Of its file, without an ending.
    figure : Figure
        What is drawn.
    label : str
        What it shows, for those who do not see it.
    note : str
        What a reader should know of it.
    """

    name: str
    figure: Figure
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report, before it is a page.

    Attributes
    ----------
    title, lead : str
        Heading, and the sentence under it.
    warning : str
        What must not be overlooked, if anything.
    parts : tuple of (str, Table or Picture)
        What follows, each under a heading of its own; an empty one continues the part before.
    facts : mapping of str to str
        What a reader needs to run it again: command, seed, version.
    """

    title: str
    lead: str
    warning: str = ""
    parts: tuple[tuple[str, Table | Picture], ...]
    facts: Mapping[str, str]

    @property
    def table(self) -> Table:
        """The first table among its parts."""
        return next(part for _, part in self.parts if isinstance(part, Table))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures among its parts."""
        return tuple(part for _, part in self.parts if isinstance(part, Picture))


def one_line(cell: str) -> str:
    """Return a cell's text without its line break."""
    return cell.replace("\n", " ")


def counted(things: Sequence[object] | Mapping[str, object], name: str) -> str:
    """Return how many there are, in words.

    >>> counted([7], "seed"), counted([7, 8], "seed")
    ('1 seed', '2 seeds')
    """
    return f"{len(things)} {name}" + ("" if len(things) == 1 else "s")
