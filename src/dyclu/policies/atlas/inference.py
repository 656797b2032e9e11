"""`Inference`: what one reward does, from belief to change (docs/theory.md §10.3 and §10.5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dyclu import kernels
from dyclu.kernels import memory
from dyclu.policies.atlas.sharing import Sharing
from dyclu.policies.atlas.tastes import NEW, Tastes
from dyclu.policies.atlas.users import IN_DOUBT, LOCATED, NONE, Users
from dyclu.policies.common.panel import Panel
from dyclu.policies.common.population import LEAST_SPAN, Population
from dyclu.validation import FloatArray, User

CERTAIN = 0.99
"""Probability of a model from which on a user is located there."""

UNCHANGED = 0.1
"""Probability of no change below which a segment ends."""

FEW = 3
"""Least rewards of a segment after which a user is located."""

ESTABLISHED = 2.0
"""Observations of others per parameter that a model needs before a user is located there; or of
the user alone, to found one."""

ROUNDING = 1e-6
"""Observations that may be missing by rounding: counts are sums of shares, and often whole."""

LONG = 16
"""Span from which on users are reviewed at regular intervals, `REVIEWS` times per span."""

REVIEWS = 16


class Step(NamedTuple):
    """What a reward did.

    Attributes
    ----------
    surprised : bool
        Whether the reward was far from what was expected.
    before, after : int
        Rows of the models before and after a change; `NONE` if no change was found.
    age : int
        How many rewards of the user came since the change.
    certainty : float
        Probability of the model after the change.
    """

    surprised: bool = False
    before: int = NONE
    after: int = NONE
    age: int = 0
    certainty: float = 0.0


class Placing(NamedTuple):
    """What a user in doubt was placed by.

    Attributes
    ----------
    evidence, misfits : arrays of shape (models + 1,)
        Log evidence of the segment by model, and the part of it by which the likelihood of clicks
        exceeds that of their expansions.
    held : float
        Number of rewards in the segment.
    """

    evidence: FloatArray
    misfits: FloatArray
    held: float


class Inference:
    """Users, tastes, population, other shards, and the steps that a reward takes through them."""

    def __init__(self, dim: int, *, noise: float | None, rewards: str | None) -> None:
        self.dim = dim
        self.population = Population(dim, noise=noise, rewards=rewards)
        self.tastes, self.users, self.panel = Tastes(dim), Users(dim), Panel(dim)
        self.sharing = Sharing(dim)

    def learn(self, user: User, x: FloatArray, y: float) -> Step:
        """Learn from one reward."""
        population, users = self.population, self.users
        population.record(x, y)
        if population.clock == 1:
            population.begin()
            self.tastes.invalidate()
        else:
            self._follow_law()
        if self.sharing.pending:
            self.sharing.fold(self.tastes, population)
        if population.binary:
            y = min(max(y, 0.0), 1.0)
        row = users.row.get(user, NONE)
        if row == NONE:
            row = users.welcome(user)
            self.open_segment(row)
        users.rewards[row] += 1.0
        if users.status[row] == LOCATED:
            return self._learn_located(row, x, y)
        return self._learn_in_doubt(row, x, y)

    def _learn_in_doubt(self, row: int, x: FloatArray, y: float) -> Step:
        tastes, users, population = self.tastes, self.users, self.population
        if users.unit[row] == NONE and users.length[row] >= LEAST_SPAN:
            users.store_segment(row)
        block = users.roomy_memory(row, population.span)
        gram, moment, sums = segment = users.segment(row)
        surprised = kernels.atlas.learn_in_doubt(
            tastes.precision, tastes.shift, tastes.tally, tastes.rows, population.precision,
            population.shift, gram, moment, sums, users.ledger[row], block, population.stream, x, y,
        )  # fmt: skip
        users.holding[row] = sums[kernels.ledger.SCALE]
        self._seat_reward(row, block)
        age = self._review_in_doubt(row, block, segment) if self._is_due(row, 1) else 0
        return self.settle(row, surprised, age)

    def _learn_located(self, row: int, x: FloatArray, y: float) -> Step:
        tastes, users, population = self.tastes, self.users, self.population
        block = users.roomy_memory(row, population.span)
        surprised, suspicious = kernels.atlas.learn_located(
            tastes.precision, tastes.shift, tastes.covariance, tastes.theta, tastes.tally,
            tastes.rows, population.precision, population.shift, population.contexts,
            users.ledger[row], block, population.stream, x, y,
        )  # fmt: skip
        self._seat_reward(row, block)
        due = suspicious if population.span < LONG else self._is_due(row, LEAST_SPAN)
        if not due and not (suspicious and users.chance[row, 0] < 0.5):
            return Step(surprised)
        age = self._review_located(row, block)
        return self.settle(row, surprised, age) if age else Step(surprised)

    def _seat_reward(self, row: int, block: FloatArray) -> None:
        """Add the last reward of a user's memory to their segment on the panel, if it is there."""
        if self.users.seat[row] != NONE:
            panel = self.panel
            kernels.atlas.seat_reward(
                panel.gram, panel.moment, panel.sums, self.users.ledger[row], block,
                self.population.stream,
            )  # fmt: skip

    def _seat_memory(self, row: int, first: int, sign: float) -> None:
        """Add the rewards of a user's memory to their segment on the panel, or take them out."""
        users, panel, seat = self.users, self.panel, int(self.users.seat[row])
        if seat == NONE:
            return
        length, weight = int(users.length[row]), -1 if self.population.binary else memory.WEIGHT
        gram, moment = np.zeros((self.dim + 1,) * 2), np.zeros(self.dim + 1)
        energy = kernels.atlas.sum_memory(
            users.memory(row), first, length, memory.REWARD, weight, gram, moment
        )
        panel.gram[seat] += sign * gram
        panel.moment[seat] += sign * moment
        panel.sums[seat, kernels.ledger.HELD] += sign * (length - first)
        panel.sums[seat, kernels.ledger.ENERGY] += sign * energy

    def _is_due(self, row: int, least: int) -> bool:
        every = max(least, self.population.span // REVIEWS)
        return int(self.users.rewards[row]) % every == 0

    # Segments begin and end

    def open_segment(self, row: int) -> None:
        """Begin a segment: the user is in doubt, and believes in a taste never met."""
        users, population = self.users, self.population
        users.status[row], users.home[row], users.unit[row] = IN_DOUBT, NONE, NONE
        users.since[row] = population.clock
        users.holding[row] = 1.0 / kernels.ledger.user_variance(
            users.ledger[row], population.stream
        )
        users.suspect[row], users.suspicion[row] = NEW, 0.0
        users.believe(row, NEW)
        users.doubtful[row] = None
        population.segments += 1
        if users.seat[row] != NONE:
            self.panel.end(int(users.seat[row]))
        seat, left = self.panel.admit(row, population.segments)
        if left != NONE:
            users.seat[left] = NONE
        users.seat[row] = seat

    def _review_in_doubt(
        self, row: int, block: FloatArray, segment: tuple[FloatArray, FloatArray, FloatArray]
    ) -> int:
        """End the segment if the user has probably changed; return how many rewards ago."""
        tastes, users, population = self.tastes, self.users, self.population
        gram, moment, sums = segment
        first = 1 if sums[kernels.ledger.HELD] <= users.length[row] else 0
        if users.length[row] <= first:
            return 0
        unchanged, cut = kernels.atlas.review_in_doubt(
            tastes.precision, tastes.shift, tastes.theta, tastes.tally, tastes.rows,
            population.precision, population.shift, population.covariance, population.mean,
            gram, moment, sums, users.ledger[row], block, population.stream, first,
        )  # fmt: skip
        return self._end_segment(row, unchanged, cut)

    def _review_located(self, row: int, block: FloatArray) -> int:
        """End the segment if the user has probably changed; return how many rewards ago."""
        tastes, users, population = self.tastes, self.users, self.population
        unchanged, cut = kernels.atlas.review(
            tastes.theta, tastes.tally, tastes.rows, population.covariance, population.mean,
            users.ledger[row], block, population.stream, 0,
        )  # fmt: skip
        return self._end_segment(row, unchanged, cut)

    def _end_segment(self, row: int, unchanged: float, cut: int) -> int:
        if unchanged >= UNCHANGED:
            return 0
        length = int(self.users.length[row])
        self._split(row, cut)
        return length - cut

    def _split(self, row: int, cut: int) -> None:
        """End a segment before the memory's reward `cut`; the rest begins a new one."""
        tastes, users, population = self.tastes, self.users, self.population
        length = int(users.length[row])
        block, home = users.memory(row), int(users.home[row])
        if home != NONE:
            gram, moment = np.zeros((self.dim + 1,) * 2), np.zeros(self.dim + 1)
            kernels.atlas.sum_memory(
                block, cut, length, memory.RESPONSE, memory.CREDIT, gram, moment
            )
            tastes.add(home, gram, moment, -self._credited(row, cut))
            tastes.users[home] -= 1.0
        else:
            self._cut_segment(row, cut)
        self._seat_memory(row, cut, -1.0)
        self._close_segment(row)
        noise = kernels.ledger.user_variance(users.ledger[row], population.stream)
        kernels.restarts.reobserve(
            block, cut, length, population.covariance, population.mean, noise, population.binary
        )
        users.forget_before(row, cut)
        self.open_segment(row)
        self._seat_memory(row, 0, 1.0)
        if length - cut > LEAST_SPAN:
            users.store_segment(row)
        self.place(row)
        self.expand_again(row)
        if home != NONE:
            population.note_change(1.0 - float(users.chance_of(home, np.array([row]))[0]))
        tastes.refresh(population)
        users.memory(row)[: length - cut, self.dim + memory.CREDIT] = 0.0
        self._predict_again(row)

    def _cut_segment(self, row: int, cut: int) -> None:
        """Take the memory's rewards from `cut` on out of the segment of a user in doubt."""
        tastes, users, column = self.tastes, self.users, kernels.ledger
        self._share_out(row, -1.0)
        held, pull, sums = users.segment(row)
        gram, moment = np.zeros_like(held), np.zeros_like(pull)
        length = int(users.length[row])
        sums[column.ENERGY] -= kernels.atlas.sum_memory(
            users.memory(row), cut, length, memory.RESPONSE, memory.WEIGHT, gram, moment
        )
        held -= gram
        pull -= moment
        sums[column.HELD] -= length - cut
        kernels.atlas.share_out(
            tastes.precision, tastes.shift, tastes.tally, users.ledger[row], 1.0, sums, held, pull
        )

    def _predict_again(self, row: int) -> None:
        """Set the densities in a user's memory to those that the belief predicts."""
        tastes, users, population = self.tastes, self.users, self.population
        kernels.restarts.restart(
            tastes.precision, tastes.shift, tastes.theta, tastes.tally, tastes.rows,
            population.covariance, population.mean, users.ledger[row], users.memory(row),
            population.stream,
        )  # fmt: skip

    def expand_again(self, row: int) -> None:
        """Expand the clicks of a user in doubt around what the likeliest model expects, and place.

        Nothing is done where rewards are real, or if the memory does not hold the whole segment.
        """
        tastes, users, population = self.tastes, self.users, self.population
        if not population.binary:
            return
        length = int(users.length[row])
        gram, moment, sums = users.segment(row)
        if sums[kernels.ledger.HELD] > length:
            return
        theta, nothing = np.empty(self.dim + 1), np.empty(0)
        belief = np.zeros(int(tastes.rows[-1]) + 1)
        likeliest = int(users.likely[row, 0])
        belief[likeliest] = users.chance[row, 0]
        kernels.choosing.score_in_doubt(
            tastes.precision, tastes.shift, np.array([likeliest]), population.precision,
            population.shift, gram, moment, sums[kernels.ledger.SCALE], belief, NEW, 0.0,
            np.empty((0, self.dim)), tastes.tally, 0.0, 1.0, population.binary, 0.0, theta, nothing,
            nothing,
        )  # fmt: skip
        self._share_out(row, -1.0)
        kernels.restarts.reobserve(
            users.memory(row), 0, length, np.zeros_like(gram), theta, 1.0, population.binary
        )
        if users.unit[row] != NONE:
            gram[:], moment[:] = 0.0, 0.0
            sums[kernels.ledger.ENERGY] = kernels.atlas.sum_memory(
                users.memory(row), 0, length, memory.RESPONSE, memory.WEIGHT, gram, moment
            )
        self._share_out(row, 1.0)
        self.place(row)

    def _follow_law(self) -> None:
        """Turn everything into the levels of another law if rewards have turned out to follow it.

        This looks at all users, once per change of law; the law changes early if it does at all.
        """
        line = self.population.change_law()
        if line is None:
            return
        rows = list(self.users.row.values())
        self.sharing.withdraw(self.tastes)
        for row in rows:
            self._contribute_memory(row, -1.0)
        self.tastes.convert(*line)
        self.users.convert(*line, float(self.population.stream[kernels.ledger.NOISE]))
        for row in rows:
            self._observe_again(row)
            self._contribute_memory(row, 1.0)
            self.panel.empty(int(self.users.seat[row]))
            self._seat_memory(row, 0, 1.0)
        self.tastes.refresh(self.population)
        for row in rows:
            self._predict_again(row)

    def _contribute_memory(self, row: int, sign: float) -> None:
        """Add what a user's memory says to the models, or take it out; counts stay as they are."""
        tastes, users = self.tastes, self.users
        if users.status[row] == IN_DOUBT:
            self._share_out(row, sign)
            return
        gram, moment = np.zeros((self.dim + 1,) * 2), np.zeros(self.dim + 1)
        kernels.atlas.sum_memory(
            users.memory(row), 0, int(users.length[row]), memory.RESPONSE, memory.CREDIT, gram,
            moment,
        )  # fmt: skip
        kernels.tastes.contribute(
            tastes.precision, tastes.shift, tastes.tally, int(users.home[row]), sign, 1.0, gram,
            moment, 0.0,
        )  # fmt: skip

    def _observe_again(self, row: int) -> None:
        """Set weights and responses in a user's memory by the present law, in their segment too."""
        users, population, column = self.users, self.population, kernels.ledger
        block, length, unit = users.memory(row), int(users.length[row]), int(users.unit[row])
        gram, moment = np.zeros((self.dim + 1,) * 2), np.zeros(self.dim + 1)
        energy = -kernels.atlas.sum_memory(
            block, 0, length, memory.RESPONSE, memory.WEIGHT, gram, moment
        )
        gram, moment = -gram, -moment
        # Noise without limit: rewards that were learnt as clicks are 0 to 1, and no outliers.
        noise = 1.0 if population.binary else np.inf
        kernels.restarts.reobserve(
            block, 0, length, population.covariance, population.mean, noise, population.binary
        )
        energy += kernels.atlas.sum_memory(
            block, 0, length, memory.RESPONSE, memory.WEIGHT, gram, moment
        )
        if unit != NONE:
            users.segments.gram[unit] += gram
            users.segments.moment[unit] += moment
            users.segments.sums[unit, column.ENERGY] += energy
        if users.status[row] == LOCATED:
            weights = block[:length, self.dim + memory.WEIGHT]
            block[:length, self.dim + memory.CREDIT] = users.holding[row] * weights

    def _credited(self, row: int, first: int) -> float:
        """Return as how many observations the home model counts the memory's rewards."""
        users = self.users
        block = users.memory(row)[first : int(users.length[row])]
        noise = kernels.ledger.user_variance(users.ledger[row], self.population.stream)
        shares = noise * block[:, self.dim + memory.CREDIT] / block[:, self.dim + memory.WEIGHT]
        return float(np.minimum(shares, 1.0).sum())

    def _close_segment(self, row: int) -> None:
        unit = int(self.users.unit[row])
        if unit != NONE:
            self.users.segments.give_back(unit)
        self.users.unit[row] = NONE

    def _share_out(self, row: int, sign: float) -> None:
        """Add the segment of a user in doubt to the models, or take it out."""
        tastes, users = self.tastes, self.users
        gram, moment, sums = users.segment(row)
        kernels.atlas.share_out(
            tastes.precision, tastes.shift, tastes.tally, users.ledger[row], sign, sums, gram,
            moment,
        )  # fmt: skip

    def place(self, row: int, banned: int = NONE) -> Placing:
        """Compute the belief of a user in doubt anew."""
        tastes, users, population = self.tastes, self.users, self.population
        gram, moment, sums = users.segment(row)
        evidence, misfits = np.empty(len(tastes.rows)), np.empty(len(tastes.rows))
        kernels.atlas.place(
            tastes.precision, tastes.shift, tastes.tally, tastes.rows, population.precision,
            population.shift, gram, moment, sums, users.ledger[row], users.memory(row),
            population.stream, banned, evidence, misfits,
        )  # fmt: skip
        return Placing(evidence, misfits, float(sums[kernels.ledger.HELD]))

    # Users are located

    def settle(self, row: int, surprised: bool = False, age: int = 0) -> Step:
        """Locate a user in doubt if that is certain; return what happened."""
        tastes, users, population = self.tastes, self.users, self.population
        chance, model = float(users.chance[row, 0]), int(users.likely[row, 0])
        if users.status[row] == LOCATED or chance < CERTAIN:
            return Step(surprised)
        held = float(users.held(row))
        others = held if model == NEW else tastes.count[model] - chance * held
        if held < FEW or others < ESTABLISHED * (self.dim + 1) - ROUNDING:
            return Step(surprised)
        self._share_out(row, -1.0)
        if model == NEW:
            model = tastes.found(population.clock)
        users.believe(row, model)
        self._share_out(row, 1.0)
        before = int(users.before[row])
        self._locate(row, model)
        if before in (NONE, model):
            return Step(surprised)
        return Step(surprised, before, model, age or int(users.length[row]), chance)

    def _locate(self, row: int, model: int) -> None:
        """Make a user in doubt a located one; the model keeps what it holds of them."""
        tastes, users = self.tastes, self.users
        length = int(users.length[row])
        block, scale = users.memory(row), users.holding[row]
        block[:length, self.dim + memory.CREDIT] = scale * block[:length, self.dim + memory.WEIGHT]
        users.status[row], users.home[row], users.before[row] = LOCATED, model, model
        users.since[row] = self.population.clock
        users.doubtful.pop(row)
        tastes.users[model] += 1.0
        tastes.joined[model] += 1.0
        tastes.visited[model] = self.population.clock
        self._close_segment(row)
        tastes.refresh(self.population, model)

    def forget(self, row: int) -> None:
        """Take a user out of the panel and, as far as what is kept of them tells, of the models."""
        self.panel.forget(row)
        tastes, users = self.tastes, self.users
        if users.status[row] == IN_DOUBT:
            self._share_out(row, -1.0)
            return
        home = int(users.home[row])
        gram, moment = np.zeros((self.dim + 1,) * 2), np.zeros(self.dim + 1)
        length = int(users.length[row])
        kernels.atlas.sum_memory(
            users.memory(row), 0, length, memory.RESPONSE, memory.CREDIT, gram, moment
        )
        tastes.add(home, gram, moment, -self._credited(row, 0))
        tastes.users[home] -= 1.0
