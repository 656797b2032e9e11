"""Many runs, on all cores or on a Dask cluster; stored results are not computed again.

`sweep` stores each result at once, under the key of its job. A sweep that was interrupted or killed
continues where it stopped when it is started again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from textwrap import shorten

from dyclu.errors import SweepFailed
from dyclu.sim.runs.dask import on_dask
from dyclu.sim.runs.jobs import Work
from dyclu.sim.runs.results import Result
from dyclu.sim.runs.store import Store
from dyclu.sim.runs.workers import Answers, in_processes
from dyclu.validation import as_whole

LISTED, LONGEST = 10, 200
"""Most failures in a message, and most characters of each."""


def sweep(
    jobs: Iterable[Work],
    *,
    folder: str | PathLike[str],
    workers: int | None = None,
    dask: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Result]:
    """Make all runs that are not stored yet, and return the results in the order of the jobs.

    Worker processes import the calling script; it must call `sweep` under
    ``if __name__ == "__main__":``.

    Parameters
    ----------
    jobs : iterable of Work
        `Job`s, or other jobs. Jobs with the same key are computed once.
    folder : path
        Folder of the stored results; several sweeps may use the same one.
    workers : int or None
        Number of processes; None is one per core.
    dask : str or None
        Address of a Dask scheduler, such as ``"tcp://127.0.0.1:8786"``, whose workers compute
        instead. They need this version of dyclu, and no access to the folder.
    progress : callable or None
        Called with the number of finished and of all distinct runs, first and after each run.

    Raises
    ------
    SweepFailed
        If runs failed; all others are finished and stored.
    """
    jobs = tuple(jobs)
    keys = [job.key for job in jobs]
    wanted, store = dict(zip(keys, jobs, strict=True)), Store(Path(folder))
    results = {key: found for key in wanted if (found := store.get(key)) is not None}
    missing = _longest_first({key: wanted[key] for key in wanted.keys() - results})
    failures: dict[Work, BaseException] = {}
    report = progress or (lambda done, total: None)
    report(len(results), len(wanted))
    with closing(_computed(missing, workers, dask)) as answers:
        for key, answer in answers:
            if isinstance(answer, Result):
                store.put(key, wanted[key], answer)
                results[key] = answer
            else:
                failures[wanted[key]] = answer
            report(len(results) + len(failures), len(wanted))
    if failures:
        raise _failed(failures) from next(iter(failures.values()))
    return [replace(results[key], setting=job.name) for key, job in zip(keys, jobs, strict=True)]


def _longest_first(jobs: Mapping[str, Work]) -> dict[str, Work]:
    """Order jobs by falling cost, so that no long run starts when other workers are idle."""
    # Ties are broken by the key, so that the order is the same in every process.
    return dict(sorted(jobs.items(), key=lambda item: (-item[1].cost, item[0])))


def _failed(failures: Mapping[Work, BaseException]) -> SweepFailed:
    lines = sorted(f"{job}: {_in_one_line(error)}" for job, error in failures.items())
    if len(lines) > LISTED:
        lines[LISTED:] = [f"and {len(lines) - LISTED} more"]
    count = len(failures)
    return SweepFailed(
        f"{count} {'run' if count == 1 else 'runs'} failed, all others are stored; repair the "
        "cause and start the sweep again, it goes on from there\n- " + "\n- ".join(lines),
        failures,
    )


def _in_one_line(error: BaseException) -> str:
    r"""Return an error as one line of at most `LONGEST` characters.

    >>> _in_one_line(ValueError("not\n  this"))
    'ValueError: not this'
    """
    return shorten(f"{type(error).__name__}: {error}", LONGEST, placeholder=" …")


def _computed(jobs: Mapping[str, Work], workers: int | None, dask: str | None) -> Answers:
    """Make all runs, in processes or on Dask."""
    if dask is not None:
        return on_dask(jobs, dask)
    cores = os.cpu_count() or 1
    return in_processes(jobs, as_whole(cores if workers is None else workers, "workers", least=1))
