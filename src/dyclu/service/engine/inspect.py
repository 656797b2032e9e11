"""Looking inside a policy: what the service needs of it beyond its two verbs.

Every function has an answer for any policy, and better ones registered for those that know more.
A policy of another kind is made visible by registering functions for its class here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np

from dyclu.policies import AdTS, Atlas, DyClu, Uniform
from dyclu.policy import Outcome, Policy
from dyclu.service.schema import BeliefView, SegmentView
from dyclu.validation import FloatArray, Ids

SHOWN = 60
"""Models on the map; the largest are taken."""

LISTED = 200
"""Neighbours that are listed for one user."""

FAINTEST = 0.001
"""Least chance of a model that is shown."""


@dataclass(frozen=True, slots=True)
class Group:
    """Users who share a taste: its id, how many there are, their data, and the estimate."""

    id: int
    users: int
    observations: int
    theta: FloatArray


@dataclass(frozen=True, slots=True)
class Tastes:
    """The largest groups, the largest first, and how many there are in all."""

    groups: list[Group] = field(default_factory=list)
    total: int = 0


@dataclass(frozen=True, slots=True)
class Announced:
    """A change as the policy tells it: from which model to which, and at least how sure it is."""

    before: int | None
    after: int | None
    certainty: float | None = None


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
def announced(policy: Policy, outcome: Outcome, before: int | None) -> Announced:
    """Return the change that an outcome tells of; the user's rewards went to `before`."""
    return Announced(before, outcome.segment)


@announced.register
def _(policy: DyClu, outcome: Outcome, before: int | None) -> Announced:
    return Announced(before, outcome.segment, 1.0 - policy.window_delta)


@announced.register
def _(policy: Atlas, outcome: Outcome, before: int | None) -> Announced:
    move = policy.changes[-1]
    return Announced(move.before, move.after, move.certainty)


@singledispatch
def model_of(policy: Policy, user: str, told: int | None) -> int | None:
    """Return the model a user is on; `told` is the one that their last outcome named."""
    return told


@model_of.register
def _(policy: Atlas, user: str, told: int | None) -> int | None:
    return policy.locate(user).model


@singledispatch
def segments_of(policy: Policy, user: str) -> list[SegmentView] | None:
    """Return the user's stretches between changes, None where the policy keeps no book of them."""
    return None


@segments_of.register
def _(policy: DyClu, user: str) -> list[SegmentView] | None:
    book = policy.table
    return [_segment(policy, row) for row, owner in enumerate(book.owner) if owner == user]


def _segment(policy: DyClu, row: int) -> SegmentView:
    book = policy.table
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


@belief_of.register
def _(policy: Atlas, user: str) -> list[BeliefView]:
    found = policy.locate(user)
    chances: list[tuple[int | None, float]] = [*found.belief.items(), (None, found.new)]
    shown = [BeliefView(model, chance) for model, chance in chances if chance >= FAINTEST]
    return sorted(shown, key=lambda view: -view.probability)


@singledispatch
def tastes(policy: Policy) -> Tastes:
    """Return which tastes there are; a policy without groups has none to show."""
    return Tastes()


@tastes.register
def _(policy: DyClu) -> Tastes:
    """Group open segments: the one with most data takes its neighbours along, then the next."""
    book = policy.table
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
    return Tastes(_largest(groups), total)


@tastes.register
def _(policy: Atlas) -> Tastes:
    groups = [Group(one.id, one.users, one.size, one.estimate) for one in policy.models]
    return Tastes(_largest(groups), len(groups))


def _largest(groups: list[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: -group.users)[:SHOWN]


def _group(policy: DyClu, row: int, members: Ids) -> Group:
    book = policy.table
    held = int(book.count[members].sum())
    return Group(int(book.id[row]), len(members), held, book.theta[row].copy())


@singledispatch
def forget(policy: Policy, user: str) -> None:
    """Let a policy that can forget a user do so; others know them until they are made anew."""


@forget.register
def _(policy: Atlas, user: str) -> None:
    policy.forget(user)


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
