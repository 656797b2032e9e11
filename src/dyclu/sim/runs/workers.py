"""Runs made in processes of our own, which may die: a run that was lost is made again."""

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
"""Workers a run may lose before it counts as failed."""

DEATHS = 10
"""Workers lost in a row, without one run finished between them, that end a sweep."""

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Processes share out the cores already; threads of linear algebra would only fight over them."""

Answers = Generator[tuple[str, Result | BaseException], None, None]
"""Keys with their results, or why there is none, in the order they come."""

_log = logging.getLogger(__name__)


def make_run(job: Work, key: str) -> Result:
    """Make a run in a worker, unless the worker would make another one than was asked for."""
    if job.key != key:
        raise OptionError(
            f"this worker has dyclu {__version__} and another configuration of {job}; "
            "give all workers the same dyclu and the same source of your own policy"
        )
    return job.run()


def in_processes(jobs: Mapping[str, Work], workers: int) -> Answers:
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

    def submit(self, job: Work, key: str) -> Future[Result]:
        """Have a run made."""
        # The process is started by the first of these, not with the pool.
        with _one_thread(), _no_interrupts():
            return self._pool.submit(make_run, job, key)

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

    def judged(self, key: str, job: Work, waiting: deque[str]) -> Answers:
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
