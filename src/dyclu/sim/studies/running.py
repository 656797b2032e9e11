"""`run_study`: make the runs of a study, and write its tables and its report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dyclu.errors import MissingExtra, OptionError
from dyclu.sim.reports.common import machine
from dyclu.sim.reports.document import Document
from dyclu.sim.reports.page import write_report
from dyclu.sim.reports.terminal import progress_bars
from dyclu.sim.runs.results import Result, missing_runs, write_csv, write_curves, write_timing
from dyclu.sim.studies.stream import StreamStudy
from dyclu.sim.studies.study import Study
from dyclu.sim.studies.wild import WildStudy
from dyclu.storage import check_writable

AnyStudy = Study | StreamStudy | WildStudy
Warn = Callable[[str], object]


def check_workers(workers: int | None) -> None:
    """Refuse fewer than one worker; None is one per core."""
    if workers is not None and workers < 1:
        raise OptionError(f"jobs is {workers}, expected 1 or more; leave it out for one per core")


def run_study(
    study: AnyStudy,
    folder: Path,
    store: Path,
    *,
    command: str,
    warn: Warn,
    workers: int | None = None,
    dask: str | None = None,
) -> tuple[Document, list[Path]]:
    """Make all runs of a study; write tables (CSV) and report (Markdown, HTML, PNG) to a folder.

    Returns the report and the paths of the files. `store`, `workers` and `dask` are those of
    `sweep`; the report prints `command`. `warn` is called if runs of the previous report are not in
    this one, and if matplotlib is missing: the report then has no pictures.
    """
    check_writable(folder)
    results, time_taken = _results(study, store, workers, dask)
    tables = [folder / "results.csv", folder / "timing.csv", folder / "curves.csv"]
    if lost := missing_runs(tables[0], results):
        warn(
            f"the report that was in {folder} had {lost} runs that are not in this one; they "
            "are still stored, and the command that made them writes it again at once"
        )
    write_csv(results, tables[0])
    write_timing(results, tables[1])
    write_curves(results, tables[2])
    facts = {"command": command, **machine(), "time": time_taken}
    document = _document(study, results, facts, warn)
    return document, [*tables, *write_report(document, folder)]


def _results(
    study: AnyStudy, store: Path, workers: int | None, dask: str | None
) -> tuple[list[Result], str]:
    """Return the results, and a phrase that says how long how many runs took."""
    start, finished = time.monotonic(), list[int]()
    with progress_bars() as progress:
        task = progress.add_task(study.name, total=None)

        def report(done: int, total: int) -> None:
            finished.append(done)
            progress.update(task, completed=done, total=total)

        try:
            results = study.run(store, workers=workers, dask=dask, progress=report)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; finished runs are kept in {store / 'runs'}, "
                "the same command goes on from there"
            ) from None
    made, stored, seconds = len(finished) - 1, finished[0], time.monotonic() - start
    runs = f"{made} of {made + stored} runs, the others were stored" if stored else f"{made} runs"
    return results, f"{seconds:,.0f} s by the clock for {runs}"


def _document(
    study: AnyStudy, results: Sequence[Result], facts: Mapping[str, str], warn: Warn
) -> Document:
    try:
        return study.document(results, facts=facts)
    except MissingExtra as missing:
        warn(str(missing))
        return study.document(results, facts=facts, pictures=False)
