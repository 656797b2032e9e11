"""`Absorbed`: what a state knows of what it has absorbed from other shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dyclu.contributions import Contribution

SHARD = "here"
"""Name by which a policy absorbs; no shard is called so (`tenant.sharing.name_of`)."""

Age = tuple[int, float]
"""Epoch and count of a contribution."""


@dataclass(slots=True)
class FromShard:
    """The oldest lines of one shard were absorbed after its erasure `built`; ages by model."""

    built: int
    ages: dict[int, Age] = field(default_factory=dict)


class Absorbed:
    """Which contributions are in the journal; their sums are in the policy.

    Attributes
    ----------
    shards : dict of str to FromShard
        By name of the shard.
    outdated : int or None
        Time of the line from which on older lines may hold rewards of an erased user of another
        shard; None if none may.

    Examples
    --------
    >>> known = Absorbed()
    >>> old = Contribution("b", 0, 0, "linucb", [[2.0]], [1.0], 0.5, 2)
    >>> known.add(old, built=0, at=10)
    >>> known.is_news("b", 0, old.age), known.is_news("b", 0, (0, 3.0)), known.outdated
    (False, True, None)
    >>> known.add(Contribution.gone(old), built=4, at=20)
    >>> known.outdated
    20
    """

    def __init__(self) -> None:
        self.shards: dict[str, FromShard] = {}
        self.outdated: int | None = None

    def is_news(self, shard: str, model: int, age: Age) -> bool:
        """Return whether a contribution is newer than what was absorbed of this model."""
        known = self.shards.get(shard)
        return known is None or model not in known.ages or age > known.ages[model]

    def add(self, one: Contribution, *, built: int, at: int) -> None:
        """Note a contribution that is absorbed at time `at`."""
        known = self.shards.setdefault(one.shard, FromShard(built))
        known.ages[one.model] = max(one.age, known.ages.get(one.model, one.age))
        if built > known.built and self.outdated is None:
            self.outdated = at

    def dump(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        shards = {
            name: [one.built, [[model, *age] for model, age in one.ages.items()]]
            for name, one in self.shards.items()
        }
        return {"shards": shards, "outdated": self.outdated}

    @classmethod
    def restored(cls, told: dict[str, Any]) -> Absorbed:
        """Return what `dump` was called on."""
        self = cls()
        self.outdated = told["outdated"]
        for name, (built, ages) in told["shards"].items():
            self.shards[name] = FromShard(built, {m: (epoch, count) for m, epoch, count in ages})
        return self


def decoded(contributions: list[bytes]) -> Iterator[Contribution]:
    """Yield the contributions of a line."""
    return map(Contribution.from_bytes, contributions)
