"""`dyclu.sim.runs.sweep`: runs are made once, stored, and survive killed workers."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from uuid import uuid4

import pytest

from dyclu.errors import FileError, MissingExtra, OptionError, SweepFailed
from dyclu.policies import Uniform
from dyclu.sim.runs import dask as cluster
from dyclu.sim.runs import sweep as module
from dyclu.sim.runs import workers
from dyclu.sim.runs.jobs import Job, digest
from dyclu.sim.runs.results import Result, write_csv
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.runs.workers import ONE_THREAD
from dyclu.sim.worlds.population import Population
from tests.signals import hear_interrupts, needs_signals

TINY = Population(users=4, parameters=2, dim=4, arms=20, offered=5, rounds=30, shortest=10)
LONGER = replace(TINY, rounds=60)
"""Longer runs start earlier."""

PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""


# Policies with side effects. Workers import this module by its name; the environment names the
# folder for their marks and the file they wait for.


class Worried(Uniform):
    """Always warns of the same."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return ("Seen this, expected that; do so.",)


def marking(dim: int, seed: int = 0) -> Uniform:
    """Leave a mark that says what the worker's environment is."""
    mark = {name: os.environ.get(name) for name in ONE_THREAD}
    (Path(os.environ["MARKS"]) / f"{os.getpid()}-{uuid4()}").write_text(json.dumps(mark))
    return Uniform(dim, seed=seed)


def waiting(dim: int, seed: int = 0) -> Uniform:
    """Wait until the file that releases the run exists."""
    policy = marking(dim, seed)
    until(Path(os.environ["GO"]).exists)
    return policy


def failing(dim: int) -> Uniform:
    raise ZeroDivisionError("boom")


def leaving(dim: int) -> Uniform:
    sys.exit("enough")


def dying(dim: int) -> Uniform:
    """Kill the worker at the first attempt."""
    first = Path(os.environ["MARKS"]) / "died"
    if not first.exists():
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Uniform(dim)


def deadly(dim: int) -> Uniform:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def mine(policy: Callable[..., object]) -> str:
    return f"{__name__}:{policy.__name__}"


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("MARKS", str(folder))
    monkeypatch.setenv("GO", str(tmp_path / "go"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return folder


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("*.json"))


def table(results: list[Result], path: Path) -> bytes:
    write_csv(results, path)
    return path.read_bytes()


# Sweeps


def test_a_folder_that_cannot_be_written_to_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot write .*file"):
        sweep([Job(TINY, "uniform")], folder=tmp_path / "file")


def test_results_are_those_of_single_runs_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    jobs = [
        Job(TINY, "uniform", seed=2),
        Job(LONGER, "dyclu"),
        Job(TINY, "linucb"),
        Job(TINY, "uniform", seed=2),
        Job(LONGER, "linucb", rounds=30),
    ]
    calls: list[tuple[int, int]] = []
    results = sweep(
        jobs,
        folder=tmp_path,
        workers=2,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert results == [job.run() for job in jobs]
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert len(stored(tmp_path)) == 3


def test_long_runs_start_first() -> None:
    jobs = [
        Job(TINY, "linucb"),
        Job(LONGER, "dyclu"),
        Job(LONGER, "uniform"),
        Job(replace(LONGER, users=2 * LONGER.users), "uniform"),
        Job(TINY, "dyclu"),
    ]
    order = module._longest_first({job.key: job for job in jobs})
    assert list(order.values()) == [jobs[place] for place in (1, 4, 3, 2, 0)]


def test_stored_runs_are_not_computed_again(tmp_path: Path, marks: Path) -> None:
    jobs = [Job(TINY, mine(marking), seed=seed) for seed in range(3)]
    first = sweep(jobs[:2], folder=tmp_path, workers=1)
    assert len(list(marks.iterdir())) == 2
    second = sweep(jobs, folder=tmp_path, workers=1)
    assert len(list(marks.iterdir())) == 3
    # A stored result is returned unchanged, with its timing.
    assert [result.timing for result in second[:2]] == [result.timing for result in first]
    assert second[:2] == first
    assert sweep(jobs, folder=tmp_path, workers=1) == second
    assert len(list(marks.iterdir())) == 3


def test_warnings_are_stored_with_the_result(tmp_path: Path) -> None:
    job = Job(TINY, mine(Worried))
    (made,) = sweep([job], folder=tmp_path, workers=1)
    assert made.warnings == ("Seen this, expected that; do so.",)
    assert sweep([job], folder=tmp_path, workers=1) == [made]


def test_a_result_stored_before_there_were_warnings_is_used(tmp_path: Path) -> None:
    job = Job(TINY, mine(Worried))
    sweep([job], folder=tmp_path, workers=1)
    file = stored(tmp_path)[0]
    text = json.loads(file.read_text())
    del text["result"]["warnings"]
    text["digest"] = digest(text["result"])
    file.write_text(json.dumps(text))
    before = file.stat().st_ino
    (found,) = sweep([job], folder=tmp_path, workers=1)
    assert found.warnings == ()
    assert file.stat().st_ino == before


def test_a_stored_run_gets_the_setting_name_of_its_job(tmp_path: Path) -> None:
    job = Job("row1", "uniform", rounds=2)
    sweep([job], folder=tmp_path, workers=1)
    file = stored(tmp_path)[0]
    text = json.loads(file.read_text())
    text["result"]["setting"] = "what it was called then"
    text["digest"] = digest(text["result"])
    file.write_text(json.dumps(text))
    assert sweep([job], folder=tmp_path, workers=1)[0].setting == "row1 rounds=2"


def test_workers_have_one_thread_and_the_parents_environment_is_restored(
    tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    sweep([Job(TINY, mine(marking))], folder=tmp_path, workers=1)
    assert [json.loads(mark.read_text()) for mark in marks.iterdir()] == [ONE_THREAD]
    assert dict(os.environ) == before


def _truncated(content: bytes, other: bytes) -> bytes:
    return content[: len(content) // 2]


def _emptied(content: bytes, other: bytes) -> bytes:
    return b""


def _garbled(content: bytes, other: bytes) -> bytes:
    return b"\xff\xfe" + content


def _exchanged(content: bytes, other: bytes) -> bytes:
    return other


def _altered(content: bytes, other: bytes) -> bytes:
    regret = json.loads(content)["result"]["regret"]
    return content.replace(repr(regret).encode(), repr(regret + 1).encode())


def _not_an_object(content: bytes, other: bytes) -> bytes:
    return b"null"


def _without_a_field(content: bytes, other: bytes) -> bytes:
    text = json.loads(content)
    del text["result"]["recall"]
    text["digest"] = digest(text["result"])
    return json.dumps(text).encode()


DAMAGES = (
    _truncated,
    _emptied,
    _garbled,
    _exchanged,
    _altered,
    _not_an_object,
    _without_a_field,
)


def test_damaged_files_are_computed_again_with_a_warning(
    tmp_path: Path, marks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [Job(TINY, mine(marking), seed=seed) for seed in range(len(DAMAGES))]
    results = sweep(jobs, folder=tmp_path, workers=1)
    files = stored(tmp_path)
    contents = [file.read_bytes() for file in files]
    for file, damage, content, other in zip(
        files, DAMAGES, contents, contents[1:] + contents[:1], strict=True
    ):
        file.write_bytes(damage(content, other))
    with caplog.at_level(logging.WARNING):
        assert sweep(jobs, folder=tmp_path, workers=1) == results
    assert len(list(marks.iterdir())) == 2 * len(jobs)
    assert sum("is damaged" in line for line in caplog.messages) == len(jobs)
    caplog.clear()
    assert sweep(jobs, folder=tmp_path, workers=1) == results
    assert not caplog.messages


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    good = [Job(TINY, "uniform"), Job(TINY, "linucb")]
    bad = [Job(LONGER, mine(failing)), Job(LONGER, mine(leaving))]
    calls: list[int] = []
    with pytest.raises(SweepFailed, match="2 runs failed, all others are stored") as caught:
        sweep(
            [*bad, *good],
            folder=tmp_path,
            workers=1,
            progress=lambda *done: calls.append(done[0]),
        )
    assert set(caught.value.failures) == set(bad)
    assert "failing on users=4" in str(caught.value)
    assert "ZeroDivisionError: boom" in str(caught.value)
    assert "SystemExit: enough" in str(caught.value)
    assert calls == [0, 1, 2, 3, 4]
    assert len(stored(tmp_path)) == 2


@needs_signals
def test_a_killed_worker_is_replaced_and_its_run_made_again(
    tmp_path: Path, marks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [Job(LONGER, mine(dying)), *(Job(TINY, "uniform", seed=seed) for seed in range(3))]
    results = sweep(jobs, folder=tmp_path, workers=2)
    assert (marks / "died").exists()
    assert "a worker died" in caplog.text
    assert results == [job.run() for job in jobs]


@needs_signals
def test_a_run_that_kills_every_worker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ATTEMPTS", 2)
    # The run between the two deaths keeps them from counting as two in a row.
    monkeypatch.setattr(workers, "MOST_DEATHS", 2)
    jobs = [Job(LONGER, mine(deadly)), Job(TINY, "uniform")]
    with pytest.raises(SweepFailed, match=r"1 run failed.*\n.*2 workers died of it") as caught:
        sweep(jobs, folder=tmp_path, workers=1)
    assert list(caught.value.failures) == jobs[:1]
    assert len(stored(tmp_path)) == 1


@needs_signals
def test_a_sweep_ends_when_all_workers_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_DEATHS", 2)
    jobs = [Job(TINY, mine(deadly), seed=seed) for seed in range(50)]
    with pytest.raises(SweepFailed, match=r"50 runs failed(.*\n){11}.*and 40 more$") as caught:
        sweep(jobs, folder=tmp_path, workers=1)
    assert all("the last 2 workers" in str(why) for why in caught.value.failures.values())


def test_an_exception_in_the_parent_ends_the_workers_at_once(tmp_path: Path, marks: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError) as caught:
        sweep([QUICK[0], HELD_UP[0]], folder=tmp_path, workers=2, progress=stop)
    assert caught.value.args == ("enough",)
    assert not active_children()


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_worker_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(OptionError, match="workers is"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, workers=count)


def test_a_worker_with_other_code_refuses_the_run() -> None:
    with pytest.raises(OptionError, match="give all workers the same dyclu"):
        workers.make_run(Job(TINY, "uniform"), "the key of another configuration")


# Sweeps that are killed

QUICK = [Job(LONGER, "uniform", seed=1), Job(LONGER, "linucb"), Job(LONGER, "dyclu")]
HELD_UP = [Job(TINY, mine(waiting), seed=seed) for seed in range(3)]

SCRIPT = f"""\
import sys
from pathlib import Path
from {__name__} import HELD_UP, QUICK
from dyclu.sim.runs.results import write_csv
from dyclu.sim.runs.sweep import sweep

if __name__ == "__main__":
    folder, held_up = Path(sys.argv[1]), int(sys.argv[2])
    try:
        results = sweep(HELD_UP[:held_up] + QUICK, folder=folder, workers=2)
    except KeyboardInterrupt:
        sys.exit("interrupted")
    write_csv(results, folder / "results.csv")
"""

Start = Callable[[Path, int], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, marks: Path) -> Iterator[Start]:
    """Start a sweep of QUICK and some of HELD_UP, in a session that is ended with the test."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    started = []

    def begin(folder: Path, held_up: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(script), str(folder), str(held_up)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@needs_signals
def test_a_sweep_killed_halfway_ends_with_the_same_bytes(
    tmp_path: Path, marks: Path, start: Start
) -> None:
    folder, go = tmp_path / "killed", tmp_path / "go"
    killed = start(folder, len(HELD_UP))
    until(lambda: len(stored(folder)) == len(QUICK) and len(list(marks.iterdir())) == 2)
    killed.kill()
    # Its workers have the other ends of these pipes, which close when the last worker ends.
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "results.csv").exists()
    before = {file: file.read_bytes() for file in stored(folder)}

    go.touch()
    again = start(folder, len(HELD_UP))
    said = again.communicate(timeout=PATIENCE)
    assert (again.returncode, *said) == (0, "", "")
    assert {file: file.read_bytes() for file in before} == before
    assert len(list(marks.iterdir())) == 2 + len(HELD_UP)

    undisturbed = sweep([*QUICK, *HELD_UP], folder=tmp_path / "undisturbed", workers=1)
    assert (folder / "results.csv").read_bytes() == table(undisturbed, tmp_path / "results.csv")


@needs_signals
def test_ctrl_c_ends_workers_and_keeps_what_is_finished(
    tmp_path: Path, marks: Path, start: Start
) -> None:
    folder = tmp_path / "interrupted"
    process = start(folder, 1)
    until(lambda: len(stored(folder)) == len(QUICK) and len(list(marks.iterdir())) == 1)
    # A terminal signals the whole group: also a waiting and an idle worker.
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, *said) == (1, "", "interrupted\n")
    assert len(stored(folder)) == len(QUICK)


# Dask


def test_without_distributed_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[sweep\]'"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1")


def test_dask_is_not_contacted_if_all_runs_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = sweep([Job(TINY, "uniform")], folder=tmp_path, workers=1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1") == results


def test_an_address_where_no_scheduler_answers_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr(cluster, "TIMEOUT", "200ms")
    with pytest.raises(OptionError, match="no Dask scheduler answers at 'tcp:"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1")


@needs_signals
def test_a_dask_cluster_gives_the_same_bytes_though_a_worker_is_killed(
    tmp_path: Path, marks: Path
) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    jobs = [*QUICK, *HELD_UP, Job(LONGER, mine(failing))]

    def kill_one(done: int, total: int) -> None:
        """Kill one waiting worker, then release the others."""
        if done == len(QUICK) + 1:
            until(lambda: len(list(marks.iterdir())) == 2)
            os.kill(int(next(marks.iterdir()).name.partition("-")[0]), signal.SIGKILL)
            (tmp_path / "go").touch()

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        pytest.raises(SweepFailed, match=r"1 run failed.*\n.*ZeroDivisionError: boom"),
    ):
        sweep(
            jobs,
            folder=tmp_path / "dask",
            dask=cluster.scheduler_address,
            progress=kill_one,
        )
    assert len(list(marks.iterdir())) > len(HELD_UP)
    on_dask = sweep(jobs[:-1], folder=tmp_path / "dask", workers=1)
    here = [job.run() for job in jobs[:-1]]
    assert table(on_dask, tmp_path / "dask.csv") == table(here, tmp_path / "here.csv")
