"""`Upkeep`: what concerns many users or models, in slices, one per reward (docs/theory.md §10.6).

When the stream has grown by 5 %, the prior is learnt again. After that, users in doubt are placed
anew, a few per reward, and how often tastes are new is learnt; then every model that has grown is
compared with the others, one per reward; last, one group of doubtful segments is grouped afresh.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from dyclu import kernels
from dyclu.policies.atlas.inference import ESTABLISHED, Inference, Placing
from dyclu.policies.atlas.tastes import NEW
from dyclu.policies.atlas.users import NONE
from dyclu.policies.common.population import COMPARED_USERS, GROWTH, PAIRED
from dyclu.validation import FloatArray, Ids

PLACED = 16
"""Users in doubt who are placed anew per reward."""

COMPARED = 64
"""Pairs of models that are compared per reward, at least one model with all others."""

SWEEP = 1024
"""Most users in doubt who are placed anew between two estimates of the prior."""

GROUPED = 40
"""Most segments that are grouped at once."""

FOUNDING = 1.0
"""Log evidence that a group must gain to become a model. The best of many possible groups gains
something by chance."""

GROWN = 1.1
"""Factor by which a model grows before it is compared with the others again."""

PRUDENCE = 0.25
"""Weight of what the members' places cost when models are merged."""

ROUNDING = 1e-6
"""Gain in log evidence that may be rounding: the groups are the same as before."""

MEMBERS, SWEEPS, LEAST_SHARE = 128, 12, 0.05
"""Of the split of a model: most segments, sweeps of EM, and least share of a segment."""

MOST_MODELS = 1000
"""Most models; of those without users, the one left alone longest is removed."""

IDLE, PLACING, MERGING, GROUPING = range(4)


class Upkeep:
    """The agenda of slices.

    Attributes
    ----------
    phase : int
        What is done next: `IDLE`, `PLACING`, `MERGING` or `GROUPING`.
    queue : list of int
        Rows of users or models that are left to do.
    turn : int
        Which model's segments are grouped next.
    worth : array of shape (room, 2)
        By row of a model, the log evidence that its segments would have elsewhere, and how many
        rewards they hold.
    odds : list of float
        Log evidence of the segments placed so far for a known taste, rather than a new one.
    """

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.phase, self.turn = IDLE, 0
        self.queue: list[int] = []
        self.worth: FloatArray = np.zeros((0, 2))
        self.odds: list[float] = []

    def step(self) -> None:
        """Do the next slice: when the prior is due, and after each reward until all is done."""
        if self.phase == IDLE:
            self._learn_prior()
        elif self.phase == PLACING:
            self._place_some()
        elif self.phase == MERGING:
            self._merge_some()
        else:
            self._group()
            self._tidy()
            self.inference.sharing.fold(self.inference.tastes, self.inference.population)
            self.phase = IDLE

    def _learn_prior(self) -> None:
        population, users = self.inference.population, self.inference.users
        population.due = max(population.clock + 1.0, GROWTH * population.clock)
        gram, moment, sums = self.inference.panel.held()
        if not len(sums):
            return
        population.learn(gram, moment, sums)
        n = min(users.rows, COMPARED_USERS)
        population.compare_users(users.noise_sum[:n], users.noise_weight[:n])
        population.set_span()
        self.inference.tastes.invalidate()
        self.inference.tastes.refresh(population)
        self.queue = list(islice(users.doubtful, SWEEP))
        self.worth, self.odds = np.zeros((0, 2)), []
        self.phase = PLACING

    def _place_some(self) -> None:
        """Place a few users in doubt anew; those who are placed go to the end of the line."""
        inference, users = self.inference, self.inference.users
        for row in self.queue[:PLACED]:
            if row in users.doubtful:
                del users.doubtful[row]
                users.doubtful[row] = None
                inference.expand_again(row)
                self._note(row, inference.place(row))
                inference.settle(row)
        del self.queue[:PLACED]
        if not self.queue:
            # First: `worth` was computed with the present newness.
            self._dissolve()
            self._learn_newness()
            tastes = inference.tastes
            self.queue = [
                int(row)
                for row in tastes.rows[1:]
                if tastes.count[row] > GROWN * tastes.checked[row]
            ]
            self.phase = MERGING

    def _note(self, row: int, placing: Placing) -> None:
        """Note what a segment says of the share of new tastes, and of the models it belongs to."""
        evidence, misfits, held = placing
        if len(evidence) == 1:
            return
        users, tastes = self.inference.users, self.inference.tastes
        if held >= 2.0:
            newness = self.inference.population.stream[kernels.ledger.NEWNESS]
            self.odds.append(kernels.births.known_rather_than_new(evidence, newness))
        if len(self.worth) < len(tastes.tally):
            self.worth = np.vstack([self.worth, np.zeros((len(tastes.tally) - len(self.worth), 2))])
        kernels.births.note_worth(
            evidence, misfits, tastes.rows, users.likely[row], users.chance[row], held, self.worth
        )

    def _learn_newness(self) -> None:
        tastes = self.inference.tastes
        if len(tastes):
            joined = tastes.joined[tastes.rows]
            members = self._members(self.inference.users.in_doubt())[tastes.rows]
            alone = joined[joined + members - tastes.users[tastes.rows] < 1.5].sum()
            self.inference.population.learn_newness(
                self.odds, len(tastes), float(joined.sum()), float(alone), self._count_tastes()
            )

    def _count_tastes(self) -> float:
        """Return about how many tastes there are, from some segments of the panel, in turn.

        Once more segments have been located than are in doubt, those tell it better.
        """
        tastes, users = self.inference.tastes, self.inference.users
        if tastes.joined[tastes.rows].sum() >= len(users.doubtful):
            return 1.0
        population, (gram, moment, sums) = self.inference.population, self.inference.panel.held()
        some = (np.arange(min(len(sums), PAIRED)) + int(population.clock)) % len(sums)
        return population.count_tastes(
            gram[some], moment[some], np.ascontiguousarray(sums[some, kernels.ledger.RATIO])
        )

    def _dissolve(self) -> None:
        """Remove the model whose segments gain most by belonging elsewhere, if there is one."""
        tastes, best, worst = self.inference.tastes, 0.0, NONE
        newness = float(self.inference.population.stream[kernels.ledger.NEWNESS])
        for model in np.flatnonzero(self.worth[:, 1]).tolist():
            worth, held = self.worth[model].tolist()
            whole = tastes.count[model] <= 1.1 * held + 1.0
            foreign = self.inference.sharing.holds(model)
            if model in tastes.rows and not tastes.users[model] and whole and not foreign:
                gain = worth - newness - (self._evidence(model) - self._evidence(NEW))
                if gain > best:
                    best, worst = gain, model
        if worst != NONE:
            self._empty(worst)
            self._close(worst)

    def _empty(self, model: int) -> None:
        """Place all users in doubt who believe in a model elsewhere."""
        users = self.inference.users
        for row in users.believers(users.in_doubt(), model, 0.0).tolist():
            self.inference.place(row, banned=model)

    def _evidence(self, row: int) -> float:
        tastes, population = self.inference.tastes, self.inference.population
        if np.isnan(tastes.evidence[row]):
            tastes.evidence[row] = kernels.tastes.log_evidence(
                tastes.precision[row], tastes.shift[row], population.precision, population.shift,
                0.0, tastes.precision[row], tastes.shift[row],
            )  # fmt: skip
        return float(tastes.evidence[row])

    def _members(self, rows: Ids, weight: float = 1.0) -> FloatArray:
        """Return how many segments, or shares of them, each model has.

        Each of the users in doubt in these rows stands for `weight` of them.
        """
        tastes, users = self.inference.tastes, self.inference.users
        room = int(tastes.rows[-1]) + 1
        return tastes.users[:room] + weight * users.members(rows, room)

    def _some_in_doubt(self) -> tuple[Ids, float]:
        return self.inference.users.some_in_doubt(int(self.inference.population.clock))

    def _merge_some(self) -> None:
        rows, weight = self._some_in_doubt()
        for _ in range(max(1, COMPARED // (len(self.inference.tastes) + 1))):
            if self.phase == MERGING:
                self._merge_one(rows, weight)

    def _merge_one(self, rows: Ids, weight: float) -> None:
        """Compare one model with the others, and merge it if that raises the evidence."""
        tastes, population = self.inference.tastes, self.inference.population
        row = self.queue.pop() if self.queue else NONE
        if not self.queue:
            self.phase = GROUPING
        if row not in tastes.rows:
            return
        tastes.checked[row] = tastes.count[row]
        divisions = weight * self.inference.users.divisions(rows, row)
        partner, _ = kernels.births.best_partner(
            tastes.precision, tastes.shift, tastes.tally, tastes.rows, population.precision,
            population.shift, row, self._members(rows, weight), divisions, PRUDENCE,
        )  # fmt: skip
        if partner != NONE:
            into, other = (row, partner) if tastes.id[row] < tastes.id[partner] else (partner, row)
            self._merge(into, other)

    def _merge(self, into: int, other: int) -> None:
        tastes, users = self.inference.tastes, self.inference.users
        tastes.add(into, tastes.precision[other], tastes.shift[other], tastes.count[other])
        tastes.users[into] += tastes.users[other]
        tastes.joined[into] += tastes.joined[other]
        tastes.visited[into] = max(tastes.visited[into], tastes.visited[other])
        tastes.checked[into] = 0.0
        users.rename(other, into)
        self.inference.sharing.rename(other, into)
        tastes.close(other)
        tastes.refresh(self.inference.population)
        self.queue.append(into)
        self.phase = MERGING

    def _close(self, row: int) -> None:
        self.inference.users.rename(row, NEW)
        self.inference.tastes.close(row)

    def _group(self) -> None:
        """Split one model, if its segments ask for it; group segments that follow no model."""
        tastes = self.inference.tastes
        self._group_strangers()
        if len(tastes):
            self.turn += 1
            self._split(int(tastes.rows[1 + self.turn % len(tastes)]))
        tastes.refresh(self.inference.population)

    def _group_strangers(self) -> None:
        """Group segments that believe in a taste never met; each group becomes a model."""
        tastes, users, population = (
            self.inference.tastes, self.inference.users, self.inference.population,
        )  # fmt: skip
        pool = self._longest(users.believers(self._some_in_doubt()[0], NEW, 0.5), GROUPED)
        if len(pool) < 2:
            return
        precision, shift = self._natural_forms(pool)
        label, gained = np.empty(len(pool), np.intp), np.empty(len(pool))
        kernels.births.group(
            precision, shift, population.precision, population.shift, self._evidence(NEW), label,
            gained,
        )  # fmt: skip
        for name in np.flatnonzero(gained > FOUNDING):
            model = tastes.found(population.clock)
            for i in np.flatnonzero(label == name):
                self._assign(int(pool[i]), model)

    def _split(self, model: int) -> None:
        """Divide a model in two if that raises the evidence, places included."""
        tastes, users, population = (
            self.inference.tastes, self.inference.users, self.inference.population,
        )  # fmt: skip
        members = self._longest(
            users.believers(self._some_in_doubt()[0], model, LEAST_SHARE), MEMBERS
        )
        if len(members) < 2:
            return
        precision, shift = self._natural_forms(members)
        shares = users.chance_of(model, members)
        rest = tastes.precision[model] - np.einsum("s,sij->ij", shares, precision)
        pull = tastes.shift[model] - shares @ shift
        stays = np.empty(len(members))
        gain = kernels.births.split(
            precision, shift, shares, rest, pull, population.precision, population.shift,
            self._evidence(NEW), SWEEPS, stays,
        )  # fmt: skip
        if population.binary and gain > kernels.tastes.IMPOSSIBLE:
            gain += self._misfit_of_split(model, members, shares, stays, precision, shift)
        if not gain > ROUNDING:
            return
        new = tastes.found(population.clock)
        for row, part in zip(members.tolist(), stays.tolist(), strict=True):
            self.inference._share_out(row, -1.0)
            users.divide(row, model, new, part, int(tastes.rows[-1]) + 1)
            self.inference._share_out(row, 1.0)

    def _misfit_of_split(
        self,
        model: int,
        members: Ids,
        shares: FloatArray,
        stays: FloatArray,
        precision: FloatArray,
        shift: FloatArray,
    ) -> float:
        """Return what a split gains by the likelihood of clicks beyond that by their expansions."""
        tastes, users, population = (
            self.inference.tastes, self.inference.users, self.inference.population,
        )  # fmt: skip
        leaves = shares * (1.0 - stays)
        gone, pull = np.einsum("s,sij->ij", leaves, precision), leaves @ shift
        whole = tastes.precision[model] + population.precision
        total = tastes.shift[model] + population.shift
        thetas = (
            np.linalg.solve(whole, total),
            np.linalg.solve(whole - gone, total - pull),
            np.linalg.solve(population.precision + gone, population.shift + pull),
        )
        gain = 0.0
        for row, share, part in zip(members.tolist(), shares.tolist(), stays.tolist(), strict=True):
            clicks = users.memory(row)[: int(users.length[row])]
            before, stay, leave = (kernels.laws.misfit(clicks, theta) for theta in thetas)
            gain += share * (part * stay + (1.0 - part) * leave - before)
        return gain

    def _longest(self, rows: Ids, most: int) -> Ids:
        """Return those with the most rewards in their segments, 2 at least."""
        users = self.inference.users
        held = users.held(rows)
        order = np.argsort(-held, kind="stable")[:most]
        return np.asarray(rows[order][held[order] >= 2.0], np.intp)

    def _natural_forms(self, rows: Ids) -> tuple[FloatArray, FloatArray]:
        """Return precision and shift of the segments of users in doubt."""
        sums = [self.inference.users.segment(int(row)) for row in rows]
        scales = [own[kernels.ledger.SCALE] for _, _, own in sums]
        precision = np.array([s * gram for s, (gram, _, _) in zip(scales, sums, strict=True)])
        shift = np.array([s * moment for s, (_, moment, _) in zip(scales, sums, strict=True)])
        return precision, shift

    def _assign(self, row: int, model: int) -> None:
        """Make a user in doubt certain of a model."""
        inference = self.inference
        inference._share_out(row, -1.0)
        inference.users.believe(row, model)
        inference._share_out(row, 1.0)

    def _tidy(self) -> None:
        """Remove models that nobody is on and that hold little, and unused ones if too many."""
        tastes, users = self.inference.tastes, self.inference.users
        members = self._members(users.in_doubt())
        for row in tastes.rows[1:].tolist():
            little = tastes.count[row] < ESTABLISHED * (self.inference.dim + 1)
            used = tastes.users[row] or members[row] >= 0.5 or self.inference.sharing.holds(row)
            if little and not used:
                if members[row] > 0.0:
                    self._empty(row)
                self._close(row)
        if len(tastes) > MOST_MODELS:
            holds = self.inference.sharing.holds
            unused = [r for r in tastes.rows[1:].tolist() if members[r] < 0.5 and not holds(r)]
            if unused:
                row = min(unused, key=lambda row: tastes.visited[row])
                self._empty(row)
                self._close(row)

    def dump(self) -> dict[str, Any]:
        """Return the state, as JSON holds it."""
        noted = np.flatnonzero(self.worth[:, 1]).tolist()
        return {
            "phase": self.phase,
            "turn": self.turn,
            "queue": self.queue,
            "worth": [[row, float(self.worth[row, 0])] for row in noted],
            "held": [[row, float(self.worth[row, 1])] for row in noted],
            "odds": self.odds,
        }

    def fill(self, state: dict[str, Any]) -> None:
        """Restore what `dump` returned."""
        self.phase, self.turn, self.queue = state["phase"], state["turn"], list(state["queue"])
        self.worth = np.zeros((1 + max((row for row, _ in state["held"]), default=-1), 2))
        for column, name in enumerate(("worth", "held")):
            for row, value in state[name]:
                self.worth[row, column] = value
        self.odds = list(state["odds"])
