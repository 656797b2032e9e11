"""``python -m benchmarks.slots``: pages of three slots with a position effect, filled in four ways.

Users share tastes; the chance that an arm is clicked is a line in its features, times the attention
that its slot gets (1, 0.6 and 0.4 of the users look at it). *Regret*: expected clicks per page of
the best three arms in their best order, minus those of the page that was shown, summed.

- *three widgets*: each slot is a decision of its own, among its own third of the arms;
- *three decisions*: each slot is a decision of its own, among the arms not shown above it;
- *slots*: ``decide(..., slots=3)``, which is the same as three decisions, in one call;
- *slots and position*: also with a column for the position.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from dyclu import policies
from dyclu.sim.reports.document import Table
from dyclu.validation import FloatArray

ATTENTION = np.array([1.0, 0.6, 0.4])
"""Share of users who look at each slot."""

SLOTS = len(ATTENTION)
POLICIES: dict[str, dict[str, Any]] = {"linucb": {"alpha": 0.3}, "atlas": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Users who share tastes, and pages of arms that are offered to them.

    Attributes
    ----------
    users, tastes, arms, pages, features : int
        Number of users, of tastes, of arms per page, of pages, and of features of an arm.
    """

    users: int = 20
    tastes: int = 4
    arms: int = 12
    pages: int = 6000
    features: int = 4

    @property
    def dim(self) -> int:
        """Features of an arm, an intercept, and the position."""
        return self.features + 2

    def play(self, policy: Any, fill: Fill, *, seed: int) -> float:
        """Return the regret of a policy whose slots are filled in one of the four ways."""
        rng = np.random.default_rng(seed)
        tastes = rng.normal(size=(self.tastes, self.features))
        tastes *= 0.25 / np.linalg.norm(tastes, axis=1, keepdims=True)
        regret = 0.0
        for _ in range(self.pages):
            user = int(rng.integers(self.users))
            x = rng.normal(size=(self.arms, self.features))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            arms = np.column_stack([x, np.ones(self.arms), np.zeros(self.arms)])
            chances = 0.35 + x @ tastes[user % self.tastes]
            shown = list(fill(policy, user, arms))
            earned = ATTENTION * chances[[row for row, _ in shown]]
            regret += float(ATTENTION @ np.sort(chances)[::-1][:SLOTS] - earned.sum())
            for (_, context), chance in zip(shown, earned, strict=True):
                policy.learn(user, context, float(rng.random() < chance))
        return regret


Fill = Callable[[Any, int, FloatArray], Iterator[tuple[int, FloatArray]]]
"""Yields the row and the context of each slot's arm."""


def widgets(policy: Any, user: int, arms: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Decide each slot among its own third of the arms."""
    for rows in np.array_split(np.arange(len(arms)), SLOTS):
        row = int(rows[policy.decide(user, arms[rows]).arm])
        yield row, arms[row]


def decisions(policy: Any, user: int, arms: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Decide each slot among the arms that are not shown yet."""
    left = list(range(len(arms)))
    for _ in range(SLOTS):
        row = left.pop(policy.decide(user, arms[left]).arm)
        yield row, arms[row]


def slots(policy: Any, user: int, arms: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Decide all slots at once."""
    slate = policy.decide(user, arms, slots=SLOTS)
    yield from zip(slate.arms, slate.contexts, strict=True)


def with_position(policy: Any, user: int, arms: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Decide all slots at once; the last column of the arms is their position."""
    slate = policy.decide(user, arms, slots=SLOTS, position=arms.shape[1] - 1)
    yield from zip(slate.arms, slate.contexts, strict=True)


WAYS: dict[str, Fill] = {
    "three widgets": widgets,
    "three decisions": decisions,
    "slots": slots,
    "slots and position": with_position,
}


def regrets(world: Pages, name: str, fill: Fill, *, seeds: int) -> FloatArray:
    """Return the regret of each seed."""
    played = (
        world.play(policies.make(name, world.dim, **POLICIES[name]), fill, seed=seed)
        for seed in range(seeds)
    )
    return np.array(list(played))


def table(world: Pages, *, seeds: int) -> Table:
    """Return the regret of each policy and way, and its difference from that of slots.

    The same seed gives the same users and pages, which differ much; so differences are compared
    seed by seed, and their standard error is shown.
    """
    found = {
        (way, name): regrets(world, name, fill, seeds=seeds)
        for way, fill in WAYS.items()
        for name in POLICIES
    }
    rows = []
    for way in WAYS:
        cells = []
        for name in POLICIES:
            more = found[way, name] - found["slots", name]
            doubt = more.std(ddof=1) / np.sqrt(seeds)
            cells.append(f"{found[way, name].mean():.0f} ({more.mean():+.0f} ± {doubt:.0f})")
        rows.append((way, *cells))
    note = (
        f"{world.pages:,} pages of three slots, {world.users} users, {seeds} seeds; in brackets "
        "the difference from slots ± its standard error."
    )
    return Table(header=("", *POLICIES), rows=tuple(rows), note=note)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=Pages().pages)
    parser.add_argument("--seeds", type=int, default=12)
    asked = parser.parse_args()
    print(markdown(table(Pages(pages=asked.pages), seeds=asked.seeds)))


if __name__ == "__main__":
    main()
