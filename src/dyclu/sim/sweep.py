"""Many runs, on all cores or a Dask cluster; none is ever computed twice.

A `Job` is everything that decides the outcome of a run, and its `key` the hash of that. `sweep`
stores each `Result` under its key, in ``folder/runs/``, the moment it is there: a sweep that was
interrupted, killed or lost its power goes on where it stopped when it is started again.

What a machine's speed decides (`Timing`) is kept apart, and `write_csv` leaves it out: the same
jobs give the same bytes, however often the sweep was killed on the way.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import io
import json
import logging
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dyclu import __version__
from dyclu.errors import DycluError, FileError, MissingExtra, OptionError
from dyclu.policy import Ids
from dyclu.sim import paper
from dyclu.sim.measures import regret, summary
from dyclu.sim.play import Run, play
from dyclu.sim.population import Population
from dyclu.storage import replace_file
from dyclu.validation import as_whole

RESULT_VERSION = 1
"""Raised when a configuration comes to give other numbers: stored runs are then computed anew."""

LOOK = 25
"""The neighbourhood is judged at every 25th round of a user, which costs next to nothing."""

POINTS = 250
"""Most points a stored curve has."""

ATTEMPTS = 3
"""Workers a run may lose before it counts as failed."""

DEATHS = 10
"""Workers lost in a row, without one run finished between them, that end a sweep."""

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Processes share out the cores already; threads of linear algebra would only fight over them."""

HEAVY = {"adts": 2, "club": 2, "dlinucb": 2, "dyclu": 10}
"""Rough cost of a round, where it is not that of a policy with one model per user."""

PATIENCE = "10s"
"""How long a Dask scheduler may take to answer."""

LISTED = 10
"""Failures that a message names."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made: everything that decides its outcome.

    Attributes
    ----------
    setting : str or Population
        A name of `paper.SETTINGS`, or a setting of your own.
    policy : str
        What `paper.contestant` makes: one of its names, or ``"module:Class"``.
    seed : int
        Decides the world, and the dice of a policy that throws any.
    rounds : int or None
        Rounds per user, where not the setting's own.

    Examples
    --------
    >>> job = Job("row1", "dyclu", seed=3, rounds=500)
    >>> job.key == Job(Population(rounds=500), "dyclu", seed=3).key
    True
    """

    setting: str | Population
    policy: str
    _: KW_ONLY
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.setting, str) and self.setting not in paper.SETTINGS:
            raise OptionError(
                f"no setting is called {self.setting!r}; choose one of "
                f"{', '.join(paper.SETTINGS)}, or pass a Population"
            )
        if self.policy not in paper.contestants():
            paper.own_class(self.policy)
        object.__setattr__(self, "seed", as_whole(self.seed, "seed", least=0))
        if self.rounds is not None:
            object.__setattr__(self, "rounds", as_whole(self.rounds, "rounds", least=1))

    def __str__(self) -> str:
        return f"{self.policy} on {self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The setting's name, or what distinguishes it from row 1 beside its rounds."""
        return self.setting if isinstance(self.setting, str) else _described(self.setting)

    @property
    def population(self) -> Population:
        """The setting, with the job's own rounds."""
        named = paper.SETTINGS[self.setting] if isinstance(self.setting, str) else self.setting
        return named if self.rounds is None else replace(named, rounds=self.rounds)

    @property
    def configuration(self) -> dict[str, Any]:
        """All that decides the outcome, in plain values; what a setting is called does not."""
        return {
            "setting": asdict(self.population),
            "policy": self.policy,
            "told": paper.options(self.policy, self.population),
            "source": None if self.policy in paper.contestants() else _source(self.policy),
            "seed": self.seed,
            "look": LOOK,
            "points": POINTS,
            "result": RESULT_VERSION,
            "dyclu": __version__,
        }

    @property
    def key(self) -> str:
        """SHA-256 of the configuration: the name under which the result is stored."""
        return _digest(self.configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How fast a run was; no two runs agree on it.

    Attributes
    ----------
    seconds : float
        Time inside the policy.
    rounds_per_second : float or None
        Rounds, of all users, by that time.
    """

    seconds: float
    rounds_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to; equal for equal jobs.

    Attributes
    ----------
    setting, policy, seed
        As in `Job`.
    rounds : int
        Rounds per user.
    regret, alarms_true, alarms_false, alarms_missed, median_delay
        As in `measures.Summary`.
    precision, recall, parameter_error
        As there; the neighbourhoods were judged at every 25th round of a user.
    version : str
        Version of dyclu that made the run.
    curve : tuple of float
        Accumulated regret of all users after each of `checkpoints(rounds)`.
    timing : Timing
        Kept apart: results that differ only in it are equal.
    """

    setting: str
    policy: str
    seed: int
    rounds: int
    regret: float
    alarms_true: int
    alarms_false: int
    alarms_missed: int
    median_delay: float | None
    precision: float | None
    recall: float | None
    parameter_error: float | None
    version: str
    curve: tuple[float, ...] = field(repr=False)
    timing: Timing = field(compare=False)


LABELS = ("setting", "policy", "seed", "rounds")
TIMES = tuple(column.name for column in fields(Timing))
COLUMNS = tuple(column.name for column in fields(Result) if column.name not in ("curve", "timing"))
"""What a line of the tables begins with; columns of the timing; columns of the results."""


class SweepFailed(DycluError, RuntimeError):  # noqa: N818 - reads as what it is
    """A sweep some of whose runs could not be made; all the others are stored.

    Attributes
    ----------
    failures : dict of Job to BaseException
        Why each of them failed.
    """

    def __init__(self, message: str, failures: Mapping[Job, BaseException]) -> None:
        super().__init__(message)
        self.failures = dict(failures)


def run(job: Job) -> Result:
    """Make one run, here and now.

    >>> run(Job(Population(users=2, dim=3, rounds=40), "linucb")).rounds
    40
    """
    world = job.population.world(job.seed)
    # A world takes its randomness from the seed itself, a policy from a child of it.
    dice = np.random.SeedSequence(job.seed, spawn_key=(0,)).generate_state(1)
    policy = paper.contestant(job.policy, world, seed=int(dice[0]))
    return _measured(job, play(policy, world, look=LOOK))


def sweep(
    jobs: Iterable[Job],
    *,
    folder: str | PathLike[str],
    workers: int | None = None,
    dask: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Result]:
    """Make all runs that are not stored yet, and return the results in the order of the jobs.

    Worker processes import the calling script anew: what it does beside defining things belongs
    under ``if __name__ == "__main__":``.

    Parameters
    ----------
    jobs : iterable of Job
        Jobs of the same key are computed once.
    folder : path
        Where the results are stored; two sweeps may share it.
    workers : int or None
        How many processes to use; None takes one per core.
    dask : str or None
        Address of a Dask scheduler, such as ``"tcp://127.0.0.1:8786"``, whose workers compute
        instead. They need this version of dyclu, and no access to the folder.
    progress : callable or None
        Told how many of how many distinct runs are done, at the start and after each.

    Raises
    ------
    SweepFailed
        If runs failed, once all the others are done and stored.
    """
    jobs = tuple(jobs)
    keys = [job.key for job in jobs]
    wanted, store = dict(zip(keys, jobs, strict=True)), _Store(Path(folder))
    results = {key: found for key in wanted if (found := store.get(key)) is not None}
    missing = _longest_first({key: wanted[key] for key in wanted.keys() - results})
    failures: dict[Job, BaseException] = {}
    tell = progress or (lambda done, total: None)
    tell(len(results), len(wanted))
    with closing(_computed(missing, workers, dask)) as answers:
        for key, answer in answers:
            if isinstance(answer, Result):
                store.put(key, wanted[key], answer)
                results[key] = answer
            else:
                failures[wanted[key]] = answer
            tell(len(results) + len(failures), len(wanted))
    if failures:
        raise _failed(failures) from next(iter(failures.values()))
    return [replace(results[key], setting=job.name) for key, job in zip(keys, jobs, strict=True)]


def checkpoints(rounds: int) -> Ids:
    """Return the rounds per user after which a curve is read: evenly spaced, the last included.

    >>> checkpoints(2500)[[0, 1, -1]]
    array([  10,   20, 2500])
    """
    count = min(rounds, POINTS)
    return np.arange(1, count + 1) * rounds // count


def write_csv(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write one line per run, ordered by setting, policy and seed; the same runs, the same bytes.

    Numbers are written so that they read back exactly; what could not be measured is left empty.
    """
    _write_table(Path(path), COLUMNS, map(asdict, results))


def write_timing(results: Iterable[Result], path: str | PathLike[str]) -> None:
    """Write the timing of every run, which `write_csv` leaves out."""
    rows = (asdict(result) | asdict(result.timing) for result in results)
    _write_table(Path(path), (*LABELS, *TIMES), rows)


def _measured(job: Job, played: Run) -> Result:
    numbers = asdict(summary(played))
    timing = Timing(**{name: numbers.pop(name) for name in TIMES})
    setting = played.world.setting
    curve = regret(played)[checkpoints(setting.rounds) * setting.users - 1]
    return Result(
        setting=job.name,
        policy=job.policy,
        seed=job.seed,
        rounds=setting.rounds,
        version=__version__,
        curve=tuple(curve.tolist()),
        timing=timing,
        **numbers,
    )


def _described(setting: Population) -> str:
    """Return what distinguishes a setting from row 1.

    >>> _described(Population(users=20, noise=0.1, rounds=500))
    'users=20 noise=0.1'
    """
    usual = asdict(paper.SETTINGS["row1"])
    own = [
        f"{name}={value}"
        for name, value in asdict(setting).items()
        if value != usual[name] and name != "rounds"
    ]
    return " ".join(own) or "row1"


def _source(spec: str) -> str | None:
    """Return the digest of the file that defines somebody's own policy: edited, it is another."""
    try:
        source = Path(inspect.getfile(paper.own_class(spec))).read_bytes()
    except (TypeError, OSError):  # built in, or typed at a prompt
        return None
    return hashlib.sha256(source).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _longest_first(jobs: Mapping[str, Job]) -> dict[str, Job]:
    """Order jobs so that no long one is left over when all other workers are done already."""
    # Ties are broken by the key, so that the order does not depend on the hashes of strings.
    return dict(sorted(jobs.items(), key=lambda item: (-_cost(item[1]), item[0])))


def _cost(job: Job) -> int:
    return job.population.users * job.population.rounds * HEAVY.get(job.policy, 1)


def _failed(failures: Mapping[Job, BaseException]) -> SweepFailed:
    lines = [f"{job}: {type(error).__name__}: {error}" for job, error in failures.items()]
    if len(lines) > LISTED:
        lines[LISTED:] = [f"and {len(lines) - LISTED} more"]
    count = len(failures)
    return SweepFailed(
        f"{count} {'run' if count == 1 else 'runs'} failed, all others are stored; repair the "
        "cause and start the sweep again, it goes on from there\n- " + "\n- ".join(lines),
        failures,
    )


class _Store:
    """Results by key, one file each."""

    def __init__(self, folder: Path) -> None:
        self._runs = folder / "runs"
        with _explaining(self._runs):
            self._runs.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Result | None:
        """Return what is stored under a key; None where nothing is, or nothing usable."""
        path = self._path(key)
        try:
            return _decoded(path.read_bytes(), key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is damaged (%r); the run is made again", path, error)
            return None

    def put(self, key: str, job: Job, result: Result) -> None:
        """Store a result: completely, or not at all."""
        stored = {
            "key": key,
            "job": job.configuration,
            "result": asdict(result),
            "digest": _digest(asdict(result)),
        }
        replace_file(self._path(key), json.dumps(stored, indent=1).encode())

    def _path(self, key: str) -> Path:
        return self._runs / f"{key}.json"


def _decoded(content: bytes, key: str) -> Result:
    stored = json.loads(content)
    if stored["key"] != key:
        raise ValueError(f"it holds the run {stored['key']}")
    values = stored["result"]
    if _digest(values) != stored["digest"]:
        raise ValueError("its contents do not match their digest")
    values["curve"] = tuple(values["curve"])
    values["timing"] = Timing(**values["timing"])
    return Result(**values)


def _write_table(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(sorted(rows, key=lambda row: [row[label] for label in LABELS]))
    replace_file(path, text.getvalue().encode())


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"cannot write {path} ({error.strerror or error}); "
            "name a folder that you may write to, on a disk with space"
        ) from None


def _work(job: Job, key: str) -> Result:
    """Make a run in a worker, unless the worker would make another one than was asked for."""
    if job.key != key:
        raise OptionError(
            f"this worker has dyclu {__version__} and another configuration of {job}; "
            "give all workers the same dyclu and the same source of your own policy"
        )
    return run(job)


Answers = Generator[tuple[str, Result | BaseException], None, None]
"""Keys with their results, or why there is none, in the order they come."""


def _computed(jobs: Mapping[str, Job], workers: int | None, dask: str | None) -> Answers:
    """Make all runs, wherever they are to be made."""
    if dask is not None:
        return _on_dask(jobs, dask)
    cores = os.cpu_count() or 1
    return _in_processes(jobs, as_whole(cores if workers is None else workers, "workers", least=1))


def _in_processes(jobs: Mapping[str, Job], workers: int) -> Answers:
    """Make runs in processes of our own."""
    waiting, losses = deque(jobs), _Losses()
    crew = [_Worker() for _ in range(min(workers, len(jobs)))]
    idle, busy = list(crew), dict[Future[Result], tuple[str, _Worker]]()
    try:
        while waiting or busy:
            while waiting and idle:
                key, worker = waiting.popleft(), idle.pop()
                busy[worker.submit(jobs[key], key)] = key, worker
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                key, worker = busy.pop(future)
                idle.append(worker)
                if isinstance(future.exception(), BrokenProcessPool):
                    worker.restart()
                    yield from losses.judged(key, jobs[key], waiting)
                else:
                    losses.in_a_row = 0
                    yield key, future.exception() or future.result()
    finally:
        for worker in crew:
            worker.close()


class _Worker:
    """A process that makes one run at a time; one each, so that a death has one run to blame."""

    def __init__(self) -> None:
        self._start()

    def submit(self, job: Job, key: str) -> Future[Result]:
        """Have a run made."""
        # The process is started by the first of these, not with the pool.
        with _one_thread(), _no_interrupts():
            return self._pool.submit(_work, job, key)

    def restart(self) -> None:
        """Replace the process."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process at once, whatever it is doing."""
        self._lifeline.close()
        self._pool.shutdown()
        self._far_end.close()

    def _start(self) -> None:
        context = get_context("spawn")
        self._far_end, self._lifeline = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            1, mp_context=context, initializer=_hold, initargs=(self._far_end,)
        )


def _hold(lifeline: Connection) -> None:
    """Let this worker die when the other end of the lifeline is closed, by a parent's death too."""
    threading.Thread(target=_die_with, args=(lifeline,), daemon=True).start()


def _die_with(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes started now use one thread each: libraries read this as they are loaded."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Let processes started now be deaf to Ctrl-C, which a terminal sends to them as well."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Losses:
    """The workers that died, and what is to become of the runs they were making."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self._of_run = Counter[str]()

    def judged(self, key: str, job: Job, waiting: deque[str]) -> Answers:
        """Put the run back in the queue, or give it up; give up the queue if nothing helps."""
        self.in_a_row += 1
        self._of_run[key] += 1
        _log.warning("a worker died making the run of %s; another takes its place", job)
        if self.in_a_row >= DEATHS:
            waiting.append(key)
            yield from ((doomed, _lost(f"the last {DEATHS} workers died")) for doomed in waiting)
            waiting.clear()
        elif self._of_run[key] >= ATTEMPTS:
            yield key, _lost(f"{ATTEMPTS} workers died of it")
        else:
            waiting.append(key)


def _lost(what: str) -> DycluError:
    return DycluError(
        f"{what}; see whether memory runs out, and call sweep under "
        'if __name__ == "__main__" in a script'
    )


def _on_dask(jobs: Mapping[str, Job], address: str) -> Answers:
    """Make runs on a Dask cluster, whose scheduler sees to workers that die."""
    if not jobs:
        return
    distributed = _distributed()
    with _client(distributed, address) as client:
        futures = {
            client.submit(_work, job, key, key=f"dyclu-{key}"): key for key, job in jobs.items()
        }
        for future in distributed.as_completed(list(futures), loop=client.loop):
            yield futures[future], _answer(future)


def _answer(future: Any) -> Result | Exception:
    try:
        answer: Result = future.result()
    except Exception as error:  # whatever somebody's policy, a worker or the network came up with
        return error
    return answer


def _client(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"no Dask scheduler answers at {address!r} ({error}); start one with "
            "`dask scheduler`, workers with `dask worker ADDRESS`, and pass the address it prints"
        ) from error


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise MissingExtra(
            f"a sweep on Dask needs distributed ({error}); pip install 'dyclu[sweep]'"
        ) from error
    return distributed
