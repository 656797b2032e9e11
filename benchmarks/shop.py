"""``python -m benchmarks.shop``: a shop in which about one impression in 25 is clicked.

The shop: 400 users, whose activity has a Pareto(1.5) distribution; 4 tastes, each with weights
N(0, 1.3²) for 6 categories and N(−0.2, 0.5²) for log price − 3. An impression of an item is clicked
with the probability ``1 / (1 + exp(3.9 − w − q))``: w is the weight of the category plus that of
the price times log price − 3; q ~ N(0, 0.3²) is the quality of the item, which nobody sees. 40 % of
users change their taste once, on any of 60 days. Log prices have the distribution N(3, 1).

80 items live for 30 days each; they begin at equal distances, from day −30 to day 60, so that 26 or
27 are always there. A visit offers 12 of them. Features of an item: constant, category (one-hot)
and log price − 3, all divided by √3.

*Warm start*: a policy learns from N impressions of the first 30 days, which another system showed:
80 % by softmax(2 × quality), 20 % uniformly. Then it serves N visits of the next 30 days and learns
from its own impressions. The figure is the mean true click probability of what it showed in them.

*Vowpal Wabbit* gets the same features, and the probabilities of the logged impressions. Its model
has a weight for every feature and one for every pair of user and feature (``-q UA``); it explores
by SquareCB. Of a dozen sets of options (SquareCB, ε-greedy and RegCB, learning rates, estimators)
this one had nearly the highest click rate with seeds 100 to 102.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from benchmarks.judging import Asked, Record, Report, main, spread, tell, values
from benchmarks.peers import drawn, example, labelled
from dyclu.policy import Policy
from dyclu.sim.reports.document import Table
from dyclu.sim.runs.stream.contestants import contestant
from dyclu.sim.worlds.draws import distinct
from dyclu.validation import FloatArray, Ids

VOWPAL, BEST = "vowpalwabbit", "best possible"
POLICIES = ("atlas", "linucb-0.3", "shared-linucb-0.3", "dyclu-0.3", VOWPAL, "uniform", BEST)
RIVALS = (VOWPAL, "linucb-0.3")
"""Policies whose click rate the first policy should exceed by 5 %."""

SEEDS = 10
IMPRESSIONS = {"10,000": 10_000, "30,000": 30_000}
QUICK_SHARE = 100
SQUARECB = (
    "--cb_explore_adf --squarecb --gamma_scale 100 -q UA --ignore_linear U --noconstant --quiet"
)

USERS, TASTES, CATEGORIES, ITEMS, OFFERED = 400, 4, 6, 80, 12
LIFE, DAYS = 30.0, 60.0
DIM = CATEGORIES + 2
BASE = -3.9
CHANGING = 0.4
"""Share of users who change."""

LOGGED_AT_RANDOM = 0.2
"""Share of logged impressions that were chosen uniformly."""

NOTE = (
    "Mean true click probability of what was served, in %, ± standard error over seeds. Columns: "
    "number of impressions of the warm start, and of those served then."
)
RATIO_NOTE = "Mean of the ratios within a seed ± standard error. Wanted: at least 1.05."


class Visit(NamedTuple):
    """One visit: the user, features (K, d) and click probabilities (K,) of what is offered.

    `logged` are the probabilities with which the earlier system shows each item; `luck` and `draw`
    are uniform: an item is clicked if its probability exceeds `luck`, and `draw` picks the item of
    a system that chooses at random.
    """

    user: int
    arms: FloatArray
    chances: FloatArray
    logged: FloatArray
    luck: float
    draw: float

    def click(self, arm: int) -> float:
        """Return 1 if the item is clicked, else 0."""
        return float(self.luck < self.chances[arm])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shop:
    """One draw of the shop.

    Attributes
    ----------
    features : array of shape (items, dim)
        Features of the items, in the order of their first days.
    quality : array of shape (items,)
        What nobody sees.
    chances : array of shape (tastes, items)
        Probability of a click.
    activity : array of shape (users,)
        Probability that a visit is of this user.
    tastes : int array of shape (2, users)
        Taste before and after the change.
    change : array of shape (users,)
        Day of the change; infinite for users who keep their taste.
    """

    features: FloatArray
    quality: FloatArray
    chances: FloatArray
    activity: FloatArray
    tastes: Ids
    change: FloatArray

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Shop:
        """Draw a shop."""
        liking = rng.normal(0.0, 1.3, (TASTES, CATEGORIES))
        price_weight = rng.normal(-0.2, 0.5, TASTES)
        category, price = rng.integers(CATEGORIES, size=ITEMS), rng.normal(0.0, 1.0, ITEMS)
        quality = rng.normal(0.0, 0.3, ITEMS)
        logit = BASE + liking[:, category] + np.outer(price_weight, price) + quality
        activity = 1 + rng.pareto(1.5, USERS)
        before = rng.integers(TASTES, size=USERS)
        after = (before + rng.integers(1, TASTES, size=USERS)) % TASTES
        changes = rng.random(USERS) < CHANGING
        return cls(
            features=np.column_stack([np.ones(ITEMS), np.eye(CATEGORIES)[category], price])
            / np.sqrt(3),
            quality=quality,
            chances=scipy.special.expit(logit),
            activity=activity / activity.sum(),
            tastes=np.stack([before, after]),
            change=np.where(changes, rng.uniform(0, DAYS, USERS), np.inf),
        )

    def visits(self, rng: np.random.Generator, count: int, first_day: float) -> Iterator[Visit]:
        """Yield so many visits of 30 days."""
        day = np.sort(rng.uniform(first_day, first_day + LIFE, count))
        user = rng.choice(USERS, size=count, p=self.activity)
        taste = self.tastes[(day >= self.change[user]).astype(int), user]
        begins = np.linspace(-LIFE, DAYS, ITEMS, endpoint=False)
        oldest = np.searchsorted(begins, day - LIFE, side="right")
        room = np.searchsorted(begins, day, side="right") - oldest
        items = oldest[:, None] + distinct(rng, room, OFFERED)
        by_quality = scipy.special.softmax(2 * self.quality[items], axis=1)
        logged = LOGGED_AT_RANDOM / OFFERED + (1 - LOGGED_AT_RANDOM) * by_quality
        return map(
            Visit,
            user.tolist(),
            self.features[items],
            self.chances[taste[:, None], items],
            logged,
            rng.random(count).tolist(),
            rng.random(count).tolist(),
        )


class Keeper(Protocol):
    """What serves the visits of a shop."""

    def choose(self, visit: Visit) -> tuple[int, float]:
        """Return the item to show, and the probability with which it was chosen."""

    def learn(self, visit: Visit, arm: int, chance: float) -> None:
        """Learn whether the item was clicked, which was shown with this probability."""


class Library:
    """A policy of this library; it does not use the probabilities."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def choose(self, visit: Visit) -> tuple[int, float]:
        return self._policy.decide(visit.user, visit.arms).arm, 1.0

    def learn(self, visit: Visit, arm: int, chance: float) -> None:
        self._policy.learn(visit.user, visit.arms[arm], visit.click(arm))


class Vowpal:
    """Vowpal Wabbit with the features, and with the features of every single user."""

    def __init__(self, options: str = SQUARECB) -> None:
        self._workspace = importlib.import_module("vowpalwabbit").Workspace(options)

    def choose(self, visit: Visit) -> tuple[int, float]:
        chances = self._workspace.predict(example(visit.user, visit.arms))
        arm = drawn(chances, visit.draw)
        return arm, chances[arm]

    def learn(self, visit: Visit, arm: int, chance: float) -> None:
        text = example(visit.user, visit.arms)
        self._workspace.learn(labelled(text, arm, visit.click(arm), chance))


class Best:
    """Knows the truth, also the quality that nobody sees."""

    def choose(self, visit: Visit) -> tuple[int, float]:
        return int(visit.chances.argmax()), 1.0

    def learn(self, visit: Visit, arm: int, chance: float) -> None:
        """Do nothing."""


def run(asked: Asked) -> Report:
    """Let every policy keep the same shops."""
    share = QUICK_SHARE if asked.quick else 1
    sizes = asked.picked(IMPRESSIONS)
    names = [name for name in asked.policies if name != VOWPAL or find_spec(VOWPAL)]
    records = tuple(
        tell(_record(size, name, seed, impressions // share))
        for size, impressions in sizes.items()
        for name in names
        for seed in asked.seeds
    )
    note = NOTE if names == list(asked.policies) else f"{NOTE} Not installed: {VOWPAL}."
    tables = [_rates(records, names, list(sizes), note)]
    rivals = [name for name in RIVALS if name in names and name != names[0]]
    if rivals:
        tables.append(_ratios(records, names[0], rivals, list(sizes)))
    return Report(tables=tuple(tables), records=records)


def keep(keeper: Keeper, impressions: int, seed: int) -> float:
    """Warm a keeper up and let it serve; return the mean click probability of what it showed."""
    draws, logs, served = (np.random.default_rng([seed, stream]) for stream in range(3))
    shop = Shop.drawn(draws)
    for visit in shop.visits(logs, impressions, 0.0):
        arm = drawn(visit.logged.tolist(), visit.draw)
        keeper.learn(visit, arm, float(visit.logged[arm]))
    total = 0.0
    for visit in shop.visits(served, impressions, LIFE):
        arm, chance = keeper.choose(visit)
        keeper.learn(visit, arm, chance)
        total += float(visit.chances[arm])
    return total / impressions


def keeper_of(name: str, seed: int) -> Keeper:
    """Return a new keeper by name."""
    if name == VOWPAL:
        return Vowpal(f"{SQUARECB} --random_seed {seed}")
    return Best() if name == BEST else Library(contestant(name, DIM, seed=seed))


def _record(size: str, name: str, seed: int, impressions: int) -> Record:
    rate = keep(keeper_of(name, seed), impressions, seed)
    return {"world": size, "policy": name, "seed": seed, "click_rate": rate}


def _rates(records: Sequence[Record], names: list[str], sizes: list[str], note: str) -> Table:
    def cell(name: str, size: str) -> str:
        return spread(values(records, "click_rate", world=size, policy=name), 2, 100)

    rows = tuple((name, *(cell(name, size) for size in sizes)) for name in names)
    return Table(header=("policy", *sizes), rows=rows, note=note)


def _ratios(records: Sequence[Record], name: str, rivals: list[str], sizes: list[str]) -> Table:
    def cell(rival: str, size: str) -> str:
        own, other = (
            values(records, "click_rate", world=size, policy=each) for each in (name, rival)
        )
        return spread([a / b for a, b in zip(own, other, strict=True)], 3)

    rows = tuple((f"{name} / {rival}", *(cell(rival, s) for s in sizes)) for rival in rivals)
    return Table(header=("click rates", *sizes), rows=rows, note=RATIO_NOTE)


if __name__ == "__main__":
    main(run, about=__doc__, policies=POLICIES, seeds=SEEDS)
