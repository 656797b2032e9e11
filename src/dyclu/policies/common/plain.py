"""Default answers for policies that share nothing, or have no self-checks, groups, or records.

A policy inherits one of these classes, or answers for itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NoReturn

from dyclu.contributions import Contribution, Registry
from dyclu.errors import CannotShare
from dyclu.policy import THRESHOLD, Change, Location, Model
from dyclu.validation import User, as_user


class WithoutSharing:
    """The answers of a policy that cannot learn from what other shards have learnt.

    Examples
    --------
    >>> from dyclu import DyClu
    >>> DyClu(2).shares
    False
    >>> DyClu(2).absorb([], shard="berlin")
    Traceback (most recent call last):
    ...
    dyclu.errors.CannotShare: DyClu cannot share what it learns with other shards, ...
    """

    __slots__ = ()

    @property
    def shares(self) -> bool:
        """Whether `contributions` and `absorb` work: they do not."""
        return False

    def contributions(
        self,
        shard: str,
        *,
        since: Registry | Iterable[Contribution] = (),
        threshold: float = THRESHOLD,
    ) -> tuple[Contribution, ...]:
        """Raise `CannotShare`: the policy has no sums that other shards could add up."""
        self._refuse_to_share()

    def absorb(self, contributions: Iterable[Contribution], *, shard: str) -> int:
        """Raise `CannotShare`: the policy has no use for sums of other shards."""
        self._refuse_to_share()

    def withdraw(self) -> None:
        """Do nothing: the policy has absorbed nothing."""

    def _refuse_to_share(self) -> NoReturn:
        raise CannotShare(
            f"{type(self).__name__} cannot share what it learns with other shards, expected Atlas, "
            "or LinUCB with shared=True; use one of these, or one shard for all users"
        )


class WithoutChecks(WithoutSharing):
    """The answer of a policy that does not check whether the rewards fit its assumptions.

    Examples
    --------
    >>> from dyclu import LinUCB
    >>> LinUCB(2).warnings
    ()
    """

    __slots__ = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """No warnings: the policy has no self-checks."""
        return ()


class WithoutGroups(WithoutChecks):
    """Answers of a policy that forms no groups of users and keeps no record of changes.

    Examples
    --------
    >>> from dyclu import LinUCB
    >>> LinUCB(2).models, LinUCB(2).changes, LinUCB(2).locate("ana").model
    ((), (), None)
    """

    __slots__ = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """No changes: the policy keeps no record of them."""
        return ()

    @property
    def models(self) -> tuple[Model, ...]:
        """No models: the policy lists no groups of users."""
        return ()

    def locate(self, user: Hashable) -> Location:
        """Return the location of a user about whom nothing is known."""
        return Location(as_user(user))


class WithoutUsers(WithoutGroups):
    """Answers of a policy that keeps nothing of any single user; for policies of your own."""

    __slots__ = ()

    @property
    def users(self) -> tuple[User, ...]:
        """No users: nothing is kept of any of them."""
        return ()

    def forget(self, user: Hashable) -> None:
        """Do nothing: nothing is kept of this user alone."""
        as_user(user)
