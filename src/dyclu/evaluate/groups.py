"""Users as independent groups of rows, and sums per group.

Rows of one user are not independent, users are. All intervals are therefore computed from sums per
user. Memory is bounded: beyond `MOST_GROUPS` users, further ones share the groups of others, which
leaves the groups independent.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import numpy as np

from dyclu.validation import FloatArray, Ids, User

MOST_GROUPS = 1 << 14
"""Most groups; intervals from more of them differ by less than their own random error."""


class UserGroups:
    """Assigns every user to a group, in order of appearance.

    Examples
    --------
    >>> groups = UserGroups()
    >>> groups.of(["ana", "ben", "ana"]), len(groups)
    (array([0, 1, 0]), 2)
    """

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self._most = most
        self._known: dict[User, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def full(self) -> bool:
        """Whether several users may share a group."""
        return len(self._known) >= self._most

    def of(self, users: Iterable[User]) -> Ids:
        """Return the group of each user."""
        return np.fromiter(map(self._group, users), dtype=np.intp)

    def _group(self, user: User) -> int:
        known = self._known
        if user in known:
            return known[user]
        if len(known) < self._most:
            return known.setdefault(user, len(known))
        # Not `hash`, which differs from run to run for text.
        return crc32(repr(user).encode()) % self._most


class GroupSums:
    """Sums of several columns per group.

    Examples
    --------
    >>> sums = GroupSums("clicks", "shown")
    >>> sums.add(np.array([0, 1, 0]), clicks=np.array([1.0, 0.0, 1.0]), shown=np.ones(3))
    >>> sums["clicks"], sums["shown"]
    (array([2., 0.]), array([2., 1.]))
    """

    def __init__(self, *names: str) -> None:
        self._columns = {name: np.zeros(0) for name in names}

    def add(self, groups: Ids, **columns: FloatArray) -> None:
        """Add one number per row to the sums of its group, for every column."""
        if not len(groups):
            return
        size = max(int(groups.max()) + 1, len(self))
        for name, kept in self._columns.items():
            new: FloatArray = np.bincount(groups, weights=columns[name], minlength=size).astype(
                float
            )
            new[: len(kept)] += kept
            self._columns[name] = new

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> FloatArray:
        return self._columns[name]

    def total(self, name: str) -> float:
        """Return the sum of a column over all groups."""
        return float(self._columns[name].sum())
