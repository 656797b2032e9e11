"""MovieLens as a stream of events: each offers 25 films, one of which the person rated highly.

`MovieLens` holds the contents of the files, `MovieLens.stream` draws an experiment from them. A
*cut* in time separates the two uses of the data: what was written before it gives the features of
the films, what was written after it gives the events. So no event can see its own future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from dyclu.core.randomness import RandomSource
from dyclu.errors import OptionError
from dyclu.sim.worlds.features import Scaling, counts, reduced, scaled, tf_idf
from dyclu.sim.worlds.movielens_files import (
    LEAST_STARS,
    MOST_STARS,
    Films,
    Marks,
    read_files,
)
from dyclu.sim.worlds.population import Seed
from dyclu.sim.worlds.recording import check_name, check_room, digest_of, people_with
from dyclu.sim.worlds.stream import NEVER, Stream, turns_of
from dyclu.validation import FloatArray, Ids, as_dim, as_whole, as_within

DatedServing = Literal["dated", "in turn", "at random"]
Negatives = Literal["unrated", "never rated"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovieLens:
    """The films that can be offered, and the people with enough observations.

    An observation is one rating of at least `stars` by a person after the cut.

    Attributes
    ----------
    features : array of shape (films, dim)
        Features of the films, from what was written before the cut.
    films : int array of shape (films,)
        Ids in the files of the films that had enough ratings before the cut.
    people : int array of shape (people,)
        Ids in the files of the people with enough observations.
    events : tuple of int arrays
        For each person, the rows of `features` that they rated highly after the cut.
    dates : tuple of int arrays
        Times of the events, in seconds since 1970.
    rated : int array of shape (people, films)
        Time at which each person rated each film; `NEVER` if they did not.
    """

    name: ClassVar[str] = "movielens"

    features: FloatArray
    films: Ids
    people: Ids
    events: tuple[Ids, ...]
    dates: tuple[Ids, ...]
    rated: Ids

    def __post_init__(self) -> None:
        for array in self._arrays:
            array.flags.writeable = False

    @property
    def digest(self) -> str:
        """SHA-256 of all arrays."""
        return digest_of(self._arrays)

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        single = (self.features, self.films, self.people, self.rated)
        return (*single, *self.events, *self.dates)

    @classmethod
    def read(
        cls,
        folder: str | PathLike[str],
        *,
        dim: int = 25,
        cut: str = "2007-01-01",
        least: int = 30,
        stars: float = 4.0,
        popular: int = 5,
        scaling: Scaling = "largest",
    ) -> MovieLens:
        """Read the files in a folder.

        Parameters
        ----------
        folder : path
            Folder with ``ratings.csv``, ``movies.csv`` and ``tags.csv``.
        dim : int
            Number of features of a film.
        cut : str
            Date (UTC). Earlier ratings and tags give the features, later ratings the events.
        least : int
            Least number of observations of a person who takes part.
        stars : float
            Least rating of a positive film.
        popular : int
            Least number of ratings, before the cut, of a film that can be offered.
        scaling : {"largest", "unit", "none"}
            Divide all features by the largest norm, each film's features by their own norm, or
            nothing.
        """
        dim, least = as_dim(dim), as_whole(least, "least", least=1)
        stars = as_within(stars, "stars", LEAST_STARS, MOST_STARS)
        popular, start = as_whole(popular, "popular", least=1), _seconds(cut)
        check_name(scaling, "scaling", Scaling)
        films, ratings, tags = read_files(Path(folder))
        past, past_tags = _before(ratings, start), _before(tags, start)
        heard = np.bincount(past.film, minlength=len(films.ids))
        chosen = np.flatnonzero(heard >= popular)
        if not len(chosen):
            raise OptionError(
                f"popular is {popular} and cut is {cut}, and no film has more than "
                f"{heard.max(initial=0)} ratings before it, expected films with enough; lower "
                "popular, or choose a later cut"
            )
        # From here on, films are rows of the features.
        past_tags, ratings = _about(past_tags, chosen), _about(ratings, chosen)
        table = attributes(films, chosen, heard[chosen], past_tags)
        high = np.flatnonzero((ratings.time >= start) & (ratings.value >= stars))
        people = people_with(ratings.person[high], least)
        own = [high[ratings.person[high] == person] for person in people]
        return cls(
            features=scaled(reduced(table, dim), scaling),
            films=films.ids[chosen],
            people=people,
            events=tuple(ratings.film[rows] for rows in own),
            dates=tuple(ratings.time[rows] for rows in own),
            rated=_times(ratings, people, len(chosen)),
        )

    def stream(
        self,
        seed: Seed,
        *,
        users: int | None = None,
        parts: int = 1,
        offered: int = 25,
        serving: DatedServing = "dated",
        negatives: Negatives = "unrated",
    ) -> Stream:
        """Draw a stream; the same options and seed (int or SeedSequence) give the same one.

        The observations of a person come in the order of time. Ratings of the same second come in
        an order of the films that is drawn once.

        Parameters
        ----------
        seed : int, SeedSequence or Generator
            Seed of people, orders and negatives; each has its own random numbers.
        users : int or None
            Number of users; None is as many as there are people for. No person is in two users.
        parts : int
            Number of people that each user is in turn; the one who begins first comes first.
        offered : int
            Films per event: one that the person rated highly, and others.
        serving : {"dated", "in turn", "at random"}
            Events come in the order of time (if a user is several people, an event also waits until
            the person before has finished); or users come in turn while they have observations
            left; or at random with probabilities proportional to the observations they have left.
        negatives : {"unrated", "never rated"}
            Films offered beside the positive one: those that the person had not rated by then, or
            those that they never rated. The second looks ahead.
        """
        parts = as_whole(parts, "parts", least=1)
        offered = as_whole(offered, "offered", least=1)
        check_name(serving, "serving", DatedServing)
        check_name(negatives, "negatives", Negatives)
        known_since = (
            self.rated if negatives == "unrated" else np.where(self.rated < NEVER, 0, NEVER)
        )
        self._check_room(parts, offered, known_since)
        most = len(self.people) // parts
        users = most if users is None else as_whole(users, "users", least=1, most=most)

        # Through RandomSource, a caller's SeedSequence keeps its count of children.
        *seeds, pools = np.random.SeedSequence(RandomSource.of(seed).key).spawn(4)
        drawing, ordering, turning = map(np.random.default_rng, seeds)
        hybrids = self._hybrids(drawing, users, parts)
        user, person, film, date = self._concatenated(hybrids, ordering)
        turns = _turns(user, date, serving, turning)
        return Stream(
            features=self.features,
            hybrids=hybrids,
            user=user[turns],
            person=person[turns],
            item=film[turns],
            offered=offered,
            known_since=known_since,
            pools=pools,
            date=date[turns],
        )

    def _hybrids(self, rng: np.random.Generator, users: int, parts: int) -> Ids:
        """Return the people that each user is, shape (users, parts), each person at most once."""
        drawn = rng.permutation(len(self.people))[: users * parts].reshape(users, parts)
        first = np.array([dates.min() for dates in self.dates])
        return np.take_along_axis(drawn, np.argsort(first[drawn], axis=1, kind="stable"), axis=1)

    def _concatenated(self, hybrids: Ids, rng: np.random.Generator) -> tuple[Ids, Ids, Ids, Ids]:
        """Return user, person, film and date of every observation, sorted by user."""
        people = hybrids.ravel()
        rank = rng.permutation(len(self.films))
        orders = [np.lexsort((rank[self.events[one]], self.dates[one])) for one in people]
        sizes = [len(order) for order in orders]
        users = np.repeat(np.arange(len(hybrids)), hybrids.shape[1])
        return (
            np.repeat(users, sizes),
            np.repeat(people, sizes),
            _joined(self.events, people, orders),
            _joined(self.dates, people, orders),
        )

    def _check_room(self, parts: int, offered: int, known_since: Ids) -> None:
        last = np.array([dates.max() for dates in self.dates])
        room = int((known_since > last[:, None]).sum(axis=1).min())
        check_room(people=len(self.people), parts=parts, offered=offered, room=room, items="films")


def attributes(films: Films, chosen: Ids, ratings: Ids, tags: Marks) -> Any:
    """Return the table of which features are computed: sparse, one row per chosen film.

    Its columns are genres and tags (TF-IDF), decades (0 or 1), and the logarithm of the number of
    ratings. Each of the four groups is divided by the root of its sum of squares, so that they
    have the same weight.
    """
    rows = range(len(chosen))
    genres = [(row, genre) for row in rows for genre in films.genres[chosen[row]]]
    decades = [(row, year // 10) for row in rows if (year := films.years[chosen[row]]) is not None]
    groups = [
        tf_idf(_counted(genres, len(chosen))),
        tf_idf(counts(tags.film, tags.value, len(chosen))),
        _counted(decades, len(chosen)),
        csr_array(np.log1p(ratings)[:, None]),
    ]
    return csr_array(hstack([_balanced(group) for group in groups]))


def _counted(pairs: Sequence[tuple[int, Any]], items: int) -> Any:
    item = np.array([row for row, _ in pairs], dtype=np.intp)
    return counts(item, np.array([value for _, value in pairs]), items)


def _balanced(group: Any) -> Any:
    size = np.sqrt((group**2).sum())
    return group / size if size > 0 else group


def _seconds(cut: str) -> int:
    """Return a date as seconds since 1970, in UTC.

    >>> _seconds("1970-01-02")
    86400
    """
    try:
        return int(datetime.strptime(cut, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except (TypeError, ValueError):
        raise OptionError(f"cut is {cut!r}, expected a date such as '2007-01-01'") from None


def _before(marks: Marks, time: int) -> Marks:
    return _rows(marks, np.flatnonzero(marks.time < time))


def _about(marks: Marks, chosen: Ids) -> Marks:
    """Return the marks of the chosen films; a film is then its position among them."""
    kept = _rows(marks, np.flatnonzero(np.isin(marks.film, chosen)))
    film = np.searchsorted(chosen, kept.film)
    return Marks(person=kept.person, film=film, value=kept.value, time=kept.time)


def _rows(marks: Marks, rows: Ids) -> Marks:
    return Marks(
        person=marks.person[rows],
        film=marks.film[rows],
        value=marks.value[rows],
        time=marks.time[rows],
    )


def _times(ratings: Marks, people: Ids, films: int) -> Ids:
    """Return the time at which each person first rated each film; `NEVER` if they did not."""
    own = np.isin(ratings.person, people)
    times = np.full((len(people), films), NEVER, dtype=np.int64)
    where = np.searchsorted(people, ratings.person[own]), ratings.film[own]
    np.minimum.at(times, where, ratings.time[own])
    return times


def _joined(arrays: Sequence[Ids], people: Ids, orders: Sequence[Ids]) -> Ids:
    return np.concatenate([arrays[one][order] for one, order in zip(people, orders, strict=True)])


def _turns(user: Ids, date: Ids, serving: DatedServing, rng: np.random.Generator) -> Ids:
    """Return the order in which to serve observations that are sorted by user.

    >>> _turns(np.array([0, 0, 1]), np.array([5, 3, 4]), "dated", np.random.default_rng(0))
    array([2, 0, 1])
    """
    if serving != "dated":
        return turns_of(user, serving, rng)
    # An event is served at its date, or as soon as the user's earlier events have been.
    starts = np.searchsorted(user, np.unique(user))
    served = np.concatenate([np.maximum.accumulate(own) for own in np.split(date, starts[1:])])
    return np.argsort(served, kind="stable")
