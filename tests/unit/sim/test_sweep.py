"""`dyclu.sim.sweep`: runs are made once, stored, and survive whatever kills what makes them."""

from __future__ import annotations

import csv
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import pairwise, permutations
from multiprocessing import active_children
from pathlib import Path
from uuid import uuid4

import pytest

import dyclu
from dyclu.errors import DycluError, FileError, KindError, MissingExtra, OptionError
from dyclu.policies import LinUCB, Uniform
from dyclu.sim import paper
from dyclu.sim import sweep as module
from dyclu.sim.measures import Summary, regret, summary
from dyclu.sim.play import play
from dyclu.sim.population import Population
from dyclu.sim.sweep import (
    ONE_THREAD,
    Job,
    Result,
    SweepFailed,
    Timing,
    checkpoints,
    run,
    sweep,
    write_csv,
    write_timing,
)

TINY = Population(users=4, parameters=2, dim=4, arms=20, offered=5, rounds=30, shortest=10)
LONGER = replace(TINY, rounds=60)
"""What is longer is begun earlier."""

PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""


# Policies that do more than play. Workers import this module by its name, and find the folder to
# leave their marks in, and the file they wait for, in the environment.


def marking(dim: int, seed: int = 0) -> Uniform:
    """Leave a mark that says what the worker's environment is."""
    mark = {name: os.environ.get(name) for name in ONE_THREAD}
    (Path(os.environ["MARKS"]) / f"{os.getpid()}-{uuid4()}").write_text(json.dumps(mark))
    return Uniform(dim, seed=seed)


def waiting(dim: int, seed: int = 0) -> Uniform:
    """Go on only once it is allowed."""
    policy = marking(dim, seed)
    until(Path(os.environ["GO"]).exists)
    return policy


def failing(dim: int) -> Uniform:
    raise ZeroDivisionError("boom")


def leaving(dim: int) -> Uniform:
    sys.exit("enough")


def dying(dim: int) -> Uniform:
    """Kill the worker, the first time."""
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


# Jobs


def test_keys_do_not_depend_on_the_order_of_fields() -> None:
    given = {"users": 3, "dim": 4, "rounds": 9}
    orders = [dict(order) for order in permutations(given.items())]
    assert len({Job(Population(**order), "linucb").key for order in orders}) == 1


def test_keys_are_of_the_configuration_not_of_its_name() -> None:
    named = Job("row1", "dyclu", seed=2, rounds=100)
    assert named.key == Job(Population(rounds=100), "dyclu", seed=2).key
    assert named.key == Job(Population(rounds=7), "dyclu", seed=2, rounds=100).key


def test_keys_of_different_configurations_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [
        Job("row1", "dyclu"),
        Job("row2", "dyclu"),
        Job("row1", "linucb"),
        Job("row1", "shared-linucb"),
        Job("row1", mine(marking)),
        Job("row1", "dyclu", seed=1),
        Job("row1", "dyclu", rounds=10),
        Job(Population(noise=0.1), "dyclu"),
    ]
    keys = {job.key for job in jobs}
    for name, value in (("RESULT_VERSION", 99), ("__version__", "99"), ("LOOK", 99)):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            keys.add(jobs[0].key)
    monkeypatch.setattr(paper, "RIDGE", 99.0)
    assert len(keys | {jobs[0].key}) == len(jobs) + 4


def test_keys_are_the_same_in_every_process() -> None:
    code = "from dyclu.sim.sweep import Job; print(Job('row3', 'dyclu', seed=4).key)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert told.stdout.strip() == Job("row3", "dyclu", seed=4).key


def test_an_own_policy_that_was_edited_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "edited_policy.py"
    source.write_text("from dyclu.policies.uniform import Uniform\nclass Mine: pass\n")
    job = Job(TINY, "edited_policy:Mine")
    before = job.key
    assert before == job.key
    source.write_text(source.read_text() + "# better now\n")
    assert job.key != before


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda: Job("row10", "dyclu"), OptionError, "choose one of row1, row2, .*env3"),
        (lambda: Job("row1", "dyclo"), OptionError, "choose one of uniform, linucb"),
        (lambda: Job("row1", "dyclu", seed=-1), OptionError, "seed is -1"),
        (lambda: Job("row1", "dyclu", seed=True), KindError, "seed is True"),
        (lambda: Job("row1", "dyclu", rounds=0), OptionError, "rounds is 0"),
    ],
)
def test_impossible_jobs_are_refused_at_once(
    make: Callable[[], Job], error: type[DycluError], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        make()


def test_a_setting_without_a_name_is_called_what_it_differs_in() -> None:
    assert Job(replace(TINY, rounds=9), "dyclu").name == (
        "users=4 parameters=2 dim=4 arms=20 offered=5 shortest=10"
    )
    assert Job(Population(), "dyclu").name == "row1"


# Runs


def test_a_result_is_what_playing_gives() -> None:
    job = Job(TINY, "dyclu.policies:LinUCB", seed=3)
    played = play(LinUCB(4), TINY.world(seed=3), look=25)
    expected, result = summary(played), run(job)
    timing = {field.name for field in fields(Timing)}
    measured = {field.name for field in fields(Summary)} - timing
    assert {name: getattr(result, name) for name in measured} == {
        name: getattr(expected, name) for name in measured
    }
    assert (result.setting, result.policy, result.seed) == (job.name, job.policy, 3)
    assert (result.rounds, result.version) == (30, dyclu.__version__)
    assert result.timing.seconds > 0
    assert result.curve == tuple(regret(played)[3::4])


def test_results_are_equal_whatever_time_they_took() -> None:
    first, second = run(Job(TINY, "uniform")), run(Job(TINY, "uniform"))
    assert first == second
    assert first.timing != second.timing
    assert first != run(Job(TINY, "uniform", seed=1))


@pytest.mark.parametrize("rounds", [1, 7, 249, 250, 251, 1000, 2500])
def test_checkpoints_are_evenly_spaced_and_end_at_the_end(rounds: int) -> None:
    points = [0, *checkpoints(rounds).tolist()]
    steps = {later - earlier for earlier, later in pairwise(points)}
    assert points[-1] == rounds
    assert len(points) - 1 == min(rounds, 250)
    assert steps <= {rounds // (len(points) - 1), rounds // (len(points) - 1) + 1}


# Tables


def outcome(**values: object) -> Result:
    usual: dict[str, object] = {
        "setting": "row1",
        "policy": "dyclu",
        "seed": 0,
        "rounds": 10,
        "regret": 0.1 + 0.2,
        "alarms_true": 1,
        "alarms_false": 2,
        "alarms_missed": 3,
        "median_delay": None,
        "precision": 1.0,
        "recall": 1 / 3,
        "parameter_error": 1e-17,
        "version": "1.0",
        "curve": (0.1,),
        "timing": Timing(seconds=2.0, rounds_per_second=5.0),
    }
    return Result(**(usual | values))  # type: ignore[arg-type]


def test_the_table_has_a_line_per_run_in_order_and_exact_numbers(tmp_path: Path) -> None:
    results = [
        outcome(setting="row2"),
        outcome(seed=10),
        outcome(seed=9),
        outcome(policy="club"),
        outcome(rounds=5),
    ]
    assert table(results, tmp_path / "results.csv").decode() == (
        "setting,policy,seed,rounds,regret,alarms_true,alarms_false,alarms_missed,median_delay,"
        "precision,recall,parameter_error,version\n"
        "row1,club,0,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,0,5,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,9,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row1,dyclu,10,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
        "row2,dyclu,0,10,0.30000000000000004,1,2,3,,1.0,0.3333333333333333,1e-17,1.0\n"
    )


def test_timing_has_a_table_of_its_own(tmp_path: Path) -> None:
    write_timing([outcome()], tmp_path / "timing.csv")
    assert (tmp_path / "timing.csv").read_text() == (
        "setting,policy,seed,rounds,seconds,rounds_per_second\nrow1,dyclu,0,10,2.0,5.0\n"
    )


def test_names_with_commas_and_quotes_read_back(tmp_path: Path) -> None:
    write_csv([outcome(policy='a,"b"')], tmp_path / "results.csv")
    with (tmp_path / "results.csv").open(newline="") as file:
        assert [row["policy"] for row in csv.DictReader(file)] == ['a,"b"']


def test_a_folder_that_cannot_be_written_to_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"cannot write .*file"):
        sweep([Job(TINY, "uniform")], folder=tmp_path / "file")
    with pytest.raises(FileError, match=r"cannot write .*no-folder"):
        write_csv([], tmp_path / "no-folder" / "results.csv")


# Sweeps


def test_results_are_those_of_single_runs_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    jobs = [
        Job(TINY, "uniform", seed=2),
        Job(LONGER, "dyclu"),
        Job(TINY, "linucb"),
        Job(TINY, "uniform", seed=2),
        Job(LONGER, "linucb", rounds=30),
    ]
    told: list[tuple[int, int]] = []
    results = sweep(
        jobs, folder=tmp_path, workers=2, progress=lambda done, total: told.append((done, total))
    )
    assert results == [run(job) for job in jobs]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert len(stored(tmp_path)) == 3


def test_long_runs_are_begun_first() -> None:
    jobs = [
        Job(TINY, "linucb"),
        Job(LONGER, "dyclu"),
        Job(LONGER, "uniform"),
        Job(replace(LONGER, users=2 * LONGER.users), "uniform"),
        Job(TINY, "dyclu"),
    ]
    order = module._longest_first({job.key: job for job in jobs})
    assert list(order.values()) == [jobs[place] for place in (1, 4, 3, 2, 0)]


def test_only_what_is_missing_is_computed(tmp_path: Path, marks: Path) -> None:
    jobs = [Job(TINY, mine(marking), seed=seed) for seed in range(3)]
    first = sweep(jobs[:2], folder=tmp_path, workers=1)
    assert len(list(marks.iterdir())) == 2
    second = sweep(jobs, folder=tmp_path, workers=1)
    assert len(list(marks.iterdir())) == 3
    # What was stored is returned as it was, with the time it took then.
    assert [result.timing for result in second[:2]] == [result.timing for result in first]
    assert second[:2] == first
    assert sweep(jobs, folder=tmp_path, workers=1) == second
    assert len(list(marks.iterdir())) == 3


def test_a_stored_run_goes_by_the_name_it_is_asked_for(tmp_path: Path) -> None:
    job = Job("row1", "uniform", rounds=2)
    sweep([job], folder=tmp_path, workers=1)
    file = stored(tmp_path)[0]
    text = json.loads(file.read_text())
    text["result"]["setting"] = "what it was called then"
    text["digest"] = module._digest(text["result"])
    file.write_text(json.dumps(text))
    assert sweep([job], folder=tmp_path, workers=1)[0].setting == "row1"


def test_workers_use_one_thread_each_and_we_as_many_as_before(
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
    text["digest"] = module._digest(text["result"])
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


def test_damaged_files_are_computed_again_and_said_to_be(
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
    told: list[int] = []
    with pytest.raises(SweepFailed, match="2 runs failed, all others are stored") as caught:
        sweep(
            [*bad, *good], folder=tmp_path, workers=1, progress=lambda *done: told.append(done[0])
        )
    assert set(caught.value.failures) == set(bad)
    assert "failing on users=4" in str(caught.value)
    assert "ZeroDivisionError: boom" in str(caught.value)
    assert "SystemExit: enough" in str(caught.value)
    assert told == [0, 1, 2, 3, 4]
    assert len(stored(tmp_path)) == 2


def test_a_killed_worker_is_replaced_and_its_run_made_again(
    tmp_path: Path, marks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [Job(LONGER, mine(dying)), *(Job(TINY, "uniform", seed=seed) for seed in range(3))]
    results = sweep(jobs, folder=tmp_path, workers=2)
    assert (marks / "died").exists()
    assert "a worker died" in caplog.text
    assert results == [run(job) for job in jobs]


def test_a_run_that_kills_every_worker_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    # The run between the two deaths keeps them from counting as two in a row.
    monkeypatch.setattr(module, "DEATHS", 2)
    jobs = [Job(LONGER, mine(deadly)), Job(TINY, "uniform")]
    with pytest.raises(SweepFailed, match=r"1 run failed.*\n.*2 workers died of it") as caught:
        sweep(jobs, folder=tmp_path, workers=1)
    assert list(caught.value.failures) == jobs[:1]
    assert len(stored(tmp_path)) == 1


def test_a_sweep_none_of_whose_workers_lives_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEATHS", 2)
    jobs = [Job(TINY, mine(deadly), seed=seed) for seed in range(50)]
    with pytest.raises(SweepFailed, match=r"50 runs failed(.*\n){11}.*and 40 more$") as caught:
        sweep(jobs, folder=tmp_path, workers=1)
    assert all("the last 2 workers" in str(why) for why in caught.value.failures.values())


def test_an_exception_of_our_own_ends_the_workers_at_once(tmp_path: Path, marks: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError) as caught:
        sweep([QUICK[0], HELD_UP[0]], folder=tmp_path, workers=2, progress=stop)
    assert caught.value.args == ("enough",)
    assert not active_children()


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_no_sweep(tmp_path: Path, workers: int) -> None:
    with pytest.raises(OptionError, match="workers is"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, workers=workers)


def test_a_worker_refuses_to_make_another_run_than_was_asked_for() -> None:
    with pytest.raises(OptionError, match="give all workers the same dyclu"):
        module._work(Job(TINY, "uniform"), "the key of another configuration")


# Sweeps that are killed

QUICK = [Job(LONGER, "uniform", seed=1), Job(LONGER, "linucb"), Job(LONGER, "dyclu")]
HELD_UP = [Job(TINY, mine(waiting), seed=seed) for seed in range(3)]

SCRIPT = f"""\
import sys
from pathlib import Path
from {__name__} import HELD_UP, QUICK
from dyclu.sim.sweep import sweep, write_csv

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
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_sweep_killed_halfway_ends_with_the_same_bytes(
    tmp_path: Path, marks: Path, start: Start
) -> None:
    folder, go = tmp_path / "killed", tmp_path / "go"
    killed = start(folder, len(HELD_UP))
    until(lambda: len(stored(folder)) == len(QUICK) and len(list(marks.iterdir())) == 2)
    killed.kill()
    # Its workers hold the other ends of these pipes: they end only once none is left.
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


def test_ctrl_c_ends_workers_and_keeps_what_is_finished(
    tmp_path: Path, marks: Path, start: Start
) -> None:
    folder = tmp_path / "interrupted"
    process = start(folder, 1)
    until(lambda: len(stored(folder)) == len(QUICK) and len(list(marks.iterdir())) == 1)
    # A terminal tells the whole group: a worker that is held up, and one with nothing to do, too.
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, *said) == (1, "", "interrupted\n")
    assert len(stored(folder)) == len(QUICK)


# Dask


def test_dask_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dyclu\[sweep\]'"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1")


def test_dask_is_not_asked_for_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = sweep([Job(TINY, "uniform")], folder=tmp_path, workers=1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1") == results


def test_an_address_where_no_scheduler_answers_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="dask is not installed")
    monkeypatch.setattr(module, "PATIENCE", "200ms")
    with pytest.raises(OptionError, match="no Dask scheduler answers at 'tcp:"):
        sweep([Job(TINY, "uniform")], folder=tmp_path, dask="tcp://127.0.0.1:1")


def test_a_dask_cluster_gives_the_same_bytes_though_a_worker_is_killed(
    tmp_path: Path, marks: Path
) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    jobs = [*QUICK, *HELD_UP, Job(LONGER, mine(failing))]

    def kill_one(done: int, total: int) -> None:
        """Kill a worker that is held up, once, and let the others go on."""
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
    here = [run(job) for job in jobs[:-1]]
    assert table(on_dask, tmp_path / "dask.csv") == table(here, tmp_path / "here.csv")
