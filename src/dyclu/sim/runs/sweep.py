"""Many runs, on all cores or a Dask cluster; none is ever computed twice.

`sweep` stores each result under the key of its job the moment it is there: a sweep that was
interrupted, killed or lost its power goes on where it stopped when it is started again.
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
from dyclu.sim.runs.jobs import RESULT_VERSION, Job, Work
from dyclu.sim.runs.results import Result, Timing, checkpoints, write_csv, write_timing
from dyclu.sim.runs.store import Store
from dyclu.sim.runs.workers import Answers, in_processes
from dyclu.validation import as_whole

__all__ = [
    "RESULT_VERSION",
    "Job",
    "Result",
    "SweepFailed",
    "Timing",
    "checkpoints",
    "sweep",
    "write_csv",
    "write_timing",
]

LISTED, LONGEST = 10, 200
"""Failures that a message names, and the characters each of them gets."""


def sweep(
    jobs: Iterable[Work],
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
    jobs : iterable of Work
        `Job`s, or other jobs. Those of the same key are computed once.
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
    wanted, store = dict(zip(keys, jobs, strict=True)), Store(Path(folder))
    results = {key: found for key in wanted if (found := store.get(key)) is not None}
    missing = _longest_first({key: wanted[key] for key in wanted.keys() - results})
    failures: dict[Work, BaseException] = {}
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


def _longest_first(jobs: Mapping[str, Work]) -> dict[str, Work]:
    """Order jobs so that no long one is left over when all other workers are done already."""
    # Ties are broken by the key, so that the order does not depend on the hashes of strings.
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
    r"""Return what went wrong, however long somebody's policy talks about it.

    >>> _in_one_line(ValueError("not\n  this"))
    'ValueError: not this'
    """
    return shorten(f"{type(error).__name__}: {error}", LONGEST, placeholder=" …")


def _computed(jobs: Mapping[str, Work], workers: int | None, dask: str | None) -> Answers:
    """Make all runs, wherever they are to be made."""
    if dask is not None:
        return on_dask(jobs, dask)
    cores = os.cpu_count() or 1
    return in_processes(jobs, as_whole(cores if workers is None else workers, "workers", least=1))
