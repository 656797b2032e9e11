"""`dyclu reproduce` and `dyclu simulate`: from options to stored runs and reports."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.sim import Population
from dyclu.sim.runs import results as stored_results
from dyclu.sim.studies import paper, study
from tests.signals import hear_interrupts, needs_signals

TINY = [
    "--users=3",
    "--parameters=2",
    "--dim=3",
    "--arms=9",
    "--offered=3",
    "--rounds=30",
    "--shortest=8",
    "--longest=12",
    "--jobs=2",
]
PATIENCE = 60.0
"""Seconds after which a test that waits for something gives up."""

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "reproduce.md"

WAITING = """\
import os, pathlib, time
from dyclu.policies import Uniform

class Waiting(Uniform):
    def decide(self, user, arms):
        while not pathlib.Path(os.environ["GO"]).exists():
            time.sleep(0.02)
        return super().decide(user, arms)
"""


FAILING = """\
from dyclu.policies import Uniform

class Bad(Uniform):
    def learn(self, user, context, reward):
        raise ValueError("one\\ntwo")
"""


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "100"})


def simulate(out: Path, *options: str) -> Any:
    return invoke("simulate", *TINY, f"--out={out}", *options)


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from dyclu.cli import main; main()", *words]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def inodes(out: Path) -> dict[str, int]:
    """Return the files of stored runs; one that is written again is another file."""
    return {path.name: path.stat().st_ino for path in (out / "runs").glob("*.json")}


def not_to_be_called(*_: object, **__: object) -> NoReturn:
    raise AssertionError("played")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make quick runs even quicker."""
    monkeypatch.setattr(paper, "QUICK_USERS", 3)
    monkeypatch.setattr(paper, "QUICK_SHARE", 50)


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a run begins."""
    monkeypatch.setattr(study, "sweep", not_to_be_called)


# Simulations.


def test_the_defaults_of_a_simulation_are_those_of_a_population() -> None:
    group: Any = typer.main.get_command(app)
    defaults = {option.name: option.default for option in group.commands["simulate"].params}
    for field in fields(Population):
        assert defaults[field.name] == field.default


def test_a_simulation_is_a_table_of_runs_and_a_report(out: Path) -> None:
    result = simulate(out, "--seeds=3", "--policies=linucb,uniform")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    rows = table(out / "results.csv")
    assert list(rows[0]) == list(stored_results.COLUMNS)
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (policy, seed) for policy in ("linucb", "uniform") for seed in "012"
    ]
    assert list(table(out / "timing.csv")[0]) == [*stored_results.LABELS, *stored_results.TIMES]
    files = {path.name for path in out.iterdir()}
    tables = {"results.csv", "timing.csv", "curves.csv"}
    report = tables | {"simulation.png", "report.md", "report.html"}
    assert files == report | {"runs"}
    assert all(f"written: {out / name}" in result.stdout for name in report)


def test_a_policy_that_fails_on_rare_clicks_says_so_in_terminal_and_report(out: Path) -> None:
    options = "--set=offset=-4.5,slope=0.1,dim=2,users=20,rounds=100"
    result = invoke(
        "simulate", "--world=rare-clicks", options, "--seeds=1", "--policies=dyclu", f"--out={out}"
    )
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "dyclu warns in 1 of 1 run (rare-clicks offset=-4.5" in words
    assert "use Atlas or pass noise=0.5 if rewards are 0 or 1" in words
    assert max(map(len, result.stdout.splitlines())) <= max(100, len(f"written: {out}") + 12)
    for name in ("report.md", "report.html"):
        assert "dyclu warns in 1 of 1 run" in (out / name).read_text()


def test_the_report_says_the_means_of_the_table(out: Path) -> None:
    simulate(out, "--seeds=3", "--policies=linucb,uniform")
    regrets: dict[str, list[float]] = {}
    for row in table(out / "results.csv"):
        regrets.setdefault(row["policy"], []).append(float(row["regret"]))
    report = (out / "report.md").read_text()
    for values in regrets.values():
        digits = 1 if fmean(values) >= 10 else 2
        error = stdev(values) / 3**0.5
        assert f"| {fmean(values):.{digits}f} ± {error:.{digits}f} |" in report
    assert "--users=3 --parameters=2 --dim=3" in report
    assert str(out) not in report + (out / "report.html").read_text()


def test_one_seed_has_no_standard_error(out: Path) -> None:
    assert "± n/a" in simulate(out, "--seeds=1", "--policies=uniform").stdout


def test_repeating_a_simulation_computes_nothing_and_writes_the_same(out: Path) -> None:
    simulate(out, "--seeds=2", "--policies=linucb,uniform")
    runs, written = inodes(out), (out / "results.csv").read_bytes()
    assert len(runs) == 4
    assert simulate(out, "--seeds=2", "--policies=uniform,linucb").exit_code == 0
    assert inodes(out) == runs
    assert (out / "results.csv").read_bytes() == written


def test_a_damaged_run_is_made_again_with_a_warning(out: Path) -> None:
    simulate(out, "--seeds=2", "--policies=uniform")
    runs, written = inodes(out), (out / "results.csv").read_bytes()
    (damaged, other) = sorted(runs)
    (out / "runs" / damaged).write_text("{")
    result = simulate(out, "--seeds=2", "--policies=uniform")
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"dyclu: {out / 'runs' / damaged} is damaged")
    assert inodes(out)[other] == runs[other]
    assert (out / "results.csv").read_bytes() == written


def test_replacing_a_report_by_a_shorter_one_gives_a_warning(out: Path) -> None:
    simulate(out, "--seeds=3", "--policies=linucb,uniform")
    assert simulate(out, "--seeds=3", "--policies=uniform,linucb").stderr == ""
    shorter = simulate(out, "--seeds=2", "--policies=linucb,uniform")
    assert shorter.exit_code == 0
    assert shorter.stderr.startswith(f"dyclu: the report that was in {out} had 2 runs that are not")
    assert shorter.stderr.count("\n") == 1


def test_the_report_says_how_long_the_runs_took(out: Path) -> None:
    simulate(out, "--seeds=2", "--policies=uniform")
    assert "s by the clock for 2 runs`" in (out / "report.md").read_text()
    simulate(out, "--seeds=3", "--policies=uniform")
    assert "s by the clock for 1 of 3 runs" in (out / "report.md").read_text()


def test_a_short_simulation_is_not_called_by_the_name_of_a_row(out: Path) -> None:
    words = ["simulate", "--rounds=2", "--seeds=1", "--policies=uniform", f"--out={out}"]
    assert invoke(*words, "--jobs=1").exit_code == 0
    assert [row["setting"] for row in table(out / "results.csv")] == ["rounds=2"]


def test_a_policy_that_fails_is_named_in_a_line_per_run(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_policy.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    result = simulate(out, "--seeds=2", "--policies=failing_policy:Bad")
    assert result.exit_code == 2
    first, *lines = result.stderr.splitlines()
    assert first.startswith("dyclu: 2 runs failed")
    assert len(lines) == 2
    for seed, line in enumerate(lines):
        assert line.startswith("- failing_policy:Bad on ")
        assert line.endswith(f", seed {seed}: ValueError: one two")


@pytest.mark.parametrize("address", ["garbage", "", "tcp://", "foo://x:1", "host:port"])
def test_an_invalid_scheduler_address_is_refused_at_once(address: str, out: Path) -> None:
    pytest.importorskip("distributed", reason="dask is not installed")
    start = time.monotonic()
    result = simulate(out, "--seeds=1", "--policies=uniform", f"--dask={address}")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"dyclu: no Dask scheduler answers at {address!r} (")
    assert result.stderr.count("\n") == 1
    assert time.monotonic() - start < PATIENCE / 4


def test_zero_parameters_give_every_period_its_own(out: Path) -> None:
    assert simulate(out, "--parameters=0", "--seeds=1", "--policies=uniform").exit_code == 0
    assert "--parameters=0" in (out / "report.md").read_text()


def test_without_matplotlib_the_report_has_no_pictures(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = simulate(out, "--seeds=1", "--policies=uniform")
    assert result.exit_code == 0
    assert result.stderr.count("\n") == 1
    assert "pip install 'dyclu[plots]'" in result.stderr
    assert "uniform" in (out / "report.html").read_text()
    assert not list(out.glob("*.png"))


def test_the_policy_of_the_guide_is_found_in_the_current_folder_and_on_the_path(
    tmp_path: Path, out: Path
) -> None:
    example = re.search(r"```python\n(# mypolicies\.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "mypolicies.py").write_text(example[1])
    options = [*TINY, f"--out={out}", "--seeds=1", "--policies=mypolicies:Average,uniform"]
    for here, path in ((tmp_path, ""), (tmp_path.parent, str(tmp_path))):
        env = {**os.environ, "PYTHONPATH": path}
        result = subprocess.run(
            command("simulate", *options),
            cwd=here,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
    average, uniform = table(out / "results.csv")
    assert average["policy"] == "mypolicies:Average"
    assert float(average["regret"]) < float(uniform["regret"])


@needs_signals
def test_ctrl_c_keeps_finished_runs_and_says_how_to_continue(tmp_path: Path, out: Path) -> None:
    (tmp_path / "slow.py").write_text(WAITING)
    options = [*TINY, f"--out={out}", "--seeds=1", "--policies=uniform,slow:Waiting"]
    start = {
        "cwd": tmp_path,
        "env": {**os.environ, "GO": str(tmp_path / "go")},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    process: subprocess.Popen[str] = subprocess.Popen(
        command("simulate", *options),
        start_new_session=True,
        preexec_fn=hear_interrupts,
        **start,  # type: ignore[call-overload]
    )
    end = time.monotonic() + PATIENCE
    while not (out / "runs").exists() or not inodes(out):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    kept = inodes(out)
    # As a terminal does: to the workers too.
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr == (
        f"dyclu: interrupted; finished runs are kept in {out / 'runs'}, "
        "the same command goes on from there\n"
    )
    assert not (out / "results.csv").exists()

    (tmp_path / "go").touch()
    again: Any = subprocess.run(command("simulate", *options), check=False, **start)  # type: ignore[call-overload]
    assert again.returncode == 0, again.stderr
    assert len(inodes(out)) == 2
    assert inodes(out).items() >= kept.items()
    assert len(table(out / "results.csv")) == 2


# The paper.


@pytest.mark.usefixtures("small")
def test_quick_studies_share_a_store_and_have_reports_of_their_own(out: Path) -> None:
    policies = "--policies=uniform,linucb"
    first = invoke("reproduce", "table1", "--quick", "--rows=1,9", policies, f"--out={out}")
    second = invoke("reproduce", "figure2", "--quick", "--seeds=1", policies, f"--out={out}")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert "not comparable with the paper's" in first.stdout
    rows = table(out / "table1-quick" / "results.csv")
    assert {row["setting"] for row in rows} == {"row1", "row9"}
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert {row["rounds"] for row in rows} == {"50"}
    rows = table(out / "figure2-quick" / "results.csv")
    assert [row["setting"] for row in rows] == ["env1", "env1", "env2", "env2", "env3", "env3"]
    assert len(inodes(out)) == 8 + 6
    page = (out / "figure2-quick" / "report.html").read_text()
    assert "not comparable with the paper" in page
    assert "Environment 2" in page
    assert not re.search(r"(src|href)=[\"'](?!#)", page)
    command_line = "dyclu reproduce table1 --rows=1,9 --policies=uniform,linucb --quick"
    assert command_line in (out / "table1-quick" / "report.md").read_text()


@pytest.mark.usefixtures("no_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table1", "--rows=12"], "Table 1 has no row 12; choose from 1-9"),
        (["table1", "--rows=one"], "rows is 'one', expected whole numbers such as 1,4-6"),
        (["figure2", "--rows=1"], "figure2 has no rows; leave out --rows"),
        (["table1", "--seeds=0"], "seeds is 0, expected a number of runs from 1 to"),
        (["table1", "--seeds=-1"], "seeds is '-1', expected"),
        (["table1", "--jobs=0"], "jobs is 0, expected 1 or more; leave it out"),
        (["table1", "--policies=nope"], "no policy is called 'nope'; choose one of uniform"),
        (["table1", "--policies="], "there are no policies, expected some of uniform"),
        (["table1", "--policies=no_such:Thing"], "'no_such:Thing' cannot be imported"),
        (["table1", "--policies=fractions:Fraction"], "'fractions:Fraction' makes a Fraction"),
        (["lastfm"], "lastfm needs --data with the Last.fm data set; get the data set"),
        (["all"], "all needs --data with the Last.fm data set; get the data set"),
        (["lastfm", "--data=/nowhere"], "cannot read /nowhere/user_taggedartists.dat"),
        (["lastfm", "--data=/nowhere", "--scaling=odd"], "scaling is 'odd', expected one of"),
        (["table1", "--order=dated"], "--order is for lastfm; leave it out"),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    words: list[str], message: str, out: Path
) -> None:
    result = invoke("reproduce", *words, f"--out={out}")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"dyclu: {message}")
    assert result.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.usefixtures("no_runs")
def test_an_impossible_setting_is_refused_before_the_first_run(out: Path) -> None:
    result = simulate(out, "--parameters=50", "--separation=1.9")
    assert result.exit_code == 2
    assert result.stderr.startswith("dyclu: separation is 1.9")
    assert not out.exists()


@pytest.mark.usefixtures("no_runs")
def test_a_file_at_the_path_of_the_folder_is_found_before_the_first_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (["simulate", *TINY], ["reproduce", "table1"]):
        result = invoke(*words, f"--out={tmp_path / 'file'}")
        assert result.exit_code == 2
        assert result.stderr.startswith(f"dyclu: cannot write {tmp_path / 'file'} (")
        assert result.stderr.count("\n") == 1


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    result = invoke("reproduce", "table2")
    assert result.exit_code == 2
    assert all(what in result.stderr for what in ("table1", "figure2", "lastfm", "all"))
