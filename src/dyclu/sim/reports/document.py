"""The contents of a report: a `Document` of tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "-"
"""Text of a cell without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A header and rows of text; the first cell of a row is its name.

    Attributes
    ----------
    header : tuple of str
        Names of the columns.
    rows : tuple of tuples of str
        The cells. A cell may have two lines; Markdown joins them.
    note : str
        Text below the table.
    words : tuple of str
        Columns that hold words, which are aligned left; numbers are aligned right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: tuple[str, ...] = ()

    def is_words(self, column: int) -> bool:
        """Return whether a column holds words; the first one does."""
        return column == 0 or self.header[column] in self.words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A figure in a document.

    Attributes
    ----------
    name : str
        Name of its file, without the extension.
    figure : Figure
        The figure, drawn by matplotlib.
    label : str
        Description for readers who cannot see it.
    note : str
        Text below the picture.
    """

    name: str
    figure: Figure
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The contents of a report.

    Attributes
    ----------
    title, lead, warning : str
        Heading, the sentence below it, and a warning that may be empty.
    policy_warnings : tuple of str
        The policies' own warnings, one line per policy that has some.
    parts : tuple of (str, Table or Picture)
        Headings and what follows them; a part with an empty heading continues the previous one.
    facts : mapping of str to str
        What a reader needs to repeat the runs: command, seed, version.
    """

    title: str
    lead: str
    warning: str = ""
    policy_warnings: tuple[str, ...] = ()
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
    """Return the number of things, and their name in the singular or plural.

    >>> counted([7], "seed"), counted([7, 8], "seed")
    ('1 seed', '2 seeds')
    """
    return f"{len(things)} {name}" + ("" if len(things) == 1 else "s")
