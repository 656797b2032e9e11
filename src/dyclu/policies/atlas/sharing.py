"""`Sharing`: what other shards have learnt of tastes, as part of the models (docs/theory.md §11).

Contributions are placed like segments of users in doubt: by their evidence under each model, and
under a taste never met. The sums of a model are its own plus those of the contributions placed on
it. What is published is its own part only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.contributions import Contribution, Key, Kind, Registry, dump, filled, is_sum
from dyclu.policies.atlas.tastes import NEW, Tastes
from dyclu.policies.common.population import Population
from dyclu.validation import FloatArray

KINDS: tuple[Kind, ...] = ("atlas-real", "atlas-binary")

PLACED = 0.5
"""Probability of a model, or of a taste never met, from which on a contribution is placed there."""

EMPTY = 0.5
"""Observations below which a model says nothing of where a contribution belongs."""

LITTLE = 0.3
"""Observations per parameter below which a shard does not publish its part of a model. Models come
and go as long as their users have given a few rewards each."""

ROUNDING = 1e-9
"""Share of a model by which its own part may differ without news: sums of others are taken off."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Natural form and number of some observations."""

    precision: FloatArray
    shift: FloatArray
    count: float


class Sharing:
    """Contributions of other shards, and the models that they are part of.

    Attributes
    ----------
    registry : Registry
        The newest contribution of each model of each other shard.
    pending : bool
        Whether the registry has contributions that the models do not contain yet.
    placed : dict of (str, int) to (int, Contribution)
        By shard and model, the row here and the contribution that is part of it.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.registry = Registry()
        self.pending = False
        self.placed: dict[Key, tuple[int, Contribution]] = {}
        self._foreign: dict[int, Sums] = {}

    def absorb(self, contributions: list[Contribution]) -> int:
        """Keep what is newer than before; return how many contributions were."""
        news = sum(map(self.registry.add, contributions))
        self.pending = self.pending or news > 0
        return news

    def holds(self, row: int) -> bool:
        """Return whether contributions are part of a model."""
        return row in self._foreign

    def fold(self, tastes: Tastes, population: Population) -> None:
        """Place what is new, and take out what it replaces; then nothing is pending."""
        if not len(self.registry):
            return
        kind, waiting = _kind(population), []
        for one in self.registry:
            row, old = self.placed.get(one.key, (NEW, None))
            usable = one.kind == kind and one.count > 0.0
            if old is not one or not usable:
                self._take_out(one.key, tastes)
                if usable:
                    waiting.append((one, row))
        for one, row in sorted(waiting, key=lambda pair: (-pair[0].count, pair[0].key)):
            self._place(one, row, tastes, population)
        self.pending = False
        tastes.refresh(population)

    def _place(
        self, one: Contribution, before: int, tastes: Tastes, population: Population
    ) -> None:
        """Add a contribution to the model that explains it, or to a new one.

        If none is likely enough, or the model that held the one `before` it has become empty, it
        takes that place again.
        """
        evidence = self._belief(one, tastes, population)
        best = int(evidence.argmax())
        row = int(tastes.rows[best])
        if before != NEW and (evidence[best] < PLACED or tastes.count[before] < EMPTY):
            row = before
        elif evidence[best] < PLACED:
            return
        elif row == NEW:
            row = tastes.found(population.clock)
        tastes.add(row, one.gram, one.moment, one.count)
        self.placed[one.key] = (row, one)
        self._sum(row)

    def _belief(self, one: Contribution, tastes: Tastes, population: Population) -> FloatArray:
        """Return the probability of each of `tastes.rows`, as for the segment of a user."""
        n, p = len(tastes.rows), self.dim + 1
        evidence, unused = np.empty(n), np.empty((3, n))
        kernels.tastes.weigh(
            tastes.precision, tastes.shift, tastes.tally, tastes.rows, population.precision,
            population.shift, one.gram, one.moment, 1.0, np.zeros(int(tastes.rows[-1]) + 1),
            np.zeros(p), np.empty((0, p)), float(population.stream[kernels.ledger.NEWNESS]),
            evidence, *unused,
        )  # fmt: skip
        kernels.laws.normalise(evidence)
        return evidence

    def _take_out(self, key: Key, tastes: Tastes) -> None:
        if key in self.placed:
            row, one = self.placed.pop(key)
            tastes.add(row, one.gram, one.moment, -one.count)
            self._sum(row)

    def _sum(self, row: int) -> None:
        """Add up what is placed on a model, in the order of shards and models."""
        here = [one for _, (place, one) in sorted(self.placed.items()) if place == row]
        if not here:
            self._foreign.pop(row, None)
            return
        self._foreign[row] = Sums(
            np.sum([one.gram for one in here], axis=0),
            np.sum([one.moment for one in here], axis=0),
            math.fsum(one.count for one in here),
        )

    def withdraw(self, tastes: Tastes) -> None:
        """Take all contributions out of the models; they are placed again at the next reward."""
        for key in sorted(self.placed):
            self._take_out(key, tastes)
        self.pending = len(self.registry) > 0

    def drop(self, tastes: Tastes, population: Population) -> None:
        """Take all contributions out of the models, and out of the registry."""
        if not len(self.registry):
            return
        self.withdraw(tastes)
        self.registry, self.pending = Registry(), False
        if population.clock:
            tastes.refresh(population)

    def rename(self, row: int, into: int) -> None:
        """Note that a model was merged into another one, with all its sums."""
        moved = [key for key, (place, _) in self.placed.items() if place == row]
        for key in moved:
            self.placed[key] = (into, self.placed[key][1])
        if moved:
            self._sum(row)
            self._sum(into)

    def own(self, row: int, tastes: Tastes) -> Sums:
        """Return the sums of a model without those of other shards."""
        precision, shift, count = tastes.precision[row], tastes.shift[row], tastes.count[row]
        if row not in self._foreign:
            return Sums(precision.copy(), shift.copy(), float(count))
        foreign = self._foreign[row]
        own = precision - foreign.precision
        return Sums(0.5 * (own + own.T), shift - foreign.shift, float(count - foreign.count))

    def news(
        self,
        shard: str,
        last: dict[int, Contribution],
        threshold: float,
        tastes: Tastes,
        population: Population,
    ) -> tuple[Contribution, ...]:
        """Return the contributions of models that differ noticeably from their `last` ones.

        If a model is gone, what it knew may be part of any other one: all that have grown are
        published before it is taken back, so that no receiver knows less than it did.
        """
        told, kept = dict(last), []
        for row in sorted(tastes.rows[1:].tolist(), key=lambda row: int(tastes.id[row])):
            before, own = told.pop(int(tastes.id[row]), None), self.own(row, tastes)
            if own.count >= LITTLE * (self.dim + 1):
                kept.append((row, own, before))
            elif before is not None:
                told[before.model] = before
        gone = [Contribution.gone(one) for one in told.values() if one.count > 0.0]
        found = [
            Contribution(
                shard, int(tastes.id[row]), _next_epoch(own, before), _kind(population),
                own.precision, own.shift, 0.0, own.count,
            )
            for row, own, before in kept
            if (
                (gone and _has_grown(own, before, float(tastes.count[row])))
                or self._is_news(row, own, before, threshold, tastes, population)
            )
            # The dearest question is the last: rounding may leave an own part that is no sum.
            and is_sum(own.precision, own.shift, own.count)
        ]  # fmt: skip
        return (*found, *gone)

    def _is_news(
        self,
        row: int,
        own: Sums,
        before: Contribution | None,
        threshold: float,
        tastes: Tastes,
        population: Population,
    ) -> bool:
        """Return whether the information of a model has grown, or shrunk, by ``1 + threshold``.

        ``log det(P + Λ) − log det(P + Λ − U)``, where ``U`` is what the shard has not published.
        """
        if before is not None and before.count > 0.0 and before.kind != _kind(population):
            return True
        unsent = own.precision if before is None else own.precision - before.gram
        noise = ROUNDING * tastes.precision[row].diagonal().max()
        if before is not None and (np.abs(unsent) <= noise).all():
            return False
        growth = kernels.tastes.log_growth(tastes.precision[row], population.precision, unsent)
        return not abs(growth) < math.log1p(threshold)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        every = list(self.registry)
        numbers = {id(one): number for number, one in enumerate(every)}
        for _, one in self.placed.values():
            if id(one) not in numbers:
                numbers[id(one)] = len(every)
                every.append(one)
        names, arrays = dump(every, self.dim + 1)
        placed = [[row, numbers[id(one)]] for _, (row, one) in sorted(self.placed.items())]
        known = len(self.registry)
        state = {"pending": self.pending, "known": known, "names": names, "placed": placed}
        return state, arrays

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        every = filled(state["names"], arrays)
        self.pending, self.registry = state["pending"], Registry(every[: state["known"]])
        self.placed = {every[number].key: (row, every[number]) for row, number in state["placed"]}
        for row in {row for row, _ in self.placed.values()}:
            self._sum(row)


def _kind(population: Population) -> Kind:
    return "atlas-binary" if population.binary else "atlas-real"


def _next_epoch(own: Sums, before: Contribution | None) -> int:
    return 0 if before is None else before.epoch + (own.count <= before.count)


def _has_grown(own: Sums, before: Contribution | None, total: float) -> bool:
    """Return whether a part of a model of `total` observations has some that are not published."""
    return before is None or own.count - before.count > ROUNDING * total
