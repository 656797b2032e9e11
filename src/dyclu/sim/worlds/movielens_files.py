"""The files of MovieLens: ratings, films and tags, checked row by row.

`read_files` takes the folder that contains them. They are not part of this package.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu.errors import FileError
from dyclu.validation import Ids

RATINGS = ("ratings.csv", ("userId", "movieId", "rating", "timestamp"))
MOVIES = ("movies.csv", ("movieId", "title", "genres"))
TAGS = ("tags.csv", ("userId", "movieId", "tag", "timestamp"))

WHERE = (
    "get the data set MovieLens (ml-latest-small), which GroupLens publishes for research, unpack "
    f"it, and pass the folder with {RATINGS[0]}, {MOVIES[0]} and {TAGS[0]}"
)
"""How to get the files; part of the messages about missing or unreadable files."""

NO_GENRES = "(no genres listed)"
LEAST_STARS, MOST_STARS = 0.5, 5.0

WHOLE = re.compile(r"\d{1,18}", re.ASCII)
STARS = re.compile(r"\d(\.\d)?", re.ASCII)
YEAR = re.compile(r"\((\d{4})(?:[-–]\d*)?\)\s*$", re.ASCII)
"""Patterns of ids and times, of ratings, and of the year at the end of a title."""

Row = tuple[int, list[str]]
"""Number of the line on which a row ends, and its cells."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Films:
    """The films of ``movies.csv``, sorted by id.

    Attributes
    ----------
    ids : int array
        Ids in the files.
    genres : tuple of tuples of str
        Genres of each film.
    years : tuple of int or None
        Year of each film, from the end of its title.
    """

    ids: Ids
    genres: tuple[tuple[str, ...], ...]
    years: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """Ratings or tags, one entry per row of the file.

    Attributes
    ----------
    person : int array
        Ids in the files.
    film : int array
        Positions in `Films.ids`.
    value : array of float or str
        Stars, or the tag in lower case.
    time : int array
        Seconds since 1970.
    """

    person: Ids
    film: Ids
    value: NDArray[Any]
    time: Ids


def read_files(folder: Path) -> tuple[Films, Marks, Marks]:
    """Return films, ratings and tags."""
    films = _films(folder)
    return films, _marks(folder, RATINGS, films, _stars), _marks(folder, TAGS, films, _tag)


def year_of(title: str) -> int | None:
    """Return the year at the end of a title; of several years, the first.

    >>> year_of("Heat (1995)"), year_of("Fawlty Towers (1975-1979)"), year_of("Babylon 5")
    (1995, 1975, None)
    """
    found = YEAR.search(title)
    return None if found is None else int(found[1])


def _films(folder: Path) -> Films:
    path, rows = folder / MOVIES[0], dict[int, tuple[str, str]]()
    for line, (film, title, genres) in _rows(path, MOVIES[1]):
        number = _whole(film, path, line, "movieId")
        if number in rows:
            raise FileError(f"line {line} of {path} repeats film {number}, expected each film once")
        rows[number] = title, genres
    ids = sorted(rows)
    titles, genres_of = zip(*(rows[film] for film in ids), strict=True)
    return Films(
        ids=np.array(ids),
        genres=tuple(() if text == NO_GENRES else tuple(text.split("|")) for text in genres_of),
        years=tuple(map(year_of, titles)),
    )


def _marks(
    folder: Path,
    file: tuple[str, tuple[str, ...]],
    films: Films,
    value_of: Callable[[str, Path, int], Any],
) -> Marks:
    path = folder / file[0]
    place = {film: i for i, film in enumerate(films.ids.tolist())}
    people, marked, values, times = list[int](), list[int](), list[Any](), list[int]()
    for line, (person, film, value, time) in _rows(path, file[1]):
        number = _whole(film, path, line, "movieId")
        if number not in place:
            raise FileError(
                f"line {line} of {path} has film {number}, expected a film of {MOVIES[0]}; {WHERE}"
            )
        people.append(_whole(person, path, line, "userId"))
        marked.append(place[number])
        values.append(value_of(value, path, line))
        times.append(_whole(time, path, line, "timestamp"))
    return Marks(
        person=np.array(people),
        film=np.array(marked),
        value=np.array(values),
        time=np.array(times),
    )


def _stars(text: str, path: Path, line: int) -> float:
    if not STARS.fullmatch(text) or not LEAST_STARS <= float(text) <= MOST_STARS:
        raise FileError(
            f"line {line} of {path} has the rating {text[:80]!r}, expected {LEAST_STARS} to "
            f"{MOST_STARS}; {WHERE}"
        )
    return float(text)


def _tag(text: str, path: Path, line: int) -> str:
    # People write the same tag with different capitals.
    return text.strip().lower()


def _whole(text: str, path: Path, line: int, column: str) -> int:
    if not WHOLE.fullmatch(text):
        raise FileError(
            f"line {line} of {path} has {text[:80]!r} as {column}, expected a whole number; {WHERE}"
        )
    return int(text)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield the rows below the header."""
    header, *rows = list(_cells(path)) or [(1, [])]
    # Copies differ in the capitals of the header.
    if [cell.lower() for cell in header[1]] != [name.lower() for name in columns] or not rows:
        raise FileError(
            f"{path} begins with {','.join(header[1])[:80]!r} and has {len(rows)} rows, expected "
            f"the columns {', '.join(columns)} separated by commas, and rows below; {WHERE}"
        )
    for line, cells in rows:
        if len(cells) != len(columns):
            raise FileError(
                f"line {line} of {path} has {len(cells)} cells, expected {len(columns)}: "
                f"{', '.join(columns)}; {WHERE}"
            )
        yield line, cells


def _cells(path: Path) -> Iterator[Row]:
    """Yield all rows of a file."""
    table = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        for row in table:
            yield table.line_num, row
    except csv.Error as error:
        raise FileError(
            f"line {table.line_num} of {path} cannot be read ({error}); {WHERE}"
        ) from None


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path} ({error.strerror or error}); {WHERE}") from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(f"line {line} of {path} is not UTF-8; {WHERE}") from None
