"""LinUCB (Abbasi-Yadkori, Pál, Szepesvári 2011): ridge regression with confidence bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dyclu.contributions import Contribution, Registry, as_registry, as_shard, checked
from dyclu.core.noise import Noise
from dyclu.core.stats import Stats
from dyclu.core.theory import exploration
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, PolicyBase
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policies.common.plain import WithoutGroups
from dyclu.policies.common.pooling import MODEL, Pooling
from dyclu.policies.common.ridge_models import RidgeModels
from dyclu.policy import THRESHOLD, Decision, Outcome
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_probability, as_threshold

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
        Use one model for all users instead of one per user. Shards of such a policy can share what
        they learn (FedLinUCB, He et al. 2022; docs/theory.md §11).

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
        self._pooling = Pooling(self.dim)

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the highest upper confidence bound; changes nothing."""
        key = self._key(user)
        (alpha,) = self._alphas([key])
        return self._models.decide(user, key, arms, alpha=alpha)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Add the observation to the user's model."""
        self._pool()
        self._pooling.add(x, y)
        self._models.add(self._models.of(self._key(user)), x, y)
        return Outcome(user)

    def _decide_many(self, users: list[User], arms: FloatArray) -> Decisions:
        keys = [self._key(user) for user in users]
        chosen = self._models.choose_many(keys, arms, alpha=np.array(self._alphas(keys)))
        return replace(chosen, users=tuple(users))

    def _learn_many(self, users: list[User], X: FloatArray, y: FloatArray) -> Outcomes:
        self._pool()
        for x, reward in zip(X, y.tolist(), strict=True):
            self._pooling.add(x, reward)
        rows = np.array([self._models.of(self._key(user)) for user in users], dtype=np.intp)
        self._models.add_many(rows, X, y)
        return Outcomes.uneventful(users)

    @property
    def _by_user(self) -> Mapping[User, int]:
        return {} if self.shared else self._models.row

    def _forget(self, user: User) -> None:
        self._models.remove(user)

    @property
    def shares(self) -> bool:
        """Whether `contributions` and `absorb` work: with one model for all users."""
        return self.shared

    def contributions(
        self,
        shard: str,
        *,
        since: Registry | Iterable[Contribution] = (),
        threshold: float = THRESHOLD,
    ) -> tuple[Contribution, ...]:
        """Return the sums of this shard's own rewards if they are news; changes nothing.

        They are if the determinant of ``λI + Σxxᵀ``, with the sums of other shards, has grown by
        the factor ``1 + threshold`` through rewards that were not published yet. `since` is what
        the shard has published so far.
        """
        if not self.shared:
            self._refuse_to_share()
        last = as_registry(since).get(as_shard(shard), MODEL)
        own = self._pooling.own or self._everything()
        growth = as_threshold(threshold)
        return self._pooling.news(shard, own, self._everything(), last, self.ridge, growth)

    def absorb(self, contributions: Iterable[Contribution], *, shard: str) -> int:
        """Learn from contributions of other shards; return how many were news.

        They count from the next reward on. `shard` is this shard: its own ones are ignored.

        Examples
        --------
        >>> berlin, paris = LinUCB(1, shared=True), LinUCB(1, shared=True)
        >>> outcome = berlin.learn("ana", [1.0], 2.0)
        >>> paris.absorb(berlin.contributions("berlin", threshold=0), shard="paris")
        1
        >>> outcome = paris.learn("ben", [1.0], 2.2)
        >>> round(paris.decide("cem", [[1.0]]).mean, 6)                    # 4.2 / (2 + λ)
        2.0
        """
        if not self.shared:
            self._refuse_to_share()
        kept = checked(contributions, shard, ("linucb",), self.dim)
        return self._pooling.absorb(kept, self._everything())

    def withdraw(self) -> None:
        """Remove all that was absorbed, at once; the model is then that of this shard's rewards."""
        if (own := self._pooling.own) is not None:
            self._models.put(self._models.of(EVERYBODY), own)
            self._pooling = Pooling(self.dim)

    def _everything(self) -> Stats:
        """Return the sums of all rewards, those of other shards too."""
        row = self._models.row.get(EVERYBODY)
        return Stats.empty(self.dim) if row is None else self._models.total(np.array([row]))

    def _pool(self) -> None:
        """Add the sums of other shards to the model, if there are new ones."""
        if self._pooling.pending:
            self._models.put(self._models.of(EVERYBODY), self._pooling.pooled())

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state, arrays = self._models.dump()
        pooling, held = self._pooling.dump()
        return state | {"pooling": pooling}, arrays | columns.prefixed(held, "pooling_")

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        self._models.fill(state, arrays)
        if "pooling" in state:  # not in files that were saved before shards could share
            self._pooling.fill(state["pooling"], columns.part(arrays, "pooling_"))

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
