"""Section 4's Last.fm experiment: real people, three in a row behind every user, rewards 0 or 1.

`LastFM` is what the files say, `Stream` one draw of an experiment from it, `Event` what happens
when a user comes by. The files are not part of this package; `LastFM.read` takes the folder they
were unpacked to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dyclu.core.randomness import RandomSource
from dyclu.errors import FileError, OptionError
from dyclu.sim.worlds.draws import distinct
from dyclu.sim.worlds.lastfm_features import Scaling, counts, reduced, scaled, tf_idf
from dyclu.sim.worlds.population import CHUNK, Seed
from dyclu.validation import FloatArray, Ids, as_dim, as_whole

Order = Literal["shuffled", "dated", "published"]
Serving = Literal["in turn", "at random"]
Negatives = Literal["unknown", "untagged"]
Flags = NDArray[np.bool_]
Table = NDArray[np.int64]

TAGGED = ("user_taggedartists.dat", ("userID", "artistID", "tagID", "day", "month", "year"))
LISTENED = ("user_artists.dat", ("userID", "artistID", "weight"))

WHERE = (
    "get the data set HetRec 2011 Last.fm 2K (hetrec2011-lastfm-2k), which GroupLens publishes "
    f"for non-commercial research, unpack it, and pass the folder with {TAGGED[0]} and "
    f"{LISTENED[0]}"
)
"""What to do where a file is missing or unreadable."""

DAY_MONTH_YEAR = np.array([1, 100, 10_000])
"""What a day, a month and a year count in a date that is written as one number."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One visit of one user.

    Attributes
    ----------
    index : int
        Number of the event among those of all users.
    user : int
        Who comes by.
    person : int
        Whose data point it is: a row of `LastFM.people`, which no policy is shown.
    arms : array of shape (offered, dim)
        The artists that may be chosen, read-only.
    positive : int
        The row of `arms` that brings 1; every other one brings 0.
    """

    index: int
    user: int
    person: int
    arms: FloatArray = field(repr=False)
    positive: int

    def reward(self, arm: int) -> float:
        """Return 1 for the artist the person tagged, 0 for any other."""
        return float(arm == self.positive)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastFM:
    """What the files say of artists, and of the people with enough observations.

    An observation is one assignment of a tag to an artist by a person.

    Attributes
    ----------
    features : array of shape (artists, dim)
        The artists' tags, by TF-IDF and singular value decomposition.
    artists : int array of shape (artists,)
        Their ids in the files, for every artist with a tag.
    people : int array of shape (people,)
        Ids in the files of those with enough observations.
    events : tuple of int arrays
        For each person the rows of `features` they tagged, one entry per tag, as published.
    dates : tuple of int arrays
        When, as a number: 1 April 2009 is 20090401.
    tagged, heard : bool arrays of shape (people, artists)
        Which artists each person has tagged, and listened to.
    """

    features: FloatArray
    artists: Ids
    people: Ids
    events: tuple[Ids, ...]
    dates: tuple[Ids, ...]
    tagged: Flags
    heard: Flags

    def __post_init__(self) -> None:
        for array in self._arrays:
            array.flags.writeable = False

    @property
    def digest(self) -> str:
        """SHA-256 of everything an experiment is drawn from."""
        found = hashlib.sha256()
        for array in self._arrays:
            found.update(repr((array.shape, array.dtype.str)).encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        single = (self.features, self.artists, self.people, self.tagged, self.heard)
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
            Where ``user_taggedartists.dat`` and ``user_artists.dat`` are.
        dim : int
            Number of features an artist's tags are reduced to.
        least : int
            Observations a person must have to take part.
        scaling : {"largest", "unit", "none"}
            Divide all features by the norm of the largest artist, each artist by its own, or leave
            them as they are.
        """
        dim, least = as_dim(dim), as_whole(least, "least", least=1)
        _check_name(scaling, "scaling", Scaling)
        taggings, listenings = (_table(Path(folder), *file) for file in (TAGGED, LISTENED))
        people = _people(taggings[:, 0], least)
        artists, artist = np.unique(taggings[:, 1], return_inverse=True)
        own = [np.flatnonzero(taggings[:, 0] == person) for person in people]
        dates = taggings[:, 3:] @ DAY_MONTH_YEAR
        return cls(
            features=scaled(reduced(tf_idf(counts(artist, taggings[:, 2])), dim), scaling),
            artists=artists,
            people=people,
            events=tuple(artist[rows] for rows in own),
            dates=tuple(dates[rows] for rows in own),
            tagged=_met(taggings, people, artists),
            heard=_met(listenings, people, artists),
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
        """Draw an experiment; the same options and seed (int or SeedSequence) give the same one.

        Parameters
        ----------
        seed : int, SeedSequence or Generator
            What people, orders and pools are drawn from, each with random numbers of their own.
        users : int
            How many hybrid users there are.
        parts : int
            How many people, all different, each of them is in turn.
        offered : int
            Artists per event: one that the person tagged, the others not.
        order : {"shuffled", "dated", "published"}
            Of a person's observations: at random; by date, at random within one (dates are
            months); or as in the file, which is by artist.
        serving : {"in turn", "at random"}
            Users come by in turn while they have observations left, or at random, in proportion to
            the observations they have left.
        negatives : {"unknown", "untagged"}
            Artists offered beside the positive one: those the person neither tagged nor listened
            to, or those not tagged.
        """
        users, parts = as_whole(users, "users", least=1), as_whole(parts, "parts", least=1)
        offered = as_whole(offered, "offered", least=1)
        _check_name(order, "order", Order)
        _check_name(serving, "serving", Serving)
        _check_name(negatives, "negatives", Negatives)
        known = self.tagged | self.heard if negatives == "unknown" else self.tagged
        self._check_room(parts, offered, known)

        # Through RandomSource, a caller's SeedSequence keeps its count of children.
        *seeds, pools = np.random.SeedSequence(RandomSource.of(seed).key).spawn(4)
        drawing, ordering, turning = map(np.random.default_rng, seeds)
        hybrids = _hybrids(drawing, len(self.people), users, parts)
        user, person, artist = self._concatenated(hybrids, order, ordering)
        turns = _turns(user, serving, turning)
        return Stream(
            source=self,
            hybrids=hybrids,
            user=user[turns],
            person=person[turns],
            artist=artist[turns],
            offered=offered,
            known=known,
            pools=pools,
        )

    def _concatenated(
        self, hybrids: Ids, order: Order, rng: np.random.Generator
    ) -> tuple[Ids, Ids, Ids]:
        """Return user, person and artist of every observation, user by user."""
        people = hybrids.ravel()
        sizes = np.array([len(self.events[person]) for person in people])
        artists = [
            self.events[person][_ordering(order, self.dates[person], rng)] for person in people
        ]
        users = np.repeat(np.arange(len(hybrids)), hybrids.shape[1])
        return np.repeat(users, sizes), np.repeat(people, sizes), np.concatenate(artists)

    def _check_room(self, parts: int, offered: int, known: Flags) -> None:
        if parts > len(self.people):
            raise OptionError(
                f"parts is {parts}, and {len(self.people)} people have enough observations, "
                f"expected at least {parts}; lower parts, or `least` when reading"
            )
        room = int((~known).sum(axis=1).min())
        if offered > room + 1:
            raise OptionError(
                f"offered is {offered}, and to somebody only {room} artists are new, expected "
                f"{offered - 1} beside the positive one; pass offered={room + 1} or lower"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """One draw of the experiment; iterating over it gives its events, the same ones every time.

    Attributes
    ----------
    source : LastFM
        What it was drawn from.
    hybrids : int array of shape (users, parts)
        The people each user is, one after the other: rows of `LastFM.people`.
    user, person, artist : int arrays, one entry per event
        Who comes by, whose data point it is, and the artist they tagged: a row of
        `LastFM.features`.
    offered : int
        Artists per event.
    known : bool array of shape (people, artists)
        Which artists are never offered to a person as negatives.
    pools : SeedSequence
        Where the negatives and the positive's place come from.
    """

    source: LastFM
    hybrids: Ids
    user: Ids
    person: Ids
    artist: Ids
    offered: int
    known: Flags = field(repr=False)
    pools: np.random.SeedSequence = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.hybrids, self.user, self.person, self.artist, self.known):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.user)

    def __iter__(self) -> Iterator[Event]:
        rng = np.random.default_rng(self.pools)
        # The artists a person does not know come first in their row.
        strangers = np.argsort(self.known, axis=1, kind="stable")
        for start in range(0, len(self), CHUNK):
            yield from self._chunk(slice(start, start + CHUNK), strangers, rng)

    def _chunk(self, part: slice, strangers: Ids, rng: np.random.Generator) -> Iterator[Event]:
        user, person, index = self.user[part], self.person[part], range(len(self))[part]
        place = rng.integers(self.offered, size=len(index))
        room = (~self.known).sum(axis=1)[person]
        others = strangers[person[:, None], distinct(rng, room, self.offered - 1)]
        arms = self.source.features[_inserted(others, self.artist[part], place)]
        arms.flags.writeable = False
        return map(Event, index, user.tolist(), person.tolist(), arms, place.tolist())


def _check_name(value: object, name: str, choices: Any) -> None:
    if value not in get_args(choices):
        known = ", ".join(map(repr, get_args(choices)))
        raise OptionError(f"{name} is {value!r}, expected one of {known}")


def _table(folder: Path, name: str, columns: tuple[str, ...]) -> Table:
    """Return the rows of a tab-separated file of whole numbers."""
    path = folder / name
    try:
        # Latin-1 reads any bytes: what is not a number is found by looking at the numbers.
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


def _people(observed: Table, least: int) -> Ids:
    """Return the ids of the people with enough observations."""
    ids, counts = np.unique(observed, return_counts=True)
    if counts.max() < least:
        raise OptionError(
            f"least is {least}, and nobody has more than {counts.max()} observations, expected "
            f"people who have enough; pass least={counts.max()} or lower"
        )
    return ids[counts >= least]


def _met(table: Table, people: Ids, artists: Ids) -> Flags:
    """Return which artists each person has a row with."""
    rows = table[np.isin(table[:, 0], people) & np.isin(table[:, 1], artists)]
    met = np.zeros((len(people), len(artists)), dtype=np.bool_)
    met[np.searchsorted(people, rows[:, 0]), np.searchsorted(artists, rows[:, 1])] = True
    return met


def _hybrids(rng: np.random.Generator, people: int, users: int, parts: int) -> Ids:
    """Return the people each user is, all different within a user."""
    return np.stack([rng.choice(people, parts, replace=False) for _ in range(users)])


def _ordering(order: Order, dates: Ids, rng: np.random.Generator) -> Ids:
    if order == "published":
        return np.arange(len(dates))
    shuffled = rng.permutation(len(dates))
    return shuffled if order == "shuffled" else shuffled[np.argsort(dates[shuffled], kind="stable")]


def _turns(user: Ids, serving: Serving, rng: np.random.Generator) -> Ids:
    """Return in which order to serve observations that are listed user by user.

    >>> user = np.array([0, 0, 0, 1])
    >>> user[_turns(user, "in turn", np.random.default_rng(0))]
    array([0, 1, 0, 0])
    """
    if serving == "in turn":
        time = np.arange(len(user)) - np.searchsorted(user, user)
        return np.lexsort((user, time))
    # Whoever's turn it is by a shuffled list of users brings the next observation of their own.
    turns = np.empty(len(user), dtype=np.intp)
    turns[np.argsort(rng.permutation(user), kind="stable")] = np.arange(len(user))
    return turns


def _inserted(others: Ids, artist: Ids, place: Ids) -> Ids:
    """Return each row of `others` with its artist put in at its place; what was there goes last."""
    rows = np.arange(len(artist))
    pools = np.column_stack([others, artist])
    pools[rows, -1] = pools[rows, place]
    pools[rows, place] = artist
    return pools
