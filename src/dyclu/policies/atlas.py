"""Atlas: the distinct tastes of a population as shared models, and where on them each user is."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dyclu.batches import OneByOne
from dyclu.belief import followed, likelihood, turning_point, weighed
from dyclu.evidence import Prior
from dyclu.policy import Decision, Outcome, described
from dyclu.rates import Rates
from dyclu.ridge import choose, solve, ucb
from dyclu.shared import NEW, SharedModels
from dyclu.storage import Saved, write
from dyclu.validation import (
    FloatArray,
    User,
    as_arms,
    as_context,
    as_dim,
    as_positive,
    as_probability,
    as_reward,
    as_user,
    as_whole,
)
from dyclu.whereabouts import NONE, Whereabouts

FEW = 3
"""Least rewards after which somebody can be located on an established model."""

YOUNG = 128
"""Most young models at a time: how many a segment on probation is compared with, at worst."""

UNUSED = 1000
"""Most established models without users that are kept for those who return."""

MEANT = 0.02
"""Least weight of a model that arms are chosen with, on probation."""

INFORMATIVE, SURE = 0.5, 0.9
"""Largest leverage and least belief with which a prediction's error tells of the noise."""

GROWTH, AGAIN = 1.1, 1.25
"""By how much the stream, and a user's share of a model, grow before they are looked at again."""


@dataclass(frozen=True, slots=True)
class SharedModel:
    """A taste that users share.

    Attributes
    ----------
    id : int
        Its name; never used again.
    size : int
        How many observations it holds.
    estimate : array of shape (dim,)
        The posterior mean of its parameter.
    users : int
        How many users are located on it.
    founded, visited : int
        How many rewards of all users had been learnt when it was founded, and last added to.
    """

    id: int
    size: int
    estimate: FloatArray = field(repr=False, compare=False)
    users: int
    founded: int
    visited: int


@dataclass(frozen=True, slots=True)
class Location:
    """Where a user is.

    Attributes
    ----------
    user : str or int
        Who.
    model : int or None
        Id of the model they are on, or most likely on; None for somebody new.
    located : bool
        Whether that is settled; if not, they are on probation.
    since : int
        How many rewards of all users had been learnt when it came to be so.
    belief : dict of int to float
        Chances of the models they may be on, those below 0.1 % left out.
    new : float
        Chance that they are on no known model.
    """

    user: User
    model: int | None
    located: bool
    since: int
    belief: dict[int, float]
    new: float


@dataclass(frozen=True, slots=True)
class Move:
    """A change that was noticed: `user` went from model `before` to `after`, at reward number `at`.

    `certainty` is the chance given to `after` at that time.
    """

    user: User
    at: int
    before: int
    after: int
    certainty: float


class Atlas(OneByOne):
    """Keeps the distinct tastes of a population, and says of each user where among them they are.

    A user begins *on probation*: after each reward their segment is put where the evidence is
    largest, with those it resembles or on a model of its own. Once that is certain and the model
    is established, the user is *located*: only a belief over the models is followed, at a cost that
    does not depend on how many users there are. A reward that another model explains better puts
    them on probation again, with the rewards since the likely change.

    Noise, prior, and the chances of changes, of strays and of new tastes are learnt (`Rates`).

    Parameters
    ----------
    dim : int
        Number of features of a context.
    noise : float or None
        Standard deviation σ of the rewards' noise; None estimates it from errors of prediction.
    alpha : float
        How many posterior standard deviations an arm is given credit for. Raise it where what is
        offered varies so little that some features would never be tried.
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

    def __init__(
        self,
        dim: int,
        *,
        noise: float | None = None,
        alpha: float = 0.5,
        certainty: float = 0.99,
        lag: int = 4,
    ) -> None:
        self.dim = as_dim(dim)
        self.alpha = as_positive(alpha, "alpha")
        self.certainty = as_probability(certainty, "certainty")
        self.lag = as_whole(lag, "lag", least=0)
        self._told = None if noise is None else as_positive(noise, "noise")
        self._rates = Rates(told=None if self._told is None else self._told**2)
        prior = Prior(np.zeros(self.dim), 1.0, self._rates.noise)
        self._models = SharedModels(self.dim, prior)
        self._users = Whereabouts(self.dim, lag=self.lag + 1, models=self._models.room)
        self._gram, self._moment = np.zeros((self.dim, self.dim)), np.zeros(self.dim)
        self._clock, self._retune_at = 0, 0.0
        self._moves: list[Move] = []

    def decide(self, user: Hashable, arms: ArrayLike) -> Decision:
        """Choose an arm by the models the user may be on, as far as each is believed in."""
        user, arms = as_user(user), as_arms(arms, self.dim)
        theta, inverse = self._view(self._users.row.get(user, NONE))
        return choose(user, ucb(theta, inverse, arms, alpha=self.alpha * self.noise))

    def learn(self, user: Hashable, context: ArrayLike, reward: Any) -> Outcome:
        """Take in the reward of the chosen context."""
        user, x, y = as_user(user), as_context(context, self.dim), as_reward(reward)
        row = self._users.row.get(user, NONE)
        if row == NONE:
            row = self._users.welcome(user, self._clock)
        self._clock += 1
        length = float(x @ x)
        if length == 0.0:  # no taste explains it, and it tells nothing of any
            return Outcome(user)
        self._hear(x, y, length)
        located = self._users.seat[row] == NONE
        surprised, changed = (self._follow if located else self._probe)(row, x, y, length)
        if changed:
            self._tell(user)
        return Outcome(user, surprised, changed)

    @property
    def noise(self) -> float:
        """The noise's standard deviation: as told, or as estimated so far."""
        return math.sqrt(self._models.prior.noise)

    @property
    def models(self) -> tuple[SharedModel, ...]:
        """The established models, oldest first."""
        models = self._models
        rows = [row for row in models.live if self._is_shown(row)]
        return tuple(
            SharedModel(
                id=int(models.id[row]),
                size=round(models.count[row]),
                estimate=models.theta[row].copy(),
                users=int(models.users[row]),
                founded=int(models.founded[row]),
                visited=int(models.visited[row]),
            )
            for row in sorted(rows, key=lambda row: int(models.id[row]))
        )

    @property
    def changes(self) -> tuple[Move, ...]:
        """All changes noticed so far."""
        return tuple(self._moves)

    def locate(self, user: Hashable) -> Location:
        """Return where a user is; somebody never seen is on no model yet."""
        user, models, users = as_user(user), self._models, self._users
        row = users.row.get(user, NONE)
        if row == NONE or (users.model[row] == NONE and users.doubt[row] == NONE):
            return Location(user, None, False, self._clock, {}, 1.0)
        weight = users.belief(row, models.rows)
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

    def forget(self, user: Hashable) -> None:
        """Remove a user: name, belief and observations, and their share of the model they are on.

        Of a located user the model's share is known by its count and by what it left unexplained;
        its contexts count as the average ones of the model. What models they were on before, and
        the common mean, have taken in stays.
        """
        user = as_user(user)
        row = self._users.row.get(user, NONE)
        if row == NONE:
            return
        if self._users.seat[row] == NONE:
            self._take_out(row)
        else:
            self._withdraw(row)
        self._moves = [move for move in self._moves if move.user != user]
        self._users.dismiss(user)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the complete state to a file; `dyclu.load` continues from it bit for bit."""
        models, model_arrays = self._models.dump()
        users, user_arrays = self._users.dump()
        prior = self._models.prior
        state = {
            "models": models,
            "users": users,
            "rates": self._rates.dump(),
            "spread": prior.spread,
            "noise": prior.noise,
            "clock": self._clock,
            "retune_at": self._retune_at,
            "moves": [[m.user, m.at, m.before, m.after, m.certainty] for m in self._moves],
        }
        arrays = {f"model_{name}": array for name, array in model_arrays.items()}
        arrays |= {f"user_{name}": array for name, array in user_arrays.items()}
        arrays |= {"gram": self._gram, "moment": self._moment, "mean": prior.mean}
        write(path, Saved("Atlas", self._options(), state, arrays))

    @classmethod
    def restore(cls, saved: Saved) -> Atlas:
        """Return the policy that was saved."""
        policy, state, arrays = cls(**saved.options), saved.state, saved.arrays
        prior = Prior(arrays["mean"], state["spread"], state["noise"])
        policy._rates = Rates(**state["rates"])
        policy._models.fill(state["models"], _part(arrays, "model_"), prior)
        policy._users.fill(state["users"], _part(arrays, "user_"))
        policy._gram, policy._moment = arrays["gram"], arrays["moment"]
        policy._clock, policy._retune_at = state["clock"], state["retune_at"]
        policy._moves = [Move(*move) for move in state["moves"]]
        return policy

    def __repr__(self) -> str:
        return described("Atlas", self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "noise": self._told,
            "alpha": self.alpha,
            "certainty": self.certainty,
            "lag": self.lag,
        }

    # What arms are chosen with

    def _view(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Return the estimate for a user, and the covariance of what is not known of it."""
        models, users = self._models, self._users
        if row != NONE and users.seat[row] == NONE:
            model = users.model[row]
            if users.doubt[row] == NONE:
                return models.theta[model].copy(), models.inverse[model]
            return users.belief(row, models.rows) @ models.theta[: models.rows], models.inverse[
                model
            ]
        if row == NONE or users.doubt[row] == NONE:
            rows, weight = self._entering()
            return weight @ models.theta[rows], models.inverse[NEW]
        return self._probation_view(row)

    def _probation_view(self, row: int) -> tuple[FloatArray, FloatArray]:
        models, users, seats = self._models, self._users, self._users.seats
        seat, weight = users.seat[row], users.belief(row, models.rows)
        meant = np.flatnonzero(weight >= MEANT)
        theta, inverse = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for model in meant:
            inside = seats.placed[seat] and model == users.model[row]
            part = 0.0 if inside else 1.0
            share = weight[model] / weight[meant].sum()
            mean, covariance = models.prior.posterior(
                models.gram[model] + part * seats.gram[seat],
                models.moment[model] + part * seats.moment[seat],
            )
            theta += share * mean
            inverse += share * covariance
        return theta, inverse

    def _entering(self) -> tuple[Any, FloatArray]:
        """Return the rows a newcomer may be on, somebody new first, and how likely each is."""
        rows = np.concatenate(([NEW], self._models.established))
        weight = np.ones(len(rows))
        weight[0] = self._rates.novelty(len(rows) - 1)
        return rows, weight / weight.sum()

    # What is learnt of the surroundings

    def _hear(self, x: FloatArray, y: float, length: float) -> None:
        self._gram += x[:, None] * x
        self._moment += y * x
        self._rates.hear(y, y - float(x @ self._models.prior.mean), length)
        if self._rates.heard >= self._retune_at:
            self._retune()

    def _retune(self) -> None:
        """Let the prior be what the stream says by now; done ever more rarely."""
        rates, models = self._rates, self._models
        self._retune_at = GROWTH * rates.heard + 1
        length = rates.length / rates.heard
        ridge = length * rates.unexplained / rates.scale
        mean = solve(self._gram, self._moment[:, None], ridge=ridge)[:, 0]
        gaps = models.theta[models.established] - mean
        spread = rates.spread(float((gaps * gaps).sum()) / self.dim, len(gaps))
        models.retune(Prior(mean, spread, rates.noise))

    # A located user

    def _follow(self, row: int, x: FloatArray, y: float, length: float) -> tuple[bool, bool]:
        models, users, rates = self._models, self._users, self._rates
        home = int(users.model[row])
        errors = y - models.theta[: models.rows] @ x
        leverage = max(float(x @ models.inverse[home] @ x), 0.0)
        likely = likelihood(errors, self._variances(home, leverage, length), rates.floor)
        if leverage < INFORMATIVE:
            rates.test(float(errors[home]) ** 2 / (1.0 + leverage))
        rates.followed += 1

        rows, weight = self._entering()
        entering = np.zeros(models.rows)
        entering[rows] = weight
        belief = followed(users.belief(row, models.rows), entering, likely, hazard=rates.hazard)
        users.remember(row, x, y)
        surprised = bool(likely[home] < 2.0 * rates.floor)
        if belief[home] < 0.5:
            return surprised, self._suspect(row, belief)
        if 1.0 - belief[home] > 2.0 * rates.hazard:
            users.doubt_with(row, belief)
        else:
            users.be_sure(row)
        if users.waiting[row] > self.lag:
            self._credit(row, home, 0)
            users.forget_oldest(row)
            if users.credited[row] >= users.due[row]:
                return surprised, self._reconsider(row)
        return surprised, False

    def _variances(self, home: int, leverage: float, length: float) -> FloatArray:
        """Return the variance of a prediction by every model.

        Another model's leverage is taken to be that of `home` in proportion to their counts, as if
        both had seen contexts of one kind: exact values would cost d² each.
        """
        models, prior = self._models, self._models.prior
        counts = np.maximum(models.count[: models.rows], 1.0)
        variances: FloatArray = prior.noise * (1.0 + leverage * (counts[home] / counts))
        variances[NEW] = prior.noise + prior.spread * length
        return variances

    def _credit(self, row: int, home: int, place: int) -> None:
        """Add a waiting observation to the user's model, unless it is a stray."""
        models, users = self._models, self._users
        x, y = users.contexts[row, place].copy(), float(users.rewards[row, place])
        error = y - float(x @ models.theta[home])
        variance = models.prior.noise * (1.0 + max(float(x @ models.inverse[home] @ x), 0.0))
        if math.exp(-0.5 * error * error / variance) / math.sqrt(variance) < self._rates.floor:
            return
        users.score[row] += error * x
        users.credited[row] += 1
        models.credit(home, x, error, y)
        models.visited[home] = self._clock
        if models.count[home] >= 2.0 * models.checked[home]:
            self._merge_if_alike(home)

    def _suspect(self, row: int, belief: FloatArray) -> bool:
        """Put a user on probation, with the rewards since the likely change."""
        models, users = self._models, self._users
        home, waiting = int(users.model[row]), int(users.waiting[row])
        others = belief.copy()
        others[home] = 0.0
        cut = turning_point(*(self._likely(row, model) for model in (home, int(others.argmax()))))
        for place in range(cut):
            self._credit(row, home, place)
        contexts, rewards = users.contexts[row, cut:waiting], users.rewards[row, cut:waiting]
        seat = users.sit(row)
        self._sit_down(seat, contexts.T @ contexts, contexts.T @ rewards, waiting - cut)
        models.users[home] -= 1
        users.home[row], users.model[row], users.waiting[row] = users.model[row], NONE, 0
        users.since[row] = self._clock
        return self._place(row)

    def _likely(self, row: int, model: int) -> FloatArray:
        """Return how likely a user's waiting observations are under a model."""
        models, users, prior = self._models, self._users, self._models.prior
        waiting = users.waiting[row]
        contexts = users.contexts[row, :waiting]
        errors = users.rewards[row, :waiting] - contexts @ models.theta[model]
        spread = prior.spread if model == NEW else 0.0
        variances = prior.noise + spread * np.einsum("nd,nd->n", contexts, contexts)
        return likelihood(errors, variances, self._rates.floor)

    def _reconsider(self, row: int) -> bool:
        """Let a user leave a model that their own share of its data contradicts."""
        models, users = self._models, self._users
        home = int(users.model[row])
        users.due[row] = AGAIN * users.credited[row]
        if models.count[home] - users.credited[row] < self.dim:
            return False
        gram, _ = self._share(row)
        prior = models.prior
        apart = Prior(np.zeros(self.dim), prior.spread, prior.noise)
        if apart.log_evidence(gram, users.score[row]) < self._strong:
            return False
        gram, moment = self._take_out(row)
        waiting = int(users.waiting[row])
        contexts, rewards = users.contexts[row, :waiting], users.rewards[row, :waiting]
        seat = users.sit(row)
        self._sit_down(
            seat,
            gram + contexts.T @ contexts,
            moment + contexts.T @ rewards,
            users.credited[row] + waiting,
        )
        users.model[row] = users.home[row] = NONE
        users.waiting[row], users.credited[row], users.score[row] = 0, 0.0, 0.0
        return self._place(row)

    @property
    def _strong(self) -> float:
        """Log odds that count as certain."""
        return -math.log(1.0 - self.certainty)

    def _share(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Return a located user's part of their model's sums, as if of its average contexts."""
        models, users = self._models, self._users
        home = users.model[row]
        part = min(users.credited[row] / max(models.count[home], 1.0), 1.0)
        gram: FloatArray = part * models.gram[home]
        return gram, users.score[row] + gram @ models.theta[home]

    def _take_out(self, row: int) -> tuple[FloatArray, FloatArray]:
        """Take a located user, and their part of the sums, off their model; return that part."""
        models, users = self._models, self._users
        home = int(users.model[row])
        gram, moment = self._share(row)
        models.users[home] -= 1
        models.add(home, gram, moment, -users.credited[row])
        self._close_if_empty(home)
        return gram, moment

    # A user on probation

    def _probe(self, row: int, x: FloatArray, y: float, length: float) -> tuple[bool, bool]:
        users, seat = self._users, int(self._users.seat[row])
        if self._is_stray(row, x, y, length):
            return True, False
        self._withdraw(row)
        seats = users.seats
        seats.gram[seat] += x[:, None] * x
        seats.moment[seat] += y * x
        seats.count[seat] += 1
        return False, self._place(row)

    def _is_stray(self, row: int, x: FloatArray, y: float, length: float) -> bool:
        """Tell whether nothing that is thought of a user explains a reward; note its error."""
        prior, rates = self._models.prior, self._rates
        theta, inverse = self._view(row)
        error, leverage = y - float(x @ theta), max(float(x @ inverse @ x), 0.0)
        doubt = self._users.doubt[row]
        if leverage < INFORMATIVE and self._users.beliefs.weight[doubt].max() > SURE:
            rates.test(error * error / (1.0 + leverage))
        errors = np.array([error, y - float(x @ prior.mean)])
        variances = np.array([prior.noise * (1.0 + leverage), prior.noise + prior.spread * length])
        return bool(likelihood(errors, variances, 0.0).max() < rates.floor)

    def _sit_down(self, seat: int, gram: FloatArray, moment: FloatArray, count: float) -> None:
        seats = self._users.seats
        seats.gram[seat], seats.moment[seat], seats.count[seat] = gram, moment, count

    def _withdraw(self, row: int) -> None:
        """Take a segment on probation out of the model it was put to."""
        models, users, seats = self._models, self._users, self._users.seats
        seat, model = users.seat[row], int(users.model[row])
        if seats.placed[seat]:
            seats.placed[seat] = 0.0
            models.guests[model] -= 1
            models.add(model, seats.gram[seat], seats.moment[seat], -seats.count[seat])
            self._close_if_empty(model)
        users.model[row] = NONE

    def _place(self, row: int) -> bool:
        """Put a segment where the evidence is largest; tell whether its user has changed."""
        models, users, seats = self._models, self._users, self._users.seats
        seat, rows = users.seat[row], models.live
        gains = models.gains(rows, seats.gram[seat], seats.moment[seat])
        chances = weighed(gains + self._log_prior(int(users.home[row]), rows))
        weight = np.zeros(models.rows)
        weight[rows] = chances
        users.beliefs.widen(models.room)
        users.doubt_with(row, weight)
        model = int(rows[chances.argmax()])
        if self._is_settled(seats.count[seat], models.count[model], chances.max()):
            return self._settle(row, model, float(chances.max()))
        self._stay(row, model)
        return False

    def _log_prior(self, home: int, rows: Any) -> FloatArray:
        """Return how likely the models are before the segment is looked at.

        Whoever was located and is now suspected of a change is at home still, unless they changed.
        """
        entering = np.ones(len(rows))
        entering[0] = self._rates.novelty(len(self._models.established))
        if home == NONE:
            return np.log(entering)
        log_prior: FloatArray = np.log(self._rates.hazard * entering / entering.sum())
        log_prior[rows == home] = 0.0
        return log_prior

    def _is_settled(self, mine: float, others: float, chance: float) -> bool:
        """Tell whether a segment of so many observations is located on a model of so many."""
        if mine + others < self._models.established_at:
            return False
        least = FEW if others >= self.dim else self.dim
        return mine >= self._models.established_at or (chance >= self.certainty and mine >= least)

    def _stay(self, row: int, model: int) -> None:
        """Leave a segment on probation; with a young model it counts, at an established it waits."""
        models, users, seats = self._models, self._users, self._users.seats
        young = len(models.live) - 1 - len(models.established)
        if model == NEW:
            if young >= YOUNG:
                return
            model = models.found(self._clock)
            users.beliefs.widen(models.room)
            users.disbelieve(model)
        users.model[row] = model
        seat = users.seat[row]
        if models.count[model] < models.established_at:
            seats.placed[seat] = 1.0
            models.guests[model] += 1
            models.add(model, seats.gram[seat], seats.moment[seat], seats.count[seat])

    def _settle(self, row: int, model: int, chance: float) -> bool:
        """Locate a user on a model; tell whether they have changed."""
        models, users, rates = self._models, self._users, self._rates
        seats, seat, home = users.seats, users.seat[row], int(users.home[row])
        rates.settled += 1
        rates.founded += int(models.count[model] < self.dim)
        if model == NEW:
            model = models.found(self._clock)
            users.beliefs.widen(models.room)
            users.disbelieve(model)
            self._retire()
        models.users[model] += 1
        models.add(model, seats.gram[seat], seats.moment[seat], seats.count[seat])
        models.visited[model] = self._clock
        if home != model:
            users.credited[row], users.score[row] = 0.0, 0.0
        users.credited[row] += seats.count[seat]
        users.score[row] += seats.moment[seat] - seats.gram[seat] @ models.theta[model]
        users.due[row] = max(AGAIN * users.credited[row], self.dim)
        users.model[row], users.home[row], users.waiting[row] = model, NONE, 0
        users.since[row] = self._clock
        users.stand(row)
        users.be_sure(row)
        changed = home not in (NONE, model)
        rates.changes += int(changed)
        rates.strays += int(home == model)
        if changed:
            self._moved = (int(models.id[home]), int(models.id[model]), chance)
        if models.count[model] >= 2.0 * models.checked[model]:
            self._merge_if_alike(model)
        return changed

    def _tell(self, user: User) -> None:
        self._moves.append(Move(user, self._clock, *self._moved))

    # The life of models

    def _merge_if_alike(self, model: int) -> None:
        """Merge a model with the one it resembles most, if certainly."""
        models = self._models
        models.checked[model] = models.count[model]
        rows = models.live[1:]
        rows = rows[(models.count[rows] >= self.dim) & (rows != model)]
        if not len(rows):
            return
        known = models.known(np.array([model]))[0]
        gains = models.gains(rows, models.gram[model], models.moment[model]) - known
        if gains.max() > self._strong:
            self._merge(model, int(rows[gains.argmax()]))

    def _merge(self, into: int, other: int) -> None:
        models, users = self._models, self._users
        theta, _ = models.prior.posterior(
            models.gram[into] + models.gram[other], models.moment[into] + models.moment[other]
        )
        for model in (into, other):
            self._carry_scores(model, theta)
        models.users[into] += models.users[other]
        models.guests[into] += models.guests[other]
        models.add(into, models.gram[other], models.moment[other], models.count[other])
        models.checked[into] = models.count[into]
        users.rename(other, into)
        models.close(other)

    def _carry_scores(self, model: int, theta: FloatArray) -> None:
        """Let what a model left unexplained of its users be what another estimate leaves."""
        models, users, n = self._models, self._users, len(self._users)
        rows = np.flatnonzero((users.model[:n] == model) & (users.seat[:n] == NONE))
        if len(rows):
            shift = models.gram[model] @ (models.theta[model] - theta)
            part = users.credited[rows] / max(models.count[model], 1.0)
            users.score[rows] += part[:, None] * shift

    def _close_if_empty(self, model: int) -> None:
        """Remove a model that nobody is on and that holds next to nothing."""
        models, users = self._models, self._users
        if models.users[model] or models.guests[model] or models.count[model] >= self.dim:
            return
        n = len(users)
        users.home[:n][users.home[:n] == model] = NONE
        users.model[:n][users.model[:n] == model] = NONE
        users.disbelieve(model)
        models.close(model)

    def _retire(self) -> None:
        """Remove the unused model that was left alone longest, if there are too many."""
        models, users = self._models, self._users
        rows = models.established
        unused = rows[(models.users[rows] == 0) & (models.guests[rows] == 0)]
        if len(unused) <= UNUSED:
            return
        oldest = int(unused[models.visited[unused].argmin()])
        n = len(users)
        users.home[:n][users.home[:n] == oldest] = NONE
        users.model[:n][users.model[:n] == oldest] = NONE
        users.disbelieve(oldest)
        models.close(oldest)

    def _is_shown(self, row: int) -> bool:
        models = self._models
        return row != NEW and bool(models.users[row] or models.count[row] >= models.established_at)


def _part(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
