"""`dyclu.sim.worlds.movielens`: from small files in the published format to events."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dyclu.errors import FileError, OptionError
from dyclu.sim.worlds.movielens import MovieLens, attributes
from dyclu.sim.worlds.movielens_files import MOVIES, RATINGS, TAGS, Films, Marks, read_files
from dyclu.sim.worlds.stream import NEVER, Event, Stream

REAL = Path(__file__).parents[5] / "shared" / "data" / "movielens"

CUT, START = "2001-09-09", 1_000_000_000 - 6400
"""The date that separates features from events in the small files, also in seconds."""

OPTIONS: dict[str, Any] = {"dim": 6, "cut": CUT, "least": 30, "popular": 3}
FILMS = 90
GENRES = ("Action", "Comedy", "Drama", "Horror", "Western")
Rows = list[tuple[Any, ...]]


def small_movies() -> Rows:
    """Return films with ids 10, 20, …; their titles have commas, and quotation marks."""
    rng = np.random.default_rng(2)
    return [
        (
            10 * film,
            f'"Film, ""{film}"" ({int(rng.integers(1950, 2000))})"',
            "|".join(rng.permutation(GENRES)[: 1 + film % 3]),
        )
        for film in range(1, FILMS + 1)
    ]


def small_ratings() -> Rows:
    """Return ratings of two groups of people.

    Before the cut, people 1 to 20 rate 40 films each. After the cut, people 31 to 36 rate 60 films
    each, two in the same second; person 37 has 29 ratings of 4 and more.
    """
    rng = np.random.default_rng(3)
    rows: Rows = []
    for person in range(1, 21):
        films = 10 * (1 + rng.permutation(FILMS)[:40])
        rows += [
            (person, film, 0.5 * int(rng.integers(1, 11)), START - 1 - int(rng.integers(10**6)))
            for film in sorted(films.tolist())
        ]
    for person in range(31, 37):
        films = (10 * (1 + rng.permutation(FILMS)[:60])).tolist()
        stars = [3.5 if i % 5 == 0 else 4.0 + 0.5 * (i % 3) for i in range(60)]
        times = [START + 997 * person + i // 2 for i in range(60)]
        rows += sorted(zip([person] * 60, films, stars, times, strict=True))
    rows += [(37, 10 * film, 4.0, START + film) for film in range(1, 30)]
    return rows


def small_tags() -> Rows:
    rng = np.random.default_rng(4)
    words = ("Funny", "funny", "dark", "space", "plot twist", "slow", "robots")
    return [
        (2, 10 * int(film), words[int(rng.integers(len(words)))], START - 50 + 2 * i)
        for i, film in enumerate(rng.integers(1, FILMS + 1, 40))
    ]


def write(folder: Path, ratings: Rows, movies: Rows, tags: Rows) -> Path:
    for (name, columns), rows in ((RATINGS, ratings), (MOVIES, movies), (TAGS, tags)):
        lines = [",".join(map(str, row)) for row in (columns, *rows)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("movielens")
    return write(made, small_ratings(), small_movies(), small_tags())


@pytest.fixture(scope="module")
def small(folder: Path) -> MovieLens:
    return MovieLens.read(folder, **OPTIONS)


@pytest.fixture(scope="module")
def numbered(small: MovieLens) -> MovieLens:
    """The small files with the film's id as its only feature."""
    return replace(small, features=small.films[:, None].astype(float))


def offered_films(event: Event) -> list[int]:
    """Return the ids of the films that an event of `numbered` offers."""
    return [int(film) for film in event.arms[:, 0]]


def own(stream: Stream, user: int) -> list[tuple[int, int]]:
    mine = stream.user == user
    return list(zip(stream.person[mine].tolist(), stream.item[mine].tolist(), strict=True))


# Features


def test_attributes_by_hand() -> None:
    films = Films(
        ids=np.array([1, 2, 3]),
        genres=(("Comedy",), ("Comedy", "Drama"), ()),
        years=(1994, None, 2001),
    )
    # The first film has the tag "slow" twice, the second "dark" once.
    tags = Marks(
        person=np.array([1, 2, 1]),
        film=np.array([0, 0, 1]),
        value=np.array(["slow", "slow", "dark"]),
        time=np.array([5, 6, 7]),
    )
    ratings = np.array([1, 0, 3])
    table = attributes(films, np.array([0, 1, 2]), ratings, tags).toarray()
    half, one = log(3 / 2), log(3)
    genres = np.array([[half, 0], [half, one], [0, 0]]) / sqrt(2 * half**2 + one**2)
    tagged = np.array([[0, 2], [1, 0], [0, 0]]) / sqrt(5)
    decades = np.array([[1, 0], [0, 0], [0, 1]]) / sqrt(2)
    popularity = np.array([[log(2)], [0], [log(4)]]) / sqrt(log(2) ** 2 + log(4) ** 2)
    expected = np.hstack([genres, tagged, decades, popularity])
    np.testing.assert_allclose(table, expected, rtol=1e-12)


def test_tags_that_differ_in_capitals_are_the_same(folder: Path) -> None:
    _, _, tags = read_files(folder)
    assert set(tags.value) == {"funny", "dark", "space", "plot twist", "slow", "robots"}


def test_each_scaling_gives_the_norms_it_promises(folder: Path, small: MovieLens) -> None:
    none, unit = (
        MovieLens.read(folder, **OPTIONS, scaling=scaling).features for scaling in ("none", "unit")
    )
    norms = np.linalg.norm(none, axis=1)
    np.testing.assert_allclose(small.features * norms.max(), none, rtol=1e-12)
    np.testing.assert_allclose(unit * norms[:, None], none, rtol=1e-12)


def test_the_digest_covers_all_arrays(small: MovieLens) -> None:
    others = [
        replace(small, features=2 * small.features),
        replace(small, films=small.films + 1),
        replace(small, people=small.people + 1),
        replace(small, events=(small.events[0][1:], *small.events[1:])),
        replace(small, dates=(small.dates[0] + 1, *small.dates[1:])),
        replace(small, rated=small.rated - 1),
    ]
    assert replace(small).digest == small.digest
    assert len({small.digest, *(other.digest for other in others)}) == 7


# Films and people that take part


def test_films_with_enough_ratings_before_the_cut_are_offered(folder: Path) -> None:
    before = Counter(film for _, film, _, time in small_ratings() if time < START)
    for popular in (3, 9):
        read = MovieLens.read(folder, **{**OPTIONS, "popular": popular, "least": 1})
        assert read.films.tolist() == sorted(f for f in before if before[f] >= popular)
    assert min(before.values()) < 9


def test_a_person_with_too_few_observations_is_left_out(folder: Path, small: MovieLens) -> None:
    assert small.people.tolist() == [31, 32, 33, 34, 35, 36]
    with_all = MovieLens.read(folder, **{**OPTIONS, "least": 29})
    assert with_all.people.tolist() == [31, 32, 33, 34, 35, 36, 37]


def test_events_are_the_high_ratings_after_the_cut(folder: Path, small: MovieLens) -> None:
    for stars, read in (
        (4.0, small),
        (4.5, MovieLens.read(folder, **{**OPTIONS, "stars": 4.5, "least": 20})),
    ):
        for i, person in enumerate(read.people):
            mine = {
                (film, time)
                for who, film, rating, time in small_ratings()
                if who == person and rating >= stars and film in read.films
            }
            seen = zip(read.films[read.events[i]].tolist(), read.dates[i].tolist(), strict=True)
            assert set(seen) == mine
            assert len(read.events[i]) == len(mine)


def test_all_ratings_of_a_person_count_as_known(small: MovieLens) -> None:
    for i, person in enumerate(small.people):
        times = {film: time for who, film, _, time in small_ratings() if who == person}
        expected = [times.get(film, NEVER) for film in small.films.tolist()]
        assert small.rated[i].tolist() == expected


# No look-ahead


def shown(folder: Path, until: int, **drawing: Any) -> list[tuple[Any, ...]]:
    """Return what a policy sees at all events before a time: users, features and positions."""
    stream = MovieLens.read(folder, **OPTIONS).stream(5, offered=8, **drawing)
    assert stream.date is not None
    return [
        (event.user, event.positive, event.arms.tobytes())
        for event, date in zip(stream, stream.date, strict=True)
        if date < until
    ]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_later_ratings_and_tags_do_not_change_earlier_events(
    data: st.DataObject, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ratings, tags = small_ratings(), small_tags()
    moment = data.draw(st.integers(START + 31 * 997 + 10, START + 37 * 997), label="moment")
    # Only a person's last 14 ratings are altered: who takes part is decided by all ratings.
    later = [
        i
        for i, (who, *_, time) in enumerate(ratings)
        if time >= moment and 31 <= who < 37 and time >= START + 997 * who + 23
    ]
    for i in data.draw(st.lists(st.sampled_from(later), max_size=8, unique=True)) if later else []:
        who, film, _, time = ratings[i]
        ratings[i] = (who, film, data.draw(st.sampled_from([1.0, 3.5, 4.0, 5.0])), time)
    for i in data.draw(st.lists(st.sampled_from(later), max_size=4, unique=True)) if later else []:
        who, _, rating, time = ratings[i]
        ratings[i] = (who, 10 * data.draw(st.integers(1, FILMS)), rating, time + 400)
    tags += [(3, 10 * data.draw(st.integers(1, FILMS)), "late", moment + 1)]
    altered = write(tmp_path_factory.mktemp("altered"), ratings, small_movies(), tags)
    assert shown(altered, moment) == shown(folder, moment)


def test_an_earlier_tag_or_rating_changes_features(folder: Path, tmp_path: Path) -> None:
    before = MovieLens.read(folder, **OPTIONS).features
    tags = [*small_tags(), (3, 10, "early", START - 1)]
    tagged = MovieLens.read(write(tmp_path, small_ratings(), small_movies(), tags), **OPTIONS)
    assert not np.array_equal(tagged.features, before)
    ratings = [*small_ratings(), (21, 10, 1.0, START - 1)]
    rated = MovieLens.read(write(tmp_path, ratings, small_movies(), small_tags()), **OPTIONS)
    assert not np.array_equal(rated.features, before)


# Events


@pytest.mark.parametrize("parts", [1, 3])
def test_one_film_is_rated_highly_and_the_others_are_not_rated_by_then(
    numbered: MovieLens, parts: int
) -> None:
    times = {(who, film): (time, rating) for who, film, rating, time in small_ratings()}
    rated_later = 0
    stream = numbered.stream(9, parts=parts, offered=8)
    assert stream.date is not None
    for event, date in zip(stream, stream.date, strict=True):
        films, person = offered_films(event), int(numbered.people[event.person])
        assert len(set(films)) == 8
        time, rating = times[person, films[event.positive]]
        assert time == date >= START
        assert rating >= 4
        others = [film for i, film in enumerate(films) if i != event.positive]
        known = [times[person, film][0] for film in others if (person, film) in times]
        assert all(time > date for time in known)
        rated_later += len(known)
    assert rated_later > 0


def test_never_rated_negatives_are_not_rated_later_either(numbered: MovieLens) -> None:
    for event in numbered.stream(9, offered=8, negatives="never rated"):
        films, person = offered_films(event), event.person
        others = np.delete(films, event.positive)
        assert (numbered.rated[person, np.searchsorted(numbered.films, others)] == NEVER).all()


def test_the_place_of_the_positive_is_uniform(small: MovieLens) -> None:
    # N places of 8 equally likely ones: each count has standard deviation √(N·7)/8, and five of
    # them leave 8 normal counts a chance of 1e-5.
    places = [event.positive for seed in range(12) for event in small.stream(seed, offered=8)]
    counts, N = np.bincount(places, minlength=8), len(places)
    assert N > 3_000
    assert np.abs(counts - N / 8).max() < 5 * sqrt(N * 7) / 8


def test_arms_are_read_only(small: MovieLens) -> None:
    event = next(iter(small.stream(0, offered=8)))
    with pytest.raises(ValueError, match="read-only"):
        event.arms[0, 0] = 1.0


# Order and users


def test_events_come_in_the_order_of_time(small: MovieLens) -> None:
    stream = small.stream(3, offered=8)
    assert stream.date is not None
    assert stream.hybrids.shape == (6, 1)
    assert (np.diff(stream.date) >= 0).all()
    assert len(stream) == sum(map(len, small.events))


def test_the_order_within_a_second_depends_on_the_seed(small: MovieLens) -> None:
    one, other = small.stream(3, offered=8), small.stream(4, offered=8)
    assert one.date is not None
    assert other.date is not None
    assert one.date.tolist() == other.date.tolist()
    assert small.people[one.person].tolist() == small.people[other.person].tolist()
    assert one.item.tolist() != other.item.tolist()


def test_a_hybrid_user_is_three_people_one_after_the_other(small: MovieLens) -> None:
    for serving in ("dated", "in turn", "at random"):
        stream = small.stream(3, parts=3, offered=8, serving=serving)
        assert stream.hybrids.shape == (2, 3)
        assert sorted(stream.hybrids.ravel().tolist()) == [0, 1, 2, 3, 4, 5]
        for user, people in enumerate(stream.hybrids.tolist()):
            runs = [
                (who, [film for _, film in run])
                for who, run in groupby(own(stream, user), lambda pair: pair[0])
            ]
            assert [who for who, _ in runs] == people
            # People are numbered in the order in which they begin here.
            assert people == sorted(people)
            for who, films in runs:
                assert Counter(films) == Counter(small.events[who].tolist())


def test_a_hybrid_users_event_waits_for_the_person_before(small: MovieLens) -> None:
    # The second person begins and ends while the first one is still there.
    dates = [np.array([10, 20, 90]), np.array([30, 40]), np.array([50, 60])]
    three = replace(
        small,
        people=small.people[:3],
        events=tuple(np.arange(len(times)) for times in dates),
        dates=tuple(dates),
        rated=np.full((3, len(small.films)), NEVER),
    )
    stream = three.stream(0, parts=3, offered=2)
    assert stream.date is not None
    assert stream.date.tolist() == [10, 20, 90, 30, 40, 50, 60]


def test_users_come_in_turn_if_asked(small: MovieLens) -> None:
    stream = small.stream(6, offered=8, serving="in turn")
    assert stream.user[:12].tolist() == [0, 1, 2, 3, 4, 5] * 2


def test_fewer_users_are_drawn_if_asked(small: MovieLens) -> None:
    stream = small.stream(6, users=2, offered=8)
    assert stream.hybrids.shape == (2, 1)
    assert set(stream.user.tolist()) == {0, 1}


def test_the_same_seed_gives_the_same_stream_every_time(small: MovieLens) -> None:
    def seen(seed: int) -> list[tuple[int, int, bytes]]:
        stream = small.stream(seed, offered=8)
        once, again = (
            [(event.user, event.positive, event.arms.tobytes()) for event in stream]
            for _ in range(2)
        )
        assert once == again
        return once

    assert seen(13) == seen(13) != seen(14)


# Files that are missing or wrong


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", [RATINGS[0], MOVIES[0], TAGS[0]])
def test_a_missing_file_is_named_with_where_to_get_it(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(FileError, match=f"cannot read .*{name}.*MovieLens.*GroupLens"):
        MovieLens.read(copied)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (RATINGS[0], "", "has 0 cells, expected 4: userId, movieId, rating, timestamp"),
        (RATINGS[0], "1,10,4.0", "has 3 cells, expected 4"),
        (RATINGS[0], "1,10,4.0,5,6", "has 5 cells, expected 4"),
        (RATINGS[0], "ana,10,4.0,5", "has 'ana' as userId, expected a whole number"),
        (RATINGS[0], "1,x,4.0,5", "has 'x' as movieId"),
        (RATINGS[0], "1,-10,4.0,5", "has '-10' as movieId"),
        (RATINGS[0], "1,10,4.0,5.5", r"has '5\.5' as timestamp"),
        (RATINGS[0], f"1,10,4.0,{10**30}", "has '1000*' as timestamp"),
        (RATINGS[0], "1,10,good,5", "has the rating 'good', expected 0.5 to 5.0"),
        (RATINGS[0], "1,10,5.5,5", r"has the rating '5\.5'"),
        (RATINGS[0], "1,10,nan,5", "has the rating 'nan'"),
        (RATINGS[0], "1,15,4.0,5", r"has film 15, expected a film of movies\.csv"),
        (TAGS[0], "1,15,dark,5", r"has film 15, expected a film of movies\.csv"),
        (TAGS[0], "1,10,dark,late", "has 'late' as timestamp"),
        (MOVIES[0], "x,Heat (1995),Action", "has 'x' as movieId"),
        (MOVIES[0], "10,Heat (1995),Action", "repeats film 10"),
        (MOVIES[0], "7,Heat, the (1995),Action", "has 4 cells, expected 3"),
        (MOVIES[0], '7,"Heat" (1995),Action', "cannot be read"),
    ],
)
def test_a_malformed_line_is_named(copied: Path, name: str, line: str, message: str) -> None:
    path = copied / name
    lines = path.read_text().split("\n")
    path.write_text("\n".join([*lines[:16], line, *lines[16:]]))
    with pytest.raises(FileError, match=rf"line 17 of .*{name} {message}"):
        MovieLens.read(copied)


def test_bytes_that_are_not_utf_8_are_refused_with_their_line(copied: Path) -> None:
    path = copied / TAGS[0]
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:5], b"1,10,\xff,5", *lines[5:]]))
    with pytest.raises(FileError, match=r"line 6 of .*tags\.csv is not UTF-8"):
        MovieLens.read(copied)


@pytest.mark.parametrize("content", ["", "userId,movieId,tag,timestamp\n", "a,b\n1,2\n"])
def test_a_file_of_something_else_is_refused(copied: Path, content: str) -> None:
    (copied / TAGS[0]).write_text(content)
    with pytest.raises(FileError, match="expected the columns userId, movieId, tag, timestamp"):
        MovieLens.read(copied)


def test_a_header_may_have_other_capitals(copied: Path, small: MovieLens) -> None:
    path = copied / RATINGS[0]
    path.write_text(path.read_text().replace("userId,movieId", "userid,movieid"))
    assert MovieLens.read(copied, **OPTIONS).digest == small.digest


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": "soon"}, "cut is 'soon', expected a date such as '2007-01-01'"),
        ({"cut": "1990-01-01"}, "no film has more than 0 ratings before it"),
        ({"popular": 21}, "popular is 21 .* no film has more than"),
        ({"least": 200}, "least is 200, and no person has more than"),
        ({"stars": 6}, "stars is 6"),
        ({"dim": 60}, "dim is 60, and there are 90 items"),
        ({"scaling": "huge"}, "scaling is 'huge', expected one of 'largest', 'unit', 'none'"),
    ],
)
def test_reading_refuses_impossible_options(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        MovieLens.read(folder, **{**OPTIONS, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 7}, "parts is 7, and 6 people have enough"),
        ({"parts": 3, "users": 3}, "users is 3"),
        ({"offered": 60}, r"offered is 60, and one person has only \d+ new films"),
        ({"users": 0}, "users is 0"),
        ({"serving": "never"}, "serving is 'never'"),
        ({"negatives": "any"}, "negatives is 'any'"),
    ],
)
def test_streaming_refuses_impossible_options(
    small: MovieLens, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        small.stream(**{"seed": 0, "offered": 8, **options})


# The real files


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the MovieLens files are not in {REAL}")
def test_the_real_files_have_the_published_sizes() -> None:
    films, ratings, tags = read_files(REAL)
    assert (len(films.ids), len(ratings.film), len(tags.film)) == (9_742, 100_836, 3_683)
    assert len(set(ratings.person.tolist())) == 610
    source = MovieLens.read(REAL)
    assert source.features.shape == (2_137, 25)
    assert len(source.people) == 145
    assert np.linalg.norm(source.features, axis=1).max() == pytest.approx(1.0)
    stream = source.stream(0)
    assert len(stream) == sum(map(len, source.events)) == 12_905
    assert stream.date is not None
    assert (np.diff(stream.date) >= 0).all()
    assert source.stream(0, parts=3).hybrids.shape == (48, 3)
