"""What every policy does alike: it checks its input, takes batches, is saved and restored.

A policy of this library inherits `PolicyBase`, or `OneByOne` if its batches are loops, and defines
the abstract methods. Their arguments are checked, and their arrays may be changed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from os import PathLike
from typing import Any, Self, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dyclu.core.noise import Noise
from dyclu.display import html_table, plotted
from dyclu.errors import KindError, OlderFile, OptionError, ShapeError
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutChecks
from dyclu.policy import Decision, History, Named, Outcome, Policy, Slate, fill_slots
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
    as_whole,
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

    @overload
    def decide(self, user: Hashable, arms: ArrayLike) -> Decision: ...

    @overload
    def decide(
        self, user: Hashable, arms: ArrayLike, *, slots: int, position: int | None = None
    ) -> Slate: ...

    def decide(
        self,
        user: Hashable,
        arms: ArrayLike,
        *,
        slots: int | None = None,
        position: int | None = None,
    ) -> Decision | Slate:
        """Choose one row of `arms` (K, dim) for this user; changes nothing.

        With `slots`, choose so many different rows, for the places of one page, the best first; it
        costs as much as one decision per slot. `position` is the column of the arms that says where
        an arm is shown: it is overwritten by `dyclu.policy.position_of` of the slot. Learn each
        slot's reward with the slate's context.

        Examples
        --------
        >>> from dyclu import LinUCB
        >>> arms = [[0.1, 0.0], [0.3, 0.0], [0.2, 0.0]]
        >>> slate = LinUCB(2, alpha=0.5).decide("ana", arms, slots=2, position=1)
        >>> slate.arms, slate.contexts[1]
        ((1, 2), array([0.2, 0.5]))
        """
        if slots is None and position is None:
            return self._decide(as_user(user), as_arms(arms, self.dim))
        return self._slate(as_user(user), as_arms(arms, self.dim), slots, position)

    def _slate(
        self, user: User, arms: FloatArray, slots: int | None, position: int | None
    ) -> Slate:
        if slots is None:
            raise OptionError(f"position is {position}, expected slots with it; pass slots=1, say")
        count = as_whole(slots, "slots", least=1)
        if count > len(arms):
            raise OptionError(
                f"slots is {count}, but there are {len(arms)} arms, and none is chosen twice; "
                f"pass slots={len(arms)}, or more arms"
            )
        if position is not None:
            position = as_whole(position, "position", least=0, most=self.dim - 1)
        filled = list(fill_slots(lambda left: self._decide(user, left), arms, count, position))
        decisions = tuple(replace(made, arm=row) for row, _, made in filled)
        return Slate(user, decisions, np.array([x for _, x, _ in filled]))

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
        if not isinstance(log, History):
            raise KindError(
                f"the log is {type(log).__name__}, expected a dyclu.Log; "
                "use dyclu.Log.read or dyclu.Log.of_arrays"
            )
        if log.dim != self.dim:
            raise ShapeError(
                f"the log has {log.dim} features, this policy was built for {self.dim}; "
                f"pass dim={log.dim}"
            )
        before = self._copy()
        try:
            for users, contexts, rewards in log.observations():
                self.learn_many(users, contexts, rewards)
        except BaseException:
            vars(self).clear()
            vars(self).update(vars(before))
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

    def _repr_html_(self) -> str:
        """Return the policy as notebooks show it: options, what it has learnt, and its warnings."""
        policy = cast(Policy, self)  # only whole policies are shown, never their base alone
        learnt = [
            ("users", len(policy.users)),
            ("models", len(policy.models)),
            ("changes", len(policy.changes)),
        ]
        title = type(self).__name__
        return html_table(title, [*self._options().items(), *learnt], note=" ".join(self.warnings))

    def plot(self, user: Hashable = None, *, names: Sequence[str] | None = None) -> Any:
        """Draw the models, or what is known about one user; needs matplotlib (extra `plots`).

        `names` are the features' names. Returns a `matplotlib.figure.Figure`: see
        `dyclu.plots.plot`. A policy that forms no groups of users raises `KindError`.
        """
        return plotted(self, user, names)

    def _options(self) -> dict[str, Any]:
        kept = vars(self) | {"noise": self._known and self._known.deviation}
        return {name: kept[name] for name in signature(type(self)).parameters if name in kept}

    def _copy(self) -> Self:
        """Return a policy that continues as this one, and shares nothing that changes with it."""
        # Not by `deepcopy`: some arrays are views of others, and copies of both are not.
        state, arrays = self._dump()
        options = self._options()
        plain = json.loads(json.dumps(state))
        saved = Saved(type(self).__name__, options, plain, deepcopy(arrays))
        unsaved = {
            name: vars(self)[f"_{name}"]
            for name in signature(type(self)).parameters
            if name not in options and f"_{name}" in vars(self)
        }
        return self.restore(saved, **unsaved)

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
