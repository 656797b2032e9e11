"""LinUCB (Abbasi-Yadkori, Pál, Szepesvári 2011): ridge regression with confidence bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dyclu.core.noise import Noise
from dyclu.core.theory import exploration
from dyclu.policies.common.base import Arrays, PolicyBase
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policy import Decision, Outcome
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability

EVERYBODY: User = "everybody"
"""Key of the one model of a policy with ``shared=True``."""


class LinUCB(WithoutGroups, PolicyBase):
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

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        key = self._key(user)
        (alpha,) = self._alphas([key])
        return self._models.decide(user, key, arms, alpha=alpha)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user's model."""
        self._models.add(self._models.of(self._key(user)), x, y)
        return Outcome(user)

    def _decide_many(self, users: list[User], arms: FloatArray) -> Decisions:
        keys = [self._key(user) for user in users]
        chosen = self._models.choose_many(keys, arms, alpha=np.array(self._alphas(keys)))
        return replace(chosen, users=tuple(users))

    def _learn_many(self, users: list[User], X: FloatArray, y: FloatArray) -> Outcomes:
        rows = np.array([self._models.of(self._key(user)) for user in users], dtype=np.intp)
        self._models.add_many(rows, X, y)
        return Outcomes.uneventful(users)

    @property
    def _by_user(self) -> Mapping[User, int]:
        return {} if self.shared else self._models.row

    def _forget(self, user: User) -> None:
        self._models.remove(user)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        return self._models.dump()

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._models.fill(state, arrays)

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
