"""Atlas: the tastes of a population as shared models, and where each user is among them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.contributions import Contribution, Registry, as_registry, as_shard, checked
from dyclu.core.noise import Noise
from dyclu.policies.atlas.inference import Inference
from dyclu.policies.atlas.sharing import KINDS
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.upkeep import IDLE, Upkeep
from dyclu.policies.atlas.users import LOCATED, NONE
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, OneByOne
from dyclu.policies.common.population import Rewards, as_kind
from dyclu.policies.common.self_checks import comparable, sharing_warnings
from dyclu.policy import THRESHOLD, TIE, Change, Decision, Location, Model, Outcome
from dyclu.validation import FloatArray, User, as_dim, as_positive, as_threshold, as_user

PARTS = ("tastes", "users", "population", "panel", "sharing")
"""The parts of `Inference` that have a state."""


class Atlas(OneByOne):
    """Keeps one model per distinct taste, and a belief over the models for each user.

    **The model.** Tastes are drawn from N(μ, Σ). A user has one of them, keeps it for a while, and
    changes to another one with a small probability per reward. A reward is ``xᵀθ + c`` plus noise,
    where ``c`` is an intercept that belongs to the taste; a reward of 0 or 1 is a click whose log
    odds are ``xᵀθ + c``. Prior, noise, hazard and tastes are all learnt; `docs/theory.md`, section
    10, derives every formula from this.

    A user begins *in doubt*: after each reward, the evidence of all rewards of their segment under
    every model, and under a new taste, gives a belief, and their data are part of the models by
    this belief. When one model is certain, the user is *located*: a filter follows them from reward
    to reward, at a cost that does not depend on how many users there are. Where the last rewards
    are better explained by another model, or by a new taste, the segment ends and a new one begins.

    Parameters
    ----------
    dim : int
        Number of features of a context. A constant feature is not needed.
    noise : float or None
        Standard deviation σ of the noise of real rewards; None estimates it, for each user if they
        differ.
    alpha : float
        How many standard deviations of its expected reward an arm is given credit for. An arm that
        would never be learnt otherwise is given more (a Gittins index).
    rewards : "binary", "real" or None
        Whether rewards are 0 or 1, or any numbers; None decides by the rewards seen.

    Examples
    --------
    >>> policy = Atlas(2, noise=0.1)
    >>> arms = [[1.0, 0.0], [0.0, 1.0]]
    >>> for _ in range(4):
    ...     outcome = policy.learn("ana", arms[0], 1.0)
    ...     outcome = policy.learn("ana", arms[1], 0.1)
    >>> policy.locate("ana").located, len(policy.models)
    (True, 1)
    >>> policy.decide("ana", arms).arm
    0
    """

    _zero_tiny = False

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        alpha: float = 0.25,
        rewards: Rewards | None = None,
    ) -> None:
        self.dim = as_dim(dim)
        self.alpha = as_positive(alpha, "alpha")
        self.rewards = as_kind(rewards)
        self._known = None if noise is None else Noise.known(noise)
        told = None if self._known is None else self._known.variance
        self._inference = Inference(self.dim, noise=told, rewards=rewards)
        self._upkeep = Upkeep(self._inference)
        self._moves: list[Change] = []
        self._told_moves: tuple[Change, ...] = ()

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose an arm by the models that the user may follow, as far as each is believed in."""
        inference = self._inference
        tastes, population, users = inference.tastes, inference.population, inference.users
        row = users.row.get(user, NONE)
        theta = np.empty(self.dim + 1)
        if row != NONE and users.status[row] == LOCATED:
            arm, value, reach = kernels.choosing.decide_located(
                tastes.theta, tastes.covariance, tastes.tally, users.ledger[row], arms,
                population.stream, self.alpha, TIE, theta,
            )  # fmt: skip
            return Decision(user, arm, value, reach, theta=theta[:-1])
        mean, width = np.empty(len(arms)), np.empty(len(arms))
        self._score_in_doubt(row, arms, theta, mean, width)
        arm, value, reach = kernels.choosing.choose(mean, width, population.binary, TIE)
        return Decision(user, arm, value, reach, theta=theta[:-1])

    def _score_in_doubt(
        self,
        row: int,
        arms: FloatArray,
        theta: FloatArray,
        mean: FloatArray,
        width: FloatArray,
    ) -> None:
        """Set estimate, expected rewards and widths of the levels."""
        inference = self._inference
        tastes, population, users = inference.tastes, inference.population, inference.users
        p, column, stream = self.dim + 1, kernels.ledger, population.stream
        belief, suspect, suspicion = np.empty(int(tastes.rows[-1]) + 1), NEW, 0.0
        if row == NONE:
            gram, moment, scale = np.zeros((p, p)), np.zeros(p), 0.0
            belief[tastes.rows], belief[NEW] = 1.0, math.exp(stream[column.NEWNESS])
            belief[tastes.rows] /= belief[tastes.rows].sum()
        else:
            gram, moment, sums = users.segment(row)
            scale = float(sums[column.SCALE])
            kernels.ledger.load_belief(users.ledger[row], belief)
            suspect, suspicion = int(users.suspect[row]), float(users.suspicion[row])
        kernels.choosing.score_in_doubt(
            tastes.precision, tastes.shift, tastes.rows, population.precision, population.shift,
            gram, moment, scale, belief, suspect, suspicion, arms, tastes.tally,
            1.0 / stream[column.HAZARD], stream[column.NOISE], population.binary, self.alpha, theta,
            mean, width,
        )  # fmt: skip

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        step = self._inference.learn(user, x, y)
        changed = step.after != NONE
        if changed:
            ids = self._inference.tastes.id
            before, after = int(ids[step.before]), int(ids[step.after])
            at = self._inference.population.clock
            self._moves.append(Change(user, at, before, after, step.certainty))
        population = self._inference.population
        if self._upkeep.phase != IDLE or population.clock >= population.due:
            self._upkeep.step()
        return Outcome(user, step.surprised, changed)

    @property
    def noise(self) -> float:
        """The noise's standard deviation: as estimated so far, or as told.

        Noise that was told counts as at least a millionth of the rewards, and at most a million.
        """
        population = self._inference.population
        return math.sqrt(population.line_noise if population.clock else population.variance)

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._inference.users.row

    @property
    def models(self) -> tuple[Model, ...]:
        """The models, oldest first."""
        tastes = self._inference.tastes
        rows = sorted(tastes.rows[1:].tolist(), key=lambda row: int(tastes.id[row]))
        return tuple(
            Model(
                id=int(tastes.id[row]),
                size=round(tastes.count[row]),
                estimate=tastes.theta[row, :-1].copy(),
                users=int(tastes.users[row]),
                founded=int(tastes.founded[row]),
                visited=int(tastes.visited[row]),
                covariance=tastes.covariance[row, :-1, :-1].copy(),
            )
            for row in rows
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what does not fit: no two users share a model."""
        users, tastes = self._inference.users, self._inference.tastes
        rows = np.fromiter(users.row.values(), np.intp, len(users.row))
        rewards = users.rewards[rows].astype(np.int64)
        rewards = rewards[rewards >= comparable(self.dim)]
        shared = bool((tastes.users[tastes.rows] > 1.0).any() or len(tastes) < len(rewards))
        remedy = "pass noise=…: noise that is estimated too small keeps users apart"
        return sharing_warnings(rewards, shared=shared, remedy=remedy)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first."""
        if len(self._told_moves) != len(self._moves):
            self._told_moves = tuple(self._moves)
        return self._told_moves

    def locate(self, user: Hashable) -> Location:
        """Return the model and the belief of a user; an unknown user follows no model yet."""
        user, users, tastes = as_user(user), self._inference.users, self._inference.tastes
        row = users.row.get(user, NONE)
        if row == NONE:
            return Location(user, since=self._inference.population.clock, new=1.0)
        belief = np.empty(int(tastes.rows[-1]) + 1)
        kernels.ledger.load_belief(users.ledger[row], belief)
        best = int(users.likely[row, 0])
        return Location(
            user,
            model=None if best == NEW else int(tastes.id[best]),
            located=bool(users.status[row] == LOCATED),
            since=int(users.since[row]),
            belief={int(tastes.id[k]): float(belief[k]) for k in tastes.rows[1:] if belief[k] > 0},
            new=float(belief[NEW]),
        )

    def _forget(self, user: User) -> None:
        """Remove a user: name, belief and remembered rewards, and these rewards from the models.

        What a model has learnt from rewards of a located user that are not remembered any more
        stays, as does what was learnt of the noise and the prior.
        """
        self._inference.forget(self._inference.users.row[user])
        self._moves = [move for move in self._moves if move.user != user]
        self._told_moves = ()
        self._inference.users.dismiss(user)
        self._inference.population.forget()

    @property
    def shares(self) -> bool:
        """Whether `contributions` and `absorb` work: they do."""
        return True

    def contributions(
        self,
        shard: str,
        *,
        since: Registry | Iterable[Contribution] = (),
        threshold: float = THRESHOLD,
    ) -> tuple[Contribution, ...]:
        """Return what this shard has learnt of its models, as far as it is news; changes nothing.

        A model is news if it is gone, or if the determinant of its information has grown, or
        shrunk, by the factor ``1 + threshold`` through what was not published yet. If one is gone,
        all that have grown are news, and come before it. Nothing of what other shards have
        contributed is passed on, and nothing of users. This costs as much as some ten rewards: ask
        after every few of them.

        Parameters
        ----------
        shard : str
            Name of this shard.
        since : Registry, or contributions
            What this shard has published so far.
        threshold : float
            ``α``: 0 publishes every change.
        """
        tastes, population = self._inference.tastes, self._inference.population
        last = as_registry(since).of(as_shard(shard))
        growth = as_threshold(threshold)
        return self._inference.sharing.news(shard, last, growth, tastes, population)

    def absorb(self, contributions: Iterable[Contribution], *, shard: str) -> int:
        """Learn from contributions of other shards; return how many were news.

        They count from the next reward on: each becomes part of the model that explains it, or a
        new model. A newer contribution replaces an older one of the same model. Contributions may
        arrive in any order, and more than once; the newest of each model must arrive in the end.

        Parameters
        ----------
        contributions : iterable of Contribution
            Those of `shard`, this shard itself, are ignored.

        Examples
        --------
        >>> berlin, paris = Atlas(1, noise=0.1), Atlas(1, noise=0.1)
        >>> for x in (0.5, 1.0) * 4:
        ...     outcome = berlin.learn("ana", [x], 3.0 * x)
        >>> paris.absorb(berlin.contributions("berlin", threshold=0), shard="paris")
        1
        >>> outcome = paris.learn("ben", [1.0], 3.0)
        >>> paris.models[0].size, paris.models[0].estimate.round(1)
        (9, array([3.]))
        """
        return self._inference.sharing.absorb(checked(contributions, shard, KINDS, self.dim + 1))

    def withdraw(self) -> None:
        """Remove all that was absorbed, at once; it may be absorbed again.

        Models that only others knew stay as empty ones until they are tidied up. Beliefs of users,
        prior and noise keep what they have become.
        """
        inference = self._inference
        inference.sharing.drop(inference.tastes, inference.population)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        inference, state, arrays = self._inference, dict[str, Any](), Arrays()
        for part in PARTS:
            state[part], held = getattr(inference, part).dump()
            arrays |= columns.prefixed(held, f"{part}_")
        state["upkeep"] = self._upkeep.dump()
        state["moves"] = [[m.user, m.at, m.before, m.after, m.certainty] for m in self._moves]
        return state, arrays

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        for part in PARTS:
            if part == "sharing" and part not in state:
                continue  # a file that was saved before shards could share
            getattr(self._inference, part).fill(state[part], columns.part(arrays, f"{part}_"))
        self._upkeep.fill(state["upkeep"])
        self._moves = [Change(*move) for move in state["moves"]]
