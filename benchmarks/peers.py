"""Other libraries on the same stream, as far as they can express the task.

- *MABWiser* has named arms with one model each, and one context for all. Here arms are vectors, and
  there is one model per user. A bandit with a single arm per user, asked for its upper confidence
  bounds at all vectors, is exactly this LinUCB. It makes the same decisions, and factorises at
  every reward.
- *river* has Bayesian linear regression. Its predictive variance is
  ``1/β + xᵀ(αI + βΣxxᵀ)⁻¹x``; with ``β = 1`` and ``α = λ`` the width of LinUCB follows from it. It
  makes the same decisions, on dicts.
- *Vowpal Wabbit* learns by gradient steps, with a weight per user and feature and SquareCB's
  exploration: the same task with another method, linear in d where the others are quadratic. It
  takes examples as text; a second run has the text prepared, which shows the cost of writing it.

None of them shares data between users or notices a change; DyClu's time includes both.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np

from benchmarks.bare import ALPHA, RIDGE, Bare
from benchmarks.results import Effort, Results, Row, by_repetition
from benchmarks.timing import Step, interleaved
from benchmarks.turns import SLICES, Turn, block_steps, serve, slices, steps, turn
from dyclu.policies.common.batches import BatchPolicy
from dyclu.policy import first_best
from dyclu.sim.runs.contestants import contestant
from dyclu.sim.worlds.population import Population, World
from dyclu.validation import FloatArray

PACKAGES = ("mabwiser", "river", "vowpalwabbit")
BARE = "bare NumPy LinUCB"
SQUARECB = "--cb_explore_adf --squarecb -q UA --ignore_linear A --noconstant --quiet"
SETTING = Population(users=20, parameters=5, rounds=300, shortest=100, longest=200)
QUICK = Population(users=4, parameters=2, rounds=30, shortest=10, longest=20)


class Peer(Protocol):
    """A library that serves turns and returns the chosen arms."""

    def serve(self, turns: Sequence[Turn]) -> list[int]: ...


class MabWiser:
    """MABWiser's LinUCB, a bandit of one arm per user."""

    def __init__(self) -> None:
        self._library = importlib.import_module("mabwiser.mab")
        self._bandits: dict[int, Any] = {}

    def serve(self, turns: Sequence[Turn]) -> list[int]:
        chosen = []
        for user, arms, rewards in turns:
            bandit = self._bandits.get(user)
            arm = 0 if bandit is None else first_best(self._scores(bandit, arms))
            if bandit is None:
                bandit = self._bandits[user] = self._new()
            bandit.partial_fit(["it"], [rewards[arm]], arms[arm : arm + 1])
            chosen.append(arm)
        return chosen

    def _new(self) -> Any:
        linucb = self._library.LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=RIDGE)
        return self._library.MAB(["it"], linucb)

    def _scores(self, bandit: Any, arms: FloatArray) -> FloatArray:
        return np.array([bounds["it"] for bounds in bandit.predict_expectations(arms)])


class River:
    """River's Bayesian linear regression, one per user, with LinUCB's optimism."""

    def __init__(self) -> None:
        self._library = importlib.import_module("river.linear_model")
        self._models: dict[int, Any] = {}

    def serve(self, turns: Sequence[Turn]) -> list[int]:
        chosen = []
        for user, arms, rewards in turns:
            model = self._models.get(user)
            if model is None:
                model = self._models[user] = self._new()
            dicts = [dict(enumerate(row)) for row in arms.tolist()]
            arm = first_best(np.array([self._score(model, x) for x in dicts]))
            model.learn_one(dicts[arm], rewards[arm])
            chosen.append(arm)
        return chosen

    def _new(self) -> Any:
        return self._library.BayesianLinearRegression(alpha=RIDGE, beta=1.0)

    def _score(self, model: Any, x: dict[int, float]) -> float:
        predicted = model.predict_one(x, with_dist=True)
        return float(predicted.mu + ALPHA * math.sqrt(max(predicted.sigma**2 - 1.0, 0.0)))


class VowpalWabbit:
    """Vowpal Wabbit's SquareCB, a weight for every user and feature."""

    def __init__(self, *, ready: Sequence[Turn] = ()) -> None:
        library = importlib.import_module("vowpalwabbit")
        self._workspace = library.Workspace(SQUARECB)
        self._rng = np.random.default_rng(0)
        self._texts = {id(one.arms): example(one.user, one.arms) for one in ready}

    def serve(self, turns: Sequence[Turn]) -> list[int]:
        chosen = []
        for one in turns:
            text = self._texts.get(id(one.arms)) or example(one.user, one.arms)
            chances = self._workspace.predict(text)
            arm = drawn(chances, self._rng.random())
            self._workspace.learn(labelled(text, arm, one.rewards[arm], chances[arm]))
            chosen.append(arm)
        return chosen


def example(user: int, arms: FloatArray) -> list[str]:
    """Return a question to Vowpal Wabbit as text: the user is namespace U, an arm namespace A.

    >>> example(7, np.array([[0.5, 1.0]]))
    ['shared |U 7', '|A 0:0.5 1:1']
    """
    rows = [" ".join(f"{i}:{value:.7g}" for i, value in enumerate(row)) for row in arms.tolist()]
    return [f"shared |U {user}", *(f"|A {row}" for row in rows)]


def labelled(text: Sequence[str], arm: int, reward: float, chance: float) -> list[str]:
    """Return the question with the reward of an arm that was shown with this probability.

    >>> labelled(["shared |U 7", "|A 0:0.5", "|A 0:1"], 1, 1.0, 0.25)
    ['shared |U 7', '|A 0:0.5', '0:-1.0:0.25 |A 0:1']
    """
    found = list(text)
    found[arm + 1] = f"0:{-reward}:{chance} {text[arm + 1]}"
    return found


def drawn(chances: Sequence[float], at: float) -> int:
    """Return the arm at a point of the unit interval, which the arms share by their chances.

    >>> drawn([0.2, 0.5, 0.3], 0.69), drawn([0.2, 0.5, 0.3], 0.71)
    (1, 2)
    """
    for arm, chance in enumerate(chances):
        at -= chance
        if at < 0:
            return arm
    return len(chances) - 1


def peers(turns: Sequence[Turn]) -> dict[str, Callable[[], Peer]]:
    """Return the libraries that are installed."""
    known: dict[str, Callable[[], Peer]] = {
        "mabwiser": MabWiser,
        "river": River,
        "vowpalwabbit": VowpalWabbit,
        "vowpalwabbit, text ready": partial(VowpalWabbit, ready=turns),
    }
    return {name: peer for name, peer in known.items() if find_spec(name.partition(",")[0])}


def run(effort: Effort) -> Results:
    """Let all libraries serve the same users, each from the beginning."""
    world = (QUICK if effort.quick else SETTING).world(seed=0)
    turns = list(map(turn, world))
    found = peers(turns)
    seconds = interleaved(
        {
            BARE: lambda: Bare(world.setting.dim).steps(turns),
            "linucb": lambda: steps(contestant("linucb", world), turns),
            "linucb, in blocks": lambda: _blocks(world, turns),
            "dyclu": lambda: steps(contestant("dyclu", world), turns),
            **{name: partial(_steps, make, turns) for name, make in found.items()},
        },
        repetitions=effort.repetitions,
    )
    served = len(turns) // SLICES * SLICES
    return Results(
        title="Rounds per CPU second",
        against="× bare loop",
        rows=tuple(_row(name, served, spent, seconds[BARE]) for name, spent in seconds.items()),
        notes=(*_quality(world, turns, found), *_absent()),
    )


def _steps(make: Callable[[], Peer], turns: Sequence[Turn]) -> list[Step]:
    peer = make()
    return [partial(peer.serve, part) for part in slices(turns)]


def _blocks(world: World, turns: Sequence[Turn]) -> list[Step]:
    policy = cast(BatchPolicy, contestant("linucb", world))
    return block_steps(policy, turns, world.setting.users)


def _row(name: str, served: int, spent: tuple[float, ...], bare: tuple[float, ...]) -> Row:
    values = tuple(served / each for each in spent)
    return Row(name=name, unit="/s", values=values, ratios=by_repetition(bare, spent))


def _quality(
    world: World, turns: Sequence[Turn], found: dict[str, Callable[[], Peer]]
) -> tuple[str, ...]:
    chosen = {name: serve(contestant(name, world), turns) for name in ("linucb", "dyclu")}
    chosen |= {name: make().serve(turns) for name, make in found.items()}
    regrets = ", ".join(f"{name} {regret(arms, turns):,.0f}" for name, arms in chosen.items())
    alike = ", ".join(
        f"{name} {_alike(arms, chosen['linucb']):.1%}" for name, arms in chosen.items()
    )
    return (
        f"Regret after {len(turns):,} rounds of {world.setting.users} users who change: {regrets}.",
        f"Rounds in which they chose what linucb chose: {alike}.",
    )


def regret(arms: Sequence[int], turns: Sequence[Turn]) -> float:
    """Return the regret of the choices; all arms of a turn share its noise."""
    return sum(
        float(one.rewards.max() - one.rewards[arm]) for arm, one in zip(arms, turns, strict=True)
    )


def _alike(arms: Sequence[int], others: Sequence[int]) -> float:
    return float(np.mean(np.array(arms) == np.array(others)))


def _absent() -> tuple[str, ...]:
    absent = [name for name in PACKAGES if not find_spec(name)]
    if not absent:
        return ()
    return (f"Not installed: {', '.join(absent)}; get them with: pip install -e '.[bench]'.",)
