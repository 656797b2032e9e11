"""`dyclu.sim.worlds.lastfm`: from small files in the published format to the ratio to random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby, permutations
from math import isnan, sqrt
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from dyclu.errors import FileError, OptionError, ShapeError
from dyclu.policies.common.plain import WithoutUsers
from dyclu.policies.uniform import Uniform
from dyclu.policy import Decision, Outcome
from dyclu.sim.runs.play import REPORT_EVERY
from dyclu.sim.runs.stream.play import StreamRun, milestones, play_stream, relative_reward
from dyclu.sim.worlds import features as item_features
from dyclu.sim.worlds.draws import distinct
from dyclu.sim.worlds.features import _rounded, scaled, tf_idf
from dyclu.sim.worlds.lastfm import LISTENED, TAGGED, LastFM
from dyclu.sim.worlds.stream import Event, Stream, turns_of
from dyclu.validation import Ids

REAL = Path(__file__).parents[5] / "shared" / "data" / "lastfm"

DIM, LEAST = 6, 150
COUNTS = {3: 150, 5: 260, 8: 180, 9: 149, 12: 210, 40: 170}
"""Observations of each person, by id: all but one have at least `LEAST`."""


def small_rows() -> list[tuple[int, ...]]:
    """Return tag assignments to 120 artists with ids 10, 20, …; even ones came before odd ones.

    The first person tags the first 40 artists, the next one the 40 from the 20th on, and so on
    around; their tags, of 15, are any, and none is given to the same artist twice.
    """
    rng = np.random.default_rng(11)
    rows: list[tuple[int, ...]] = []
    for shift, (person, observations) in enumerate(COUNTS.items()):
        tags = rng.permuted(np.tile(np.arange(1, 16), (40, 1)), axis=1)
        pairs = [
            ((20 * shift + i % 40) % 120 + 1, tags[i % 40, i // 40]) for i in range(observations)
        ]
        rows += [(person, 10 * a, int(tag), 1, 4 + a % 2, 2009) for a, tag in sorted(pairs)]
    return rows


def write(folder: Path, rows: Sequence[tuple[int, ...]], heard: Sequence[tuple[int, ...]]) -> Path:
    for (name, columns), table in ((TAGGED, rows), (LISTENED, heard)):
        lines = ["\t".join(map(str, line)) for line in (columns, *table)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = small_rows()
    tagged = {(person, artist) for person, artist, *_ in rows}
    # Every person listened to the first six artists they did not tag, and to one without tags.
    heard = [(person, 9_990, 1) for person in COUNTS]
    for person in COUNTS:
        new = [a for a in range(10, 1210, 10) if (person, a) not in tagged]
        heard += [(person, artist, 7) for artist in new[:6]]
    return write(tmp_path_factory.mktemp("hetrec"), rows, heard)


@pytest.fixture(scope="module")
def small(folder: Path) -> LastFM:
    return LastFM.read(folder, dim=DIM, least=LEAST)


def offered_artists(source: LastFM, event: Event) -> list[int]:
    """Return the rows of `features` that an event offers."""
    row = {features.tobytes(): i for i, features in enumerate(source.features)}
    assert len(row) == len(source.features), "artists must have features of their own here"
    return [row[arm.tobytes()] for arm in event.arms]


def own(stream: Stream, user: int) -> list[tuple[int, int]]:
    mine = stream.user == user
    return list(zip(stream.person[mine].tolist(), stream.item[mine].tolist(), strict=True))


class Choosing(WithoutUsers):
    """Chooses the given arms, and reports a change at every third reward."""

    def __init__(self, dim: int, arms: Iterator[int]) -> None:
        self.dim, self.arms = dim, arms
        self.learnt: list[tuple[Hashable, Any, float]] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return (f"Learnt {len(self.learnt)} rewards.",)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        assert isinstance(user, int)
        return Decision(user, next(self.arms), 0.0, 0.0)

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        assert isinstance(user, int)
        self.learnt.append((user, context, reward))
        return Outcome(user, changed=len(self.learnt) % 3 == 0)

    def save(self, path: str | PathLike[str]) -> None:
        raise NotImplementedError


# Features


def test_tf_idf_by_hand() -> None:
    # Of three artists all have the first tag, two the second, one the third.
    counts = csr_array([[5.0, 2.0, 0.0], [1.0, 1.0, 4.0], [2.0, 0.0, 0.0]])
    half, one = np.log(3 / 2), np.log(3)
    expected = [[0, 2 * half, 0], [0, half, 4 * one], [0, 0, 0]]
    np.testing.assert_allclose(tf_idf(counts).toarray(), expected, rtol=1e-15)


def test_features_are_the_principal_coordinates(folder: Path, small: LastFM) -> None:
    # A dense decomposition of a table counted one by one; singular values are distinct, so that
    # the coordinates are determined once the largest entry of each direction is positive.
    counts = np.zeros((120, 15))
    for _, artist, tag, *_ in small_rows():
        counts[artist // 10 - 1, tag - 1] += 1
    table = counts * np.log(120 / (counts > 0).sum(axis=0))
    directions = np.linalg.svd(table)[2][:DIM]
    directions *= np.sign([row[np.abs(row).argmax()] for row in directions])[:, None]
    unscaled = LastFM.read(folder, dim=DIM, least=LEAST, scaling="none").features
    np.testing.assert_allclose(unscaled, table @ directions.T, atol=1e-9)
    assert small.artists.tolist() == list(range(10, 1210, 10))


def test_each_scaling_gives_the_norms_it_promises(folder: Path, small: LastFM) -> None:
    none, unit = (
        LastFM.read(folder, dim=DIM, least=LEAST, scaling=scaling).features
        for scaling in ("none", "unit")
    )
    norms = np.linalg.norm(none, axis=1)
    np.testing.assert_allclose(small.features * norms.max(), none, rtol=1e-12)
    np.testing.assert_allclose(unit * norms[:, None], none, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1.0, rtol=1e-12)


def test_an_artist_with_uninformative_tags_has_zero_features(tmp_path: Path) -> None:
    # All artists have tag 1, and artist 4 has no other tag.
    tags = {1: (1, 2), 2: (1, 3), 3: (1, 2, 3), 4: (1,)}
    rows = [(7, artist, tag, 1, 1, 2010) for artist in tags for tag in tags[artist]]
    source = LastFM.read(write(tmp_path, rows, [(7, 1, 1)]), dim=2, least=1, scaling="unit")
    np.testing.assert_allclose(np.linalg.norm(source.features, axis=1), [1, 1, 1, 0], atol=1e-12)


def test_reading_twice_gives_the_same_bits(folder: Path, small: LastFM) -> None:
    again = LastFM.read(folder, dim=DIM, least=LEAST)
    assert again.features.tobytes() == small.features.tobytes()


@pytest.mark.parametrize("scaling", ["largest", "unit", "none"])
def test_features_do_not_depend_on_rounding_errors(
    folder: Path, scaling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another number of threads adds up in another order: the decomposition's last digits change.
    def elsewhere(table: Any, **options: Any) -> Any:
        left, values, right = svds(table, **options)
        return left, values, right * (1 + 1e-15 * rng.standard_normal(right.shape))

    rng = np.random.default_rng(3)
    here = LastFM.read(folder, dim=DIM, least=LEAST, scaling=scaling)
    monkeypatch.setattr(item_features, "svds", elsewhere)
    there = LastFM.read(folder, dim=DIM, least=LEAST, scaling=scaling)
    assert there.features.tobytes() == here.features.tobytes()
    assert there.digest == here.digest


def test_features_that_are_rounding_errors_become_zero() -> None:
    features = scaled(_rounded(np.array([[3.0, 4.0], [1e-19, 2e-19]])), "unit")
    np.testing.assert_array_equal(features, [[0.6, 0.8], [0.0, 0.0]])


def test_the_digest_covers_all_arrays(small: LastFM) -> None:
    def without_first(arrays: tuple[Ids, ...]) -> tuple[Ids, ...]:
        return arrays[0][1:], *arrays[1:]

    others = [
        replace(small, features=2 * small.features),
        replace(small, people=small.people + 1),
        replace(small, events=without_first(small.events)),
        replace(small, dates=without_first(small.dates)),
        replace(small, tagged=~small.tagged),
        replace(small, listened=~small.listened),
    ]
    assert replace(small).digest == small.digest
    assert len({small.digest, *(other.digest for other in others)}) == 7


# People who take part


def test_people_with_enough_observations_take_part(folder: Path, small: LastFM) -> None:
    assert small.people.tolist() == [3, 5, 8, 12, 40]
    assert LastFM.read(folder, dim=DIM, least=LEAST + 1).people.tolist() == [5, 8, 12, 40]
    assert LastFM.read(folder, dim=DIM, least=260).people.tolist() == [5]


def test_events_are_the_tag_assignments_as_published(small: LastFM) -> None:
    for person, events in zip(small.people, small.events, strict=True):
        artists = [artist for who, artist, *_ in small_rows() if who == person]
        assert small.artists[events].tolist() == artists


def test_tagged_and_listened_are_those_of_the_files(small: LastFM) -> None:
    pairs = {(person, artist) for person, artist, *_ in small_rows()}
    for i, person in enumerate(small.people.tolist()):
        mine = {artist for who, artist in pairs if who == person}
        assert set(small.artists[small.tagged[i]].tolist()) == mine
    assert small.listened.sum(axis=1).tolist() == [6] * 5
    assert not (small.tagged & small.listened).any()


# Files that are missing or wrong


@pytest.mark.parametrize("name", [TAGGED[0], LISTENED[0]])
def test_a_missing_file_is_named_with_where_to_get_it(
    folder: Path, tmp_path: Path, name: str
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).unlink()
    with pytest.raises(FileError, match=f"cannot read .*{name}.*Last.fm 2K.*GroupLens"):
        LastFM.read(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nowhere.*No such file.*GroupLens"):
        LastFM.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "5\t10\t1\t1\t4",
        "5\t10\t1\t1\t4\t2009\t0",
        "5\t10\trock\t1\t4\t2009",
        "5 10 1 1 4 2009",
        "5\t10\t-1\t1\t4\t2009",
        "5\t10\t1.5\t1\t4\t2009",
        f"5\t{10**30}\t1\t1\t4\t2009",
        "\x00ÿ",
    ],
)
def test_a_malformed_line_is_shown(tmp_path: Path, line: str) -> None:
    write(tmp_path, small_rows(), [(3, 10, 1)])
    path = tmp_path / TAGGED[0]
    lines = path.read_text().split("\n")
    path.write_text("\n".join([*lines[:16], line, *lines[16:]]))
    with pytest.raises(FileError, match=r"line 17 of .*expected 6 whole numbers"):
        LastFM.read(tmp_path)


@pytest.mark.parametrize("content", ["", "userID\tartistID\tweight\n", "a\tb\n1\t2\n"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    write(tmp_path, small_rows(), [])
    (tmp_path / LISTENED[0]).write_text(content)
    with pytest.raises(FileError, match="expected the columns userID, artistID, weight"):
        LastFM.read(tmp_path)


def test_a_header_may_begin_with_slashes(tmp_path: Path) -> None:
    write(tmp_path, small_rows(), [(3, 10, 1)])
    path = tmp_path / LISTENED[0]
    path.write_text("//" + path.read_text())
    assert LastFM.read(tmp_path, dim=DIM, least=LEAST).listened.sum() == 1


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 15, "least": 1}, "120 items with 15 attributes.*pass dim=14"),
        ({"least": 261}, "no person has more than 260"),
        ({"scaling": "huge"}, "scaling is 'huge', expected one of 'largest', 'unit', 'none'"),
    ],
)
def test_reading_refuses_impossible_options(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        LastFM.read(folder, **{"dim": DIM, "least": LEAST, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 6}, "5 people have enough"),
        ({"offered": 76}, "only 74 new artists.*pass offered=75"),
        ({"users": 0}, "users is 0"),
        ({"order": "sorted"}, "order is 'sorted'"),
        ({"serving": "never"}, "serving is 'never'"),
        ({"negatives": "any"}, "negatives is 'any'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_streaming_refuses_impossible_options(
    small: LastFM, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        small.stream(**{"seed": 0, **options})


def test_the_largest_possible_number_of_artists_can_be_offered(small: LastFM) -> None:
    # Every person tagged 40 artists of 120 and listened to 6 more.
    for negatives, most in (("unknown", 75), ("untagged", 81)):
        stream = small.stream(1, offered=most, negatives=negatives)  # type: ignore[arg-type]
        assert next(iter(stream)).arms.shape == (most, DIM)
        with pytest.raises(OptionError, match="new artists"):
            small.stream(1, offered=most + 1, negatives=negatives)  # type: ignore[arg-type]


# Hybrid users


def test_a_user_is_three_people_one_after_the_other(small: LastFM) -> None:
    stream = small.stream(3, users=20)
    assert stream.hybrids.shape == (20, 3)
    for user, people in enumerate(stream.hybrids.tolist()):
        assert len(set(people)) == 3
        runs = [(person, [a for _, a in run]) for person, run in groupby(own(stream, user), _first)]
        assert [person for person, _ in runs] == people
        for person, artists in runs:
            assert Counter(artists) == Counter(small.events[person].tolist())


def _first(pair: tuple[int, int]) -> int:
    return pair[0]


def test_people_are_drawn_uniformly(small: LastFM) -> None:
    # Each of 5 people is in each of 2,000 users with probability 3/5, and first with 1/5.
    hybrids = small.stream(4, users=2_000, order="published", offered=1).hybrids
    for people, chance in ((hybrids.ravel(), 3 / 5), (hybrids[:, 0], 1 / 5)):
        frequency = np.bincount(people, minlength=5) / 2_000
        assert np.abs(frequency - chance).max() < 5 * sqrt(chance * (1 - chance) / 2_000)


def test_observations_come_in_the_chosen_order(small: LastFM) -> None:
    streams = {
        "published": small.stream(5, order="published"),
        "dated": small.stream(5, order="dated"),
        "shuffled": small.stream(5, order="shuffled"),
    }
    for user, people in enumerate(streams["published"].hybrids):
        artists = {order: [a for _, a in own(streams[order], user)] for order in streams}
        parts = [small.events[person] for person in people]
        assert artists["published"] == np.concatenate(parts).tolist()
        assert artists["shuffled"] != artists["published"] != artists["dated"]
        start = 0
        for part in parts:
            dated = np.array(artists["dated"][start : start + len(part)])
            # Ids 20, 40, … were tagged in April, ids 10, 30, … in May; rows count from 0.
            assert (np.diff((dated + 1) % 2) >= 0).all()
            assert (np.diff(dated[(dated + 1) % 2 == 0]) < 0).any()
            start += len(part)


def test_users_come_in_turn_while_they_have_observations(small: LastFM) -> None:
    stream = small.stream(6, users=4)
    left = Counter(stream.user.tolist())
    expected = []
    while left.total():
        expected += [user for user in range(4) if left[user]]
        left -= Counter(list(left))
    assert stream.user.tolist() == expected


def test_users_at_random_bring_the_same_observations(small: LastFM) -> None:
    turn, chance = (small.stream(7, serving="in turn"), small.stream(7, serving="at random"))
    assert turn.user.tolist() != chance.user.tolist()
    assert all(own(turn, user) == own(chance, user) for user in range(20))


def test_random_turns_are_proportional_to_observations_left() -> None:
    # 30 against 10 observations: the first turn goes to the former with probability 3/4, whose
    # frequency in 4,000 draws has standard deviation 0.0068.
    user, rng = np.repeat([0, 1], [30, 10]), np.random.default_rng(8)
    first = [user[turns_of(user, "at random", rng)[0]] == 0 for _ in range(4_000)]
    assert abs(np.mean(first) - 0.75) < 5 * 0.0068


# Pools


def test_one_artist_is_positive_and_the_others_are_unknown(small: LastFM) -> None:
    for event in small.stream(9, users=2, offered=8):
        artists = offered_artists(small, event)
        person = event.person
        assert len(set(artists)) == 8
        assert small.tagged[person, artists[event.positive]]
        negatives = [a for i, a in enumerate(artists) if i != event.positive]
        assert not (small.tagged | small.listened)[person, negatives].any()


def test_untagged_negatives_include_artists_listened_to(small: LastFM) -> None:
    heard = 0
    for event in small.stream(9, users=2, offered=8, negatives="untagged"):
        negatives = np.delete(offered_artists(small, event), event.positive)
        assert not small.tagged[event.person, negatives].any()
        heard += small.listened[event.person, negatives].sum()
    assert heard > 0


def test_the_positive_artist_is_the_one_observed(small: LastFM) -> None:
    stream = small.stream(10, users=2)
    for event in stream:
        assert offered_artists(small, event)[event.positive] == stream.item[event.index]
        assert (event.user, event.person) == (stream.user[event.index], stream.person[event.index])
        assert [event.reward(arm) for arm in range(25)].index(1.0) == event.positive


def test_the_place_of_the_positive_is_uniform(small: LastFM) -> None:
    # N places of 25 equally likely ones: each count has standard deviation √(N·24)/25, and five of
    # them leave 25 normal counts a chance of 1e-5.
    places = [event.positive for event in small.stream(11, users=20)]
    counts, N = np.bincount(places, minlength=25), len(places)
    assert len(counts) == 25
    assert N > 10_000
    assert np.abs(counts - N / 25).max() < 5 * sqrt(N * 24) / 25


def test_all_ordered_choices_of_negatives_are_equally_likely() -> None:
    # Rooms of 4 and 3 leave 12 and 6 ordered pairs: a count of N draws among k pairs has a
    # deviation of √(N(k − 1))/k, and five of them leave 18 normal counts a chance of 1e-5.
    room = np.tile([4, 3], 6_000)
    drawn = distinct(np.random.default_rng(12), room, 2)
    for size, k in ((4, 12), (3, 6)):
        pairs = Counter(map(tuple, drawn[room == size].tolist()))
        assert set(pairs) == set(permutations(range(size), 2))
        assert max(abs(n - 6_000 / k) for n in pairs.values()) < 5 * sqrt(6_000 * (k - 1)) / k


def test_every_artist_unknown_to_a_person_is_offered(small: LastFM) -> None:
    # 74 unknown artists in 24 places of some 150 events or more: each is missed with a chance of
    # (1 − 24/74)^150 < 1e-25.
    offered: dict[int, set[int]] = {}
    for event in small.stream(9, users=2):
        negatives = np.delete(offered_artists(small, event), event.positive)
        offered.setdefault(event.person, set()).update(negatives.tolist())
    for person, artists in offered.items():
        unknown = ~(small.tagged | small.listened)[person]
        assert artists == set(np.flatnonzero(unknown).tolist())


def test_arms_are_read_only(small: LastFM) -> None:
    event = next(iter(small.stream(0)))
    with pytest.raises(ValueError, match="read-only"):
        event.arms[0, 0] = 1.0


# Seeds


def same(one: Stream, other: Stream) -> bool:
    return len(one) == len(other) and all(
        (a.index, a.user, a.person, a.positive) == (b.index, b.user, b.person, b.positive)
        and np.array_equal(a.arms, b.arms)
        for a, b in zip(one, other, strict=True)
    )


def test_the_same_seed_gives_the_same_stream_every_time(small: LastFM) -> None:
    stream = small.stream(13, users=3)
    assert same(stream, stream)
    assert same(stream, small.stream(13, users=3))
    assert not same(stream, small.stream(14, users=3))


def test_a_seed_sequence_is_not_changed(small: LastFM) -> None:
    seed = np.random.SeedSequence(15)
    assert same(small.stream(seed, users=1), small.stream(seed, users=1))
    assert seed.n_children_spawned == 0


def test_changing_one_option_keeps_what_other_options_decide(small: LastFM) -> None:
    one, other = small.stream(16), small.stream(16, offered=5, negatives="untagged")
    assert np.array_equal(one.hybrids, other.hybrids)
    assert np.array_equal(one.item, other.item)


# Playing a stream


def test_always_choosing_the_positive_gives_25_times_random_choice(small: LastFM) -> None:
    stream = small.stream(17, users=3)
    run = play_stream(Choosing(DIM, (event.positive for event in stream)), stream)
    np.testing.assert_allclose(relative_reward(run), 25.0, rtol=1e-12)
    assert milestones(relative_reward(run)) == pytest.approx((25.0, 25.0, 25.0))


def test_never_choosing_the_positive_gives_no_reward(small: LastFM) -> None:
    stream = small.stream(17, users=3)
    avoiding = Choosing(DIM, ((event.positive + 1) % 25 for event in stream))
    assert not relative_reward(play_stream(avoiding, stream)).any()


@pytest.mark.parametrize("choice", ["uniform", "first arm"])
def test_uniform_choice_and_fixed_places_give_the_reward_of_random_choice(
    small: LastFM, choice: str
) -> None:
    # A reward is 1 with probability 1/25, so that the ratio has mean 1 and standard error
    # 25·√(0.04·0.96 / N) = √(24 / N), 0.044 here; the first arm leaks nothing if it does no better.
    stream = small.stream(18)
    policy = Uniform(DIM, seed=1) if choice == "uniform" else Choosing(DIM, iter([0] * len(stream)))
    ratio = relative_reward(play_stream(policy, stream))[-1]
    assert abs(ratio - 1) < 4 * sqrt(24 / len(stream)) < 0.2


def test_a_stream_run_records_rewards_changes_and_seconds(small: LastFM) -> None:
    stream = small.stream(19, users=1)
    policy, ticks = Choosing(DIM, iter([3] * len(stream))), count()
    calls: list[int] = []
    run = play_stream(policy, stream, progress=calls.append, clock=lambda: float(next(ticks)))
    N = len(stream)
    assert len(run) == N
    assert run.reward.tolist() == [float(event.positive == 3) for event in stream]
    assert run.changed.tolist() == [i % 3 == 2 for i in range(N)]
    assert run.warnings == (f"Learnt {N} rewards.",)
    # Two ticks pass in a round: one while deciding, one while learning.
    assert run.seconds.tolist() == [2.0] * N
    assert calls == [
        *range(REPORT_EVERY, N + 1, REPORT_EVERY),
        *([N] if N % REPORT_EVERY else []),
    ]
    for event, (user, context, reward) in zip(stream, policy.learnt, strict=True):
        assert (user, reward) == (event.user, event.reward(3))
        assert np.array_equal(context, event.arms[3])


def stream_run(stream: Stream, reward: list[float]) -> StreamRun:
    n = len(reward)
    return StreamRun(
        stream=stream,
        reward=np.array(reward),
        changed=np.zeros(n, dtype=np.bool_),
        seconds=np.zeros(n),
    )


def test_relative_reward_by_hand(small: LastFM) -> None:
    stream = small.stream(20, offered=4)
    mine, other = stream_run(stream, [1, 0, 0, 1]), stream_run(stream, [0, 1, 0, 1])
    assert relative_reward(mine).tolist() == pytest.approx([4, 2, 4 / 3, 2])
    first, *rest = relative_reward(mine, against=other).tolist()
    assert isnan(first)
    assert rest == [1.0, 1.0, 1.0]
    with pytest.raises(ShapeError, match="against has 2 events, expected 4"):
        relative_reward(mine, against=stream_run(stream, [1, 0]))


def test_milestones_are_values_at_shares_of_the_curve() -> None:
    assert milestones(np.arange(1.0, 8.0), shares=(0.01, 0.5, 1)) == (1.0, 4.0, 7.0)
    with pytest.raises(OptionError, match=r"shares is 1\.5"):
        milestones(np.ones(3), shares=(1.5,))


# The real files


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the Last.fm files are not in {REAL}")
def test_the_real_files_have_the_published_sizes() -> None:
    source = LastFM.read(REAL)
    assert source.features.shape == (12_523, 25)
    assert len(source.people) == 39
    assert min(map(len, source.events)) >= 800
    assert np.linalg.norm(source.features, axis=1).max() == pytest.approx(1.0)
    # 60 people of 1,282 observations on average, with a deviation of 420: 77,000 ± 5 · 3,300.
    stream = source.stream(0)
    assert abs(len(stream) - 77_000) < 5 * 3_300
    assert sum(1 for _ in stream) == len(stream)
