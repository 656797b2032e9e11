"""Section 4.1's synthetic population: users share parameters, and each changes at other times.

`Population` is the setting, `World` one draw of it. A world knows the truth; a policy only gets a
round's user and arms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dyclu.core.rewards import Law
from dyclu.errors import OptionError
from dyclu.sim.worlds.draws import distinct
from dyclu.sim.worlds.rounds import Round
from dyclu.validation import FloatArray, Ids, as_positive, as_whole

Seed = int | np.random.SeedSequence | np.random.Generator

CHUNK = 512
"""Rounds that are drawn at once: many per call of numpy, few enough for the cache."""

ATTEMPTS = 10_000
"""Rejected candidates in a row after which a separation counts as impossible."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """One draw of a population; iterating gives its rounds, the same ones every time.

    Attributes
    ----------
    setting : Population
        The population.
    table : array of shape (arms, dim)
        All arms, of unit norm.
    parameters : array of shape (m, dim)
        The unique parameters, of unit norm.
    truth : int array of shape (users, rounds)
        Row of `parameters` of each user at each of their rounds.
    pools, noises : SeedSequence
        Seeds of the offered arms and of the noise.
    """

    setting: Population
    table: FloatArray
    parameters: FloatArray
    truth: Ids
    pools: np.random.SeedSequence
    noises: np.random.SeedSequence

    def __post_init__(self) -> None:
        for array in (self.table, self.parameters, self.truth):
            array.flags.writeable = False

    def __len__(self) -> int:
        return self.truth.size

    def __iter__(self) -> Iterator[Round]:
        pools, noises = np.random.default_rng(self.pools), np.random.default_rng(self.noises)
        for start in range(0, len(self), CHUNK):
            yield from self._chunk(start, pools, noises)

    def changes(self, user: int) -> Ids:
        """Return the rounds of a user at which their parameter changes."""
        return np.flatnonzero(np.diff(self.truth[user])) + 1

    @property
    def served(self) -> Ids:
        """The user of every round: users are served in turn."""
        return np.tile(np.arange(self.setting.users), self.setting.rounds)

    @property
    def count(self) -> int:
        """Number of unique parameters."""
        return len(self.parameters)

    @property
    def delay(self) -> int:
        """No delay: a reward comes before the next round."""
        return 0

    @property
    def hazard(self) -> float:
        """Share of a user's rounds at which they change: one divided by the mean period."""
        return hazard_of(self.setting.shortest, self.setting.longest, self.setting.rounds)

    @property
    def linear(self) -> bool:
        """An arm's expected reward is xᵀθ."""
        return True

    def tastes(self, index: int) -> FloatArray:
        """Return the unique parameters, which are the same at every round."""
        return self.parameters

    def law(self, user: int) -> Law:
        """Return the law of rewards, which is the same for every user."""
        return Law(noise=self.setting.noise)

    def _chunk(
        self, start: int, pools: np.random.Generator, noises: np.random.Generator
    ) -> Iterator[Round]:
        index = np.arange(start, min(start + CHUNK, len(self)))
        time, user = np.divmod(index, self.setting.users)
        parameter = self.truth[user, time]
        room = np.full(len(index), len(self.table))
        arms = self.table[distinct(pools, room, self.setting.offered)]
        taste = self.parameters[parameter]
        means = np.einsum("nkd,nd->nk", arms, taste)
        noise = self.setting.noise * noises.standard_normal(len(index))
        changed = parameter != self.truth[user, np.maximum(time - 1, 0)]
        for array in (arms, means, taste):
            array.flags.writeable = False
        first = (column.tolist() for column in (index, user, time))
        last = noise.tolist(), parameter.tolist(), taste, changed.tolist()
        return map(Round, *first, arms, means, *last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The setting of section 4.1; the defaults are row 1 of the paper's Table 1.

    Attributes
    ----------
    users : int
        Number of users, served in turn (`n`).
    parameters : int or None
        Number of unique parameters that users share (`m`); None gives every period of every user
        its own parameter (Environment 2).
    dim : int
        Number of features (`d`).
    arms, offered : int
        Number of all arms (`K`), and number of distinct arms that a round offers.
    rounds : int
        Rounds per user (`T`).
    shortest, longest : int
        Bounds of the length of a period (`S_min`, `S_max`), which is a uniform whole number between
        them, both included. Users never change if ``shortest >= rounds``.
    noise : float
        Standard deviation of the rewards (`σ`).
    separation : float
        Least distance between two parameters (`γ`); closer candidates are rejected.

    Examples
    --------
    >>> world = Population(users=2, parameters=2, rounds=3, shortest=2, longest=2).world(seed=1)
    >>> [(turn.user, turn.time) for turn in world]
    [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    >>> world.changes(user=1)
    array([2])
    """

    users: int = 100
    parameters: int | None = 10
    dim: int = 25
    arms: int = 1000
    offered: int = 10
    rounds: int = 2500
    shortest: int = 400
    longest: int = 2500
    noise: float = 0.09
    separation: float = 0.9

    def __post_init__(self) -> None:
        whole = ["users", "dim", "arms", "offered", "rounds", "shortest", "longest"]
        if self.parameters is not None:
            whole.append("parameters")
        for name in whole:
            object.__setattr__(self, name, as_whole(getattr(self, name), name, least=1))
        for name in ("noise", "separation"):
            object.__setattr__(self, name, as_positive(getattr(self, name), name))
        self._check_order("offered", "arms")
        self._check_order("shortest", "longest")

    def _check_order(self, small: str, large: str) -> None:
        least, most = getattr(self, small), getattr(self, large)
        if least > most:
            raise OptionError(
                f"{small} is {least} and {large} is {most}, expected {small} <= {large}; "
                f"lower {small} to {most} or raise {large} to {least}"
            )

    def world(self, seed: Seed) -> World:
        """Draw a world; the same setting and seed (int or SeedSequence) give the same one.

        Parameters, table, changes, pools and noise have separate random streams: changing one
        option does not change what the others decide.
        """
        parameters, table, changes, pools, noises = root_of(seed).spawn(5)
        truth = draw_truth(
            np.random.default_rng(changes),
            users=self.users,
            rounds=self.rounds,
            parameters=self.parameters,
            shortest=self.shortest,
            longest=self.longest,
        )
        unique = int(truth.max()) + 1 if self.parameters is None else self.parameters
        return World(
            setting=self,
            table=unit_vectors(np.random.default_rng(table), self.arms, self.dim),
            parameters=_separated(np.random.default_rng(parameters), unique, self),
            truth=truth,
            pools=pools,
            noises=noises,
        )


def root_of(seed: Seed) -> np.random.SeedSequence:
    """Return a new sequence to spawn from; the caller's count of children does not change."""
    if isinstance(seed, np.random.Generator):
        return np.random.SeedSequence(seed.integers(2**32, size=4).tolist())
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(as_whole(seed, "seed", least=0))
    return np.random.SeedSequence(seed.generate_state(4).tolist())


def unit_vectors(rng: np.random.Generator, count: int, dim: int) -> FloatArray:
    """Return vectors that are uniform on the unit sphere, shape (count, dim)."""
    vectors = rng.standard_normal((count, dim))
    unit: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _separated(rng: np.random.Generator, count: int, setting: Population) -> FloatArray:
    kept = np.empty((count, setting.dim))
    for i in range(count):
        kept[i] = _far_from(kept[:i], rng, setting.separation)
    return kept


def _far_from(others: FloatArray, rng: np.random.Generator, separation: float) -> FloatArray:
    count, dim = others.shape
    for _ in range(ATTEMPTS):
        candidate: FloatArray = unit_vectors(rng, 1, dim)[0]
        if (np.linalg.norm(others - candidate, axis=1) >= separation).all():
            return candidate
    raise OptionError(
        f"separation is {separation}, and none of {ATTEMPTS} candidates with {dim} features had "
        f"this distance from the {count} earlier parameters, expected room for all of them on the "
        "unit sphere; lower separation, ask for fewer parameters or raise dim"
    )


def hazard_of(shortest: int, longest: int, rounds: int) -> float:
    """Return one divided by the mean length of a period; 0 if users never change.

    >>> hazard_of(100, 300, rounds=1000)
    0.005
    """
    return 2 / (shortest + longest) if shortest < rounds else 0.0


def draw_truth(
    rng: np.random.Generator,
    *,
    users: int,
    rounds: int,
    parameters: int | None,
    shortest: int,
    longest: int,
) -> Ids:
    """Return the parameter of each user at each of their rounds, shape (users, rounds)."""
    starts = _starts(rng, users, rounds, shortest, longest)
    if parameters is None:
        return np.cumsum(starts).reshape(starts.shape) - 1
    if parameters == 1:
        return np.zeros(starts.shape, dtype=np.intp)
    # A step of 1 … m − 1, modulo m, leads to each of the other parameters with equal probability.
    steps = starts * rng.integers(1, parameters, size=starts.shape)
    steps[:, 0] = rng.integers(parameters, size=users)
    return np.cumsum(steps, axis=1) % parameters


def _starts(rng: np.random.Generator, users: int, rounds: int, shortest: int, longest: int) -> Ids:
    """Return 1 where a period of a user begins, 0 elsewhere, shape (users, rounds)."""
    most = -(-rounds // shortest)
    lengths = rng.integers(shortest, longest + 1, size=(users, most))
    ends = np.cumsum(lengths, axis=1)
    user, period = np.nonzero(ends < rounds)
    starts = np.zeros((users, rounds), dtype=np.intp)
    starts[:, 0] = starts[user, ends[user, period]] = 1
    return starts
