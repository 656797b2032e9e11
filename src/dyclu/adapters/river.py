"""river: a policy in river's protocol of contextual bandits (`pull` and `update`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from river import bandit, stats

from dyclu.errors import OptionError
from dyclu.policy import Policy

Vector = Callable[[Any, Mapping[str, Any]], ArrayLike]
"""Takes an arm's id and the context; returns the features of this arm in this context."""


class RiverPolicy(bandit.base.ContextualPolicy):
    """A policy of dyclu as a `river.bandit.base.ContextualPolicy`.

    Parameters
    ----------
    make : callable
        Makes a new policy, such as ``lambda: dyclu.Atlas(5)``. river clones policies, and a clone
        begins without what the original has learnt.
    vector : callable
        ``vector(arm_id, context)`` is the vector of an arm's features.
    user : str
        Where a context has its user.
    reward_obj, burn_in
        As in river: the statistic by which `ranking` orders arms, and how often each arm is pulled
        before the policy decides.

    Examples
    --------
    >>> import dyclu
    >>> films = {"Bullitt": [1.0, 0.0], "Whiplash": [0.0, 1.0]}
    >>> policy = RiverPolicy(lambda: dyclu.LinUCB(2, alpha=0.1), lambda arm, context: films[arm])
    >>> for film, reward in (("Bullitt", 0.2), ("Whiplash", 0.9)) * 5:
    ...     policy.update(film, {"user": "ana"}, reward)
    >>> policy.pull(list(films), context={"user": "ana"}), policy.ranking
    ('Whiplash', ['Whiplash', 'Bullitt'])
    """

    def __init__(
        self,
        make: Callable[[], Policy],
        vector: Vector,
        user: str = "user",
        reward_obj: stats.base.Statistic | None = None,
        burn_in: int = 0,
    ) -> None:
        super().__init__(reward_obj=reward_obj, burn_in=burn_in)
        self.make = make
        self.vector = vector
        self.user = user
        self.policy = make()

    @property
    def ranking(self) -> list[Any]:
        """The arms by their statistic, best first."""
        found: Mapping[Any, Any] = self._rewards
        return sorted(found, key=lambda arm: found[arm].get(), reverse=True)

    def _pull(  # type: ignore[override]  # as in river's own ContextualPolicy
        self, arm_ids: Sequence[Any], context: Mapping[str, Any] | None
    ) -> Any:
        user, arms = self._user(context), list(arm_ids)
        vectors = np.array([self.vector(arm, context or {}) for arm in arms])
        return arms[self.policy.decide(user, vectors).arm]

    def update(self, arm_id: Any, context: Mapping[str, Any] | None, reward: float) -> None:
        """Learn from the reward of an arm."""
        self.policy.learn(self._user(context), self.vector(arm_id, context or {}), reward)
        super().update(arm_id, context, reward)  # type: ignore[no-untyped-call]

    def _user(self, context: Mapping[str, Any] | None) -> Any:
        if context is None or self.user not in context:
            raise OptionError(
                f"the context is {context!r}, expected a dict with the user as {self.user!r}; "
                "add it, or pass user= with another name"
            )
        return context[self.user]
