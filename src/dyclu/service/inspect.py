"""Looking inside a policy: what the service shows of it beyond its decisions.

Every function has an answer for any policy, and better ones registered for those that know more.
A policy of another kind is made visible by registering functions for its class here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np

from dyclu.policies import AdTS, DyClu, Uniform
from dyclu.policy import Ids, Policy
from dyclu.service.schema import BeliefView, SegmentView
from dyclu.validation import FloatArray

SHOWN = 60
"""Models on the map; the largest are taken."""

LISTED = 200
"""Neighbours that are listed for one user."""


@dataclass(frozen=True, slots=True)
class Group:
    """Users who share a taste: its id, how many there are, their data, and the estimate."""

    id: int
    users: int
    observations: int
    theta: FloatArray


@dataclass(frozen=True, slots=True)
class Tastes:
    """The groups there are, the largest first, and how many users are in none of them."""

    groups: list[Group] = field(default_factory=list)
    total: int = 0
    users_elsewhere: int = 0


@singledispatch
def propensity_of_best(policy: Policy, arms: int) -> float | None:
    """Return the chance that `decide` names the arm it named; None where that is not known."""
    return 1.0


@propensity_of_best.register
def _(policy: Uniform, arms: int) -> float | None:
    return 1.0 / arms


@propensity_of_best.register
def _(policy: AdTS, arms: int) -> float | None:
    return None


@singledispatch
def certainty(policy: Policy) -> float | None:
    """Return at least how sure an announced change is, None where the policy does not say."""
    return None


@certainty.register
def _(policy: DyClu) -> float | None:
    return 1.0 - policy.window_delta


@singledispatch
def segments_of(policy: Policy, user: str) -> list[SegmentView]:
    """Return the user's stretches between changes."""
    return []


@segments_of.register
def _(policy: DyClu, user: str) -> list[SegmentView]:
    book = policy.book
    return [_segment(policy, row) for row, owner in enumerate(book.owner) if owner == user]


def _segment(policy: DyClu, row: int) -> SegmentView:
    book = policy.book
    id, opened, closed = int(book.id[row]), int(book.opened[row]), int(book.closed[row])
    return SegmentView(id, opened, None if closed < 0 else closed, int(book.count[row]))


@singledispatch
def neighbours_of(policy: Policy, user: str) -> tuple[list[int], int]:
    """Return ids of data that serve the user too, the first few, and how many there are."""
    return [], 0


@neighbours_of.register
def _(policy: DyClu, user: str) -> tuple[list[int], int]:
    found = policy.neighbours(user)
    return list(found[:LISTED]), len(found)


@singledispatch
def belief_of(policy: Policy, user: str) -> list[BeliefView]:
    """Return which models the user may follow, the likeliest first, where the policy says so."""
    return []


@singledispatch
def tastes(policy: Policy) -> Tastes:
    """Return which tastes there are; a policy without groups has none to show."""
    return Tastes()


@tastes.register
def _(policy: DyClu) -> Tastes:
    """Group open segments: the one with most data takes its neighbours along, then the next."""
    book = policy.book
    rows = np.fromiter(book.open.values(), dtype=np.intp, count=len(book.open))
    free = np.zeros(len(book), dtype=np.bool_)
    free[rows] = True
    groups: list[Group] = []
    total = 0
    for row in rows[np.argsort(-book.count[rows], kind="stable")].tolist():
        if not free[row]:
            continue
        members = book.neighbours[row]
        members = members[free[members]]
        free[members] = False
        total += 1
        if len(groups) < 4 * SHOWN:
            groups.append(_group(policy, row, members))
    groups.sort(key=lambda group: -group.users)
    shown = groups[:SHOWN]
    return Tastes(shown, total, len(rows) - sum(group.users for group in shown))


def _group(policy: DyClu, row: int, members: Ids) -> Group:
    book = policy.book
    held = int(book.count[members].sum())
    return Group(int(book.id[row]), len(members), held, book.theta[row].copy())


def placed(thetas: FloatArray) -> FloatArray:
    """Return points (n, 2) whose distances resemble those of the estimates (n, dim) most.

    The first two principal components, with signs fixed so that the map does not flip over.

    >>> placed(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    points = np.zeros((len(thetas), 2))
    if len(thetas) > 1:
        centred = thetas - thetas.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        axes = axes[:2]
        largest = np.abs(axes).argmax(axis=1)
        axes = axes * np.where(axes[np.arange(len(axes)), largest] < 0, -1.0, 1.0)[:, None]
        points[:, : len(axes)] = np.round(centred @ axes.T, 9) + 0.0
    return points
