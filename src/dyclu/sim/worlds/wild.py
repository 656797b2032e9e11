"""Worlds that are not the paper's: clicks, offsets, drift, late rewards, users who come and go.

`Wild` has the options, `WildWorld` is one draw. The defaults are a plain world; every option makes
it harder in one way, and all of them can be combined. `worlds.named` has examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from dyclu.core.rewards import Kind, Law
from dyclu.errors import OptionError
from dyclu.sim.worlds.draws import distinct
from dyclu.sim.worlds.population import CHUNK, Seed, draw_truth, hazard_of, root_of, unit_vectors
from dyclu.sim.worlds.rounds import Round
from dyclu.validation import FloatArray, Ids, as_positive, as_whole, as_within

LARGEST = 1e6
"""Largest value of an option that has no other limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wild:
    """A population with the difficulties of real data, each one an option.

    Attributes
    ----------
    users, parameters, dim, arms, offered, rounds, shortest, longest
        As in `Population`. Tastes and arms are random unit vectors. `rounds` is the mean over
        users, a period is counted in the user's own rounds.
    rewards : str
        Law of the rewards, as in `Law`: ``gaussian``, ``student``, ``logistic`` or ``linear``.
    offset, slope : float
        The law's argument is ``offset + slope · xᵀθ``.
    noise, freedom : float
        As in `Law`; they have no meaning for rewards of 0 and 1.
    loudness : float
        Users differ in noise: theirs is `noise` times a factor from ``1 / loudness`` to `loudness`,
        whose logarithm is uniform. 1 gives everybody the same.
    spread : float
        Users of one taste are not equal: in each period of a user, ``N(0, spread² I / dim)`` is
        added to the taste.
    drift : float
        Tastes move on the unit sphere, by a random walk that has the length `drift` (root mean
        square) over the whole run.
    activity : float
        Users come with probabilities proportional to ``1 / rank^activity``; 0 serves them in turn.
    arrivals, departures : float
        Share of the run during which users arrive, and share at its end during which they leave;
        times are uniform. User 0 is always there.
    constant : float or None
        Weight of a constant feature: the first feature is 1 for all arms and tastes have this
        weight. None for no such feature.
    correlation : float
        Correlation of any two features, from 0 to below 1, before arms are scaled to unit length.
    scales : float
        Features have scales from ``1 / scales`` to `scales`; tastes have the inverse scales, so
        that rewards stay the same.
    one_hot : bool
        Arms are the unit vectors, and `arms` must be `dim`.
    catalogues : int
        The run is divided into so many parts of equal length, each with new arms.
    delay : int
        Rounds, of all users, between a decision and its reward.

    Examples
    --------
    >>> world = Wild(users=4, rounds=3, rewards="logistic", slope=4.0).world(seed=1)
    >>> sorted({turn.reward(0) for turn in world})
    [0.0, 1.0]
    """

    users: int = 50
    parameters: int | None = 8
    dim: int = 15
    arms: int = 1000
    offered: int = 10
    rounds: int = 300
    shortest: int = 100
    longest: int = 250
    rewards: Kind = "gaussian"
    offset: float = 0.0
    slope: float = 1.0
    noise: float = 0.1
    freedom: float = 3.0
    loudness: float = 1.0
    spread: float = 0.0
    drift: float = 0.0
    activity: float = 0.0
    arrivals: float = 0.0
    departures: float = 0.0
    constant: float | None = None
    correlation: float = 0.0
    scales: float = 1.0
    one_hot: bool = False
    catalogues: int = 1
    delay: int = 0

    def __post_init__(self) -> None:
        least = dict.fromkeys(("users", "dim", "arms", "offered", "rounds"), 1)
        least |= dict.fromkeys(("shortest", "longest", "catalogues"), 1) | {"delay": 0}
        if self.parameters is not None:
            least["parameters"] = 1
        for name, bound in least.items():
            object.__setattr__(self, name, as_whole(getattr(self, name), name, least=bound))
        object.__setattr__(self, "noise", as_positive(self.noise, "noise"))
        limits = dict.fromkeys(("spread", "drift", "activity"), (0.0, LARGEST))
        limits |= dict.fromkeys(("loudness", "scales"), (1.0, LARGEST))
        limits |= {"arrivals": (0.0, 1.0), "departures": (0.0, 1.0), "correlation": (0.0, 0.999)}
        if self.constant is not None:
            limits["constant"] = (-LARGEST, LARGEST)
        for name, (low, high) in limits.items():
            object.__setattr__(self, name, as_within(getattr(self, name), name, low, high))
        _ = self.law
        self._check_together()

    def _check_together(self) -> None:
        """Refuse options that contradict each other."""
        for small, large in (("offered", "arms"), ("shortest", "longest")):
            least, most = getattr(self, small), getattr(self, large)
            if least > most:
                raise OptionError(
                    f"{small} is {least} and {large} is {most}, expected {small} <= {large}; "
                    f"lower {small} to {most} or raise {large} to {least}"
                )
        if not self.one_hot:
            return
        if self.arms != self.dim:
            raise OptionError(
                f"arms is {self.arms} and dim is {self.dim}, expected as many one-hot arms as "
                f"features; set arms={self.dim} and offered to at most that"
            )
        plain = {"constant": None, "correlation": 0.0, "scales": 1.0, "catalogues": 1}
        for name, value in plain.items():
            if getattr(self, name) != value:
                raise OptionError(
                    f"{name} is {getattr(self, name)} and arms are one-hot; "
                    f"leave out {name} or one_hot"
                )

    @property
    def law(self) -> Law:
        """The law of rewards of a user with the noise `noise`."""
        return Law(
            kind=self.rewards,
            offset=self.offset,
            slope=self.slope,
            noise=self.noise,
            freedom=self.freedom,
        )

    @property
    def intercept(self) -> bool:
        """Whether an arm of score 0 has an expected reward that is not 0."""
        return bool(self.law.mean(np.zeros(1))[0] != 0)

    def with_options(self, options: dict[str, Any]) -> Wild:
        """Return the same population with other options; names are checked.

        >>> Wild().with_options({"users": 7}).users
        7
        """
        known = [option.name for option in fields(self)]
        for name in options:
            if name not in known:
                raise OptionError(f"a world has no option {name!r}; choose from {', '.join(known)}")
        return replace(self, **options)

    def world(self, seed: Seed) -> WildWorld:
        """Draw a world; the same options and seed (int or SeedSequence) give the same one.

        Each part of the world has a random stream of its own: changing one option does not change
        what the others decide.
        """
        tastes, table, changes, visits, own, drift, loud, pools, noises = root_of(seed).spawn(9)
        served = _served(self, np.random.default_rng(visits))
        time = _own_times(served, self.users)
        truth = draw_truth(
            np.random.default_rng(changes),
            users=self.users,
            rounds=int(time.max()) + 1,
            parameters=self.parameters,
            shortest=self.shortest,
            longest=self.longest,
        )
        count = int(truth.max()) + 1 if self.parameters is None else self.parameters
        starts = unit_vectors(np.random.default_rng(tastes), count, self.dim)
        return WildWorld(
            setting=self,
            catalogues=_catalogues(self, np.random.default_rng(table)),
            path=_path(self, starts, np.random.default_rng(drift)),
            truth=truth,
            served=served,
            time=time,
            own=_deviations(self, truth, np.random.default_rng(own)),
            noise=_noise_of_users(self, np.random.default_rng(loud)),
            pools=pools,
            noises=noises,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WildWorld:
    """One draw of a `Wild` population; iterating gives its rounds, the same ones every time.

    Attributes
    ----------
    setting : Wild
        The population.
    catalogues : array of shape (catalogues, arms, dim)
        All arms.
    path : array of shape (steps, count, dim)
        The tastes; they move after every ``users`` rounds, and a single step stays.
    truth : int array of shape (users, most rounds)
        Number of each user's taste at each of their rounds.
    served, time : int arrays, one entry per round
        The user, and the number of the round among those of this user.
    own : array of shape (periods, dim)
        What is added to the taste in each period of a user; periods are counted user by user.
    noise : array of shape (users,)
        Standard deviation of each user's rewards, if they are not 0 or 1.
    pools, noises : SeedSequence
        Seeds of the offered arms and of the random parts of rewards.
    """

    setting: Wild
    catalogues: FloatArray = field(repr=False)
    path: FloatArray = field(repr=False)
    truth: Ids = field(repr=False)
    served: Ids = field(repr=False)
    time: Ids = field(repr=False)
    own: FloatArray = field(repr=False)
    noise: FloatArray = field(repr=False)
    pools: np.random.SeedSequence = field(repr=False)
    noises: np.random.SeedSequence = field(repr=False)

    def __post_init__(self) -> None:
        for array in (
            self.catalogues, self.path, self.truth, self.served, self.time, self.own, self.noise
        ):  # fmt: skip
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.served)

    def __iter__(self) -> Iterator[Round]:
        pools, noises = np.random.default_rng(self.pools), np.random.default_rng(self.noises)
        period = _periods(self.truth)
        for start in range(0, len(self), CHUNK):
            yield from self._chunk(slice(start, start + CHUNK), period, pools, noises)

    @property
    def count(self) -> int:
        """Number of tastes."""
        return int(self.path.shape[1])

    @property
    def delay(self) -> int:
        """Rounds of all users between a decision and its reward."""
        return self.setting.delay

    @property
    def hazard(self) -> float:
        """Share of a user's rounds at which they change: one divided by the mean period."""
        return hazard_of(self.setting.shortest, self.setting.longest, self.truth.shape[1])

    @property
    def linear(self) -> bool:
        """Whether an arm's expected reward is xᵀθ, or that plus the offset."""
        return not self.setting.law.binary and self.setting.slope == 1

    def changes(self, user: int) -> Ids:
        """Return the rounds of a user at which their taste changes."""
        own = self.truth[user, : np.count_nonzero(self.served == user)]
        return np.flatnonzero(np.diff(own)) + 1

    def tastes(self, index: int) -> FloatArray:
        """Return the tastes, shape (count, dim), at a round of all users."""
        now: FloatArray = self.path[min(index // self.setting.users, len(self.path) - 1)]
        return now

    def law(self, user: int) -> Law:
        """Return the law of a user's rewards."""
        return replace(self.setting.law, noise=float(self.noise[user]))

    def _chunk(
        self, part: slice, period: Ids, pools: np.random.Generator, noises: np.random.Generator
    ) -> Iterator[Round]:
        setting, index = self.setting, np.arange(len(self))[part]
        user, time = self.served[part], self.time[part]
        parameter = self.truth[user, time]
        step = np.minimum(index // setting.users, len(self.path) - 1)
        taste = self.path[step, parameter] + self.own[period[user, time]]
        room = np.full(len(index), setting.arms)
        catalogue = index * setting.catalogues // len(self)
        arms = self.catalogues[catalogue[:, None], distinct(pools, room, setting.offered)]
        means = setting.law.mean(np.einsum("nkd,nd->nk", arms, taste))
        noise = setting.law.draw(noises, len(index))
        if not setting.law.binary:
            noise *= self.noise[user] / setting.noise
        changed = parameter != self.truth[user, np.maximum(time - 1, 0)]
        for array in (arms, means, taste):
            array.flags.writeable = False
        first = (column.tolist() for column in (index, user, time))
        last = noise.tolist(), parameter.tolist(), taste, changed.tolist()
        return map(partial(Round, binary=setting.law.binary), *first, arms, means, *last)


def _served(setting: Wild, rng: np.random.Generator) -> Ids:
    """Return the user of every round."""
    users, rounds = setting.users, setting.rounds
    if not (setting.activity or setting.arrivals or setting.departures):
        return np.tile(np.arange(users), rounds)
    arrival = setting.arrivals * rounds * rng.random(users)
    departure = rounds * (1 - setting.departures * rng.random(users))
    arrival[0], departure[0] = 0, rounds
    weight = 1 / np.arange(1.0, users + 1) ** setting.activity
    served = np.empty((rounds, users), dtype=np.intp)
    for now in range(rounds):
        present = weight * ((arrival <= now) & (now < departure))
        served[now] = rng.choice(users, size=users, p=present / present.sum())
    return served.ravel()


def _own_times(served: Ids, users: int) -> Ids:
    """Return the number of every round among those of its user.

    >>> _own_times(np.array([0, 1, 0, 0]), 2)
    array([0, 0, 1, 2])
    """
    order = np.argsort(served, kind="stable")
    counts = np.bincount(served, minlength=users)
    time = np.empty(len(served), dtype=np.intp)
    time[order] = np.arange(len(served)) - np.repeat(np.cumsum(counts) - counts, counts)
    return time


def _catalogues(setting: Wild, rng: np.random.Generator) -> FloatArray:
    """Return all arms, shape (catalogues, arms, dim)."""
    if setting.one_hot:
        return np.eye(setting.dim)[None]
    shape = (setting.catalogues, setting.arms, setting.dim)
    own, shared = rng.standard_normal(shape), rng.standard_normal(shape[:2])[..., None]
    arms = np.sqrt(1 - setting.correlation) * own + np.sqrt(setting.correlation) * shared
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    if setting.constant is not None:
        arms[..., 0] = 1.0
    return np.asarray(arms * _scales(setting))


def _path(setting: Wild, starts: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the tastes at every step, shape (steps, count, dim)."""
    steps = setting.rounds if setting.drift else 1
    size = setting.drift / np.sqrt(steps * setting.dim)
    path = np.empty((steps, *starts.shape))
    path[0] = starts
    for i in range(1, steps):
        moved = path[i - 1] + size * rng.standard_normal(starts.shape)
        path[i] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    if setting.constant is not None:
        path[..., 0] = setting.constant
    return np.asarray(path / _scales(setting))


def _scales(setting: Wild) -> FloatArray:
    """Return the scale of every feature."""
    exponents = np.linspace(-1, 1, setting.dim) if setting.dim > 1 else np.zeros(1)
    return np.asarray(setting.scales**exponents)


def _deviations(setting: Wild, truth: Ids, rng: np.random.Generator) -> FloatArray:
    """Return what each period of a user adds to the taste, shape (periods, dim)."""
    own = rng.standard_normal((int(_periods(truth)[-1, -1]) + 1, setting.dim))
    return np.asarray(setting.spread / np.sqrt(setting.dim) * own / _scales(setting))


def _periods(truth: Ids) -> Ids:
    """Return the number of the period of each user at each of their rounds, counted over users.

    >>> _periods(np.array([[0, 0, 1], [1, 1, 1]]))
    array([[0, 0, 1],
           [2, 2, 2]])
    """
    begins = np.ones(truth.shape, dtype=np.intp)
    begins[:, 1:] = truth[:, 1:] != truth[:, :-1]
    return np.cumsum(begins).reshape(truth.shape) - 1


def _noise_of_users(setting: Wild, rng: np.random.Generator) -> FloatArray:
    """Return the noise of every user."""
    return np.asarray(setting.noise * setting.loudness ** rng.uniform(-1, 1, setting.users))
