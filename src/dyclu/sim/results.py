"""Studies: which runs belong together, how they are made, and what a report says of them.

`Study` compares policies in simulated settings, `LastFMStudy` on Last.fm. Both have the same two
verbs: `make` gives the results of all runs, computing only what is not stored; `document` is what
they come to. Whatever is averaged over seeds is a `Spread`: the mean and its standard error.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, cycle, product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from dyclu import __version__
from dyclu.errors import DycluError, OptionError
from dyclu.policy import Ids
from dyclu.sim import paper
from dyclu.sim.lastfm import LISTENED, MILESTONES, TAGGED, LastFM, Listening, listen, milestones
from dyclu.sim.measures import _delays
from dyclu.sim.plan import POWERS, Plan
from dyclu.sim.population import Population
from dyclu.sim.report import (
    INK,
    LINES,
    NOTHING,
    Document,
    Picture,
    Table,
    arrange,
    drawing,
)
from dyclu.sim.sweep import (
    Job,
    Result,
    Timing,
    _hold,
    _no_interrupts,
    _one_thread,
    _Store,
    checkpoints,
    sweep,
)
from dyclu.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Progress = Callable[[int, int], object]
"""Told how many of how many runs are done."""

CONTESTANTS = ("oracle", "linucb", "adts", "dlinucb", "club", "dyclu")
"""The policies of Table 1, in its order."""

LISTENERS = ("uniform", "linucb", "shared-linucb", "dyclu", "club", "dlinucb", "adts")
"""The policies on Last.fm, where nobody knows the truth an oracle would have to be told."""

FAMILIAR = ("uniform", "linucb", "dyclu", "oracle", "adts", "dlinucb", "club", "shared-linucb")
"""Policies that have the same line in every picture, in the order of `LINES`."""

MARKERS = "os^DvPXp"
"""Marks of the policies where there are no lines."""

QUICK_ROWS = (1, 6, 9)
QUICK_USERS = 20
QUICK_SHARE = 5
"""A quick run has these rows, at most so many users, and rounds and periods this much shorter."""

QUICK_STREAM = {"users": 4, "parts": 2}
"""On Last.fm, a quick run has so many users, each made of so few people."""

LASTFM_NOISE = 0.4
"""Roughly the standard deviation of rewards of 0 and 1 around what a linear model expects."""

ENVIRONMENTS = {
    "env1": "Environment 1: users share parameters and never change",
    "env2": "Environment 2: users change and share nothing",
    "env3": "Environment 3: users share parameters and change",
}

UNKNOWN_ERROR = "n/a"
"""The standard error of a single run."""

OFFERED = 25
"""Artists that every event on Last.fm offers."""

QUICK_WARNING = (
    "A quick run: fewer users, shorter runs and periods, few seeds. It shows that everything "
    "works; its figures are not comparable with the paper's."
)

BANDS_NOTE = "Lines are means over seeds, bands one standard error to either side."

QUANTITIES = {
    "surprise": "chance that a reward surprises once its user has changed",
    "surprises_needed": "surprises in a full window that ring the alarm",
    "delay": "rounds from a change to the last surprise needed, on average",
    "false_alarm": "chance that a full window rings for nothing",
    "window_wanted": "least window that is sure to notice, by Lemma 7",
    "comparable_after": "observations of each of two users before they can be compared",
}
"""What is told of a plan, by the name of its property."""

CURVE_ROWS, CURVE_POINTS = 12, 200
"""Lines of a table of powers, and points of their picture."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds and its standard error, None where there is only one.

    >>> print(Spread.of([880.0, 900.0]), Spread.of([8.5]))
    890 ± 10 8.50 ± n/a
    """

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of values, one per seed."""
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), error)

    def __str__(self) -> str:
        digits = sum(abs(self.mean) < limit for limit in (10, 100))
        error = UNKNOWN_ERROR if self.error is None else f"{self.error:,.{digits}f}"
        return f"{self.mean:,.{digits}f} ± {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Policies in simulated settings: every policy in every setting, once per seed.

    Attributes
    ----------
    name : str
        Of the folder its report goes to.
    title : str
        Of the report.
    settings : mapping of str to Population
        The settings by name.
    policies : tuple of str
        What `paper.contestant` makes.
    seeds : tuple of int
        One run each.
    quick : bool
        Whether it is too small to be compared with the paper.
    """

    name: str
    title: str
    settings: Mapping[str, Population]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False

    def __post_init__(self) -> None:
        for setting in self.settings.values():
            _check_policies(self.policies, setting.dim)

    def make(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs, of which `sweep` makes those that are not stored."""
        names = [name for name, *_ in self._runs()]
        jobs = [Job(self.settings[name], policy, seed=seed) for name, policy, seed in self._runs()]
        made = sweep(jobs, folder=folder, workers=workers, dask=dask, progress=progress)
        return [replace(result, setting=name) for name, result in zip(names, made, strict=True)]

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return what the results come to; without pictures, nothing needs matplotlib."""
        published = self.published()
        compared = [("Ours, as a multiple of the paper's", ratio_table(results, published))]
        drawn = [("As a picture", self._picture(results, published))] if pictures else []
        parts: list[tuple[str, Table | Picture]] = [
            ("Accumulated regret", regret_table(results, published)),
            *(compared if published else []),
            *drawn,
            *_everyday_parts(results),
            ("Settings", settings_table(self.settings)),
        ]
        return Document(
            title=self.title,
            lead=f"{_counted(self.settings, 'setting')}, {_cast(self.policies, self.seeds)}. "
            "Regret is what the choices gave away against always knowing the best arm.",
            warning=QUICK_WARNING if self.quick else "",
            parts=tuple(parts),
            facts=facts,
        )

    def published(self) -> dict[str, Mapping[str, float]]:
        """Return the paper's regret for the settings that are exactly the paper's."""
        return {
            name: paper.PUBLISHED[name]
            for name, setting in self.settings.items()
            if name in paper.PUBLISHED and setting == paper.SETTINGS[name]
        }

    def _runs(self) -> Iterator[tuple[str, str, int]]:
        return product(self.settings, self.policies, self.seeds)

    def _picture(
        self, results: Sequence[Result], published: Mapping[str, Mapping[str, float]]
    ) -> Picture:
        policies = ", ".join(self.policies)
        if published:
            return Picture(
                name=self.name,
                figure=comparison_figure(results, published),
                label=f"Regret of {policies} in every setting, here and in the paper",
                note="Filled: our mean, with its standard error where it is wide enough to be "
                "seen. Open: the paper's figure.",
            )
        return Picture(
            name=self.name,
            figure=regret_figure(results),
            label=f"Accumulated regret of {policies} over the rounds of each user",
            note=BANDS_NOTE,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastFMStudy:
    """Policies on Last.fm: every policy, once per seed.

    A choice that brings 0 gives 1 away, because one artist brings 1 in every event: results are
    those of a simulation, with all events for rounds and one person after the other for changes.

    Attributes
    ----------
    data : LastFM
        What was read.
    source : str
        Digest of the files it was read from.
    policies, seeds, quick
        As in `Study`.
    """

    data: LastFM = field(repr=False)
    source: str
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False

    def __post_init__(self) -> None:
        if "oracle" in self.policies:
            raise OptionError(
                "oracle cannot play on Last.fm, where nobody knows the truth it has to be told; "
                f"choose from {', '.join(name for name in paper.contestants() if name != 'oracle')}"
            )
        _check_policies(self.policies, self._told.dim)

    @classmethod
    def read(
        cls, folder: Path, *, policies: tuple[str, ...], seeds: tuple[int, ...], quick: bool = False
    ) -> LastFMStudy:
        """Read the files in a folder."""
        data, digest = LastFM.read(folder), hashlib.sha256()
        for file, _ in (TAGGED, LISTENED):
            digest.update((folder / file).read_bytes())
        source = digest.hexdigest()
        return cls(data=data, source=source, policies=policies, seeds=seeds, quick=quick)

    @property
    def name(self) -> str:
        """Of the folder its report goes to."""
        return _folder("lastfm", quick=self.quick)

    @property
    def jobs(self) -> list[Job]:
        """The runs; their setting stands for what policies are told."""
        return [Job(self._told, policy, seed=s) for policy, s in product(self.policies, self.seeds)]

    @property
    def stream(self) -> Mapping[str, int]:
        """What `LastFM.stream` is given beside the seed."""
        return {"offered": OFFERED, **(QUICK_STREAM if self.quick else {})}

    def key(self, job: Job) -> str:
        """Return the name under which a run is stored: a hash of all that decides it."""
        decisive = (job.key, self.source, sorted(self.stream.items()))
        return hashlib.sha256(repr(decisive).encode()).hexdigest()

    def make(
        self, folder: Path, *, workers: int | None, dask: str | None, progress: Progress
    ) -> list[Result]:
        """Return the results of all runs, making those that are not stored.

        Last.fm is not sent around: `dask` is left alone, all runs are made on this machine.
        """
        jobs, store = self.jobs, _Store(folder)
        keys = [self.key(job) for job in jobs]
        results = {key: found for key in keys if (found := store.get(key)) is not None}
        missing = {key: job for key, job in zip(keys, jobs, strict=True) if key not in results}
        progress(len(results), len(keys))
        with closing(self._made(missing, workers or os.cpu_count() or 1)) as answers:
            for key, result in answers:
                store.put(key, missing[key], result)
                results[key] = result
                progress(len(results), len(keys))
        return [results[key] for key in keys]

    def document(
        self, results: Sequence[Result], *, facts: Mapping[str, str], pictures: bool = True
    ) -> Document:
        """Return what the results come to; without pictures, nothing needs matplotlib."""
        drawn = [("As a picture", self._picture(results))] if pictures else []
        parts: list[tuple[str, Table | Picture]] = [
            ("Reward, as a multiple of random choice's", reward_table(results)),
            *drawn,
            *_everyday_parts(results),
        ]
        events = fmean(result.rounds for result in results)
        return Document(
            title="Last.fm: reward against random choice",
            lead=f"{_cast(self.policies, self.seeds)}; {events:,.0f} events per run. Every event "
            f"offers {OFFERED} artists, one of which the person has tagged: it brings 1, the "
            f"others 0. Policies that can be told the noise are told {LASTFM_NOISE}.",
            warning=QUICK_WARNING if self.quick else "",
            parts=tuple(parts),
            facts=facts,
        )

    def _picture(self, results: Sequence[Result]) -> Picture:
        return Picture(
            name=self.name,
            figure=reward_figure(results),
            label=f"Reward of {', '.join(self.policies)} as a ratio to that of random choice",
            note=BANDS_NOTE,
        )

    @property
    def _told(self) -> Population:
        """A setting that stands for what policies are told: the dimension and the noise."""
        return _stand_in(self.data.features.shape[1], noise=LASTFM_NOISE)

    def _made(
        self, jobs: Mapping[str, Job], workers: int
    ) -> Generator[tuple[str, Result], None, None]:
        """Make runs in processes that do not outlive this one, in the order they are done."""
        context = get_context("spawn")
        far_end, lifeline = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_hold, initargs=(far_end,)
        )
        try:
            with _one_thread(), _no_interrupts():
                futures = {
                    pool.submit(_listened, self.data, job, dict(self.stream)): key
                    for key, job in jobs.items()
                }
            for future in as_completed(futures):
                key = futures[future]
                if error := future.exception():
                    raise _failed(jobs[key], error) from error
                yield key, future.result()
        finally:
            lifeline.close()
            pool.shutdown(cancel_futures=True)
            far_end.close()


def table1(
    *,
    rows: Sequence[int] | None = None,
    policies: tuple[str, ...] = CONTESTANTS,
    seeds: tuple[int, ...],
    quick: bool = False,
) -> Study:
    """Return the study of Table 1, or of some of its rows.

    >>> list(table1(rows=[1, 4], policies=("dyclu",), seeds=(0,)).settings)
    ['row1', 'row4']
    """
    chosen = (
        rows if rows is not None else QUICK_ROWS if quick else range(1, len(paper.PUBLISHED) + 1)
    )
    for row in chosen:
        if f"row{row}" not in paper.PUBLISHED:
            raise OptionError(f"Table 1 has no row {row}; choose from 1-{len(paper.PUBLISHED)}")
    names = [f"row{row}" for row in chosen]
    return _study("table1", "Table 1: regret in simulated settings", names, policies, seeds, quick)


def figure2(
    *, policies: tuple[str, ...] = CONTESTANTS, seeds: tuple[int, ...], quick: bool = False
) -> Study:
    """Return the study of Figure 2: the three environments."""
    title = "Figure 2: regret in three environments"
    return _study("figure2", title, list(ENVIRONMENTS), policies, seeds, quick)


def shortened(setting: Population) -> Population:
    """Return a small version of a setting: fewer users, rounds and periods shortened alike.

    >>> small = shortened(paper.SETTINGS["row6"])
    >>> small.users, small.rounds, small.shortest, small.longest
    (20, 500, 240, 280)
    """
    lengths = ("rounds", "shortest", "longest")
    scaled = {name: max(1, getattr(setting, name) // QUICK_SHARE) for name in lengths}
    return replace(setting, users=min(setting.users, QUICK_USERS), **scaled)


def machine() -> dict[str, str]:
    """Return what the speed of a run depends on, without saying whose machine it is."""
    return {
        "version": f"dyclu {__version__}",
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "software": f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}",
    }


def regret_table(results: Iterable[Result], published: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the regret of every policy in every setting, the paper's in brackets."""
    spreads = _spreads(results)
    policies = _policies(spreads)
    order = ("order",) if published else ()
    rows = [
        (
            setting,
            *(_beside(row[policy], published.get(setting, {}).get(policy)) for policy in policies),
            *([_agreement(row, published.get(setting, {}))] if published else []),
        )
        for setting, row in spreads.items()
    ]
    note = "Mean over seeds ± its standard error" + (
        "; in brackets the paper's figure. The last column says whether the policies come in the "
        "paper's order, or how many pairs of them do."
        if published
        else "."
    )
    return Table(header=("setting", *policies, *order), rows=tuple(rows), note=note)


def ratio_table(results: Iterable[Result], published: Mapping[str, Mapping[str, float]]) -> Table:
    """Return our mean regret by the paper's."""
    spreads = _spreads(results)
    policies = [
        name for name in _policies(spreads) if any(name in row for row in published.values())
    ]
    rows = [
        (setting, *(f"{spreads[setting][name].mean / row[name]:.2f}" for name in policies))
        for setting, row in published.items()
    ]
    return Table(header=("setting", *policies), rows=tuple(rows), note="1 is the paper's regret.")


def reward_table(results: Iterable[Result]) -> Table:
    """Return the reward on Last.fm by that of random choice, at parts of the stream."""
    shares = [f"after {share:.0%}" for share in MILESTONES]
    rows = []
    for (_, policy), runs in _grouped(results).items():
        passed = zip(*(milestones(_rewards(run)) for run in runs), strict=True)
        rows.append((policy, *(str(Spread.of(values)) for values in passed)))
    note = (
        "Reward so far by what random choice is expected to have by then. "
        "Mean over seeds ± its standard error."
    )
    return Table(header=("policy", *shares), rows=tuple(rows), note=note)


def detection_table(results: Iterable[Result]) -> Table:
    """Return how well changes were noticed and neighbours chosen, by those who try."""
    rows = [
        (setting, policy, *_detection_cells(runs))
        for (setting, policy), runs in _grouped(results).items()
        if policy != "oracle" and any(map(_looks, runs))
    ]
    header = ("true alarms", "false alarms", "missed changes", "median delay")
    return Table(
        header=("setting", "policy", *header, "precision", "recall"),
        rows=tuple(rows),
        note="Means over seeds. Delay in the user's own rounds, from the change to its alarm. "
        "Precision and recall of the neighbourhoods. Policies that look for neither changes nor "
        "neighbours, and the oracle, which is told of them, are left out.",
    )


def timing_table(results: Iterable[Result]) -> Table:
    """Return the speed of every policy."""
    runs_of: dict[str, list[Timing]] = {}
    for run in results:
        runs_of.setdefault(run.policy, []).append(run.timing)
    rows = [
        (policy, str(len(runs)), _speed(runs), f"{sum(run.seconds for run in runs):,.1f}")
        for policy, runs in runs_of.items()
    ]
    return Table(
        header=("policy", "runs", "median rounds per second", "seconds in all"),
        rows=tuple(rows),
        note="Time inside the policy, the one time each run was made, with whatever else the "
        "machine did then.",
    )


def settings_table(settings: Mapping[str, Population]) -> Table:
    """Return the settings in numbers."""
    header = ("users", "parameters", "features", "arms", "rounds", "periods", "noise")
    return Table(
        header=("setting", *header, "separation"),
        rows=tuple((name, *_setting_cells(setting)) for name, setting in settings.items()),
        note="Users are served in turn; rounds and periods are each user's own. "
        "Without a number of parameters, every period has one of its own.",
    )


def regret_figure(results: Sequence[Result]) -> Figure:
    """Draw accumulated regret over time, a panel per setting, with bands over seeds."""
    panels: dict[str, dict[str, list[Result]]] = {}
    for (setting, policy), runs in _grouped(results).items():
        panels.setdefault(setting, {})[policy] = runs
    with _panels(len(panels)) as (drawn, all_axes):
        for axes, (setting, curves) in zip(all_axes, panels.items(), strict=True):
            for policy, runs in curves.items():
                values = np.array([run.curve for run in runs])
                _draw_curve(axes, checkpoints(runs[0].rounds), values, policy, list(curves))
            axes.set(title=ENVIRONMENTS.get(setting, setting), ylabel="accumulated regret", ylim=0)
            axes.set(xlim=0, xlabel="rounds of each user")
    return drawn


def reward_figure(results: Sequence[Result]) -> Figure:
    """Draw the reward on Last.fm by that of random choice, with bands over seeds."""
    grouped = _grouped(results)
    policies = [policy for _, policy in grouped]
    with _panels(1) as (drawn, (axes,)):
        for (_, policy), runs in grouped.items():
            values = np.array([_rewards(run) for run in runs])
            # Streams differ in length: what the curves have in common is the share served.
            shares = 100 * np.arange(1, values.shape[1] + 1) / values.shape[1]
            _draw_curve(axes, shares, values, policy, policies)
        axes.set(title="Reward on Last.fm", ylabel="multiple of random choice's", ylim=0)
        axes.set(xlim=(0, 100), xlabel="events served, % of the stream")
    return drawn


def comparison_figure(
    results: Sequence[Result], published: Mapping[str, Mapping[str, float]]
) -> Figure:
    """Draw our regret beside the paper's, a line per setting."""
    spreads = _spreads(results)
    policies, settings = _policies(spreads), list(spreads)
    with drawing():
        drawn = _canvas(1.6 + 0.55 * len(settings))
        axes = drawn.subplots()
        for i, policy in enumerate(policies):
            # Side by side within the line of their setting: some are nearly equal.
            places = np.arange(float(len(settings))) + 0.5 * ((i + 0.5) / len(policies) - 0.5)
            ours = [spreads[setting][policy] for setting in settings]
            theirs = [published.get(setting, {}).get(policy, math.nan) for setting in settings]
            _draw_marks(axes, places, ours, theirs, policy, policies)
        axes.set(xscale="log", xlabel="accumulated regret", title="Regret, here and in the paper")
        axes.set(yticks=range(len(settings)), yticklabels=settings)
        axes.set_ylim(len(settings) - 0.5, -0.5)
        axes.grid(axis="x")
        _legend_below(drawn, axes)
        arrange(drawn)
    return drawn


def plan_numbers(plan: Plan) -> dict[str, Any]:
    """Return all that is told of a plan, ready for JSON: None is what never happens."""
    return {
        "plan": asdict(plan),
        **{name: _finite(getattr(plan, name)) for name in QUANTITIES},
        "alarm_within_window": plan.alarm_within(plan.window),
        "observations": [
            {
                "power": power,
                "each": plan.observations_for(power),
                "against_group": plan.observations_for(power, partner=math.inf),
            }
            for power in POWERS
        ],
        "power": [
            {
                "observations": n,
                "each": plan.power(n),
                "against_group": plan.power(n, partner=math.inf),
            }
            for n in _horizon(plan, CURVE_ROWS).tolist()
        ],
    }


def plan_tables(numbers: Mapping[str, Any]) -> tuple[Table, Table, Table]:
    """Return `plan_numbers` as people read them: the alarm, the observations needed, the power."""
    window = numbers["plan"]["window"]
    alarm = [
        *((told, _told_number(numbers[name])) for name, told in QUANTITIES.items()),
        (
            f"chance that the alarm rings within a window ({window} rounds) of a change",
            _told_number(numbers["alarm_within_window"]),
        ),
    ]
    needed = [
        (f"{row['power']:.0%}", f"{row['each']:,}", f"{row['against_group']:,}")
        for row in numbers["observations"]
    ]
    powers = [
        (f"{row['observations']:,}", f"{row['each']:.3f}", f"{row['against_group']:.3f}")
        for row in numbers["power"]
    ]
    partners = ("two such users", "against a well-known group")
    return (
        Table(header=("what to expect", ""), rows=tuple(alarm)),
        Table(header=("told apart with chance", *partners), rows=tuple(needed)),
        Table(header=("observations of a user", *partners), rows=tuple(powers)),
    )


def plan_figure(plan: Plan) -> Figure:
    """Draw the chances of telling two users apart, and of noticing a change in time."""
    with drawing():
        drawn = _canvas(6.4)
        above, below = drawn.subplots(2)
        _draw_powers(above, plan)
        _draw_alarms(below, plan)
        for axes in (above, below):
            axes.set(ylim=(-0.03, 1.03), xlim=0)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(handlelength=3)
        arrange(drawn)
    return drawn


def _study(
    name: str,
    title: str,
    settings: Sequence[str],
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    quick: bool,
) -> Study:
    size = shortened if quick else lambda setting: setting
    return Study(
        name=_folder(name, quick=quick),
        title=title,
        settings={setting: size(paper.SETTINGS[setting]) for setting in settings},
        policies=policies,
        seeds=seeds,
        quick=quick,
    )


def _folder(name: str, *, quick: bool) -> str:
    # A folder of its own: a quick run must not replace what took a night.
    return f"{name}-quick" if quick else name


def _check_policies(policies: Sequence[str], dim: int) -> None:
    """Make every policy once: whatever is wrong with one shows before the first run."""
    if not policies:
        raise OptionError(
            f"there are no policies, expected some of {', '.join(paper.contestants())}, "
            'or your own as "module:Class"'
        )
    world = _stand_in(dim, noise=LASTFM_NOISE).world(0)
    for policy in policies:
        try:
            paper.contestant(policy, world)
        except DycluError:
            raise
        except Exception as error:  # whatever somebody's module or class comes up with
            raise OptionError(
                f"{policy!r} cannot be made ({type(error).__name__}: {error}); "
                "repair it or leave it out"
            ) from error


def _stand_in(dim: int, *, noise: float) -> Population:
    """Return the smallest setting of this dimension and noise."""
    return Population(users=1, parameters=1, dim=dim, arms=1, offered=1, rounds=1, noise=noise)


def _listened(data: LastFM, job: Job, stream: Mapping[str, Any]) -> Result:
    policy = paper.contestant(job.policy, job.population.world(job.seed), seed=job.seed)
    listening = listen(policy, data.stream(job.seed, **stream))
    regret, seconds = np.cumsum(1 - listening.reward), float(listening.seconds.sum())
    changes, delays = _changes(listening)
    return Result(
        setting="lastfm",
        policy=job.policy,
        seed=job.seed,
        rounds=len(listening),
        regret=float(regret[-1]),
        alarms_true=len(delays),
        alarms_false=int(listening.changed.sum()) - len(delays),
        alarms_missed=changes - len(delays),
        median_delay=float(median(delays)) if delays else None,
        precision=None,
        recall=None,
        parameter_error=None,
        version=__version__,
        curve=tuple(regret[checkpoints(len(listening)) - 1].tolist()),
        timing=Timing(seconds=seconds, rounds_per_second=len(listening) / seconds),
    )


def _changes(listening: Listening) -> tuple[int, list[int]]:
    """Return how often a user became another person, and the delays of those that were noticed."""
    stream, total, delays = listening.stream, 0, list[int]()
    for user in range(len(stream.hybrids)):
        own = stream.user == user
        changes = np.flatnonzero(np.diff(stream.person[own])) + 1
        total += len(changes)
        delays += _delays(np.flatnonzero(listening.changed[own]), changes)
    return total, delays


def _failed(job: Job, error: BaseException) -> DycluError:
    return DycluError(
        f"{job.policy} on Last.fm, seed {job.seed}, failed ({type(error).__name__}: {error}); "
        "finished runs are stored, repair the cause and start again"
    )


def _grouped(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.setting, result.policy), []).append(result)
    return grouped


def _spreads(results: Iterable[Result]) -> dict[str, dict[str, Spread]]:
    """Return the regret by setting and policy."""
    spreads: dict[str, dict[str, Spread]] = {}
    for (setting, policy), runs in _grouped(results).items():
        spreads.setdefault(setting, {})[policy] = Spread.of([run.regret for run in runs])
    return spreads


def _policies(spreads: Mapping[str, Mapping[str, Spread]]) -> list[str]:
    return list(dict.fromkeys(policy for row in spreads.values() for policy in row))


def _beside(ours: Spread, theirs: float | None) -> str:
    return str(ours) if theirs is None else f"{ours}\n({theirs:,.0f})"


def _agreement(ours: Mapping[str, Spread], theirs: Mapping[str, float]) -> str:
    """Return how far the order of the policies is that of the paper.

    >>> ours = {"a": Spread(1.0, None), "b": Spread(3.0, None), "c": Spread(2.0, None)}
    >>> _agreement(ours, {"a": 10, "b": 20, "c": 30}), _agreement(ours, {"a": 10, "b": 20})
    ('2 of 3', 'yes')
    """
    pairs = list(combinations([name for name in ours if name in theirs], 2))
    same = sum((ours[a].mean < ours[b].mean) == (theirs[a] < theirs[b]) for a, b in pairs)
    if not pairs:
        return NOTHING
    return "yes" if same == len(pairs) else f"{same} of {len(pairs)}"


def _rewards(run: Result) -> FloatArray:
    """Return the reward on Last.fm by that of random choice, at the checkpoints."""
    served = checkpoints(run.rounds)
    ratio: FloatArray = OFFERED * (1 - np.array(run.curve) / served)
    return ratio


def _everyday_parts(results: Sequence[Result]) -> list[tuple[str, Table | Picture]]:
    detection = detection_table(results)
    noticed = [("Changes and neighbours", detection)] if detection.rows else []
    return [*noticed, ("Speed", timing_table(results))]


def _detection_cells(runs: Sequence[Result]) -> Iterator[str]:
    for name in ("alarms_true", "alarms_false", "alarms_missed", "median_delay"):
        yield _mean([getattr(run, name) for run in runs], digits=1)
    for name in ("precision", "recall"):
        yield _mean([getattr(run, name) for run in runs], digits=2)


def _looks(run: Result) -> bool:
    return bool(run.alarms_true or run.alarms_false or run.precision is not None)


def _mean(values: Iterable[float | None], *, digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):,.{digits}f}" if known else NOTHING


def _speed(runs: Iterable[Timing]) -> str:
    speeds = [run.rounds_per_second for run in runs if run.rounds_per_second is not None]
    return f"{median(speeds):,.0f}" if speeds else NOTHING


def _setting_cells(setting: Population) -> tuple[str, ...]:
    changes = setting.shortest < setting.rounds
    return (
        f"{setting.users:,}",
        NOTHING if setting.parameters is None else f"{setting.parameters:,}",
        str(setting.dim),
        f"{setting.offered:,} of {setting.arms:,}",
        f"{setting.rounds:,}",
        f"{setting.shortest:,}–{setting.longest:,}" if changes else "no changes",
        f"{setting.noise:g}",
        f"{setting.separation:g}",
    )


def _counted(things: Sequence[object] | Mapping[str, object], name: str) -> str:
    return f"{len(things)} {name}" + ("" if len(things) == 1 else "s")


def _cast(policies: Sequence[str], seeds: Sequence[int]) -> str:
    players = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    return f"{players}, {_counted(seeds, 'seed')}"


def _canvas(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, height), layout="constrained")


@contextmanager
def _panels(count: int) -> Iterator[tuple[Figure, list[Axes]]]:
    """Give a figure of panels below each other, with one legend for all of them."""
    with drawing():
        drawn = _canvas(1 + 2.7 * count)
        panels = list(drawn.subplots(count, squeeze=False)[:, 0])
        yield drawn, panels
        _legend_below(drawn, panels[0])
        arrange(drawn)


def _legend_below(drawn: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=3.5)


def _lines(policies: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return colour and dashes of policies: the familiar ones have their own, others what is left.

    >>> _lines(["mine:Policy", "linucb"])["linucb"] == LINES[1]
    True
    """
    own = dict(zip(FAMILIAR, LINES, strict=True))
    left = cycle([line for name, line in own.items() if name not in policies] or LINES)
    return {policy: own[policy] if policy in own else next(left) for policy in policies}


def _draw_curve(
    axes: Axes, x: Ids | FloatArray, curves: FloatArray, policy: str, policies: Sequence[str]
) -> None:
    """Draw the mean of curves, one per seed, in a band of one standard error."""
    colour, dashes = _lines(policies)[policy]
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, linestyle=dashes, label=policy)


def _draw_marks(
    axes: Axes,
    places: FloatArray,
    ours: Sequence[Spread],
    theirs: Sequence[float],
    policy: str,
    policies: Sequence[str],
) -> None:
    colour, _ = _lines(policies)[policy]
    mark = MARKERS[policies.index(policy) % len(MARKERS)]
    means, errors = [spread.mean for spread in ours], [spread.error or 0 for spread in ours]
    axes.errorbar(
        means, places, xerr=errors, fmt=mark, color=colour, ms=5, elinewidth=1, label=policy
    )
    axes.plot(theirs, places, mark, color=colour, ms=10, fillstyle="none")


def _horizon(plan: Plan, count: int) -> Ids:
    """Return numbers of observations from the first that tell anything to more than enough."""
    enough = max(plan.observations_for(POWERS[-1]), plan.comparable_after)
    return np.unique(np.linspace(1, 1.25 * enough, count).round().astype(np.intp))


def _draw_powers(axes: Axes, plan: Plan) -> None:
    observations = _horizon(plan, CURVE_POINTS)
    partners = (
        ("two such users", 0.0, LINES[2]),
        ("against a well-known group", math.inf, LINES[1]),
    )
    for label, partner, (colour, dashes) in partners:
        power = plan.power_curve(observations.astype(float), partner=partner)
        axes.plot(observations, power, color=colour, linestyle=dashes, label=label)
    first = plan.comparable_after
    axes.axvline(first, color=INK, linewidth=1, alpha=0.5, label=f"first comparable: {first}")
    axes.set(
        title=f"Telling apart users {plan.separation:g} apart",
        xlabel="observations of each user",
        ylabel="chance of telling them apart",
    )


def _draw_alarms(axes: Axes, plan: Plan) -> None:
    rounds = range(plan.window + 1)
    users = (
        ("a user who has changed", None, LINES[2]),
        ("anybody else", plan.change_level, LINES[0]),
    )
    for label, surprise, (colour, dashes) in users:
        chances = [plan.alarm_within(count, surprise=surprise) for count in rounds]
        axes.plot(rounds, chances, color=colour, linestyle=dashes, label=label)
    axes.set(
        title=f"Noticing a change, with a window of {plan.window}",
        xlabel="rounds since the change",
        ylabel="chance of an alarm by then",
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _told_number(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g}"
