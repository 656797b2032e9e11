"""`Told`: it is told the tastes, the hazard and the law of rewards, but not who has which taste.

Its regret is the cost of finding out, and of noticing changes, if nothing else has to be learnt.
Together with the oracle, which learns the tastes but is told who has which, it shows how much of
the regret of another policy can be avoided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from dyclu.core.rewards import Law
from dyclu.errors import KindError, ShapeError
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policy import Change, Decision, Location, Model, Outcome, first_best
from dyclu.validation import FloatArray, User, as_dim, as_user, as_within

CERTAIN = 0.9
"""Probability of a taste from which on it counts as the user's."""

Tastes = Callable[[User], FloatArray]
"""Takes a user; returns the tastes at this user's present round, shape (m, dim)."""

Laws = Callable[[User], Law]
"""Takes a user; returns the law of their rewards."""


class Told(OneByOne):
    r"""A hidden Markov filter over known tastes, for every user.

    **The filter.** A user's taste is one of m, and ``q_k`` is the probability of taste k before
    the round's reward is known. For a stranger it is ``1/m``. A reward y of the context x has the
    density ``f(y | xᵀθ_k)`` under taste k, so by Bayes

        ``r_k ∝ q_k f(y | xᵀθ_k)``.

    Before the next round the user changes with probability h (the hazard), to each of the m − 1
    other tastes with the same probability. By the law of total probability

        ``q_k' = (1 − h) r_k + h (1 − r_k) / (m − 1)``,

    as the sum of the other ``r_j`` is ``1 − r_k``. Given the tastes, rewards of different rounds
    are independent, and the choice of x depends on earlier rewards only; so ``q'`` is the exact
    posterior if the hazard is constant. With one taste there is nothing to find out.

    **The choice.** The arm of the largest expected reward, ``Σ_k q_k E[y | xᵀθ_k]``, without
    exploration: the tastes are known, and every reward says something about who has which.

    A change is reported when a taste other than the last certain one reaches ``r_k ≥ 0.9``. Where
    users of one taste differ, or rewards come late, the filter is an approximation: it uses the
    taste that the users share, and the belief after the latest reward that has come.

    Parameters
    ----------
    dim : int
        Number of features of a context.
    tastes : callable
        ``tastes(user)`` is an array of shape (m, dim); m never changes for a user.
    law : callable
        ``law(user)`` is the `Law` of this user's rewards.
    hazard : float
        Probability of a change between two rounds of a user. A file holds no code: pass the three
        again to `restore`.

    Examples
    --------
    >>> law = Law(kind="linear", offset=0.5, slope=0.5)
    >>> policy = Told(1, tastes=lambda user: np.array([[0.6], [-0.6]]), law=lambda user: law)
    >>> _ = policy.learn("ana", [1.0], 1.0)
    >>> {k: round(p, 9) for k, p in policy.locate("ana").belief.items()}
    {0: 0.8, 1: 0.2}
    """

    def __init__(self, dim: int, *, tastes: Tastes, law: Laws, hazard: float = 0.0) -> None:
        for name, given in (("tastes", tastes), ("law", law)):
            if not callable(given):
                raise KindError(
                    f"{name} is of type {type(given).__name__}, expected a callable; "
                    "pass a function of a user"
                )
        self.dim = as_dim(dim)
        self._tastes, self._law = tastes, law
        self._hazard = as_within(hazard, "hazard", 0.0, 1.0)
        self._belief: dict[User, FloatArray] = {}
        self._certain: dict[User, int] = {}
        self._changes: list[Change] = []
        self._clock = 0

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose the arm of the largest expected reward; changes nothing."""
        tastes = self._known_tastes(user)
        means = self._law(user).mean(arms @ tastes.T) @ self._prior(user, len(tastes))
        arm = first_best(means)
        return Decision(user, arm, float(means[arm]), 0.0)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        """Update the belief about this user by Bayes' rule."""
        tastes = self._known_tastes(user)
        with np.errstate(divide="ignore"):
            log = np.log(self._prior(user, len(tastes)))
        log += self._law(user).log_density(y, tastes @ x)
        self._clock += 1
        weight = np.exp(log - log.max())
        posterior = weight / weight.sum()
        self._belief[user] = _moved(posterior, self._hazard)
        return Outcome(user, changed=self._notice(user, posterior))

    def _notice(self, user: User, posterior: FloatArray) -> bool:
        """Record the user's taste if it is certain; return whether it is a change."""
        best = int(posterior.argmax())
        if posterior[best] < CERTAIN:
            return False
        before = self._certain.get(user, best)
        self._certain[user] = best
        if before == best:
            return False
        self._changes.append(Change(user, self._clock, before, best, float(posterior[best])))
        return True

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first."""
        return tuple(self._changes)

    @property
    def models(self) -> tuple[Model, ...]:
        """No models: the tastes are told, not learnt."""
        return ()

    def locate(self, user: Hashable) -> Location:
        """Return the belief about the user's taste in their next round."""
        user = as_user(user)
        belief = self._belief.get(user)
        if belief is None:
            return Location(user)
        best = int(belief.argmax())
        return Location(
            user,
            model=best,
            located=self._certain.get(user) == best,
            belief=dict(enumerate(belief.tolist())),
        )

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._belief

    def _forget(self, user: User) -> None:
        """Remove the belief about a user, and their changes."""
        del self._belief[user]
        self._certain.pop(user, None)
        self._changes = [change for change in self._changes if change.user != user]

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        state = {
            "users": list(self._belief),
            "certain": [[user, taste] for user, taste in self._certain.items()],
            "changes": [
                [change.user, change.at, change.before, change.after, change.certainty]
                for change in self._changes
            ],
            "clock": self._clock,
        }
        beliefs = list(self._belief.values())
        lengths = np.array([len(belief) for belief in beliefs], dtype=np.int64)
        return state, {"belief": np.concatenate([np.empty(0), *beliefs]), "tastes": lengths}

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        ends = np.cumsum(arrays["tastes"])[:-1]
        beliefs = np.split(arrays["belief"], ends) if len(arrays["tastes"]) else []
        self._belief = dict(zip(state["users"], beliefs, strict=True))
        self._certain = dict(state["certain"])
        self._changes = [Change(*values) for values in state["changes"]]
        self._clock = state["clock"]

    def _prior(self, user: User, count: int) -> FloatArray:
        """Return the belief before this user's next reward."""
        belief = self._belief.get(user)
        return np.full(count, 1 / count) if belief is None else belief

    def _known_tastes(self, user: User) -> FloatArray:
        tastes = self._tastes(user)
        if tastes.ndim != 2 or not len(tastes) or tastes.shape[1] != self.dim:
            raise ShapeError(
                f"tastes have shape {tastes.shape}, expected (m, {self.dim}) with m at least 1; "
                "return one row per taste"
            )
        return tastes


def _moved(posterior: FloatArray, hazard: float) -> FloatArray:
    """Return the belief before the next round.

    >>> _moved(np.array([0.9, 0.1, 0.0]), 0.2)
    array([0.73, 0.17, 0.1 ])
    """
    if len(posterior) == 1:
        return posterior
    return np.asarray((1 - hazard) * posterior + hazard * (1 - posterior) / (len(posterior) - 1))
