"""`Pooling`: one linear model that shards learn together (docs/theory.md §11).

This is FedLinUCB (He, Wang, Zhou, Gu 2022) without its server: a shard keeps the sums of its own
rewards and the newest sums of every other shard, and its model is their total.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyclu import kernels
from dyclu.contributions import Contribution, Registry, dump, filled
from dyclu.core.stats import Stats
from dyclu.validation import FloatArray

MODEL = 0
"""Id of the one model."""


class Pooling:
    """Sums of a shard's own rewards, and of those of other shards.

    Attributes
    ----------
    registry : Registry
        The newest contribution of each other shard.
    pending : bool
        Whether the model does not contain all of them yet.
    own : Stats or None
        Sums of the shard's own rewards; None as long as there are no others.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.registry, self.pending = Registry(), False
        self._gram, self._moment = np.zeros((dim, dim)), np.zeros(dim)
        self._energy, self._count = 0.0, 0

    @property
    def own(self) -> Stats | None:
        """Sums of the shard's own rewards; None as long as there are no others."""
        if not len(self.registry):
            return None
        return Stats(self._gram, self._moment, self._energy, self._count)

    def absorb(self, contributions: list[Contribution], everything: Stats) -> int:
        """Keep what is newer than before; `everything` is what the model holds now."""
        if not len(self.registry):
            self._gram, self._moment = everything.gram.copy(), everything.moment.copy()
            self._energy, self._count = everything.energy, everything.count
        news = sum(map(self.registry.add, contributions))
        self.pending = self.pending or news > 0
        return news

    def add(self, x: FloatArray, y: float) -> None:
        """Add a reward to the own sums, if these are kept apart."""
        if len(self.registry):
            kernels.linalg.add_outer(self._gram, x, 1.0)
            self._moment += y * x
            self._energy += y * y
            self._count += 1

    def pooled(self) -> Stats:
        """Return the sums of all shards; then nothing is pending."""
        self.pending = False
        total = Stats(self._gram, self._moment, self._energy, self._count)
        for one in self.registry:
            total += Stats(one.gram, one.moment, one.energy, int(one.count))
        return total

    def news(
        self,
        shard: str,
        own: Stats,
        everything: Stats,
        last: Contribution | None,
        ridge: float,
        threshold: float,
    ) -> tuple[Contribution, ...]:
        """Return the own sums if the information has grown by ``1 + threshold`` since the last."""
        before = 0.0 if last is None else last.count
        if own.count == before:
            return ()
        epoch = 0 if last is None else last.epoch + (own.count < before)
        now = Contribution(
            shard, MODEL, epoch, "linucb", own.gram, own.moment, own.energy, own.count
        )
        unsent = own.gram if last is None else own.gram - last.gram
        growth = kernels.tastes.log_growth(everything.gram, ridge * np.eye(self.dim), unsent)
        return () if abs(growth) < math.log1p(threshold) else (now,)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the complete state: what JSON can hold, and arrays."""
        names, arrays = dump(list(self.registry), self.dim)
        state = {"pending": self.pending, "energy": self._energy, "count": self._count}
        return state | {"registry": names}, arrays | {
            "own_gram": self._gram,
            "own_moment": self._moment,
        }

    def fill(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `dump` returned."""
        self.registry, self.pending = Registry(filled(state["registry"], arrays)), state["pending"]
        self._energy, self._count = state["energy"], state["count"]
        self._gram, self._moment = arrays["own_gram"].copy(), arrays["own_moment"].copy()
