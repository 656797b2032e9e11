"""Oracle-LinUCB (Li, Wu, Wang: *Unifying Clustered and Non-stationary Bandits*, section 4).

One LinUCB per unique parameter. In every round the oracle knows which parameter the user follows.
Its regret is the cost of learning the parameters; the additional regret of another policy is the
cost of not knowing which users are alike and when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dyclu.core.noise import Noise
from dyclu.core.ridge import Scores
from dyclu.core.theory import exploration
from dyclu.errors import KindError
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policy import Decision, Outcome, choose
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability, as_whole

Truth = Callable[[User, int], int]
"""Takes a user and the number of their rewards so far; returns the parameter they follow now."""


class Oracle(WithoutGroups, OneByOne):
    """One linear model per unique parameter, with the knowledge of who follows which one.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    truth : callable
        ``truth(user, time)`` is the index of the parameter that the user follows in their own round
        `time`, counted from 0. It is called repeatedly, and must always return the same. A file
        holds no code: pass the truth again to `restore`.
    alpha : float or None
        A constant width factor; None takes the one of Eq. (2), which grows with the data.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from prediction errors. Only
        the width of Eq. (2) uses it.
    ridge : float
        Regularisation λ.
    delta : float
        Probability that a confidence interval misses.
    intercept : bool
        Add a constant feature, for rewards whose mean is a constant plus ``xᵀθ``.

    Examples
    --------
    >>> policy = Oracle(1, truth=lambda user, time: time % 2)
    >>> policy.learn("ana", [1.0], 0.9).segment
    0
    >>> policy.decide("ana", [[1.0]]).mean, policy.decide("bea", [[1.0]]).mean
    (0.0, 0.818...)
    """

    def __init__(
        self,
        dim: int,
        *,
        truth: Truth,
        alpha: float | None = 0.3,
        noise: float | None = None,
        ridge: float = 0.1,
        delta: float = 0.1,
        intercept: bool = False,
    ) -> None:
        if not callable(truth):
            raise KindError(
                f"truth is {truth!r} ({type(truth).__name__}), expected a callable; "
                "pass a function of a user and a round that returns the index of a parameter"
            )
        self.dim = as_dim(dim)
        self.alpha = None if alpha is None else as_positive(alpha, "alpha")
        self.ridge = as_positive(ridge, "ridge")
        self.delta = as_probability(delta, "delta")
        self.intercept = bool(intercept)
        self._known = None if noise is None else Noise.known(noise)
        self._truth = truth
        self._models = RidgeModels(self.dim + self.intercept, ridge=self.ridge)
        self._time: dict[User, int] = {}

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        parameter = self._parameter(user)
        alpha = self._alpha(parameter)
        theta, mean, width = self._models.scores(parameter, self._features(arms), alpha=alpha)
        return choose(user, Scores(theta[: self.dim], mean, width))

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the model of the user's parameter."""
        parameter = self._parameter(user)
        self._models.add(self._models.of(parameter), self._features(x), y)
        self._time[user] = self._time.get(user, 0) + 1
        return Outcome(user, segment=parameter, neighbours=np.array([parameter], dtype=np.intp))

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._time

    def _forget(self, user: User) -> None:
        """Start the user's rounds again at 0; the models keep their observations."""
        del self._time[user]

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._models.dump()
        state["time"] = [[user, time] for user, time in self._time.items()]
        return state, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._models.fill(state, arrays)
        self._time = dict(state["time"])

    def _features(self, contexts: FloatArray) -> FloatArray:
        """Return contexts, of shape (…, dim), with the constant feature if there is one."""
        if not self.intercept:
            return contexts
        return np.concatenate([contexts, np.ones((*contexts.shape[:-1], 1))], axis=-1)

    def _parameter(self, user: User) -> int:
        return as_whole(self._truth(user, self._time.get(user, 0)), "truth", least=0)

    def _alpha(self, parameter: int) -> float:
        if self.alpha is not None:
            return self.alpha
        count, noise = self._models.held(parameter), (self._known or self._models.noise()).deviation
        return exploration(count, self.dim, noise=noise, ridge=self.ridge, delta=self.delta)
