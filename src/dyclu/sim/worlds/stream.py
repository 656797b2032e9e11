"""Recorded events as a world: one draw of an experiment with people who were observed.

`Event` is one visit of a user, `Stream` all visits of one draw. A user is several people one after
the other, so users change at known times. In every event one of the offered items is positive: the
person chose it in the recording. It has reward 1, the others 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyclu.sim.worlds.draws import distinct
from dyclu.sim.worlds.population import CHUNK
from dyclu.validation import FloatArray, Ids

Order = Literal["shuffled", "dated", "published"]
Serving = Literal["in turn", "at random"]
Flags = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""The date of something that does not happen."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One visit of one user.

    Attributes
    ----------
    index : int
        Number of the event among those of all users.
    user : int
        The user.
    person : int
        Number of the observed person; policies do not see it.
    arms : array of shape (offered, dim)
        Features of the offered items, read-only.
    positive : int
        The row of `arms` with reward 1; the others have reward 0.
    """

    index: int
    user: int
    person: int
    arms: FloatArray = field(repr=False)
    positive: int

    def reward(self, arm: int) -> float:
        """Return 1 for the positive item, 0 for any other."""
        return float(arm == self.positive)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """One draw of an experiment; iterating gives its events, the same ones every time.

    Attributes
    ----------
    features : array of shape (items, dim)
        Features of all items.
    hybrids : int array of shape (users, parts)
        The people that each user is, one after the other.
    user, person, item : int arrays, one entry per event
        The user, the observed person, and the positive item (a row of `features`).
    offered : int
        Items per event.
    known_since : int array of shape (people, items)
        Date from which each person knows each item; `NEVER` if there is none. Items that a person
        knows are not offered as negatives.
    pools : SeedSequence
        Seed of the negatives and of the position of the positive item.
    date : int array, one entry per event, or None
        Dates of the events, in the unit of `known_since`. The offers of an event then depend only
        on it and on the events before it. None: a person knows the same items at all events, and
        the offers of many events are drawn at once, which is faster.
    """

    features: FloatArray = field(repr=False)
    hybrids: Ids
    user: Ids
    person: Ids
    item: Ids
    offered: int
    known_since: Ids = field(repr=False)
    pools: np.random.SeedSequence = field(repr=False)
    date: Ids | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        dates = () if self.date is None else (self.date,)
        for array in (self.hybrids, self.user, self.person, self.item, self.known_since, *dates):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.user)

    def __iter__(self) -> Iterator[Event]:
        rng = np.random.default_rng(self.pools)
        if self.date is not None:
            yield from map(self._event, range(len(self)), self.date, repeat(rng))
            return
        # In each row, the items that the person does not know come first.
        known = self.known_since < NEVER
        unknown, room = np.argsort(known, axis=1, kind="stable"), (~known).sum(axis=1)
        for start in range(0, len(self), CHUNK):
            yield from self._chunk(slice(start, start + CHUNK), unknown, room, rng)

    def _event(self, index: int, date: int, rng: np.random.Generator) -> Event:
        user, person, item = self.user[index], self.person[index], self.item[index : index + 1]
        place = rng.integers(self.offered, size=1)
        unknown = np.flatnonzero(self.known_since[person] > date)
        others = rng.choice(unknown, (1, self.offered - 1), replace=False)
        (arms,) = self._arms(others, item, place)
        return Event(index, int(user), int(person), arms, int(place[0]))

    def _chunk(
        self, part: slice, unknown: Ids, room: Ids, rng: np.random.Generator
    ) -> Iterator[Event]:
        user, person, index = self.user[part], self.person[part], range(len(self))[part]
        place = rng.integers(self.offered, size=len(index))
        others = unknown[person[:, None], distinct(rng, room[person], self.offered - 1)]
        arms = self._arms(others, self.item[part], place)
        return map(Event, index, user.tolist(), person.tolist(), arms, place.tolist())

    def _arms(self, others: Ids, item: Ids, place: Ids) -> FloatArray:
        arms = self.features[_inserted(others, item, place)]
        arms.flags.writeable = False
        return arms


def draw_hybrids(rng: np.random.Generator, people: int, users: int, parts: int) -> Ids:
    """Return the people that each user is, shape (users, parts), distinct within a user."""
    return np.stack([rng.choice(people, parts, replace=False) for _ in range(users)])


def order_of(order: Order, dates: Ids, rng: np.random.Generator) -> Ids:
    """Return the order in which the observations of one person are served."""
    if order == "published":
        return np.arange(len(dates))
    shuffled = rng.permutation(len(dates))
    return shuffled if order == "shuffled" else shuffled[np.argsort(dates[shuffled], kind="stable")]


def turns_of(user: Ids, serving: Serving, rng: np.random.Generator) -> Ids:
    """Return the order in which to serve observations that are sorted by user.

    >>> user = np.array([0, 0, 0, 1])
    >>> user[turns_of(user, "in turn", np.random.default_rng(0))]
    array([0, 1, 0, 0])
    """
    if serving == "in turn":
        time = np.arange(len(user)) - np.searchsorted(user, user)
        return np.lexsort((user, time))
    # Users come in the order of a shuffled list; each brings their next observation.
    turns = np.empty(len(user), dtype=np.intp)
    turns[np.argsort(rng.permutation(user), kind="stable")] = np.arange(len(user))
    return turns


def _inserted(others: Ids, item: Ids, place: Ids) -> Ids:
    """Return each row of `others` with its item at its place; what was there goes last."""
    rows = np.arange(len(item))
    pools = np.column_stack([others, item])
    pools[rows, -1] = pools[rows, place]
    pools[rows, place] = item
    return pools
