"""Runs in local worker processes; if a process dies, its run is repeated in a new one."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection

from dyclu import __version__
from dyclu.errors import DycluError, OptionError
from dyclu.sim.runs.jobs import Work
from dyclu.sim.runs.results import Result

ATTEMPTS = 3
"""Deaths of its worker after which a run counts as failed."""

MOST_DEATHS = 10
"""Deaths in a row, without a finished run between them, after which the sweep ends."""

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment of a worker: there is one process per core, so linear algebra gets one thread."""

Answers = Generator[tuple[str, Result | BaseException], None, None]
"""Pairs of a key and its result or error, in the order in which they finish."""

_log = logging.getLogger(__name__)


def make_run(job: Work, key: str) -> Result:
    """Make a run in a worker; refuse if the worker has other code than the sender (key differs)."""
    if job.key != key:
        raise OptionError(
            f"this worker has dyclu {__version__} and another configuration of {job}; "
            "give all workers the same dyclu and the same source of your own policy"
        )
    return job.run()


def in_processes(jobs: Mapping[str, Work], workers: int) -> Answers:
    """Make runs in local processes."""
    waiting, deaths = deque(jobs), _Deaths()
    all_workers = [_Worker() for _ in range(min(workers, len(jobs)))]
    idle, busy = list(all_workers), dict[Future[Result], tuple[str, _Worker]]()
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
                    yield from deaths.requeue(key, jobs[key], waiting)
                else:
                    deaths.in_a_row = 0
                    yield key, future.exception() or future.result()
    finally:
        for worker in all_workers:
            worker.close()


class _Worker:
    """A process that makes one run at a time, so that a death belongs to exactly one run."""

    def __init__(self) -> None:
        self._start()

    def submit(self, job: Work, key: str) -> Future[Result]:
        """Start a run in the process."""
        # The first submit starts the process, not the constructor of the pool.
        with _one_thread(), _no_interrupts():
            return self._pool.submit(make_run, job, key)

    def restart(self) -> None:
        """Replace the dead process by a new one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process at once, even during a run."""
        self._our_end.close()
        self._pool.shutdown()
        self._worker_end.close()

    def _start(self) -> None:
        context = get_context("spawn")
        self._worker_end, self._our_end = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            1, mp_context=context, initializer=_exit_with_parent, initargs=(self._worker_end,)
        )


def _exit_with_parent(pipe: Connection) -> None:
    """Make this worker exit when the parent closes its end of the pipe, or dies."""
    threading.Thread(target=_exit_when_closed, args=(pipe,), daemon=True).start()


def _exit_when_closed(pipe: Connection) -> None:
    pipe.poll(None)
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set `ONE_THREAD` for processes that start now; libraries read it when they are loaded."""
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
    """Block SIGINT for processes that start now: a terminal sends Ctrl-C to them too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Deaths:
    """Counts deaths of workers, and decides which runs are repeated."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self._by_run = Counter[str]()

    def requeue(self, key: str, job: Work, waiting: deque[str]) -> Answers:
        """Put the run back in the queue; after too many deaths, yield errors for it or for all."""
        self.in_a_row += 1
        self._by_run[key] += 1
        _log.warning("a worker died making the run of %s; another takes its place", job)
        if self.in_a_row >= MOST_DEATHS:
            waiting.append(key)
            yield from ((left, _lost(f"the last {MOST_DEATHS} workers died")) for left in waiting)
            waiting.clear()
        elif self._by_run[key] >= ATTEMPTS:
            yield key, _lost(f"{ATTEMPTS} workers died of it")
        else:
            waiting.append(key)


def _lost(what: str) -> DycluError:
    return DycluError(
        f"{what}; check whether memory runs out, and call sweep under "
        'if __name__ == "__main__" in a script'
    )
