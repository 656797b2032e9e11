"""`Tracker`: how users and models come together, part and change.

The mechanics of Atlas. A user on probation is put where the evidence is largest (`probe`); a
located one is followed by a belief (`follow`); models are founded, merged, split and retired by
the way. `docs/theory.md`, section 10, has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.core.evidence import Prior
from dyclu.policies.atlas.beliefs import likelihood, turning_point, weighed
from dyclu.policies.atlas.stream import StreamStatistics
from dyclu.policies.atlas.tastes import NEW, Tastes
from dyclu.policies.atlas.users import NONE, UNLIKELY, Segment, Users
from dyclu.validation import FloatArray, Ids, User

FEW = 3
"""Least rewards after which somebody can be located on an established model."""

YOUNG = 128
"""Most young models at a time: how many a segment on probation is compared with, at worst."""

FIRM = 32
"""Observations per feature from which on a model does without segments on probation: users are
located there as soon as that is certain. A younger one needs also the last few rewards of each of
its users, which a located user's lag would hold back."""

MAJORITY = 0.5
"""Share of all observations that the largest model holds while everybody is taken to be alike."""

UNUSED = 1000
"""Most established models without users that are kept for those who return."""

MEANT = UNLIKELY
"""Least weight of a model that arms are chosen with, on probation."""

UNTRIED = 0.9
"""Share of an arm's prior variance that is left if hardly anybody has tried anything like it."""

INFORMATIVE, SURE = 0.5, 0.9
"""Largest leverage and least belief with which a prediction's error tells of the noise."""

GROWTH, AGAIN = 1.1, 1.25
"""By how much the stream, and a user's share of a model, grow before they are looked at again."""


class Tracker:
    """Users, models, and what is known of the surroundings.

    Attributes
    ----------
    models, users, stream : Tastes, Users and StreamStatistics
        The three of them.
    clock : int
        How many rewards were learnt, of all users.
    retune_at : float
        At how many rewards the prior is learnt again.
    moved : tuple of int, int and float
        From which model to which the last change led, and how certain that was.
    """

    def __init__(self, dim: int, *, told: float | None, certainty: float, lag: int) -> None:
        self.dim, self.certainty, self.lag = dim, certainty, lag
        self.stream = StreamStatistics(told=told)
        self.models = Tastes(dim, Prior(np.zeros(dim), 1.0, self.stream.noise))
        self.users = Users(dim, lag=lag + 1, models=self.models)
        self.clock, self.retune_at = 0, 0.0
        self.moved = (NONE, NONE, 0.0)

    # What arms are chosen with

    def view(self, row: int) -> tuple[FloatArray, FloatArray, float]:
        """Return the estimate for a user, and the covariance of what is not known of it.

        Besides, the variance beyond which an arm counts as never tried. Somebody on probation with
        fewer rewards than features has no such arms: where contexts vary they come by anyway, and
        trying them for its own sake is dear.
        """
        models, users = self.models, self.users
        if row != NONE and users.seat[row] == NONE:
            home = users.model[row]
            theta = models.theta[home].copy()
            if row in users.doubts:
                theta = users.belief(row) @ models.theta[: models.rows]
            return theta, models.inverse[home], self.untried
        if row not in users.doubts:
            return *self._common_view(), math.inf
        beyond = self.untried if users.segment(row).size >= self.dim else math.inf
        return *self._probation_view(row, self._chances(row)), beyond

    @property
    def untried(self) -> float:
        """The variance of an arm, by its squared length and the noise's, that is all but prior."""
        return UNTRIED / self.models.prior.ridge

    def homes(self, users: Sequence[User]) -> Ids:
        """Return the row of the model that each user is on for sure; `NONE` for all others."""
        here = self.users
        rows = np.array([here.row.get(user, NONE) for user in users], np.intp)
        doubtful = np.array([row == NONE or row in here.doubts for row in rows.tolist()], bool)
        return np.where(doubtful | (here.seat[rows] != NONE), NONE, here.model[rows])

    def _common_view(self) -> tuple[FloatArray, FloatArray]:
        """Return what is expected of somebody of whom nothing is known.

        The models as often as newcomers are on them; before any is established, what all rewards
        have in common, tastes being noise around it. Where everybody is alike, they are too.
        """
        models, prior, rows = self.models, self.models.prior, self.models.live
        if self.stream.alike:
            largest = rows[models.count[rows].argmax()]
            return prior.posterior(models.gram[largest], models.moment[largest])
        if len(models.established):
            return models.entering(self.stream) @ models.theta[: models.rows], models.inverse[NEW]
        loud = Prior(
            prior.mean, prior.variance, prior.noise_variance + prior.variance * self.stream.size
        )
        theta, _ = loud.posterior(models.gram[rows].sum(axis=0), models.moment[rows].sum(axis=0))
        return theta, models.inverse[NEW]

    def _probation_view(self, row: int, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what the models say that are likely enough, the user's segment being part of each.

        A model that holds the segment already has it once.
        """
        models, users = self.models, self.users
        segment, meant = users.segment(row), np.flatnonzero(weight >= MEANT)
        theta, inverse = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for model in meant:
            part = 0.0 if users.placed[row] and model == users.model[row] else 1.0
            share = weight[model] / weight[meant].sum()
            mean, covariance = models.prior.posterior(
                models.gram[model] + part * segment.gram,
                models.moment[model] + part * segment.moment,
            )
            theta += share * mean
            inverse += share * covariance
        return theta, inverse

    # What is learnt of the surroundings

    def record(self, y: float, length: float) -> None:
        """Note a reward, and its context's squared length."""
        self.stream.record(y, length)
        if self.stream.heard >= self.retune_at:
            self._retune()

    def _retune(self) -> None:
        """Let the prior be what the stream says by now; done ever more rarely."""
        stream, models = self.stream, self.models
        self.retune_at = GROWTH * stream.heard + 1
        squares = self._squares()
        spread = stream.spread(squares, len(models.established))
        prior = Prior(np.zeros(self.dim), spread, stream.noise)
        self._compare_all(prior)
        models.retune(prior)

    def _squares(self) -> float:
        """Return the sum over the established models of a coordinate's expected square.

        What is not known of a taste counts as the prior says: directions nobody tried must not
        make tastes seem smaller than they are.
        """
        models, rows = self.models, self.models.established
        unknown = models.prior.noise_variance * models.inverse[rows].trace(axis1=1, axis2=2).sum()
        return float((models.theta[rows] ** 2).sum() + unknown) / self.dim

    def _compare_all(self, prior: Prior) -> None:
        """Note whether everybody is alike: certainly of one taste rather than of the many models.

        Then all is one model, and other tastes are the exception, until most have one.
        """
        models, rows = self.models, self.models.live
        if self.stream.alike:
            count = models.count[rows]
            self.stream.alike = bool(count.max() >= MAJORITY * count.sum())
            return
        together = prior.log_evidence(
            models.gram[rows].sum(axis=0), models.moment[rows].sum(axis=0)
        )
        apart = sum(prior.log_evidence(models.gram[row], models.moment[row]) for row in rows[1:])
        if together - apart > self._strong:
            self.stream.alike = True
            oldest, *others = rows[1:][models.id[rows[1:]].argsort()].tolist()
            for other in others:
                self._merge(oldest, other)

    # A located user

    def follow(self, row: int, x: FloatArray, y: float, length: float) -> tuple[bool, bool]:
        """Take in a reward of a located user; tell whether it was a stray, or showed a change."""
        models, users, stream = self.models, self.users, self.stream
        home, sure = int(users.model[row]), row not in users.doubts
        belief = np.empty(models.rows) if sure else users.belief(row)
        error, leverage, actions = kernels.atlas.update_located(
            models.gram, models.moment, models.inverse, models.theta, models.tally, users.ledger,
            models.surroundings(stream, self.clock), belief, x, y, row, home, sure,
        )  # fmt: skip
        if leverage < INFORMATIVE:
            stream.test(error * error / (1.0 + leverage))
        stream.followed += 1
        if sure and not actions:
            return False, False
        return bool(actions & kernels.atlas.SURPRISE), self._answer(actions, row, belief)

    def _answer(self, actions: int, row: int, belief: FloatArray) -> bool:
        """Do what a located user's reward actions for; tell whether it showed a change."""
        users, home, kernel = self.users, int(self.users.model[row]), kernels.atlas
        if actions & kernel.SUSPECT:
            return self._suspect(row, belief)
        if actions & kernel.DOUBT:
            users.doubt_with(row, belief, unlikely=0.0)
        else:
            users.be_sure(row)
        if actions & kernel.REFRESH:
            self.models.refresh(home)
        if actions & kernel.COMPARE:
            self._merge_if_alike(home)
        return bool(actions & kernel.RECONSIDER) and self._reconsider(row)

    def _credit(self, row: int, home: int, place: int) -> None:
        """Add a waiting observation to the user's model."""
        models, users = self.models, self.users
        x, y = users.contexts[row, place], float(users.rewards[row, place])
        models.credit(home, x, y, score=users.score[row], floor=self.stream.floor)
        users.credited[row] += 1
        models.visited[home] = self.clock
        if models.count[home] >= 2.0 * models.checked[home]:
            self._merge_if_alike(home)

    def _suspect(self, row: int, belief: FloatArray) -> bool:
        """Put a user on probation, with the rewards since the likely change."""
        models, users = self.models, self.users
        home = int(users.model[row])
        others = belief.copy()
        others[home] = 0.0
        cut = turning_point(*(self._likely(row, model) for model in (home, int(others.argmax()))))
        for place in range(cut):
            self._credit(row, home, place)
        users.suspect(row, cut)
        models.lodge(home, -1)
        users.home[row], users.model[row] = users.model[row], NONE
        users.since[row] = self.clock
        return self._place(row)

    def _likely(self, row: int, model: int) -> FloatArray:
        """Return how likely a user's waiting observations are under a model."""
        models, users, prior = self.models, self.users, self.models.prior
        waiting = int(users.waiting[row])
        contexts = users.contexts[row, :waiting]
        errors = users.rewards[row, :waiting] - contexts @ models.theta[model]
        spread = prior.variance if model == NEW else 0.0
        variances = prior.noise_variance + spread * np.einsum("nd,nd->n", contexts, contexts)
        return likelihood(errors, variances, self.stream.floor)

    def _reconsider(self, row: int) -> bool:
        """Let a user leave a model that their own share of its data contradicts."""
        models, users = self.models, self.users
        home = int(users.model[row])
        users.due[row] = AGAIN * users.credited[row]
        if models.count[home] - users.credited[row] < self.dim:
            return False
        part, prior = users.credited[row] / models.count[home], models.prior
        apart = Prior(np.zeros(self.dim), prior.variance, prior.noise_variance)
        if apart.log_evidence(part * models.gram[home], users.score[row]) < self._strong:
            return False
        models.lodge(home, -1)
        gram, moment = self.take_out(row, home)
        waiting = int(users.waiting[row])
        contexts, rewards = users.contexts[row, :waiting], users.rewards[row, :waiting]
        gram, moment = gram + contexts.T @ contexts, moment + contexts.T @ rewards
        users.sit(row, Segment(gram, moment, users.credited[row] + waiting))
        users.model[row], users.since[row] = NONE, self.clock
        users.credited[row], users.score[row] = 0.0, 0.0
        return self._place(row)

    @property
    def _strong(self) -> float:
        """Log odds that count as certain."""
        return -math.log(1.0 - self.certainty)

    def forget(self, row: int) -> None:
        """Take a user out of the models they are part of now."""
        if self.users.seat[row] == NONE:
            home = int(self.users.model[row])
            self.models.lodge(home, -1)
        else:
            self.withdraw(row)  # which may close their home, and then they have none
            home = int(self.users.home[row])
        if home != NONE:
            self.take_out(row, home)

    def take_out(self, row: int, home: int) -> tuple[FloatArray, FloatArray]:
        """Take the part of a user who is located no more out of a model's sums; return it.

        Which contexts were theirs is not known: they count as average ones of those who are, or
        were, located there. What the model left unexplained of them is; but their scores are
        measured against estimates that came to be later or earlier, and only the sum over all of
        them, at the last, is nothing: so each has to answer for a part of it.
        """
        models, users = self.models, self.users
        gram, moment, count = self._without_guests(home)
        there = self._tenants(home)
        part = min(users.credited[row] / max(count, 1.0), 1.0)
        weight = users.credited[row] / max(users.credited[there].sum(), 1.0)
        gram = part * gram
        moment = part * moment + users.score[row] - weight * users.score[there].sum(axis=0)
        models.add(home, gram, moment, -users.credited[row])
        self._close_if_empty(home)
        return gram, moment

    def _without_guests(self, model: int) -> tuple[FloatArray, FloatArray, float]:
        """Return a model's sums but for the segments on probation that are part of it."""
        models, users, n = self.models, self.users, len(self.users)
        gram, moment, count = models.gram[model], models.moment[model], float(models.count[model])
        for row in np.flatnonzero((users.model[:n] == model) & users.placed[:n]).tolist():
            segment = users.segment(row)
            gram, moment = gram - segment.gram, moment - segment.moment
            count -= segment.size
        return gram, moment, count

    def _tenants(self, model: int) -> Ids:
        """Return the users whose rewards a model was credited with: located there, or till now."""
        users, n = self.users, len(self.users)
        located = (users.model[:n] == model) & (users.seat[:n] == NONE)
        return np.flatnonzero(located | (users.home[:n] == model))

    # A user on probation

    def probe(self, row: int, x: FloatArray, y: float, length: float) -> tuple[bool, bool]:
        """Take in a reward of a user on probation; tell the same."""
        stray, prior = self._is_stray(row, x, y, length), self.models.prior
        if stray:
            expected, variance = (
                float(x @ prior.mean),
                prior.noise_variance + prior.variance * length,
            )
            y = expected + kernels.atlas.clipped_error(y - expected, variance, self.stream.floor)
        self.withdraw(row)
        self.users.extend(row, x, y)
        return stray, self._place(row)

    def _is_stray(self, row: int, x: FloatArray, y: float, length: float) -> bool:
        """Tell whether nothing that is thought of a user explains a reward; note its error."""
        prior, stream, users = self.models.prior, self.stream, self.users
        judged = row in users.doubts
        theta, inverse = (
            self._probation_view(row, users.belief(row)) if judged else self._common_view()
        )
        error, leverage = y - float(x @ theta), max(float(x @ inverse @ x), 0.0)
        if judged and leverage < INFORMATIVE and users.belief(row).max() > SURE:
            stream.test(error * error / (1.0 + leverage))
        as_new = _density(y - float(x @ prior.mean), prior.noise_variance + prior.variance * length)
        return max(_density(error, prior.noise_variance * (1.0 + leverage)), as_new) < stream.floor

    def withdraw(self, row: int) -> None:
        """Take a segment on probation out of the model it was put to."""
        models, users, model = self.models, self.users, int(self.users.model[row])
        if users.placed[row]:
            gram, moment, count = users.segment(row)
            users.placed[row] = False
            models.guests[model] -= 1
            models.add(model, gram, moment, -count)
            self._close_if_empty(model)
        users.model[row] = NONE

    def _place(self, row: int) -> bool:
        """Put a segment where the evidence is largest; tell whether its user has changed."""
        models, users = self.models, self.users
        models.know(models.live)
        chances = self._chances(row)
        users.doubt_with(row, chances)
        model, chance = int(chances.argmax()), float(chances.max())
        mine = users.segment(row).size
        sure, ripe = chance >= self.certainty, mine >= models.established_at
        if not sure and self._merge_if_torn(chances):
            return self._place(row)
        if ripe and not sure and users.home[row] == NONE:
            return self._settle(row, NEW, chance)  # wrong company costs more than company late
        if sure and (ripe or (mine >= FEW and mine + models.count[model] >= FIRM * self.dim)):
            return self._settle(row, model, chance)
        self._stay(row, model)
        return False

    def _chances(self, row: int) -> FloatArray:
        """Return how likely a segment is on each model, by what the others know by now."""
        models, users, rows = self.models, self.users, self.models.live
        gram, moment, _ = users.segment(row)
        gains = models.gains(rows, gram, moment)
        if users.placed[row]:
            model = int(users.model[row])
            rest = models.prior.log_evidence(
                models.gram[model] - gram, models.moment[model] - moment
            )
            gains[rows == model] = models.evidences(np.array([model])) - rest
        chances = np.zeros(models.rows)
        chances[rows] = weighed(gains + self._log_prior(int(users.home[row]), rows))
        return chances

    def _log_prior(self, home: int, rows: Any) -> FloatArray:
        """Return how likely the models are before the segment is looked at.

        All the same, but where everybody is alike as much as they hold.
        Whoever was located and is now suspected of a change is at home still, unless they changed.
        """
        count = self.models.count[rows]
        entering = np.ones(len(rows))
        if self.stream.alike:
            entering = np.maximum(count, 1.0) / max(count.max(), 1.0)
        entering[0] = self.stream.novelty(len(self.models.established))
        if home == NONE:
            return np.log(entering)
        log_prior: FloatArray = np.log(self.stream.hazard * entering / entering.sum())
        log_prior[rows == home] = 0.0
        return log_prior

    def _stay(self, row: int, model: int) -> None:
        """Leave a segment on probation; it counts with its model unless that is firm."""
        models, users = self.models, self.users
        young = len(models.live) - 1 - len(models.established)
        if model == NEW:
            if young >= YOUNG:
                return
            model = models.found(self.clock)
        users.model[row] = model
        if models.count[model] < FIRM * self.dim:
            users.placed[row] = True
            models.guests[model] += 1
            models.add(model, *users.segment(row))
        else:
            models.checked[model] = max(models.checked[model], 1.0)

    def _settle(self, row: int, model: int, chance: float) -> bool:
        """Locate a user on a model; tell whether they have changed."""
        models, users, stream = self.models, self.users, self.stream
        (gram, moment, count), home = users.segment(row), int(users.home[row])
        before = int(models.id[home]) if home != NONE else NONE
        stream.settled += 1
        stream.founded += int(not models.checked[model])
        if model == NEW:
            model = models.found(self.clock)
            self._retire()
        models.users[model] += 1
        models.add(model, gram, moment, count)
        models.visited[model] = self.clock
        if home != model:
            users.credited[row], users.score[row] = 0.0, 0.0
        users.credited[row] += count
        users.score[row] += moment - gram @ models.theta[model]
        users.due[row] = max(AGAIN * users.credited[row], self.dim)
        users.model[row], users.home[row], users.waiting[row] = model, NONE, 0
        users.since[row] = self.clock
        users.stand(row)
        users.be_sure(row)
        changed = home not in (NONE, model)
        if changed:
            self._close_if_empty(home)
        stream.changes += int(changed)
        stream.strays += int(home == model)
        if changed:
            self.moved = (before, int(models.id[model]), chance)
        if models.count[model] >= 2.0 * models.checked[model]:
            self._merge_if_alike(model)
        return changed

    # The life of models

    def _merge_if_torn(self, chances: FloatArray) -> bool:
        """Merge the two models a segment is likeliest on, if they are certainly one; tell whether.

        Where many arrive at once, one taste founds several models, and nobody is certain of any.
        """
        models = self.models
        pair = np.argsort(-chances, kind="stable")[:2]
        if NEW in pair or models.count[pair].min() < models.established_at:
            return False
        gram, moment = models.gram[pair].sum(axis=0), models.moment[pair].sum(axis=0)
        together = models.prior.log_evidence(gram, moment)
        if together - models.evidences(pair).sum() < self._strong:
            return False
        into, other = sorted(pair.tolist(), key=lambda row: -models.count[row])
        self._merge(into, other)
        return True

    def _merge_if_alike(self, model: int) -> None:
        """Merge a model with the one it resembles most, if certainly."""
        models = self.models
        models.checked[model] = models.count[model]
        rows = models.live[1:]
        rows = rows[(models.count[rows] >= self.dim) & (rows != model)]
        if not len(rows):
            return
        known = models.evidences(np.array([model]))[0]
        gains = models.gains(rows, models.gram[model], models.moment[model]) - known
        if gains.max() > self._strong:
            self._merge(model, int(rows[gains.argmax()]))

    def _merge(self, into: int, other: int) -> None:
        models, users = self.models, self.users
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
        models.close(other, into=into)

    def _carry_scores(self, model: int, theta: FloatArray) -> None:
        """Let what a model left unexplained of its users be what another estimate leaves."""
        models, users, rows = self.models, self.users, self._tenants(model)
        if len(rows):
            shift = models.gram[model] @ (models.theta[model] - theta)
            part = users.credited[rows] / max(models.count[model], 1.0)
            users.score[rows] += part[:, None] * shift

    def _close_if_empty(self, model: int) -> None:
        """Remove a model that nobody is on and that is hardly known."""
        if not (self.models.guests[model] or self.models.is_established(model)):
            self._close(model)

    def _retire(self) -> None:
        """Remove the unused model that was left alone longest, if there are too many.

        One that somebody may yet return to, being suspected of a change, is not unused.
        """
        models, rows = self.models, self.models.established
        unused = rows[(models.users[rows] == 0) & (models.guests[rows] == 0)]
        if len(unused) > UNUSED:
            unused = np.setdiff1d(unused, self.users.home[: len(self.users)])
        if len(unused) > UNUSED:
            self._close(int(unused[models.visited[unused].argmin()]))

    def _close(self, model: int) -> None:
        if self.models.checked[model]:  # else nobody can be on it: its guests have left
            self.users.leave(model)
        self.models.close(model)


def _density(error: float, variance: float) -> float:
    """Return the Gaussian density up to 1/√2π."""
    return math.exp(-0.5 * error * error / variance) / math.sqrt(variance)
