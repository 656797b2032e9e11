"""`dyclu.sim.studies.lastfm`: runs on Last.fm are swept and reported like all others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dyclu.cli import app
from dyclu.errors import OptionError, SweepFailed
from dyclu.sim.reports.document import Table
from dyclu.sim.reports.page import html, markdown
from dyclu.sim.runs.results import Result, write_csv, write_timing
from dyclu.sim.runs.stream import job as stream_job
from dyclu.sim.runs.sweep import sweep
from dyclu.sim.studies.lastfm import LastFMStudy
from dyclu.sim.worlds.lastfm import LISTENED, TAGGED
from tests.unit.sim.samples import FACTS, a_result


def made(study: LastFMStudy, folder: Path) -> list[Result]:
    return study.run(folder, workers=1, dask=None, progress=lambda done, total: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three people, each of whom gave 40 of 120 artists 20 of 40 tags."""
    rng = np.random.default_rng(5)
    rows = [
        (person, 10 * (40 * person + artist), tag, 1, 4, 2009)
        for person in range(3)
        for artist in range(1, 41)
        for tag in rng.permutation(40)[:20].tolist()
    ]
    folder = tmp_path_factory.mktemp("hetrec")
    for (name, columns), table in ((TAGGED, rows), (LISTENED, [(0, 10, 1)])):
        lines = ["\t".join(map(str, line)) for line in (columns, *table)]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_last_fm_runs_are_made_once(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform", "linucb"), seeds=(0,), quick=True)
    calls: list[tuple[int, int]] = []
    results = study.run(
        tmp_path,
        workers=2,
        dask=None,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(0, 2), (1, 2), (2, 2)]
    uniform, linucb = results
    # Four users of two people of 800 observations each.
    assert (uniform.policy, uniform.rounds) == ("uniform", 4 * 2 * 800)
    assert uniform.alarms_true + uniform.alarms_missed == 4
    assert linucb.regret < uniform.regret < uniform.rounds
    assert uniform.curve[-1] == uniform.regret

    before = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    assert made(study, tmp_path) == results
    assert {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()} == before

    document = study.document(results, facts=FACTS)
    assert document.title in html(document)
    assert isinstance(document.parts[0][1], Table)
    assert [row[0] for row in document.table.rows] == ["uniform", "linucb"]
    write_csv(results, tmp_path / "results.csv")
    write_timing(results, tmp_path / "timing.csv")
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 3


def test_everything_that_decides_a_run_changes_its_key(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(**options: Any) -> str:
        given: dict[str, Any] = {"policies": ("linucb",), "seeds": (0,), **options}
        (job,) = LastFMStudy.read(data, **given).jobs
        return job.key

    study = LastFMStudy.read(data, policies=("linucb",), seeds=(0,))
    (job,) = study.jobs
    keys = [
        job.key,
        key(seeds=(1,)),
        key(policies=("linucb-0.3",)),
        key(quick=True),
        key(reading={"least": 700}),
        key(reading={"scaling": "unit"}),
        key(reading={"dim": 20}),
        key(drawing={"order": "dated"}),
        key(drawing={"serving": "at random"}),
        key(drawing={"negatives": "untagged"}),
        key(drawing={"users": 5}),
        # Files that read to the same people but other features.
        replace(job, source=replace(study.data, features=-study.data.features).digest).key,
    ]
    monkeypatch.setattr(stream_job, "RESULT_VERSION", 99)
    assert len({*keys, job.key}) == len(keys) + 1


def test_default_options_and_the_same_options_given_have_the_same_key(data: Path) -> None:
    by_default, given = (
        LastFMStudy.read(data, policies=("dyclu",), seeds=(0,), **options).jobs[0]
        for options in (
            dict[str, Any](),
            {"reading": {"least": 800}, "drawing": {"order": "shuffled", "users": 20}},
        )
    )
    assert given.key == by_default.key
    assert given.name == by_default.name == "lastfm"


def test_runs_with_other_options_have_other_names(data: Path) -> None:
    study = LastFMStudy.read(
        data,
        policies=("dyclu",),
        seeds=(0,),
        reading={"scaling": "unit", "least": 800},
        drawing={"serving": "at random"},
    )
    assert study.jobs[0].name == "lastfm scaling=unit serving=at random"


def test_an_impossible_stream_is_refused_before_the_first_run(data: Path) -> None:
    for drawing, complaint in (({"parts": 4}, "parts is 4"), ({"order": "any"}, "order is 'any'")):
        with pytest.raises(OptionError, match=complaint):
            LastFMStudy.read(data, policies=("uniform",), seeds=(0,), drawing=drawing)


def test_the_report_names_the_width_of_every_policy(data: Path) -> None:
    study = LastFMStudy.read(data, policies=("dyclu", "dyclu-0.3", "largest-norm"), seeds=(0,))
    runs = [a_result("lastfm", policy, 0, 5.0) for policy in study.policies]
    text = markdown(study.document(runs, facts=FACTS, pictures=False))
    levels = "window=20, window_delta=0.1, change_level=0.01, neighbour_level=0.01"
    assert f"| dyclu | Eq. (2) | ridge=0.1, delta=0.1, {levels} |" in text
    assert f"| dyclu-0.3 | 0.3 | ridge=0.1, delta=0.1, {levels}, alpha=0.3 |" in text
    assert "popularity leaks into the length" in text
    assert "| order | shuffled |" in text
    assert "Nobody is told the noise" in text


def test_a_run_that_fails_does_not_stop_the_others(data: Path, tmp_path: Path) -> None:
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0, 1), quick=True)
    good, bad = study.jobs
    # Fewer artists than are offered: drawing the stream fails, in the worker.
    few = replace(study.data, tagged=np.ones_like(study.data.tagged))
    with pytest.raises(SweepFailed, match=r"1 run failed.*\n- uniform on lastfm.*, seed 1: Option"):
        sweep([replace(bad, data=few), good], folder=tmp_path, workers=1)
    assert [file.stem for file in (tmp_path / "runs").iterdir()] == [good.key]


def test_reproducing_all_with_the_oracle_alone_is_refused(data: Path, tmp_path: Path) -> None:
    words = ["reproduce", "all", "--policies=oracle", f"--data={data}", f"--out={tmp_path / 'out'}"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr.startswith("dyclu: oracle cannot play on Last.fm")
    assert not (tmp_path / "out").exists()


def test_options_of_last_fm_come_from_the_command_line(data: Path, tmp_path: Path) -> None:
    options = ["--least=700", "--scaling=unit", "--order=dated", "--serving=at-random"]
    words = ["lastfm", "--quick", f"--data={data}", "--policies=uniform", "--seeds=1", *options]
    result = CliRunner().invoke(
        app, ["reproduce", *words, "--negatives=untagged", f"--out={tmp_path}", "--jobs=1"]
    )
    assert result.exit_code == 0, result.output
    (run,) = (json.loads(file.read_text()) for file in (tmp_path / "runs").iterdir())
    assert run["job"]["reading"] == {"dim": 25, "least": 700, "scaling": "unit"}
    assert run["job"]["drawing"] == {
        "users": 4,
        "parts": 2,
        "offered": 25,
        "order": "dated",
        "serving": "at random",
        "negatives": "untagged",
    }
    text = (tmp_path / "lastfm-quick" / "report.md").read_text()
    assert f"--quick {' '.join(options)} --negatives=untagged" in text


def test_a_dask_cluster_needs_no_files(data: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    study = LastFMStudy.read(data, policies=("uniform",), seeds=(0,), quick=True)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        results = study.run(
            tmp_path,
            workers=None,
            dask=cluster.scheduler_address,
            progress=lambda done, total: None,
        )
    assert results == [job.run() for job in study.jobs]


def test_the_oracle_is_refused_on_last_fm(data: Path) -> None:
    with pytest.raises(OptionError, match=r"oracle cannot play .*choose from largest-norm, unif"):
        LastFMStudy.read(data, policies=("oracle",), seeds=(0,))
