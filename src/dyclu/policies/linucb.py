"""LinUCB (Abbasi-Yadkori, Pál, Szepesvári 2011): ridge regression with confidence bounds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.core.noise import Noise
from dyclu.core.theory import exploration
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policy import Decision, Outcome, choose, described
from dyclu.storage import Saved, write
from dyclu.validation import (
    User,
    as_arms,
    as_context,
    as_contexts,
    as_dim,
    as_positive,
    as_probability,
    as_reward,
    as_rewards,
    as_tables,
    as_user,
    as_users,
)

EVERYBODY: User = "everybody"
"""Key of the one model of a policy with ``shared=True``."""


class LinUCB(WithoutGroups):
    """One linear model per user, or one for all users. It assumes that users do not change.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors.
    ridge : float
        Regularisation λ.
    delta : float
        Probability that a confidence interval misses.
    alpha : float or None
        A constant width factor; None takes the one of Eq. (2), which grows with the data.
    shared : bool
        Use one model for all users instead of one per user.

    Examples
    --------
    >>> policy = LinUCB(2, alpha=0.5)
    >>> outcome = policy.learn("ana", [1.0, 0.0], 1.1)
    >>> policy.decide("ana", [[1.0, 0.0], [0.0, 1.0]])
    Decision(user='ana', arm=1, mean=0.0, width=1.581...)
    """

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        ridge: float = 0.1,
        delta: float = 0.1,
        alpha: float | None = None,
        shared: bool = False,
    ) -> None:
        self.dim = as_dim(dim)
        self.ridge = as_positive(ridge, "ridge")
        self.delta = as_probability(delta, "delta")
        self.alpha = None if alpha is None else as_positive(alpha, "alpha")
        self.shared = bool(shared)
        self._known = None if noise is None else Noise.known(noise)
        self._models = RidgeModels(self.dim, ridge=self.ridge)

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        key = self._key(user)
        (alpha,) = self._alphas([key])
        return choose(user, self._models.scores(key, arms, alpha=alpha))

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Add the observation to the user's model."""
        user, x, y = as_user(user), as_context(context, self.dim), as_reward(reward)
        self._models.add(self._models.of(self._key(user)), x, y)
        return Outcome(user)

    def decide_many(self, users: Iterable[Hashable], arms: ArrayLike) -> Decisions:
        """Choose one row of each table of `arms` (n, K, dim), for n users; changes nothing."""
        names = as_users(users)
        tables = as_tables(arms, len(names), self.dim)
        keys = [self._key(user) for user in names]
        alpha = np.array(self._alphas(keys))
        chosen = self._models.choose_many(keys, tables, alpha=alpha)
        return replace(chosen, users=tuple(names))

    def learn_many(
        self, users: Iterable[Hashable], contexts: ArrayLike, rewards: ArrayLike
    ) -> Outcomes:
        """Add observations (n, dim) and (n,) to the users' models, in their order."""
        names = as_users(users)
        table, values = as_contexts(contexts, len(names), self.dim), as_rewards(rewards, len(names))
        rows = np.array([self._models.of(self._key(user)) for user in names], dtype=np.intp)
        self._models.add_many(rows, table, values)
        return Outcomes.uneventful(names)

    @property
    def users(self) -> tuple[User, ...]:
        """The users who have a model; empty if one model is shared by all."""
        return () if self.shared else tuple(self._models.row)

    def forget(self, user: Hashable) -> None:
        """Remove the user's model; a model that all users share keeps their observations."""
        user = as_user(user)
        if not self.shared and user in self._models.row:
            self._models.remove(user)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        state, arrays = self._models.dump()
        write(path, Saved("LinUCB", self._options(), state, arrays))

    @classmethod
    def restore(cls, saved: Saved) -> LinUCB:
        """Return the policy that was saved."""
        policy = cls(**saved.options)
        policy._models.fill(saved.state, saved.arrays)
        return policy

    def __repr__(self) -> str:
        return described("LinUCB", self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "noise": None if self._known is None else self._known.deviation,
            "ridge": self.ridge,
            "delta": self.delta,
            "alpha": self.alpha,
            "shared": self.shared,
        }

    def _key(self, user: User) -> User:
        return EVERYBODY if self.shared else user

    def _alphas(self, keys: Sequence[User]) -> list[float]:
        if self.alpha is not None:
            return [self.alpha] * len(keys)
        noise = (self._known or self._models.noise()).deviation
        return [
            exploration(count, self.dim, noise=noise, ridge=self.ridge, delta=self.delta)
            for count in map(self._models.held, keys)
        ]
