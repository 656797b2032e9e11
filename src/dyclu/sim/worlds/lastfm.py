"""Section 4's Last.fm experiment: every user is three people in turn, rewards are 0 or 1.

`LastFM` holds the contents of the files, `LastFM.stream` draws an experiment from them. The files
are not part of this package; `LastFM.read` takes the folder that contains them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dyclu.core.randomness import RandomSource
from dyclu.errors import FileError
from dyclu.sim.worlds.features import Scaling, counts, reduced, scaled, tf_idf
from dyclu.sim.worlds.population import Seed
from dyclu.sim.worlds.recording import check_name, check_room, digest_of, people_with
from dyclu.sim.worlds.stream import (
    NEVER,
    Flags,
    Order,
    Serving,
    Stream,
    draw_hybrids,
    order_of,
    turns_of,
)
from dyclu.validation import FloatArray, Ids, as_dim, as_whole

Negatives = Literal["unknown", "untagged"]
Table = NDArray[np.int64]

TAGGED = ("user_taggedartists.dat", ("userID", "artistID", "tagID", "day", "month", "year"))
LISTENED = ("user_artists.dat", ("userID", "artistID", "weight"))

WHERE = (
    "get the data set HetRec 2011 Last.fm 2K (hetrec2011-lastfm-2k), which GroupLens publishes "
    f"for non-commercial research, unpack it, and pass the folder with {TAGGED[0]} and "
    f"{LISTENED[0]}"
)
"""How to get the files; part of the messages about missing or unreadable files."""

DAY_MONTH_YEAR = np.array([1, 100, 10_000])
"""Factors of day, month and year in a date written as one number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastFM:
    """The artists, and the people with enough observations.

    An observation is one assignment of a tag to an artist by a person.

    Attributes
    ----------
    features : array of shape (artists, dim)
        Features of the artists, from their tags by TF-IDF and singular value decomposition.
    artists : int array of shape (artists,)
        Ids in the files of all artists with a tag.
    people : int array of shape (people,)
        Ids in the files of the people with enough observations.
    events : tuple of int arrays
        For each person, the rows of `features` that they tagged: one entry per tag, in the
        order of the file.
    dates : tuple of int arrays
        Dates of the events as numbers: 1 April 2009 is 20090401.
    tagged, listened : bool arrays of shape (people, artists)
        Whether each person has tagged each artist, and listened to it.
    """

    name: ClassVar[str] = "lastfm"

    features: FloatArray
    artists: Ids
    people: Ids
    events: tuple[Ids, ...]
    dates: tuple[Ids, ...]
    tagged: Flags
    listened: Flags

    def __post_init__(self) -> None:
        for array in self._arrays:
            array.flags.writeable = False

    @property
    def digest(self) -> str:
        """SHA-256 of all arrays."""
        return digest_of(self._arrays)

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        single = (self.features, self.artists, self.people, self.tagged, self.listened)
        return (*single, *self.events, *self.dates)

    @classmethod
    def read(
        cls,
        folder: str | PathLike[str],
        *,
        dim: int = 25,
        least: int = 800,
        scaling: Scaling = "largest",
    ) -> LastFM:
        """Read the files in a folder.

        Parameters
        ----------
        folder : path
            Folder with ``user_taggedartists.dat`` and ``user_artists.dat``.
        dim : int
            Number of features of an artist.
        least : int
            Least number of observations of a person who takes part.
        scaling : {"largest", "unit", "none"}
            Divide all features by the largest norm, each artist's features by their own norm, or
            nothing.
        """
        dim, least = as_dim(dim), as_whole(least, "least", least=1)
        check_name(scaling, "scaling", Scaling)
        taggings, listenings = (_table(Path(folder), *file) for file in (TAGGED, LISTENED))
        people = people_with(taggings[:, 0], least)
        artists, artist = np.unique(taggings[:, 1], return_inverse=True)
        own = [np.flatnonzero(taggings[:, 0] == person) for person in people]
        dates = taggings[:, 3:] @ DAY_MONTH_YEAR
        tag_weights = tf_idf(counts(artist, taggings[:, 2], len(artists)))
        return cls(
            features=scaled(reduced(tag_weights, dim), scaling),
            artists=artists,
            people=people,
            events=tuple(artist[rows] for rows in own),
            dates=tuple(dates[rows] for rows in own),
            tagged=_pairs(taggings, people, artists),
            listened=_pairs(listenings, people, artists),
        )

    def stream(
        self,
        seed: Seed,
        *,
        users: int = 20,
        parts: int = 3,
        offered: int = 25,
        order: Order = "shuffled",
        serving: Serving = "in turn",
        negatives: Negatives = "unknown",
    ) -> Stream:
        """Draw a stream; the same options and seed (int or SeedSequence) give the same one.

        Parameters
        ----------
        seed : int, SeedSequence or Generator
            Seed of people, orders and negatives; each has its own random numbers.
        users : int
            Number of users.
        parts : int
            Number of people, all different, that each user is in turn.
        offered : int
            Artists per event: one that the person tagged, and others that they did not.
        order : {"shuffled", "dated", "published"}
            Order of a person's observations: random; by date (dates are months), random within
            a date; or as in the file, which is sorted by artist.
        serving : {"in turn", "at random"}
            Users come in turn while they have observations left, or at random with probabilities
            proportional to the observations they have left.
        negatives : {"unknown", "untagged"}
            Artists offered beside the positive one: those that the person neither tagged nor
            listened to, or all that they did not tag.
        """
        users, parts = as_whole(users, "users", least=1), as_whole(parts, "parts", least=1)
        offered = as_whole(offered, "offered", least=1)
        check_name(order, "order", Order)
        check_name(serving, "serving", Serving)
        check_name(negatives, "negatives", Negatives)
        known = self.tagged | self.listened if negatives == "unknown" else self.tagged
        room = int((~known).sum(axis=1).min())
        check_room(
            people=len(self.people), parts=parts, offered=offered, room=room, items="artists"
        )

        # Through RandomSource, a caller's SeedSequence keeps its count of children.
        *seeds, pools = np.random.SeedSequence(RandomSource.of(seed).key).spawn(4)
        drawing, ordering, turning = map(np.random.default_rng, seeds)
        hybrids = draw_hybrids(drawing, len(self.people), users, parts)
        user, person, artist = self._concatenated(hybrids, order, ordering)
        turns = turns_of(user, serving, turning)
        return Stream(
            features=self.features,
            hybrids=hybrids,
            user=user[turns],
            person=person[turns],
            item=artist[turns],
            offered=offered,
            known_since=np.where(known, 0, NEVER),
            pools=pools,
        )

    def _concatenated(
        self, hybrids: Ids, order: Order, rng: np.random.Generator
    ) -> tuple[Ids, Ids, Ids]:
        """Return user, person and artist of every observation, sorted by user."""
        people = hybrids.ravel()
        sizes = np.array([len(self.events[person]) for person in people])
        artists = [
            self.events[person][order_of(order, self.dates[person], rng)] for person in people
        ]
        users = np.repeat(np.arange(len(hybrids)), hybrids.shape[1])
        return np.repeat(users, sizes), np.repeat(people, sizes), np.concatenate(artists)


def _table(folder: Path, name: str, columns: tuple[str, ...]) -> Table:
    """Return the rows of a tab-separated file of whole numbers."""
    path = folder / name
    try:
        # Latin-1 can read any bytes; _check_rows then refuses rows that are not numbers.
        header, *lines = path.read_text("latin-1").splitlines() or [""]
    except OSError as error:
        raise FileError(f"cannot read {path} ({error.strerror or error}); {WHERE}") from None
    # Some copies begin the header with two slashes.
    if tuple(header.lstrip("/").split("\t")) != columns or not lines:
        raise FileError(
            f"{path} begins with {header[:80]!r} and has {len(lines)} rows, expected the columns "
            f"{', '.join(columns)} separated by tabs, and rows below; {WHERE}"
        )
    _check_rows(path, lines, len(columns))
    return np.loadtxt(lines, np.int64, delimiter="\t", ndmin=2)


def _check_rows(path: Path, lines: Sequence[str], columns: int) -> None:
    row = re.compile(r"\t".join([r"\d{1,18}"] * columns), re.ASCII)
    for number, line in enumerate(lines, start=2):
        if not row.fullmatch(line):
            raise FileError(
                f"line {number} of {path} is {line[:80]!r}, expected {columns} whole numbers "
                f"separated by tabs; {WHERE}"
            )


def _pairs(table: Table, people: Ids, artists: Ids) -> Flags:
    """Return, for each person and artist, whether the table has a row with both."""
    rows = table[np.isin(table[:, 0], people) & np.isin(table[:, 1], artists)]
    found = np.zeros((len(people), len(artists)), dtype=np.bool_)
    found[np.searchsorted(people, rows[:, 0]), np.searchsorted(artists, rows[:, 1])] = True
    return found
