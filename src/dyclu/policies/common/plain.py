"""Default answers for policies that have no self-checks, groups, or records of single users.

A policy inherits one of these classes, or answers for itself.
"""

from __future__ import annotations

from collections.abc import Hashable

from dyclu.policy import Change, Location, Model
from dyclu.validation import User, as_user


class WithoutChecks:
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
