"""Atlas: the distinct tastes of a population as shared models, and where on them each user is."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.core.evidence import Prior
from dyclu.core.noise import Noise
from dyclu.policies.atlas.stream import StreamStatistics
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.tracker import Tracker
from dyclu.policies.atlas.users import NONE
from dyclu.policies.common import columns
from dyclu.policies.common.base import Arrays, PolicyBase
from dyclu.policies.common.batches import Decisions, Outcomes
from dyclu.policy import Change, Decision, Location, Model, Outcome, optimistic
from dyclu.validation import (
    SMALLEST,
    FloatArray,
    User,
    as_dim,
    as_positive,
    as_probability,
    as_user,
    as_whole,
)

BOLD = 2.0
"""How many standard deviations an arm is given credit for that has never been tried."""

LONGEST_LAG = 1000
"""Most rewards that may wait: each is kept, for every user."""


class Atlas(PolicyBase):
    """Keeps the distinct tastes of a population, and says of each user where among them they are.

    A user begins *on probation*: after each reward their segment is put where the evidence is
    largest, with those it resembles or on a model of its own. Once that is certain and the model
    is established, the user is *located*: only a belief over the models is followed, at a cost that
    does not depend on how many users there are. A reward that another model explains better puts
    them on probation again, with the rewards since the likely change.

    Noise, prior, and the chances of changes, of strays and of new tastes are learnt
    (`StreamStatistics`).

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from errors of prediction.
    alpha : float
        How many posterior standard deviations an arm is given credit for; one that was never tried
        is given 2 at least. Raise it, to 1 or so, where arms have few features in common (one-hot
        vectors): what is learnt of one tells nothing of the others then.
    certainty : float
        Belief from which on a user counts as located, and evidence asked of merging and splitting.
        Raise it where confusing two similar tastes is dear.
    lag : int
        How many rewards of a located user wait before they are credited to the model, so that a
        change does not soil it. Raise it where changes are hard to see.

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
        certainty: float = 0.99,
        lag: int = 4,
    ) -> None:
        self.dim = as_dim(dim)
        self.alpha = as_positive(alpha, "alpha")
        self.certainty = as_probability(certainty, "certainty")
        self.lag = as_whole(lag, "lag", least=0, most=LONGEST_LAG)
        self._known = None if noise is None else Noise.known(noise)
        told = None if self._known is None else self._known.variance
        self._tracker = Tracker(self.dim, told=told, certainty=self.certainty, lag=self.lag)
        self._bold = max(BOLD / self.alpha, 1.0)
        self._moves: list[Change] = []
        self._told_moves: tuple[Change, ...] = ()

    def _decide(self, user: User, arms: FloatArray) -> Decision:
        """Choose an arm by the models the user may be on, as far as each is believed in."""
        theta, inverse, beyond = self._tracker.view(self._tracker.users.row.get(user, NONE))
        alpha = self.alpha * self.noise
        return optimistic(user, theta, inverse, arms, alpha=alpha, beyond=beyond, bold=self._bold)

    def _learn(self, user: User, x: FloatArray, y: float) -> Outcome:
        return Outcome(user, *self._take_in(user, x, y))

    def _take_in(self, user: User, x: FloatArray, y: float) -> tuple[bool, bool]:
        """Learn of a reward that was judged; tell whether it was a stray, or showed a change."""
        tracker, users = self._tracker, self._tracker.users
        row = users.row.get(user, NONE)
        if row == NONE:
            row = users.welcome(user, tracker.clock)
        tracker.clock += 1
        length = kernels.atlas.zero_tiny(x, SMALLEST)
        if length == 0.0:  # no taste explains it, and it tells nothing of any
            return False, False
        tracker.record(y, length)
        located = users.seat[row] == NONE
        surprised, changed = (tracker.follow if located else tracker.probe)(row, x, y, length)
        if changed:
            self._moves.append(Change(user, tracker.clock, *tracker.moved))
        return surprised, changed

    def _decide_many(self, users: list[User], arms: FloatArray) -> Decisions:
        homes = self._tracker.homes(users)
        answer, sure = Decisions.blank(users), np.flatnonzero(homes != NONE)
        answer.arm[sure], answer.mean[sure], answer.width[sure] = self._tracker.models.choose_many(
            homes[sure],
            arms[sure],
            alpha=self.alpha * self.noise,
            beyond=self._tracker.untried,
            bold=self._bold,
        )
        for i in np.flatnonzero(homes == NONE).tolist():
            one = self._decide(users[i], arms[i])
            answer.arm[i], answer.mean[i], answer.width[i] = one.arm, one.mean, one.width
        return answer

    def _learn_many(self, users: list[User], X: FloatArray, y: FloatArray) -> Outcomes:
        answer = Outcomes.uneventful(users)
        for i, observation in enumerate(zip(users, X, y.tolist(), strict=True)):
            answer.surprised[i], answer.changed[i] = self._take_in(*observation)
        return answer

    @property
    def noise(self) -> float:
        """The noise's standard deviation: as estimated so far, or as told.

        Noise that was told counts as at least a millionth of the rewards, and at most a million.
        """
        return math.sqrt(self._tracker.models.prior.noise_variance)

    @property
    def _by_user(self) -> Mapping[User, Any]:
        return self._tracker.users.row

    @property
    def models(self) -> tuple[Model, ...]:
        """The established models, oldest first."""
        models = self._tracker.models
        return tuple(
            Model(
                id=int(models.id[row]),
                size=round(models.count[row]),
                estimate=models.theta[row].copy(),
                users=int(models.users[row]),
                founded=int(models.founded[row]),
                visited=int(models.visited[row]),
            )
            for row in sorted(models.established.tolist(), key=lambda row: int(models.id[row]))
        )

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes noticed so far, oldest first."""
        if len(self._told_moves) != len(self._moves):
            self._told_moves = tuple(self._moves)
        return self._told_moves

    def locate(self, user: Hashable) -> Location:
        """Return the model and the belief of a user; an unknown user follows no model yet.

        Probabilities below 0.1 % are left out, and those up to 2 % while a user is on probation.
        """
        user, models, users = as_user(user), self._tracker.models, self._tracker.users
        row = users.row.get(user, NONE)
        if row == NONE or (users.model[row] == NONE and row not in users.doubts):
            since = self._tracker.clock if row == NONE else int(users.since[row])
            return Location(user, since=since, new=1.0)
        weight = users.belief(row)
        likely = {int(models.id[k]): float(weight[k]) for k in models.live[1:] if weight[k] > 1e-3}
        model = int(users.model[row])
        return Location(
            user,
            int(models.id[model]) if model != NONE else None,
            bool(users.seat[row] == NONE),
            int(users.since[row]),
            likely,
            float(weight[NEW]),
        )

    def _forget(self, user: User) -> None:
        """Remove a user: name, belief and observations, and their share of the model they are on.

        Of a located user that share is known by its count and by what the model left unexplained;
        its contexts count as average ones. It is taken out of the model they are on, and of the one
        they are suspected of having left. What models they were on before that have taken in stays,
        and so does what was learnt of the noise and the prior.
        """
        self._tracker.forget(self._tracker.users.row[user])
        self._moves = [move for move in self._moves if move.user != user]
        self._told_moves = ()
        self._tracker.users.dismiss(user)

    def _dump(self) -> tuple[dict[str, Any], Arrays]:
        models, model_arrays = self._tracker.models.dump()
        users, user_arrays = self._tracker.users.dump()
        prior = self._tracker.models.prior
        state = {
            "models": models,
            "users": users,
            "rates": self._tracker.stream.dump(),
            "spread": prior.variance,
            "noise": prior.noise_variance,
            "clock": self._tracker.clock,
            "retune_at": self._tracker.retune_at,
            "moves": [[m.user, m.at, m.before, m.after, m.certainty] for m in self._moves],
        }
        arrays = columns.prefixed(model_arrays, "model_") | columns.prefixed(user_arrays, "user_")
        return state, arrays | {"mean": prior.mean}

    def _fill(self, state: dict[str, Any], arrays: Arrays) -> None:
        prior = Prior(arrays["mean"], state["spread"], state["noise"])
        self._tracker.stream = StreamStatistics(**state["rates"])
        self._tracker.models.fill(state["models"], columns.part(arrays, "model_"), prior)
        self._tracker.users.fill(state["users"], columns.part(arrays, "user_"))
        self._tracker.clock, self._tracker.retune_at = state["clock"], state["retune_at"]
        self._moves = [Change(*move) for move in state["moves"]]
