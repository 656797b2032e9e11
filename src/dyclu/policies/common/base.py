"""What every policy does alike: it checks its input, takes batches, is saved and restored.

A policy of this library inherits `PolicyBase`, or `OneByOne` if its batches are loops, and defines
the abstract methods. Their arguments are checked, and their arrays may be changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from inspect import signature
from os import PathLike
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from dyclu.core.noise import Noise
from dyclu.errors import OlderFile, ShapeError
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutChecks
from dyclu.policy import Decision, History, Named, Outcome
from dyclu.storage import Saved, write
from dyclu.validation import (
    FloatArray,
    User,
    as_arms,
    as_context,
    as_contexts,
    as_reward,
    as_rewards,
    as_tables,
    as_user,
    as_users,
)

Arrays = dict[str, NDArray[Any]]


class PolicyBase(WithoutChecks, ABC):
    """A policy without its statistics.

    Every option of the constructor is an attribute of the same name, except `noise`: None or the
    given value is `_known`. Arguments without an attribute, such as a seed, are not saved.

    Examples
    --------
    >>> from dyclu import LinUCB
    >>> LinUCB(3, alpha=0.3)
    LinUCB(dim=3, noise=None, ridge=0.1, delta=0.1, alpha=0.3, shared=False)
    """

    dim: int
    _known: Noise | None = None
    _zero_tiny = True
    """Whether `learn` sets tiny features to 0; if not, `_learn` must do it."""

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose one row of `arms` (K, dim) for this user; changes nothing."""
        return self._decide(as_user(user), as_arms(arms, self.dim))

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Learn from the reward of the chosen context (dim,)."""
        name, x = as_user(user), as_context(context, self.dim, zero_tiny=self._zero_tiny)
        return self._learn(name, x, as_reward(reward))

    def decide_many(self, users: Iterable[Hashable], arms: ArrayLike) -> Decisions:
        """Choose one row of each table of `arms` (n, K, dim), for n users; changes nothing."""
        names = as_users(users)
        return self._decide_many(names, as_tables(arms, len(names), self.dim))

    def learn_many(
        self, users: Iterable[Hashable], contexts: ArrayLike, rewards: ArrayLike
    ) -> Outcomes:
        """Learn from the rewards (n,) of the chosen contexts (n, dim), in their order."""
        names = as_users(users)
        table = as_contexts(contexts, len(names), self.dim)
        return self._learn_many(names, table, as_rewards(rewards, len(names)))

    def fit(self, log: History) -> Self:
        """Learn from all rows of a log, in their order; returns the policy.

        If a row is refused, or reading is interrupted, the policy is as it was before.

        Parameters
        ----------
        log : dyclu.Log
            Or anything else that yields observations in order of time.

        Examples
        --------
        >>> import dyclu
        >>> log = dyclu.Log.of_arrays(
        ...     user=["ana", "ben"], arms=[[[1.0, 0.0]], [[0.0, 1.0]]], chosen=[0, 0], reward=[1, 0]
        ... )
        >>> sorted(dyclu.LinUCB(2).fit(log).users)
        ['ana', 'ben']
        """
        if log.dim != self.dim:
            raise ShapeError(
                f"the log has {log.dim} features, this policy was built for {self.dim}; "
                f"pass dim={log.dim}"
            )
        # Parts that refer to the policy must go on to refer to it, not to a copy.
        before = deepcopy(vars(self), {id(self): self})
        try:
            for users, contexts, rewards in log.observations():
                self.learn_many(users, contexts, rewards)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    @property
    def users(self) -> tuple[User, ...]:
        """The users of whom the policy keeps something; empty if all users share one model."""
        return tuple(self._by_user)

    def forget(self, user: Hashable) -> None:
        """Remove what is kept of this user alone; unknown users are ignored."""
        user = as_user(user)
        if user in self._by_user:
            self._forget(user)

    def save(self, path: str | PathLike[str], *, features: Named | None = None) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit.

        With `features`, they are written to the same file; `dyclu.Features.load` reads them.
        """
        if features is not None and features.dim != self.dim:
            raise ShapeError(
                f"the features make vectors of {features.dim} numbers, this policy was built for "
                f"{self.dim}; save it with the features that it learnt with"
            )
        beside = {} if features is None else {"features": features.dump()}
        write(path, Saved(type(self).__name__, self._options(), *self._dump(), beside))

    @classmethod
    def restore(cls, saved: Saved, **unsaved: Any) -> Self:
        """Return the policy that was saved; `unsaved` are arguments that a file cannot hold."""
        gone = sorted(set(saved.options) - set(signature(cls).parameters))
        if gone:
            raise OlderFile(
                f"the file holds a {cls.__name__} with options that no longer exist: "
                f"{', '.join(gone)}; load it with the version that saved it, or learn anew"
            )
        policy = cls(**saved.options, **unsaved)
        policy._fill(saved.state, saved.arrays)
        return policy

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self._options().items())
        return f"{type(self).__name__}({', '.join(options)})"

    def _options(self) -> dict[str, Any]:
        kept = vars(self) | {"noise": self._known and self._known.deviation}
        return {name: kept[name] for name in signature(type(self)).parameters if name in kept}

    @property
    @abstractmethod
    def _by_user(self) -> Mapping[User, Any]:
        """What is kept of each user alone."""

    @abstractmethod
    def _decide(self, user: User, arms: FloatArray) -> Decision: ...

    @abstractmethod
    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome: ...

    @abstractmethod
    def _decide_many(self, users: list[User], arms: FloatArray) -> Decisions: ...

    @abstractmethod
    def _learn_many(self, users: list[User], X: FloatArray, y: FloatArray) -> Outcomes: ...

    @abstractmethod
    def _forget(self, user: User) -> None:
        """Remove what is kept of a known user."""

    @abstractmethod
    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        """Return the complete state: a dict for JSON, and arrays."""

    @abstractmethod
    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore the state that `_dump` returned, in a new policy with the same options."""


class OneByOne(PolicyBase):
    """A policy whose batches are loops over single decisions and rewards.

    Examples
    --------
    >>> from dyclu import DyClu
    >>> policy = DyClu(2)
    >>> policy.learn_many(["ana", "ben"], [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.5]).segment
    array([0, 1])
    >>> policy.decide_many(["ana", "ben"], [[[1.0, 0.0], [0.0, 1.0]]] * 2).arm
    array([1, 0])
    """

    def _decide_many(self, users: list[User], arms: FloatArray) -> Decisions:
        return Decisions.of(map(self._decide, users, arms))

    def _learn_many(self, users: list[User], X: FloatArray, y: FloatArray) -> Outcomes:
        return Outcomes.of(map(self._learn, users, X, y.tolist()))
